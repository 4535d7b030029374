"""A folder of published weights as a predictor."""

import functools
import pathlib
from collections.abc import Callable
from typing import Any

from keras_transformers import export, models, pretrained
from keras_transformers.export.served import LENGTHS, lengths_within
from keras_transformers.predictors import KINDS, Predictor
from keras_transformers.pretrained.folder import read_model

NEW_TOKENS = 128  # of a continuation
OF_IMAGES: dict[type, Callable[..., Any]] = {
    models.DETR: export.Detector,
    models.DeformableDETR: export.Detector,
    models.PVT: export.ImageClassifier,
    models.SegFormer: export.Segmenter,
    models.Swin: export.ImageClassifier,
    models.ViT: export.ImageClassifier,
}


def predictor(folder: pathlib.Path, languages: tuple[str, str] | None) -> Predictor:
    """The predictor of published weights, between two languages where there are many.

    Raises:
        ValueError: If the folder is broken, or its model gives no answer to text or images, or
            nobody says which languages it is to translate between.
    """
    model = read_model(folder)
    served, parts = _served(folder, model, languages)
    parts["model"] = lambda: model
    names = ("model", "tokenizer", "preprocessing")
    parts = {str(name): parts[name] for name in names if name in parts}
    return KINDS[served.kind](served, served.labels, parts, folder)


def _served(
    folder: pathlib.Path, model: Any, languages: tuple[str, str] | None
) -> tuple[Any, dict[str, Callable[[], Any]]]:
    """The object of `export` that answers, and its parts besides the model."""
    config = model.get_config()
    if languages is not None and not isinstance(model, models.Transformer):
        raise ValueError(
            f"load: {folder} holds a {type(model).__name__}, so `languages` must be None. "
            f"Received: {languages}"
        )
    if isinstance(model, tuple(OF_IMAGES)) and config.get("num_classes"):
        preprocessing = pretrained.load_preprocessing(folder)
        make = OF_IMAGES[type(model)]
        served = make(model, pretrained.class_names(folder), preprocessing)
        return served, {"preprocessing": lambda: preprocessing}
    if isinstance(model, models.DualEncoder):
        preprocessing = pretrained.load_preprocessing(folder)
        words = pretrained.load_tokenizer(folder)
        pair = export.ZeroShotClassifier(model, words, preprocessing)
        return pair, {"preprocessing": lambda: preprocessing, "tokenizer": lambda: words}
    make = _of_text(model, languages)
    if make is None:
        raise ValueError(
            f"load: {folder} holds a {type(model).__name__}{_head(model)}, which answers no "
            "text and no image; keras_transformers.pretrained.load gives the model."
        )
    words = pretrained.load_tokenizer(folder, languages)
    return make(folder, model, words), {"tokenizer": lambda: words}


def _head(model: Any) -> str:
    if not isinstance(model, models.LanguageModel | models.TextEncoder):
        return " without a head" if "num_classes" in model.get_config() else ""
    return " without a head" if model.head is None else f" with a {type(model.head).__name__}"


def _of_text(model: Any, languages: tuple[str, str] | None) -> Callable[..., Any] | None:
    """What makes a served object of folder, model and tokenizer; None where nothing does."""
    if isinstance(model, models.Transformer):
        return functools.partial(_translator, languages)
    if not isinstance(model, models.LanguageModel | models.TextEncoder):
        return None
    without = _generator if isinstance(model, models.LanguageModel) else _encoder
    heads = {
        type(None): without,
        models.LanguageHead: _generator,
        models.MaskedLanguageHead: _filler,
        models.ClassificationHead: _classifier,
        models.SpanHead: _answerer,
    }
    return heads.get(type(model.head))


def _translator(
    languages: tuple[str, str] | None, folder: pathlib.Path, model: Any, words: Any
) -> export.Translator:
    search = pretrained.load_search(folder)
    if getattr(words, "languages", None) is not None:
        boundaries = search.constraints.boundaries
        if languages is not None or boundaries.first is None and words.language_id is not None:
            search = pretrained.load_search(folder, words.language_id)
        elif boundaries.first is None:
            _check_start(folder, boundaries.start, words)
    return export.Translator(model, words, search)


def _check_start(folder: pathlib.Path, start: int | None, words: Any) -> None:
    """ValueError unless decoding starts with the token of a language."""
    if start not in words.language_ids.values():
        raise ValueError(
            f"load: {folder} translates between many languages, and no file says which. Give "
            "`languages`, the codes of the source's and the target's, of "
            f"{', '.join(words.languages.tokens)}."
        )


def _generator(folder: pathlib.Path, model: Any, words: Any) -> export.TextGenerator:
    # Half the positions are left for the prompt, where there are few.
    new_tokens = min(NEW_TOKENS, (model.most_decodable or 2 * NEW_TOKENS) // 2)
    return export.TextGenerator(model, words, pretrained.load_search(folder), new_tokens)


def _filler(folder: pathlib.Path, model: Any, words: Any) -> export.MaskFiller:
    return export.MaskFiller(model, words)


def _classifier(folder: pathlib.Path, model: Any, words: Any) -> export.TextClassifier:
    return export.TextClassifier(model, words, pretrained.class_names(folder))


def _answerer(folder: pathlib.Path, model: Any, words: Any) -> export.QuestionAnswerer:
    return export.QuestionAnswerer(model, words)


def _encoder(folder: pathlib.Path, model: Any, words: Any) -> export.SentenceEncoder:
    asked = pretrained.load_pooling(folder)
    asked["lengths"] = lengths_within(model, asked.get("lengths", LENGTHS))
    return export.SentenceEncoder(model, words, **asked)
