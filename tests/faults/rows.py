"""Bad rows among good ones: the good ones must be read as if they were alone, the bad counted."""

import json
import pathlib
import random
import struct
import zlib

import numpy as np
import tensorflow as tf

from keras_transformers.text import read_labelled, read_pairs
from keras_transformers.vision import read_coco, read_folder
from tests.faults import kills

BAD_LINES = [
    b"no tab",
    b"one\ttwo\tthree",
    b"",
    b"   ",
    b"\t",
    b"only a source\t",
    b"\tonly a target",
    b"bad \xff\xfe\ttext",
    b"cut \xe2\x82\ttext",
    b"\xed\xa0\x80\tsurrogate",
]


def between(good, bad, rng):
    """All rows in one list: the bad ones anywhere, the good ones in their order."""
    rows = list(good)
    for each in bad:
        rows.insert(rng.randrange(len(rows)), each)  # not last: there a blank line is none
    return rows


def lines(folder, rng, read, kept):
    """One file of lines; whether the good ones are kept, and every bad one counted."""
    good = [f"source {i}\tclass {i % 3}".encode() for i in range(50)]
    bad = [rng.choice(BAD_LINES) for _ in range(rng.randrange(1, 30))]
    rows = between(good, bad, rng)
    folder.mkdir()
    path = folder / "rows.tsv"
    path.write_bytes(rng.choice([b"", b"\xef\xbb\xbf"]) + rng.choice([b"\n", b"\r\n"]).join(rows))
    corpus = read(path)
    counted = sum(corpus.left_out.values())
    return kept(corpus) == [f"source {i}" for i in range(50)] and counted == len(bad)


def png(height, width):
    return tf.io.encode_png(tf.zeros((height, width, 3), tf.uint8)).numpy()


def bomb():
    """A PNG of a few bytes that says it has 60,000 x 60,000 pixels."""

    def chunk(kind, content):
        return (
            struct.pack(">I", len(content))
            + kind
            + content
            + struct.pack(">I", zlib.crc32(kind + content))
        )

    header = struct.pack(">IIBBBBB", 60_000, 60_000, 8, 2, 0, 0, 0)
    pixels = zlib.compress(bytes(1000))
    start = b"\x89PNG\r\n\x1a\n"
    return start + chunk(b"IHDR", header) + chunk(b"IDAT", pixels) + chunk(b"IEND", b"")


BAD_PICTURES = {
    "empty": lambda: b"",
    "text": lambda: b"no image",
    "cut": lambda: png(40, 30)[:60],
    "cut jpeg": lambda: tf.io.encode_jpeg(tf.zeros((40, 30, 3), tf.uint8)).numpy()[:200],
    "bomb": bomb,
}


def images(folder, rng):
    """One folder of images; whether the good ones are kept, and every bad one counted."""
    for name in ("a", "b"):
        (folder / name).mkdir(parents=True)
        for i in range(5):
            (folder / name / f"good {i}.png").write_bytes(png(8, 9))
    bad = [rng.choice(list(BAD_PICTURES)) for _ in range(rng.randrange(1, 8))]
    for i, kind in enumerate(bad):
        (folder / rng.choice("ab") / f"{i} {kind}.png").write_bytes(BAD_PICTURES[kind]())
    corpus = read_folder(folder)
    return len(corpus) == 10 and sum(corpus.left_out.values()) == len(bad)


BAD_BOXES = [
    {"bbox": [1, 2, 3]},
    {"bbox": [float("nan"), 2, 3, 4]},
    {"bbox": [1, 2, float("inf"), 4]},
    {"bbox": [1, 2, -3, 4]},
    {"bbox": [1, 2, 0, 4]},
    {"bbox": [100, 200, 3, 4]},
    {"bbox": "1 2 3 4"},
    {"bbox": None},
    {"image_id": 9},
    {"category_id": 9},
]


def boxes(folder, rng):
    """One file of boxes; whether the good ones are kept, and every bad one counted."""
    folder.mkdir()
    (folder / "1.png").write_bytes(png(40, 60))
    usual = {"image_id": 1, "category_id": 7}
    good = [{**usual, "bbox": [i, 5, 10, 20]} for i in range(12)]
    bad = [
        {**usual, "bbox": [1, 2, 3, 4], **rng.choice(BAD_BOXES)}
        for _ in range(rng.randrange(1, 15))
    ]
    content = {
        "images": [{"id": 1, "file_name": "1.png"}],
        "categories": [{"id": 7, "name": "cat"}],
        "annotations": between(good, bad, rng),
    }
    (folder / "boxes.json").write_text(json.dumps(content))
    corpus = read_coco(folder / "boxes.json")
    expected = [[i, 5, i + 10, 25] for i in range(12)]
    return np.array_equal(corpus.boxes[0], expected) and sum(corpus.left_out.values()) == len(bad)


def run(folder, data, tries, seed):
    """Title -> tries and those in which the good rows were read, and the bad ones counted."""
    rng = random.Random(seed)
    kinds = {
        "bad lines among pairs": lambda to: lines(to, rng, read_pairs, lambda c: c.sources),
        "bad lines among labelled texts": lambda to: lines(
            to, rng, read_labelled, lambda c: c.texts
        ),
        "bad images": lambda to: images(to, rng),
        "bad boxes": lambda to: boxes(to, rng),
    }
    found = {}
    for title, try_once in kinds.items():
        positions = [folder / f"{title} {number}" for number in range(tries)]
        found[title] = (tries, sum(map(try_once, positions)))
    # And once through a recipe: to the same weights as from the good pairs alone.
    recipe, of, arguments, _ = kills.KINDS["translation"]
    arguments = [*arguments, *data[of]]
    train = folder / "train.tsv"
    clean = pathlib.Path(arguments[arguments.index("--train") + 1])
    bad = [rng.choice(BAD_LINES) for _ in range(100)]
    train.write_bytes(b"\n".join(between(clean.read_bytes().splitlines(), bad, rng)))
    dirty = [train if each == str(clean) else each for each in arguments]
    weights, *_ = kills.whole(recipe, folder / "clean", arguments)
    same = weights is not None and weights == kills.whole(recipe, folder / "dirty", dirty)[0]
    return {**found, "bad lines among pairs, recipe": (1, int(same))}
