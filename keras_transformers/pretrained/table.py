"""Tables of names: which published tensor becomes which of our weights, and how it lies there.

A family has a list of `Row`s. `{i}` in the name of a weight of ours stands for any number, and in
the published name for the same; `{i:+1}` for one more. Every weight of a model has exactly one row.
"""

import collections
import dataclasses
import re

import numpy as np
from keras import ops


class Same:
    """A tensor as it is, or with an axis of 1 in front (`lead`)."""

    def __init__(self, lead=0):
        self.lead = lead

    def their_shape(self, shape):
        return (1,) * self.lead + tuple(shape)

    def ours(self, tensor, shape):
        return tensor.reshape(shape)

    def theirs(self, weight):
        return weight.reshape(self.their_shape(weight.shape))


class Matrix:
    """A kernel of ours, whose first `inputs` axes are what goes in, as a matrix.

    PyTorch's linear layers have what comes out first; with `straight` (GPT-2) what goes in.
    """

    def __init__(self, inputs=1, straight=False):
        self.inputs, self.straight = inputs, straight

    def _flat(self, shape):
        return int(np.prod(shape[: self.inputs])), int(np.prod(shape[self.inputs :]))

    def their_shape(self, shape):
        return self._flat(shape)[:: 1 if self.straight else -1]

    def ours(self, tensor, shape):
        return (tensor if self.straight else tensor.T).reshape(shape)

    def theirs(self, weight):
        flat = weight.reshape(self._flat(weight.shape))
        return flat if self.straight else flat.T


class Flat:
    """A bias of heads as one vector."""

    def their_shape(self, shape):
        return (int(np.prod(shape)),)

    def ours(self, tensor, shape):
        return tensor.reshape(shape)

    def theirs(self, weight):
        return weight.reshape(-1)


class Convolution:
    """`(height, width, in, out)` as PyTorch's `(out, in, height, width)`."""

    def their_shape(self, shape):
        return (shape[3], shape[2], shape[0], shape[1])

    def ours(self, tensor, shape):
        return tensor.transpose(2, 3, 1, 0)

    def theirs(self, weight):
        return weight.transpose(3, 2, 0, 1)


class Patches:
    """The kernel of a patch embedding, `(side * side * channels, width)`, as a convolution."""

    def __init__(self, side):
        self.side = side

    def their_shape(self, shape):
        return (shape[1], shape[0] // self.side**2, self.side, self.side)

    def ours(self, tensor, shape):
        return tensor.transpose(2, 3, 1, 0).reshape(shape)

    def theirs(self, weight):
        weight = weight.reshape(self.side, self.side, -1, weight.shape[1])
        return weight.transpose(3, 2, 0, 1)


class Third:
    """One of three tensors that lie side by side along the last axis of one."""

    def __init__(self, number, kind):
        self.number, self.kind = number, kind

    def their_shape(self, shape):
        *first, last = self.kind.their_shape(shape)
        return (*first, 3 * last)

    def ours(self, tensor, shape):
        return self.kind.ours(np.split(tensor, 3, axis=-1)[self.number], shape)

    def theirs(self, weight):
        return self.kind.theirs(weight)


SAME, FLAT, LINEAR, OUTPUT, CONVOLUTION = Same(), Flat(), Matrix(), Matrix(2), Convolution()


@dataclasses.dataclass(frozen=True)
class Row:
    """A weight of ours and its published names.

    Args:
        ours: Path inside the model.
        theirs: Published name.
        kind: How it lies there.
        also: Further names under which the same tensor may be there, tied or in other versions.
    """

    ours: str
    theirs: str
    kind: object = SAME
    also: tuple = ()


@dataclasses.dataclass(frozen=True)
class Computed:
    """A published tensor that we compute: `expected(shape)` is what it must be."""

    theirs: str
    expected: object


def linear(ours, theirs, bias=True):
    """The rows of a dense layer."""
    rows = [Row(f"{ours}/kernel", f"{theirs}.weight", LINEAR)]
    return [*rows, Row(f"{ours}/bias", f"{theirs}.bias", FLAT)] if bias else rows


def norm(ours, theirs):
    """The rows of a layer norm; BERT's oldest files call its weights otherwise."""
    return [
        Row(f"{ours}/gamma", f"{theirs}.weight", also=(f"{theirs}.gamma",)),
        Row(f"{ours}/beta", f"{theirs}.bias", also=(f"{theirs}.beta",)),
    ]


def attention(ours, query, key, value, output):
    """The rows of the four projections of an attention."""
    rows = []
    for name, theirs in (("query", query), ("key", key), ("value", value)):
        rows += linear(f"{ours}/{name}", theirs)
    rows += [
        Row(f"{ours}/attention_output/kernel", f"{output}.weight", OUTPUT),
        Row(f"{ours}/attention_output/bias", f"{output}.bias"),
    ]
    return rows


def bart_layers():
    """The rows of the layers of encoder and decoder, where they are called as in BART."""
    of_encoder = {"self_attn": "mixer"}
    of_decoder = {**of_encoder, "encoder_attn": "cross_attention"}
    rows = []
    for side, parts in (("encoder", of_encoder), ("decoder", of_decoder)):
        start = f"model.{side}.layers.{{i}}"
        rows += linear(f"{side}_{{i}}/feed_forward/hidden", f"{start}.fc1")
        rows += linear(f"{side}_{{i}}/feed_forward/output", f"{start}.fc2")
        rows += norm(f"{side}_{{i}}/feed_forward_norm", f"{start}.final_layer_norm")
        for theirs, ours in parts.items():
            names = (f"{start}.{theirs}.{name}_proj" for name in ("q", "k", "v", "out"))
            rows += attention(f"{side}_{{i}}/{ours}", *names)
            rows += norm(f"{side}_{{i}}/{ours}_norm", f"{start}.{theirs}_layer_norm")
    return rows


def also_called(rows, name, other):
    """The rows, whose tensors may have `other` in the place of `name` in theirs."""
    return [
        dataclasses.replace(row, also=(*row.also, row.theirs.replace(name, other)))
        for row in rows
    ]


def inside(rows, name, part):
    """The rows, in which a part of the model that its user named has that name for `name`."""
    return [
        dataclasses.replace(row, ours=re.sub(f"^{name}", f"{part.name}/", row.ours)) for row in rows
    ]


class _Number(int):
    """A number that a published name counts from elsewhere: `{i:+1}`."""

    def __format__(self, more):
        return str(int(self) + int(more or 0))


def paired(model, rows):
    """`(weight, row, published name, other names)` of every weight of a built model."""
    patterns = [
        (re.compile(re.sub(r"\\{(\w+)\\}", r"(?P<\1>\\d+)", re.escape(row.ours))), row)
        for row in rows
        if isinstance(row, Row)
    ]
    found = []
    for weight in model.weights:
        path = weight.path.removeprefix(f"{model.name}/")
        matches = [(m, row) for pattern, row in patterns if (m := pattern.fullmatch(path))]
        if len(matches) != 1:
            raise LookupError(f"{len(matches)} rows of the table are for {path}")
        match, row = matches[0]
        numbers = {key: _Number(value) for key, value in match.groupdict().items()}
        names = [name.format(**numbers) for name in (row.theirs, *row.also)]
        found.append((weight, row, names[0], names[1:]))
    return found


def assign(model, rows, tensors, prefix):
    """Gives every weight of a built model its published value.

    Args:
        model: The model.
        rows: The family's.
        tensors: `Tensors`.
        prefix: What the names of the base model begin with where there is a head; files of a base
            model alone lack it.

    Returns:
        Sorted names of the tensors that no weight needs.

    Raises:
        ValueError: If a tensor is missing or of another shape, or one that is computed here has
            other values.
    """
    bare = prefix and not any(name.startswith(prefix) for name in tensors.shapes)

    def named(names):
        names = [name.removeprefix(prefix) if bare else name for name in names]
        return [name for name in names if name in tensors.shapes], names[0]

    used = set()
    for weight, row, name, others in paired(model, rows):
        there, first = named([name, *others])
        if not there:
            raise ValueError(f"{tensors.folder}: the tensor {first} is missing.")
        expected = row.kind.their_shape(tuple(weight.shape))
        for one in there:
            if tensors.shapes[one] != expected:
                raise ValueError(
                    f"{tensors.folder}: the tensor {one} must have shape {expected}, as config.json"
                    f" has it. Received: {tensors.shapes[one]}"
                )
        tensor = tensors.read(there[0])
        for one in there[1:]:
            if not np.array_equal(tensors.read(one), tensor):
                raise ValueError(
                    f"{tensors.folder}: {there[0]} and {one} must be the same tensor, for one "
                    "table serves both."
                )
        weight.assign(row.kind.ours(tensor, tuple(weight.shape)))
        used |= set(there)
    for row in rows:
        if isinstance(row, Computed):
            there, _ = named([row.theirs])
            if there:
                _check_computed(tensors, there[0], row)
                used |= set(there)
    return sorted(set(tensors.shapes) - used)


def _check_computed(tensors, name, row):
    tensor = tensors.read(name)
    if np.max(np.abs(tensor - row.expected(tensor.shape)), initial=0) > 1e-4:
        raise ValueError(
            f"{tensors.folder}: the tensor {name} must have the values of the formula it is "
            "computed by, and has others."
        )


def gather(model, rows, bare_prefix=""):
    """The published tensors of a model: dict of name to NumPy array.

    `bare_prefix` is left out in front of names.
    """
    parts = collections.defaultdict(dict)
    for weight, row, name, _ in paired(model, rows):
        value = row.kind.theirs(np.asarray(ops.convert_to_numpy(weight), "float32"))
        parts[name.removeprefix(bare_prefix)][getattr(row.kind, "number", 0)] = value
    return {
        name: np.concatenate([found[i] for i in range(len(found))], axis=-1)
        for name, found in parts.items()
    }
