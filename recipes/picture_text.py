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

import dataclasses

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
from keras_transformers.training import AdamW, BudgetedDecay
from keras_transformers.vision import Preprocessing
from keras_transformers.visualization import images_with_attention, training_curves

from .command import RunConfig, begin, main
from .data.images import load
from .devices import hand_over

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


@dataclasses.dataclass(frozen=True)
class Config(RunConfig):
    """Every number of a run. The defaults suit two CPU cores."""

    output: str = "runs/picture_text"
    minutes: float | None = 5.0  # of training; the learning rate decays to reach 0 then
    epochs: int = 60  # at most
    batch_size: int = 128
    patch_size: int = 4  # 49 patches of a picture of 28 pixels
    picture_dim: int = 96
    text_dim: int = 64
    num_heads: int = 4
    text_length: int = 16  # pieces of a sentence
    dropout: float = 0.1
    learning_rate: float = 1e-3  # the peak
    weight_decay: float = 0.05
    warmup_steps: int = 100


SMOKE = {"epochs": 1, "minutes": None, "warmup_steps": 2}


def sentences(labels, seed):
    """A sentence for each picture, true or false with equal chances, and which it is."""
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
    """Pictures, how they are prepared, and a tokenizer of everything that can be said."""
    data = load("fashion-mnist-12k")
    if config.smoke:
        few = {name: getattr(data, name).split(0.03)[1] for name in ("train", "valid", "test")}
        data = dataclasses.replace(data, **few)
    preprocessing = Preprocessing.measured(
        data.train.decoded(Preprocessing(28, data.train.channels)).images, 28
    )
    splits = {
        name: (getattr(data, name).decoded(preprocessing).images, getattr(data, name).labels)
        for name in ("train", "valid", "test")
    }
    everything = [form.format(name) for form in (*SAID, *DENIED) for name in CALLED]
    return splits, preprocessing, SentencePieceTokenizer.train(everything, 64)


def examples(config, preprocessing, tokenizer, images, texts, truths):
    """Dataset of single pictures with their sentences."""
    ids = tokenizer.tokenize(texts).to_tensor(shape=(None, config.text_length))
    pictures = preprocessing.normalize(tf.constant(images))
    return tf.data.Dataset.from_tensor_slices(({"picture": pictures, "text": ids}, truths))


def build_model(config, preprocessing, vocab_size):
    """Patches and pieces, each with a block of its own; the pieces look at the picture."""
    picture = keras.Input((*preprocessing.image_size, preprocessing.channels), name="picture")
    text = keras.Input((config.text_length,), dtype="int32", name="text")
    block = {"num_heads": config.num_heads, "dropout": config.dropout, "norm_first": True}
    patches = PatchEmbedding(config.patch_size, config.picture_dim)(picture)
    patches = PositionEmbedding(patches.shape[1])(patches)
    for _ in range(2):
        patches = EncoderBlock(mlp_dim=2 * config.picture_dim, **block)(patches)
    patches = keras.layers.LayerNormalization()(patches)
    padding = text != 0
    x = PositionalEncoding()(TokenEmbedding(vocab_size, config.text_dim)(text))
    x = EncoderBlock(mlp_dim=2 * config.text_dim, **block)(x, padding_mask=padding)
    for i in range(2):
        attention = CrossAttention(config.num_heads, name=f"text_to_picture_{i}")
        x = x + attention(keras.layers.LayerNormalization()(x), patches)
        x = EncoderBlock(mlp_dim=2 * config.text_dim, **block)(x, padding_mask=padding)
    x = keras.layers.LayerNormalization()(x)
    x = keras.layers.GlobalAveragePooling1D("channels_last")(x, mask=padding)
    model = keras.Model({"picture": picture, "text": text}, keras.layers.Dense(2)(x))
    model.compile(
        config.make_optimizer(AdamW, global_clipnorm=1.0),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
        jit_compile=config.jit_compile,
    )
    model.optimizer.build(model.trainable_variables)
    return model


class Judge(tf.Module):
    """The model with decoding and tokenizer inside: encoded pictures and sentences in."""

    def __init__(self, config, model, preprocessing, tokenizer):
        super().__init__(name="judge")
        self._config, self._model = config, model
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
        ids = self._tokenizer.tokenize(text).to_tensor(shape=(None, self._config.text_length))
        inputs = {"picture": self._preprocessing.normalize(pixels), "text": ids}
        logits = tf.cast(self._model(inputs, training=False), tf.float32)
        return {"probability": tf.nn.softmax(logits)[:, 1]}


def probabilities(model, dataset, batch_size):
    """Of each sentence being true."""
    logits = model.predict(dataset.batch(batch_size), verbose=0)
    return np.asarray(tf.nn.softmax(tf.cast(logits, tf.float32)))[:, 1]


def train(config, folder, splits, preprocessing, tokenizer, model):
    """Fits with new sentences in every epoch; returns the history."""
    images, labels = splits["train"]
    batch_size = min(config.batch_size, len(labels))
    steps = len(labels) // batch_size

    def told(epoch):
        """The sentences of an epoch as ids, and which are true."""
        texts, truths = sentences(labels, [config.seed, int(epoch)])
        ids = tokenizer.tokenize(texts).to_tensor(shape=(None, config.text_length))
        return ids.numpy(), truths

    pictures = preprocessing.normalize(tf.constant(images))

    def make(epoch):
        ids, truths = tf.numpy_function(told, [epoch], [tf.int32, tf.int32])
        ids = tf.ensure_shape(ids, (len(labels), config.text_length))
        truths = tf.ensure_shape(truths, (len(labels),))
        places = streams.orders(len(labels), batch_size, config.seed, epoch).take(steps)

        def batch(chosen):
            chosen = tf.ensure_shape(chosen, (batch_size,))
            inputs = {"picture": tf.gather(pictures, chosen), "text": tf.gather(ids, chosen)}
            return inputs, tf.gather(truths, chosen)

        return places.map(batch)

    valid_images, valid_labels = splits["valid"]
    said = sentences(valid_labels, 0)
    valid = examples(config, preprocessing, tokenizer, valid_images, *said)
    return folder.fit(
        model,
        make,
        steps,
        config.epochs,
        [
            BudgetedDecay(
                config.learning_rate,
                config.warmup_steps,
                config.epochs * steps,
                config.minutes,
                decay="cosine",
            ),
            *folder.callbacks(),
        ],
        validation_data=valid.batch(config.batch_size),
    )


def run(config):
    """Trains, scores on the test set, exports; returns the metrics."""
    config, folder = begin(config, SMOKE)
    splits, preprocessing, tokenizer = load_data(config)
    tokenizer.save(folder / "tokenizer.model")
    with config.making():
        model = build_model(config, preprocessing, tokenizer.vocab_size)
    history = train(config, folder, splits, preprocessing, tokenizer, model)
    model.save(folder / "model.keras")
    hand_over()

    images, labels = splits["test"]
    texts, truths = sentences(labels, 0)
    dataset = examples(config, preprocessing, tokenizer, images, texts, truths)
    found = probabilities(model, dataset, config.batch_size)
    other = np.random.default_rng(0).permutation(len(labels))
    exchanged = examples(config, preprocessing, tokenizer, images[other], texts, truths)
    by_chance = probabilities(model, exchanged, config.batch_size)
    right = (found > 0.5) == truths
    denied = np.array([text.startswith(tuple(form[:8] for form in DENIED)) for text in texts])
    metrics = {
        "test_accuracy": float(right.mean()),
        "test_accuracy_of_denials": float(right[denied].mean()),
        "test_accuracy_with_other_pictures": float(((by_chance > 0.5) == truths).mean()),
        "parameters": model.count_params(),
        "epochs": len(history["loss"]),
    }
    folder.write_metrics(metrics)
    judge = Judge(config, model, preprocessing, tokenizer)
    with folder.exporting("saved_model") as path:
        tf.saved_model.save(judge, str(path), signatures={"serving_default": judge.__call__})
    draw(folder, history, model, dataset, images, texts, found)
    folder.end()
    return metrics


def draw(folder, history, model, dataset, images, texts, found):
    """Curves, and what the pieces of twelve sentences look at."""
    with folder.drawing("training_curves") as path:
        training_curves(history, path, ("loss", "accuracy"))
    with folder.drawing("predictions_attention") as path:
        draw_attention(path, model, dataset, images, texts, found)


def draw_attention(path, model, dataset, images, texts, found):
    """What the pieces of twelve sentences look at."""
    inputs, _ = next(iter(dataset.batch(12)))
    maps = attention_maps(model, inputs, match="text_to_picture_1")
    real = np.asarray(inputs["text"]) != 0
    (weights,) = maps.values()  # (12, heads, pieces, patches)
    weights = np.einsum("bhtp,bt->bp", weights, real / real.sum(1, keepdims=True))
    side = int(np.sqrt(weights.shape[1]))
    images_with_attention(
        images[:12] / 255,
        weights.reshape(-1, side, side),
        [f"{text}\n{share:.0%} true" for text, share in zip(texts, found[:12], strict=False)],
        path,
        title="A sentence, how sure the model is of it, and where its pieces look",
    )


if __name__ == "__main__":
    main(run, Config, __doc__)
