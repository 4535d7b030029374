"""Claims about layers that are given to other layers, and come back from files."""

import json

import keras
import numpy as np
import pytest

from keras_transformers import layers, models
from keras_transformers.layers import (
    EncoderBlock,
    GeneralScore,
    LSTMMixing,
    RotaryEmbedding,
    SelfAttention,
)
from keras_transformers.layers.parts import serialized
from tests.contract import ON_JAX, assert_close, call, dtype_of, shapes_of, sublayers, to_numpy
from tests.every_layer import EVERY

X = np.random.default_rng(0).normal(size=(2, 6, 8)).astype("float32")


@pytest.mark.skipif(ON_JAX, reason="Keras reads files alike, and each load takes seconds")
@pytest.mark.parametrize(
    "mixer",
    [SelfAttention(2, score=GeneralScore(), position=RotaryEmbedding()), LSTMMixing(grid=(2, 3))],
    ids=["attention", "lstm"],
)
def test_a_stack_of_parts_can_be_loaded_again_and_again(mixer, tmp_path):
    x = y = keras.Input(X.shape[1:])
    for _ in range(6):
        y = EncoderBlock(None, 13, mixer=mixer)(y)
    model = keras.Model(x, y)
    model.save(tmp_path / "model.keras")
    for _ in range(4):
        loaded = keras.models.load_model(tmp_path / "model.keras")
        assert_close(loaded(X), model(X), 0)


def test_marks_of_shared_objects_are_left_out():
    """While it loads a file, Keras puts them on what came to lie where something else had lain."""
    config = {"config": {"score": {"shared_object_id": 7, "config": {}}, "sizes": [1, (2, 3)]}}
    expected = {"config": {"score": {"config": {}}, "sizes": [1, (2, 3)]}}
    assert serialized({**config, "shared_object_id": 7}) == expected


def built(layer, *shapes):
    """The layer, built, whose weights are no initial ones."""
    layer.build(*shapes)
    layer.set_weights([weight + 1 for weight in layer.get_weights()])
    return layer


TOKENS, IMAGES = (None, 6, 8), (None, 8, 8, 3)
SIZES = {"num_heads": 2, "mlp_dim": 7}


def block(kind=EncoderBlock):
    return built(kind(2, 7), TOKENS)


def vit(**kwargs):
    return models.ViT(None, 8, 4, hidden_dim=8, num_layers=1, **SIZES, **kwargs)


def texts(**kwargs):
    head = models.EndPooling(3)
    return models.TextEncoder(13, 8, **SIZES, num_layers=1, head=head, **kwargs)


# An owner, and the argument in which it is given a part that has weights already.
GIVEN_BUILT = {
    "mixer": lambda: EncoderBlock(mlp_dim=7, mixer=built(SelfAttention(2), TOKENS)),
    "feed_forward": lambda: EncoderBlock(2, feed_forward=built(layers.FeedForward(7), TOKENS)),
    "cross_attention": lambda: layers.DecoderBlock(
        2, 7, cross_attention=built(layers.CrossAttention(2), TOKENS, TOKENS)
    ),
    "score": lambda: SelfAttention(
        2, score=built(GeneralScore(), (None, 2, 6, 4), (None, 2, 6, 4))
    ),
    "position": lambda: SelfAttention(
        2, position=built(layers.RelativePositionBias(8, 6), (None, 2, 6, 4))
    ),
    "norm of a table": lambda: layers.PositionEmbedding(9, norm=built(norm(), TOKENS)),
    "embedding of a Transformer": lambda: models.Transformer(
        embedding=built(layers.TokenEmbedding(13, 8)), **SIZES
    ),
    "encoder_block": lambda: models.Transformer(13, 8, **SIZES, encoder_block=block()),
    "decoder_block": lambda: models.Transformer(
        13, 8, **SIZES, decoder_block=block(layers.DecoderBlock)
    ),
    "positions": lambda: models.Transformer(
        13, 8, **SIZES, positions=built(layers.PositionEmbedding(9), TOKENS)
    ),
    "block of a ViT": lambda: models.ViT(3, 8, 4, hidden_dim=8, block=block()),
    "embedding of a ViT": lambda: models.ViT(
        3, 8, embedding=built(vit().embedding, IMAGES), **SIZES
    ),
    "pooling": lambda: models.ViT(
        3, 8, 4, 8, **SIZES, pooling=built(layers.AttentionPooling(2, 7), TOKENS)
    ),
    "block of a TextEncoder": lambda: models.TextEncoder(13, 8, block=block()),
    "head": lambda: models.TextEncoder(
        13, 8, **SIZES, head=built(models.ClassificationHead(3), TOKENS)
    ),
    "block of a LanguageModel": lambda: models.LanguageModel(
        13, 8, block=block(layers.DecoderBlock)
    ),
    "blocks of a Swin": lambda: models.Swin(
        3, 8, 2, 8, (1,), blocks=[built(layers.SwinBlock(2, 2, 7), (None, 4, 4, 8))]
    ),
    "encoder of an MAE": lambda: models.MAE(built(vit(), IMAGES), 8, 2, 7, 1),
    "image_encoder": lambda: models.DualEncoder(built(vit(), IMAGES), texts(), 5),
    "text_encoder": lambda: models.DualEncoder(vit(), built(texts(), (None, None)), 5),
    "queries": lambda: models.DETR(2, queries=built(models.LearnedQueries(5), TOKENS)),
}


def norm(**kwargs):
    return keras.layers.LayerNormalization(**kwargs)


@pytest.mark.parametrize("kind", GIVEN_BUILT)
def test_a_part_with_weights_is_refused_with_what_to_do(kind):
    with pytest.raises(ValueError, match=r"a layer that is not built.*from_config.*set_weights"):
        GIVEN_BUILT[kind]()


def test_what_the_error_says_begins_with_the_weights_of_a_part():
    trained = built(layers.TokenEmbedding(13, 8), (None, None))
    part = layers.TokenEmbedding.from_config(trained.get_config())
    model = models.Transformer(embedding=part, **SIZES, num_layers=1)
    model.build({"source": (None, None), "target": (None, None)})
    model.source_embedding.set_weights(trained.get_weights())
    assert_close(model.target_embedding.get_weights(), trained.get_weights(), 0)


def test_a_functional_model_is_copied_with_its_weights():
    """It has weights as soon as it is made, and so has its copy."""
    x = keras.Input((None, 8))
    network = keras.Model(x, keras.layers.Dense(8, "relu")(x))
    model = models.ViT(3, 8, 4, 8, num_layers=2, block=EncoderBlock(2, feed_forward=network))
    model.build(IMAGES)
    for each in model.encoder_blocks:
        assert each.feed_forward is not network
        assert_close(each.feed_forward.get_weights(), network.get_weights(), 0)


# A layer of the given policy with a part in float32, the part, and inputs.
PRECISE = {
    "mixer": (lambda **kw: EncoderBlock(mlp_dim=7, mixer=SelfAttention(2, **F32), **kw), "mixer"),
    "feed_forward": (
        lambda **kw: EncoderBlock(2, feed_forward=layers.FeedForward(7, **F32), **kw),
        "feed_forward",
    ),
    "norm": (lambda **kw: EncoderBlock(2, 7, norm=norm(**F32), **kw), "mixer_norm"),
    "norm before": (
        lambda **kw: EncoderBlock(2, 7, norm=norm(**F32), norm_first=True, **kw),
        "feed_forward_norm",
    ),
    "norm of both sides": (
        lambda **kw: layers.SandwichDecoderBlock(2, 7, norm=norm(**F32), **kw),
        "mixer_output_norm",
    ),
    "scale": (
        lambda **kw: EncoderBlock(2, 7, norm=norm(**F32), layer_scale=0.5, **kw),
        "mixer_norm",
    ),
    "score": (lambda **kw: SelfAttention(2, score=GeneralScore(**F32), **kw), "score"),
    "norms of the score": (
        lambda **kw: SelfAttention(2, score=layers.NormalizedScore(norm(**F32)), **kw).score,
        "query_norm",
    ),
    "position": (lambda **kw: SelfAttention(2, position=RotaryEmbedding(**F32), **kw), "position"),
    "table": (lambda **kw: layers.PositionEmbedding(9, norm=norm(**F32), **kw), "norm"),
    "of another make": (
        lambda **kw: EncoderBlock(2, feed_forward=keras.layers.Dense(8, **F32), **kw),
        "feed_forward",
    ),
}
F32 = {"dtype": "float32"}
POLICIES = ["bfloat16", pytest.param("mixed_bfloat16", marks=pytest.mark.slow)]


@pytest.mark.parametrize("kind", PRECISE)
@pytest.mark.parametrize("policy", POLICIES)
def test_a_part_keeps_its_own_dtype(kind, policy):
    make, name = PRECISE[kind]
    layer = make(dtype=policy)
    inputs = (np.zeros((2, 2, 6, 4), "float32"),) * 2 if kind == "norms of the score" else (X,)
    layer.build(*shapes_of(inputs))
    if kind != "norms of the score":
        y = call(layer, inputs)
        assert dtype_of(y) == layer.compute_dtype == "bfloat16"
        assert np.isfinite(to_numpy(y)).all()
    again = type(layer).from_config(json.loads(json.dumps(layer.get_config())))
    again.build(*shapes_of(inputs))
    for each in (layer, again):
        policies = {part.dtype_policy.name for part in sublayers(getattr(each, name))}
        assert policies == {"float32"}
        others = [p for p in each._flatten_layers() if p.dtype_policy.name != "float32"]
        assert others
        assert {part.dtype_policy.name for part in others} == {policy}


def test_a_part_without_a_dtype_takes_that_of_its_owner_also_out_of_an_old_file():
    """Version 0.2.0 wrote a dtype for every part, of which none was in effect."""
    config = EncoderBlock(2, 7, norm=norm(), dtype="bfloat16").get_config()
    assert config["norm"]["config"]["dtype"] != "bfloat16"
    block = EncoderBlock.from_config(config)
    block.build(X.shape)
    assert block.mixer_norm.dtype_policy.name == "bfloat16"


def test_a_model_hands_a_dtype_of_its_own_on_to_the_parts_of_its_blocks():
    block = EncoderBlock(2, 7, norm=norm(dtype="float32"), norm_first=True)
    model = models.ViT(3, 8, 4, 8, num_layers=2, block=block, dtype="mixed_bfloat16")
    again = models.ViT.from_config(json.loads(json.dumps(model.get_config())))
    for each in (model, again):
        each.build(IMAGES)
        for layer in each.encoder_blocks:
            assert layer.mixer_norm.dtype_policy.name == "float32"
            assert layer.mixer.dtype_policy.name == layer.dtype_policy.name == "mixed_bfloat16"
        assert dtype_of(call(each, (np.zeros((2, 8, 8, 3), "float32"),))) == "bfloat16"


OFTEN = ("EncoderBlock", "DecoderBlock", "SwinBlock")
ONCE_OR_SLOW = [
    pytest.param(name, marks=() if name in OFTEN else pytest.mark.slow) for name in EVERY
]


@pytest.mark.parametrize("name", ONCE_OR_SLOW)
def test_a_map_of_policies_decides_for_each_sublayer(name):
    case = EVERY[name]
    policies = {".*(norm|feed_forward).*": keras.DTypePolicy("float32")}
    policy = keras.dtype_policies.DTypePolicyMap("bfloat16", policies)
    layer = case.make(dtype=policy)
    layer.build(*shapes_of(case.inputs))
    for part in sublayers(layer)[1:]:
        path = part.path or ""  # of dropout, which has no weights
        precise = "norm" in path or "feed_forward" in path
        assert part.compute_dtype == ("float32" if precise else "bfloat16"), part.path
    for y in keras.tree.flatten(call(layer, case.inputs)):
        assert dtype_of(y) == layer.compute_dtype


def seeded(norm_first=False, kind=EncoderBlock, mixer=SelfAttention, **kwargs):
    """A block all of whose parts have seeds."""
    start = keras.initializers.GlorotUniform(seed=5)
    mixer = mixer(2, dropout=0.5, seed=3, kernel_initializer=start)
    network = layers.FeedForward(7, dropout=0.5, seed=4)
    return kind(mixer=mixer, feed_forward=network, norm_first=norm_first, **kwargs)


def decoder():
    return seeded(kind=layers.DecoderBlock, mixer=layers.CausalSelfAttention, num_heads=2)


def swin_block():
    mixer = layers.WindowAttention(
        2, (2, 2), dropout=0.5, seed=3, kernel_initializer=keras.initializers.GlorotUniform(seed=5)
    )
    return layers.SwinBlock(mixer=mixer, feed_forward=layers.FeedForward(7, dropout=0.5, seed=4))


STACKS = {
    "ViT": lambda: models.ViT(3, 8, 4, 8, num_layers=3, block=seeded()).encoder_blocks,
    "encoder": lambda: (
        models.Transformer(13, 8, **SIZES, num_layers=3, encoder_block=seeded()).encoder_blocks
    ),
    "decoder": lambda: (
        models.Transformer(13, 8, **SIZES, num_layers=3, decoder_block=decoder()).decoder_blocks
    ),
    "TextEncoder": lambda: models.TextEncoder(13, 8, num_layers=3, block=seeded()).encoder_blocks,
    "LanguageModel": lambda: (
        models.LanguageModel(
            13,
            8,
            num_layers=3,
            block=seeded(kind=layers.DecoderBlock, mixer=layers.CausalSelfAttention),
        ).decoder_blocks
    ),
    "MAE": lambda: models.MAE(vit(), 8, decoder_layers=3, decoder_block=seeded()).decoder_blocks,
    "Swin": lambda: models.Swin(
        3, 16, 2, 8, (3, 1), blocks=[swin_block(), layers.SwinBlock(2, 2, 7)]
    ).encoder_blocks[:3],
    "from a configuration": lambda: (
        models.ViT.from_config(
            json.loads(
                json.dumps(models.ViT(3, 8, 4, 8, num_layers=3, block=seeded()).get_config())
            )
        ).encoder_blocks
    ),
}


def given(block, part):
    return block.given_mixer() if part == "mixer" else block.given_feed_forward()


@pytest.mark.parametrize("kind", STACKS)
def test_the_blocks_of_a_stack_have_seeds_of_their_own(kind):
    blocks, again = STACKS[kind](), STACKS[kind]()
    for part in ("mixer", "feed_forward"):
        seeds = [given(layer, part).seed for layer in blocks]
        assert len(set(seeds)) == len(blocks)
        assert seeds[0] == {"mixer": 3, "feed_forward": 4}[part]
        assert seeds == [given(layer, part).seed for layer in again]
    shape = (None, 4, 4, 8) if kind == "Swin" else TOKENS
    kernels = []
    for layer in blocks:
        layer.build(*[shape] * (1 + (kind == "decoder")))
        kernels.append(to_numpy(layer.mixer.query_dense.kernel))
    assert np.abs(kernels[0] - kernels[1]).max() > 0.01
    assert np.abs(kernels[1] - kernels[2]).max() > 0.01


def test_seeds_of_layers_of_another_make_differ_too():
    network = keras.Sequential([keras.layers.Dense(8), keras.layers.Dropout(0.5, seed=3)])
    mixer = keras.layers.Dense(8, kernel_initializer=keras.initializers.GlorotUniform(seed=5))
    part = EncoderBlock(mixer=mixer, feed_forward=network)
    blocks = models.ViT(3, 8, 4, 8, num_layers=3, block=part).encoder_blocks
    for layer in blocks:
        layer.build(TOKENS)
    seeds = [layer.feed_forward.layers[1].seed for layer in blocks]
    assert seeds[0] == 3
    assert len(set(seeds)) == 3
    kernels = [to_numpy(layer.mixer.kernel) for layer in blocks]
    assert np.abs(kernels[0] - kernels[1]).max() > 0.01


def test_a_stack_without_seeds_can_have_functions_that_no_file_knows():
    part = EncoderBlock(2, feed_forward=layers.FeedForward(7, lambda x: x * 2))
    assert len(models.ViT(3, 8, 4, 8, num_layers=3, block=part).encoder_blocks) == 3


def gelu(x):
    """A function of a user that has the name of one of Keras's."""
    return x * 3


def test_copies_keep_the_functions_of_a_user_that_have_names_of_keras():
    block = EncoderBlock(2, feed_forward=layers.FeedForward(7, gelu))
    model = models.ViT(3, 8, 4, 8, num_layers=2, block=block)
    model.build((None, 8, 8, 3))
    assert all(layer.feed_forward.activation is gelu for layer in model.encoder_blocks)
    swin = models.Swin(3, 16, 2, 8, (2, 1), blocks=[layers.SwinBlock(2, 2, 7, activation=gelu)] * 2)
    assert all(layer.activation is gelu for layer in swin.encoder_blocks)


def test_seeds_of_numpy_are_written_as_numbers_of_python():
    layer = layers.Dropout(0.1, seed=np.int64(3))
    assert type(layer.get_config()["seed"]) is int


def test_a_bias_of_another_batch_is_refused():
    x, bias = np.ones((1, 5, 8), "float32"), np.zeros((3, 2, 5, 5), "float32")
    with pytest.raises(ValueError, match="`attention_bias` must be of shape"):
        layers.SelfAttention(2)(x, attention_bias=bias)
