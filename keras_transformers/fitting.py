"""What `fit`, `evaluate`, `quantize`, `save` and `export` of a predictor do, kind by kind."""

from keras_transformers.tasks.fitting import Answering, Asked, Fitted, counted, fit_epochs, prepared
from keras_transformers.tasks.image_classification import ImageClassifierFitting
from keras_transformers.tasks.image_embedding import ImageEncoderFitting
from keras_transformers.tasks.mask_filling import MaskFillerFitting
from keras_transformers.tasks.object_detection import DetectorFitting
from keras_transformers.tasks.predictor_folder import Held, read_held, write_held
from keras_transformers.tasks.question_answering import QuestionAnswererFitting
from keras_transformers.tasks.registry import all_tasks
from keras_transformers.tasks.segmentation import SegmenterFitting
from keras_transformers.tasks.sentence_embedding import EncoderFitting
from keras_transformers.tasks.tagging import TextTaggerFitting
from keras_transformers.tasks.text_classification import TextClassifierFitting, TextRegressorFitting
from keras_transformers.tasks.text_generation import LanguageModelFitting
from keras_transformers.tasks.translation import TranslatorFitting
from keras_transformers.tasks.translation_predictor import calibrate_confidence
from keras_transformers.tasks.zero_shot import ZeroShotClassifierFitting

FITTINGS = {kind: task.fitting for kind, task in all_tasks().items() if task.fitting}

__all__ = [
    "FITTINGS",
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
