"""Claims about several devices on JAX: they train what one does."""

import importlib.util

import pytest

from tests.distribution.processes import answers, free_port, run, start

pytestmark = pytest.mark.skipif(not importlib.util.find_spec("jax"), reason="needs jax")
GRIDS = ("data=8", "data=4,model=2")
NEAR = 1e-5


def check(found):
    """Weights as on one device; all of them moved; a device of a group holds less."""
    assert found["one"]["moved"] > 1e-3
    one = found["one"]["bytes"]["cpu:0"]
    for grid in GRIDS:
        assert found[grid]["weights"] < NEAR
        assert len(found[grid]["bytes"]) == 8
    for sizes in found[GRIDS[0]]["bytes"].values():
        assert sizes == one
    for sizes in found[GRIDS[1]]["bytes"].values():
        for part in ("weights", "optimizer"):
            assert one[part] / 2 < sizes[part] < 0.7 * one[part]


def test_eight_devices_train_what_one_trains():
    masks, found = run("jax", ("masks", "data=8"), ("compare", "vit", "clipped", 0.0, *GRIDS))
    check(found)
    assert masks == {"devices": 8, "different": 8, "as_one_device": True}


@pytest.mark.slow
@pytest.mark.parametrize("model", ["vit", "transformer", "language_model", "text_encoder"])
def test_dropout_is_that_of_one_device(model):
    found, _ = run("jax", ("compare", model, "clipped", 0.3, *GRIDS), ("masks", "data=4"))
    check(found)
    assert max(found[grid]["key_bias"] for grid in GRIDS) < NEAR


@pytest.mark.slow
@pytest.mark.parametrize("optimizer", ["muon", "accumulated", "overwritten", "scaled"])
def test_every_optimizer_steps_as_on_one_device(optimizer):
    check(run("jax", ("compare", "vit", optimizer, 0.3, *GRIDS))[0])


@pytest.mark.slow
def test_a_smaller_last_batch_is_evaluated_as_on_one_device():
    assert run("jax", ("evaluations", "data=4,model=2"))[0] < NEAR


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "grid", "devices"),
    [
        ("vit", "data=8", 4),
        ("transformer", "data=4,model=2", 4),
        ("language_model", "data=1,model=4", 2),
    ],
)
def test_two_processes_train_and_save_what_one_device_does(model, grid, devices, tmp_path):
    port = free_port()
    both = [
        start("jax", ("host", port, 2, index, model, grid, tmp_path), devices=devices)
        for index in range(2)
    ]
    for process in both:
        assert answers(process, 1)[0]["devices"] == 2 * devices
    found = run("jax", ("alone", model, tmp_path))[0]
    assert max(found["weights"], found["saved"], found["optimizer"]) < NEAR
