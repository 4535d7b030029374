"""Embedded data sets and their loaders."""
