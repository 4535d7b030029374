"""Hostile `.keras` archives: what is wrong is the configuration."""

import json
import pickle
import warnings

import h5py
import keras

from tests.saving.hostile_archives import ENDING, Payload, members, write

__all__ = ["ENDING", "KINDS"]
KINDS = {}
SMALL = {"num_heads": 1, "mlp_dim": 4}


def kind(name, why, raw=False):
    """Registers `build(config, path)`, which gives the configuration, or its text if `raw`."""

    def register(build):
        def write_file(good, path):
            content = members(good)
            changed = build(json.loads(content["config.json"]), path)
            content["config.json"] = changed if raw else json.dumps(changed).encode()
            write(path, content.items())

        KINDS[name] = write_file, why
        return build

    return register


def layer(config, number=1):
    """The configuration of a layer of the victim."""
    return config["config"]["layers"][number]


def instead(config, module, name, inner, **more):
    """The victim with another layer in the place of its first."""
    layer(config).update(module=module, class_name=name, config=inner, **more)
    layer(config).pop("build_config", None)
    return config


def function(module, name):
    return {"module": module, "class_name": "function", "config": name, "registered_name": name}


def lambda_of(called, **arguments):
    """The settings of a `Lambda` around a function."""
    return {"name": "first", "function": called, "arguments": arguments}


def code(path):
    """A marshalled function that touches the canary."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that a lambda is not safe
        return keras.saving.serialize_keras_object(
            lambda x, canary=str(path.parent / "canary"): (open(canary, "w").close(), x)[1]
        )


@kind("configuration that is no JSON", "is not JSON", raw=True)
def _text(config, path):
    return b"import os"


@kind("configuration of 5 MiB", "at most 4 MiB", raw=True)
def _large(config, path):
    return json.dumps(config).encode() + b" " * (5 << 20)


@kind("configuration of a million lists", "has more than 250000 lists", raw=True)
def _lists(config, path):
    config["more"] = [[]] * 1_300_000
    return json.dumps(config, separators=(",", ":")).encode()


@kind("configuration of a million texts", "neither Keras's own", raw=True)
def _texts(config, path):
    config["config"]["layers"][1]["class_name"] = "Nothing"
    config["more"] = ["ab"] * 800_000
    return json.dumps(config, separators=(",", ":")).encode()


@kind("configuration nested too deep", "nested more than")
def _deep(config, path):
    inner = config["config"]
    for _ in range(200):
        inner["deeper"] = inner = {}
    return config


@kind("configuration nested beyond any stack", "is not JSON", raw=True)
def _deepest(config, path):
    return b"[" * 200_000


@kind("key twice in the configuration", "twice", raw=True)
def _twice(config, path):
    return json.dumps(config).replace("{", '{"class_name": "Dense", ', 1).encode()


@kind("number of ten thousand digits", "is not JSON", raw=True)
def _digits(config, path):
    layer(config)["config"]["units"] = "UNITS"
    return json.dumps(config).replace('"UNITS"', "9" * 10_000).encode()


@kind("CVE-2024-3660 marshalled Lambda", "runs code that is in the file")
def _lambda(config, path):
    return instead(config, "keras.layers", "Lambda", lambda_of(code(path)))


@kind("marshalled activation", "can hold code")
def _activation(config, path):
    layer(config)["config"]["activation"] = code(path)
    return config


@kind("marshalled code as a function's name", "marshalled code is refused")
def _function(config, path):
    layer(config)["config"]["activation"] = function("builtins", ["YQ==", None, None])
    return config


@kind("CVE-2025-1550 function of any module", "neither Keras's own")
def _system(config, path):
    layer(config)["config"]["activation"] = function("os", "system")
    return config


@kind("CVE-2025-1550 class of any module", "neither Keras's own")
def _popen(config, path):
    return instead(config, "subprocess", "Popen", {"args": ["touch", str(path.parent / "canary")]})


@kind("module that is imported", "neither Keras's own")
def _import(config, path):
    return instead(config, "keras_cv.layers", "Nothing", {}, registered_name="Nothing")


@kind("private module of Keras", "neither Keras's own")
def _private(config, path):
    return instead(config, "keras.src.utils.python_utils", "func_load", {})


@kind("module that is no text", "neither Keras's own")
def _number(config, path):
    return instead(config, 7, "Dense", {"units": 7})


@kind("registered name that nobody registered", "neither Keras's own")
def _registered(config, path):
    return instead(config, "evil", "Layer", {"name": "first"}, registered_name="evil>Layer")


@kind("Keras's class under another registered name", "Received: registered_name")
def _renamed(config, path):
    layer(config)["registered_name"] = "evil>Dense"
    return config


@kind("CVE-2025-8747 download by get_file", "runs code that is in the file")
def _download(config, path):
    called = lambda_of(function("keras.utils", "get_file"), origin="http://127.0.0.1:9/canary")
    return instead(config, "keras.layers", "Lambda", called)


@kind("get_file as an activation", "neither Keras's own")
def _get_file(config, path):
    layer(config)["config"]["activation"] = function("keras.utils", "get_file")
    return config


@kind("CVE-2025-9906 safe mode switched off", "neither Keras's own")
def _unsafe(config, path):
    layer(config)["config"]["activation"] = function(
        "keras.config", "enable_unsafe_deserialization"
    )
    return config


@kind("loader inside the model", "neither Keras's own")
def _loader(config, path):
    layer(config)["config"]["activation"] = function("keras.models", "load_model")
    return config


@kind("layer of an old format", "has no `module`")
def _old(config, path):
    old = {"class_name": "Lambda", "config": lambda_of(code(path)), "name": "first"}
    config["config"]["layers"][1] = old | {"inbound_nodes": layer(config)["inbound_nodes"]}
    return config


@kind("CVE-2025-12058 vocabulary of another file", "would read a file")
def _vocabulary(config, path):
    return instead(config, "keras.layers", "StringLookup", {"vocabulary": "/etc/passwd"})


@kind("vocabulary of an address", "would read a file")
def _address(config, path):
    inner = {"vocabulary": "http://127.0.0.1:9/words"}
    return instead(config, "keras.layers", "TextVectorization", inner)


@kind("CVE-2026-1462 SavedModel as a layer", "runs code that is in the file")
def _saved_model(config, path):
    return instead(config, "keras.layers", "TFSMLayer", {"filepath": str(path.parent)})


@kind("CVE-2025-49655 pickled PyTorch module", "runs code that is in the file")
def _torch(config, path):
    data = pickle.dumps(Payload(path.parent / "canary")).decode("latin1")
    return instead(config, "keras.layers", "TorchModuleWrapper", {"module": data})


@kind("JAX function as a layer", "runs code that is in the file")
def _jax(config, path):
    return instead(config, "keras.layers", "JaxLayer", {"call_fn": code(path)})


@kind("wrapper around a Lambda", "runs code that is in the file")
def _wrapped(config, path):
    inner = {"module": "keras.layers", "class_name": "Lambda", "config": lambda_of(code(path))}
    return instead(config, "keras.layers", "TimeDistributed", {"layer": inner})


@kind("Lambda as a metric", "runs code that is in the file")
def _metric(config, path):
    inner = {"module": "keras.layers", "class_name": "Lambda", "config": lambda_of(code(path))}
    config["compile_config"]["metrics"] = [inner]
    return config


@kind("variable in the place of a layer", "no part of a model")
def _variable(config, path):
    return instead(config, "keras", "Variable", {"initializer": "zeros", "shape": [10**11]})


@kind("callback in the place of a layer", "neither Keras's own")
def _callback(config, path):
    return instead(config, "keras.callbacks", "CSVLogger", {"filename": "canary"})


@kind("type of a TensorFlow object", "can hold code")
def _typespec(config, path):
    layer(config)["config"]["dtype"] = {"class_name": "__typespec__", "config": []}
    return config


@kind("constant of an enormous type", "a constant must be of numbers")
def _array(config, path):
    huge = {"class_name": "__numpy__", "config": {"value": [0], "dtype": "V10000000000"}}
    layer(config)["config"]["kernel_constraint"] = huge
    return config


@kind("operation that runs at once", "without a symbolic tensor")
def _eager(config, path):
    layer(config)["inbound_nodes"] = [{"args": [0, 1], "kwargs": {}}]
    inner = {"num": 10**11}
    return instead(config, "keras.src.ops.numpy", "Linspace", inner, registered_name="Linspace")


@kind("call of an old format", "must have `args`")
def _old_call(config, path):
    layer(config)["inbound_nodes"] = [[["input", 0, 0, {"x": "canary"}]]]
    return config


@kind("layer larger than the file", "a model larger than the file")
def _wide(config, path):
    layer(config)["config"]["units"] = 10**11
    return config


@kind("model larger than the file", "a model larger than the file")
def _wide_model(config, path):
    return ours("LanguageModel", vocab_size=10**9, hidden_dim=512, num_layers=1, **SMALL)


@kind("more layers than the file has", "far more layers")
def _many(config, path):
    return ours("LanguageModel", vocab_size=3, hidden_dim=4, num_layers=10**8, **SMALL)


@kind("input of enormous extents", "must have at most")
def _shape(config, path):
    layer(config, 0)["config"]["batch_shape"] = [None, 10**6, 10**6]
    return config


@kind("window whose table fills the memory", "`window_size` must be at most")
def _window(config, path):
    stages = {"num_layers": [1, 1, 1, 1], "num_heads": [1, 1, 1, 1]}
    return ours("Swin", image_size=32, hidden_dim=4, window_size=150, version=2, **stages)


@kind("distance whose table fills the memory", "`max_distance` must be at most")
def _distance(config, path):
    bias = ours("RelativePositionBias", max_distance=10**10)
    bias["module"] = "keras_transformers.layers"
    bias["config"] = {"max_distance": 10**10}
    layer(config)["config"]["bias_initializer"] = bias
    return config


@kind("recurrence that is unrolled", "`unroll` must be False")
def _unrolled(config, path):
    return instead(config, "keras.layers", "LSTM", {"units": 1, "unroll": True})


@kind("registered name of another class", "is a DropPath")
def _other(config, path):
    return instead(
        config,
        "keras.layers",
        "Lambda",
        lambda_of(code(path)),
        registered_name="keras_transformers>DropPath",
    )


@kind("optimizer in the place of the model", "must hold a model")
def _optimizer(config, path):
    return {"module": "keras.optimizers", "class_name": "SGD", "config": {}}


def _old_hdf5(good, path):
    """A file of Keras 2, in which `keras.models.load_model` ran a Lambda whatever `safe_mode`."""
    config = {"class_name": "Lambda", "config": lambda_of(code(path))}
    old = {"class_name": "Sequential", "config": {"name": "old", "layers": [config]}}
    with h5py.File(path, "w") as file:
        file.attrs["model_config"] = json.dumps(old)


KINDS["CVE-2025-9905 old HDF5 model"] = _old_hdf5, "no zip file"


def ours(name, **settings):
    """A model of this library, with those settings."""
    settings = {"name": "ours", **settings}
    return {
        "module": "keras_transformers.models",
        "class_name": name,
        "config": settings,
        "registered_name": f"keras_transformers>{name}",
        "build_config": {"input_shape": [None, None]},
    }
