"""Preprocessing of images, as published folders describe it."""

from __future__ import annotations

import pathlib
import re
from typing import TYPE_CHECKING, Any, Literal

from keras_transformers.core.types import StrPath
from keras_transformers.pretrained.files import CONFIG, find, read_json, write_json

if TYPE_CHECKING:
    from keras_transformers.vision.preprocessing import Preprocessing

NAME = "preprocessor_config.json"
OF_BOTH, INSIDE = "processor_config.json", "image_processor"  # as transformers 5 writes it
# As Pillow numbers them.
METHODS: dict[int, Literal["bilinear", "bicubic"]] = {2: "bilinear", 3: "bicubic"}
CENTER = {"do_center_crop": True, "crop_size": 224, "resample": 3}
CLIP = CENTER | {
    "size": {"shortest_edge": 224},
    "image_mean": [0.48145466, 0.4578275, 0.40821073],
    "image_std": [0.26862954, 0.26130258, 0.27577711],
}
IMAGENET = {"image_mean": [0.485, 0.456, 0.406], "image_std": [0.229, 0.224, 0.225]}
DETR = IMAGENET | {"size": {"shortest_edge": 800, "longest_edge": 1333}}
# What Hugging Face's classes do where a file says nothing, by the beginnings of their names.
KINDS: dict[str, dict[str, Any]] = {
    "ViT": {},
    "DeiT": CENTER | {"size": 256},
    "Bit": CLIP,
    "CLIP": CLIP,
    "Siglip": {"resample": 3},
    "Beit": {"resample": 3},
    "Detr": DETR,
    "ConditionalDetr": DETR,
    "DeformableDetr": DETR,
    "Segformer": IMAGENET | {"size": 512},
}
PREPROCESSINGS: dict[Any, str] = {"conditional_detr": "ConditionalDetr"}
PREPROCESSINGS["deformable_detr"] = "DeformableDetr"
NAMES = ("image_processor_type", "feature_extractor_type")
ENDS = re.compile("(ImageProcessor|FeatureExtractor)(Fast|Pil)?$")
SETTLED = {"do_rescale": (True,), "do_normalize": (True,), "do_resize": (True,)}
# All that version 0.2.0 wrote of a detector. Every release of transformers writes more.
WRITTEN_BY_0_2 = {"do_normalize", "do_rescale", "do_resize", "image_mean", "image_processor_type"}
WRITTEN_BY_0_2 |= {"image_std", "resample", "rescale_factor", "size"}


def load_preprocessing(folder: StrPath) -> Preprocessing:
    """The preprocessing that a published folder asks for, in TensorFlow's graph.

    Pixels differ from Pillow's by at most one step of 256 where images are resized.

    Args:
        folder: Path of the folder, with `preprocessor_config.json`, or, of models of images and
            texts, with a `processor_config.json` that has it inside.

    Returns:
        A `vision.Preprocessing`. That of a detector scales images as published. Its frame is
        `longest_edge`, or `pad_size`, on both sides, for images of all shapes share a frame.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If it asks for something else than resizing, cutting out and normalising, or
            names a class that does so in a way of its own.

    Example:
    >>> import json, pathlib, tempfile
    >>> from keras_transformers import pretrained
    >>> folder = tempfile.mkdtemp()
    >>> asked = {"size": {"height": 224, "width": 224}, "resample": 2, "image_mean": [0.5] * 3,
    ...          "image_std": [0.5] * 3}
    >>> _ = pathlib.Path(folder, "preprocessor_config.json").write_text(json.dumps(asked))
    >>> pretrained.load_preprocessing(folder).image_size
    (224, 224)
    """
    from keras_transformers.vision import Preprocessing

    folder = find(folder, weights=False)
    said, where = _said(folder)
    asked = {key: value for key, value in said.items() if value is not None}
    asked = _with_defaults(asked, where)
    for name, values in SETTLED.items():
        if asked.get(name, True) not in values:
            raise ValueError(f"{where}: `{name}` must be true. Received: {asked[name]!r}")
    if abs(asked.get("rescale_factor", 1 / 255) * 255 - 1) > 1e-6:
        raise ValueError(
            f"{where}: `rescale_factor` must be 1 / 255. Received: {asked['rescale_factor']}"
        )
    resample = asked.get("resample", 2)
    if resample not in METHODS:
        raise ValueError(
            f"{where}: `resample` must be 2 (bilinear) or 3 (bicubic). Received: {resample!r}"
        )
    channels = _channels(folder, asked)
    return Preprocessing(
        **_geometry(asked, where),
        channels=channels,
        mean=_of_channels(asked, "image_mean", channels, where),
        std=_of_channels(asked, "image_std", channels, where),
        crop=False,
        method=METHODS[resample],
    )


def boxes_in(folder: StrPath) -> Literal["image", "frame"]:
    """Returns what the boxes of a published detector are fractions of, see `export.Detector`.

    It is the image, unless version 0.2.0 wrote the folder. Such a folder has equal edges and no
    other entry than those that 0.2.0 wrote; transformers also writes `do_pad` or `format`.
    """
    said, _ = _said(find(folder, weights=False))
    size = said.get("size")
    if said.keys() != WRITTEN_BY_0_2 or not isinstance(size, dict):
        return "image"
    has_edges = size.keys() == {"shortest_edge", "longest_edge"}
    return "frame" if has_edges and len(set(size.values())) == 1 else "image"


def save_preprocessing(
    preprocessing: Preprocessing,
    folder: StrPath,
    detection: bool | Literal["detr", "conditional_detr", "deformable_detr"] = False,
) -> pathlib.Path:
    """Writes a preprocessing as Hugging Face's `transformers` reads it.

    Args:
        preprocessing: A `vision.Preprocessing`.
        folder: Path of the folder.
        detection: Whether it is that of a detector, see `Preprocessing.frame`; or the type of the
            detector, for `transformers` reads the boxes of the others otherwise than of "detr".

    Returns:
        The path, a `pathlib.Path`.

    Example:
    >>> import tempfile
    >>> from keras_transformers import pretrained, vision
    >>> preprocessing = vision.Preprocessing(32, crop=False)
    >>> folder = pretrained.save_preprocessing(preprocessing, tempfile.mkdtemp())
    >>> pretrained.load_preprocessing(folder) == preprocessing
    True
    """
    height, width = preprocessing.image_size
    asked = {
        "do_normalize": True,
        "do_rescale": True,
        "do_resize": True,
        "image_mean": list(preprocessing.mean),
        "image_std": list(preprocessing.std),
        "resample": {method: number for number, method in METHODS.items()}[preprocessing.method],
        "rescale_factor": 1 / 255,
    }
    resized = preprocessing.resized
    if detection:
        kind = PREPROCESSINGS.get(detection, "Detr")
        asked["image_processor_type"] = f"{kind}ImageProcessor"
        asked |= _frame(preprocessing)
    elif resized is None and not preprocessing.crop:
        asked["image_processor_type"] = "ViTImageProcessor"
        asked["size"] = {"height": height, "width": width}
    else:
        asked["image_processor_type"] = "BitImageProcessor"
        asked |= {"do_center_crop": True, "crop_size": {"height": height, "width": width}}
        if isinstance(resized, tuple):
            asked["size"] = dict(zip(("height", "width"), resized, strict=True))
        else:
            asked["size"] = {"shortest_edge": resized or max(height, width)}
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder, NAME, asked)
    return folder


def _frame(preprocessing: Preprocessing) -> dict[str, Any]:
    """Returns how a detector's images are resized and padded."""
    height, width = preprocessing.image_size
    frame = {"height": height, "width": width}
    if not (preprocessing.fit or preprocessing.crop):
        return {"size": frame, "do_pad": False}
    size = {"max_height": height, "max_width": width}
    if preprocessing.resized is not None:
        size = {"shortest_edge": preprocessing.resized, "longest_edge": height}
    return {"size": size, "do_pad": True, "pad_size": frame}


def _channels(folder: pathlib.Path, asked: dict[str, Any]) -> int:
    """Returns the channels of the model's images: as `config.json` says, or as many as means."""
    config = read_json(folder, CONFIG) if (folder / CONFIG).is_file() else {}
    of_images = config.get("vision_config")
    if isinstance(of_images, dict):
        config = of_images
    channels = config.get("num_channels")
    return channels if isinstance(channels, int) else len(asked.get("image_mean", [0.5] * 3))


def _of_channels(asked: dict[str, Any], name: str, channels: int, where: Any) -> tuple[float, ...]:
    """Returns the mean or the deviation of each channel; equal ones serve any number."""
    values = tuple(asked.get(name, [0.5] * channels))
    if len(values) != channels and len(set(values)) == 1:
        return values[:1] * channels
    if len(values) != channels:
        raise ValueError(
            f"{where}: `{name}` must have a number for each of the model's {channels} channels. "
            f"Received: {list(values)}"
        )
    return values


def _geometry(asked: dict[str, Any], where: Any) -> dict[str, Any]:
    """Returns the sizes of a `Preprocessing`."""
    size = asked.get("size", 224)
    if asked.get("do_center_crop", False):
        crop = _size(asked.get("crop_size", 224), where)
        crop = (crop, crop) if isinstance(crop, int) else crop
        return {"image_size": crop, "resized": _size(size, where)}
    if isinstance(size, dict) and {"max_height", "max_width"} <= size.keys():
        frame = (size["max_height"], size["max_width"])
        return {"image_size": _padded(frame, asked, where), "fit": True}
    if isinstance(size, dict) and {"shortest_edge", "longest_edge"} <= size.keys():
        longest = size["longest_edge"]
        frame = _padded((longest, longest), asked, where)
        return {"image_size": frame, "resized": min(size["shortest_edge"], longest), "fit": True}
    found = _size(size, where)
    if isinstance(found, int):
        raise ValueError(
            f"{where}: with a `shortest_edge` alone, `do_center_crop` must be true. Received: "
            f"size={size!r}"
        )
    return {"image_size": found}


def _padded(frame: tuple[int, int], asked: dict[str, Any], where: Any) -> tuple[int, int]:
    """Returns the frame, after a check that no other size is asked for as `pad_size`."""
    padded = asked.get("pad_size")
    if padded is not None and _size(padded, where) != frame:
        raise ValueError(
            f"{where}: `pad_size` must be the largest size of an image, {frame}. Received: "
            f"{padded!r}"
        )
    return frame


def _said(folder: pathlib.Path) -> tuple[dict[str, Any], Any]:
    """What is asked for, and by which file."""
    if not (folder / NAME).is_file() and (folder / OF_BOTH).is_file():
        inside = read_json(folder, OF_BOTH).get(INSIDE)
        if isinstance(inside, dict):
            return inside, folder / OF_BOTH
    return read_json(folder, NAME), folder / NAME


def _with_defaults(asked: dict[str, Any], where: Any) -> dict[str, Any]:
    """What is asked for, and what the class that is named does besides."""
    name = next((each for each in NAMES if each in asked), None)
    kind = ENDS.sub("", str(asked[name])) if name else "ViT"
    if name and kind not in KINDS:
        raise ValueError(
            f"{where}: `{name}` must be one of {', '.join(f'{k}ImageProcessor' for k in KINDS)}. "
            f"Received: {asked[name]!r}"
        )
    asked = {**KINDS[kind], **asked}
    if isinstance(asked.get("size"), int) and KINDS[kind] in (CLIP, DETR):
        longest = {"longest_edge": asked.get("max_size", 1333)} if KINDS[kind] is DETR else {}
        asked["size"] = {"shortest_edge": asked["size"], **longest}
    return asked


def _size(size: Any, where: Any) -> Any:
    """`(height, width)`, or an int for the shorter side."""
    if isinstance(size, int) and size > 0:
        return (size, size)  # as older files have it
    if isinstance(size, dict):
        numbers = {name: size[name] for name in size if isinstance(size[name], int)}
        if {"height", "width"} <= numbers.keys():
            return (numbers["height"], numbers["width"])
        if "shortest_edge" in numbers:
            return numbers["shortest_edge"]
    raise ValueError(
        f"{where}: sizes must be an integer, or have `height` and `width`, or `shortest_edge`. "
        f"Received: {size!r}"
    )
