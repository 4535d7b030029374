"""Formats beside SavedModels: a file that takes and gives tensors, and its preprocessing.

`format="litert"` writes `model.tflite` for LiteRT, `format="onnx"` writes `model.onnx`. Tokenizers
and image decoding convert to neither, so such a file takes tensors. Two files beside it say how
to make them: `preprocessing.json`, described below, and the tokenizer's own file. The batch and the
length of texts are free in both.

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

The file `preprocessing.json` says how tensors are made of raw images and texts.

Every file has `exporter`, `format`, `file`, `inputs` (name -> dtype and shape; "batch" and "length"
are free) and `outputs`. For LiteRT it has `flex_ops`, the TensorFlow ops that LiteRT's own kernels
lack (most often none).

Entries for images, in the order of the steps; everything is computed in float32:

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

Entries for texts:

    tokenizer       `kind` "wordpiece" or "sentencepiece", and `file`. Of WordPiece: `lower_case`
                    (and accents are stripped, before), `unknown` (piece for a word that has no
                    pieces), `continuation` (before pieces that go on with a word),
                    `max_word_length` (a longer word is unknown) and `special` (pieces that stand
                    for themselves in the text).
    start_id, end_id  The ids before and behind the ids of each text.
    padding_id      The id that fills shorter rows, at the end.
    max_length      Most ids of a row; a longer text keeps its first `max_length - 2`, between start
                    and end.
    labels          Names, by the number that `label` gives.
    pooling, normalized  Of sentence encoders, inside: "mean" over real ids or "token", the first;
                    whether vectors have length 1.
"""

import collections
import dataclasses
import importlib.util
import json
import logging
import pathlib
import re
import tempfile
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal, TypeAlias

import keras
import numpy as np
import tensorflow as tf

from keras_transformers.core.types import Array, StrPath, Tokenizer
from keras_transformers.generation.request import padding_of
from keras_transformers.vision.preprocessing import Preprocessing

Format: TypeAlias = Literal["saved_model", "litert", "onnx"]
PROGRAM = "saved_model.pb"  # without this file a folder is no SavedModel
LARGEST = (1 << 31) - (1 << 24)  # bytes of weights; neither kind of file can have 2 GiB
TOLERANCE = 1e-4
LOW_PRECISION_TOLERANCE = 5e-2  # one more rounding is a step of int8
REDUCED = ("int8", "bfloat16", "float16")  # types of fewer bits, the coarsest first
FOUR_BIT_MODES = {"int4", "gptq", "awq"}  # quantization modes of layers that store four bits


@dataclasses.dataclass(frozen=True)
class Program:
    """A function of tensors, without strings, with a sample to try its conversion.

    Args:
        exporter: Name of the exporter, for messages.
        model: The Keras model in it.
        function: A `tf.function` with an input signature that gives a dict of tensors.
        sample: Dict of arrays to call it with.
        compared: Name of the output, continuous in the weights, that a conversion is judged by.
    """

    exporter: str
    model: keras.Model
    function: Any
    sample: dict[str, Array]
    compared: str

    def expected(self) -> dict[str, Array]:
        """Returns the outputs for the sample, a dict of arrays."""
        return {name: value.numpy() for name, value in self.function(**self.sample).items()}

    def inputs(self) -> dict[str, dict[str, Any]]:
        """Returns a dict of the inputs' names to dtype and shape, with names for free sides."""
        return {
            spec.name: {"dtype": spec.dtype.name, "shape": _name_sides(spec.shape)}
            for spec in self.function.input_signature
        }

    def outputs(self) -> list[str]:
        """Returns the names of the outputs, sorted."""
        return sorted(self.function.get_concrete_function().structured_outputs)

    def bytes(self) -> int:
        """Returns the size of all weights."""
        return sum(
            int(np.prod(variable.shape)) * tf.as_dtype(variable.dtype).size
            for variable in self.model.variables
        )

    def precision(self) -> str:
        """Returns the coarsest type that the program computes with, or "int4" for such weights."""
        modes = {layer.quantization_mode for layer in self.model._flatten_layers()}
        if modes & FOUR_BIT_MODES:
            return "int4"
        operations = self.function.get_concrete_function().graph.get_operations()
        products = [op for op in operations if "MatMul" in op.type]
        types = {tensor.dtype.name for op in operations for tensor in op.outputs}
        types -= {"int8"}
        types |= {tensor.dtype.name for op in products for tensor in op.inputs}
        return next((name for name in REDUCED if name in types), "float32")


def _name_sides(shape: Iterable[int | None]) -> list[int | str]:
    """Names the free sides of a shape: `(None, None)` -> `["batch", "length"]`."""
    free = ("batch", "length")
    return [free[i] if side is None else side for i, side in enumerate(shape)]


def pixel_program(
    exporter: str,
    model: Any,
    preprocessing: Preprocessing,
    answer: Callable[[tf.Tensor], dict[str, tf.Tensor]],
    compared: str,
) -> Program:
    """Returns the program of a model of images.

    Args:
        exporter, model, compared: As `Program` takes them.
        preprocessing: The preprocessing, whose normalization becomes a part of the program.
        answer: Function of the outputs of the model that returns the outputs of the program.
    """
    shape = (*preprocessing.image_size, preprocessing.channels)
    signature = [tf.TensorSpec([None, *shape], tf.uint8, name="pixels")]

    @tf.function(input_signature=signature, autograph=False)
    def compute(pixels: tf.Tensor) -> dict[str, tf.Tensor]:
        return answer(model(preprocessing.normalize(pixels), training=False))

    return Program(exporter, model, compute, {"pixels": sample_pixels(shape)}, compared)


def id_program(
    exporter: str,
    model: Any,
    tokenizer: Tokenizer,
    longest: int,
    answer: Callable[[tf.Tensor, tf.Tensor], dict[str, tf.Tensor]],
    compared: str,
) -> Program:
    """Returns the program of a model of texts.

    Args:
        exporter, model, compared: As `Program` takes them.
        tokenizer: The tokenizer, whose ids the sample has.
        longest: Most ids of a text.
        answer: Function of ids and the outputs of the model that returns the outputs of the
            program.
    """
    signature = [tf.TensorSpec([None, None], tf.int32, name="ids")]

    @tf.function(input_signature=signature, autograph=False)
    def compute(ids: tf.Tensor) -> dict[str, tf.Tensor]:
        return answer(ids, model(ids, training=False))

    length = min(7, longest)
    ids = np.random.default_rng(0).integers(1, tokenizer.vocab_size, (2, length), "int32")
    ids[1, length - 1 :] = padding_of(model)
    return Program(exporter, model, compute, {"ids": ids}, compared)


def sample_pixels(shape: tuple[int, ...]) -> Array:
    """Returns two random images of a shape, uint8."""
    return np.random.default_rng(0).integers(0, 256, (2, *shape), "uint8")


def convert_to_litert(program: Program) -> tuple[bytes, list[str]]:
    """Returns the bytes of a `.tflite` file, with one signature, and the ops that it lacks.

    Args:
        program: The program.

    Returns:
        bytes, and a sorted list of the names of TensorFlow ops that LiteRT's own kernels lack. With
        any, the file runs only where TensorFlow's kernels are linked in (its "Flex delegate").

    Raises:
        NotImplementedError: If the program cannot be converted; the message says why.
    """
    precision = program.precision()
    if precision != "float32":
        raise NotImplementedError(
            f"LiteRT takes models that compute in float32, and this one computes in {precision}; "
            'export the float32 model or its copy of precision.in_precision(model, "float32")'
        )
    module = tf.Module()
    module.serve = program.function
    module.weights = [variable.value for variable in program.model.variables]
    with tempfile.TemporaryDirectory() as folder:
        tf.saved_model.save(module, folder, signatures=program.function)
        converter = tf.lite.TFLiteConverter.from_saved_model(folder)
        sets = (tf.lite.OpsSet.TFLITE_BUILTINS, tf.lite.OpsSet.SELECT_TF_OPS)
        converter.target_spec.supported_ops = sets  # the first wherever they suffice
        try:
            content = converter.convert()
        except Exception as error:  # of a type of the converter's own, which it does not publish
            raise NotImplementedError(_reason_of_litert(str(error))) from error
    return content, _flex_ops(content)


def run_litert(content: bytes, inputs: dict[str, Array]) -> dict[str, Array]:
    """Returns the outputs of a file for some inputs, dicts of arrays."""
    from ai_edge_litert.interpreter import Interpreter

    return Interpreter(model_content=content).get_signature_runner()(**inputs)


def _reason_of_litert(message: str) -> str:
    """Returns the reason in a message of the converter, which may have pages."""
    if ops := re.search(r"Custom ops: (.+)|'tf\.(\w+)' op is neither", message):
        return f"LiteRT has no operator for TensorFlow's {(ops[1] or ops[2]).strip()}"
    error = re.search(r"error: (?!loc\b)(.+)", message)
    return f"TensorFlow's converter fails ({(error[1] if error else message)[:200].strip()})"


def _flex_ops(content: bytes) -> list[str]:
    """Returns the names of the TensorFlow ops in a `.tflite` file."""
    from tensorflow.lite.python import schema_py_generated as schema

    model = schema.Model.GetRootAs(content, 0)
    codes = [model.OperatorCodes(i).CustomCode() for i in range(model.OperatorCodesLength())]
    return sorted({code.decode().removeprefix("Flex") for code in codes if code})


# From 18 on ReduceMean takes its axes as an input, which tf2onnx 1.17 forgets to turn with the
# transposed map of a convolution.
OPSET = 17


def convert_to_onnx(program: Program) -> tuple[bytes, list[str]]:
    """Returns the bytes of an `.onnx` file of opset 17, and an empty list.

    Args:
        program: The program.

    Raises:
        NotImplementedError: If the program cannot be converted; the message says why.
    """
    import tf2onnx

    if program.precision() == "bfloat16":
        raise NotImplementedError(
            "runtimes of ONNX lack most operators in bfloat16; export the float32 model or its "
            'copy of precision.in_precision(model, "float32")'
        )
    logger = logging.getLogger("tf2onnx")
    level = logger.level
    logger.setLevel(logging.CRITICAL)  # its errors come out as one sentence below
    try:
        model, _ = tf2onnx.convert.from_function(
            program.function,
            program.function.input_signature,
            opset=OPSET,
            custom_op_handlers={"Erfc": (_complement_of_erf, [])},
        )
    except Exception as error:  # of any type
        raise NotImplementedError(f"tf2onnx fails ({str(error)[:200].strip()})") from error
    finally:
        logger.setLevel(level)
    if missing := _unknown_ops(model.graph):
        raise NotImplementedError(
            f"ONNX has no operator for TensorFlow's {', '.join(sorted(missing))}"
        )
    _name_free_sides(model.graph, program)
    return model.SerializeToString(), []


def run_onnx(content: bytes, inputs: dict[str, Array]) -> dict[str, Array]:
    """Returns the outputs of a file for some inputs, dicts of arrays."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(names, inputs), strict=True))


def _complement_of_erf(graph: Any, node: Any, name: str, args: Any) -> None:
    """Replaces a node `Erfc` by operators that ONNX has: the handler for tf2onnx."""
    from tf2onnx.utils import make_name, map_onnx_to_numpy_type

    kind = map_onnx_to_numpy_type(graph.get_dtype(node.output[0]))
    constant = graph.make_const(make_name("one"), np.ones((), kind)).output[0]
    node.type = "Erf"
    complement = graph.insert_new_node_on_output("Sub", node.output[0], name=make_name("Erfc"))
    graph.replace_inputs(complement, [constant, node.output[0]])


def _unknown_ops(graph: Any) -> Any:
    """Returns the names of the operators, in loops too, that ONNX does not define."""
    import onnx

    unknown = set()
    graphs = collections.deque([graph])
    while graphs:
        for node in graphs.popleft().node:
            if not onnx.defs.has(node.op_type, OPSET, node.domain):
                unknown.add(node.op_type)
            graphs.extend(attribute.g for attribute in node.attribute if attribute.HasField("g"))
    return unknown


def _name_free_sides(graph: Any, program: Program) -> None:
    """Names batch and length of the inputs, and the batch of the outputs, for readers."""
    shapes = {name: about["shape"] for name, about in program.inputs().items()}
    for value in (*graph.input, *graph.output):
        sides = value.type.tensor_type.shape.dim
        for side, name in zip(sides, shapes.get(value.name, ["batch"]), strict=False):
            if isinstance(name, str):
                side.dim_param = name


@dataclasses.dataclass(frozen=True)
class Converter:
    """A format of files for another runtime than TensorFlow.

    Args:
        file: Name of the file.
        packages: Names of the packages that convert, beside TensorFlow.
        runtime: Name of the package that runs such files.
        convert: Function from a `Program` to the bytes of a file and a list of foreign operations.
        run: Function from the bytes of a file and a dict of inputs to a dict of outputs.
    """

    file: str
    packages: tuple[str, ...]
    runtime: str
    convert: Callable[[Program], tuple[bytes, list[str]]]
    run: Callable[[bytes, dict[str, Array]], dict[str, Array]]


CONVERTERS = {
    "litert": Converter("model.tflite", (), "ai_edge_litert", convert_to_litert, run_litert),
    "onnx": Converter("model.onnx", ("tf2onnx", "onnx"), "onnxruntime", convert_to_onnx, run_onnx),
}


def check_format(
    exporter: str,
    format: str,
    version: int | None = None,
    warmup: Sequence[Sequence[str | bytes]] = (),
) -> str:
    """Returns the format.

    Raises:
        ValueError: If there is no such format, or it takes no `version` or `warmup`.
        ImportError: If its converter is not installed.
    """
    if format not in ("saved_model", *CONVERTERS):
        choices = ", ".join(f'"{name}"' for name in ("saved_model", *CONVERTERS))
        raise ValueError(f"{exporter}: `format` must be one of {choices}. Received: {format!r}")
    if format != "saved_model" and (version is not None or warmup):
        raise ValueError(
            f"{exporter}: `version` and `warmup` are a server's, which takes `format`="
            f'"saved_model". Received: {format!r}'
        )
    packages = () if format == "saved_model" else CONVERTERS[format].packages
    for package in packages:
        if importlib.util.find_spec(package) is None:
            raise ImportError(
                f'{exporter}: `format`="{format}" needs the package {package}; install '
                f"keras_transformers[{format}]."
            )
    return format


def refuse_other_exports(exporter: str, path: pathlib.Path, format: str) -> None:
    """Raises a ValueError if a folder holds an export of another format.

    `load` takes the SavedModel of a folder, and would answer with the older of the two.
    """
    names = [PROGRAM]
    if format == "saved_model":
        names = [converter.file for converter in CONVERTERS.values()]
    for name in names:
        if (path / name).exists():
            raise ValueError(
                f"{exporter}: {path} holds {name}, an export of another format. Write "
                f'`format`="{format}" to a folder of its own.'
            )


def write_converted(
    program: Program,
    format: str,
    path: StrPath,
    settings: dict[str, Any],
    tokenizer: Tokenizer | None = None,
) -> pathlib.Path:
    """Converts a program and writes it with its preprocessing.

    If the format's runtime is installed, it runs the file before anything is written, and its
    answers are compared with those of the program.

    Args:
        program: The program.
        format: "litert" or "onnx".
        path: Folder to write.
        settings: Entries of `preprocessing.json` for the raw input, a dict.
        tokenizer: Optional `text.WordPieceTokenizer` or `text.SentencePieceTokenizer`.

    Returns:
        The path, a `pathlib.Path`.

    Raises:
        ValueError: If the program cannot be converted, or the file does not give its answers.
    """
    converter = CONVERTERS[format]
    if program.bytes() > LARGEST:
        size = f"{program.bytes() / 1e9:.1f} GB"
        reason = f"its weights take {size}, and such a file holds less than 2 GiB"
        raise _refusal(program, format, reason)
    try:
        content, foreign = converter.convert(program)
    except NotImplementedError as error:
        raise _refusal(program, format, str(error)) from error
    if not foreign:
        _check_answers(program, format, content)
    path = pathlib.Path(path)
    path.mkdir(parents=True, exist_ok=True)
    (path / converter.file).write_bytes(content)
    about: dict[str, Any] = {"exporter": program.exporter, "format": format, "file": converter.file}
    about |= {"inputs": program.inputs(), "outputs": program.outputs()}
    if format == "litert":
        about["flex_ops"] = foreign
    write_preprocessing(path, about | settings, tokenizer)
    return path


def _refusal(program: Program, format: str, reason: str) -> ValueError:
    """Returns the error that says why a program cannot be exported."""
    model = type(program.model).__name__
    return ValueError(
        f"{program.exporter}: {model} '{program.model.name}' cannot be exported with `format`="
        f'"{format}": {reason}.'
    )


def _check_answers(program: Program, format: str, content: bytes) -> None:
    """Raises a ValueError if the format's runtime is installed and gives other answers."""
    converter = CONVERTERS[format]
    if importlib.util.find_spec(converter.runtime) is None:
        return
    try:
        outputs = converter.run(content, program.sample)
    except Exception as error:  # whatever a runtime refuses with
        reason = f"{converter.runtime} cannot run the converted file ({str(error).splitlines()[0]})"
        raise _refusal(program, format, reason) from error
    actual = outputs[program.compared]
    expected = program.expected()[program.compared]
    tolerance = TOLERANCE if program.precision() == "float32" else LOW_PRECISION_TOLERANCE
    has_shape = actual.shape == expected.shape
    if not has_shape or not np.allclose(actual, expected, rtol=tolerance, atol=tolerance):
        difference = "another shape"
        if has_shape:
            difference = f"differences up to {np.abs(actual - expected).max():.1e}"
        reason = f"{converter.runtime} gives other `{program.compared}`, with {difference}"
        raise _refusal(program, format, reason)


PREPROCESSING_FILE = "preprocessing.json"


def write_preprocessing(
    folder: pathlib.Path, settings: dict[str, Any], tokenizer: Any = None
) -> None:
    """Writes `preprocessing.json`, and the file of a tokenizer."""
    folder = pathlib.Path(folder)
    if tokenizer is not None:
        tokenizer.save(folder / settings["tokenizer"]["file"])
    text = json.dumps(settings, indent=2, ensure_ascii=False)
    (folder / PREPROCESSING_FILE).write_text(text + "\n", encoding="utf-8")


def image_settings(
    preprocessing: Preprocessing, labels: Sequence[str] | None = None
) -> dict[str, Any]:
    """Returns the entries of `preprocessing.json` for images.

    Args:
        preprocessing: The preprocessing.
        labels: Names of the classes; None for an encoder.
    """
    resized = preprocessing.resized
    named = {} if labels is None else {"labels": list(labels)}
    if preprocessing.fit:
        return _pixel_settings(preprocessing, "fit") | {"resized": resized, "filling": 0, **named}
    if isinstance(resized, int):
        resize = "shorter_side"
    elif resized is None and preprocessing.crop:
        resize = "cover"
    else:
        resize = "squeeze"
        resized = list(resized or preprocessing.image_size)
    return _pixel_settings(preprocessing, resize) | {"resized": resized, **named}


def text_settings(model: Any, tokenizer: Any, longest: int, **more: Any) -> dict[str, Any]:
    """Returns the entries of `preprocessing.json` for texts, and `more`.

    Raises:
        ValueError: If the tokenizer is neither WordPiece nor SentencePiece, or has added tokens.
    """
    return {
        "tokenizer": _tokenizer_settings(tokenizer),
        "start_id": int(tokenizer.start_id),
        "end_id": int(tokenizer.end_id),
        "padding_id": padding_of(model),
        "max_length": int(longest),
        **more,
    }


def _pixel_settings(preprocessing: Preprocessing, resize: str) -> dict[str, Any]:
    """Returns the entries that all images have."""
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


def _tokenizer_settings(tokenizer: Any) -> dict[str, Any]:
    """Returns the entry `tokenizer`."""
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
