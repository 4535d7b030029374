"""A model made by hand, whose every sequence can be enumerated.

A `table` `(batch, STATES, VOCAB)` of logits stands for the model. What comes next depends on the
whole sequence so far: its tokens are folded into a number, the state, that picks the row. The state
is kept twice, once beside the beams and once in slots that are never moved, as a cache is; a search
that mixes up either gets the logits of a state that does not exist.
"""

import functools
import itertools
from typing import Any, NamedTuple

import keras
import numpy as np
from hypothesis import strategies as st
from keras import ops

from keras_transformers.generation import Request

START, END, VOCAB, LENGTH, STATES, BATCH = 1, 2, 5, 5, 101, 2
WORDS = (3, 4)  # the others are padding, START and END
SOURCE_LENGTH = 3  # for coverage
ATTENTION = np.random.default_rng(7).dirichlet(np.ones(SOURCE_LENGTH), STATES).astype("float32")
seeds = st.integers(0, 10_000)


def next_state(state, token):
    return (7 * state + token) % STATES


def random_table(seed, batch=BATCH, end=0.0):
    """Random logits; padding and START are impossible, `end` is added to END's."""
    table = np.random.default_rng(seed).normal(0, 2, (batch, STATES, VOCAB)).astype("float32")
    table[..., : START + 1] = -2e9
    table[..., END] += end
    return table


def states_of(tokens):
    """The state before each token of a sequence."""
    return list(itertools.accumulate(tokens[:-1], next_state, initial=next_state(0, START)))


def log_probability(table, tokens):
    """Log-probability of one sequence under the table of one batch element, in float64."""
    rows = np.float64(table[states_of(tokens)])
    rows -= rows.max(axis=-1, keepdims=True)
    chosen = rows[np.arange(len(tokens)), list(tokens)]
    return float(np.sum(chosen - np.log(np.exp(rows).sum(axis=-1))))


def coverage(tokens):
    """How much each source token was attended to."""
    return np.sum(np.float64(ATTENTION)[states_of(tokens)], axis=0)


def every_sequence(length=LENGTH):
    """All sequences of at most `length` tokens that end."""
    return [
        (*words, END) for size in range(length) for words in itertools.product(WORDS, repeat=size)
    ]


class ToyState(NamedTuple):
    folded: Any
    slots: Any
    coverage: Any


def toy_step(table, beams, max_length):
    """The step function of a table, and its first state."""
    batch = table.shape[0]
    flat = ops.reshape(table, (batch * STATES, VOCAB))
    shape = (batch, beams)
    row = ops.broadcast_to(ops.arange(batch)[:, None], shape)
    start = ToyState(
        folded=ops.zeros(shape, "int32"),
        slots=ops.zeros((*shape, max_length), "int32"),
        coverage=ops.zeros((*shape, SOURCE_LENGTH)),
    )

    def step(ids, index, state, shared, back_pointers):
        folded, slots, covered = state
        stored = ops.where(ops.arange(max_length) == index, ids[..., None], slots)
        past = stored
        if back_pointers is not None:
            folded = ops.take_along_axis(folded, back_pointers.parents, axis=1)
            covered = ops.take_along_axis(covered, back_pointers.parents[..., None], axis=1)
            past = ops.take_along_axis(stored, back_pointers.slots, axis=1)
        folded = next_state(folded, ids)
        again = ops.zeros_like(folded)
        for position in range(max_length):
            again = ops.where(position <= index, next_state(again, past[..., position]), again)
        logits = ops.take(flat, shared * STATES + folded, axis=0)
        logits = ops.where((folded == again)[..., None], logits, 0.0)
        covered = covered + ops.take(ops.convert_to_tensor(ATTENTION), folded, axis=0)
        return logits, ToyState(folded, stored, covered)

    return step, start, row


@functools.cache
def searcher(search, names, stages=1, compiled=True, padding_id=0):
    """`search` over tables, compiled by XLA; TensorFlow can do without."""

    def run(table, forced, *others):
        named = dict(zip(names, others, strict=True))
        request = Request(forced, START, END, padding_id=padding_id, **named)
        step, state, shared = toy_step(table, search.beams, forced.shape[1])
        return search(step, state, request, shared, stages)

    if keras.backend.backend() == "jax":
        import jax

        return jax.jit(run)
    if not compiled:
        return run
    import tensorflow as tf

    return tf.function(run, jit_compile=True)


def find(search, table, forced=None, max_length=LENGTH, stages=1, compiled=True, **others):
    """What a search finds; `others` are further fields of `Request`."""
    forced = np.zeros((len(table), max_length), "int32") if forced is None else forced
    run = searcher(search, tuple(others), stages, compiled)
    result = run(*(ops.convert_to_tensor(each) for each in (table, forced, *others.values())))
    return {name: ops.convert_to_numpy(value) for name, value in result.items()}


def words_of(tokens):
    """A row of tokens as a tuple, without padding, which must come last."""
    length = np.count_nonzero(tokens)
    assert not np.any(tokens[length:])
    return tuple(tokens[:length].tolist())


def penalty(length, alpha):
    return ((5 + length) / 6) ** alpha
