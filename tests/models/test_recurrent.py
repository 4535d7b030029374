"""Claims about the recurrent encoder-decoder with attention."""

import keras
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from keras import ops

from keras_transformers.generation import BackPointers, BeamSearch, generate
from keras_transformers.inspection import attention_maps
from keras_transformers.models import RecurrentTranslator
from keras_transformers.training import SmoothedCrossEntropy
from tests.contract import POLICIES, assert_close, check_layer, to_numpy
from tests.oracles import softmax

VOCAB, TARGET_VOCAB, WIDTH, EMBEDDING, BATCH = 31, 37, 14, 11, 3
RNG = np.random.default_rng(0)
SOURCE = RNG.integers(3, VOCAB, (BATCH, 7)).astype("int32")
TARGET = RNG.integers(3, VOCAB, (BATCH, 5)).astype("int32")
SOURCE[1, 4:], TARGET[2, 3:] = 0, 0
INPUTS = {"source": SOURCE, "target": TARGET}


def make(**settings):
    """A model that is built and whose weights, biases included, are all random."""
    model = RecurrentTranslator(VOCAB, WIDTH, EMBEDDING, **settings)
    model.build({"source": (None, None), "target": (None, None)})
    rng = np.random.default_rng(0)
    model.set_weights([rng.normal(size=weight.shape) / 3 for weight in model.get_weights()])
    return model


def call(model, source, target):
    return to_numpy(model({"source": np.asarray(source), "target": np.asarray(target)}))


@pytest.mark.parametrize(
    ("settings", "policies"),
    [({}, POLICIES), ({"target_vocab_size": TARGET_VOCAB, "score": "general"}, {})],
    ids=["additive", "every setting"],
)
def test_contract(settings, policies):
    def make_model(**kwargs):
        return RecurrentTranslator(VOCAB, WIDTH, EMBEDDING, **settings, **kwargs)

    check_layer(make_model, (INPUTS,), policies=policies)


# -------------------------------------------------------------------------------- oracle


class Equations:
    """The network word by word, in float64 and without a batch."""

    def __init__(self, model):
        self.weights = {
            weight.path.split("/", 1)[1]: np.float64(ops.convert_to_numpy(weight))
            for weight in model.weights
        }

    def part(self, name):
        return [value for path, value in self.weights.items() if path.startswith(f"{name}/")]

    def gru(self, weights, x, state):
        """Cho et al. 2014, with the reset gate after the product, as Keras has it."""
        kernel, recurrent, (bias, recurrent_bias) = weights
        x, past = x @ kernel + bias, state @ recurrent + recurrent_bias
        update, reset = (
            1 / (1 + np.exp(-a - b))
            for a, b in zip(np.split(x, 3)[:2], np.split(past, 3)[:2], strict=True)
        )
        new = np.tanh(np.split(x, 3)[2] + reset * np.split(past, 3)[2])
        return update * state + (1 - update) * new

    def read(self, source):
        table = self.weights["source_embedding/token_embedding"]
        both = []
        for direction, ids in (("forward", source), ("backward", source[::-1])):
            weights = self.part(f"encoder/{direction}_gru")
            state, states = np.zeros(WIDTH // 2), []
            for token in ids:
                state = self.gru(weights, table[token], state)
                states.append(state)
            both.append(states if direction == "forward" else states[::-1])
        return np.concatenate(both, axis=1)

    def logits(self, source, target):
        table, encoded = self.weights["source_embedding/token_embedding"], self.read(source)
        kernel, bias = self.part("first_state")
        state = np.tanh(encoded[0, WIDTH // 2 :] @ kernel + bias)
        (vector,) = self.part("attention/score")
        projected = {}
        for name in ("query", "key", "value", "attention_output"):
            projected[name] = self.part(f"attention/{name}")

        def project(name, x):
            kernel, bias = projected[name]
            return x @ kernel[:, 0] + bias[0]

        rows = []
        for token in target:
            pairs = np.tanh(project("query", state) + project("key", encoded))
            weights = softmax(pairs @ vector[0])
            kernel, bias = projected["attention_output"]
            attended = (weights @ project("value", encoded)) @ kernel[0] + bias
            inputs = np.concatenate([table[token], attended])
            state = self.gru(self.part("decoder"), inputs, state)
            kernel, bias = self.part("readout")
            features = np.concatenate([state, attended, table[token]])
            rows.append(np.tanh(features @ kernel + bias) @ table.T)
        return np.array(rows)


def test_logits_are_those_of_the_equations():
    model = make()
    received, equations = call(model, SOURCE, TARGET), Equations(model)
    for row in range(BATCH):
        expected = equations.logits(SOURCE[row][SOURCE[row] > 0], TARGET[row])
        assert_close(received[row], expected, 1e-5)


# ---------------------------------------------------------------------------- properties


def test_padding_adds_nothing():
    model = make()
    padded = call(model, np.pad(SOURCE, ((0, 0), (0, 4))), np.pad(TARGET, ((0, 0), (0, 3))))
    assert_close(padded[:, :5], call(model, SOURCE, TARGET), 1e-6)


@given(cut=st.integers(1, TARGET.shape[1] - 1))
def test_later_target_tokens_cannot_alter_earlier_logits_by_a_single_bit(cut):
    model, changed = make(), TARGET.copy()
    changed[:, cut:] = (changed[:, cut:] + 11) % VOCAB
    before, after = call(model, SOURCE, TARGET), call(model, SOURCE, changed)
    np.testing.assert_array_equal(after[:, :cut], before[:, :cut])
    assert np.any(after[:, cut:] != before[:, cut:])


def test_decoding_step_by_step_gives_the_logits_of_the_whole_also_when_beams_move():
    model, beams, rng = make(), 2, np.random.default_rng(3)
    past = rng.integers(3, VOCAB, (BATCH, beams, 1)).astype("int32")
    state, shared = model.start_decoding(ops.convert_to_tensor(SOURCE), beams, 7, coverage=True)
    back_pointers = None
    for index in range(5):
        ids = ops.convert_to_tensor(past[:, :, index])
        logits, state = model.decode_step(ids, index, state, shared, back_pointers)
        whole = call(model, np.repeat(SOURCE, beams, 0), past.reshape(-1, index + 1))
        assert_close(logits, whole[:, -1].reshape(BATCH, beams, VOCAB), 1e-5)
        parents = rng.integers(0, beams, (BATCH, beams)).astype("int32")
        back_pointers = BackPointers(ops.convert_to_tensor(parents), None)
        new = rng.integers(3, VOCAB, (BATCH, beams, 1)).astype("int32")
        past = np.concatenate([np.take_along_axis(past, parents[..., None], 1), new], axis=2)
    covered = to_numpy(state.coverage)
    real = np.where(SOURCE > 0, 1, 0)[:, None]
    assert_close((covered * real).sum(-1), np.full((BATCH, beams), 5.0), 1e-5)


def test_the_beam_finds_what_scoring_says_it_found():
    model = make()
    found = generate(model, SOURCE, search=BeamSearch(3, 0.0, n_best=2), max_length=6)
    for row in range(BATCH):
        ids = found["tokens"][row, 0][: found["lengths"][row, 0]]
        logits = call(model, SOURCE[row : row + 1], [np.r_[1, ids[:-1]]])[0].astype("float64")
        logp = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
        total = logp[np.arange(len(ids)), ids].sum()
        assert_close(found["log_probabilities"][row, 0], total, 1e-4)


def test_its_alignment_can_be_looked_at():
    model = make()
    (weights,) = attention_maps(model, INPUTS).values()
    assert weights.shape == (BATCH, 1, 5, 7)
    assert_close(weights.sum(-1), np.ones((BATCH, 1, 5)), 1e-5)
    assert not weights[1, :, :, 4:].any()  # padding


# ------------------------------------------------------------------------------ training


@pytest.mark.slow
def test_it_can_learn_one_batch_by_heart():
    model = RecurrentTranslator(VOCAB, 32, dropout=0.0)
    loss = SmoothedCrossEntropy(label_smoothing=0.0)
    model.compile(keras.optimizers.Adam(1e-2), loss, jit_compile=True)
    labels = np.roll(TARGET, -1, axis=1) * (TARGET != 0)
    first = last = float(model.train_on_batch(INPUTS, labels))
    for _ in range(199):
        last = float(model.train_on_batch(INPUTS, labels))
        if last < first / 10:
            break
    assert last < first / 10


@pytest.mark.parametrize(
    ("run", "message"),
    [
        (lambda: RecurrentTranslator(0), "`vocab_size` must be a positive integer.*: 0"),
        (lambda: RecurrentTranslator(5, 7), "`hidden_dim` must be even.*: 7"),
        (lambda: RecurrentTranslator(5, score="none"), "`score` must be one of .*'none'"),
        (lambda: make()({"source": SOURCE}), r"'source' and 'target'.*\['source'\]"),
        (lambda: make()({**INPUTS, "source_segments": SOURCE}), "'source' and 'target'.*segments"),
    ],
)
def test_what_does_not_fit_is_refused(run, message):
    with pytest.raises(ValueError, match=message):
        run()
