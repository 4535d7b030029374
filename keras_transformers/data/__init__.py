"""Data that text and vision share: tables, shards, streams, splits, label lists, array files."""
