"""Conversion to ONNX, by tf2onnx.

Keras's own `model.export(path, format="onnx")` does so too, but a file with the exact GELU does not
load: TensorFlow computes it with `Erfc`, which ONNX lacks. Here it becomes `1 - Erf`.
"""

import collections
import logging
from typing import Any

import numpy as np

from keras_transformers.core.types import Array
from keras_transformers.export.programs import Program

FILE = "model.onnx"
CONVERTER = ("tf2onnx", "onnx")
RUNTIME = "onnxruntime"
# From 18 on ReduceMean takes its axes as an input, which tf2onnx 1.17 forgets to turn with the
# transposed map of a convolution.
OPSET = 17


def convert(program: Program) -> tuple[bytes, list[str]]:
    """The bytes of an `.onnx` file of opset 17, and an empty list.

    Args:
        program: A `programs.Program`.

    Raises:
        NotImplementedError: If it cannot be converted; the message says why.
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


def run(content: bytes, inputs: dict[str, Array]) -> dict[str, Array]:
    """The outputs of a file for some inputs, dicts of arrays."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(names, inputs), strict=True))


def _complement_of_erf(graph: Any, node: Any, name: str, args: Any) -> None:
    """tf2onnx's handler of `Erfc`."""
    from tf2onnx.utils import make_name, map_onnx_to_numpy_type

    kind = map_onnx_to_numpy_type(graph.get_dtype(node.output[0]))
    one = graph.make_const(make_name("one"), np.ones((), kind)).output[0]
    node.type = "Erf"
    complement = graph.insert_new_node_on_output("Sub", node.output[0], name=make_name("Erfc"))
    graph.replace_inputs(complement, [one, node.output[0]])


def _unknown_ops(graph: Any) -> Any:
    """Names of the operators, in loops too, that ONNX does not define."""
    import onnx

    found, graphs = set(), collections.deque([graph])
    while graphs:
        for node in graphs.popleft().node:
            if not onnx.defs.has(node.op_type, OPSET, node.domain):
                found.add(node.op_type)
            graphs.extend(attribute.g for attribute in node.attribute if attribute.HasField("g"))
    return found


def _name_free_sides(graph: Any, program: Program) -> None:
    """Names batch and length of the inputs, and the batch of the outputs, for readers."""
    shapes = {name: about["shape"] for name, about in program.inputs().items()}
    for value in (*graph.input, *graph.output):
        sides = value.type.tensor_type.shape.dim
        for side, name in zip(sides, shapes.get(value.name, ["batch"]), strict=False):
            if isinstance(name, str):
                side.dim_param = name
