"""What every package uses: annotations, assertions, backends, caching, imports, words."""
