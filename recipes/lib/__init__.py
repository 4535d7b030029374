"""Code that several recipes, or the tools beside them, use."""
