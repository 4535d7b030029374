"""Blocks: residual branches of attention and feed-forward layers, and pooling by attention."""
