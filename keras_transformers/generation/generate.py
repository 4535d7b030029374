"""From a model and ids to decoded ids: one batch, or as many sequences as there are."""

import dataclasses

import keras
import numpy as np
from keras import ops

from keras_transformers.generation.decode import decode
from keras_transformers.generation.request import Request, most_tokens
from keras_transformers.generation.stepwise import Greedy, Sampling

PROMPT_MULTIPLE = 16


class _Generator(keras.Model):
    """Lets Keras compile `decode` for whichever backend is in use."""

    def __init__(self, model, search, start_id, end_id, prompt_length, stages):
        super().__init__(name="generator", dtype=model.dtype_policy)
        self.model = model
        self.search = search
        self.ids = {"start_id": start_id, "end_id": end_id, "prompt_length": prompt_length}
        self.stages = stages
        self.compile(jit_compile=True)
        self.built = True

    def call(self, inputs):
        request = Request(**{k: v for k, v in inputs.items() if k != "source"}, **self.ids)
        return decode(self.model, inputs["source"], self.search, request, self.stages)


def generate(
    model, source=None, prompt=None, search=None, max_length=None, start_id=1, end_id=2
):
    """Decodes a batch with XLA; compiled once for each shape of `source` and each search.

    Args:
        model: Anything with `start_decoding` and `decode_step` as `models.Transformer` has.
        source: Integer ids `(batch, source_length)`, 0 = padding. Pad to a few fixed lengths: each
            new shape compiles anew (`generate_all` does all this). None for a decoder-only model,
            which is given a source of no length.
        prompt: Optional integer ids `(batch, prompt_length)`: how every output must begin, from
            the first place on; 0 behind it leaves the choice to the search. Zeros before it are
            padding: the output begins with the prompt all the same.
        search: `Greedy()` (default), `BeamSearch(...)` or `Sampling(...)`.
        max_length: Limit on tokens, END included, where sequences are cut; by default
            `2 * source_length + 10`.
        start_id: The token before the first.
        end_id: The token that ends a sequence.

    Returns:
        Dict of NumPy arrays: `tokens` int32 `(batch, [n_best,] max_length)`, without START, with
        END, then 0; `scores` float32 `(batch, [n_best])`; `lengths` int32, END included; from
        `BeamSearch` also `log_probabilities`, the scores without penalties.

    Raises:
        ValueError: If `source` is not a batch of integer ids, `prompt` does not fit it, or a
            decoder-only model lacks `prompt` or `max_length`.

    Example:
    >>> import numpy as np
    >>> from keras_transformers.generation import BeamSearch, generate
    >>> from keras_transformers.models import Transformer
    >>> model = Transformer(vocab_size=31, hidden_dim=16, num_heads=2, mlp_dim=32, num_layers=1)
    >>> result = generate(model, np.array([[5, 7, 2]]), search=BeamSearch(2), max_length=6)
    >>> result["tokens"].shape
    (1, 6)
    """
    if source is None:
        if prompt is None or max_length is None:
            raise ValueError("generate: without `source`, give `prompt` and `max_length`.")
        source = np.zeros((len(prompt), 0), "int32")
    source = np.asarray(source)
    if source.ndim != 2 or not np.issubdtype(source.dtype, np.integer):
        raise ValueError(
            "generate: `source` must be integer ids of shape (batch, length). "
            f"Received: {source.dtype} of shape {source.shape}"
        )
    limit = 2 * source.shape[1] + 10 if max_length is None else max_length
    forced, places = np.zeros((len(source), limit), "int32"), 0
    if prompt is not None:
        prompt = np.asarray(prompt)
        if prompt.ndim != 2 or len(prompt) != len(source) or prompt.shape[1] > limit:
            raise ValueError(
                f"generate: `prompt` must be of shape ({len(source)}, at most {limit}). "
                f"Received: shape {prompt.shape}"
            )
        for row, ids in zip(forced, prompt, strict=True):
            ids = np.trim_zeros(ids, "f")  # the padding on the left
            row[: len(ids)] = ids
        if hasattr(model, "prefill"):
            # A multiple, for each length compiles anew.
            places = min(limit, -(-prompt.shape[1] // PROMPT_MULTIPLE) * PROMPT_MULTIPLE)
    return _run(
        model, source, forced, None, search or Greedy(), start_id, end_id, prompt_length=places
    )


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
        ValueError: If a source is empty, not made of integers, holds a 0 or is longer than the last
            of `lengths`, or `lengths` do not increase.

    Example:
    >>> from keras_transformers.generation import generate_all
    >>> from keras_transformers.models import Transformer
    >>> model = Transformer(vocab_size=31, hidden_dim=16, num_heads=2, mlp_dim=32, num_layers=1)
    >>> result = generate_all(model, [[5, 7, 2], [6, 2]], max_length=6, verbose=0)
    >>> len(result["tokens"])
    2
    """
    search = search or Greedy()
    sources = [np.asarray(source) for source in sources]
    lengths = _buckets(sources, lengths)
    if not sources:
        return {
            "tokens": np.zeros((0, 0), "int32"),
            "scores": np.zeros(0, "float32"),
            "lengths": np.zeros(0, "int32"),
        }
    uniform = _uniform(search, len(sources), most_tokens(lengths[-1]))
    bar = keras.utils.Progbar(len(sources), verbose=verbose, unit_name="sequence")
    results = [None] * len(sources)
    for rows, source in _batches(sources, lengths, batch_size):
        limits = most_tokens(np.count_nonzero(source, axis=1), np.minimum)
        most = most_tokens(source.shape[1])
        if max_length is not None:
            limits, most = np.minimum(limits, max_length), min(most, max_length)
        forced = np.zeros((batch_size, most), "int32")
        random = None if uniform is None else uniform[_filled(rows, batch_size), :most]
        found = _run(model, source, forced, limits, search, start_id, end_id, random, stages)
        for place, number in enumerate(rows):
            results[number] = {name: value[place] for name, value in found.items()}
        bar.add(len(rows))
    return _joined(results)


def _batches(sources, lengths, batch_size):
    """Numbers of the sources of each batch, shortest first, and their padded ids."""
    sizes = np.array([len(source) for source in sources])
    bucket, order = np.searchsorted(lengths, sizes), np.argsort(sizes, kind="stable")
    for which, length in enumerate(lengths):
        mine = order[bucket[order] == which]
        for start in range(0, len(mine), batch_size):
            rows = mine[start : start + batch_size]
            padded = np.zeros((batch_size, length), "int32")
            for row, number in zip(padded, _filled(rows, batch_size), strict=True):
                row[: sizes[number]] = sources[number]
            yield rows, padded


def _filled(rows, batch_size):
    """One size for all: the last batch is filled with its own longest sequence."""
    return np.pad(rows, (0, batch_size - len(rows)), mode="edge")


def _joined(results):
    """One dict of arrays from one for each sequence, cut to the longest tokens."""
    longest = max(int(np.max(result["lengths"])) for result in results)
    for result in results:
        tokens = result["tokens"][..., :longest]
        widths = [(0, 0)] * (tokens.ndim - 1) + [(0, longest - tokens.shape[-1])]
        result["tokens"] = np.pad(tokens, widths)
    return {name: np.stack([result[name] for result in results]) for name in results[0]}


def _buckets(sources, lengths):
    """The lengths to pad to, after checking them and the sources."""
    for number, source in enumerate(sources):
        integers = source.ndim == 1 and np.issubdtype(source.dtype, np.integer)
        if not integers or not len(source) or not source.all():
            raise ValueError(
                "generate_all: `sources` must be sequences of at least one integer id, none 0 "
                f"(padding). Received: number {number}, {source.dtype} of shape {source.shape}"
                f"{', with a 0' if integers and len(source) else ''}"
            )
    longest = max((len(source) for source in sources), default=1)
    if lengths is None:
        lengths = [16]
        while lengths[-1] < longest:
            lengths.append(2 * lengths[-1])
    if not len(lengths) or any(np.diff(lengths) <= 0) or longest > lengths[-1]:
        raise ValueError(
            f"generate_all: `lengths` must increase up to the longest source, {longest}. "
            f"Received: {tuple(lengths)}"
        )
    return np.asarray(lengths)


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
    sizes = np.count_nonzero(source, axis=1)
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
    options = (start_id, end_id, prompt_length, stages)
    key = (search, shapes, *options)
    if key not in compiled:
        compiled[key] = _Generator(model, search, *options)
    result = compiled[key].predict_on_batch(inputs)
    return keras.tree.map_structure(ops.convert_to_numpy, result)
