"""Claims about the last part of a run."""

import json
import time
from types import SimpleNamespace

import tensorflow as tf

from keras_transformers.data.streams import epochs
from recipes.lib.batches import NAME, LastPart


def config(epochs=10, minutes=None, resume=False):
    training = SimpleNamespace(epochs=epochs, minutes=minutes)
    return SimpleNamespace(training=training, run=SimpleNamespace(resume=resume))


def test_it_begins_with_the_epoch_that_has_the_share_behind_it(tmp_path):
    part = LastPart(config(), tmp_path, 0.7)
    part.on_train_begin()
    assert [part.has(epoch) for epoch in range(10)] == [False] * 7 + [True] * 3
    assert json.loads((tmp_path / NAME).read_text()) == {"first_epoch": 7}


def test_minutes_count_as_well(tmp_path):
    part = LastPart(config(minutes=1.0), tmp_path, 0.5)
    assert not part.has(1)
    part.on_train_begin()
    assert not part.has(1)
    part.set_state({"seconds": 31.0})  # of a run that goes on
    assert part.has(2) and not part.has(1)
    assert part.get_state()["seconds"] >= 31


def test_a_run_that_goes_on_has_its_epochs_as_they_were(tmp_path):
    before = LastPart(config(minutes=1.0), tmp_path, 0.5)
    before.set_state({"seconds": 40.0})
    assert before.has(4)
    again = LastPart(config(minutes=1.0, resume=True), tmp_path, 0.5)
    assert again.has(4) and not again.has(3)
    assert not LastPart(config(), tmp_path, 0.5).has(4)  # a new run knows nothing of it


def test_a_pipeline_asks_for_each_epoch_as_it_begins(tmp_path):
    part = LastPart(config(epochs=4), tmp_path, 0.5)
    part._start = time.monotonic()
    made = epochs(lambda epoch: tf.data.Dataset.from_tensors(part.has(epoch)), 1)
    assert [bool(last) for last in made.take(4)] == [False, False, True, True]


def test_the_folder_does_not_change_before_training(tmp_path):
    """As when steps are timed on the data of the first epoch."""
    part = LastPart(config(), tmp_path, 0.0)
    assert part.has(0) and not [*tmp_path.iterdir()]
    part.on_train_begin()
    assert json.loads((tmp_path / NAME).read_text()) == {"first_epoch": 0}
