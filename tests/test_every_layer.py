"""Claims that are made of all public layers."""

import keras
import pytest

from keras_transformers import layers
from tests.contract import call
from tests.every_layer import EVERY

ABSTRACT = {"Score", "AttentionPositionEncoding"}  # bases
# No layers, but what a `RotaryEmbedding` is given.
SCALINGS = {"RotaryScaling", "Llama3Scaling", "YarnScaling", "LongRopeScaling"}


def test_none_is_missing():
    public = {name: getattr(layers, name) for name in layers.__all__}
    kinds = {name for name, one in public.items() if isinstance(one, type)} - SCALINGS
    assert all(issubclass(public[name], keras.layers.Layer) for name in kinds)
    assert kinds - ABSTRACT == set(EVERY)


@pytest.mark.parametrize("name", sorted({*EVERY, *ABSTRACT, *SCALINGS}))
def test_keras_knows_it_by_name(name):
    """So that a file with it can be loaded; the bases of scores and terms are used as they are."""
    kind = getattr(layers, name)
    assert keras.saving.get_registered_name(kind) == f"keras_transformers>{name}"
    assert keras.saving.get_registered_object(f"keras_transformers>{name}") is kind


@pytest.mark.parametrize("name", EVERY)
def test_it_takes_its_inputs(name):
    case = EVERY[name]
    call(case.make(), case.inputs)
