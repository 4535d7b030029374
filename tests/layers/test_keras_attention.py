"""Claims about our attention beside Keras's, and its configuration."""

import keras
import numpy as np
import pytest

from keras_transformers.layers import CrossAttention, MultiHeadAttention
from tests.contract import assert_close, to_numpy

RNG = np.random.default_rng(0)
X = RNG.normal(size=(3, 5, 22)).astype("float32")
CONTEXT = RNG.normal(size=(3, 7, 13)).astype("float32")
SETTINGS = {
    "plain": {},
    "widths": {"value_dim": 5, "output_shape": 9, "use_bias": False},
    "regularised": {
        "kernel_regularizer": "l2",
        "bias_regularizer": keras.regularizers.L1(0.1),
        "kernel_constraint": "non_neg",
        "bias_constraint": keras.constraints.MaxNorm(0.5),
        "bias_initializer": "ones",
    },
    "as a tuple": {"output_shape": (9,), "attention_axes": (1,), "dropout": 0.1, "seed": 3},
}


@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)
def test_the_configuration_of_kerass_layer_makes_the_same_layer(settings):
    theirs = keras.layers.MultiHeadAttention(3, 4, **settings, dtype="float32", name="mine")
    expected = theirs(X, CONTEXT)
    ours = MultiHeadAttention.from_config(theirs.get_config())
    ours.build(X.shape, CONTEXT.shape)
    assert ours.name == "mine"
    ours.set_weights(theirs.get_weights())
    assert_close(ours(X, CONTEXT), expected, 1e-6)
    losses = [sum(to_numpy(layer.losses)) for layer in (theirs, ours)]
    np.testing.assert_allclose(losses[1], losses[0], rtol=1e-6)
    for one, other in zip(ours.trainable_variables, theirs.trainable_variables, strict=True):
        assert type(one.constraint) is type(other.constraint)
    again = MultiHeadAttention.from_config(ours.get_config())
    assert again.get_config() == ours.get_config()


@pytest.mark.parametrize(
    "unknown",
    [{"attention_axes": (1, 2)}, {"activity_regularizer": "l2"}],
    ids=["axes", "activity"],
)
def test_what_ours_cannot_do_is_refused_by_name(unknown):
    config = keras.layers.MultiHeadAttention(3, 4, **unknown).get_config()
    (name,) = unknown
    with pytest.raises(ValueError, match=f"CrossAttention.from_config: `{name}` must be None"):
        CrossAttention.from_config(config)


def test_masks_may_be_lists():
    layer = MultiHeadAttention(2, 4)
    mask = RNG.random((3, 5, 7)) < 0.6
    expected = layer(X, CONTEXT, attention_mask=mask)
    assert_close(layer(X, CONTEXT, attention_mask=mask.tolist()), expected, 0)
    assert_close(layer(X, CONTEXT, attention_mask=mask.astype(int).tolist()), expected, 0)


def test_shapes_that_a_call_refuses_are_refused_where_they_are_asked_about():
    layer, shapes = MultiHeadAttention(2, 4), (X.shape, CONTEXT.shape, (3, 6, 13))
    expected = "`key` must be as long as `value`, 7. Received: length 6"
    with pytest.raises(ValueError, match=expected):
        layer(*(np.zeros(shape, "float32") for shape in shapes))
    for ask in (MultiHeadAttention(2, 4).build, MultiHeadAttention(2, 4).compute_output_shape):
        with pytest.raises(ValueError, match=expected):
            ask(*shapes)
    with pytest.raises(ValueError, match=r"`key` must be of shape \(batch, length, width\)"):
        layer.compute_output_shape(X.shape, CONTEXT.shape, (13,))
    unknown = (X.shape, CONTEXT.shape, (3, None, 13))
    assert layer.compute_output_shape(*unknown) == X.shape


@pytest.mark.parametrize("rank", [2, 4])
def test_inputs_of_other_ranks_are_refused(rank):
    x = np.zeros((2, 3, 5, 8)[-rank:], "float32")
    with pytest.raises(ValueError, match=r"`query` must be of shape \(batch, length, width\)"):
        MultiHeadAttention(2, 4)(x, x)
    with pytest.raises(ValueError, match="`output_shape` must be a positive integer"):
        MultiHeadAttention(2, 4, output_shape=(3, 4))
