"""SavedModels that take raw text or encoded images, loadable with TensorFlow alone."""

from keras_transformers.export.detector import Detector, detector
from keras_transformers.export.images import ImageClassifier, image_classifier
from keras_transformers.export.mask_filler import MaskFiller, mask_filler
from keras_transformers.export.sentence_encoder import SentenceEncoder, sentence_encoder
from keras_transformers.export.text_classifier import TextClassifier, text_classifier
from keras_transformers.export.text_generator import TextGenerator, text_generator
from keras_transformers.export.translation import Translator, translator

__all__ = [
    "Detector",
    "ImageClassifier",
    "MaskFiller",
    "SentenceEncoder",
    "TextClassifier",
    "TextGenerator",
    "Translator",
    "detector",
    "image_classifier",
    "mask_filler",
    "sentence_encoder",
    "text_classifier",
    "text_generator",
    "translator",
]
