"""From a model and ids to decoded ids: one batch, or as many sequences as there are."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple, cast, overload

import keras
import numpy as np

from keras_transformers.core.types import Array, Ids
from keras_transformers.generation.beam import BeamSearch
from keras_transformers.generation.boundaries import StopStrings
from keras_transformers.generation.decode import run_batch, run_in_parts, uniform_of
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
    checked_sequences,
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
from keras_transformers.generation.search import Greedy, Search

NO_LIMIT = 1 << 30  # on the positions of a prompt


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
    phrases: Any = None,
    stop_strings: StopStrings | None = None,
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
    phrases: Any = None,
    stop_strings: StopStrings | None = None,
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
    phrases: Any = None,
    stop_strings: StopStrings | None = None,
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
            occur in each output, see `Request`; or a list of lists of ids for each row.
        stop_strings: Optional `StopStrings`: strings that end an output, as END does.

    Returns:
        Dict of NumPy arrays: `tokens` int32 `(batch, [n_best,] max_length)`, without START, with
        END, then padding; `scores` float32 `(batch, [n_best])`; `lengths` int32, END included;
        `finished` bool, whether the search chose END or a stop string, False for a sequence that
        is cut at its limit or must end there; from `BeamSearch` also `log_probabilities`, the
        scores without penalties; from `Speculative` also `passes`, int32 `(batch,)`, the number of
        steps of the model.

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
    options |= {"prompt_scores": prompt_scores, "stop_strings": stop_strings}
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
    phrases: Any = None,
    stop_strings: StopStrings | None = None,
    tokens_at_a_time: int | None = None,
) -> Iterator[int]:
    """Decodes one sequence, and yields its tokens while they are chosen.

    They are the tokens of `generate` with the same arguments, behind the prompt. XLA compiles once
    for each shape and each search, whatever `tokens_at_a_time`. The iterator may be left at any
    time, and several may take turns.

    Args:
        model, max_length, start_id, end_id, cache_dtype, phrases, stop_strings: See `generate`.
        source, prompt: As `generate` takes them, each of one sequence: `(1, length)`.
        search: `Greedy()` (default) or `Sampling(...)` of one sample. Others do not know a token
            for good when they have chosen it.
        tokens_at_a_time: Most tokens that are chosen between two looks at them. By default the
            first comes alone, and then as many as take about a tenth of a second.

    Returns:
        Iterator of int, END or the token that completes a stop string the last where the search
        comes to it.

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
    options |= {"stop_strings": stop_strings, "tokens_at_a_time": tokens_at_a_time}
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
    phrases: Any,
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
    sources: Iterable[Sequence[int] | Array] | None,
    search: BeamSearch,
    lengths: Sequence[int] | None = None,
    batch_size: int = 32,
    max_length: int | None = None,
    stages: int | None = 1,
    start_id: int | None = 1,
    end_id: int = 2,
    verbose: int = 1,
    cache_dtype: CacheType = None,
    prompts: Iterable[Sequence[int] | Array] | None = None,
    new_tokens: int | None = None,
    phrases: Any = None,
    prompt_scores: bool = False,
    stop_strings: StopStrings | None = None,
) -> DecodedBeams[Array]: ...
@overload
def generate_all(
    model: Decodable,
    sources: Iterable[Sequence[int] | Array] | None = None,
    search: Search | None = None,
    lengths: Sequence[int] | None = None,
    batch_size: int = 32,
    max_length: int | None = None,
    stages: int | None = 1,
    start_id: int | None = 1,
    end_id: int = 2,
    verbose: int = 1,
    cache_dtype: CacheType = None,
    prompts: Iterable[Sequence[int] | Array] | None = None,
    new_tokens: int | None = None,
    phrases: Any = None,
    prompt_scores: bool = False,
    stop_strings: StopStrings | None = None,
) -> Decoded[Array]: ...
def generate_all(
    model: Decodable,
    sources: Iterable[Sequence[int] | Array] | None = None,
    search: Search | None = None,
    lengths: Sequence[int] | None = None,
    batch_size: int = 32,
    max_length: int | None = None,
    stages: int | None = 1,
    start_id: int | None = 1,
    end_id: int = 2,
    verbose: int = 1,
    cache_dtype: CacheType = None,
    prompts: Iterable[Sequence[int] | Array] | None = None,
    new_tokens: int | None = None,
    phrases: Any = None,
    prompt_scores: bool = False,
    stop_strings: StopStrings | None = None,
) -> Decoded[Array]:
    """Decodes any number of sequences of any length; compiles at most once for each of `lengths`.

    Sequences are sorted by length, padded to the next of `lengths` and decoded in batches of one
    size; results come in the order in which they were given. What a sequence becomes does not
    depend on the others: one of n source ids is cut after `min(2 n + 10, n + 50)` tokens, or after
    `new_tokens` behind its prompt; after `max_length`; or at the last of the model's positions.

    Args:
        model, search, start_id, end_id, cache_dtype, prompt_scores, stop_strings: See
            `generate`.
        sources: Iterable of sequences of integer ids, END included, without padding; None for a
            decoder-only model.
        lengths: Increasing lengths to pad to; by default powers of two from 16 on. Sources are
            padded, or the prompts of a decoder-only model.
        batch_size: Sequences decoded at once.
        max_length: Optional smaller limit on the tokens of each, its prompt included.
        stages: Loops that a batch passes through: it is halved from one to the next, when half of
            its sequences are done, and the others go on without them. 3 instead of 1, on the
            thousand sentences of ui.en-de's test set with beam 4 and batches of 64: 140 instead of
            107 sentences a second, but 34 instead of 20 s for the first time, which compiles (two
            cores of an AMD EPYC with AVX-512). So it pays from some 6,000 sequences on.
        verbose: 1 shows a progress bar, 0 does not.
        prompts: Optional iterable of sequences of integer ids, one for each source, without
            padding: how each output must begin, from the first position on. An empty one leaves
            the choice to the search.
        new_tokens: Limit on the tokens behind each prompt. A decoder-only model needs it, or
            `max_length`.
        phrases: Optional, for each sequence a list of phrases, lists of ids, that must occur in its
            output; or an array, see `generate`.

    Returns:
        Dict as from `generate`, the arrays' first axis as long as `sources` and their last as the
        longest result.

    Raises:
        ValueError: If a source is empty, not made of integers, holds padding or what is no id of
            the model, or is longer than the last of `lengths`; if `prompts` are not as many, or
            one fills its limit, or is empty where there is no START; if `lengths` do not increase,
            or `batch_size`, `stages`, `new_tokens` or `max_length` is no positive integer; if
            `end_id` is padding or no id of the model, the model has no encoder and gets `sources`,
            or none and gets no `prompts`; or if its logits are NaN.

    Example:
    >>> from keras_transformers.generation import generate_all
    >>> from keras_transformers.models import Transformer
    >>> model = Transformer(vocab_size=31, hidden_dim=16, num_heads=2, mlp_dim=32, num_layers=1)
    >>> result = generate_all(model, [[5, 7, 2], [6, 2]], max_length=6, verbose=0)
    >>> len(result["tokens"])
    2
    >>> result = generate_all(model, [[5, 7, 2], [6, 2]], prompts=[[9], [8, 8]], verbose=0)
    >>> result["tokens"][1, :2].tolist()
    [8, 8]
    """
    search, padding = search or Greedy(), padding_of(model)
    start_id = start_in("generate_all", model, search, start_id, max_length)
    check_cache_dtype("generate_all", model, cache_dtype)
    check_end("generate_all", model, search, end_id)
    check_counts(batch_size, stages, new_tokens)
    limited = max_length is not None or new_tokens is not None
    if sources is None and (prompts is None or not limited):
        raise ValueError(
            "generate_all: without `sources`, give `prompts`, and `new_tokens` or `max_length`."
        )
    rows = _rows(model, search, sources, prompts, 0 if start_id is not None else 1)
    number = len(rows.prompts)
    if not number:
        return nothing_found(search)
    ends = search.constraints.boundaries.ends or (end_id,)
    vocab = vocabularies_of(model)[1]
    asked = checked_phrases("generate_all", phrases, number, vocab, padding, ends)
    sizes = rows.sizes()
    bucket_lengths = buckets("prompts" if sources is None else "sources", max(sizes), lengths)
    limits = _limits(model, search, rows, max_length, new_tokens)
    uniform = uniform_of(search, number, int(limits.max()))
    bar = keras.utils.Progbar(number, verbose=verbose, unit_name="sequence")
    results: list[Any] = [None] * number
    options: dict[str, Any] = {"stages": stages, "cache_dtype": cache_dtype}
    options |= {"prompt_scores": prompt_scores or prompts is None, "stop_strings": stop_strings}
    for length, chosen in _batches(sizes, bucket_lengths, batch_size):
        filled = _filled(chosen, batch_size)
        most = _most(rows, filled, length, new_tokens, int(limits[filled].max()))
        most = within_positions(min(most, max_length or most), model, search)
        options["phrases"] = None if asked is None else asked[filled]
        random = None if uniform is None else _first(uniform[filled], most)
        batch = rows.padded(filled, length, most, padding)
        decoded = _decoded(
            model, *batch, limits[filled], search, (start_id, end_id), random, **options
        )
        check_sound("generate_all", decoded, chosen)
        for position, row in enumerate(chosen):
            results[row] = {name: value[position] for name, value in decoded.items()}
        bar.add(len(chosen))
    return _joined(results, padding)


class _Rows(NamedTuple):
    """What `generate_all` decodes: for each sequence its source and its prompt.

    Args:
        sources: Int32 arrays `(length,)`; None for a decoder-only model.
        prompts: Int32 arrays `(length,)`.
    """

    sources: list[Array] | None
    prompts: list[Array]

    def sizes(self) -> Array:
        """Lengths by which rows are sorted into batches, `(rows,)`."""
        return np.array([len(ids) for ids in self.sources or self.prompts])

    def padded(
        self, chosen: Array, length: int, most: int, padding: int
    ) -> tuple[Array, Array, int]:
        """Sources `(rows, length)`, prompts `(rows, most)`, and the length to take in at once."""
        prompts = [self.prompts[row] for row in chosen]
        sources = [] if self.sources is None else [self.sources[row] for row in chosen]
        source = forced_ids(sources or None, len(chosen), length if sources else 0, padding)
        longest = max(map(len, prompts))
        positions = prompt_positions(longest, most) if longest else 0
        return source, forced_ids(prompts, len(chosen), most, padding), positions


def _rows(model: Decodable, search: Search, sources: Any, prompts: Any, fewest: int) -> _Rows:
    """Checks sources and prompts, of `fewest` ids each."""
    if sources is not None:
        check_source("generate_all", model)
    else:
        search.constraints.check_no_ratio("generate_all: without `sources`")
    padding, (of_sources, of_targets) = padding_of(model), vocabularies_of(model)
    if sources is not None:
        sources = checked_sequences("generate_all", "sources", sources, of_sources, padding)
    if prompts is None:
        prompts = [()] * len(sources or ())
    prompts = checked_sequences("generate_all", "prompts", prompts, of_targets, padding, fewest)
    if sources is not None and len(sources) != len(prompts):
        raise ValueError(
            f"generate_all: `prompts` must be as many as `sources`, {len(sources)}. "
            f"Received: {len(prompts)}"
        )
    return _Rows(sources, prompts)


def _limits(
    model: Decodable, search: Search, rows: _Rows, max_length: int | None, new_tokens: int | None
) -> Array:
    """Most tokens of each sequence, its prompt included, `(rows,)`."""
    prompts = np.array([len(ids) for ids in rows.prompts])
    if new_tokens is not None:
        limits = prompts + new_tokens
    elif rows.sources is not None:
        limits = most_tokens(rows.sizes(), np.minimum)
    else:
        assert max_length is not None  # since `generate_all` refused this
        limits = np.full(len(prompts), max_length)
    if max_length is not None:
        limits = np.minimum(limits, max_length)
    limits = np.minimum(limits, within_positions(int(limits.max()), model, search))
    full = np.flatnonzero(prompts >= limits)
    if full.size and prompts[full[0]]:
        raise ValueError(
            f"generate_all: each of `prompts` must be shorter than the limit on its output, "
            f"{limits[full[0]]} tokens. Received: number {full[0]}, of {prompts[full[0]]}"
        )
    return limits


def _most(rows: _Rows, chosen: Array, length: int, new_tokens: int | None, limit: int) -> int:
    """Positions of the outputs of a batch: few different numbers, for each compiles anew."""
    if new_tokens is None:
        return most_tokens(length) if rows.sources is not None else limit
    longest = max(len(rows.prompts[row]) for row in chosen)
    if rows.sources is None:
        longest = length
    elif longest:
        longest = prompt_positions(longest, NO_LIMIT)
    return longest + new_tokens


def _decoded(
    model: Decodable,
    source: Array,
    forced: Array,
    positions: int,
    limits: Array,
    search: Search,
    marks: tuple[int | None, int],
    random: Array | None,
    **options: Any,
) -> Any:
    """Decodes one batch; a first token stands for START where there is none."""
    (start, end), padding = marks, padding_of(model)
    options["prompt_length"] = positions if hasattr(model, "prefill") else 0
    if start is not None:
        return run_batch(
            model, source, forced, limits, search, start, end, uniform=random, **options
        )
    first, forced = split_first("generate_all", forced, padding)
    options["prompt_length"] = min(options["prompt_length"], forced.shape[1])
    random = None if random is None else random[:, : forced.shape[1]]
    decoded = run_batch(
        model, source, forced, limits - 1, search, first, end, uniform=random, **options
    )
    return with_first(decoded, first, padding)


def _first(uniform: Array, most: int) -> Array:
    """The random numbers of `most` positions; zeros behind the last, where nothing is drawn."""
    short = most - uniform.shape[1]
    return np.pad(uniform, ((0, 0), (0, short), (0, 0))) if short > 0 else uniform[:, :most]


def _batches(sizes: Array, lengths: Array, batch_size: int) -> Iterator[tuple[int, Array]]:
    """The length to pad to, and the numbers of the rows, of each batch; the shortest first."""
    bucket, order = np.searchsorted(lengths, sizes), np.argsort(sizes, kind="stable")
    for which, length in enumerate(lengths.tolist()):
        mine = order[bucket[order] == which]
        for start in range(0, len(mine), batch_size):
            yield length, mine[start : start + batch_size]


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
