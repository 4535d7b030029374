"""Loads SavedModels and answers requests, in a process that has TensorFlow and nothing of ours.

    python loader.py [--signature NAME] [--without-xla] FOLDER ...

Each folder has `model/` and `requests.json`, lists of requests, each a list of strings or, of
several inputs, a dict of such, bytes written as Latin-1; it gets `NAME.json` with the answers and
the times in milliseconds, or the error. TensorFlow of any version that the exports support;
tensorflow-text where it is installed.
"""

import argparse
import ctypes
import json
import os
import pathlib
import sys
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # before TensorFlow is imported

import tensorflow as tf

try:
    import tensorflow_text  # noqa: F401  (registers the tokenizers' ops)
except ImportError:
    pass  # images need none


def disable_xla():
    """What a stock TensorFlow Serving does when it starts: compilation fails from now on."""
    folder = pathlib.Path(tf.__file__).parent
    for library in sorted(folder.glob("libtensorflow_*")):  # the name changes with the version
        try:
            ctypes.CDLL(str(library))._ZN10tensorflow21DisableXlaCompilationEv()
            return
        except AttributeError:
            continue
    raise RuntimeError(f"There is no DisableXlaCompilation in {folder}.")


def xla_is_disabled():
    """Whether a function that must be compiled fails."""
    double = tf.function(lambda x: 2.0 * x, jit_compile=True)
    try:
        double(tf.constant(1.0))
    except tf.errors.OpError as error:
        return "XLA compilation disabled" in str(error)
    return False


def as_lists(result):
    """A dict of tensors as one of nested lists, bytes as Latin-1, for JSON."""
    return {name: _decoded(value.numpy().tolist()) for name, value in sorted(result.items())}


def _decoded(value):
    if isinstance(value, list):
        return [_decoded(each) for each in value]
    return value.decode("latin-1") if isinstance(value, bytes) else value


def _strings(values):
    return tf.constant([each.encode("latin-1") for each in values], tf.string, shape=[len(values)])


def answer(folder, name):
    """Answers and times of one folder's requests, a dict."""
    started = time.perf_counter()
    loaded = tf.saved_model.load(str(folder / "model"))
    serve = loaded.signatures[name]
    names = list(serve.structured_input_signature[1])
    found = {"load": 1000 * (time.perf_counter() - started), "first": [], "later": []}
    requests = json.loads((folder / "requests.json").read_text())
    given = [each if isinstance(each, dict) else {names[0]: each} for each in requests]
    tensors = [{name: _strings(each[name]) for name in names} for each in given]
    for moment in ("first", "later"):
        answers = []
        for tensor in tensors:
            started = time.perf_counter()
            result = serve(**tensor)
            answers.append(as_lists(result))
            found[moment].append(1000 * (time.perf_counter() - started))
    if "keras_transformers" in sys.modules:
        raise RuntimeError("The answers are to come from TensorFlow alone.")
    return {**found, "answers": answers}


def main(signature, without_xla, folders):
    if without_xla:
        disable_xla()
        assert xla_is_disabled()
    for folder in folders:
        try:
            found = answer(folder, signature)
        except Exception as error:  # each is a row of the table
            found = {"error": f"{type(error).__name__}: {error}"}
        found |= {"tensorflow": tf.__version__, "without_xla": without_xla}
        (folder / f"{signature}.json").write_text(json.dumps(found))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--signature", default="serving_default")
    parser.add_argument("--without-xla", action="store_true")
    parser.add_argument("folders", nargs="+", type=pathlib.Path)
    main(**vars(parser.parse_args()))
