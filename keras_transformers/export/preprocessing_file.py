"""`preprocessing.json`: how tensors for an exported file are made of raw images and texts.

Of every file: `exporter`, `format`, `file`, `inputs` (name -> dtype and shape; "batch" and "length"
are free), `outputs`, and of LiteRT `flex_ops`, TensorFlow ops that its own kernels lack (most
often none).

Of images, in the order of what is done; everything is computed in float32:

    channels        Of the decoded image, upright as its EXIF says: 1 (grey, 0.299 R + 0.587 G +
                    0.114 B) or 3 (RGB), an alpha channel dropped. Of arrays any number.
    resize          "cover": height and width times max(image_size / (height, width)), rounded.
                    "shorter_side": the shorter side becomes `resized`, the longer one
                    floor(longer * resized / shorter + 0.001). "squeeze": to `resized`. "fit": with
                    `resized` null, times min(image_size / (height, width)), rounded down; else the
                    shorter side becomes `resized`, and the longer one floor(longer * resized /
                    shorter), unless that is more than image_size[0]: then the shorter side becomes
                    s = image_size[0] * shorter / longer, rounded, and the longer one floor(s *
                    longer / shorter). Computed in float64, at least 1. With "cover" and
                    "shorter_side" no side gets less than `image_size`.
    resized         For "shorter_side" and "fit" the side, for "squeeze" `[height, width]`, or null.
    method          "bilinear" or "bicubic" (a = -0.5).
    antialias       true: the kernel is widened where the image gets smaller, as in Pillow. A side
                    that is already as it should be is left as it is.
    rounding        "half_to_even", of sides as of pixels.
    pixel_range     `[0, 255]`: pixels are clipped, then rounded.
    image_size      `[height, width]` of the tensor. The middle is cut out, from (resized side -
                    image_size) // 2 on; with "fit" the image is at the upper left instead.
    filling         With "fit": value of the pixels around the image; else null. Height and width of
                    the image there are the input `content_size`.
    normalization   `inside` (true: the file takes uint8 pixels), and what is computed there:
                    (pixel * scale - mean) / std.
    labels          Names, by the number that `label` gives; of encoders there are none.
    threshold       Of detectors: score from which on a box counts in `number`.

Of texts:

    tokenizer       `kind` "wordpiece" or "sentencepiece", and `file`. Of WordPiece: `lower_case`
                    (and accents are stripped, before), `unknown` (piece for a word that has no
                    pieces), `continuation` (before pieces that go on with a word),
                    `max_word_length` (a longer word is unknown) and `special` (pieces that stand
                    for themselves in the text).
    start_id, end_id  What stands before and behind the ids of each text.
    padding_id      What fills shorter rows, at the end.
    max_length      Most ids of a row; of a longer text the first `max_length - 2` stay, between
                    start and end.
    labels          Names, by the number that `label` gives.
    pooling, normalized  Of sentence encoders, inside: "mean" over real ids or "token", the first;
                    whether vectors have length 1.
"""

import dataclasses
import json
import pathlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from keras_transformers.generation.request import padding_of
from keras_transformers.vision.preprocessing import Preprocessing

NAME = "preprocessing.json"


def write_preprocessing(
    folder: pathlib.Path, settings: dict[str, Any], tokenizer: Any = None
) -> None:
    """Writes `preprocessing.json`, and the file of a tokenizer."""
    folder = pathlib.Path(folder)
    if tokenizer is not None:
        tokenizer.save(folder / settings["tokenizer"]["file"])
    text = json.dumps(settings, indent=2, ensure_ascii=False)
    (folder / NAME).write_text(text + "\n", encoding="utf-8")


def of_images(preprocessing: Preprocessing, labels: Sequence[str] | None = None) -> dict[str, Any]:
    """What `preprocessing.json` says of the images of a classifier, or, without labels, encoder."""
    size, resized = list(preprocessing.image_size), preprocessing.resized
    named = {} if labels is None else {"labels": list(labels)}
    if preprocessing.fit:
        return _pixels(preprocessing, "fit") | {"resized": resized, "filling": 0, **named}
    if isinstance(resized, int):
        resize = "shorter_side"
    elif resized is None and preprocessing.crop:
        resize = "cover"
    else:
        resize, resized = "squeeze", list(resized or size)
    return _pixels(preprocessing, resize) | {"resized": resized, **named}


def of_fitted_images(
    preprocessing: Preprocessing, labels: Sequence[str], threshold: float
) -> dict[str, Any]:
    """Returns what it says of a detector's images, as `Preprocessing.frame` makes them."""
    framed = dataclasses.replace(preprocessing, fit=preprocessing.fit or preprocessing.crop)
    return of_images(framed, labels) | {"threshold": threshold}


def of_texts(model: Any, tokenizer: Any, longest: int, **more: Any) -> dict[str, Any]:
    """What it says of texts.

    Raises:
        ValueError: If the tokenizer is neither WordPiece nor SentencePiece, or has added tokens.
    """
    return {
        "tokenizer": _of_tokenizer(tokenizer),
        "start_id": int(tokenizer.start_id),
        "end_id": int(tokenizer.end_id),
        "padding_id": padding_of(model),
        "max_length": int(longest),
        **more,
    }


def _pixels(preprocessing: Preprocessing, resize: str) -> dict[str, Any]:
    return {
        "channels": preprocessing.channels,
        "resize": resize,
        "resized": None,
        "method": preprocessing.method,
        "antialias": True,
        "rounding": "half_to_even",
        "pixel_range": [0, 255],
        "image_size": list(preprocessing.image_size),
        "filling": None,
        "normalization": {
            "inside": True,
            "scale": float(np.float32(1) / np.float32(255)),
            "mean": list(preprocessing.mean),
            "std": list(preprocessing.std),
        },
    }


def _of_tokenizer(tokenizer: Any) -> dict[str, Any]:
    from keras_transformers.text import SentencePieceTokenizer, WordPieceTokenizer

    if isinstance(tokenizer, SentencePieceTokenizer):
        return {"kind": "sentencepiece", "file": "tokenizer.model"}
    if not isinstance(tokenizer, WordPieceTokenizer):
        raise ValueError(
            'export: with `format` other than "saved_model" the tokenizer must be a '
            f"WordPieceTokenizer or a SentencePieceTokenizer. Received: {type(tokenizer).__name__}"
        )
    if tokenizer.added_tokens:
        raise ValueError(
            'export: with `format` other than "saved_model" a tokenizer must have no added '
            f"tokens, for its file has none. Received: {tokenizer.added_tokens[0].content!r} ..."
        )
    return {
        "kind": "wordpiece",
        "file": "vocab.txt",
        "lower_case": tokenizer.lower_case,
        "unknown": "[UNK]",
        "continuation": "##",
        "max_word_length": tokenizer.max_word_length,
        "special": tokenizer.pieces(tokenizer.special_ids),
    }
