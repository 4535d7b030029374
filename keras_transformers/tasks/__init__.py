"""Tasks, one file each: how it reads raw input, runs a model, answers, is exported and learns.

`export`, `predictors`, `fitting` and `load` are the public names that lead here.
"""
