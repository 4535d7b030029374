"""From a model and ids to decoded ids: one batch, or as many sequences as there are."""

import dataclasses

import keras
import numpy as np
from keras import ops

from keras_transformers.generation.decode import decode
from keras_transformers.generation.inputs import buckets, check_marks, checked_ids
from keras_transformers.generation.request import (
    Request,
    most_tokens,
    padding_of,
    vocabularies_of,
)
from keras_transformers.generation.stepwise import Greedy, Sampling

PROMPT_MULTIPLE = 16


class _Generator(keras.Model):
    """Lets Keras compile `decode` for whichever backend is in use."""

    def __init__(self, model, search, end_id, prompt_length, stages):
        super().__init__(name="generator", dtype=model.dtype_policy)
        self.model = model
        self.search = search
        self.fixed = {"end_id": end_id, "prompt_length": prompt_length}
        self.fixed["padding_id"] = padding_of(model)
        self.stages = stages
        self.compile(jit_compile=True)
        self.built = True

    def call(self, inputs):
        request = Request(**{k: v for k, v in inputs.items() if k != "source"}, **self.fixed)
        return decode(self.model, inputs["source"], self.search, request, self.stages)


def generate(
    model, source=None, prompt=None, search=None, max_length=None, start_id=1, end_id=2
):
    """Decodes a batch with XLA; compiled once for each shape of `source` and each search.

    Args:
        model: Anything with `start_decoding` and `decode_step` as `models.Transformer` has. Its
            `padding_id` (0 where it has none) is what stands for padding in all that follows.
        source: Integer ids `(batch, source_length)`. Pad to a few fixed lengths: each
            new shape compiles anew (`generate_all` does all this). None for a decoder-only model,
            which is given a source of no length.
        prompt: Optional integer ids `(batch, prompt_length)`: how every output must begin, from
            the first place on; padding behind it leaves the choice to the search. After padding
            before it the output begins with the prompt all the same.
        search: `Greedy()` (default), `BeamSearch(...)` or `Sampling(...)`.
        max_length: Limit on tokens, END included, where sequences are cut; by default
            `2 * source_length + 10`.
        start_id: The token before the first. None where texts have none, as with GPT-2: then
            prompts must have a token at least.
        end_id: The token that ends a sequence, unless the search's `Boundaries` say otherwise.

    Returns:
        Dict of NumPy arrays: `tokens` int32 `(batch, [n_best,] max_length)`, without START, with
        END, then padding; `scores` float32 `(batch, [n_best])`; `lengths` int32, END included; from
        `BeamSearch` also `log_probabilities`, the scores without penalties.

    Raises:
        ValueError: If `source` is not a batch of integer ids, `prompt` does not fit it or is empty
            where there is no START, an id is none of the model's vocabulary, `max_length` is not
            positive, or a decoder-only model lacks `prompt` or `max_length`.

    Example:
    >>> import numpy as np
    >>> from keras_transformers.generation import BeamSearch, generate
    >>> from keras_transformers.models import Transformer
    >>> model = Transformer(vocab_size=31, hidden_dim=16, num_heads=2, mlp_dim=32, num_layers=1)
    >>> result = generate(model, np.array([[5, 7, 2]]), search=BeamSearch(2), max_length=6)
    >>> result["tokens"].shape
    (1, 6)
    """
    padding, (of_sources, of_targets) = padding_of(model), vocabularies_of(model)
    check_marks("generate", model, start_id, max_length)
    search = search or Greedy()
    if source is not None:
        shape = "integer ids of shape (batch, length)"
        source = checked_ids("generate", "source", source, shape, of_sources, padding)
    elif prompt is None or max_length is None:
        raise ValueError("generate: without `source`, give `prompt` and `max_length`.")
    else:
        search.constraints.check_no_ratio("generate: without `source`")
    limit = 2 * source.shape[1] + 10 if max_length is None else max_length
    places, first = 0, None
    if prompt is not None:
        shape = f"({'batch' if source is None else len(source)}, at most {limit})"
        shape = f"integer ids of shape {shape}"
        prompt = checked_ids("generate", "prompt", prompt, shape, of_targets, padding)
        source = np.zeros((len(prompt), 0), "int32") if source is None else source
        if len(prompt) != len(source) or prompt.shape[1] > limit:
            raise ValueError(
                f"generate: `prompt` must be {shape}. Received: shape {prompt.shape}"
            )
        if hasattr(model, "prefill"):
            # A multiple, for each length compiles anew.
            places = min(limit, -(-prompt.shape[1] // PROMPT_MULTIPLE) * PROMPT_MULTIPLE)
    forced = _forced(prompt, len(source), limit, padding)
    if start_id is None:  # the first token of each stands where START would
        if (forced[:, :1] == padding).any() or limit < 2:
            raise ValueError(
                "generate: with `start_id`=None, every prompt must have a token, and `max_length` "
                "be at least 2."
            )
        start_id, forced, first = forced[:, 0], forced[:, 1:], forced[:, 0]
        places = min(places, limit - 1)
    found = _run(model, source, forced, None, search, start_id, end_id, prompt_length=places)
    return found if first is None else _with_first(found, first)


def _forced(prompt, batch, limit, padding):
    """Prompts, without padding on the left, on as many places as there are tokens."""
    forced = np.full((batch, limit), padding, "int32")
    for row, ids in zip(forced, () if prompt is None else prompt, strict=prompt is not None):
        ids = ids[np.argmax(ids != padding) if len(ids) else 0 :]
        row[: len(ids)] = ids
    return forced


def _with_first(found, first):
    """Results with the tokens that stood where START would, in front."""
    tokens = found["tokens"]
    first = np.broadcast_to(first.reshape(-1, *[1] * (tokens.ndim - 1)), (*tokens.shape[:-1], 1))
    tokens = np.concatenate([first, tokens], axis=-1)
    return {**found, "tokens": tokens, "lengths": found["lengths"] + 1}


def generate_all(
    model,
    sources,
    search=None,
    lengths=None,
    batch_size=32,
    max_length=None,
    stages=1,
    start_id=1,
    end_id=2,
    verbose=1,
):
    """Decodes any number of sequences of any length; compiles at most once for each of `lengths`.

    Sequences are sorted by length, padded to the next of `lengths` and decoded in batches of one
    size; results come in the order of `sources`. What a sequence becomes does not depend on the
    others: one of n ids is given at most `min(2 n + 10, n + 50)` tokens, or `max_length`.

    Args:
        model, search, start_id, end_id: See `generate`.
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
            `batch_size` or `max_length` is not positive.

    Example:
    >>> from keras_transformers.generation import generate_all
    >>> from keras_transformers.models import Transformer
    >>> model = Transformer(vocab_size=31, hidden_dim=16, num_heads=2, mlp_dim=32, num_layers=1)
    >>> result = generate_all(model, [[5, 7, 2], [6, 2]], max_length=6, verbose=0)
    >>> len(result["tokens"])
    2
    """
    search, padding = search or Greedy(), padding_of(model)
    check_marks("generate_all", model, start_id, max_length)
    if batch_size < 1:
        raise ValueError(f"generate_all: `batch_size` must be positive. Received: {batch_size}")
    sources = [np.asarray(source) for source in sources]
    lengths = buckets(sources, lengths, padding, vocabularies_of(model)[0])
    if not sources:
        return {
            "tokens": np.zeros((0, 0), "int32"),
            "scores": np.zeros(0, "float32"),
            "lengths": np.zeros(0, "int32"),
        }
    uniform = _uniform(search, len(sources), most_tokens(lengths[-1]))
    bar = keras.utils.Progbar(len(sources), verbose=verbose, unit_name="sequence")
    results = [None] * len(sources)
    for rows, source in _batches(sources, lengths, batch_size, padding):
        limits = most_tokens(np.sum(source != padding, axis=1), np.minimum)
        most = most_tokens(source.shape[1])
        if max_length is not None:
            limits, most = np.minimum(limits, max_length), min(most, max_length)
        forced = np.full((batch_size, most), padding, "int32")
        random = None if uniform is None else uniform[_filled(rows, batch_size), :most]
        found = _run(model, source, forced, limits, search, start_id, end_id, random, stages)
        for place, number in enumerate(rows):
            results[number] = {name: value[place] for name, value in found.items()}
        bar.add(len(rows))
    return _joined(results, padding)


def _batches(sources, lengths, batch_size, padding):
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


def _filled(rows, batch_size):
    """One size for all: the last batch is filled with its own longest sequence."""
    return np.pad(rows, (0, batch_size - len(rows)), mode="edge")


def _joined(results, padding):
    """One dict of arrays from one for each sequence, cut to the longest tokens."""
    longest = max(int(np.max(result["lengths"])) for result in results)
    for result in results:
        tokens = result["tokens"][..., :longest]
        widths = [(0, 0)] * (tokens.ndim - 1) + [(0, longest - tokens.shape[-1])]
        result["tokens"] = np.pad(tokens, widths, constant_values=padding)
    return {name: np.stack([result[name] for result in results]) for name in results[0]}


def _uniform(search, batch, max_length):
    """The random numbers of `Sampling`, `(batch, max_length, samples)`; None for other searches."""
    if not isinstance(search, Sampling):
        return None
    shape = (batch, max_length, search.num_samples)
    return np.random.default_rng(search.seed).random(shape, "float32")


def _run(
    model,
    source,
    forced,
    max_lengths,
    search,
    start_id,
    end_id,
    uniform=None,
    stages=1,
    prompt_length=0,
):
    """Compiles where that is new, and decodes one batch."""
    if not model.built:
        first = forced[:1, :1]
        model({"source": source[:1], "target": first} if source.shape[1] else first)
    inputs = {"source": source.astype("int32"), "forced": forced}
    inputs["start_id"] = np.broadcast_to(np.int32(start_id), len(source))
    sizes = np.sum(source != padding_of(model), axis=1)
    limits = search.constraints.limits(sizes, max_lengths)
    for name, limit in zip(("min_lengths", "max_lengths"), limits, strict=True):
        if limit is not None:
            inputs[name] = ops.convert_to_numpy(limit).astype("int32")
    if isinstance(search, Sampling):
        inputs["uniform"] = _uniform(search, *forced.shape) if uniform is None else uniform
        search = dataclasses.replace(search, seed=None)  # data, not code: compiles nothing
    # Kept on the model, out of Keras's tracking: it would make the model its own sub-layer.
    compiled = vars(model).setdefault("_generators", {})
    shapes = tuple((name, value.shape) for name, value in inputs.items())
    options = (end_id, prompt_length, stages)
    key = (search, shapes, *options)
    if key not in compiled:
        compiled[key] = _Generator(model, search, *options)
    result = compiled[key].predict_on_batch(inputs)
    return keras.tree.map_structure(ops.convert_to_numpy, result)
