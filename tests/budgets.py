"""Counts what one call enters: functions and files of the package, and the calls of a construction.

    python tests/budgets.py                       # all counts, beside their budgets
    python tests/budgets.py --list "EncoderBlock" # and the functions of one case, in order

A call is profiled after a first one, which builds what is built only once. Comprehensions,
generator expressions and lambdas belong to the function around them and are not counted.
`tests/test_budgets.py` compares the counts with the budgets.
"""

import argparse
import pathlib
import sys
from typing import NamedTuple

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

import numpy as np

from keras_transformers import layers, models

ROOT = pathlib.Path(__file__).resolve().parent.parent
PACKAGE = ("keras_transformers",)


class Size(NamedTuple):
    """The number of functions and of files that a call enters."""

    functions: int
    files: int


# Name of a case in `call_cases` -> its budget.
CALL_BUDGETS = {
    "SelfAttention": Size(9, 3),
    "EncoderBlock": Size(12, 4),
    "DecoderBlock": Size(16, 5),
    "Transformer, 1 + 1 blocks": Size(35, 8),
    "Transformer, decoding step": Size(20, 6),
    "ViT, 1 block": Size(25, 8),
}
# Name of a case in `construction_cases` -> the largest number of calls.
CONSTRUCTION_BUDGETS = {"ViT.from_variant": 200, "Transformer.from_variant": 200}


def profile(call, folders, note, without=()):
    """Runs `call()`, and calls `note(file, function)` for each function of these folders.

    A function of the folders `without` is left out, with all that it calls.
    """
    prefixes = tuple(f"{ROOT / folder}/" for folder in folders)
    left_out = tuple(f"{ROOT / folder}/" for folder in without)
    depth = 0  # below a function that is left out

    def watch(frame, event, _):
        nonlocal depth
        code = frame.f_code
        if event == "call" and (depth or code.co_filename.startswith(left_out)):
            depth += 1
        elif event == "return" and depth:
            depth -= 1
        elif event == "call" and code.co_filename.startswith(prefixes):
            if not code.co_name.startswith("<"):
                note(code.co_filename[len(str(ROOT)) + 1 :], code.co_qualname)

    previous = sys.getprofile()
    sys.setprofile(watch)
    try:
        call()
    finally:
        sys.setprofile(previous)


def list_functions(call, folders=PACKAGE):
    """Returns the (file, function) pairs that a second `call()` enters, in the order of entry."""
    call()
    functions = {}
    profile(call, folders, lambda file, function: functions.setdefault((file, function)))
    return list(functions)


def count_calls(call, folders=PACKAGE):
    """Returns the number of calls of functions of the package that a second `call()` makes."""
    call()
    entries = []
    profile(call, folders, lambda file, function: entries.append(function))
    return len(entries)


def size_of(functions):
    """Returns the `Size` of a list of (file, function) pairs."""
    return Size(len(functions), len({file for file, _ in functions}))


def make_vit():
    return models.ViT.from_variant("Ti/14", 3, image_size=28, num_layers=1)


def make_transformer():
    return models.Transformer.from_variant("tiny", 31, num_layers=1)


def call_cases():
    """Returns name -> a function that makes one eager call of a built object."""
    x = np.ones((2, 5, 8), "float32")
    ids = np.array([[5, 7, 2]])
    image = np.zeros((1, 28, 28, 3), "float32")
    attention = layers.SelfAttention(2)
    encoder_block = layers.EncoderBlock(2, 16, norm_first=True)
    decoder_block = layers.DecoderBlock(2, 16, norm_first=True)
    transformer, vit = make_transformer(), make_vit()
    pair = {"source": ids, "target": ids}
    transformer(pair)
    state, shared = transformer.start_decoding(ids, 4, 6)
    token = np.ones((1, 4), "int32")
    return {
        "SelfAttention": lambda: attention(x),
        "EncoderBlock": lambda: encoder_block(x),
        "DecoderBlock": lambda: decoder_block(x, x),
        "Transformer, 1 + 1 blocks": lambda: transformer(pair),
        "Transformer, decoding step": lambda: transformer.decode_step(
            token, 0, state, shared, None
        ),
        "ViT, 1 block": lambda: vit(image),
    }


def construction_cases():
    """Returns name -> a function that constructs a model with one layer."""
    return {"ViT.from_variant": make_vit, "Transformer.from_variant": make_transformer}


def print_path(name, functions, budget, with_list):
    """Prints the size of a path beside its budget, and its functions if `with_list`."""
    size = size_of(functions)
    print(
        f"{name:28} {size.functions:3} functions (budget {budget.functions}) "
        f"in {size.files:2} files (budget {budget.files})"
    )
    if with_list:
        print(*(f"    {file}: {function}" for file, function in functions), sep="\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--list", default=None, help="name of the case whose functions are printed")
    listed = parser.parse_args().list
    for name, call in call_cases().items():
        print_path(name, list_functions(call), CALL_BUDGETS[name], name == listed)
    for name, construct in construction_cases().items():
        limit = CONSTRUCTION_BUDGETS[name]
        print(f"{name:28} {count_calls(construct):3} calls (budget {limit})")


if __name__ == "__main__":
    main()
