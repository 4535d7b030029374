"""Experiments: each module is one, `python -m recipes.NAME`, from data to a scored model."""
