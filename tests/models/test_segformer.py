"""Claims about segmentation: `resize_map`, and SegFormer over a pyramid."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_transformers.layers import resize_map
from keras_transformers.models import PVT, SegFormer
from tests.contract import ON_JAX, POLICIES, assert_close, check_layer, to_numpy
from tests.training.test_losses import in_graph

RNG = np.random.default_rng(6)
IMAGES = RNG.normal(size=(2, 40, 52, 3)).astype("float32")


def encoder(classes=None, **kwargs):
    heads = {"num_heads": (1, 1, 2, 2), "reductions": (4, 2, 1, 1), "mlp_ratios": (2, 2, 2, 2)}
    stages = {"hidden_dims": (8, 8, 12, 12), "num_layers": (1, 1, 1, 1)}
    return PVT(classes, (40, 52), **stages, **heads, **kwargs)


def make(**kwargs):
    dtype = {"dtype": kwargs["dtype"]} if "dtype" in kwargs else {}
    return SegFormer(5, encoder(**dtype), decoder_dim=7, **kwargs)


class Wrapped(keras.layers.Layer):
    """The model as a layer's part; its configuration tells whether its encoder is built."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.model = make(name="segformer", dtype=self.dtype_policy)

    def build(self, images_shape):
        self.model.build(images_shape)

    def call(self, images, training=None):
        return self.model(images, training=training)


keras.saving.register_keras_serializable("tests")(Wrapped)


@pytest.mark.slow
def test_contract():
    kept = ("mixed_bfloat16",)
    policies = {} if ON_JAX else {name: POLICIES[name] for name in kept}
    check_layer(Wrapped, (IMAGES,), policies=policies)


@pytest.mark.parametrize("size", [(10, 13), (3, 5), (7, 1), (2, 31)])
def test_a_map_is_resized_as_keras_resizes_images(size):
    x = RNG.normal(size=(2, 3, 5, 4)).astype("float32")
    expected = ops.image.resize(x, size, antialias=False, data_format="channels_last")
    assert_close(resize_map(x, *size), expected, 1e-6)


def test_ignored_pixels_have_no_influence_on_the_loss():
    model = make()
    logits = RNG.normal(size=(2, 10, 13, 5)).astype("float32")
    labels = RNG.integers(0, 5, (2, 40, 52))
    labels[1] = 255
    losses = [
        float(to_numpy(model.compute_loss(y=labels, y_pred=ops.convert_to_tensor(each))))
        for each in (logits, np.stack([logits[0], logits[0] * 50]))
    ]
    assert losses[0] == losses[1]
    chances = np.exp(to_numpy(resize_map(logits[:1], 40, 52))[0].astype("float64"))
    chances /= chances.sum(-1, keepdims=True)
    expected = -np.log(np.take_along_axis(chances, labels[0][..., None], -1)).mean()
    np.testing.assert_allclose(losses[0], expected, rtol=1e-5)
    nothing = model.compute_loss(y=np.full_like(labels, 255), y_pred=ops.convert_to_tensor(logits))
    assert float(to_numpy(nothing)) == 0


def test_a_single_class_is_learned_by_binary_cross_entropy_over_all_pixels():
    model = SegFormer(1, encoder(), decoder_dim=7)
    logits = RNG.normal(size=(2, 10, 13, 1)).astype("float32")
    labels = RNG.integers(0, 2, (2, 10, 13))
    labels[0, :3], labels[1, :2] = 255, -1
    x, real = logits[..., 0].astype("float64"), (labels == 0) | (labels == 1)
    expected = (np.log1p(np.exp(x)) - x * labels)[real].sum() / real.size
    loss = model.compute_loss(y=labels, y_pred=ops.convert_to_tensor(logits))
    np.testing.assert_allclose(float(to_numpy(loss)), expected, rtol=1e-5)


def test_another_task_starts_from_the_same_weights():
    model = make()
    model.build(IMAGES.shape)
    other = model.transferred(num_classes=3)
    assert tuple(other(IMAGES).shape) == (2, 10, 13, 3)
    assert_close(other.fusions[0].kernel, model.fusions[0].kernel, 0)


def test_what_is_no_pyramid_without_classes_is_refused():
    with pytest.raises(ValueError, match="`encoder` must have no classes. Received: num_classes=3"):
        SegFormer(5, encoder(3))
    with pytest.raises(ValueError, match="`encoder` must be a Pyramid"):
        SegFormer(5, "b0")
    with pytest.raises(ValueError, match="`decoder_dim`"):
        SegFormer(5, encoder(), decoder_dim=0)


@pytest.mark.parametrize("label", [-1, 5, 200])
def test_a_label_that_is_no_class_is_refused(label):
    model = make()
    logits = RNG.normal(size=(2, 5, 7, 5)).astype("float32")
    labels = RNG.integers(0, 5, (2, 40, 52))
    labels[1, 3, 4] = label
    with pytest.raises(ValueError, match=rf"labels in \[0, 5\), or the .*255. Received: {label}"):
        model.compute_loss(None, labels, logits)

    def loss(labels, logits):
        return model.compute_loss(None, labels, logits)

    assert np.isnan(to_numpy(in_graph(loss, jit_compile=True)(labels, logits)))
