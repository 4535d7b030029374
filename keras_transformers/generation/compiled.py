"""One batch through a search, compiled where that is new."""

import dataclasses
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_transformers.annotations import Array, Tensor
from keras_transformers.generation.decode import decode
from keras_transformers.generation.drafts import DRAWS
from keras_transformers.generation.request import (
    Decodable,
    Decoded,
    Request,
    padding_of,
    vocabularies_of,
)
from keras_transformers.generation.search import Search
from keras_transformers.generation.shortlisted import Shortlisted
from keras_transformers.generation.shortlists import Within
from keras_transformers.generation.speculative import Speculative
from keras_transformers.generation.stepwise import Sampling
from keras_transformers.generation.stop_strings import StopStrings


class _Generator(keras.Model):
    """Lets Keras compile `decode` for whichever backend is in use."""

    def __init__(
        self, model: Decodable, search: Search, end_id: int, prompt_length: int, stages: int | None,
        cache_dtype: str | None, prompt_scores: bool
    ) -> None:  # fmt: skip
        super().__init__(name="generator", dtype=model.dtype_policy)
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
    _build(model, source, forced)
    if isinstance(search, Speculative):
        _build(search.draft, source, forced)
    inputs: dict[str, Any] = {"source": source.astype("int32"), "forced": forced}
    inputs["start_id"] = np.broadcast_to(np.int32(start_id), len(source))
    sizes = np.sum(source != padding_of(model), axis=1)
    if cut_lengths is not None:
        inputs["cut_lengths"] = cut_lengths.astype("int32")
    limits = search.constraints.limits(sizes)
    for name, limit in zip(("min_lengths", "max_lengths"), limits, strict=True):
        if limit is not None:
            inputs[name] = ops.convert_to_numpy(limit).astype("int32")
    if isinstance(search, Shortlisted):
        search = search.starting_with(start_id)
        within = search.of_batch(model, source, forced, inputs["start_id"], end_id)
        inputs["listed"], inputs["allowed"] = within
    uniform = uniform_of(search, *forced.shape) if uniform is None else uniform
    if uniform is not None:
        inputs["uniform"] = uniform
    if phrases is not None:
        inputs["phrases"] = phrases
    if stop_strings is not None:
        inputs["stop_table"] = stop_strings.for_vocabulary(vocabularies_of(model)[1])
    search = _without_seed(search)
    # Kept on the model, out of Keras's tracking: it would make the model its own sub-layer.
    compiled = vars(model).setdefault("_generators", {})
    shapes = tuple((name, value.shape) for name, value in inputs.items())
    options = (end_id, prompt_length, stages, cache_dtype, prompt_scores)
    key = (search, shapes, *options)
    if key not in compiled:
        compiled[key] = _Generator(model, search, *options)
    result = compiled[key].predict_on_batch(inputs)
    return keras.tree.map_structure(ops.convert_to_numpy, result)
