"""Attention: scores, heads, windows, and what a decoder caches."""
