"""Links between the words of a translation and those of its source."""

from keras_transformers.alignment.guided import learn_alignment
from keras_transformers.alignment.links import align_words, pharaoh, read_pharaoh

__all__ = ["align_words", "learn_alignment", "pharaoh", "read_pharaoh"]
