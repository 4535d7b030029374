"""A folder of published weights as a predictor."""

import pathlib
from collections.abc import Callable
from typing import Any

from keras_transformers import export, models, pretrained
from keras_transformers.loading.learners import fitting_of
from keras_transformers.predictors import KINDS, Predictor
from keras_transformers.predictors.learning import parts_of
from keras_transformers.pretrained.folder import read_model
from keras_transformers.pretrained.images import boxes_in


def predictor(folder: pathlib.Path, languages: tuple[str, str] | None) -> Predictor:
    """The predictor of published weights, between two languages where there are many.

    Raises:
        ValueError: If the folder is broken, or its model gives no answer to text or images, or
            nobody says which languages it is to translate between.
    """
    model = read_model(folder)
    if languages is not None and not isinstance(model, models.Transformer):
        raise ValueError(
            f"load: {folder} holds a {type(model).__name__}, so `languages` must be None. "
            f"Received: {languages}"
        )
    fitted = fitting_of(folder, model, languages)
    if fitted is not None:
        served = fitted.served()
        return KINDS[served.kind](served, served.labels, parts_of(fitted), folder)
    served, parts = _served(folder, model)
    parts["model"] = lambda: model
    names = ("model", "tokenizer", "preprocessing")
    parts = {str(name): parts[name] for name in names if name in parts}
    return KINDS[served.kind](served, served.labels, parts, folder)


def _served(folder: pathlib.Path, model: Any) -> tuple[Any, dict[str, Callable[[], Any]]]:
    """The object of `export` that answers, and its parts besides the model, of what learns not."""
    config = model.get_config()
    kinds = (models.DETR, models.DeformableDETR, models.SegFormer)
    if isinstance(model, kinds) and config.get("num_classes"):
        preprocessing = pretrained.load_preprocessing(folder)
        names = pretrained.class_names(folder)
        if isinstance(model, models.SegFormer):
            served: Any = export.Segmenter(model, names, preprocessing)
        else:
            served = export.Detector(model, names, preprocessing, boxes_in=boxes_in(folder))
        return served, {"preprocessing": lambda: preprocessing}
    if isinstance(model, models.DualEncoder):
        preprocessing = pretrained.load_preprocessing(folder)
        words = pretrained.load_tokenizer(folder)
        pair = export.ZeroShotClassifier(model, words, preprocessing)
        return pair, {"preprocessing": lambda: preprocessing, "tokenizer": lambda: words}
    if isinstance(getattr(model, "head", None), models.SpanHead):
        words = pretrained.load_tokenizer(folder)
        return export.QuestionAnswerer(model, words), {"tokenizer": lambda: words}
    raise ValueError(
        f"load: {folder} holds a {type(model).__name__}{_head(model)}, which answers no "
        "text and no image; keras_transformers.pretrained.load gives the model."
    )


def _head(model: Any) -> str:
    if not isinstance(model, models.LanguageModel | models.TextEncoder):
        return " without a head" if "num_classes" in model.get_config() else ""
    return " without a head" if model.head is None else f" with a {type(model.head).__name__}"
