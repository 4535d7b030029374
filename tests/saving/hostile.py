"""A corpus of hostile files: `files(folder)` makes them, small and named, and says why each is bad.

Every payload tries to leave the file `canary` in the folder, or to have `keras_cv`, a package of
the folder's own, imported. `python -m tests.saving.hostile FOLDER` tries those of a folder one by
one and prints seconds and memory of each.
"""

import dataclasses
import json
import pathlib
import sys
import time

import keras

from keras_transformers import saving
from tests.saving import hostile_archives, hostile_configurations, hostile_hdf5, hostile_tensors

PARTS = (hostile_archives, hostile_configurations, hostile_hdf5, hostile_tensors)
# It writes the canary when it is imported; Keras imports `keras_cv` for a file that names it.
PACKAGE = "import pathlib\npathlib.Path(__file__).parents[1].joinpath('canary').touch()\n"


@dataclasses.dataclass(frozen=True)
class Hostile:
    """A hostile file.

    Args:
        name: What is bad about it, in words.
        path: Where it is.
        why: Part of the sentence that refuses it.
    """

    name: str
    path: pathlib.Path
    why: str

    def load(self, model=None):
        """Loads it as a user would: a model, or weights into one."""
        if self.path.suffix == ".keras":
            return saving.load_model(self.path)
        return saving.load_weights(model or victim(), self.path)


def victim():
    """The small model that the files pretend to be."""
    inputs = keras.Input((5,), name="input")
    x = keras.layers.Dense(7, name="first", activation="relu")(inputs)
    return keras.Model(inputs, keras.layers.Dense(3, name="second")(x), name="victim")


def files(folder):
    """Makes the corpus in a folder, and yields each `Hostile` once its file is there.

    Args:
        folder: An empty one, where the canary would appear.
    """
    folder = pathlib.Path(folder)
    (folder / "keras_cv").mkdir(parents=True)
    (folder / "keras_cv" / "__init__.py").write_text(PACKAGE)
    good = {part.ENDING: folder / f"good{part.ENDING}" for part in PARTS}
    model = victim()
    model.compile("adam", "mse")
    model.save(good[".keras"])
    saving.save_weights(model, good[".weights.h5"])
    saving.save_weights(model, good[".safetensors"])
    for part in PARTS:
        for name, (build, why) in part.KINDS.items():
            path = folder / f"{name.replace(' ', '_')}{part.ENDING}"
            build(good[part.ENDING], path)
            yield Hostile(name, path, why)


def names():
    """The names of all kinds."""
    return [name for part in PARTS for name in part.KINDS]


def measure(folder):
    """Tries the corpus of a folder in this process: `[name, seconds, bytes, sentence]` of each.

    Bytes are how far the process grew at most beyond what it had before that file.
    """
    sys.path.insert(0, str(folder))
    model, found = victim(), []
    again = pathlib.Path(folder, "good again.keras")  # what Keras makes, and imports, only once
    model.save(again)
    saving.load_model(again)
    again.unlink()
    for path in sorted(pathlib.Path(folder).iterdir()):
        if path.name.startswith("good") or path.is_dir():
            continue
        pathlib.Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
        before, sentence, started = _memory("VmRSS"), None, time.perf_counter()
        try:
            Hostile(path.name, path, "").load(model)
        except ValueError as refusal:
            sentence = str(refusal)
        seconds = time.perf_counter() - started
        found.append([path.name, seconds, _memory("VmHWM") - before, sentence])
    return found


def _memory(name):
    status = pathlib.Path("/proc/self/status").read_text()
    return int(status.split(f"{name}:")[1].split()[0]) << 10


if __name__ == "__main__":
    print(json.dumps(measure(sys.argv[1])))
