"""A request to decode, and batches of requests."""

import math
import numbers
from collections.abc import Callable
from typing import Any, Generic, NamedTuple, NotRequired, Protocol, TypedDict, TypeVar

import keras
import numpy as np
from keras import ops

from keras_transformers.core.backend import KERNELS
from keras_transformers.core.types import BackPointers, Index, Tensor

MASKED = -1e9  # score of what must not be chosen; finite, so that sums stay finite
IMPOSSIBLE = -(2.0**28)  # a forced token that the model excludes: above `MASKED`, and exact
BLOCK = 128
SMALLEST = 512  # tokens of a list that a search is within; the others are multiples of `BLOCK`
PART = 32  # of such a list, where its size is not known


T = TypeVar("T")


class Decodable(Protocol):
    """What searches ask of a model, as `models.Transformer` answers it."""

    @property
    def built(self) -> bool: ...
    @property
    def dtype_policy(self) -> Any: ...
    def __call__(self, /, *args: Any, **kwargs: Any) -> Any: ...
    def start_decoding(self, source: Any, /, *args: Any, **kwargs: Any) -> tuple[Any, Any]: ...
    def decode_step(
        self,
        ids: Tensor,
        index: Index,
        state: Any,
        shared: Any,
        back_pointers: BackPointers | None,
        /,
    ) -> tuple[Tensor, Any]: ...


class Decoded(TypedDict, Generic[T]):
    """What a search has found, as tensors or as NumPy arrays.

    Of `BeamSearch` with `n_best` over 1, and `Sampling` with `num_samples` over 1, each has an axis
    `n` behind the batch.
    """

    tokens: T  # integers (batch, [n,] max_length): padding after END
    scores: T  # float32 (batch, [n])
    lengths: T  # integers (batch, [n]): END included
    finished: T  # bool (batch, [n]): whether END was chosen; False where a limit cut or ended it
    passes: NotRequired[T]  # integers (batch,), of `Speculative`: of the large model


class DecodedBeams(Decoded[T]):
    """What `BeamSearch` has found."""

    log_probabilities: T  # float32 (batch, [n]): without penalties


class Demands(NamedTuple):
    """The phrases of each row of a batch, and what is known of them beforehand.

    The forms of all phrases lie side by side, as many for each.
    """

    ids: Tensor  # (batch, forms, length): -1 behind each
    lengths: Tensor  # (batch, forms): 0 where there is none
    agreeing: Tensor  # (batch, forms, length): how many tokens from each on are as the first
    begins: Tensor  # (batch, forms): whether its first token joins what stands before
    waits: Tensor  # (batch, forms): whether what follows may join its last token
    sizes: Tensor  # (batch, phrases): tokens of the longest form, and one that parts them
    needed: Tensor  # (batch, phrases): how often it must occur; 0 for one that stood there before


class Request(NamedTuple):
    """What is asked of a search, besides the model.

    Args:
        forced: Integers `(batch, max_length)`: tokens that must be taken; `padding_id` leaves the
            choice. Its static second size is the limit on tokens: a sequence that reaches it is
            cut.
        start_id: The token before the first, or one for each sequence, integers `(batch,)`.
        end_id: The token that ends a sequence.
        min_lengths: Optional integers `(batch,)`: fewest tokens, END included.
        max_lengths: Optional integers `(batch,)`: position at which END must stand at the latest.
        uniform: Random numbers in [0, 1) `(batch, max_length, beams)`, for `Sampling`.
        prompt_length: Number (a scalar tensor where nothing is compiled): beyond this position
            `forced` begins no sequence. A model that has `prefill` takes in so much at once.
        padding_id: What stands behind END, and in `forced` where nothing is. No search chooses it.
        cut_lengths: Optional integers `(batch,)`: limits on the tokens of each, where it is cut.
        prompt_scores: Whether scores count the tokens at the beginning that `forced` gives.
        phrases: Optional integers `(batch, phrases, length)`, padding behind each: sequences that
            must occur, each of a row as often as it is there, without overlap. Or `(batch, phrases,
            forms, length)`: each in one of its forms. From the first that does not fit into the
            limit on they are left out. What is banned stays banned.
        joints: Optional, three times bool `(vocab,)`: tokens that join what stands before them, as
            a digit does; those that may be joined, as a digit and a decimal point may; and those
            behind which what stands before may still be joined, as the point. A phrase has not
            occurred where its end or its beginning is joined.
        stop_table: Optional int16 `(states, vocab + 1)`, of `StopStrings`: strings that end a
            sequence.

    Example:
    >>> from keras import ops
    >>> from keras_transformers.generation import Request
    >>> Request(forced=ops.zeros((3, 7), "int32"), start_id=1, end_id=2).end_id
    2
    """

    forced: Tensor
    start_id: Index
    end_id: int
    min_lengths: Tensor | None = None
    max_lengths: Tensor | None = None
    uniform: Tensor | None = None
    prompt_length: Index = 0
    padding_id: int = 0
    cut_lengths: Tensor | None = None
    prompt_scores: bool = True
    phrases: Any = None
    joints: tuple[Any, Any, Any] | None = None
    stop_table: Tensor | None = None


class Prefilled(NamedTuple):
    """The tokens that a model took in before the first step, see `prefill`.

    Args:
        length: Scalar integer: number of tokens that every sequence has.
        scores: float32 `(batch,)`: their log-probability; zeros where it is not asked for.
    """

    length: Index
    scores: Tensor

    def sequences(self, request: Request) -> tuple[Tensor, Tensor, Tensor]:
        """Each sequence's last token, all its tokens and its score: `(batch, 1, ...)`."""
        before = ops.arange(ops.shape(request.forced)[1]) < self.length
        tokens = ops.where(before, request.forced, request.padding_id)
        last = ops.take(request.forced, ops.maximum(self.length - 1, 0), axis=1)
        ids = ops.where(self.length > 0, last, request.start_id)
        return ids[:, None], tokens[:, None], self.scores[:, None]


def is_whole(value: Any, least: int = 0) -> bool:
    """Tells whether a setting is an integer, NumPy's too, of at least a number."""
    whole = isinstance(value, numbers.Integral) and not isinstance(value, bool)
    return whole and int(value) >= least


def is_finite(value: Any) -> bool:
    """Tells whether a setting is a number, neither infinite nor NaN."""
    number = isinstance(value, numbers.Real) and not isinstance(value, bool)
    return number and math.isfinite(value)


def prompt_lengths(request: Request) -> Tensor:
    """Number of tokens that are forced at the beginning of each sequence, `(batch,)`."""
    given = ops.cast(request.forced != request.padding_id, "int32")
    return ops.sum(ops.cumprod(given, axis=1), axis=1)


def in_prompt(index: Index, request: Request) -> Tensor:
    """Tells which rows have a token of the prompt at `index`, bool `(batch,)`.

    They have if `forced` has a token there and at all positions before. `index` is one position for
    all rows, or `(batch,)`.
    """
    index = ops.reshape(index, (-1, 1)) if _one_each(index) else index
    after = ops.arange(ops.shape(request.forced)[1], dtype="int32") > index
    return ops.all(ops.logical_or(request.forced != request.padding_id, after), axis=1)


def limits_of(request: Request) -> Index:
    """Most tokens of all sequences, or of each, `(batch,)`, where limits differ."""
    most = ops.shape(request.forced)[1]
    for limit in (request.max_lengths, request.cut_lengths):
        most = most if limit is None else ops.minimum(most, limit)
    return most


def _one_each(index: Index) -> bool:
    """Whether `index` is `(batch,)`, a position for each row, and not one for all."""
    return len(getattr(index, "shape", ())) == 1


def over_beams(index: Index) -> Index:
    """A position, or `(batch,)`, one for each row, that broadcasts against `(batch, beams, n)`."""
    return ops.reshape(index, (-1, 1, 1)) if _one_each(index) else index


def take_at(x: Tensor, index: Index) -> Tensor:
    """What stands at position `index`, or at `(batch,)`, one for each row, of the last axis."""
    if not _one_each(index):
        return ops.take(x, index, axis=-1)
    index = ops.reshape(index, (-1, *[1] * (len(x.shape) - 1)))
    index = ops.broadcast_to(index, (*ops.shape(x)[:-1], 1))
    return ops.take_along_axis(x, index, axis=-1)[..., 0]


def write_at(tokens: Tensor, ids: Tensor, index: Index) -> Tensor:
    """Writes `ids` (batch, beams) at position `index`, or `(batch,)`, of `tokens` (..., length)."""
    here = ops.arange(ops.shape(tokens)[-1], dtype="int32") == over_beams(index)
    return ops.where(here, ids[..., None], tokens)


def take_beams(tensor: Tensor, beams: Tensor) -> Tensor:
    """Picks `beams` (batch, n) along axis 1 of `tensor` (batch, beams, ...)."""
    batch, width = ops.shape(tensor)[0], tensor.shape[1]
    rows = beams + width * ops.arange(batch, dtype="int32")[:, None]
    flat = ops.reshape(tensor, (-1, *ops.shape(tensor)[2:]))
    return ops.take(flat, rows, axis=0)


def number_of(x: Tensor) -> Index:
    """Size of the last axis: an int, or a tensor where a program is traced for any number."""
    known = x.shape[-1]
    return ops.shape(x)[-1] if known is None else known


def among(number: Index, ids: tuple[int, ...]) -> Tensor:
    """Which of the integers below `number` are among `ids`, bool `(number,)`."""
    if isinstance(number, int):
        return ops.convert_to_tensor(np.isin(np.arange(number), ids))
    wanted = ops.convert_to_tensor(ids, "int32")
    return ops.any(ops.arange(number, dtype="int32")[:, None] == wanted, axis=1)


def top_tokens(logits: Tensor, k: Index) -> tuple[Tensor, Tensor]:
    """The `k` largest of the last axis, sorted, and their positions: `ops.top_k`, sooner.

    XLA on a CPU sorts a whole row of the vocabulary to find a few of it. The `k` largest lie in the
    `k` blocks with the largest maxima, and maxima of blocks are quick to find. TensorFlow's own
    kernel sorts nothing.
    """
    vocab = logits.shape[-1]
    block = PART if vocab is None else BLOCK
    few = isinstance(k, int) and 2 * k * block <= (vocab or SMALLEST)
    if not few or KERNELS.get() is not None:
        values, ids = ops.top_k(logits, k)
        return values, ops.cast(ids, "int32")
    short = 0 if vocab is None else -vocab % block
    if short:
        widths = [(0, 0)] * (len(logits.shape) - 1) + [(0, short)]
        logits = ops.pad(logits, widths, constant_values=2 * MASKED)
    lead = ops.shape(logits)[:-1]
    blocks = ops.reshape(logits, (*lead, -1, block))
    _, best = ops.top_k(ops.max(blocks, axis=-1), k)
    best = ops.sort(ops.cast(best, "int32"), axis=-1)  # equal values: the first position, as top_k
    inside = ops.take_along_axis(blocks, best[..., None], axis=-2)
    values, positions = ops.top_k(ops.reshape(inside, (*lead, k * block)), k)
    positions = ops.cast(positions, "int32")
    number = ops.take_along_axis(best, positions // block, axis=-1)
    return values, block * number + positions % block


def any_of(ids: Tensor, vocab: Index) -> Tensor:
    """Bool `(batch, beams, vocab)`, True at `ids` `(batch, beams, number)`.

    Ids outside the vocabulary, such as a negative padding id, count nothing.
    """
    batch, beams, number = ops.shape(ids)[0], ids.shape[1], ops.shape(ids)[2]
    ids = ops.where(ops.logical_or(ids < 0, ids > vocab), vocab, ids)
    counters = vocab + 1
    rows = ops.arange(batch * beams, dtype="int32")[:, None]
    positions = ops.reshape(rows * counters + ops.reshape(ids, (-1, number)), (-1, 1))
    counted = ops.scatter_update(
        ops.zeros((batch * beams * counters,), "int32"), positions, ops.ones_like(positions[:, 0])
    )
    return ops.reshape(counted, (batch, beams, counters))[..., :vocab] > 0


def log_normalizer(logits: Tensor) -> tuple[Tensor, Tensor]:
    """`(max, log sum exp(x - max))` of the last axis, without it: `log p = (x - max) - log sum`.

    Kept apart because their sum would round away the log-probabilities of what is nearly certain.
    """
    most = ops.max(logits, axis=-1)
    return most, ops.log(ops.sum(ops.exp(logits - most[..., None]), axis=-1))


def lengths_of(tokens: Tensor, padding_id: int) -> Tensor:
    """Number of tokens of each sequence, END included."""
    return ops.sum(ops.cast(tokens != padding_id, "int32"), axis=-1)


def most_tokens(source_length: Any, minimum: Callable[[Any, Any], Any] = min) -> Any:
    """Most tokens that a sequence may have by default: `min(2 n + 10, n + 50)`.

    `n + 50`: Vaswani et al. 2017, section 6.1; END counts on both sides.
    """
    return minimum(2 * source_length + 10, source_length + 50)


def reads_sources(model: object) -> bool:
    """Tells whether a model has an encoder; those that do not say so have one."""
    return getattr(model, "reads_sources", True)


def vocabularies_of(model: object) -> tuple[int | None, int | None]:
    """Sizes of the vocabularies of sources and of targets; None where a model does not say."""
    table = getattr(model, "token_embedding", None)
    source = getattr(model, "source_embedding", None)
    target = getattr(model, "target_embedding", None)
    shared = getattr(table, "vocab_size", None)
    of_sources = getattr(source, "vocab_size", None) or shared
    of_targets = getattr(target, "vocab_size", None) or shared
    return of_sources or None, of_targets or None


def padding_of(model: object) -> int:
    """The id that a model takes for padding."""
    return getattr(model, "padding_id", 0)


PER_ROW = ("forced", "start_id", "min_lengths", "max_lengths", "cut_lengths", "uniform", "phrases")


class Batch(NamedTuple):
    """Tensors whose first axis is the batch, or a multiple of it.

    Args:
        hypotheses: What the search keeps.
        state: What the model keeps.
        shared: What no step changes.
        requested: Dict of the tensors of the `Request` by their names.
    """

    hypotheses: Any
    state: Any
    shared: Any
    requested: dict[str, Any]


class Begun(NamedTuple):
    """A search between two of its steps: tensors alone, which one program hands to the next.

    Args:
        position: That of the next token, a scalar.
        batch: A `Batch`.
    """

    position: Index
    batch: Batch


def requested(request: Request) -> dict[str, Any]:
    """The tensors of a request that have a row for each sequence."""
    parts = {name: part for name, part in request._asdict().items() if name in PER_ROW}
    return {
        name: part for name, part in parts.items() if part is not None and not isinstance(part, int)
    }


def take_rows(tree: Any, rows: Tensor, batch: Index) -> Any:
    """Takes rows of the batch from tensors whose first axis is the batch, or a multiple of it."""

    def take(tensor: Tensor) -> Tensor:
        rest = ops.shape(tensor)[1:]
        grouped = ops.reshape(tensor, (batch, -1, *rest))
        return ops.reshape(ops.take(grouped, rows, axis=0), (-1, *rest))

    return keras.tree.map_structure(take, tree)


def put_back(first: Any, last: Any, order: Tensor) -> Any:
    """The rows of both in the order that they had before `order` was taken."""
    back = ops.cast(ops.argsort(order), "int32")

    def join(a: Tensor, b: Tensor) -> Tensor:
        return ops.take(ops.concatenate([a, b], axis=0), back, axis=0)

    return keras.tree.map_structure(join, first, last)
