"""Claims about how devices are asked for, and where variables lie."""

import types

import keras
import pytest

from keras_transformers import distribution
from keras_transformers.distribution.layouts import layout_of
from keras_transformers.models import LanguageModel, Swin, ViT


class Mesh:
    """As much of a mesh as layouts ask for, without its devices."""

    shape, axis_names = (3, 2), ("data", "model")


def axes(path, *shape):
    layouts = distribution.layout_map(Mesh())
    return layout_of(types.SimpleNamespace(path=path, shape=shape), layouts)


def test_devices_are_read_from_text():
    assert distribution.parse("model=2, data=4") == distribution.Devices(data=4, model=2)
    assert distribution.parse("data=8").count == 8
    assert distribution.parse(distribution.Devices(3)) == distribution.Devices(data=3, model=1)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", 'written like "data=8"'),
        ("8", 'written like "data=8"'),
        ("pipe=2", 'written like "data=8"'),
        ("data=2,data=4", "named once"),
        ("data=0", "positive integer"),
        ("data=-1", "positive integer"),
        ("data=two", "positive integer"),
        ("data=²", "positive integer"),
    ],
)
def test_what_is_no_grid_of_devices_is_refused(text, why):
    with pytest.raises(ValueError, match=why):
        distribution.parse(text)


def test_more_devices_than_there_are_are_refused_with_their_number():
    with pytest.raises(ValueError, match="takes 8 devices, but there are 5"):
        distribution.parse("data=4,model=2", available=5)


@pytest.mark.skipif(keras.backend.backend() != "jax", reason="TensorFlow divides its CPU")
def test_distribute_counts_the_devices_of_this_machine():
    with pytest.raises(ValueError, match="but there"):
        with distribution.distribute("data=977"):
            pass


@pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="of TensorFlow")
def test_matrices_are_not_split_on_tensorflow():
    with pytest.raises(ValueError, match="KERAS_BACKEND=jax"):
        with distribution.distribute("data=1,model=2"):
            pass


def test_a_branch_is_split_by_columns_then_by_rows():
    block = "vit/encoder_0/"
    assert axes(f"{block}mixer/query/kernel", 6, 4, 5) == (None, "model", None)
    assert axes(f"{block}mixer/query/bias", 4, 5) == ("model", None)
    assert axes(f"{block}mixer/attention_output/kernel", 4, 5, 6) == ("model", None, None)
    assert axes(f"{block}mixer/attention_output/bias", 6) == (None,)
    assert axes(f"{block}feed_forward/hidden/kernel", 6, 8) == (None, "model")
    assert axes(f"{block}feed_forward/gate/kernel", 6, 8) == (None, "model")
    assert axes(f"{block}feed_forward/output/kernel", 8, 6) == ("model", None)
    assert axes(f"{block}mixer_norm/gamma", 6) == (None,)


def test_a_vocabulary_that_does_not_divide_is_split_by_its_width():
    path = "transformer/source_embedding/token_embedding"
    assert axes(path, 32, 6) == ("model", None)
    assert axes(path, 31, 6) == (None, "model")
    assert axes("transformer/target_embedding/logits_bias", 31) == (None,)


def test_fewer_key_heads_than_devices_are_copied():
    assert axes("lm/decoder_0/mixer/key/kernel", 6, 1, 5) == (None, None, None)
    assert axes("lm/decoder_0/mixer/key/kernel", 6, 2, 5) == (None, "model", None)


def test_heads_that_do_not_divide_are_refused():
    with pytest.raises(ValueError, match="`num_heads` and `mlp_dim` must be multiples of 2"):
        axes("vit/encoder_0/mixer/query/kernel", 6, 3, 5)


def test_models_with_other_blocks_are_refused():
    distribution.layout_map(Mesh(), ViT)
    distribution.layout_map(Mesh(), LanguageModel)
    with pytest.raises(ValueError, match='not in Swin. .* "data=8"'):
        distribution.layout_map(Mesh(), Swin)
