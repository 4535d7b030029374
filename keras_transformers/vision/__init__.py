"""Images: from files, arrays or encoded bytes to batches for `model.fit`."""

from keras_transformers.vision.batches import (
    BoxAugmentation,
    WaitingClock,
    evaluation_batches,
    evaluation_boxes,
    training_batches,
    training_boxes,
)
from keras_transformers.vision.boxes import DetectionCorpus, read_coco
from keras_transformers.vision.corpus import ImageCorpus
from keras_transformers.vision.preprocessing import Augmentation, Preprocessing, fitted, random_crop
from keras_transformers.vision.reading import read_folder, read_images, read_listed

__all__ = [
    "Augmentation",
    "BoxAugmentation",
    "DetectionCorpus",
    "ImageCorpus",
    "Preprocessing",
    "WaitingClock",
    "evaluation_batches",
    "evaluation_boxes",
    "fitted",
    "random_crop",
    "read_coco",
    "read_folder",
    "read_images",
    "read_listed",
    "training_batches",
    "training_boxes",
]
