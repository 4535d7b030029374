"""Objects that take text and images as people hold them, and give plain Python."""

from keras_transformers.predictors.base import Predictor, Refused
from keras_transformers.predictors.images import (
    ArrayClassifierPredictor,
    DetectorPredictor,
    ImageClassifierPredictor,
    ImagePredictor,
    SegmenterPredictor,
)
from keras_transformers.predictors.texts import (
    MaskFillerPredictor,
    SentenceEncoderPredictor,
    TextClassifierPredictor,
    TextGeneratorPredictor,
    TextPredictor,
    TranslatorPredictor,
)

__all__ = [
    "ArrayClassifierPredictor",
    "DetectorPredictor",
    "ImageClassifierPredictor",
    "ImagePredictor",
    "MaskFillerPredictor",
    "Predictor",
    "Refused",
    "SegmenterPredictor",
    "SentenceEncoderPredictor",
    "TextClassifierPredictor",
    "TextGeneratorPredictor",
    "TextPredictor",
    "TranslatorPredictor",
]
OF_EVERY_KIND = (
    ArrayClassifierPredictor,
    DetectorPredictor,
    ImageClassifierPredictor,
    MaskFillerPredictor,
    SegmenterPredictor,
    SentenceEncoderPredictor,
    TextClassifierPredictor,
    TextGeneratorPredictor,
    TranslatorPredictor,
)
KINDS: dict[str | None, type[Predictor]] = {each.kind: each for each in OF_EVERY_KIND}
