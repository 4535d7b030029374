"""One batch through a search, whole or in parts, compiled where that is new."""

import dataclasses
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import keras
import numpy as np
from keras import ops

from keras_transformers.core.backend import compiled
from keras_transformers.core.types import Array, Tensor
from keras_transformers.generation.boundaries import StopStrings
from keras_transformers.generation.decode import begin, decode
from keras_transformers.generation.inputs import check_sound
from keras_transformers.generation.request import (
    Begun,
    Decodable,
    Decoded,
    Request,
    is_whole,
    padding_of,
    prompt_lengths,
    vocabularies_of,
)
from keras_transformers.generation.search import Search
from keras_transformers.generation.shortlists import Shortlisted, Within
from keras_transformers.generation.speculative import DRAWS, Speculative
from keras_transformers.generation.stepwise import Sampling

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
