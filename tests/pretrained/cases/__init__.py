"""The published models that tests compare with: a small one and an odd one of each kind.

`LARGE` are of the published sizes: the defaults of the configurations.
"""

import numpy as np

from tests.pretrained.cases import decoders, encoders, pairs, pictures, translators

KINDS = (encoders, decoders, translators, pictures, pairs)
CASES = {name: case for kind in KINDS for name, case in kind.CASES.items()}
LARGE = {name: case for kind in KINDS for name, case in kind.LARGE.items()}


def sequences(case, seed=5):
    """Ids and mask, int64 `(rows, length)`, of a case: padding behind the ids of each row."""
    config = case["config"]
    vocab = config.get("vocab_size", {"GPT2Config": 50257}.get(case["config_class"], 30522))
    padding = config.get("pad_token_id", 0)
    rng = np.random.default_rng(seed)
    rows, length = (100, 9) if vocab < 100 else (2, 9)
    first = 2 if padding == 1 else 1
    ends = (each for each in (padding, case.get("end_id")) if each and each >= first)
    ids = rng.integers(first, min([vocab, *ends]), (rows, length))  # none that means nothing
    mask = np.ones_like(ids)
    if case["run"] in ("text", "marian"):
        for row, size in enumerate(rng.integers(4, length + 1, rows)):
            mask[row, size:] = 0
            if case["run"] == "marian":
                ids[row, size - 1] = case["end_id"]
    return np.where(mask, ids, padding), mask


def images(case):
    """Pictures `(2, height, width, channels)` of a case."""
    config = case["config"]
    channels = config.get("num_channels", 3)
    large = not config.get("hidden_size") and not config.get("embed_dim")
    side = config.get("image_size", 224 if large else 0)
    size = (96, 128) if case["run"] == "detr" else case.get("sides", (side, side))
    values = np.random.default_rng(sum(size)).normal(size=(2, *size, channels))
    return values.astype("float32")


def pairs_of(case, pictures=4, texts=6):
    """Pictures, and ids with END behind each text and a copy of it as padding, of a case."""
    of_images, of_texts = (case["config"].get(k, {}) for k in ("vision_config", "text_config"))
    side, channels = of_images.get("image_size", 224), of_images.get("num_channels", 3)
    rng = np.random.default_rng(side)
    images = rng.normal(size=(pictures, side, side, channels)).astype("float32")
    length = of_texts.get("max_position_embeddings", case.get("length", 77))
    end = case["end_id"]
    most = of_texts.get("vocab_size", 1000) - 1
    ids = rng.integers(6, most, (texts, length))
    ends = rng.integers(2, length, (texts, 1))
    return images, np.where(np.arange(length) < ends, ids, end)


def thinned(values):
    """Every 64th value of the last axis where there are very many, as a golden file holds them."""
    return values[..., ::64] if values.size > 200_000 else values


def sharpened(weights):
    """The weights, those that attention looks with larger, or all would look alike."""
    ends = ("q_proj.weight", "k_proj.weight", "query.weight", "key.weight", "q_lin.weight")
    ends += ("k_lin.weight", "c_attn.weight", "query_position_embeddings.weight")
    return {k: v * 3 if k.endswith(ends) else v for k, v in weights.items()}
