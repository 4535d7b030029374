"""SavedModels that take raw text or encoded images, loadable with TensorFlow alone."""

from keras_transformers.export.images import ImageClassifier, image_classifier
from keras_transformers.export.translation import Translator, translator

__all__ = ["ImageClassifier", "Translator", "image_classifier", "translator"]
