"""A search on a model's decoder, as one traceable function."""

from typing import Any, cast

from keras import ops

from keras_transformers.core.assertions import at_most, require
from keras_transformers.core.types import Index, Tensor
from keras_transformers.generation.request import (
    IMPOSSIBLE,
    Begun,
    Decodable,
    Decoded,
    Prefilled,
    Request,
    reads_sources,
)
from keras_transformers.generation.search import Capacity, Search
from keras_transformers.generation.shortlists import Shortlisted, Within
from keras_transformers.generation.speculative import Speculative, Started

FIRST_LENGTH = 16  # of a cache, behind the prompt; twice as many whenever they are full


def decode(
    model: Decodable, source: Tensor, search: Search, request: Request, stages: int | None = 1,
    cache_dtype: str | None = None, within: Within | None = None
) -> Decoded[Tensor]:  # fmt: skip
    """Runs a search on a model's decoder: the traceable heart of `generate`.

    Args:
        model: Anything with `start_decoding` and `decode_step` as `models.Transformer` has.
        source: Integer ids `(batch, source_length)`.
        search: `Greedy()`, `BeamSearch(...)`, `Sampling(...)`, `Speculative(...)` or
            `Shortlisted(...)`.
        request: A `Request`.
        stages: See `generate_all`; None where nothing is compiled: rows leave the batch when half
            of it is done.
        cache_dtype: See `generate`.
        within: The tokens that a `Shortlisted` search is within.

    Returns:
        The search's dict of `tokens`, `scores` and `lengths`.

    Example:
    >>> from keras import ops
    >>> from keras_transformers.generation import Greedy, Request, decode
    >>> from keras_transformers.models import Transformer
    >>> model = Transformer(vocab_size=31, hidden_dim=16, num_heads=2, mlp_dim=32, num_layers=1)
    >>> model.build({"source": (None, None), "target": (None, None)})
    >>> source, forced = ops.array([[5, 7, 2]]), ops.zeros((1, 4), "int32")
    >>> request = Request(forced, start_id=1, end_id=2)
    >>> tuple(decode(model, source, Greedy(), request)["tokens"].shape)
    (1, 4)
    """
    if isinstance(search, Speculative):
        search.check(model)
        checking, drafting = (
            _started(each, source, search, request, cache_dtype) for each in (model, search.draft)
        )
        return search.speculate(checking, drafting, request)
    if isinstance(search, Shortlisted):
        assert within is not None
        listed = search.listed(model, request, within)
        found = _searched(model, source, listed.search, listed.request, stages, cache_dtype, listed)
        return listed.named_by_model(found)
    return _searched(model, source, search, request, stages, cache_dtype)


def _searched(
    model: Decodable, source: Tensor, search: Search, request: Request, stages: int | None,
    cache_dtype: str | None, listed: Any = None
) -> Decoded[Tensor]:  # fmt: skip
    """A search with one model, within some tokens or among all."""
    request = _within_positions(model, request)
    options = {"coverage": True} if getattr(search, "coverage_penalty", 0) else {}
    if options and not reads_sources(model):
        raise ValueError(
            "BeamSearch: `coverage_penalty` must be 0 for a model without an encoder, which has no "
            f"source to cover. Received: {getattr(search, 'coverage_penalty', 0)}"
        )
    capacity = _capacity(model, search.beams, request) if stages is None else None
    length = ops.shape(request.forced)[1] if capacity is None else capacity.length
    ready = _ready(model, source, search.beams, request, length, cache_dtype, **options)
    state, shared, prefilled = ready
    step = model.decode_step
    if listed is not None:
        step, shared = listed.step, (shared, listed.within.allowed)
    return search(step, state, request, shared, stages, prefilled, capacity)


def begin(
    model: Decodable, source: Tensor, search: Search, request: Request, cache_dtype: str | None
) -> Begun:
    """Returns a search that has read its sources and prompts, see `Search.go_on`.

    Args:
        model, source, request, cache_dtype: As for `decode`.
        search: `Greedy()` or `Sampling(...)`.
    """
    request = _within_positions(model, request)
    length = ops.shape(request.forced)[1]
    ready = _ready(model, source, search.beams, request, length, cache_dtype)
    state, shared, prefilled = ready
    return search.begin(state, request, shared, prefilled)


def _ready(
    model: Decodable, source: Tensor, beams: int, request: Request, length: Index,
    cache_dtype: str | None, **options: Any
) -> tuple[Any, Any, Prefilled | None]:  # fmt: skip
    """State, what no step changes, and the prompts, of a model with room for `length` tokens."""
    state, shared = model.start_decoding(source, beams, length, **options)
    state = _held(model, state, beams, cache_dtype)
    prefilled, state = _prefill(model, state, beams, request)
    return state, shared, prefilled


def _started(
    model: Decodable, source: Tensor, search: Speculative, request: Request, cache_dtype: str | None
) -> Started:
    """A model with room for what is drafted behind the last token."""
    state, shared = model.start_decoding(source, 1, request.forced.shape[1])
    state = cast(Any, model).grow_caches(state, 1, search.num_tokens)
    state = _held(model, state, 1, cache_dtype)
    prefilled, state = _prefill(model, state, 1, request)
    return Started(model.decode_step, state, shared, prefilled)


def _within_positions(model: Decodable, request: Request) -> Request:
    """The request, provided that a model has as many positions as there may be tokens.

    A limit that is known while tracing is for `start_decoding` to check.
    """
    most, limit = getattr(model, "most_decodable", None), ops.shape(request.forced)[1]
    if most is None or isinstance(limit, int):
        return request
    rule = f"decode: `forced` must be at most as long as the positions of the model, {most}."
    return request._replace(forced=require(request.forced, [at_most(limit, most)], rule))


def _held(model: Decodable, state: Any, beams: int, cache_dtype: str | None) -> Any:
    """The state of `start_decoding` with its caches in `cache_dtype`."""
    if cache_dtype is None:
        return state
    return cast(Any, model).caches_in(state, beams, cache_dtype)


def _capacity(model: Decodable, beams: int, request: Request) -> Capacity | None:
    """Caches that grow with the sequences, which are seldom as long as they may be; or None.

    A step reads all of a cache. Nothing is compiled, so it may be of any size.
    """
    most = ops.shape(request.forced)[1]
    if isinstance(most, int) or not hasattr(model, "grow_caches"):
        return None
    length = ops.minimum(most, request.prompt_length + FIRST_LENGTH)
    return Capacity(length, lambda state, number: model.grow_caches(state, beams, number))


def _prefill(
    model: Decodable, state: Any, beams: int, request: Request
) -> tuple[Prefilled | None, Any]:
    """The prompts at once, up to where the first of them ends; the search forces the rest.

    None where there are no prompts, or the model has no `prefill`.
    What the model makes of the positions after that is written anew by the steps that come to them.
    """
    none = isinstance(request.prompt_length, int) and request.prompt_length == 0
    if none or not hasattr(model, "prefill"):
        return None, state
    size = request.prompt_length
    # A kernel may refuse a prompt of no position; one more is written anew by the first step.
    size = size if isinstance(size, int) else ops.maximum(size, 1)
    prompt = request.forced[:, :size]
    start = ops.reshape(ops.cast(request.start_id, prompt.dtype), (-1, 1))
    start = ops.broadcast_to(start, (ops.shape(prompt)[0], 1))
    ids = ops.concatenate([start, prompt], axis=1)[:, : ops.shape(prompt)[1]]
    following = prompt if request.prompt_scores else None
    scores, state = cast(Any, model).prefill(ids, following, state, beams)
    goes_on = prompt != request.padding_id
    length = ops.min(ops.sum(ops.cumprod(ops.cast(goes_on, "int32"), axis=1), axis=1))
    length = ops.cast(length, "int32")
    if scores is None:
        return Prefilled(length, ops.zeros_like(prompt[:, 0], "float32")), state
    counted = ops.arange(size) < length
    counted = ops.logical_and(counted, scores > IMPOSSIBLE)
    return Prefilled(length, ops.sum(ops.where(counted, scores, 0.0), axis=1)), state
