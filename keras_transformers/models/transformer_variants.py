"""The sizes of `Transformer`, and its parts made of flat keywords."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeAlias

import keras

from keras_transformers.annotations import Activation, LayerOptions, Part
from keras_transformers.layers import (
    CausalSelfAttention,
    CrossAttention,
    DecoderBlock,
    EncoderBlock,
    PositionalEncoding,
    RelativePositionBias,
    SelfAttention,
    TokenEmbedding,
)
from keras_transformers.layers.parts import OF_EVERY_LAYER
from keras_transformers.models.settings import check_changes, check_numbers, refuse_beside, variant

# Vaswani et al. 2017, table 3, and smaller ones for small data. `big` took dropout 0.3 for
# English-German and 0.1 for English-French.
VARIANTS: dict[str, dict[str, Any]] = {
    "tiny": {"hidden_dim": 128, "num_heads": 4, "mlp_dim": 512, "num_layers": 2},
    "mini": {"hidden_dim": 192, "num_heads": 6, "mlp_dim": 768, "num_layers": 3},
    "small": {"hidden_dim": 256, "num_heads": 4, "mlp_dim": 1024, "num_layers": 3},
    "base": {"hidden_dim": 512, "num_heads": 8, "mlp_dim": 2048, "num_layers": 6},
    "big": {"hidden_dim": 1024, "num_heads": 16, "mlp_dim": 4096, "num_layers": 6, "dropout": 0.3},
}
# What a stack is given of positions, or what each of two is given.
Positions: TypeAlias = Literal["sinusoidal"] | Part | tuple[Part | None, Part | None] | None
NUMBERS = ("vocab_size", "hidden_dim", "num_heads", "mlp_dim")  # of which default parts are made
BLOCKS = ("encoder_block", "decoder_block")
# The keywords of the tables, and of the blocks, that the constructor does not take.
FLAT = (("target_vocab_size", "logits_bias", "scale_embedding", "padding_id"), (
    "attention_dropout", "norm_first", "activation", "encoder_mixer", "decoder_mixer",
    "norm_epsilon",
))  # fmt: skip


class TransformerOptions(LayerOptions, total=False):
    """What `Transformer.from_variant` takes by name."""

    hidden_dim: int
    num_heads: int
    mlp_dim: int
    num_layers: int | tuple[int, int]
    dropout: float
    embedding: Part | tuple[Part, Part] | None
    positions: Positions | Literal["halves", "relative"]
    encoder_block: Part | None
    decoder_block: Part | None
    num_decoder_layers: int | None
    attention_dropout: float
    norm_first: bool
    activation: Activation | None
    target_vocab_size: int | None
    encoder_mixer: Part | None
    decoder_mixer: Part | None
    norm_epsilon: float
    logits_bias: bool
    scale_embedding: bool
    padding_id: int


def transformer_arguments(
    name: str, vocab_size: int | None, changes: Mapping[str, Any]
) -> dict[str, Any]:
    """What the constructor takes, for a variant with changes among `TransformerOptions`.

    A keyword that the constructor does not take makes a part; without any, numbers stay numbers.

    Raises:
        ValueError: If there is no such variant or keyword, or a keyword is given beside the object
            that has its own.
    """
    check_changes("Transformer", changes, TransformerOptions)
    sizes = variant("Transformer", name, VARIANTS, {})
    given = [each for each in ("embedding", *BLOCKS) if changes.get(each) is not None]
    replaced = {"hidden_dim"} if "embedding" in given else set()
    replaced |= {"num_heads", "mlp_dim"} if set(BLOCKS) <= set(given) else set()
    kept = {each: size for each, size in sizes.items() if each not in replaced}
    made = {**kept, **changes}
    if vocab_size is not None:
        made["vocab_size"] = vocab_size
    decoder_depth = made.pop("num_decoder_layers", None)
    if decoder_depth is not None:
        made["num_layers"] = (made["num_layers"], decoder_depth)
    if made.get("positions") == "halves":
        made["positions"] = PositionalEncoding(layout="halves")
    elif made.get("positions") == "relative":
        made["positions"] = (RelativePositionBias(), RelativePositionBias(bidirectional=False))
    table, block = ({each: made.pop(each) for each in all_ if each in made} for all_ in FLAT)
    for part in given:
        refuse_beside("Transformer", part, **(table if part == "embedding" else block))
    if table or block:
        check_numbers("Transformer", {each: made[each] for each in NUMBERS if each not in replaced})
    if table:
        made["embedding"] = _tables(made.pop("vocab_size"), made.pop("hidden_dim"), **table)
    if block:
        numbers = (made.pop("num_heads"), made.pop("mlp_dim"), made.get("dropout", 0.1))
        made.update(zip(BLOCKS, _blocks(*numbers, **block), strict=True))
    return made


def _tables(
    vocab_size: int,
    hidden_dim: int,
    target_vocab_size: int | None = None,
    logits_bias: bool = False,
    scale_embedding: bool = True,
    padding_id: int = 0,
) -> Any:
    """The `embedding` of a model: one table, or those of source and target."""

    def table(rows: int, bias: bool) -> TokenEmbedding:
        return TokenEmbedding(
            rows, hidden_dim, scale_embedding, logits_bias=bias, padding_id=padding_id
        )

    if target_vocab_size is None:
        return table(vocab_size, logits_bias)
    return table(vocab_size, False), table(target_vocab_size, logits_bias)


def _blocks(
    num_heads: int,
    mlp_dim: int,
    dropout: float,
    attention_dropout: float = 0.0,
    norm_first: bool = False,
    activation: Activation | None = "relu",
    encoder_mixer: Part | None = None,
    decoder_mixer: Part | None = None,
    norm_epsilon: float = 1e-6,
) -> tuple[EncoderBlock, DecoderBlock]:
    """The `encoder_block` and the `decoder_block` of a model."""
    attention: dict[str, Any] = {"num_heads": num_heads, "dropout": attention_dropout}
    shared: dict[str, Any] = {
        "mlp_dim": mlp_dim,
        "dropout": dropout,
        "activation": activation,
        "norm_first": norm_first,
        "norm": keras.layers.LayerNormalization(epsilon=norm_epsilon),
    }
    encoder_mixer = SelfAttention(**attention) if encoder_mixer is None else encoder_mixer
    decoder_mixer = CausalSelfAttention(**attention) if decoder_mixer is None else decoder_mixer
    across = CrossAttention(**attention)
    return (
        EncoderBlock(mixer=encoder_mixer, **shared),
        DecoderBlock(mixer=decoder_mixer, cross_attention=across, **shared),
    )


def transformer_keywords(model: Any) -> dict[str, Any]:
    """The keywords of `from_variant` that make the same as a built `Transformer`, from its parts.

    Where no keyword makes a part, its name says what it is: `encoder_block`, `decoder_block`,
    `embedding` and `positions`; else the first three are None.
    """
    block, tables = model.encoder_blocks[0], (model.source_embedding, model.target_embedding)
    found = {
        "vocab_size": tables[0].vocab_size,
        "target_vocab_size": None if tables[0] is tables[1] else tables[1].vocab_size,
        "hidden_dim": tables[0].hidden_dim,
        "scale_embedding": tables[0].scale,
        "logits_bias": tables[1].logits_bias,
        "padding_id": model.padding_id,
        "embedding": None if tables[0].scale == tables[1].scale else "tables of different `scale`",
        "positions": _name_of_positions({model.source_positions, model.target_positions}),
        "num_layers": len(model.encoder_blocks),
        "num_decoder_layers": len(model.decoder_blocks),
        "num_heads": getattr(block.mixer, "num_heads", None),
        "mlp_dim": getattr(block.feed_forward, "mlp_dim", None),
        "dropout": model.dropout_layer.rate,
        "attention_dropout": getattr(block.mixer, "dropout", 0.0),
        "norm_first": block.norm_first,
        "activation": keras.activations.serialize(getattr(block.feed_forward, "activation", None)),
        "norm_epsilon": getattr(block.mixer_norm, "epsilon", None),
    }
    return {**found, **_other_blocks(model, found)}


def _name_of_positions(layers: set[Any]) -> str | None:
    """The keyword for what gives positions to source and target, or a list of others."""
    if layers == {None}:
        return None
    known = {"sinusoidal": PositionalEncoding(), "halves": PositionalEncoding(layout="halves")}
    for name, layer in known.items():
        if all(_described(each) == _described(layer) for each in layers):
            return name
    return ", ".join(sorted(type(each).__name__ for each in layers))


def _other_blocks(model: Any, found: dict[str, Any]) -> dict[str, str | None]:
    """For each kind of block None, or which parts are others than these keywords make."""
    names = ("num_heads", "mlp_dim", "dropout", "attention_dropout", "norm_first", "activation")
    numbers = {name: found[name] for name in (*names, "norm_epsilon")}
    if None in numbers.values():
        return dict.fromkeys(BLOCKS, "one of other parts")
    hidden = (None, None, found["hidden_dim"])
    encoder, decoder = _blocks(**numbers)
    encoder.build(hidden)
    decoder.build(hidden, hidden)
    return {
        "encoder_block": _other_parts(model.encoder_blocks, encoder),
        "decoder_block": _other_parts(model.decoder_blocks, decoder),
    }


def _other_parts(blocks: Sequence[Any], expected: Any) -> str | None:
    """Which parts of blocks are others than the expected block's; None where all are the same."""
    parts = _parts(expected)
    others = [name for name in parts if any(_parts(each)[name] != parts[name] for each in blocks)]
    return f"one with another {', '.join(others)}" if others else None


def _parts(block: Any) -> dict[str, Any]:
    """What a built block is made of: numbers, and descriptions of layers."""
    numbers = ("dropout", "norm_first", "drop_path", "layer_scale")
    layers = ("mixer", "cross_attention", "feed_forward", "mixer_norm")
    described = {name: _described(getattr(block, name, None)) for name in layers}
    return {name: getattr(block, name) for name in numbers} | described


def _described(layer: Any) -> Any:
    """Class and configuration of a layer, without its name and precision."""
    if layer is None:
        return None
    config = layer.get_config()
    return type(layer), {key: x for key, x in config.items() if key not in OF_EVERY_LAYER}
