"""What models of ids take: their inputs, checked, and which tokens of them are real."""

from typing import Any, NoReturn

from keras import ops

from keras_transformers.annotations import ModelMixin, Tensor
from keras_transformers.assertions import at_most, require
from keras_transformers.layers import padding_mask, segment_mask, segment_positions
from keras_transformers.layers.errors import named, refuse
from keras_transformers.layers.ids import as_ids, check_ids, dtype_name

TABLES = {"ids": "token_embedding", "source": "source_embedding", "target": "target_embedding"}


class TakesIds(ModelMixin):
    """A model of ids, and of numbers of segments, token types and positions; before `keras.Model`.

    What it is called with is checked before Keras converts it; floats that hold integers become
    int32, and never half precision; `export` asks for int32; and the output has the mask of its
    tokens.

    Attributes:
        needed_inputs, optional_inputs: Keys of a dict of inputs. Where only "ids" is needed, ids
            can be given by themselves.
    """

    needed_inputs: tuple[str, ...] = ("ids",)
    optional_inputs: tuple[str, ...] = ()

    @property
    def input_dtype(self) -> str:
        return "int32"  # to which Keras converts floats

    def __call__(self, inputs: Any, *others: Any, **kwargs: Any) -> Any:
        if others:
            _refuse_inputs(self, f"{1 + len(others)} positional arguments")
        self._checked(inputs)
        return super().__call__(inputs, **kwargs)

    def _checked(self, inputs: Any) -> dict[str, Tensor]:
        """A dict of the inputs that there are, as they are."""
        keyed = isinstance(inputs, dict)
        if not keyed and (len(self.needed_inputs) > 1 or not hasattr(inputs, "dtype")):
            _refuse_inputs(self, _described(inputs))
        inputs = inputs if keyed else {self.needed_inputs[0]: inputs}
        inputs = {name: ids for name, ids in inputs.items() if ids is not None}
        needed, known = {*self.needed_inputs}, {*self.needed_inputs, *self.optional_inputs}
        if not needed <= inputs.keys() <= known:
            _refuse_inputs(self, sorted(map(str, inputs)))
        for name, ids in inputs.items():
            _check_rows(self, name, ids)
        return inputs

    def as_inputs(self, inputs: Any) -> dict[str, Tensor]:
        """A dict of the inputs that there are, as int32.

        Raises:
            ValueError: If there are others than the model takes, or they are no batch of ids.
        """
        inputs = self._checked(inputs)
        return {name: as_ids(self, name, ids, _most(self, name)) for name, ids in inputs.items()}

    def compute_mask(self, inputs: Any, previous_mask: Any = None) -> Tensor | None:
        """Which positions of the output stand for a real token, bool `(batch, length)`."""
        inputs = self._checked(inputs)
        of_target = "target" in inputs
        segments = inputs.get("target_segments" if of_target else "segments")
        if segments is not None:
            return ops.not_equal(segments, 0)
        if of_target:
            return _real_targets(inputs["target"], self.padding_id)
        return padding_mask(inputs["ids"], self.padding_id)


def _real_targets(ids: Tensor, padding_id: int) -> Tensor:
    """`padding_mask` of a decoder's input, whose START may be the id of padding, as Marian's is."""
    real = padding_mask(ids, padding_id)
    # Counted, for a symbolic input may have no length that a range could have.
    first = ops.equal(ops.cumsum(ops.ones_like(ids, dtype="int32"), axis=1), 1)
    return ops.logical_or(real, ops.logical_and(first, ops.any(real, axis=1, keepdims=True)))


def _refuse_inputs(model: Any, received: Any) -> NoReturn:
    """Raises ValueError: the inputs are not those that the model takes."""
    names, optional = (
        " and ".join(map(repr, each)) for each in (model.needed_inputs, model.optional_inputs)
    )
    expected = f"be ids, or have the key {names}"
    if len(model.needed_inputs) > 1:
        expected = f"be one dict and have the keys {names}"
    raise ValueError(
        f"{type(model).__name__} '{model.name}': `inputs` must {expected}"
        f"{f' and, if wanted, {optional}' if optional else ''}, each an array or a tensor of "
        f"integers (batch, length). Received: {received}"
    )


def _check_rows(model: Any, name: str, ids: Any) -> None:
    """Raises ValueError unless ids are a dense batch of rows of whole numbers."""
    fits = hasattr(ids, "dtype") and not _is_ragged(ids) and not _is_text(ids)
    if not fits or len(ids.shape) != 2:
        refuse(model, name, "an array or a tensor of integers (batch, length)", _described(ids))
    check_ids(model, name, ids, _most(model, name))


def _described(x: Any) -> str:
    """What was given as ids, in a few words, and what would make ids of it."""
    if isinstance(x, (list, tuple)):
        text = "; a tokenizer makes ids of strings" if x and isinstance(x[0], str) else ""
        return f"a {type(x).__name__} of {len(x)}{text}"
    if not hasattr(x, "dtype"):
        return f"a {type(x).__name__}"
    if _is_ragged(x):
        return "ragged ids; `ids.to_tensor(0)` pads them"
    hint = "; `ids[None]` is a batch of one text" if len(x.shape) == 1 else ""
    hint = "; a tokenizer makes ids of strings" if _is_text(x) else hint
    return f"{dtype_name(x)} of shape {tuple(x.shape)}{hint}"


def _is_ragged(x: Any) -> bool:
    return getattr(x, "ragged", False) or hasattr(x, "row_splits")


def _is_text(x: Any) -> bool:
    return dtype_name(x).startswith(("str", "bytes", "object"))


def _most(model: Any, name: str) -> int | None:
    """The largest id of an input's vocabulary, None where it has none."""
    return getattr(model, TABLES[name]).vocab_size - 1 if name in TABLES else None


def rows_of_table(model: Any, ids: Tensor) -> Tensor:
    """Ids that a table has rows for: padding outside the vocabulary becomes any row."""
    return ops.maximum(ids, 0) if model.padding_id < 0 else ids


def masks_and_positions(
    model: Any, inputs: dict[str, Tensor], max_length: int | None = None
) -> tuple[Tensor | None, Tensor | None, Tensor]:
    """Who sees whom, and where each token stands in its own text.

    Args:
        model: The one that is called, for the message.
        inputs: From `as_inputs`.
        max_length: Number of positions there are, or None.

    Returns:
        `(batch, length, length)` bool of packed rows, `(batch, length)` bool of others (one of them
        None), and positions int32 `(batch, length)`, counted from 0 wherever padding stands.

    Raises:
        ValueError: If a row that is not packed is longer than there are positions.
    """
    ids, segments = inputs["ids"], inputs.get("segments")
    if segments is not None:
        same = segment_mask(segments)
        return same, None, segment_positions(same)
    if max_length is not None:
        rule = f"{named(model, 'ids')} must be at most max_length={max_length} long."
        ids = require(ids, [at_most(ops.shape(ids)[1], max_length)], rule)
    real = padding_mask(ids, model.padding_id)
    return None, real, ops.maximum(ops.cumsum(ops.cast(real, "int32"), axis=1) - 1, 0)
