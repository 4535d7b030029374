"""The folder that `save` of a predictor writes, and `load` reads."""

import dataclasses
import json
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

from keras_transformers import generation, pretrained, saving
from keras_transformers.core.types import StrPath
from keras_transformers.pretrained.files import CONFIG, read_json
from keras_transformers.pretrained.folder import FAMILIES


@dataclasses.dataclass(frozen=True)
class Held:
    """A model with its tokenizer or preprocessing, its labels and the options of its exporter.

    Args:
        model: The Keras model.
        tokenizer: The tokenizer of texts.
        preprocessing: The `vision.Preprocessing` of images.
        labels: Names of the classes.
        options: Further arguments of the exporter, such as `search` and `lengths`.
        pooler_activation: Activation of a new head's pooler, as in published models of this kind.
        adapter: Arguments of `training.add_lora` for the next `fit`. With None it trains all
            weights, or the adapters of the model.
        label_separator: Separator of several labels in one str, as `fit` received it; None: ",".

    Example:
    >>> from keras_transformers.fitting import Held
    >>> Held(model=None, labels=["cat", "dog"]).labels
    ['cat', 'dog']
    """

    model: Any
    tokenizer: Any = None
    preprocessing: Any = None
    labels: Sequence[str] | None = None
    options: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    pooler_activation: str = "tanh"
    adapter: Mapping[str, Any] | None = None
    label_separator: str | None = None


ABOUT = "predictor.json"
MODEL = "model.keras"
PIECES = "tokenizer.model"
SHORTLIST = "shortlist.npz"
TOKENIZER = "tokenizer_config.json"
SEARCHES = {
    "BeamSearch": generation.BeamSearch,
    "Greedy": generation.Greedy,
    "Sampling": generation.Sampling,
}


@dataclasses.dataclass(frozen=True)
class Published:
    """A folder of published weights.

    Args:
        folder: The folder.
        model: The model, read.
        languages: Codes of the source's and the target's language, or None; see `load`.
        new_tokens: Most tokens that it generates, or None; see `load`.
    """

    folder: pathlib.Path
    model: Any
    languages: tuple[str, str] | None = None
    new_tokens: int | None = None

    def read_text_model(
        self, options: Mapping[str, Any] | None = None, has_labels: bool = False
    ) -> Held:
        """Returns a model of texts with its tokenizer, and with the names of its classes.

        Args:
            options: Further arguments of the exporter.
            has_labels: Whether the model gives classes.
        """
        family = FAMILIES.get(str(read_json(self.folder, CONFIG).get("model_type")))
        fixed: Mapping[str, Any] = {} if family is None else family.configuration.fixed
        return Held(
            self.model,
            pretrained.load_tokenizer(self.folder),
            labels=pretrained.class_names(self.folder) if has_labels else None,
            options=options or {},
            pooler_activation=str(fixed.get("pooler_activation", "tanh")),
        )


def write_held(kind: str, held: Held, folder: StrPath) -> pathlib.Path:
    """Writes a model with its tokenizer or preprocessing, labels and options.

    Args:
        kind: A kind of `predictors.KINDS`.
        held: The model and its parts.
        folder: Path of the folder, which is made if it does not exist.

    Returns:
        The path: `model.keras`, the tokenizer or `preprocessing.json`, and last `predictor.json`.

    Example:
    >>> import tempfile
    >>> from keras_transformers import models
    >>> from keras_transformers.fitting import Held, read_held, write_held
    >>> from keras_transformers.vision import Preprocessing
    >>> model = models.ViT.from_variant("Ti/14", 2, image_size=28, num_layers=1)
    >>> model.build((None, 28, 28, 3))
    >>> held = Held(model, preprocessing=Preprocessing(28), labels=["cat", "dog"])
    >>> folder = write_held("image_classifier", held, tempfile.mkdtemp())
    >>> kind, again = read_held(folder)
    >>> kind, again.labels
    ('image_classifier', ['cat', 'dog'])
    """
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / ABOUT).unlink(missing_ok=True)  # so that an unfinished folder cannot be loaded
    held.model.save(folder / MODEL)
    about: dict[str, Any] = {"kind": kind, "labels": held.labels}
    about["pooler_activation"] = held.pooler_activation
    about["adapter"] = None if held.adapter is None else dict(held.adapter)
    about["label_separator"] = held.label_separator
    options = dict(held.options)
    (folder / SHORTLIST).unlink(missing_ok=True)  # of an earlier predictor
    shortlist = options.pop("shortlist", None)
    if shortlist is not None:
        shortlist.save(folder / SHORTLIST)
    about["options"] = {name: _plain(value) for name, value in options.items()}
    if held.tokenizer is not None:
        about["languages"] = _write_tokenizer(held.tokenizer, folder)
    if held.preprocessing is not None:
        about["preprocessing"] = dataclasses.asdict(held.preprocessing)
    text = json.dumps(about, indent=2, ensure_ascii=False)
    (folder / ABOUT).write_text(text + "\n", encoding="utf-8")
    return folder


def read_held(folder: StrPath) -> tuple[str, Held]:
    """Reads a folder that `write_held` has written; returns the kind, the model and its parts.

    Args:
        folder: Path of the folder.

    Raises:
        ValueError: If a file in it is damaged.

    Example: see `write_held`.
    """
    folder = pathlib.Path(folder)
    about = read_json(folder, ABOUT)
    try:
        kind = str(about["kind"])
        options = {**about["options"]}
        labels = about["labels"]
        activation = str(about["pooler_activation"])
        if options.get("search") is not None:
            options["search"] = _read_search(options["search"])
        if (folder / SHORTLIST).is_file():
            options["shortlist"] = generation.Shortlist.load(folder / SHORTLIST)
        adapter = about.get("adapter")
        if adapter is not None:
            adapter = {**adapter}
        preprocessing = about.get("preprocessing")
        if preprocessing is not None:
            from keras_transformers.vision import Preprocessing

            preprocessing = Preprocessing(**_lists_to_tuples(preprocessing))
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{folder / ABOUT} is damaged: {error}") from None
    return kind, Held(
        saving.load_model(folder / MODEL),
        _read_tokenizer(folder, about.get("languages")),
        preprocessing,
        labels,
        options,
        activation,
        adapter,
        about.get("label_separator"),
    )


def _write_tokenizer(tokenizer: Any, folder: pathlib.Path) -> list[str | None] | None:
    """Writes a tokenizer; returns the languages that it translates between, or None."""
    from keras_transformers.text import SentencePieceTokenizer

    for name in (PIECES, TOKENIZER):  # of an earlier predictor
        (folder / name).unlink(missing_ok=True)
    if isinstance(tokenizer, SentencePieceTokenizer):
        tokenizer.save(folder / PIECES)
        return None
    pretrained.save_tokenizer(tokenizer, folder)
    languages = getattr(tokenizer, "languages", None)
    return None if languages is None else [languages.source, languages.target]


def _read_tokenizer(folder: pathlib.Path, languages: Any) -> Any:
    """Reads the tokenizer of a folder; None if it has none."""
    if (folder / PIECES).is_file():
        from keras_transformers.text import SentencePieceTokenizer

        return SentencePieceTokenizer.load(folder / PIECES)
    if not (folder / TOKENIZER).is_file():
        return None
    return pretrained.load_tokenizer(folder, languages and tuple(languages))


def _plain(value: Any) -> Any:
    """Converts an option for JSON; a search becomes a dict with its name."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {"name": type(value).__name__, **dataclasses.asdict(value)}
    return value


def _read_search(description: dict[str, Any]) -> Any:
    """Makes a search from the dict of `_plain`."""
    settings = _lists_to_tuples(description)
    make: Any = SEARCHES[settings.pop("name")]
    constraints = settings.pop("constraints")
    boundaries = generation.Boundaries(**constraints.pop("boundaries"))
    constraints = generation.Constraints(**constraints, boundaries=boundaries)
    return make(**settings, constraints=constraints)


def _lists_to_tuples(value: Any) -> Any:
    """Replaces the lists in a value from JSON by tuples, as settings have them."""
    if isinstance(value, dict):
        return {key: _lists_to_tuples(entry) for key, entry in value.items()}
    return tuple(map(_lists_to_tuples, value)) if isinstance(value, list) else value
