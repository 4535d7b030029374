"""Images: from files, arrays or encoded bytes to batches for `model.fit`."""

from keras_transformers.vision.augmentation import Augmentation, random_crop
from keras_transformers.vision.batches import WaitingClock, evaluation_batches, training_batches
from keras_transformers.vision.corpus import ImageCorpus, read_folder
from keras_transformers.vision.preprocessing import Preprocessing

__all__ = [
    "Augmentation",
    "ImageCorpus",
    "Preprocessing",
    "WaitingClock",
    "evaluation_batches",
    "random_crop",
    "read_folder",
    "training_batches",
]
