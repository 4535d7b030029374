"""From a model and ids to decoded ids: one batch, or as many sequences as there are."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple, cast, overload

import keras
import numpy as np

from keras_transformers.annotations import Array, Ids, Values
from keras_transformers.generation.beam import BeamSearch
from keras_transformers.generation.compiled import run_batch, run_in_parts, uniform_of
from keras_transformers.generation.inputs import (
    CacheType,
    buckets,
    check_cache_dtype,
    check_counts,
    check_end,
    check_sound,
    check_source,
    check_streamable,
    checked_ids,
    checked_phrases,
    forced_ids,
    nothing_found,
    prompt_positions,
    split_first,
    start_in,
    with_first,
    within_positions,
)
from keras_transformers.generation.request import (
    Decodable,
    Decoded,
    DecodedBeams,
    most_tokens,
    padding_of,
    vocabularies_of,
)
from keras_transformers.generation.search import Search
from keras_transformers.generation.stepwise import Greedy


@overload
def generate(
    model: Decodable,
    source: Ids | None = None,
    prompt: Ids | None = None,
    *,
    search: BeamSearch,
    max_length: int | None = None,
    start_id: int | None = 1,
    end_id: int = 2,
    cache_dtype: CacheType = None,
    prompt_scores: bool = False,
    phrases: Values | None = None,
) -> DecodedBeams[Array]: ...
@overload
def generate(
    model: Decodable,
    source: Ids | None = None,
    prompt: Ids | None = None,
    search: Search | None = None,
    max_length: int | None = None,
    start_id: int | None = 1,
    end_id: int = 2,
    cache_dtype: CacheType = None,
    prompt_scores: bool = False,
    phrases: Values | None = None,
) -> Decoded[Array]: ...
def generate(
    model: Decodable,
    source: Ids | None = None,
    prompt: Ids | None = None,
    search: Search | None = None,
    max_length: int | None = None,
    start_id: int | None = 1,
    end_id: int = 2,
    cache_dtype: CacheType = None,
    prompt_scores: bool = False,
    phrases: Values | None = None,
) -> Decoded[Array]:
    """Decodes a batch with XLA; compiled once for each shape of `source` and each search.

    Args:
        model: Anything with `start_decoding` and `decode_step` as `models.Transformer` has. Its
            `padding_id` (0 where it has none) is what stands for padding in all that follows.
        source: Integer ids `(batch, source_length)`; padding before a source is moved behind it.
            Pad to a few fixed lengths: each new shape compiles anew (`generate_all` does all this).
            None for a decoder-only model, whose ids are a `prompt`.
        prompt: Optional integer ids `(batch, prompt_length)`: how every output must begin, from
            the first position on; padding behind it leaves the choice to the search. After padding
            before it the output begins with the prompt all the same. END in a prompt ends nothing.
        search: `Greedy()` (default), `BeamSearch(...)`, `Sampling(...)` or `Speculative(...)`.
        max_length: Limit on tokens, END included, where sequences are cut; by default
            `2 * source_length + 10`, or the model's positions if these are fewer.
        start_id: The token before the first, unless the search's `Boundaries` say otherwise. None
            where texts have none, as with GPT-2: then prompts must have a token at least.
        end_id: The token that ends a sequence, likewise.
        cache_dtype: In what keys and values of the tokens before are held: "float16", "bfloat16",
            or "int8" with a scale for each of a head; by default in the model's compute dtype.
        prompt_scores: Whether scores count the tokens of `prompt`. A language model then computes
            the logits of every one of them.
        phrases: Optional integer ids `(batch, phrases, length)`, padding behind each, that must
            occur in each output, see `Request`.

    Returns:
        Dict of NumPy arrays: `tokens` int32 `(batch, [n_best,] max_length)`, without START, with
        END, then padding; `scores` float32 `(batch, [n_best])`; `lengths` int32, END included;
        `finished` bool, whether the search chose END, False for a sequence that is cut at its limit
        or must end there; from `BeamSearch` also `log_probabilities`, the scores without penalties;
        from `Speculative` also `passes`, int32 `(batch,)`, the number of steps of the model.

    Raises:
        ValueError: If `source` is not a batch of integer ids, `prompt` does not fit it or is empty
            where there is no START, an id is none of the model's vocabulary, `end_id` is padding, a
            phrase has an END, or `max_length` is no positive integer, or exceeds the model's
            positions; if a decoder-only model lacks `prompt` or `max_length`, or gets a `source`;
            or if the model's logits are NaN.

    Example:
    >>> import numpy as np
    >>> from keras_transformers.generation import BeamSearch, generate
    >>> from keras_transformers.models import Transformer
    >>> model = Transformer(vocab_size=31, hidden_dim=16, num_heads=2, mlp_dim=32, num_layers=1)
    >>> result = generate(model, np.array([[5, 7, 2]]), search=BeamSearch(2), max_length=6)
    >>> result["tokens"].shape
    (1, 6)
    """
    search = search or Greedy()
    named = (model, source, prompt, search, max_length, start_id, end_id, phrases)
    prepared = _prepared("generate", *named, cache_dtype=cache_dtype)
    source, forced, start, first, options = prepared
    options["prompt_scores"] = prompt_scores
    found = run_batch(model, source, forced, None, search, start, end_id, **options)
    check_sound("generate", found)
    return found if first is None else with_first(found, first, padding_of(model))


def stream(
    model: Decodable,
    source: Ids | None = None,
    prompt: Ids | None = None,
    search: Search | None = None,
    max_length: int | None = None,
    start_id: int | None = 1,
    end_id: int = 2,
    cache_dtype: CacheType = None,
    phrases: Values | None = None,
    tokens_at_a_time: int | None = None,
) -> Iterator[int]:
    """Decodes one sequence, and yields its tokens while they are chosen.

    They are the tokens of `generate` with the same arguments, behind the prompt. XLA compiles once
    for each shape and each search, whatever `tokens_at_a_time`. The iterator may be left at any
    time, and several may take turns.

    Args:
        model, max_length, start_id, end_id, cache_dtype, phrases: See `generate`.
        source, prompt: As `generate` takes them, each of one sequence: `(1, length)`.
        search: `Greedy()` (default) or `Sampling(...)` of one sample. Others do not know a token
            for good when they have chosen it.
        tokens_at_a_time: Most tokens that are chosen between two looks at them. By default the
            first comes alone, and then as many as take about a tenth of a second.

    Returns:
        Iterator of int, END the last where the search comes to it.

    Raises:
        ValueError: As `generate`; also if there is more than one sequence, the search is another,
            or `tokens_at_a_time` is no positive integer; and from the iterator, if the model's
            logits are NaN.

    Example:
    >>> import numpy as np
    >>> from keras_transformers.generation import generate, stream
    >>> from keras_transformers.models import LanguageModel
    >>> model = LanguageModel.from_variant("tiny", 31, num_layers=1)
    >>> prompt = np.array([[5, 7]])
    >>> tokens = list(stream(model, prompt=prompt, max_length=6))
    >>> whole = generate(model, prompt=prompt, max_length=6)
    >>> [5, 7, *tokens] == whole["tokens"][0, : whole["lengths"][0]].tolist()
    True
    """
    search = search or Greedy()
    check_streamable("stream", search)
    named = (model, source, prompt, search, max_length, start_id, end_id, phrases)
    prepared = _prepared("stream", *named, cache_dtype=cache_dtype)
    source, forced, start, _, options = prepared
    if len(forced) != 1:
        raise ValueError(
            "stream: `source` and `prompt` must have one sequence, shape (1, length); `generate` "
            f"takes more. Received: {len(forced)}"
        )
    options["tokens_at_a_time"] = tokens_at_a_time
    parts = run_in_parts("stream", model, source, forced, None, search, start, end_id, **options)
    return (token for part in parts for token in part.tokens)


class _Prepared(NamedTuple):
    """Arguments of `generate` after all checks."""

    source: Array
    forced: Array
    start: int | Array
    first: Array | None  # tokens that stand where START would
    options: dict[str, Any]  # of `run_batch`


def _prepared(
    owner: str,
    model: Decodable,
    source: Ids | None,
    prompt: Ids | None,
    search: Search,
    max_length: int | None,
    start_id: int | None,
    end_id: int,
    phrases: Values | None,
    cache_dtype: CacheType,
) -> _Prepared:
    """Checks what `generate` and `stream` take, see there."""
    padding, (of_sources, of_targets) = padding_of(model), vocabularies_of(model)
    check_cache_dtype(owner, model, cache_dtype)
    start_id = start_in(owner, model, search, start_id, max_length)
    check_end(owner, model, search, end_id)
    if source is not None:
        shape = "integer ids of shape (batch, length)"
        source = checked_ids(owner, "source", source, shape, of_sources, padding)
        check_source(owner, model, source.shape[1])
        source = forced_ids(source, len(source), source.shape[1], padding)
        usual = within_positions(2 * source.shape[1] + 10, model, search)
        limit = usual if max_length is None else max_length
    elif prompt is None or max_length is None:
        raise ValueError(f"{owner}: without `source`, give `prompt` and `max_length`.")
    else:
        search.constraints.check_no_ratio(f"{owner}: without `source`")
        limit = max_length
    positions, first = 0, None
    if prompt is not None:
        shape = f"({'batch' if source is None else len(source)}, at most {limit})"
        shape = f"integer ids of shape {shape}"
        prompt = checked_ids(owner, "prompt", prompt, shape, of_targets, padding)
        source = np.zeros((len(prompt), 0), "int32") if source is None else source
        if len(prompt) != len(source) or prompt.shape[1] > limit:
            raise ValueError(f"{owner}: `prompt` must be {shape}. Received: shape {prompt.shape}")
        if hasattr(model, "prefill"):
            positions = prompt_positions(prompt.shape[1], limit)
    assert source is not None  # since there is a prompt, or it was refused above
    forced = forced_ids(prompt, len(source), limit, padding)
    start: int | Array | None = start_id
    if start is None:  # the first token of each stands where START would
        first, forced = split_first(owner, forced, padding)
        start, positions = first, min(positions, limit - 1)
    options: dict[str, Any] = {"prompt_length": positions, "cache_dtype": cache_dtype}
    ends = search.constraints.boundaries.ends or (end_id,)
    options["phrases"] = checked_phrases(owner, phrases, len(source), of_targets, padding, ends)
    return _Prepared(source, forced, start, first, options)


@overload
def generate_all(
    model: Decodable,
    sources: Iterable[Sequence[int] | Array],
    search: BeamSearch,
    lengths: Sequence[int] | None = None,
    batch_size: int = 32,
    max_length: int | None = None,
    stages: int | None = 1,
    start_id: int = 1,
    end_id: int = 2,
    verbose: int = 1,
    cache_dtype: CacheType = None,
) -> DecodedBeams[Array]: ...
@overload
def generate_all(
    model: Decodable,
    sources: Iterable[Sequence[int] | Array],
    search: Search | None = None,
    lengths: Sequence[int] | None = None,
    batch_size: int = 32,
    max_length: int | None = None,
    stages: int | None = 1,
    start_id: int = 1,
    end_id: int = 2,
    verbose: int = 1,
    cache_dtype: CacheType = None,
) -> Decoded[Array]: ...
def generate_all(
    model: Decodable,
    sources: Iterable[Sequence[int] | Array],
    search: Search | None = None,
    lengths: Sequence[int] | None = None,
    batch_size: int = 32,
    max_length: int | None = None,
    stages: int | None = 1,
    start_id: int = 1,
    end_id: int = 2,
    verbose: int = 1,
    cache_dtype: CacheType = None,
) -> Decoded[Array]:
    """Decodes any number of sequences of any length; compiles at most once for each of `lengths`.

    Sequences are sorted by length, padded to the next of `lengths` and decoded in batches of one
    size; results come in the order of `sources`. What a sequence becomes does not depend on the
    others: one of n ids is cut after `min(2 n + 10, n + 50)` tokens, after `max_length`, or at the
    last of the model's positions.

    Args:
        model, search, start_id, end_id, cache_dtype: See `generate`.
        sources: Iterable of sequences of integer ids, END included, without padding.
        lengths: Increasing lengths to pad to; by default powers of two from 16 on.
        batch_size: Sequences decoded at once.
        max_length: Optional smaller limit on the tokens of each.
        stages: Loops that a batch passes through: it is halved from one to the next, when half of
            its sequences are done, and the others go on without them. 3 instead of 1, on the
            thousand sentences of ui.en-de's test set with beam 4 and batches of 64: 140 instead of
            107 sentences a second, but 34 instead of 20 s for the first time, which compiles (two
            cores of an AMD EPYC with AVX-512). So it pays from some 6,000 sequences on.
        verbose: 1 shows a progress bar, 0 does not.

    Returns:
        Dict as from `generate`, the arrays' first axis as long as `sources` and their last as the
        longest result.

    Raises:
        ValueError: If a source is empty, not made of integers, holds padding or what is no id of
            the model, or is longer than the last of `lengths`; if `lengths` do not increase, or
            `batch_size`, `stages` or `max_length` is no positive integer; if `end_id` is padding or
            no id of the model, the model has no encoder, or its logits are NaN.

    Example:
    >>> from keras_transformers.generation import generate_all
    >>> from keras_transformers.models import Transformer
    >>> model = Transformer(vocab_size=31, hidden_dim=16, num_heads=2, mlp_dim=32, num_layers=1)
    >>> result = generate_all(model, [[5, 7, 2], [6, 2]], max_length=6, verbose=0)
    >>> len(result["tokens"])
    2
    """
    search, padding = search or Greedy(), padding_of(model)
    start_id = start_in("generate_all", model, search, start_id, max_length)
    check_cache_dtype("generate_all", model, cache_dtype)
    check_end("generate_all", model, search, end_id)
    check_source("generate_all", model)
    check_counts(batch_size, stages)
    arrays = [np.asarray(source) for source in sources]
    sizes = buckets(arrays, lengths, padding, vocabularies_of(model)[0])
    if not arrays:
        return nothing_found(search)
    uniform = uniform_of(search, len(arrays), most_tokens(sizes[-1]))
    bar = keras.utils.Progbar(len(arrays), verbose=verbose, unit_name="sequence")
    results: list[Any] = [None] * len(arrays)
    for rows, source in _batches(arrays, sizes, batch_size, padding):
        limits = most_tokens(np.sum(source != padding, axis=1), np.minimum)
        most = within_positions(most_tokens(source.shape[1]), model, search)
        limits = np.minimum(limits, most)
        if max_length is not None:
            limits, most = np.minimum(limits, max_length), min(most, max_length)
        forced = np.full((batch_size, most), padding, "int32")
        random = None if uniform is None else uniform[_filled(rows, batch_size), :most]
        found: Any = run_batch(
            model, source, forced, limits, search, start_id, end_id, random, stages,
            cache_dtype=cache_dtype,
        )  # fmt: skip
        check_sound("generate_all", found, rows)
        for position, number in enumerate(rows):
            results[number] = {name: value[position] for name, value in found.items()}
        bar.add(len(rows))
    return _joined(results, padding)


def _batches(
    sources: list[Array], lengths: Array, batch_size: int, padding: int
) -> Iterator[tuple[Array, Array]]:
    """Numbers of the sources of each batch, shortest first, and their padded ids."""
    sizes = np.array([len(source) for source in sources])
    bucket, order = np.searchsorted(lengths, sizes), np.argsort(sizes, kind="stable")
    for which, length in enumerate(lengths):
        mine = order[bucket[order] == which]
        for start in range(0, len(mine), batch_size):
            rows = mine[start : start + batch_size]
            padded = np.full((batch_size, length), padding, "int32")
            for row, number in zip(padded, _filled(rows, batch_size), strict=True):
                row[: sizes[number]] = sources[number]
            yield rows, padded


def _filled(rows: Array, batch_size: int) -> Array:
    """One size for all: the last batch is filled with its own longest sequence."""
    return np.pad(rows, (0, batch_size - len(rows)), mode="edge")


def _joined(results: list[dict[str, Array]], padding: int) -> Decoded[Array]:
    """One dict of arrays from one for each sequence, cut to the longest tokens."""
    longest = max(int(np.max(result["lengths"])) for result in results)
    for result in results:
        tokens = result["tokens"][..., :longest]
        widths = [(0, 0)] * (tokens.ndim - 1) + [(0, longest - tokens.shape[-1])]
        result["tokens"] = np.pad(tokens, widths, constant_values=padding)
    joined = {name: np.stack([result[name] for result in results]) for name in results[0]}
    return cast(Decoded[Array], joined)
