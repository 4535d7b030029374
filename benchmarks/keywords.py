"""The keywords of `Transformer.from_variant` that make the same as a built model, for peers."""

from collections.abc import Sequence
from typing import Any

import keras

from keras_transformers.layers import PositionalEncoding
from keras_transformers.layers.parts import OF_EVERY_LAYER
from keras_transformers.models.transformer import BLOCKS, make_blocks


def transformer_keywords(model: Any) -> dict[str, Any]:
    """Returns the keywords of `from_variant` that make the same as a built `Transformer`.

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
    encoder, decoder = make_blocks(**numbers)
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
