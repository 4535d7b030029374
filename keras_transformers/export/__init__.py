"""SavedModels that take raw text or encoded images, loadable with TensorFlow alone.

Those with a tokenizer need tensorflow-text too: `import tensorflow_text` registers its ops in the
loading process.
"""

from keras_transformers.export.detector import Detector
from keras_transformers.export.functions import (
    mask_filler,
    question_answerer,
    sentence_encoder,
    text_classifier,
    text_generator,
    text_tagger,
    translator,
)
from keras_transformers.export.functions_of_images import (
    detector,
    image_classifier,
    image_encoder,
    segmenter,
    zero_shot_classifier,
)
from keras_transformers.export.image_encoder import ImageEncoder
from keras_transformers.export.images import ImageClassifier
from keras_transformers.export.mask_filler import MaskFiller
from keras_transformers.export.question_answerer import QuestionAnswerer
from keras_transformers.export.segmenter import Segmenter
from keras_transformers.export.sentence_encoder import SentenceEncoder
from keras_transformers.export.text_classifier import TextClassifier
from keras_transformers.export.text_generator import TextGenerator
from keras_transformers.export.text_regressor import TextRegressor
from keras_transformers.export.text_tagger import TextTagger
from keras_transformers.export.translation import Translator
from keras_transformers.export.zero_shot import ZeroShotClassifier

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
