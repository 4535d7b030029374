"""Objects that take text and images as people hold them, and give plain Python."""

from keras_transformers.tasks.image_classification import (
    ArrayClassifierPredictor,
    ImageClassifierPredictor,
)
from keras_transformers.tasks.image_embedding import ImageEncoderPredictor
from keras_transformers.tasks.image_requests import ImagePredictor
from keras_transformers.tasks.mask_filling import MaskFillerPredictor
from keras_transformers.tasks.object_detection import DetectorPredictor
from keras_transformers.tasks.predictor import Predictor, Refused
from keras_transformers.tasks.question_answering import QuestionAnswererPredictor
from keras_transformers.tasks.registry import all_tasks
from keras_transformers.tasks.segmentation import SegmenterPredictor
from keras_transformers.tasks.sentence_embedding import SentenceEncoderPredictor
from keras_transformers.tasks.tagging import TextTaggerPredictor
from keras_transformers.tasks.text_classification import (
    TextClassifierPredictor,
    TextRegressorPredictor,
)
from keras_transformers.tasks.text_generation import TextGeneratorPredictor
from keras_transformers.tasks.text_predictor import TextPredictor, TextStream
from keras_transformers.tasks.translation_predictor import TranslatorPredictor
from keras_transformers.tasks.translation_quality import QualityEstimator
from keras_transformers.tasks.zero_shot import ZeroShotClassifierPredictor

KINDS = {kind: task.predictor for kind, task in all_tasks().items()}

__all__ = [
    "KINDS",
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
