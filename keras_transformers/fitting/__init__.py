"""What `fit`, `evaluate`, `quantize`, `save` and `export` of a predictor do, kind by kind."""

from keras_transformers.fitting.base import Answering, Asked, Fitted
from keras_transformers.fitting.confidence import calibrate_confidence
from keras_transformers.fitting.documents import LanguageModelFitting, MaskFillerFitting
from keras_transformers.fitting.folder import read_held, write_held
from keras_transformers.fitting.held import Held
from keras_transformers.fitting.images import (
    DetectorFitting,
    ImageClassifierFitting,
    ImageEncoderFitting,
    SegmenterFitting,
    ZeroShotClassifierFitting,
)
from keras_transformers.fitting.loop import counted, fit_epochs, prepared
from keras_transformers.fitting.text_classes import (
    EncoderFitting,
    TextClassifierFitting,
    TextRegressorFitting,
)
from keras_transformers.fitting.text_tags import QuestionAnswererFitting, TextTaggerFitting
from keras_transformers.fitting.translations import TranslatorFitting

OF_EVERY_KIND = (
    DetectorFitting,
    EncoderFitting,
    ImageClassifierFitting,
    ImageEncoderFitting,
    LanguageModelFitting,
    MaskFillerFitting,
    QuestionAnswererFitting,
    SegmenterFitting,
    TextClassifierFitting,
    TextRegressorFitting,
    TextTaggerFitting,
    TranslatorFitting,
    ZeroShotClassifierFitting,
)
FITTINGS: dict[str, type[Fitted]] = {each.kind: each for each in OF_EVERY_KIND}

__all__ = [
    "Answering",
    "Asked",
    "DetectorFitting",
    "EncoderFitting",
    "Fitted",
    "Held",
    "ImageClassifierFitting",
    "ImageEncoderFitting",
    "LanguageModelFitting",
    "MaskFillerFitting",
    "QuestionAnswererFitting",
    "SegmenterFitting",
    "TextClassifierFitting",
    "TextRegressorFitting",
    "TextTaggerFitting",
    "TranslatorFitting",
    "ZeroShotClassifierFitting",
    "calibrate_confidence",
    "counted",
    "fit_epochs",
    "prepared",
    "read_held",
    "write_held",
]
