"""What stands in the place of KerasHub's samplers in its own tests."""

import numpy as np
from keras import ops

from keras_transformers.generation import (
    BeamSearch,
    Boundaries,
    Constraints,
    Greedy,
    Request,
    Sampling,
)

PADDING = -1
NO_END = 26  # the id behind the letters of their tests, which has no probability


class Sampler:
    """One of our searches, called as a sampler is."""

    def __init__(self, make, **options):
        self.make, self.options = make, options

    def __call__(self, next, prompt, cache=None, index=0, stop_token_ids=()):
        ends = Constraints(boundaries=Boundaries(ends=tuple(stop_token_ids)))
        search = self.make(constraints=ends, **self.options)
        batch, length = prompt.shape
        forced = ops.where(ops.arange(length) < index, prompt, PADDING)
        uniform = np.random.default_rng(0).random((batch, length, search.beams), "float32")
        request = Request(
            ops.cast(forced, "int32"),
            start_id=0,
            end_id=NO_END,
            padding_id=PADDING,
            uniform=ops.convert_to_tensor(uniform),
        )
        flat = ops.repeat(prompt, search.beams, axis=0)
        state = {} if cache is None else {"cache": ops.repeat(cache, search.beams, axis=0)}

        def step(ids, index, state, shared, back_pointers):
            logits, _, cache = next(flat, state.get("cache"), index)
            logits = ops.broadcast_to(logits, (flat.shape[0], logits.shape[-1]))
            logits = ops.reshape(ops.cast(logits, "float32"), (batch, search.beams, -1))
            assert logits.shape[-1] == NO_END
            logits = ops.pad(logits, ((0, 0), (0, 0), (0, 1)), constant_values=-np.inf)
            return logits, state if cache is None else {"cache": cache}

        found = search(step, state, request)
        tokens = found["tokens"]
        kept = prompt if len(tokens.shape) == 2 else prompt[:, None]
        tokens = ops.where(tokens == PADDING, ops.cast(kept, tokens.dtype), tokens)
        return (tokens, found["scores"]) if len(tokens.shape) == 3 else tokens


def GreedySampler(temperature=1.0):
    return Sampler(Greedy)  # the temperature changes nothing


def RandomSampler(temperature=1.0):
    return Sampler(Sampling, temperature=temperature)


def TopKSampler(k=5, temperature=1.0):
    return Sampler(Sampling, top_k=k, temperature=temperature)


def TopPSampler(p=0.1, k=None, temperature=1.0):
    return Sampler(Sampling, top_p=p, top_k=k, temperature=temperature)


def BeamSampler(num_beams=5, return_all_beams=False, temperature=1.0):
    n_best = num_beams if return_all_beams else 1
    return Sampler(BeamSearch, beam_size=num_beams, n_best=n_best, length_penalty=0.0)
