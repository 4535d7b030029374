"""Weights of published implementations, as golden files hold them, under our names."""

import zlib

import numpy as np


def golden_weights(golden, family):
    """Weight by name, of one of the implementations in a golden file."""
    start = f"{family}/"
    return {key.removeprefix(start): golden[key] for key in golden.files if key.startswith(start)}


def assign(model, table):
    """Sets every weight of the model, by its path; all must be used."""
    table = dict(table)
    for weight in model.weights:
        weight.assign(table.pop(weight.path.removeprefix(f"{model.name}/")))
    assert not table, f"unused: {sorted(table)}"


def dense(weights, name):
    return {"kernel": weights[f"{name}.weight"].T, "bias": weights[f"{name}.bias"]}


def norm(weights, name):
    return {"gamma": weights[f"{name}.weight"], "beta": weights[f"{name}.bias"]}


def attention(query, key, value, output, heads):
    """Three dense layers as projections to heads, and one back from them."""
    table = {}
    for name, layer in (("query", query), ("key", key), ("value", value)):
        width = layer["kernel"].shape[0]
        table[f"{name}/kernel"] = layer["kernel"].reshape(width, heads, -1)
        table[f"{name}/bias"] = layer["bias"].reshape(heads, -1)
    table["attention_output/kernel"] = output["kernel"].reshape(
        heads, -1, output["kernel"].shape[1]
    )
    table["attention_output/bias"] = output["bias"]
    return table


def under(prefix, table):
    return {f"{prefix}/{name}": value for name, value in table.items()}


def split(layer, parts):
    """A dense layer as several, side by side."""
    kernels = np.split(layer["kernel"], parts, axis=1)
    biases = np.split(layer["bias"], parts)
    return [{"kernel": k, "bias": b} for k, b in zip(kernels, biases, strict=True)]


def random_weights(shapes):
    """Weights that follow from their names: dict of name -> shape to name -> float32 array.

    Far from the zeros and ones that they have at first, and small enough for many layers.
    """
    found = {}
    for name, shape in shapes.items():
        rng = np.random.default_rng(zlib.crc32(name.encode()))
        values = rng.normal(size=shape) * (0.3 if len(shape) < 2 else np.prod(shape[1:]) ** -0.5)
        scale = len(shape) == 1 and name.endswith("weight")
        if name.endswith("running_var"):
            values = 0.5 + np.abs(values)
        found[name] = np.asarray(values + scale, "float32")
    return found


def random_images(size, number=2):
    """Images `(number, height, width, 3)` that follow from their size."""
    return np.random.default_rng(size).normal(size=(number, *size, 3)).astype("float32")
