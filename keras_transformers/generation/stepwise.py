"""Searches that decide token by token and never look back: greedy and sampling."""

import dataclasses
from typing import Any, NamedTuple

from keras import ops

from keras_transformers.core.types import Index, Tensor
from keras_transformers.generation.constraints import Constraints
from keras_transformers.generation.phrases import after_each
from keras_transformers.generation.request import (
    MASKED,
    Decoded,
    Prefilled,
    Request,
    is_finite,
    is_whole,
    lengths_of,
    log_normalizer,
    number_of,
    top_tokens,
    write_at,
)
from keras_transformers.generation.search import MaybeProgress, Search, Step, progress_of

SMALLEST_NORMAL = 2.0**-126  # of float32: smaller temperatures may count as 0


class Sequences(NamedTuple):
    """What these searches keep: tensors `(batch, beams, ...)`."""

    ids: Tensor  # the last token of each
    tokens: Tensor  # (batch, beams, max_length)
    scores: Tensor
    finished: Tensor
    progress: MaybeProgress


class _Stepwise(Search):
    """The loop; `_choose` says which token each sequence takes."""

    def _choose(self, logits: Tensor, index: Index, request: Request) -> tuple[Tensor, Tensor]:
        raise NotImplementedError

    def start(self, request: Request, prefilled: Prefilled) -> Sequences:
        ids, tokens, scores = (
            ops.repeat(part, self.beams, axis=1) for part in prefilled.sequences(request)
        )
        finished = ops.zeros_like(ids, "bool")
        progress = progress_of(request, tokens, prefilled.length)
        return Sequences(ids, tokens, scores, finished, progress)

    def done(self, hypotheses: Sequences) -> Tensor:
        return ops.all(hypotheses.finished, axis=1)

    def advance(
        self,
        step: Step,
        index: Index,
        hypotheses: Sequences,
        state: Any,
        shared: Any,
        request: Request,
    ) -> tuple[Sequences, Any]:
        ids, tokens, scores, finished, progress = hypotheses
        logits, state = step(ids, index, state, shared, None)
        logits = ops.cast(logits, "float32")
        constraints = self.constraints
        penalized = constraints.penalize(logits, tokens, index, request)
        allowed = constraints.restrict(penalized, tokens, index, request, progress)
        logit, ids = self._choose(allowed, index, request)
        if constraints.repetition_penalty != 1.0 and not constraints.renormalize:
            logit = ops.take_along_axis(logits, ids[..., None], axis=-1)[..., 0]  # the model's own
        gained = self.constraints.log_probabilities(
            allowed, logit, log_normalizer(logits), index, request
        )
        if request.phrases is not None:
            progress = after_each(request, progress, ids)
        ids = ops.where(finished, request.padding_id, ids)
        tokens = write_at(tokens, ids, index)
        ended = constraints.boundaries.ended(ids, tokens, index, request)
        if request.cut_lengths is not None:
            ended = ops.logical_or(ended, (index + 1 >= request.cut_lengths)[:, None])
        hypotheses = Sequences(
            ids,
            tokens,
            scores + ops.where(finished, 0.0, gained),
            ops.logical_or(finished, ended),
            progress,
        )
        return hypotheses, state

    def finish(self, hypotheses: Sequences, length: Index, request: Request) -> Decoded[Tensor]:
        tokens, scores = hypotheses.tokens, hypotheses.scores
        if self.beams == 1:
            tokens, scores = tokens[:, 0], scores[:, 0]
        return {
            "tokens": tokens,
            "scores": scores,
            "lengths": lengths_of(tokens, request.padding_id),
            "finished": self.constraints.boundaries.finished(tokens, request),
        }


@dataclasses.dataclass(frozen=True)
class Greedy(_Stepwise):
    """Takes the most probable token at every step, until END.

    The score of a sequence is its log-probability.

    Args:
        constraints: `Constraints` on what may be chosen.

    Example:
    >>> from keras_transformers.generation import Greedy
    >>> Greedy().beams
    1
    """

    constraints: Constraints = Constraints()
    beams = 1

    def _choose(self, logits: Tensor, index: Index, request: Request) -> tuple[Tensor, Tensor]:
        logit, ids = top_tokens(logits, 1)
        return logit[..., 0], ids[..., 0]


@dataclasses.dataclass(frozen=True)
class Sampling(_Stepwise):
    """Draws every token at random from the model's distribution, sharpened and cut to the probable.

    Logits are divided by the temperature, then cut by `top_k`, then by `top_p`, then by `min_p`;
    what is left is drawn from in proportion. The score of a sequence is its log-probability under
    the model itself, without any of these.

    Args:
        temperature: Above 1 flattens the distribution, below 1 sharpens it.
        top_k: Number of most probable tokens to keep (Fan et al. 2018,
            https://arxiv.org/abs/1805.04833, section 5.4); None keeps all.
        top_p: Keeps the fewest most probable tokens whose probabilities sum to this (Holtzman et
            al. 2020, https://arxiv.org/abs/1904.09751, section 3.1); None keeps all.
        min_p: Keeps tokens at least this share as probable as the most probable one (Nguyen et al.
            2024, https://arxiv.org/abs/2407.01082); None keeps all.
        num_samples: Number of sequences for each source.
        seed: Integer for the same tokens every time; None draws anew with every call. The random
            numbers of a sequence then follow from the seed and its place among the sources alone.
        constraints: `Constraints` on what may be chosen.

    Raises:
        ValueError: If a number is out of its range.

    Example:
    >>> from keras_transformers.generation import Sampling
    >>> Sampling(temperature=0.7, top_p=0.9, num_samples=3, seed=1).beams
    3
    """

    temperature: float = 1.0
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    num_samples: int = 1
    seed: int | None = None
    constraints: Constraints = Constraints()

    def __post_init__(self) -> None:
        wrong = [
            name
            for name, fine in {
                "temperature": is_finite(self.temperature) and self.temperature >= SMALLEST_NORMAL,
                "top_k": self.top_k is None or is_whole(self.top_k, 1),
                "top_p": self.top_p is None or (is_finite(self.top_p) and 0 < self.top_p <= 1),
                "min_p": self.min_p is None or (is_finite(self.min_p) and 0 <= self.min_p <= 1),
                "num_samples": is_whole(self.num_samples, 1),
                "seed": self.seed is None or is_whole(self.seed),
            }.items()
            if not fine
        ]
        if wrong:
            raise ValueError(
                "Sampling: `temperature` must be positive and finite, and at least "
                f"{SMALLEST_NORMAL:.3g}, the smallest normal number of float32; `top_k` and "
                "`num_samples` integers of at least 1, `top_p` in (0, 1] and `min_p` in [0, 1], "
                f"and `seed` an integer from 0 on. Received: {wrong[0]}={vars(self)[wrong[0]]}"
            )

    @property
    def beams(self) -> int:
        return self.num_samples

    def _choose(self, logits: Tensor, index: Index, request: Request) -> tuple[Tensor, Tensor]:
        if self.top_k or self.top_p:
            kept, ids = top_tokens(logits, self._number(logits))
        else:
            kept, ids = logits, None
        weights = self._weights(kept, self.top_p)
        position = drawn(weights, ops.take(request.uniform, index, axis=1))[..., None]
        logit = ops.take_along_axis(kept, position, axis=-1)[..., 0]
        chosen = position if ids is None else ops.take_along_axis(ids, position, axis=-1)
        return logit, chosen[..., 0]

    def _number(self, logits: Tensor) -> Index:
        """How many tokens `top_k` keeps."""
        vocab = number_of(logits)
        if self.top_k is None:
            return vocab
        return min(self.top_k, vocab) if isinstance(vocab, int) else ops.minimum(self.top_k, vocab)

    def probabilities(self, logits: Tensor) -> Tensor:
        """What each token of the vocabulary is drawn with, for logits `(..., vocab)`."""
        vocab = logits.shape[-1]
        weights = self._weights(logits)
        if self.top_k or self.top_p:
            kept, ids = top_tokens(logits, self._number(logits))
            last = _last(self._weights(kept, self.top_p))[..., None]
            least, last_id = (ops.take_along_axis(x, last, axis=-1) for x in (kept, ids))
            # Of equal ones those with the smaller ids come first.
            alike = ops.logical_and(logits == least, ops.arange(vocab, dtype="int32") <= last_id)
            weights = ops.where(ops.logical_or(logits > least, alike), weights, 0.0)
        return weights / ops.sum(weights, axis=-1, keepdims=True)

    def _weights(self, kept: Tensor, top_p: float | None = None) -> Tensor:
        """What is drawn in proportion to: `exp` of `(..., number)`; of sorted ones the `top_p`."""
        weights = ops.exp((kept - ops.max(kept, axis=-1, keepdims=True)) / self.temperature)
        weights = ops.where(kept > MASKED / 2, weights, 0.0)
        if top_p:
            before = ops.cumsum(weights, axis=-1) - weights
            enough = top_p * ops.sum(weights, axis=-1, keepdims=True)
            weights = ops.where(before < enough, weights, 0.0)
        if self.min_p:
            weights = ops.where(weights >= self.min_p, weights, 0.0)  # the largest is 1
        return weights


def drawn(weights: Tensor, uniform: Tensor) -> Tensor:
    """Positions on the last axis, drawn in proportion to weights `(..., number)`.

    Inverse of the cumulative distribution at uniform numbers `(...)`: the same on every backend.
    """
    cumulative = ops.cumsum(weights, axis=-1)
    below = ops.cast(cumulative <= uniform[..., None] * cumulative[..., -1:], "int32")
    # Rounding may carry the number past the last weight that is not zero.
    return ops.minimum(ops.sum(below, axis=-1), _last(weights))


def _last(weights: Tensor) -> Tensor:
    """Position of the last weight that is not zero."""
    positions = ops.where(weights > 0, ops.arange(number_of(weights)), -1)
    return ops.cast(ops.argmax(positions, axis=-1), "int32")
