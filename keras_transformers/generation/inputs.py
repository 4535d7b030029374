"""What `generate` and `generate_all` are given, checked before anything is compiled."""

from collections.abc import Iterable, Sequence
from typing import Any, Literal, TypeAlias, get_args

import numpy as np

from keras_transformers.core.types import Array, Ids
from keras_transformers.generation.beam import BeamSearch
from keras_transformers.generation.boundaries import StartId
from keras_transformers.generation.request import (
    Decodable,
    Decoded,
    is_whole,
    padding_of,
    reads_sources,
    vocabularies_of,
)
from keras_transformers.generation.search import Greedy, Sampling, Search
from keras_transformers.generation.speculative import Speculative

CacheDtype = Literal["float32", "float16", "bfloat16", "int8"]
CacheType: TypeAlias = CacheDtype | None


def check_cache_dtype(owner: str, model: Any, cache_dtype: CacheType) -> None:
    """Raises ValueError unless a model can hold its caches so."""
    if cache_dtype is None:
        return
    if cache_dtype not in get_args(CacheDtype):
        expected = f"None or one of {', '.join(get_args(CacheDtype))}"
    elif not hasattr(model, "caches_in"):
        expected = "None for a model without `caches_in`"
    else:
        return
    raise ValueError(f"{owner}: `cache_dtype` must be {expected}. Received: {cache_dtype!r}")


def prompt_positions(length: int, limit: int) -> int:
    """As how long prompts are taken in: each number compiles anew, so there are few.

    A multiple of 16; of an eighth of the power of two below, where that is more.
    """
    multiple = 1 << max(4, length.bit_length() - 4)
    return min(limit, -(-length // multiple) * multiple)


def checked_ids(
    owner: str, name: str, ids: Ids, expected: str, vocab: int | None = None, padding: int = 0
) -> Array:
    """Integer ids of rank 2, as an array.

    Args:
        owner, name: For messages: whose argument it is.
        ids: What was given.
        expected: What its shape must be, in words.
        vocab: Size of the vocabulary; None where a model does not say.
        padding: Id that may stand in it besides those of the vocabulary.

    Raises:
        ValueError: If it is anything else.
    """
    try:
        found = np.asarray(ids)
    except ValueError:  # rows of different lengths
        raise ValueError(
            f"{owner}: `{name}` must be {expected}. Received: rows of different lengths"
        ) from None
    if found.ndim != 2 or not (np.issubdtype(found.dtype, np.integer) or found.size == 0):
        raise ValueError(
            f"{owner}: `{name}` must be {expected}. Received: {found.dtype} of shape {found.shape}"
        )
    check_vocabulary(owner, name, found, vocab, padding)
    return found.astype("int32")


def check_vocabulary(
    owner: str, name: str, ids: Array, vocab: int | None, padding: int = 0
) -> None:
    """ValueError if an id of an array is not one of a vocabulary of that size, nor padding."""
    wrong = ids[(ids != padding) & ((ids < 0) | (ids >= (vocab or np.inf)))]
    if wrong.size:
        within = "not be negative" if vocab is None else f"be from 0 to {vocab - 1}"
        raise ValueError(f"{owner}: ids of `{name}` must {within}. Received: {wrong.flat[0]}")


def start_in(
    owner: str, model: Decodable, search: Search, start_id: StartId, max_length: int | None
) -> int | StartId:
    """The id that decoding starts with, where `start_id` is asked for.

    Raises:
        ValueError: If it is no token of the model, or nothing may be decoded.
    """
    if start_id is not None:
        if not is_whole(start_id, -(2**31)):
            raise ValueError(f"{owner}: `start_id` must be an integer. Received: {start_id!r}")
        _, vocab = vocabularies_of(model)
        check_vocabulary(owner, "start_id", np.asarray([start_id]), vocab, padding_of(model))
    if max_length is not None and not is_whole(max_length, 1):
        raise ValueError(
            f"{owner}: `max_length` must be an integer of at least 1. Received: {max_length}"
        )
    return search.constraints.boundaries.start_of(start_id)


def checked_sequences(
    owner: str,
    name: str,
    sequences: Iterable[Sequence[int] | Array],
    vocab: int | None,
    padding: int,
    fewest: int = 1,
) -> list[Array]:
    """Returns sequences of ids, each as an int32 array `(length,)`.

    Args:
        owner, name: For messages: whose argument it is.
        sequences: Iterable of sequences of ids, without padding.
        vocab: Size of the vocabulary; None where a model does not say.
        padding: Id of padding.
        fewest: Fewest ids of a sequence, 0 or 1.

    Raises:
        ValueError: If one is shorter, not made of integers, or holds padding or what is no id of
            the vocabulary.
    """
    arrays = [np.asarray(ids) for ids in sequences]
    for number, ids in enumerate(arrays):
        integers = ids.ndim == 1 and (np.issubdtype(ids.dtype, np.integer) or not ids.size)
        if not integers or len(ids) < fewest or (ids == padding).any():
            least = "at least one integer id" if fewest else "integer ids"
            where = f", with a {padding}" if integers and len(ids) >= fewest else ""
            raise ValueError(
                f"{owner}: `{name}` must be sequences of {least}, none {padding} (padding). "
                f"Received: number {number}, {ids.dtype} of shape {ids.shape}{where}"
            )
        check_vocabulary(owner, name, ids, vocab, padding)
    return [ids.astype("int32") for ids in arrays]


def buckets(name: str, longest: int, lengths: Sequence[int] | None) -> Array:
    """Returns the increasing lengths that `generate_all` pads its `name`, such as sources, to."""
    if lengths is None:
        lengths = [16]
        while lengths[-1] < longest:
            lengths.append(2 * lengths[-1])
    if len(lengths) == 0 or any(np.diff(lengths) <= 0) or longest > lengths[-1]:
        raise ValueError(
            f"generate_all: `lengths` must increase up to the longest of `{name}`, {longest}. "
            f"Received: {tuple(lengths)}"
        )
    return np.asarray(lengths)


def check_end(owner: str, model: Decodable, search: Search, end_id: int) -> None:
    """Raises ValueError unless a model can end a sequence with END, or with one of several ENDs."""
    ends = search.constraints.boundaries.ends
    name = "`ends` of the search's boundaries" if ends else "`end_id`"
    padding, (_, vocab) = padding_of(model), vocabularies_of(model)
    ends = ends or (end_id,)
    inside = all(is_whole(end) and end < (vocab or np.inf) for end in ends)
    if not inside or set(ends) == {padding}:
        within = "an id" if vocab is None else f"from 0 to {vocab - 1}"
        received = ends[0] if len(ends) == 1 else ends
        raise ValueError(
            f"{owner}: {name} must be {within} and not padding, {padding}. Received: {received}"
        )


def check_streamable(owner: str, search: Search) -> None:
    """Raises ValueError unless a search knows a token for good as soon as it has chosen it."""
    if isinstance(search, Greedy | Sampling) and search.beams == 1:
        return
    raise ValueError(
        f"{owner}: to stream, `search` must be `Greedy()` or `Sampling(...)` of one sample, which "
        "choose one token after the other; a beam search knows the first token only when it has "
        f"the last. Received: {type(search).__name__} of {search.beams}"
    )


def check_counts(batch_size: int, stages: int | None, new_tokens: int | None) -> None:
    """Raises ValueError unless these arguments of `generate_all` are positive integers."""
    counts = {"batch_size": batch_size, "stages": stages, "new_tokens": new_tokens}
    for name, value in counts.items():
        if not (is_whole(value, 1) or (name != "batch_size" and value is None)):
            raise ValueError(
                f"generate_all: `{name}` must be a positive integer. Received: {value}"
            )


def check_source(owner: str, model: Decodable, length: int = 1) -> None:
    """Raises ValueError if a model without an encoder is given sources of a length."""
    if length and not reads_sources(model):
        raise ValueError(
            f"{owner}: a model without an encoder takes its ids as `prompt` of `generate`. "
            f"Received: ids as source, for a {type(model).__name__}"
        )


def check_sound(owner: str, found: Decoded[Array], rows: Array | None = None) -> None:
    """Raises ValueError if a row has no sequence or no score, as of weights that are NaN."""
    scores = found["scores"]
    best = scores if scores.ndim == 1 else scores.max(axis=1)  # NaN if any is
    wrong = np.flatnonzero(~np.isfinite(best))
    wrong = wrong if rows is None else rows[wrong[wrong < len(rows)]]
    if wrong.size:
        raise ValueError(
            f"{owner}: the model's logits must be numbers of which one is finite, but row "
            f"{wrong[0]} has no sequence with a score. Do its weights hold NaN?"
        )


def nothing_found(search: Search) -> Decoded[Array]:
    """The results of no source at all."""
    by = getattr(search, "search", search)  # of `Speculative` and `Shortlisted`
    several = by.n_best if isinstance(by, BeamSearch) else search.beams
    shape = (0,) if several == 1 else (0, several)
    ids, scores = np.zeros(shape, "int32"), np.zeros(shape, "float32")
    found: Any = {"tokens": np.zeros((*shape, 0), "int32"), "scores": scores, "lengths": ids}
    found["finished"] = np.zeros(shape, "bool")
    if isinstance(by, BeamSearch):
        found["log_probabilities"] = scores
    if isinstance(search, Speculative):
        found["passes"] = ids
    result: Decoded[Array] = found
    return result


def within_positions(limit: int, model: Decodable, search: Search) -> int:
    """A limit on tokens, or the positions of the model, or of its draft, if these are fewer."""
    models = (model, getattr(search, "draft", None))
    ends = (getattr(each, "most_decodable", None) for each in models)
    return min([limit, *(end for end in ends if end is not None)])


def forced_ids(prompt: Iterable[Array] | None, batch: int, limit: int, padding: int) -> Array:
    """Prompts, without padding on the left, on as many positions as there are tokens."""
    forced = np.full((batch, limit), padding, "int32")
    for row, ids in zip(forced, () if prompt is None else prompt, strict=prompt is not None):
        ids = ids[np.argmax(ids != padding) if len(ids) else 0 :]
        row[: len(ids)] = ids
    return forced


def checked_phrases(
    owner: str, phrases: Any, batch: int, vocab: int | None, padding: int, ends: tuple[int, ...]
) -> Array | None:
    """Returns phrases as a dense int32 array; None where there are none.

    Args:
        owner: For messages: who asks.
        phrases: Integers `(batch, phrases, [forms,] length)`, padding behind each; or for every
            row a list of phrases, each a list of ids.
        batch: Number of rows.
        vocab: Size of the vocabulary; None where a model does not say.
        padding: Id of padding.
        ends: Ids that end a sequence.

    Raises:
        ValueError: If it is anything else, or a phrase has an END.
    """
    if phrases is None:
        return None
    if isinstance(phrases, list | tuple):
        phrases = _dense_phrases(phrases, padding)
    dense = np.asarray(phrases)
    shape = f"integer ids of shape ({batch}, phrases, [forms,] length), not empty"
    integers = np.issubdtype(dense.dtype, np.integer)
    if not integers or dense.ndim not in (3, 4) or len(dense) != batch or not dense.size:
        raise ValueError(
            f"{owner}: `phrases` must be {shape}. Received: {dense.dtype} of shape {dense.shape}"
        )
    check_vocabulary(owner, "phrases", dense, vocab, padding)
    behind = np.diff((dense == padding).astype("int32"), axis=-1) < 0
    if np.isin(dense, ends).any() or behind.any():
        named = ", ".join(map(str, ends))
        raise ValueError(
            f"{owner}: `phrases` must have no END, {named}, and padding only behind their ids."
        )
    return dense.astype("int32")


def _dense_phrases(rows: Sequence[Any], padding: int) -> Any:
    """Pads lists of lists of ids to an array `(rows, phrases, length)`; leaves all else alone."""
    try:
        phrases = [[np.asarray(ids, "int32") for ids in row] for row in rows]
    except (TypeError, ValueError):
        return rows
    if any(ids.ndim != 1 for row in phrases for ids in row):
        return rows  # of forms, or of no list at all
    most = max((len(row) for row in phrases), default=0)
    longest = max((len(ids) for row in phrases for ids in row), default=0)
    dense = np.full((len(phrases), most, longest), padding, "int32")
    for number, row in enumerate(phrases):
        for which, ids in enumerate(row):
            dense[number, which, : len(ids)] = ids
    return dense


def split_first(owner: str, forced: Array, padding: int) -> tuple[Array, Array]:
    """The first token of each prompt, and what is forced behind it."""
    if (forced[:, :1] == padding).any() or forced.shape[1] < 2:
        raise ValueError(
            f"{owner}: with `start_id`=None, every prompt must have a token, and `max_length` be "
            "at least 2."
        )
    return forced[:, 0], forced[:, 1:]


def with_first(found: Decoded[Array], first: Array, padding: int) -> Decoded[Array]:
    """Results with the tokens that stood where START would, in front; empty ones stay so."""
    tokens, there = found["tokens"], np.isfinite(found["scores"])
    first = first.reshape(-1, *[1] * (there.ndim - 1))
    first = np.where(there, first, padding).astype(tokens.dtype)
    tokens = np.concatenate([first[..., None], tokens], axis=-1)
    return {**found, "tokens": tokens, "lengths": found["lengths"] + there}
