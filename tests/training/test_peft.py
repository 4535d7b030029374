"""Claims about adapters against `peft`: outputs and gradients of LoRA, rsLoRA and DoRA."""

import keras
import numpy as np
import pytest

from keras_transformers.training import add_lora
from tests.adapters import fill
from tests.contract import to_numpy

torch = pytest.importorskip("torch")
peft = pytest.importorskip("peft")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="gradients by a tape"),
]

IDS = np.random.default_rng(0).integers(0, 13, (3, 5))
KINDS = {"lora": {}, "rslora": {"rslora": True}, "dora": {"dora": True}}


class Theirs(torch.nn.Module):
    """A table, and a kernel with a bias."""

    def __init__(self):
        super().__init__()
        self.table = torch.nn.Embedding(13, 7)
        self.dense = torch.nn.Linear(7, 11)

    def forward(self, ids):
        return self.dense(self.table(ids))


def ours():
    ids = keras.Input((5,), dtype="int32")
    x = keras.layers.Embedding(13, 7, name="table")(ids)
    return keras.Model(ids, keras.layers.Dense(11, name="dense")(x))


def matrices(module, name, kind):
    """Their parameters -> names and orientation of ours: `(parameter, transposed)`."""
    layer = getattr(module.base_model.model, name)
    if name == "table":
        found = {"lora_a": layer.lora_embedding_A, "lora_b": layer.lora_embedding_B}
        found = {key: each["default"] for key, each in found.items()}
    else:
        found = {"lora_a": layer.lora_A["default"].weight, "lora_b": layer.lora_B["default"].weight}
    if kind == "dora":
        found["magnitude"] = layer.lora_magnitude_vector["default"].weight
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_outputs_and_gradients_are_those_of_peft(kind):
    import tensorflow as tf

    model, plain = ours(), Theirs()
    plain.table.weight.data = torch.tensor(to_numpy(model.get_layer("table").embeddings))
    plain.dense.weight.data = torch.tensor(to_numpy(model.get_layer("dense").kernel).T)
    plain.dense.bias.data = torch.tensor(to_numpy(model.get_layer("dense").bias))
    add_lora(model, rank=3, alpha=5, targets=("table", "dense"), **KINDS[kind])
    arrays = fill(model)
    config = peft.LoraConfig(
        r=3,
        lora_alpha=5,
        target_modules=["table", "dense"],
        use_dora=kind == "dora",
        use_rslora=kind == "rslora",
    )
    theirs = peft.get_peft_model(plain, config).eval()
    for name, values in arrays.items():
        for key, parameter in matrices(theirs, name, kind).items():
            assert values[key].T.shape == tuple(parameter.shape)
            parameter.data = torch.tensor(values[key].T)
    with tf.GradientTape() as tape:
        y = model(IDS)
        total = tf.reduce_sum(tf.sin(y))
    gradients = tape.gradient(total, [each.value for each in model.trainable_variables])
    expected = theirs(torch.tensor(IDS))
    torch.sin(expected).sum().backward()
    np.testing.assert_allclose(y, expected.detach().numpy(), atol=1e-5)
    for variable, gradient in zip(model.trainable_variables, gradients, strict=True):
        name, _, key = variable.path.split("/")
        parameter = matrices(theirs, name, kind)[key]
        gradient = tf.convert_to_tensor(gradient).numpy()
        np.testing.assert_allclose(gradient, parameter.grad.numpy().T, rtol=1e-4, atol=1e-5)
