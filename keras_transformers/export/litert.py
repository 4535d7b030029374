"""Conversion to LiteRT (TensorFlow Lite), for telephones and small machines.

Keras's own `model.export(path, format="litert")` converts a model alone; here normalising and what
follows the logits is inside too, and outputs have names. Both go by way of a SavedModel to
TensorFlow's converter.
"""

import re
import tempfile

import tensorflow as tf

from keras_transformers.core.types import Array
from keras_transformers.export.programs import Program

FILE = "model.tflite"
CONVERTER = ()  # is part of TensorFlow
RUNTIME = "ai_edge_litert"


def convert(program: Program) -> tuple[bytes, list[str]]:
    """The bytes of a `.tflite` file, with one signature, and the ops that are not built in.

    Args:
        program: A `programs.Program`.

    Returns:
        bytes, and a sorted list of the names of TensorFlow ops that LiteRT's own kernels lack: with
        any, the file runs where TensorFlow's kernels are linked in (its "Flex delegate") only.

    Raises:
        NotImplementedError: If it cannot be converted; the message says why.
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
            raise NotImplementedError(_reason(str(error))) from error
    return content, _flex_ops(content)


def run(content: bytes, inputs: dict[str, Array]) -> dict[str, Array]:
    """The outputs of a file for some inputs, dicts of arrays."""
    from ai_edge_litert.interpreter import Interpreter

    return Interpreter(model_content=content).get_signature_runner()(**inputs)


def _reason(message: str) -> str:
    """The converter's pages in a sentence."""
    if ops := re.search(r"Custom ops: (.+)|'tf\.(\w+)' op is neither", message):
        return f"LiteRT has no operator for TensorFlow's {(ops[1] or ops[2]).strip()}"
    error = re.search(r"error: (?!loc\b)(.+)", message)
    return f"TensorFlow's converter fails ({(error[1] if error else message)[:200].strip()})"


def _flex_ops(content: bytes) -> list[str]:
    from tensorflow.lite.python import schema_py_generated as schema

    model = schema.Model.GetRootAs(content, 0)
    codes = [model.OperatorCodes(i).CustomCode() for i in range(model.OperatorCodesLength())]
    return sorted({code.decode().removeprefix("Flex") for code in codes if code})
