"""SavedModels that take raw text or encoded images, loadable with TensorFlow alone.

Those with a tokenizer need tensorflow-text too: `import tensorflow_text` registers its ops in the
loading process.
"""

from keras_transformers.tasks.image_classification import ImageClassifier, image_classifier
from keras_transformers.tasks.image_embedding import ImageEncoder, image_encoder
from keras_transformers.tasks.mask_filling import MaskFiller, mask_filler
from keras_transformers.tasks.object_detection import Detector, detector
from keras_transformers.tasks.question_answering import QuestionAnswerer, question_answerer
from keras_transformers.tasks.segmentation import Segmenter, segmenter
from keras_transformers.tasks.sentence_embedding import SentenceEncoder, sentence_encoder
from keras_transformers.tasks.tagging import TextTagger, text_tagger
from keras_transformers.tasks.text_classification import (
    TextClassifier,
    TextRegressor,
    text_classifier,
)
from keras_transformers.tasks.text_generation import TextGenerator, text_generator
from keras_transformers.tasks.translation import Translator, translator
from keras_transformers.tasks.zero_shot import ZeroShotClassifier, zero_shot_classifier

__all__ = [
    "Detector",
    "ImageClassifier",
    "ImageEncoder",
    "MaskFiller",
    "QuestionAnswerer",
    "Segmenter",
    "SentenceEncoder",
    "TextClassifier",
    "TextGenerator",
    "TextRegressor",
    "TextTagger",
    "Translator",
    "ZeroShotClassifier",
    "detector",
    "image_classifier",
    "image_encoder",
    "mask_filler",
    "question_answerer",
    "segmenter",
    "sentence_encoder",
    "text_classifier",
    "text_generator",
    "text_tagger",
    "translator",
    "zero_shot_classifier",
]
