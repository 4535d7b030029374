"""A saved model, read with suspicion."""

import pathlib
from collections.abc import Mapping
from typing import Any

import keras

from keras_transformers.annotations import StrPath
from keras_transformers.saving.archive import CONFIG, METADATA, WEIGHTS, Archive
from keras_transformers.saving.configuration import check_configuration
from keras_transformers.saving.hdf5 import Layout
from keras_transformers.saving.limits import within
from keras_transformers.saving.strict_json import parse_json
from keras_transformers.saving.weights import OPTIMIZER, check_same, layout_of

MOST_METADATA = 1 << 16
MOST_CONFIG = 4 << 20  # bytes; the largest model here has some hundred thousand
UNBUILT = 3  # scalars that an optimizer saves before its first step


def load_model(
    path: StrPath, custom_objects: Mapping[str, Any] | None = None, compile: bool = True
) -> Any:
    """A model out of a `.keras` file that somebody else may have written.

    What `keras.models.load_model` gives, bit for bit; but the whole file is checked before Keras
    touches it, and no code, no other file and no address that it names is ever used. What is
    refused is in `docs/how_to/untrusted_files.md`.

    Args:
        path: Path of the file.
        custom_objects: Dict of name -> class or function of your own that the file may name. What
            is registered (`keras.saving.register_keras_serializable`) need not be in it.
        compile: Whether to compile the model as it was when it was saved.

    Returns:
        The model.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If it is not what Keras writes, is damaged, names something that is neither
            Keras's own nor registered, describes more than it has weights for, or has weights
            other than the model that it describes.

    Example:
    >>> import pathlib, tempfile
    >>> from keras_transformers import models, saving
    >>> model = models.LanguageModel(31, 12, num_heads=3, mlp_dim=20, num_layers=1)
    >>> model.build((None, None))
    >>> path = pathlib.Path(tempfile.mkdtemp(), "model.keras")
    >>> model.save(path)
    >>> saving.load_model(path).count_params() == model.count_params()
    True
    """
    path = pathlib.Path(path)
    if path.suffix != ".keras":
        raise ValueError(f"load_model: `path` must end in .keras. Received: {path}")
    with Archive(path) as archive:
        for name, most in ((METADATA, MOST_METADATA), (CONFIG, MOST_CONFIG)):
            config = parse_json(archive.read(name, most), most, f"{path}: {name}")
        check_configuration(config, custom_objects, f"{path}: {CONFIG}")
        layout = Layout(archive.open(WEIGHTS), archive.size(WEIGHTS), f"{path}: {WEIGHTS}")
    try:
        with within(layout.values(), layout.objects):
            model = keras.models.load_model(path, custom_objects, compile, safe_mode=True)
    except Exception as error:
        # Keras raises nearly everything for a file that does not fit; the first line says why.
        why = str(error).strip().splitlines() or [type(error).__name__]
        raise ValueError(f"{path}: no model can be made of it: {why[0]}") from error
    if not isinstance(model, keras.Model):
        raise ValueError(f"{path} must hold a model. Received: a {type(model).__name__}")
    _check_weights(model, layout)
    return model


def _check_weights(model: keras.Model, layout: Layout) -> None:
    """Keras passes over weights that no layer asks for, and over an optimizer's that do not fit."""
    expected, found = layout_of(model), dict(layout.entries)
    state = {path: entry for path, entry in found.items() if path.startswith(OPTIMIZER)}
    unbuilt = len(state) <= UNBUILT and all(shape == () for shape, _ in state.values())
    # `quantize` leaves the state of the optimizer of the weights before; Keras passes over it.
    modes = {getattr(layer, "quantization_mode", None) for layer in model._flatten_layers()}
    if getattr(model, "optimizer", None) is None or unbuilt or modes - {None, "float8"}:
        found = {path: entry for path, entry in found.items() if path not in state}
        expected = {p: entry for p, entry in expected.items() if not p.startswith(OPTIMIZER)}
    check_same(expected, found, layout.where)
