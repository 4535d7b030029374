"""Claims about published adapters: computed as peft does, and written as peft writes them."""

import json
import pathlib

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from keras_transformers import pretrained
from tests.contract import assert_close, to_numpy
from tests.pretrained.cases import CASES
from tests.pretrained.cases.adapters import ADAPTERS, adapter_tensors
from tests.pretrained.test_published import GOLDEN as CASE_FILES
from tests.pretrained.test_published import Published, inputs_of

GOLDEN = pathlib.Path(__file__).parent.parent / "golden" / "adapters"
CONFIG, TENSORS = "adapter_config.json", "adapter_model.safetensors"


class PublishedAdapter:
    """A base and an adapter as published, and what peft computes with both."""

    def __init__(self, name, folder):
        self.folder = folder / "adapter"
        (folder / "base").mkdir()
        self.folder.mkdir()
        self.base = Published(CASE_FILES / f"{name}.npz", CASES[name], folder / "base")
        self.model = self.base.model
        found = np.load(GOLDEN / f"{name}.npz")
        self.config = json.loads(str(found["config"]))
        self.tensors = adapter_tensors(json.loads(str(found["shapes"])))
        self.expected = found["logits"]
        self.write()

    def write(self, **settings):
        (self.folder / CONFIG).write_text(json.dumps({**self.config, **settings}))
        save_file(self.tensors, self.folder / TENSORS)

    def logits(self):
        rows = len(self.expected)
        inputs, real = inputs_of(self.base)
        inputs = (
            {key: value[:rows] for key, value in inputs.items()}
            if isinstance(inputs, dict)
            else inputs[:rows]
        )
        found = to_numpy(self.model(inputs, training=False))
        return found if real is None or found.ndim < 3 else found[real[:rows]], real

    def check(self):
        logits, real = self.logits()
        rows = len(self.expected)
        expected = self.expected
        if real is not None and expected.ndim == 3:
            expected = expected[real[:rows]]
        assert_close(logits, expected, 1e-5)


@pytest.fixture(params=ADAPTERS)
def published(request, tmp_path):
    return PublishedAdapter(request.param, tmp_path)


def test_a_published_adapter_computes_and_is_written_as_peft_does(published, tmp_path):
    pretrained.load_adapter(published.model, published.folder, "theirs")
    published.check()
    folder = pretrained.save_adapter(published.model, tmp_path / "again", "theirs")
    written = load_file(folder / TENSORS)
    assert written.keys() == published.tensors.keys()
    for name, value in published.tensors.items():
        np.testing.assert_array_equal(written[name], value)
