"""Floating-point operations of a layer or model, counted in the program that XLA is given.

Counted: 2 for each multiplication and addition of a matrix product, `5 n log2 n` for a Fourier
transform of `n` numbers, 1 for each element that an arithmetic operation or a reduction handles;
the body of a loop as often as it runs. Copies, comparisons and choices count nothing.
"""

import math
import re

import keras

ARITHMETIC = (
    *("add", "subtract", "multiply", "divide", "maximum", "minimum", "power", "negate", "abs"),
    *("exponential", "exponential-minus-one", "log", "log-plus-one", "tanh", "logistic", "erf"),
    *("sqrt", "rsqrt", "cbrt", "sine", "cosine", "remainder"),
)
HEAD = re.compile(r"^(?:ENTRY )?%?([\w.\-]+) \(.*\) -> .*{$")
LINE = re.compile(r"^(?:ROOT )?%?([\w.\-]+) = (\(.*?\)|\S+) ([\w\-]+)\((.*)$")
SHAPE = re.compile(r"\b([a-z]+\d*)\[([\d,]*)\]")
OPERAND = re.compile(r"%([\w.\-]+)")


def floating_point_operations(layer, *inputs):
    """Counts the operations of one call for inference, on TensorFlow or JAX.

    Args:
        layer: A built Keras layer or model.
        inputs: NumPy arrays.
    """
    if keras.backend.backend() == "jax":
        import jax

        def run(trainable, others, inputs):
            return layer.stateless_call(trainable, others, *inputs)[0]

        kinds = (layer.trainable_variables, layer.non_trainable_variables)
        values = ([variable.value for variable in kind] for kind in kinds)
        program = jax.jit(run).lower(*values, inputs).compiler_ir("hlo")
        return count(program.as_hlo_module().to_string())
    import tensorflow as tf

    function = tf.function(lambda *inputs: layer(*inputs), jit_compile=True, autograph=False)
    tensors = [tf.constant(array) for array in inputs]
    return count(function.experimental_get_compiler_ir(*tensors)(stage="hlo"))


def count(text):
    """Counts the operations of the entry computation of a program in HLO text."""
    programs, entry = _parse(text)
    return _count(programs, entry)


def _parse(text):
    """Returns a dict of computation -> dict of instruction -> (shapes, operation, rest)."""
    programs, current, entry = {}, None, None
    for line in text.splitlines():
        head = HEAD.match(line)
        if head:
            current = programs.setdefault(head[1], {})
            entry = head[1] if line.startswith("ENTRY") else entry
        elif current is not None:
            found = LINE.match(line.strip())
            if found:
                name, shapes, operation, rest = found.groups()
                current[name] = (shapes, operation, rest)
    return programs, entry


def _dims(shape):
    return [int(side) for side in shape.split(",") if side]


def _size(shapes):
    """Returns the number of floating-point elements in a shape or tuple of shapes."""
    return sum(math.prod(_dims(dims)) for kind, dims in SHAPE.findall(shapes) if kind[0] in "fbc")


def _called(rest, role):
    return re.search(rf"{role}=%?([\w.\-]+)", rest)[1]


def _count(programs, name):
    total, program = 0, programs[name]
    for shapes, operation, rest in program.values():
        operands = [program[name][0] for name in OPERAND.findall(rest) if name in program]
        if operation == "dot":
            dims = _dims(SHAPE.search(operands[0])[2])
            summed = re.search(r"lhs_contracting_dims={([\d,]*)}", rest)[1]
            total += 2 * _size(shapes) * math.prod(dims[axis] for axis in _dims(summed))
        elif operation == "convolution":
            # Each output element sums over the kernel, but for the axis of the output features.
            kernel = _dims(SHAPE.search(operands[1])[2])
            labels = re.search(r"dim_labels=\w+_(\w+)->", rest)[1]
            total += 2 * _size(shapes) * math.prod(kernel) // kernel[labels.index("o")]
        elif operation == "fft":
            length = math.prod(_dims(re.search(r"fft_length={([\d,]*)}", rest)[1]))
            total += round(5 * _size(shapes) * math.log2(length))
        elif operation in ("reduce", "reduce-window"):
            total += _size(operands[0])
        elif operation in ARITHMETIC:
            total += _size(shapes)
        elif operation == "call":
            total += _count(programs, _called(rest, "to_apply"))
        elif operation == "while":
            body = _count(programs, _called(rest, "body"))
            total += body and body * _rounds(programs, _called(rest, "condition"))
        elif operation == "conditional":
            branches = [name for name in OPERAND.findall(rest) if name in programs]
            total += max(_count(programs, branch) for branch in branches)
    return total


def _rounds(programs, condition):
    """Returns the rounds of a loop, which counts from 0 up to a constant of its condition."""
    limits = [math.inf]
    for shapes, operation, rest in programs[condition].values():
        if operation == "constant" and shapes.startswith("s32[]"):
            limits.append(int(re.match(r"(-?\d+)\)", rest)[1]))
        elif operation == "call":
            limits.append(_rounds(programs, _called(rest, "to_apply")))
    return min(limits)
