"""Images: from files, arrays or encoded bytes to batches for `model.fit`."""

from keras_transformers.vision.augmentation import Augmentation, random_crop
from keras_transformers.vision.batches import WaitingClock, evaluation_batches, training_batches
from keras_transformers.vision.box_batches import BoxAugmentation, evaluation_boxes, training_boxes
from keras_transformers.vision.boxes import DetectionCorpus
from keras_transformers.vision.coco import read_coco
from keras_transformers.vision.corpus import ImageCorpus
from keras_transformers.vision.folders import read_folder
from keras_transformers.vision.given import read_images
from keras_transformers.vision.listed import read_listed
from keras_transformers.vision.preprocessing import Preprocessing, fitted

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
