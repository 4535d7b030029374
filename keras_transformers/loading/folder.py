"""What a folder is, and the predictor that is made of it."""

from __future__ import annotations

import functools
import pathlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from keras_transformers import pretrained, saving
from keras_transformers.core.types import StrPath
from keras_transformers.loading import saved_model
from keras_transformers.predictors import Predictor
from keras_transformers.predictors.base import check_process
from keras_transformers.pretrained.files import read_json

if TYPE_CHECKING:
    from keras_transformers.generation.search import Search
    from keras_transformers.text.sentence_pieces import SentencePieceTokenizer
    from keras_transformers.text.wordpiece import WordPieceTokenizer
    from keras_transformers.vision.preprocessing import Preprocessing

ALIGNMENT = "alignment.keras"  # a head of guided alignment
CONFIG, MODEL, SAVED = "config.json", "model.keras", "saved_model"
PREDICTOR = "predictor.json"  # of a folder that `Predictor.save` has written
WEIGHTS = (".safetensors", ".bin")  # a pickle is refused when it is read
MOST_SHOWN = 8  # names of files, in a message


def load(
    folder: StrPath,
    signature: str = "serving_default",
    languages: tuple[str, str] | None = None,
    revision: str | None = None,
    new_tokens: int | None = None,
    search: Search | None = None,
    seed: int | None = None,
    n_best: int | None = None,
) -> Predictor:
    """The predictor of a trained model: it takes text or images, and gives plain Python.

    Args:
        folder: One of four: the folder of a run of `recipes`; one with published weights, as the
            Hugging Face hub lays it out; one that `Predictor.save` has written; a SavedModel of
            `keras_transformers.export`, or the folder of its versions, of which the newest is
            taken. Or the name of a published model, "organization/model", see `pretrained.find`.
        signature: Which of a SavedModel's programs answers: "serving_default", or "xla", compiled,
            where there is one. What is published is always compiled.
        languages: For a published translator of many languages, the codes of the source's and the
            target's, as it calls them: ("eng_Latn", "fra_Latn"). By default what its files say.
        revision: Branch, tag or commit of a name; by default "main".
        new_tokens: For published models that generate text: most tokens that they generate. By
            default what the folder's generation settings say; where they say nothing, 128 behind a
            prompt, and of a source of n tokens `min(2 n + 10, n + 50)`. The latter holds for
            Marian, mBART and M2M100 unless the settings have `max_new_tokens`, for they only
            translate: their `max_length` is not read.
        search, seed, n_best: For published models that generate text, and what `Predictor.save` has
            written of them: how, see `predict` of their predictors. By default as the folder says;
            several sequences (`num_return_sequences`) are in the answers with `details=True`.

    Returns:
        A predictor, see `keras_transformers.predictors`: `predict` answers, `fit` learns, and
        `model`, `tokenizer` and `preprocessing` are the parts, where the folder has them.

    Raises:
        FileNotFoundError: If there is no such folder, and no model of that name can be had.
        ValueError: If it is none of the four, the model gives no answer (a masked autoencoder), or
            there is no such signature or language.
        ImportError: If a SavedModel that takes text is to be loaded without tensorflow-text.
        RuntimeError: If this process is a fork of one that has loaded a model before.

    Example:
    >>> import tempfile
    >>> import keras_transformers, numpy as np
    >>> from keras_transformers import export, models
    >>> model = models.ViT.from_variant("Ti/14", num_classes=2, image_size=28, num_layers=1)
    >>> model.build((None, 28, 28, 3))
    >>> path = export.image_classifier(model, tempfile.mkdtemp(), ["cat", "dog"])
    >>> classifier = keras_transformers.load(path)
    >>> classifier.kind, classifier.labels
    ('image_classifier', ['cat', 'dog'])
    >>> image = np.zeros((40, 30), "uint8")
    >>> sorted(classifier.predict(image)["probabilities"])
    ['cat', 'dog']
    """
    made, read = begin(folder, signature, languages, revision, new_tokens, search, seed, n_best)
    read()
    return made


def begin(
    folder: StrPath,
    signature: str = "serving_default",
    languages: tuple[str, str] | None = None,
    revision: str | None = None,
    new_tokens: int | None = None,
    search: Search | None = None,
    seed: int | None = None,
    n_best: int | None = None,
) -> tuple[Predictor, Callable[..., None]]:
    """Returns the predictor of a folder, and a function that reads the program of a SavedModel.

    Reading it takes longest. A request waits until it is read. The function reads the signature
    that `predict` uses. With `whole=True` it reads the others as well, which `score`, for instance,
    would read when it is first called.

    Args:
        folder, signature, languages, revision, new_tokens, search, seed, n_best: As `load` takes
            them.

    Raises:
        FileNotFoundError, ValueError, ImportError, RuntimeError: As `load`; the function raises a
            ValueError if the SavedModel is damaged.

    Example:
    >>> import tempfile
    >>> import numpy as np
    >>> from keras_transformers import export, models
    >>> from keras_transformers.loading import begin
    >>> model = models.ViT(2, image_size=8, patch_size=4, hidden_dim=6, num_heads=2, num_layers=1)
    >>> model.build((None, 8, 8, 3))
    >>> folder = export.ImageClassifier(model, ["cat", "dog"]).save(tempfile.mkdtemp() + "/a")
    >>> predictor, read = begin(folder)
    >>> read()
    >>> predictor.predict(np.zeros((8, 8, 3), "uint8"))["label"] in ("cat", "dog")
    True
    """
    check_process("load")
    folder = pretrained.find(folder, revision)
    if (folder / PREDICTOR).is_file():
        from keras_transformers.loading import learners  # which imports all exporters

        made = learners.predictor(folder, new_tokens)
        return _writing(made, search, seed, n_best), _nothing
    exported = saved_model.newest(folder)
    weights = any(path.suffix in WEIGHTS for path in folder.iterdir())
    if exported is None and weights and (folder / CONFIG).is_file():
        from keras_transformers.loading import published  # which imports all exporters

        made = published.predictor(folder, languages, new_tokens)
        return _writing(made, search, seed, n_best), _nothing
    if languages is not None:
        raise ValueError(
            f"load: {folder} holds no published translator, so `languages` must be None. "
            f"Received: {languages}"
        )
    settings = {"new_tokens": new_tokens, "search": search, "seed": seed, "n_best": n_best}
    for name, value in settings.items():
        if value is not None:
            raise ValueError(
                f"load: {folder} holds a SavedModel, whose search and limit are fixed, so "
                f"`{name}` must be None. Received: {value}"
            )
    if exported is not None:
        return saved_model.predictor(exported, signature)
    if (found := saved_model.newest(folder / SAVED)) is not None:
        return _of_run(folder, found, signature)
    raise ValueError(f"load: {folder} {_reason_to_refuse(folder)}")


def _nothing(whole: bool = False) -> None:
    """Reads nothing: all of it has been read."""


def _writing(
    made: Predictor, search: Search | None, seed: int | None, n_best: int | None
) -> Predictor:
    """The predictor with another search than the folder's, which `save` keeps.

    Raises:
        ValueError: If it generates no text, or the search is impossible.
    """
    if search is None and seed is None and n_best is None:
        return made
    from keras_transformers.loading.learners import with_search

    return with_search(made, search, seed, n_best)


def _reason_to_refuse(folder: pathlib.Path) -> str:
    """The end of a sentence on a folder that cannot be loaded."""
    there = sorted(path.name for path in folder.iterdir())
    if {CONFIG, "figures"} <= set(there) or {CONFIG, MODEL} <= set(there):
        return (
            f"is the folder of a run that has left no {SAVED}: it is not finished, or exports "
            "nothing."
        )
    more = ", ..." if len(there) > MOST_SHOWN else ""
    return (
        f"must be the folder of a run, with {SAVED}; have published weights, with {CONFIG} and "
        f"model.safetensors; or be a SavedModel, with saved_model.pb. It has: "
        f"{', '.join(there[:MOST_SHOWN]) or 'nothing'}{more}"
    )


def _of_run(
    folder: pathlib.Path, exported: pathlib.Path, signature: str
) -> tuple[Predictor, Callable[..., None]]:
    """The predictor of a run's SavedModel, whose model learns if it is there, too; and `read`."""
    parts = _parts_of_run(folder)
    if "model" in parts:
        from keras_transformers.loading import learners

        parts["fitting"] = lambda: learners.fitting_of_run(folder, made)
    made, read = saved_model.predictor(exported, signature, parts, folder)
    return made, read


def _parts_of_run(folder: pathlib.Path) -> dict[str, Callable[[], Any]]:
    """Functions that read what a run has left beside its SavedModel."""
    parts = {}
    if (folder / MODEL).is_file():
        parts["model"] = lambda: saving.load_model(folder / MODEL)
    if (folder / ALIGNMENT).is_file():
        parts["alignment"] = lambda: saving.load_model(folder / ALIGNMENT)
    if (folder / "tokenizer.model").is_file():
        parts["tokenizer"] = lambda: _sentence_pieces(folder)
    elif (folder / "vocab.txt").is_file():
        parts["tokenizer"] = lambda: _word_pieces(folder)
    for path in (folder / "published", folder):
        if "tokenizer" not in parts and (path / "tokenizer_config.json").is_file():
            parts["tokenizer"] = functools.partial(pretrained.load_tokenizer, path)
    if (folder / "preprocessing.json").is_file():
        parts["preprocessing"] = lambda: _preprocessing(folder)
    return parts


def _sentence_pieces(folder: pathlib.Path) -> SentencePieceTokenizer:
    from keras_transformers.text import SentencePieceTokenizer

    return SentencePieceTokenizer.load(folder / "tokenizer.model")


def _word_pieces(folder: pathlib.Path) -> WordPieceTokenizer:
    from keras_transformers.text import WordPieceTokenizer

    lower_case = read_json(folder, CONFIG).get("lower_case", True)
    return WordPieceTokenizer.load(folder / "vocab.txt", lower_case)


def _preprocessing(folder: pathlib.Path) -> Preprocessing:
    from keras_transformers.vision import Preprocessing

    try:
        return Preprocessing(**read_json(folder, "preprocessing.json"))
    except TypeError as error:
        raise ValueError(f"{folder / 'preprocessing.json'} is damaged: {error}") from None
