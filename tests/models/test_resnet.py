"""Claims about the residual network; `test_detr` compares it with a published implementation."""

import numpy as np
import pytest

from keras_transformers.models import ResNet
from tests.contract import (
    ON_JAX,
    POLICIES,
    assert_close,
    check_layer,
    number_of_parameters,
    to_numpy,
)

RNG = np.random.default_rng(3)
IMAGES = RNG.normal(size=(3, 37, 50, 3)).astype("float32")
SETTINGS = {
    "pooled": {"hidden_dim": 5, "num_layers": (1, 2)},
    "convolutions": {
        "hidden_dim": 6,
        "num_layers": (1, 1, 1),
        "bottleneck": False,
        "stem": "convolutions",
        "norm": "group",
    },
    "all stages": {"hidden_dim": 2, "num_layers": (1, 1, 1, 1), "norm": "frozen"},
}


def make(kind, **changes):
    return ResNet(**{"num_classes": 7, **SETTINGS[kind], **changes})


@pytest.mark.parametrize("kind", ["convolutions"] if ON_JAX else SETTINGS)
def test_contract(kind):
    policies = {} if ON_JAX or kind == "all stages" else POLICIES
    check_layer(lambda **kwargs: make(kind, **kwargs), (IMAGES,), policies=policies)


def test_features_are_the_maps_of_all_stages():
    model = make("all stages", num_classes=None)
    whole, maps = model(IMAGES), model.features(IMAGES)
    expected = {"stride_4": (10, 13, 8), "stride_8": (5, 7, 16), "stride_16": (3, 4, 32)}
    expected["stride_32"] = (2, 2, 64)
    assert {name: tuple(x.shape[1:]) for name, x in maps.items()} == expected
    assert_close(whole, to_numpy(maps["stride_32"]).mean(axis=(1, 2)), 1e-6)
    assert make("pooled").strides() == (4, 8)


def test_a_batch_norm_measures_when_the_model_is_trained():
    model = make("pooled")
    model(IMAGES)
    mean = model.encoder_blocks[-1].convolutions[0].norm_layer.moving_mean
    before = to_numpy(mean.value)
    model(IMAGES, training=False)
    assert_close(mean.value, before, 0)
    model(IMAGES, training=True)
    assert np.abs(to_numpy(mean.value) - before).max() > 1e-4


@pytest.mark.parametrize(
    ("name", "expected"),  # as torchvision counts them
    [("18", 11_689_512), ("34", 21_797_672), ("50", 25_557_032), ("101", 44_549_160)],
)
def test_the_number_of_parameters_is_the_published_one(name, expected):
    model = ResNet.from_variant(name)
    measured = number_of_parameters(model, (None, 224, 224, 3))
    moving = [w for w in model.non_trainable_weights if "moving" in w.path]
    assert measured - sum(int(np.prod(w.shape)) for w in moving) == expected


def test_a_trunk_is_handed_over():
    model = make("convolutions")
    model(IMAGES)
    other = model.transferred(num_classes=None)
    assert_close(other(IMAGES), model.represent(IMAGES), 0)


@pytest.mark.parametrize(
    ("make_model", "message"),
    [
        (lambda: ResNet(hidden_dim=0), "`hidden_dim` must be a positive integer"),
        (lambda: ResNet(stem="patches"), "`stem` must be one of pooled, convolutions.*'patches'"),
        (lambda: ResNet(norm="layer"), "`norm` must be one of batch, frozen, group.*'layer'"),
        (lambda: ResNet(num_layers=(1, 0)), r"for each of 1 to 4 stages.*\[1, 0\]"),
        (lambda: ResNet(num_layers=(1,) * 5), "for each of 1 to 4 stages"),
        (lambda: ResNet.from_variant("20"), "must be one of mini, 18, 34, 50, 101.*'20'"),
    ],
)
def test_errors_say_what_was_expected(make_model, message):
    with pytest.raises(ValueError, match=message):
        make_model()
