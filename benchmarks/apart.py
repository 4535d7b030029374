"""Calls a function of another module: the other side of `alternating.apart`."""

import importlib
import pathlib
import pickle
import sys

if __name__ == "__main__":  # MODULE FUNCTION FILE FILE
    module, name, asked, answer = sys.argv[1:]
    arguments = pickle.loads(pathlib.Path(asked).read_bytes())
    result = getattr(importlib.import_module(module), name)(*arguments)
    pathlib.Path(answer).write_bytes(pickle.dumps(result))
