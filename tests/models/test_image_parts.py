"""Claims about what stands in the place of the numbers of `ViT` and `Swin`."""

import keras
import numpy as np
import pytest

from keras_transformers import pretrained
from keras_transformers.layers import (
    AttentionPooling,
    ConvolutionalStem,
    EncoderBlock,
    FeedForward,
    FourierMixing,
    GatedFeedForward,
    GridRelativeBias,
    PatchEmbedding,
    SelfAttention,
    SwinBlock,
    WindowAttention,
    resize_positions,
)
from keras_transformers.models import MAE, PVT, ImageEmbedding, ImagePooling, MViT, Swin, ViT
from tests.contract import ON_JAX, assert_close, check_layer

RNG = np.random.default_rng(6)
IMAGES = RNG.normal(size=(2, 16, 24, 3)).astype("float32")
STAGES = {"num_layers": (1, 2, 1, 1), "hidden_dim": 6}


def layer_norm(epsilon):
    return keras.layers.LayerNormalization(epsilon=epsilon)


def vit(**parts):
    return ViT(5, (16, 24), num_layers=2, **parts)


def embedding(**options):
    return ImageEmbedding(ConvolutionalStem(8, 12), **options)


def block(**options):
    gated = {"feed_forward": GatedFeedForward(16, "silu"), "norm": layer_norm(1e-3)}
    return EncoderBlock(3, norm_first=True, **gated, **options)


def blocks(window=3):
    mixers = [WindowAttention(heads, window) for heads in (1, 2, 3)] + [FourierMixing()]
    sizes = [None] * 3 + [window]
    return [
        SwinBlock(mixer=mixer, mlp_dim=7 + stage, window_size=size, dropout=0.1)
        for stage, (mixer, size) in enumerate(zip(mixers, sizes, strict=True))
    ]


MODELS = {
    "vit": lambda **kwargs: vit(
        embedding=embedding(positions="sinusoidal"), block=block(drop_path=0.1), **kwargs
    ),
    "pooling": lambda **kwargs: vit(
        embedding=embedding(class_token=False),
        block=block(),
        pooling=ImagePooling(AttentionPooling(2, 9), representation_dim=7),
        **kwargs,
    ),
    "distilled": lambda **kwargs: vit(
        embedding=ImageEmbedding(PatchEmbedding(8, 12), distillation_token=True),
        block=block(),
        pooling="distilled",
        **kwargs,
    ),
    "swin": lambda **kwargs: Swin(5, (16, 24), blocks=blocks(), drop_path=0.1, **STAGES, **kwargs),
}


@pytest.mark.parametrize("name", ["vit"] if ON_JAX else MODELS)
def test_contract(name):
    check_layer(lambda **kwargs: MODELS[name](**kwargs), (IMAGES,), policies={})


def test_parts_of_a_vit_compute_what_its_numbers_do():
    numbers = ViT(5, (16, 24), 8, 12, 3, 17, 2)
    attention = SelfAttention(3)
    network = FeedForward(17, "gelu")
    same = EncoderBlock(mixer=attention, feed_forward=network, norm_first=True)
    parts = vit(embedding=ImageEmbedding(PatchEmbedding(8, 12)), block=same)
    for model in (numbers, parts):
        model.build(IMAGES.shape)
    parts.set_weights(numbers.get_weights())
    assert [x.path.split("/")[1:] for x in parts.weights] == [
        x.path.split("/")[1:] for x in numbers.weights
    ]
    assert_close(parts(IMAGES), numbers(IMAGES), 0)


def test_keywords_make_these_parts():
    words = {"dropout": 0.1, "drop_path": 0.2, "norm_epsilon": 1e-3, "layer_scale": 0.3}
    words |= {"attention_dropout": 0.4, "qkv_bias": False, "activation": "relu"}
    sizes = {"hidden_dim": 12, "num_heads": 3, "mlp_dim": 17, "num_layers": 3}
    model = ViT.from_variant("B/8", 5, image_size=16, stem="shifted", **words, **sizes)
    made = model.block.layer
    model.build((None, 16, 16, 3))
    assert [each.drop_path for each in model.encoder_blocks] == [0, 0.1, 0.2]
    mixer, network = model.encoder_blocks[0].mixer, model.encoder_blocks[0].feed_forward
    assert (made.dropout, made.layer_scale, model.dropout_layer.rate) == (0.1, 0.3, 0.1)
    assert (mixer.num_heads, mixer.dropout, mixer.use_bias) == (3, 0.4, "output")
    assert network.mlp_dim == 17 and network.activation is keras.activations.relu
    assert model.norm.epsilon == model.encoder_blocks[1].mixer_norm.epsilon == 1e-3
    assert type(model.embedding.patch_embedding).__name__ == "ShiftedPatchEmbedding"


def test_keywords_make_the_blocks_of_a_swin():
    words = {"mlp_ratio": 2, "mask_padding": False, "dropout": 0.1, "norm_epsilon": 1e-3}
    words |= {"qkv_bias": False, "activation": "relu", "pretrained_window_size": (5, 4, None, 2)}
    model = Swin.from_variant("mini", 5, image_size=32, version=2, window_size=3, **words)
    model.build((None, 32, 32, 3))
    first = [model.encoder_blocks[2 * stage] for stage in range(4)]
    assert [each.mixer.pretrained_window_size for each in first] == [5, 4, None, 2]
    assert [each.feed_forward.mlp_dim for each in first] == [64, 128, 256, 512]
    assert [each.window_size for each in first] == [(3, 3), (3, 3), (2, 2), (1, 1)]
    made = first[1]
    assert (made.norm_first, made.mask_padding, made.dropout) == (False, False, 0.1)
    assert made.feed_forward.activation is keras.activations.relu
    assert model.norm.epsilon == model.mergings[0].norm.epsilon == made.mixer_norm.epsilon == 1e-3


def test_blocks_of_a_swin_are_shifted_and_their_windows_fit():
    model = Swin(5, (32, 64), blocks=blocks(window=4), **STAGES)
    assert [each.shift for each in model.encoder_blocks] == [(0, 0), (0, 0), (0, 2), (0, 0), (0, 0)]
    assert [each.window_size for each in model.encoder_blocks[2:]] == [(4, 4), (2, 4), (1, 2)]
    larger = MODELS["swin"]()
    larger.build((None, 16, 24, 3))
    larger = larger.transferred(image_size=96, dropout=0.2)
    assert larger.encoder_blocks[-1].window_size == (3, 3)
    assert larger.encoder_blocks[0].dropout == 0.2
    wider = larger.transferred(window_size=5)
    assert [each.window_size for each in wider.encoder_blocks[:2]] == [(5, 5), (5, 5)]
    assert wider.encoder_blocks[0].dropout == 0.2


def test_windows_and_rates_of_numbers_may_change_at_once():
    model = Swin(5, 32, num_heads=(1, 2, 3, 4), window_size=3, **STAGES)
    model.build((None, 32, 32, 3))
    other = model.transferred(window_size=4, dropout=0.2, drop_path=0.1)
    assert other.encoder_blocks[0].window_size == (4, 4)
    assert other.encoder_blocks[-1].dropout == 0.2
    assert other.encoder_blocks[-1].drop_path == 0.1


def test_all_norms_of_a_swin_are_like_those_of_its_blocks():
    made = [
        SwinBlock(heads, 3, mlp_dim=7, norm=keras.layers.RMSNormalization())
        for heads in (1, 2, 3, 4)
    ]
    model = Swin(5, 32, blocks=made, **STAGES)
    model.build((None, 32, 32, 3))
    norms = [model.embedding_norm, model.norm, *(merging.norm for merging in model.mergings)]
    assert all(isinstance(norm, keras.layers.RMSNormalization) for norm in norms)


def test_biases_of_a_vit_are_resized_with_its_images():
    """As in BEiT, with and without another dropout, which makes blocks anew."""
    block = EncoderBlock(
        mixer=SelfAttention(2, position=GridRelativeBias((2, 3), 1)), mlp_dim=7, norm_first=True
    )
    embedding = ImageEmbedding(PatchEmbedding(4, 6), positions=None)
    model = ViT(3, (8, 12), num_layers=2, block=block, embedding=embedding)
    model.build((None, 8, 12, 3))
    tables = [weight for weight in model.weights if weight.path.endswith("relative_bias")]
    for table in tables:
        table.assign(np.random.default_rng(0).normal(size=table.shape))
    for changes in ({}, {"dropout": 0.1}):
        larger = model.transferred(image_size=(16, 20), **changes)
        assert tuple(larger(np.zeros((2, 16, 20, 3), "float32")).shape) == (2, 3)
        found = [weight for weight in larger.weights if weight.path.endswith("relative_bias")]
        for one, other in zip(tables, found, strict=True):
            offsets = resize_positions(one[:-3], (3, 5), (7, 9))
            np.testing.assert_allclose(other[:-3], offsets, atol=1e-6)
            np.testing.assert_array_equal(other[-3:], one[-3:])


def test_a_transferred_vit_keeps_its_parts():
    model = MODELS["vit"]()
    model.build((None, 16, 24, 3))
    other = model.transferred(num_classes=3, drop_path=0.3, pooling="mean")
    assert other.embedding.class_token is not None and other.encoder_blocks[1].drop_path == 0.3
    assert_close(other.encode(IMAGES), model.encode(IMAGES), 0)


def test_an_autoencoders_decoder_has_the_encoders_norm_and_activation():
    words = {"norm_epsilon": 1e-3, "activation": "relu", "qkv_bias": False}
    sizes = {"hidden_dim": 12, "num_heads": 3, "mlp_dim": 17, "num_layers": 1}
    encoder = ViT.from_variant("B/8", None, image_size=16, **words, **sizes)
    model = MAE(encoder, decoder_dim=8, decoder_heads=2, decoder_layers=1)
    model.build((None, 16, 16, 3))
    made = model.decoder_blocks[0]
    assert made.feed_forward.activation is keras.activations.relu
    assert made.mixer.use_bias == "output" and made.mixer.num_heads == 2
    assert model.decoder_norm.epsilon == made.mixer_norm.epsilon == 1e-3


def test_a_block_stands_in_the_place_of_the_decoders_numbers(tmp_path):
    encoder = ViT(None, 16, 8, 12, 3, 17, 1)
    model = MAE(encoder, decoder_dim=12, decoder_layers=2, decoder_block=block())
    model.build((None, 16, 16, 3))
    assert isinstance(model.decoder_blocks[1].feed_forward, GatedFeedForward)
    assert model.decoder_norm.epsilon == 1e-3
    model.save(tmp_path / "mae.keras")
    loaded, noise = keras.models.load_model(tmp_path / "mae.keras"), RNG.random((2, 4))
    images = IMAGES[:, :, :16]
    for one, other in zip(
        loaded.reconstruct(images, noise).values(),
        model.reconstruct(images, noise).values(),
        strict=True,
    ):
        assert_close(one, other, 0)
    with pytest.raises(ValueError, match=r"\[0\].feed_forward=FeedForward. Received: Gated"):
        pretrained.save(model, tmp_path)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: ViT(5, 16, block=block(), num_heads=3), "`num_heads` must be left out beside `bl"),
        (lambda: vit(embedding=embedding(), patch_size=8), "`patch_size` must be left out beside"),
        (lambda: ViT(5, 16, block=FourierMixing()), "`block` must be an EncoderBlock"),
        (lambda: vit(embedding=PatchEmbedding(8, 12)), "`embedding` must be an ImageEmbedding"),
        (lambda: vit(embedding=embedding(class_token=False)), '"token" needs a class token'),
        (lambda: vit(pooling="distilled", embedding=embedding()), "needs a distillation token"),
        (lambda: ViT(None, 16, pooling="distilled"), '"distilled" needs classes'),
        (lambda: vit(pooling="max"), "`pooling` must be one of token, mean, distilled or a layer"),
        (lambda: ImagePooling("distilled", 7), "`representation_dim` must be None"),
        (lambda: ImagePooling(representation_dim=0), "`representation_dim` must be a positive"),
        (lambda: embedding(positions="rotary"), "`positions` must be one of learned, sinusoidal"),
        (lambda: ImageEmbedding(FourierMixing()), "`stem` must be a ToPatches"),
        (
            lambda: ViT.from_variant("B/8", block=block(), dropout=0.1),
            "`dropout` must be left out beside `block`",
        ),
        (
            lambda: ViT.from_variant("B/8", embedding=embedding(), stem="shifted"),
            "`stem` must be left out beside `embedding`",
        ),
        (
            lambda: ViT.from_variant("B/8", pooling=ImagePooling(), representation_dim=3),
            "`representation_dim` must be left out beside `pooling`",
        ),
        (
            lambda: ViT.from_variant("B/8", pooling="mean", distillation="token"),
            '`distillation` needs `pooling`="token"',
        ),
        (lambda: ViT.from_variant("B/8", depth=3), "`depth` is called `num_layers` here"),
        (lambda: ViT.from_variant("B/8", heads_of=3), "`heads_of` is no argument"),
        (lambda: Swin(blocks=blocks(), version=2), "`version` must be left out beside `blocks`"),
        (lambda: Swin(blocks=blocks()[:3]), "`blocks` must be a `SwinBlock` for each of 4 stages"),
        (lambda: Swin(blocks=[block()] * 4), "`blocks` must be a SwinBlock"),
        (
            lambda: Swin.from_variant("T", blocks=blocks(), mlp_ratio=2),
            "`mlp_ratio` must be left out beside `blocks`",
        ),
        (lambda: Swin.from_variant("T", depths=3), "`depths` is no argument"),
        (
            lambda: MAE(ViT(None), decoder_heads=2, decoder_block=block()),
            "`decoder_heads` must be left out beside `decoder_block`",
        ),
        (lambda: PVT.from_variant("b0", depth=3), "`depth` is called `num_layers` here"),
        (lambda: MViT.from_variant("T", colour=3), "`colour` is no argument"),
        (lambda: MAE.from_variant("mini/4", colour=3), "`colour` is no argument"),
    ],
)
def test_errors_say_what_was_expected(call, message):
    with pytest.raises(ValueError, match=message):
        call()
