"""Formats beside SavedModels: a file of tensors in and out, and how to get from raw input to them.

`format="litert"` writes `model.tflite` for LiteRT, `format="onnx"` writes `model.onnx`. Tokenizers
and image decoding convert to neither, so that such a file takes tensors, and what comes before it
stands beside it: `preprocessing.json` (see `preprocessing_file`) and the tokenizer's own file. The
batch and the length of texts are free in both.

    exporter            inputs                                   outputs
    image_classifier    pixels uint8 (batch, height, width,      probabilities, probability, label
                        channels)
    detector            pixels uint8 (batch, side, side, 3),     boxes, score, label, number
                        content_size int32 (batch, 2)
    image_encoder       pixels, as of image_classifier           embedding
    text_classifier     ids int32 (batch, length)                probabilities, probability, label
    sentence_encoder    ids int32 (batch, length)                embedding

`label` is int32, a position in `labels` of `preprocessing.json`. A classifier of several labels has
one output more, `present`, bool (batch, labels): which have a probability of a half or more. The
boxes of a detector are `(left, top, right, bottom)` as shares of the image: times its width and
height they are pixels.
LiteRT takes models that compute in float32; ONNX takes float16 and int8 too.
"""

import importlib.util
import pathlib
from collections.abc import Sequence
from typing import Any, Literal, TypeAlias

import numpy as np

from keras_transformers.core.types import StrPath, Tokenizer
from keras_transformers.export import litert, onnx
from keras_transformers.export.preprocessing_file import write_preprocessing
from keras_transformers.export.programs import Program

Format: TypeAlias = Literal["saved_model", "litert", "onnx"]
FORMATS: dict[str, Any] = {"saved_model": None, "litert": litert, "onnx": onnx}
PROGRAM = "saved_model.pb"  # without this file a folder is no SavedModel
LARGEST = (1 << 31) - (1 << 24)  # bytes of weights; neither kind of file can have 2 GiB
TOLERANCE, OF_FEWER_BITS = 1e-4, 5e-2  # a rounding more is a step of int8


def check_format(
    exporter: str,
    format: str,
    version: int | None = None,
    warmup: Sequence[Sequence[str | bytes]] = (),
) -> str:
    """The format; ValueError if there is no such, ImportError if its converter is missing.

    `version` and `warmup` are refused where they mean nothing.
    """
    if format not in FORMATS:
        choices = ", ".join(f'"{name}"' for name in FORMATS)
        raise ValueError(f"{exporter}: `format` must be one of {choices}. Received: {format!r}")
    if format != "saved_model" and (version is not None or warmup):
        raise ValueError(
            f"{exporter}: `version` and `warmup` are a server's, which takes `format`="
            f'"saved_model". Received: {format!r}'
        )
    for package in getattr(FORMATS[format], "CONVERTER", ()):
        if importlib.util.find_spec(package) is None:
            raise ImportError(
                f'{exporter}: `format`="{format}" needs the package {package}; install '
                f"keras_transformers[{format}]."
            )
    return format


def refuse_other_exports(exporter: str, path: pathlib.Path, format: str) -> None:
    """ValueError if a folder holds a SavedModel and another is to be written, or the reverse.

    `load` takes the SavedModel of a folder, so that it would answer with the older of the two.
    """
    others = [litert.FILE, onnx.FILE] if format == "saved_model" else [PROGRAM]
    for name in others:
        if (path / name).exists():
            raise ValueError(
                f"{exporter}: {path} holds {name}, an export of another format. Write "
                f'`format`="{format}" to a folder of its own.'
            )


def write(
    program: Program,
    format: str,
    path: StrPath,
    settings: dict[str, Any],
    tokenizer: Tokenizer | None = None,
) -> pathlib.Path:
    """Converts a program and writes it with what is needed to use it.

    Where the format's runtime is installed, the file is run before anything is written, and its
    answers are compared with the program's.

    Args:
        program: A `programs.Program`.
        format: "litert" or "onnx".
        path: Folder to write.
        settings: Dict, what stands in `preprocessing.json` of the raw input.
        tokenizer: Optional `text.WordPieceTokenizer` or `text.SentencePieceTokenizer`.

    Returns:
        The path, a `pathlib.Path`.

    Raises:
        ValueError: If the program cannot be converted, or the file does not give its answers.
    """
    module = FORMATS[format]
    if program.bytes() > LARGEST:
        raise _refusal(
            program,
            format,
            f"its weights take {program.bytes() / 1e9:.1f} GB, and such a file holds less than 2 "
            "GiB",
        )
    try:
        content, foreign = module.convert(program)
    except NotImplementedError as error:
        raise _refusal(program, format, str(error)) from error
    if not foreign:
        _check(program, format, content)
    path = pathlib.Path(path)
    path.mkdir(parents=True, exist_ok=True)
    (path / module.FILE).write_bytes(content)
    about = {"exporter": program.exporter, "format": format, "file": module.FILE}
    about |= {"inputs": program.inputs(), "outputs": program.outputs()}
    if format == "litert":
        about["flex_ops"] = foreign
    write_preprocessing(path, about | settings, tokenizer)
    return path


def _refusal(program: Program, format: str, reason: str) -> ValueError:
    model = type(program.model).__name__
    return ValueError(
        f"{program.exporter}: {model} '{program.model.name}' cannot be exported with `format`="
        f'"{format}": {reason}.'
    )


def _check(program: Program, format: str, content: bytes) -> None:
    """ValueError unless the format's runtime, where it is installed, gives the same answers."""
    module = FORMATS[format]
    if importlib.util.find_spec(module.RUNTIME) is None:
        return
    try:
        found = module.run(content, program.sample)
    except Exception as error:  # whatever a runtime refuses with
        reason = f"{module.RUNTIME} cannot run the converted file ({str(error).splitlines()[0]})"
        raise _refusal(program, format, reason) from error
    one, other = found[program.compared], program.expected()[program.compared]
    tolerance = TOLERANCE if program.precision() == "float32" else OF_FEWER_BITS
    if one.shape != other.shape or not np.allclose(one, other, rtol=tolerance, atol=tolerance):
        difference = "another shape"
        if one.shape == other.shape:
            difference = f"differences up to {np.abs(one - other).max():.1e}"
        reason = f"{module.RUNTIME} gives other `{program.compared}`, with {difference}"
        raise _refusal(program, format, reason)
