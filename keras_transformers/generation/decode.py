"""One batch through a search on a model's decoder: compiled, and whole or in parts."""

import dataclasses
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, cast

import keras
import numpy as np
from keras import ops

from keras_transformers.core.backend import at_most, compiled, require
from keras_transformers.core.types import Array, Index, Tensor
from keras_transformers.generation.boundaries import StopStrings
from keras_transformers.generation.inputs import check_sound
from keras_transformers.generation.request import (
    IMPOSSIBLE,
    Begun,
    Decodable,
    Decoded,
    Prefilled,
    Request,
    is_whole,
    padding_of,
    prompt_lengths,
    reads_sources,
    vocabularies_of,
)
from keras_transformers.generation.search import Capacity, Sampling, Search
from keras_transformers.generation.shortlists import Shortlisted, Within
from keras_transformers.generation.speculative import DRAWS, Speculative, Started

SECONDS = 0.1  # that a part of a sequence takes, where nobody says how many tokens it has


class _Generator(keras.Model):
    """Lets Keras compile `decode` for whichever backend is in use."""

    def __init__(
        self, model: Decodable, search: Search, end_id: int, prompt_length: int, stages: int | None,
        cache_dtype: str | None, prompt_scores: bool
    ) -> None:  # fmt: skip
        # Random numbers keep their dtype.
        super().__init__(name="generator", dtype=model.dtype_policy, autocast=False)
        self.model = model
        self.search = search
        self.draft = getattr(search, "draft", None)  # whose weights Keras must know
        self.fixed: dict[str, Any] = {"end_id": end_id, "prompt_length": prompt_length}
        self.fixed["padding_id"], self.fixed["prompt_scores"] = padding_of(model), prompt_scores
        self.stages = stages
        self.cache_dtype = cache_dtype
        self.compile(jit_compile=True)
        self.built = True

    def call(self, inputs: dict[str, Tensor]) -> Decoded[Tensor]:
        asked: dict[str, Any] = {k: v for k, v in inputs.items() if k in Request._fields}
        request = Request(**asked, **self.fixed)
        options: Any = (self.stages, self.cache_dtype)
        if isinstance(self.search, Shortlisted):
            options = (*options, Within(inputs["listed"], inputs["allowed"]))
        return decode(self.model, inputs["source"], self.search, request, *options)


class _InParts(keras.Layer):
    """A search on a model that begins, or goes on by some steps, as one compiled function.

    It is a layer, so that variables have the dtype in which the model computes, as in `_Generator`.
    What it takes keeps its dtype.
    """

    def __init__(
        self, model: Decodable, search: Search, end_id: int, prompt_length: int,
        cache_dtype: str | None
    ) -> None:  # fmt: skip
        super().__init__(name="in_parts", dtype=model.dtype_policy, autocast=False)
        self.model = model
        self.search = search
        self.fixed: dict[str, Any] = {"end_id": end_id, "prompt_length": prompt_length}
        self.fixed["padding_id"], self.fixed["prompt_scores"] = padding_of(model), False
        self.cache_dtype = cache_dtype
        self.built = True
        self.run = compiled(lambda inputs: self(inputs), self.variables)

    def call(self, inputs: dict[str, Any]) -> Any:
        if "begun" not in inputs:
            asked = {name: x for name, x in inputs.items() if name in Request._fields}
            request = Request(**asked, **self.fixed)
            return begin(self.model, inputs["source"], self.search, request, self.cache_dtype)
        begun = inputs["begun"]
        stop_table = inputs.get("stop_table")
        request = Request(**begun.batch.requested, stop_table=stop_table, **self.fixed)
        begun = self.search.go_on(self.model.decode_step, begun, request, inputs["number"])
        hypotheses = begun.batch.hypotheses
        found = self.search.finish(hypotheses, begun.position, request)
        return begun, found, ops.all(self.search.done(hypotheses))


class Part(NamedTuple):
    """Tokens of a sequence that were chosen together.

    Args:
        tokens: List of int.
        finished: Whether the search has ended the sequence itself.
    """

    tokens: list[int]
    finished: bool


def uniform_of(search: Search, batch: int, max_length: int) -> Array | None:
    """The random numbers of a search, `(batch, max_length, number)`; None where it takes none.

    Those of a seed follow from the row and the position alone, however many there are of either.
    """
    number, sampling = search.beams, search
    if isinstance(search, Speculative):
        number, sampling = DRAWS, search.search
    elif isinstance(search, Shortlisted):
        sampling = search.search
    if not isinstance(sampling, Sampling):
        return None
    shape = (batch, max_length, number)
    if sampling.seed is None:
        return np.random.default_rng().random(shape, "float32")
    numbers = np.empty(shape, "float32")
    for row in range(batch):
        np.random.default_rng((sampling.seed, row)).random(dtype="float32", out=numbers[row])
    return numbers


def _without_seed(search: Search) -> Search:
    """The search as it is compiled: the seed is data, not code."""
    if isinstance(search, Speculative | Shortlisted) and isinstance(search.search, Sampling):
        return dataclasses.replace(search, search=dataclasses.replace(search.search, seed=None))
    return dataclasses.replace(search, seed=None) if isinstance(search, Sampling) else search


def _build(model: Decodable, source: Array, forced: Array) -> None:
    if not model.built:
        first = forced[:1, :1]
        model({"source": source[:1], "target": first} if source.shape[1] else first)


def _inputs(
    model: Decodable,
    source: Array,
    forced: Array,
    cut_lengths: Array | None,
    search: Search,
    start_id: int | Array,
    uniform: Array | None,
    phrases: Array | None,
    stop_strings: StopStrings | None,
) -> dict[str, Any]:
    """What a compiled program takes, by the names of `Request`."""
    _build(model, source, forced)
    inputs: dict[str, Any] = {"source": source.astype("int32"), "forced": forced}
    inputs["start_id"] = np.broadcast_to(np.int32(start_id), len(source))
    sizes = np.sum(source != padding_of(model), axis=1)
    if cut_lengths is not None:
        inputs["cut_lengths"] = cut_lengths.astype("int32")
    limits = search.constraints.limits(sizes)
    for name, limit in zip(("min_lengths", "max_lengths"), limits, strict=True):
        if limit is not None:
            inputs[name] = ops.convert_to_numpy(limit).astype("int32")
    uniform = uniform_of(search, *forced.shape) if uniform is None else uniform
    if uniform is not None:
        inputs["uniform"] = uniform
    if phrases is not None:
        inputs["phrases"] = phrases
    if stop_strings is not None:
        inputs["stop_table"] = stop_strings.for_vocabulary(vocabularies_of(model)[1])
    return inputs


def _program(
    model: Decodable, inputs: dict[str, Any], make: Callable[..., Any], *named: Any
) -> Any:
    """`make(model, *named)`, once for each shape of the inputs.

    Kept on the model, out of Keras's tracking: it would make the model its own sub-layer.
    """
    programs = vars(model).setdefault("_generators", {})
    shapes = tuple((name, value.shape) for name, value in inputs.items())
    key = (make, shapes, *named)
    if key not in programs:
        programs[key] = make(model, *named)
    return programs[key]


def run_batch(
    model: Decodable,
    source: Array,
    forced: Array,
    cut_lengths: Array | None,
    search: Search,
    start_id: int | Array,
    end_id: int,
    uniform: Array | None = None,
    stages: int | None = 1,
    prompt_length: int = 0,
    cache_dtype: str | None = None,
    prompt_scores: bool = True,
    phrases: Array | None = None,
    stop_strings: StopStrings | None = None,
) -> Decoded[Array]:
    """Compiles where that is new, and decodes one batch."""
    asked = (cut_lengths, search, start_id, uniform, phrases, stop_strings)
    inputs = _inputs(model, source, forced, *asked)
    if isinstance(search, Speculative):
        _build(search.draft, source, forced)
    if isinstance(search, Shortlisted):
        search = search.starting_with(start_id)
        within = search.of_batch(model, source, forced, inputs["start_id"], end_id)
        inputs["listed"], inputs["allowed"] = within
    options = (end_id, prompt_length, stages, cache_dtype, prompt_scores)
    program = _program(model, inputs, _Generator, _without_seed(search), *options)
    result = program.predict_on_batch(inputs)
    return keras.tree.map_structure(ops.convert_to_numpy, result)


def run_in_parts(
    owner: str,
    model: Decodable,
    source: Array,
    forced: Array,
    cut_lengths: Array | None,
    search: Search,
    start_id: int | Array,
    end_id: int,
    uniform: Array | None = None,
    prompt_length: int = 0,
    cache_dtype: str | None = None,
    phrases: Array | None = None,
    stop_strings: StopStrings | None = None,
    tokens_at_a_time: int | None = None,
) -> Iterator[Part]:
    """Decodes one sequence, and yields the tokens behind its prompt in parts.

    What goes from one part to the next, the caches among it, stays on the device.

    Args:
        owner: For messages: who asks.
        model, source, forced, cut_lengths, search, start_id, end_id, uniform: As for `run_batch`,
            of one row; `Greedy()` or `Sampling(...)` of one sample.
        prompt_length, cache_dtype, phrases, stop_strings: Likewise.
        tokens_at_a_time: As for `stream`.
    """
    if not (tokens_at_a_time is None or is_whole(tokens_at_a_time, 1)):
        raise ValueError(
            f"{owner}: `tokens_at_a_time` must be None or an integer of at least 1. "
            f"Received: {tokens_at_a_time!r}"
        )
    asked = (cut_lengths, search, start_id, uniform, phrases, stop_strings)
    inputs = _inputs(model, source, forced, *asked)
    options = (end_id, prompt_length, cache_dtype)
    program = _program(model, inputs, _InParts, _without_seed(search), *options)
    request = Request(forced, start_id, end_id, padding_id=padding_of(model))
    first = int(ops.convert_to_numpy(prompt_lengths(request))[0])
    return _parts(owner, program, inputs, first, tokens_at_a_time)


def _parts(
    owner: str, program: _InParts, inputs: dict[str, Any], first: int, at_a_time: int | None
) -> Iterator[Part]:
    """Yields the tokens from the position `first` on."""
    limit = inputs["forced"].shape[1]
    begun: Begun = program.run(inputs)
    # Not a tensor with a row for each sequence, so it is no part of `begun`.
    stop_table = {name: x for name, x in inputs.items() if name == "stop_table"}
    index = int(begun.position)  # of a model without `prefill` it is not yet `first`
    number, done = at_a_time or 1, False
    while not done and index < limit:
        before, started = index, time.perf_counter()
        steps = ops.convert_to_tensor(max(first - before, 0) + number, "int32")
        begun, found, is_done = program.run({"begun": begun, "number": steps, **stop_table})
        found = keras.tree.map_structure(ops.convert_to_numpy, found)
        index, done = int(begun.position), bool(is_done)
        seconds = (time.perf_counter() - started) / (index - before)
        check_sound(owner, found)
        tokens = found["tokens"][0, max(before, first) : index].tolist()
        yield Part(tokens, bool(found["finished"][0]))
        if at_a_time is None:
            number = min(2 * number, max(1, int(SECONDS / seconds)))


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
