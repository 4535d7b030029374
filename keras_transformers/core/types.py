"""Types of public signatures: tensors, shapes, paths and configurations of every backend."""

import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol, TypeAlias, TypedDict

import keras
import numpy as np


class Tensor(Protocol):
    """A `keras.KerasTensor`, a NumPy array, or a tensor of TensorFlow, JAX or PyTorch.

    Structural, so that none of them is imported: it says what all five have, by which strings,
    numbers, lists and `None` are told from them.
    """

    @property
    def shape(self) -> Any: ...
    @property
    def dtype(self) -> Any: ...
    def __array__(self) -> Any: ...
    def __getitem__(self, key: Any, /) -> Any: ...
    def __bool__(self) -> bool: ...
    def __int__(self) -> int: ...
    def __abs__(self) -> Any: ...
    def __neg__(self) -> Any: ...
    def __add__(self, other: Any, /) -> Any: ...
    def __radd__(self, other: Any, /) -> Any: ...
    def __sub__(self, other: Any, /) -> Any: ...
    def __rsub__(self, other: Any, /) -> Any: ...
    def __mul__(self, other: Any, /) -> Any: ...
    def __rmul__(self, other: Any, /) -> Any: ...
    def __truediv__(self, other: Any, /) -> Any: ...
    def __rtruediv__(self, other: Any, /) -> Any: ...
    def __floordiv__(self, other: Any, /) -> Any: ...
    def __pow__(self, other: Any, /) -> Any: ...
    def __matmul__(self, other: Any, /) -> Any: ...
    def __and__(self, other: Any, /) -> Any: ...
    def __or__(self, other: Any, /) -> Any: ...
    def __eq__(self, other: Any, /) -> Any: ...
    def __ne__(self, other: Any, /) -> Any: ...
    def __lt__(self, other: Any, /) -> Any: ...
    def __le__(self, other: Any, /) -> Any: ...
    def __gt__(self, other: Any, /) -> Any: ...
    def __ge__(self, other: Any, /) -> Any: ...


Scalar: TypeAlias = Any  # a tensor without axes, which `float` takes
Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]  # NumPy's, of any shape and dtype
Shape: TypeAlias = tuple[Any, ...]  # an int for each axis; None where only the call knows it
Index: TypeAlias = int | Tensor  # a number, or a scalar tensor where a loop counts
LevelShapes: TypeAlias = Tensor | Sequence[Sequence[Index]]  # rows and columns of several maps
Ids: TypeAlias = Tensor | Sequence[Sequence[int]]  # integers (batch, length)
Strings: TypeAlias = Tensor | Sequence[str]  # of which one str is one, too
Values: TypeAlias = Tensor | list[Any] | tuple[Any, ...] | range  # what NumPy makes an array of
StrPath: TypeAlias = str | os.PathLike[str]
Cache: TypeAlias = dict[str, Tensor]  # keys and values of the tokens before
# Of a layer that gives its attention weights as well where `return_attention_scores` says so.
MaybeWeights: TypeAlias = Tensor | tuple[Tensor, Tensor | None]
Part: TypeAlias = keras.layers.Layer | dict[str, Any]  # a layer, or what `serialize` makes of one
Initializer: TypeAlias = str | dict[str, Any] | keras.initializers.Initializer
Activation: TypeAlias = str | Callable[[Any], Any]  # Keras's name of one, or a function of a tensor
Config: TypeAlias = dict[str, Any]  # what `get_config` returns, and JSON holds
ClassProblem: TypeAlias = Literal["single_label_classification", "multi_label_classification"]
ProblemType: TypeAlias = ClassProblem | Literal["regression"]


class BackPointers(NamedTuple):
    """Which beams the beams of a step continue, for models that keep something of each beam's past.

    Args:
        parents: Integers `(batch, beams)`: which beam of the step before each one continues. State
            that is small is taken from there.
        slots: Integers `(batch, beams, max_length)`: the beam that decoded each position of a
            beam's past. State that is large, such as a cache, stays where it was written and is
            found by these.

    Example:
    >>> from keras_transformers.generation import BackPointers
    >>> BackPointers._fields
    ('parents', 'slots')
    """

    parents: Tensor
    slots: Tensor


class LayerOptions(TypedDict, total=False):
    """What every layer and model takes by name, as Keras's do."""

    name: str | None
    dtype: Any  # a name such as "mixed_bfloat16", or a policy
    trainable: bool
    activity_regularizer: Any
    autocast: bool


class Tokenizer(Protocol):
    """Strings to ids and back, as the tokenizers of `keras_transformers.text` do it."""

    @property
    def vocab_size(self) -> int: ...
    @property
    def start_id(self) -> int | None: ...
    @property
    def end_id(self) -> int: ...
    def tokenize(self, strings: Any, start: bool = False, end: bool = False) -> Any: ...
    def detokenize(self, ids: Any) -> Any: ...


if TYPE_CHECKING:
    Mixin = keras.layers.Layer
else:  # what stands before Keras's class among the bases, and finds there what it asks for
    Mixin = object
