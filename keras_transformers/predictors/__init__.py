"""Objects that take text and images as people hold them, and give plain Python."""

from keras_transformers.predictors.base import Predictor, Refused
from keras_transformers.predictors.images import (
    ArrayClassifierPredictor,
    DetectorPredictor,
    ImageClassifierPredictor,
    ImageEncoderPredictor,
    ImagePredictor,
    SegmenterPredictor,
)
from keras_transformers.predictors.quality import QualityEstimator
from keras_transformers.predictors.text_streams import TextStream
from keras_transformers.predictors.texts import (
    MaskFillerPredictor,
    QuestionAnswererPredictor,
    SentenceEncoderPredictor,
    TextClassifierPredictor,
    TextGeneratorPredictor,
    TextPredictor,
    TextRegressorPredictor,
    TextTaggerPredictor,
)
from keras_transformers.predictors.translations import TranslatorPredictor
from keras_transformers.predictors.zero_shot import ZeroShotClassifierPredictor

__all__ = [
    "ArrayClassifierPredictor",
    "DetectorPredictor",
    "ImageClassifierPredictor",
    "ImageEncoderPredictor",
    "ImagePredictor",
    "MaskFillerPredictor",
    "Predictor",
    "QualityEstimator",
    "QuestionAnswererPredictor",
    "Refused",
    "SegmenterPredictor",
    "SentenceEncoderPredictor",
    "TextClassifierPredictor",
    "TextGeneratorPredictor",
    "TextPredictor",
    "TextRegressorPredictor",
    "TextStream",
    "TextTaggerPredictor",
    "TranslatorPredictor",
    "ZeroShotClassifierPredictor",
]
OF_EVERY_KIND = (
    ArrayClassifierPredictor,
    DetectorPredictor,
    ImageClassifierPredictor,
    ImageEncoderPredictor,
    MaskFillerPredictor,
    QuestionAnswererPredictor,
    SegmenterPredictor,
    SentenceEncoderPredictor,
    TextClassifierPredictor,
    TextGeneratorPredictor,
    TextRegressorPredictor,
    TextTaggerPredictor,
    TranslatorPredictor,
    ZeroShotClassifierPredictor,
)
KINDS: dict[str | None, type[Predictor]] = {each.kind: each for each in OF_EVERY_KIND}
