"""Pages for pictures: classes and what they draw on; likeness; boxes; classes of pixels."""

import pathlib

import matplotlib
import numpy as np
import PIL.Image
import PIL.ImageDraw
import tensorflow as tf

from keras_transformers.data.array_files import pixels_of_pillow

from ..heat import heat
from .asking import most_probable

SIDE = 448  # pixels of a picture that is drawn over, at least
LARGEST = 1024  # pixels of a side of a picture that masks are laid over, at most
OPACITY = 0.6
MOST_CLASSES = 20
COLOURS = ("#e8590c", "#1971c2", "#2f9e44", "#9c36b5", "#e03131", "#f08c00", "#0c8599")


def uploaded(upload, folder):
    """The picture of a request, the right way up, grey or RGB.

    Args:
        upload: Dict with the `path` of a file, as gradio passes it on, or None.
        folder: The folder in which gradio keeps uploads and examples. A request can name any other
            file of the machine, so files outside of it are not opened.

    Raises:
        ValueError: If there is no picture, it cannot be read, or it lies outside of `folder`.
    """
    path = upload and upload.get("path")
    if path and not pathlib.Path(path).resolve().is_relative_to(pathlib.Path(folder).resolve()):
        raise ValueError("Upload the picture, or choose an example: other files are not read.")
    return opened(path)


def opened(path):
    """The picture in a file that was uploaded, the right way up, grey or RGB.

    Raises:
        ValueError: If there is none, or it cannot be read.
    """
    if not path:
        raise ValueError("Choose a picture first.")
    try:
        with PIL.Image.open(path) as picture:
            pixels = pixels_of_pillow(picture)
    except (OSError, ValueError, SyntaxError, PIL.Image.DecompressionBombError):
        raise ValueError("This file is no picture that can be read: JPEG, PNG, ...") from None
    return PIL.Image.fromarray(pixels[..., 0] if pixels.shape[-1] == 1 else pixels)


def classify(predictor, picture):
    """The five most probable classes, best first: dict of label -> probability."""
    return most_probable(predictor.predict(picture))


def similarity(predictor, first, second):
    """The cosine of the angle between the vectors of two pictures."""
    one, other = np.array(predictor.predict([first, second]))
    length = np.linalg.norm(one) * np.linalg.norm(other)
    return float(one @ other / length) if length else 0.0


def attention(predictor, picture):
    """The picture as the model sees it, with what the answer draws on over it, and how it is found.

    Returns:
        uint8 pixels, or None where nothing says what an answer draws on; and a sentence.
    """
    preprocessing = predictor.preprocessing
    pixels = np.asarray(picture)
    pixels = pixels[..., None] if pixels.ndim == 2 else pixels
    pixels = preprocessing.decode(tf.io.encode_png(pixels)).numpy()
    found = heat(predictor.model, preprocessing.normalize(pixels)[None])
    if found is None:
        return None, "This model has no attention over patches that could be shown."
    return overlaid(pixels, found[0][0]), f"What the answer draws on ({found[1]}): bright is much."


def overlaid(pixels, warmth):
    """Pixels `(height, width, 1 or 3)` with a map of any size over them as colours, enlarged."""
    height, width = pixels.shape[:2]
    factor = max(1, -(-SIDE // min(height, width)))
    size = (width * factor, height * factor)
    colours = np.broadcast_to(pixels, (height, width, 3))
    enlarged = np.asarray(PIL.Image.fromarray(np.uint8(colours)).resize(size, PIL.Image.BILINEAR))
    warmth = np.asarray(warmth, "float32")
    warmth = warmth / max(float(warmth.max()), 1e-9)
    smooth = PIL.Image.fromarray(warmth).resize(size, PIL.Image.BICUBIC)
    shades = matplotlib.colormaps["inferno"](np.clip(np.asarray(smooth), 0, 1))[..., :3]
    return np.uint8(np.round(0.45 * enlarged + 0.55 * 255 * shades))


def detect(predictor, picture):
    """Everything that the model sees, surest first: dicts of `label`, `score` and `box`."""
    return predictor.predict(picture, details=True)


def above_threshold(found, threshold):
    """Those with a score of `threshold` or more."""
    return [each for each in found if each["score"] >= threshold]


def rows_of(found):
    """A table: label, score in percent, left, top, right, bottom."""
    return [
        [each["label"], round(100 * each["score"], 1), *(round(side) for side in each["box"])]
        for each in found
    ]


def with_boxes(picture, found):
    """Pixels of the picture, enlarged where it is small, with its boxes, labels and scores."""
    factor = max(1, -(-SIDE // min(picture.size)))
    drawn = picture.convert("RGB").resize([factor * side for side in picture.size])
    pen = PIL.ImageDraw.Draw(drawn)
    line = max(2, round(min(drawn.size) / 200))
    names = sorted({each["label"] for each in found})
    for each in reversed(found):  # the surest above the others
        colour = COLOURS[names.index(each["label"]) % len(COLOURS)]
        left, top, right, bottom = (factor * side for side in each["box"])
        if right <= left or bottom <= top:
            continue
        pen.rectangle((left, top, right, bottom), outline=colour, width=line)
        said = f"{each['label']} {each['score']:.0%}" if len(names) > 1 else f"{each['score']:.0%}"
        position = pen.textbbox((left + line, top + line), said, font_size=6 * line)
        pen.rectangle(position, fill=colour)
        pen.text((left + line, top + line), said, fill="white", font_size=6 * line)
    return np.asarray(drawn)


def segment(predictor, picture):
    """What stands where: the picture, enlarged or made small, with masks of its classes.

    Returns:
        uint8 pixels `(height, width, 3)`; pairs of a mask `(height, width)`, from 0 to 1, and the
        name of its class with its share, the largest first; and a sentence on what is left out.
    """
    found = predictor.predict(picture)
    factor = min(max(1, SIDE / min(picture.size)), LARGEST / max(picture.size))
    size = [max(1, round(factor * side)) for side in picture.size]
    numbers = PIL.Image.fromarray(np.array(found["map"], "int32"))
    numbers = np.asarray(numbers.resize(size, PIL.Image.NEAREST))
    masks = {}
    for number in np.unique(numbers):
        name = predictor.labels[number] if predictor.labels else str(number)
        masks[name] = masks.get(name, 0) + OPACITY * (numbers == number)
    shown = [each for each in found["shares"].items() if each[0] in masks][:MOST_CLASSES]
    number = len(found["shares"]) - len(shown)
    left_out = f"Classes that are too small to be shown: {number}." if number else ""
    pairs = [(masks[name], f"{name}: {share:.1%}") for name, share in shown]
    return np.asarray(picture.convert("RGB").resize(size)), pairs, left_out
