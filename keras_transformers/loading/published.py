"""A folder of published weights as a predictor."""

import pathlib
from typing import Any

from keras_transformers import models, pretrained
from keras_transformers.fitting import (
    DetectorFitting,
    Fitted,
    Held,
    QuestionAnswererFitting,
    SegmenterFitting,
    ZeroShotClassifierFitting,
)
from keras_transformers.loading.learners import check_generates, fitting_of
from keras_transformers.predictors import KINDS, Predictor
from keras_transformers.predictors.learning import parts_of
from keras_transformers.pretrained.folder import read_model
from keras_transformers.pretrained.images import boxes_in


def predictor(
    folder: pathlib.Path, languages: tuple[str, str] | None, new_tokens: int | None = None
) -> Predictor:
    """The predictor of published weights, between two languages where there are many.

    Args:
        folder: With the weights.
        languages, new_tokens: As `load` takes them.

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
    fitted = fitting_of(folder, model, languages, new_tokens) or _answering(folder, model)
    served = fitted.served()
    if new_tokens is not None:
        check_generates(folder, served.kind)
    return KINDS[served.kind](served, served.labels, parts_of(fitted), folder)


def _answering(folder: pathlib.Path, model: Any) -> Fitted:
    """Returns what answers by a model that does not learn here.

    Raises:
        ValueError: If it answers no text and no image.
    """
    num_classes = model.get_config().get("num_classes")
    if isinstance(model, models.DETR | models.DeformableDETR) and num_classes:
        options = {"boxes_in": boxes_in(folder)}
        preprocessing = pretrained.load_preprocessing(folder)
        labels = pretrained.class_names(folder)
        return DetectorFitting(Held(model, None, preprocessing, labels, options))
    if isinstance(model, models.SegFormer) and num_classes:
        preprocessing = pretrained.load_preprocessing(folder)
        return SegmenterFitting(Held(model, None, preprocessing, pretrained.class_names(folder)))
    if isinstance(model, models.DualEncoder):
        tokenizer = pretrained.load_tokenizer(folder)
        held = Held(model, tokenizer, pretrained.load_preprocessing(folder))
        return ZeroShotClassifierFitting(held)
    if isinstance(getattr(model, "head", None), models.SpanHead):
        return QuestionAnswererFitting(Held(model, pretrained.load_tokenizer(folder)))
    raise ValueError(
        f"load: {folder} holds a {type(model).__name__}{_head(model)}, which answers no "
        "text and no image; keras_transformers.pretrained.load gives the model."
    )


def _head(model: Any) -> str:
    if not isinstance(model, models.LanguageModel | models.TextEncoder):
        return " without a head" if "num_classes" in model.get_config() else ""
    return " without a head" if model.head is None else f" with a {type(model.head).__name__}"
