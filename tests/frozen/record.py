"""Records what a checkout computes, so that two checkouts can be compared bit for bit.

Run it in the root of each checkout, on the same machine, and compare the two folders:

    python tests/frozen/record.py BEFORE                # in the older checkout
    python tests/frozen/record.py AFTER --load BEFORE  # in the newer one; loads the older files
    python tests/frozen/compare.py BEFORE AFTER

The layers and models are those of `tests/every_layer.py` and `tests/every_model.py`.
"""

import argparse
import inspect
import json
import os
import pathlib
import re
import sys
import typing

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
sys.path.insert(0, os.getcwd())

import keras
import numpy as np
import tensorflow as tf

import keras_transformers
from keras_transformers import generation, saving
from tests import every_layer, every_model

PACKAGES = (
    "layers", "models", "generation", "training", "detection", "pretrained", "text", "vision",
    "export", "predictors", "saving", "visualization", "distribution", "precision", "inspection",
    "alignment", "streams",
)  # fmt: skip
ADDRESS = re.compile(r" at 0x[0-9a-f]+")  # of a function in memory
KINDS = ("layers", "models", "decoding")


def describe(layer):
    """Returns the configuration, and the path, shape and dtype of each variable, in order."""
    variables = [
        [variable.path, list(variable.shape), str(variable.dtype), bool(variable.trainable)]
        for variable in layer.variables
    ]
    config = _without_modules(keras.saving.serialize_keras_object(layer))
    return {"config": config, "variables": variables}


def _without_modules(config):
    """Returns a configuration without the names of modules, which are private paths."""
    if isinstance(config, dict):
        return {key: _without_modules(x) for key, x in config.items() if key != "module"}
    return list(map(_without_modules, config)) if isinstance(config, list | tuple) else config


def randomize(layer):
    """Gives all weights values that are not zero or one, so that each has an effect."""
    generator = np.random.default_rng(11)
    for weight in layer.weights:
        if "float" in str(weight.dtype) and weight.trainable:
            noise = 0.1 * generator.normal(size=weight.shape)
            weight.assign(keras.ops.convert_to_numpy(weight) + noise)


def arrays_of(structure, name):
    """Returns the arrays of a nested structure as a dict."""
    return {
        f"{name}/{number}": np.asarray(keras.ops.convert_to_numpy(x))
        for number, x in enumerate(keras.tree.flatten(structure))
        if x is not None
    }


def record_layer(case):
    """Returns the description of a layer, and what it computes."""
    keras.backend.clear_session()
    keras.utils.set_random_seed(3)
    layer = case.make(name="layer")
    arrays = arrays_of(layer(*case.inputs), "first")
    randomize(layer)
    arrays |= arrays_of(layer(*case.inputs), "eager")
    compiled = tf.function(layer.__call__, autograph=False, jit_compile=True)
    arrays |= arrays_of(compiled(*map(tf.convert_to_tensor, case.inputs)), "xla")
    keras.utils.set_random_seed(5)
    with tf.GradientTape() as tape:
        output = layer(*case.inputs, **_training(layer))
        loss = sum(tf.reduce_sum(tf.cast(x, "float32") ** 2) for x in tf.nest.flatten(output))
    weights = [weight.value for weight in layer.trainable_weights]
    arrays |= arrays_of([loss, tape.gradient(loss, weights)], "training")
    if case.of_tokens and case.mixes:
        mask = np.arange(case.inputs[0].shape[1]) < np.array([[6], [4], [1]])
        names = inspect.signature(layer.call).parameters
        name = next((name for name in ("mask", "query_mask") if name in names), None)
        if name is not None:
            arrays |= arrays_of(layer(*case.inputs, **{name: mask}), "masked")
    return describe(layer), arrays


def _training(layer):
    return {"training": True} if "training" in inspect.signature(layer.call).parameters else {}


def record_model(name, folder):
    """Returns the description of a model, and what it computes before and after training."""
    keras.backend.clear_session()
    keras.utils.set_random_seed(3)
    model = every_model.MODELS[name](0.0)
    inputs, _ = every_model.data(name)
    arrays = arrays_of(model(inputs, training=False), "first")
    randomize(model)
    arrays |= arrays_of(model(inputs, training=False), "eager")
    model.save(folder / f"{name}.keras")
    model.save_weights(folder / f"{name}.weights.h5")
    description = describe(model)
    keras.backend.clear_session()
    for jit_compile in (False, True):
        weights, loss = every_model.trained(name, jit_compile=jit_compile)
        arrays |= arrays_of([loss, weights], f"trained, jit_compile={jit_compile}")
    return description, arrays


def record_decoding(name):
    """Returns what searches find with a model of random weights."""
    keras.backend.clear_session()
    keras.utils.set_random_seed(3)
    model = every_model.MODELS[name](0.0)
    inputs, _ = every_model.data(name)
    model(inputs, training=False)
    randomize(model)
    ids = every_model.IDS
    searches = {
        "greedy": generation.Greedy(),
        "beam": generation.BeamSearch(4, n_best=2),
        "sampling": generation.Sampling(top_k=9, seed=4),
    }
    arrays = {}
    for kind, search in searches.items():
        given = {"prompt": ids} if name == "language_model" else {"source": ids}
        found = generation.generate(model, **given, search=search, max_length=12)
        found = found if isinstance(found, dict) else {"tokens": found}
        for key, value in found.items():
            arrays |= arrays_of(value, f"{kind}/{key}")
    return {}, arrays


def public_names():
    """Returns the public names with the parameters that each takes."""
    found = {}
    for package in ("", *PACKAGES):
        module = keras_transformers
        if package:
            try:
                module = __import__(f"keras_transformers.{package}", fromlist=["*"])
            except ImportError:
                continue
        names = getattr(module, "__all__", None) or [
            name for name in vars(module) if not name.startswith("_")
        ]
        for name in sorted(names):
            value = getattr(module, name)
            if inspect.ismodule(value):
                continue
            found[f"{package}.{name}".lstrip(".")] = _signatures(value)
    return found


def _signatures(value):
    if inspect.isclass(value):
        members = {"__init__": value.__init__}
        for name in dir(value):
            member = inspect.getattr_static(value, name)
            member = getattr(member, "__func__", member)
            is_ours = str(getattr(member, "__module__", "")).startswith("keras_transformers")
            if is_ours and not name.startswith("_") and callable(member):
                members[name] = member
        return {name: _parameters(member) for name, member in members.items()}
    return {"": _parameters(value)} if callable(value) else {"": type(value).__name__}


def _parameters(function):
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return "unknown"
    rows = []
    for parameter in parameters:
        default = parameter.default
        default = None if default is inspect.Parameter.empty else ADDRESS.sub("", repr(default))
        if parameter.kind is parameter.VAR_KEYWORD:
            rows += [[f"{name}=", None] for name in sorted(_unpacked(function, parameter))]
        rows.append([str(parameter.kind.name), parameter.name, default])
    return rows


def _unpacked(function, parameter):
    """Returns the names in `**kwargs: Unpack[Options]`."""
    try:
        hint = typing.get_type_hints(function).get(parameter.name)
    except Exception:  # names that only a type checker imports
        return ["unknown"]
    arguments = typing.get_args(hint)
    return typing.get_type_hints(arguments[0]) if arguments else []


def record(folder, older, kinds):
    """Writes everything of some kinds into a folder."""
    folder.mkdir(parents=True)
    descriptions, arrays = {}, {}

    def add(name, result):
        description, values = result
        descriptions[name] = description
        arrays.update({f"{name}/{key}": value for key, value in values.items()})
        print(name, flush=True)

    for name, case in every_layer.EVERY.items() if "layers" in kinds else ():
        add(f"layers/{name}", record_layer(case))
    for name in every_model.MODELS if "models" in kinds else ():
        add(f"models/{name}", record_model(name, folder))
    for name in ("transformer", "language_model", "recurrent") if "decoding" in kinds else ():
        add(f"decoding/{name}", record_decoding(name))
    for name in every_model.MODELS if older else ():
        for path, load in (("keras", keras.models.load_model), ("ours", saving.load_model)):
            keras.backend.clear_session()
            model = load(older / f"{name}.keras")
            answer = model(every_model.data(name)[0], training=False)
            arrays |= arrays_of(answer, f"loaded/{path}/{name}")
    names = json.dumps(public_names(), indent=1, sort_keys=True)
    (folder / "names.json").write_text(f"{names}\n")
    text = json.dumps(descriptions, indent=1, sort_keys=True, default=str)
    (folder / "descriptions.json").write_text(f"{text}\n")
    np.savez_compressed(folder / "arrays.npz", **arrays)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--load", type=pathlib.Path)
    parser.add_argument("--only", nargs="+", choices=KINDS, default=KINDS)
    options = parser.parse_args()
    record(options.folder, options.load, options.only)
