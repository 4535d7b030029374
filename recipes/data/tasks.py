"""Two small tasks for one encoder: the class of an image, and the play of a passage."""

import dataclasses

import numpy as np

from keras_transformers.text import SentencePieceTokenizer
from keras_transformers.vision import Preprocessing

from . import images, shakespeare


@dataclasses.dataclass(frozen=True)
class Task:
    """Arrays for training and scores, and the numbers of their tokens."""

    train: tuple
    valid: tuple
    test: tuple
    classes: list
    length: int
    grid: tuple | None  # rows and columns, where tokens lie on a grid
    vocab_size: int | None  # where they are pieces of text

    def head(self, number):
        """Returns the first examples of each split."""
        splits = {"train": self.train, "valid": self.valid, "test": self.test}
        return dataclasses.replace(
            self, **{name: (x[:number], y[:number]) for name, (x, y) in splits.items()}
        )


def image_task(patch_size):
    """Returns the `Task` of the Fashion-MNIST subset in patches, and its preprocessing."""
    data = images.load("fashion-mnist-12k")
    preprocessing = Preprocessing.measured(data.train.decoded(Preprocessing(28, 1)).images, 28)
    splits = []
    for corpus in (data.train, data.valid, data.test):
        pixels = corpus.decoded(preprocessing).images
        splits.append((np.asarray(preprocessing.normalize(pixels)), np.asarray(corpus.labels)))
    side = 28 // patch_size
    return Task(*splits, data.train.classes, side * side, (side, side), None), preprocessing


def text_task(words, vocab_size, length):
    """Returns the `Task` of passages of Shakespeare's plays, of `words` words each, as pieces."""
    data = shakespeare.passages(words)
    tokenizer = SentencePieceTokenizer.train(data["train"].texts, vocab_size)
    splits = []
    for corpus in (data["train"], data["valid"], data["test"]):
        ids = tokenizer.tokenize(corpus.texts).to_tensor(shape=(None, length))
        splits.append((ids.numpy(), np.array(corpus.labels)))
    return Task(*splits, data["train"].classes, length, None, tokenizer.vocab_size)
