"""Claims about MirroredStrategy: what it is allowed to train is right, the rest is refused."""

import keras
import pytest

from tests.distribution.processes import run

pytestmark = pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="of TensorFlow")
NEAR = 1e-5
REFUSED = {
    "accumulated": "gradient_accumulation_steps",
    "clipnorm": "`clipnorm` clips each replica's gradients before they are added",
    "clipped": "`global_clipnorm` clips each replica's gradients before they are added",
    "clipvalue": "`clipvalue` clips each replica's gradients before they are added",
    "overwritten": "ema_overwrite_frequency",
    "scaled": "loss scaling",
    "compiled": "jit_compile=False",
    "tokens": "SmoothedCrossEntropy is the mean over real tokens",
    "ragged": "drop_remainder=True",
    "indivisible": "a batch of 18 rows does not divide by 4 replicas",
    "keras.distribution": "keras.distribution is set, which the tensorflow backend ignores",
}


def check_refused(found):
    """Each case raised its sentence, before the first step."""
    for case, (said, steps) in found.items():
        assert REFUSED[case] in said
        assert steps == 0


def test_four_replicas_train_what_one_device_trains_or_refuse_before_the_first_step():
    usual = ("clipped", "accumulated", "ragged")
    masks, found, refused = run(
        "tensorflow",
        ("masks", "data=4"),
        ("compare", "vit", "adamw", 0.3, "data=4"),
        ("refusals", "data=4", *usual),
    )
    assert masks == {"devices": 4, "different": 4, "as_one_device": True}
    assert found["data=4"]["weights"] < NEAR < found["one"]["moved"]
    assert len(found["data=4"]["bytes"]) == 4
    assert refused.keys() == {*usual, "keras.distribution"}
    check_refused(refused)


@pytest.mark.slow
def test_everything_that_is_not_right_is_refused_before_the_first_step():
    refused = run("tensorflow", ("refusals", "data=4"))[0]
    assert refused.keys() == REFUSED.keys()
    check_refused(refused)


@pytest.mark.slow
@pytest.mark.parametrize("model, optimizer", [("vit", "muon"), ("text_encoder", "average")])
def test_replicas_train_what_one_device_trains(model, optimizer):
    found = run("tensorflow", ("compare", model, optimizer, 0.3, "data=4"))[0]
    assert found["data=4"]["weights"] < NEAR < found["one"]["moved"]


@pytest.mark.slow
def test_what_is_refused_would_train_something_else():
    found = run("tensorflow", ("unguarded", "data=4"))[0]
    right = {"adamw", "average"}
    assert all((difference < NEAR) == (case in right) for case, difference in found.items()), found


@pytest.mark.slow
def test_a_smaller_last_batch_is_evaluated_as_on_one_device():
    assert run("tensorflow", ("evaluations", "data=4"))[0] < NEAR
