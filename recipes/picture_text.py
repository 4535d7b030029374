"""A picture and a sentence in one model: is the sentence true of the picture?

    python -m recipes.picture_text

Pictures are those of the Fashion-MNIST subset, sentences are made of the names of its classes, of
what such a thing is ("something to wear on the feet") and of "not"; half of them are false. Pieces
of text are the queries of `CrossAttention`, patches of the picture its keys and values, of another
number and another width (Vaswani et al. 2017, https://arxiv.org/abs/1706.03762, section 3.2.3, with
a picture for the context). Picture or sentence alone says nothing: the run also scores the model
with pictures that belong to other sentences. Measured on the 2,000 test pictures: 93.0 % right, and
55.1 % with other pictures, after 5 minutes of training on two cores of an AMD EPYC with AVX-512
(seed 1).
"""

from dataclasses import dataclass
from functools import partial
from typing import ClassVar, Literal

import keras
import numpy as np
import tensorflow as tf

from keras_transformers import streams
from keras_transformers.inspection import attention_maps
from keras_transformers.layers import (
    CrossAttention,
    EncoderBlock,
    PatchEmbedding,
    PositionalEncoding,
    PositionEmbedding,
    TokenEmbedding,
)
from keras_transformers.text import SentencePieceTokenizer
from keras_transformers.training import AdamW
from keras_transformers.vision import Preprocessing
from keras_transformers.visualization import images_with_attention

from .data.images import load
from .lib import training
from .lib.options import Run, main

# What a thing may be called, and the classes (by number) that are so called.
CALLED = {
    "a t-shirt": (0,),
    "a pair of trousers": (1,),
    "a pullover": (2,),
    "a dress": (3,),
    "a coat": (4,),
    "a sandal": (5,),
    "a shirt": (6,),
    "a sneaker": (7,),
    "a bag": (8,),
    "an ankle boot": (9,),
    "a shoe": (5, 7, 9),
    "something to wear on the feet": (5, 7, 9),
    "something to wear on the legs": (1,),
    "something with long sleeves": (2, 4, 6),
    "a piece of clothing": (0, 1, 2, 3, 4, 6),
    "something to carry things in": (8,),
}
SAID = ("this is {}", "it shows {}", "a picture of {}", "you see {}")
DENIED = ("this is not {}", "it does not show {}", "no picture of {}", "you do not see {}")


@dataclass(frozen=True)
class Architecture:
    """Two encoders; the one for text attends to the output of the one for pictures."""

    patch_size: int = 4  # 49 patches of a picture of 28 pixels
    picture_dim: int = 96  # of patches
    text_dim: int = 64  # of pieces
    num_heads: int = 4  # of both
    text_length: int = 16  # pieces of a sentence
    dropout: float = 0.1  # of all blocks


@dataclass(frozen=True)
class Training:
    """The length and speed of training."""

    minutes: float | None = 5.0  # of training; the learning rate decays to reach 0 then
    epochs: int = 60  # at most
    batch_size: int = 128  # some 90 steps an epoch
    learning_rate: float = 1e-3  # the peak
    weight_decay: float = 0.05  # of matrices
    warmup_steps: int = 100  # about an epoch
    decay: Literal["linear", "cosine"] = "cosine"  # to 0, over the budget


@dataclass(frozen=True)
class Config:
    """Every number of a run. The defaults suit two CPU cores."""

    run: Run = Run("runs/picture_text")
    model: Architecture = Architecture()
    training: Training = Training()
    SMOKE: ClassVar = {"epochs": 1, "minutes": None, "warmup_steps": 2}


def sentences(labels, seed):
    """Returns a sentence for each picture, true or false with equal chances, and its truth."""
    rng, names = np.random.default_rng(seed), list(CALLED)
    texts, truths = [], []
    for label in labels:
        true, denied = rng.integers(0, 2, 2)
        fitting = bool(true) != bool(denied)  # what is denied falsely is there
        name = rng.choice([name for name in names if (label in CALLED[name]) == fitting])
        texts.append(rng.choice(DENIED if denied else SAID).format(name))
        truths.append(int(true))
    return texts, np.array(truths, "int32")


def load_data(config):
    """Returns pictures, their preprocessing, and a tokenizer of all possible sentences."""
    data = load("fashion-mnist-12k")
    if config.run.smoke:
        data = data.mapped(lambda corpus: corpus.split(0.03)[1])
    preprocessing = Preprocessing.measured(
        data.train.decoded(Preprocessing(28, data.train.channels)).images, 28
    )
    splits = {
        split: (corpus.decoded(preprocessing).images, corpus.labels)
        for split, corpus in data.corpora().items()
    }
    everything = [form.format(name) for form in (*SAID, *DENIED) for name in CALLED]
    return splits, preprocessing, SentencePieceTokenizer.train(everything, 64)


def examples(config, preprocessing, tokenizer, images, texts, truths):
    """Returns a dataset of single pictures with their sentences."""
    ids = tokenizer.tokenize(texts).to_tensor(shape=(None, config.model.text_length))
    pictures = preprocessing.normalize(tf.constant(images))
    return tf.data.Dataset.from_tensor_slices(({"picture": pictures, "text": ids}, truths))


def build_model(config, preprocessing, vocab_size):
    """Builds and compiles the two encoders."""
    options = config.model
    picture = keras.Input((*preprocessing.image_size, preprocessing.channels), name="picture")
    text = keras.Input((options.text_length,), dtype="int32", name="text")
    block = {"num_heads": options.num_heads, "dropout": options.dropout, "norm_first": True}
    patches = PatchEmbedding(options.patch_size, options.picture_dim)(picture)
    patches = PositionEmbedding(patches.shape[1])(patches)
    for _ in range(2):
        patches = EncoderBlock(mlp_dim=2 * options.picture_dim, **block)(patches)
    patches = keras.layers.LayerNormalization()(patches)
    padding = text != 0
    x = PositionalEncoding()(TokenEmbedding(vocab_size, options.text_dim)(text))
    x = EncoderBlock(mlp_dim=2 * options.text_dim, **block)(x, padding_mask=padding)
    for i in range(2):
        attention = CrossAttention(options.num_heads, name=f"text_to_picture_{i}")
        x = x + attention(keras.layers.LayerNormalization()(x), patches)
        x = EncoderBlock(mlp_dim=2 * options.text_dim, **block)(x, padding_mask=padding)
    x = keras.layers.LayerNormalization()(x)
    x = keras.layers.GlobalAveragePooling1D("channels_last")(x, mask=padding)
    model = keras.Model({"picture": picture, "text": text}, keras.layers.Dense(2)(x))
    return training.compile_model(
        config,
        model,
        training.make_optimizer(config, AdamW, global_clipnorm=1.0),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )


class StatementChecker(tf.Module):
    """The model with decoding and tokenizer, for encoded pictures and sentences."""

    def __init__(self, text_length, model, preprocessing, tokenizer):
        super().__init__(name="checker")
        self._text_length, self._model = text_length, model
        self._preprocessing, self._tokenizer = preprocessing, tokenizer

    @tf.function(
        input_signature=[
            tf.TensorSpec([None], tf.string, name="image"),
            tf.TensorSpec([None], tf.string, name="text"),
        ]
    )
    def __call__(self, image, text):
        """Bytes `(batch,)` and sentences `(batch,)` -> dict of `probability` of being true."""
        shape = (*self._preprocessing.image_size, self._preprocessing.channels)
        pixels = tf.map_fn(
            self._preprocessing.decode, image, fn_output_signature=tf.TensorSpec(shape, tf.uint8)
        )
        ids = self._tokenizer.tokenize(text).to_tensor(shape=(None, self._text_length))
        inputs = {"picture": self._preprocessing.normalize(pixels), "text": ids}
        logits = tf.cast(self._model(inputs, training=False), tf.float32)
        return {"probability": tf.nn.softmax(logits)[:, 1]}


def probabilities(model, dataset, batch_size):
    """Returns the probability that each sentence is true."""
    logits = model.predict(dataset.batch(batch_size), verbose=0)
    return np.asarray(tf.nn.softmax(tf.cast(logits, tf.float32)))[:, 1]


def batches_of(config, preprocessing, tokenizer, images, labels):
    """Returns a function from an epoch to its batches, with new sentences and another order."""
    batch_size, length = min(config.training.batch_size, len(labels)), config.model.text_length
    pictures = preprocessing.normalize(tf.constant(images))

    def encoded_sentences(epoch):
        """Returns the sentences of an epoch as ids, and their truths."""
        texts, truths = sentences(labels, [config.run.seed, int(epoch)])
        return tokenizer.tokenize(texts).to_tensor(shape=(None, length)).numpy(), truths

    def make(epoch):
        ids, truths = tf.numpy_function(encoded_sentences, [epoch], [tf.int32, tf.int32])
        ids = tf.ensure_shape(ids, (len(labels), length))
        truths = tf.ensure_shape(truths, (len(labels),))

        def batch(indices):
            indices = tf.ensure_shape(indices, (batch_size,))
            inputs = {"picture": tf.gather(pictures, indices), "text": tf.gather(ids, indices)}
            return inputs, tf.gather(truths, indices)

        orders = streams.orders(len(labels), batch_size, config.run.seed, epoch)
        return orders.take(len(labels) // batch_size).map(batch)

    return make, len(labels) // batch_size


def score(config, preprocessing, tokenizer, model, images, labels):
    """Returns scores on the test set, and examples, texts and probabilities to draw."""
    texts, truths = sentences(labels, 0)
    size = config.training.batch_size
    dataset = examples(config, preprocessing, tokenizer, images, texts, truths)
    shares = probabilities(model, dataset, size)
    others = np.random.default_rng(0).permutation(len(labels))
    exchanged = examples(config, preprocessing, tokenizer, images[others], texts, truths)
    right = (shares > 0.5) == truths
    by_chance = (probabilities(model, exchanged, size) > 0.5) == truths
    denied = np.array([text.startswith(tuple(form[:8] for form in DENIED)) for text in texts])
    return {
        "test_accuracy": float(right.mean()),
        "test_accuracy_of_denials": float(right[denied].mean()),
        "test_accuracy_with_other_pictures": float(by_chance.mean()),
        "test_examples": len(labels),
    }, (dataset, texts, shares)


def save(config, model, preprocessing, tokenizer, path):
    """Writes the SavedModel."""
    checker = StatementChecker(config.model.text_length, model, preprocessing, tokenizer)
    tf.saved_model.save(checker, str(path), signatures={"serving_default": checker.__call__})


def draw_attention(model, images, dataset, texts, shares, path):
    """Draws the patches that the pieces of twelve sentences attend to."""
    inputs, _ = next(iter(dataset.batch(12)))
    maps = attention_maps(model, inputs, match="text_to_picture_1")
    real = np.asarray(inputs["text"]) != 0
    (weights,) = maps.values()  # (12, heads, pieces, patches)
    weights = np.einsum("bhtp,bt->bp", weights, real / real.sum(1, keepdims=True))
    side = int(np.sqrt(weights.shape[1]))
    images_with_attention(
        images[:12] / 255,
        weights.reshape(-1, side, side),
        [f"{text}\n{share:.0%} true" for text, share in zip(texts, shares[:12], strict=False)],
        path,
        title="A sentence, how sure the model is of it, and where its pieces look",
    )


def run(config):
    """Trains, scores on the test set, exports; returns the metrics."""
    folder = training.start_run(config)
    splits, preprocessing, tokenizer = load_data(config)
    folder.keep("tokenizer.model", tokenizer.save)
    with training.model_scope(config):
        model = build_model(config, preprocessing, tokenizer.vocab_size)
    batches, steps = batches_of(config, preprocessing, tokenizer, *splits["train"])
    images, labels = splits["valid"]
    valid = examples(config, preprocessing, tokenizer, images, *sentences(labels, 0))
    watched = valid.batch(config.training.batch_size)
    history = training.fit(config, folder, model, batches, steps, validation_data=watched)
    model.save(folder / "model.keras")
    training.continue_on_tensorflow()
    metrics, shown = score(config, preprocessing, tokenizer, model, *splits["test"])
    return training.finish(
        folder,
        metrics,
        model=model,
        history=history,
        curves=("loss", "accuracy"),
        exports={"saved_model": partial(save, config, model, preprocessing, tokenizer)},
        figures={
            "predictions_attention": partial(draw_attention, model, splits["test"][0], *shown)
        },
    )


if __name__ == "__main__":
    main(run, Config, __doc__)
