"""Models: one architecture a file, made of `keras_transformers.layers`."""

from keras_transformers.models.language_model import LanguageModel
from keras_transformers.models.recurrent import RecurrentTranslator
from keras_transformers.models.text_encoder import TextEncoder
from keras_transformers.models.transformer import Transformer
from keras_transformers.models.vit import ViT

__all__ = ["LanguageModel", "RecurrentTranslator", "TextEncoder", "Transformer", "ViT"]
