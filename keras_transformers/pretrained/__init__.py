"""Published weights: folders as the Hugging Face hub lays them out, read and written."""

from keras_transformers.pretrained.adapters import load_adapter, save_adapter
from keras_transformers.pretrained.files import class_names, find
from keras_transformers.pretrained.folder import load, save
from keras_transformers.pretrained.images import load_preprocessing, save_preprocessing
from keras_transformers.pretrained.pooling import load_pooling
from keras_transformers.pretrained.search import load_search
from keras_transformers.pretrained.tokenizers import load_tokenizer, save_tokenizer
from keras_transformers.pretrained.trimming import TrimmedModel, trim_vocabulary

__all__ = [
    "TrimmedModel",
    "class_names",
    "find",
    "load",
    "load_adapter",
    "load_pooling",
    "load_preprocessing",
    "load_search",
    "load_tokenizer",
    "save",
    "save_adapter",
    "save_preprocessing",
    "save_tokenizer",
    "trim_vocabulary",
]
