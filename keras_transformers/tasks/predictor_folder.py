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
    """A model and what stands around it.

    Args:
        model: The Keras model.
        tokenizer: Of texts.
        preprocessing: Of images, a `vision.Preprocessing`.
        labels: Names of the classes.
        options: Arguments of the exporter besides these, such as `search` and `lengths`.
        pooler_activation: Of published classifiers of the model's kind, for a new head.
        adapter: Arguments of `training.add_lora` for the next `fit`; None trains all weights, or
            the adapter that there is.
        label_separator: Separator of several labels in one str, as `fit` was given it; None: ",".

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


ABOUT, MODEL, PIECES = "predictor.json", "model.keras", "tokenizer.model"
SHORTLIST = "shortlist.npz"
TOKENIZER = "tokenizer_config.json"
SEARCHES = {
    each.__name__: each for each in (generation.BeamSearch, generation.Greedy, generation.Sampling)
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

    def held_text_model(
        self, options: Mapping[str, Any] | None = None, has_labels: bool = False
    ) -> Held:
        """Returns a model of texts with its tokenizer, and with the names of its classes.

        Args:
            options: Arguments of the exporter besides.
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
    """Writes a model with all that stands around it.

    Args:
        kind: Which of `predictors.KINDS`.
        held: What is written.
        folder: Path of the folder; made where it is not there.

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
    (folder / ABOUT).unlink(missing_ok=True)  # what is not whole is not loaded
    held.model.save(folder / MODEL)
    about: dict[str, Any] = {"kind": kind, "labels": held.labels}
    about["pooler_activation"] = held.pooler_activation
    about["adapter"] = None if held.adapter is None else dict(held.adapter)
    about["label_separator"] = held.label_separator
    options = dict(held.options)
    (folder / SHORTLIST).unlink(missing_ok=True)  # of an earlier one
    if (shortlist := options.pop("shortlist", None)) is not None:
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
    """Reads what `write_held` has written: the kind, and what is held.

    Args:
        folder: Path of the folder.

    Raises:
        ValueError: If something in it is damaged.

    Example: see `write_held`.
    """
    folder = pathlib.Path(folder)
    about = read_json(folder, ABOUT)
    try:
        kind, options = str(about["kind"]), {**about["options"]}
        labels, activation = about["labels"], str(about["pooler_activation"])
        if (search := options.get("search")) is not None:
            options["search"] = _search(search)
        if (folder / SHORTLIST).is_file():
            options["shortlist"] = generation.Shortlist.load(folder / SHORTLIST)
        adapter = about.get("adapter")
        adapter = None if adapter is None else {**adapter}
        preprocessing = about.get("preprocessing")
        if preprocessing is not None:
            from keras_transformers.vision import Preprocessing

            preprocessing = Preprocessing(**_tuples(preprocessing))
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
    """Writes a tokenizer; gives the languages that it translates between."""
    from keras_transformers.text import SentencePieceTokenizer

    for name in (PIECES, TOKENIZER):  # of an earlier one
        (folder / name).unlink(missing_ok=True)
    if isinstance(tokenizer, SentencePieceTokenizer):
        tokenizer.save(folder / PIECES)
        return None
    pretrained.save_tokenizer(tokenizer, folder)
    languages = getattr(tokenizer, "languages", None)
    return None if languages is None else [languages.source, languages.target]


def _read_tokenizer(folder: pathlib.Path, languages: Any) -> Any:
    if (folder / PIECES).is_file():
        from keras_transformers.text import SentencePieceTokenizer

        return SentencePieceTokenizer.load(folder / PIECES)
    if not (folder / TOKENIZER).is_file():
        return None
    return pretrained.load_tokenizer(folder, languages and tuple(languages))


def _plain(value: Any) -> Any:
    """An option as JSON has it; a search is a dict with its name."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {"name": type(value).__name__, **dataclasses.asdict(value)}
    return value


def _search(given: dict[str, Any]) -> Any:
    """A search out of what `_plain` made of it."""
    given = _tuples(given)
    made, constraints = SEARCHES[given.pop("name")], given.pop("constraints")
    boundaries = generation.Boundaries(**constraints.pop("boundaries"))
    return made(**given, constraints=generation.Constraints(**constraints, boundaries=boundaries))


def _tuples(value: Any) -> Any:
    """The same with tuples for lists, as settings have them."""
    if isinstance(value, dict):
        return {key: _tuples(each) for key, each in value.items()}
    return tuple(map(_tuples, value)) if isinstance(value, list) else value
