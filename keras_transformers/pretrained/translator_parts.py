"""A `Transformer` of flat keywords, and the keywords of one: what the families of BART share."""

from typing import Any

import keras

from keras_transformers.layers import (
    CausalSelfAttention,
    CrossAttention,
    DecoderBlock,
    EncoderBlock,
    FeedForward,
    PositionalEncoding,
    PositionEmbedding,
    SelfAttention,
    TokenEmbedding,
)
from keras_transformers.layers.parts import serialized
from keras_transformers.models import Transformer
from keras_transformers.pretrained.parts import parts_of, refused, said

EPSILON = 1e-5  # of every norm
OFFSET = 2  # rows of BART's tables in front of that of the first token
KINDS = ("halves", "fairseq", "learned")


def make_translator(arguments: dict[str, Any]) -> Transformer:
    """A built translator of the keywords that `translator_keywords` gives."""
    given = dict(arguments)
    shared = given["shared"]
    if shared and given["target_vocab_size"] != given["vocab_size"]:
        raise ValueError(
            "With `share_encoder_decoder_embeddings` both sides must have one `vocab_size`. "
            f"Received: {given['vocab_size']} and {given['target_vocab_size']}"
        )
    width = given["hidden_dim"]
    for name in ("num_heads", "decoder_num_heads"):
        if width % given[name]:
            raise ValueError(f"`{name}` must divide the width {width}. Received: {given[name]}")
    model = Transformer(
        num_layers=(given["num_layers"], given["num_decoder_layers"]),
        dropout=given["dropout"],
        embedding=_table(given, "target") if shared else _tables(given),
        positions=_positions(given),
        encoder_block=_encoder_block(given),
        decoder_block=_decoder_block(given),
    )
    model.build({"source": (None, None), "target": (None, None)})
    return model


def translator_keywords(model: Transformer) -> dict[str, Any]:
    """What `make_translator` makes such a model of.

    Args:
        model: Built.

    Raises:
        ValueError: If no keywords make such a model; the message names the part.
    """
    encoder, decoder = model.encoder_blocks[0], model.decoder_blocks[0]
    source, target = model.source_embedding, model.target_embedding
    found = {
        "vocab_size": source.vocab_size,
        "target_vocab_size": target.vocab_size,
        "shared": source is target,
        "hidden_dim": target.hidden_dim,
        "scale_embedding": target.scale,
        "logits_bias": target.logits_bias,
        "padding_id": model.padding_id,
        "num_layers": len(model.encoder_blocks),
        "num_decoder_layers": len(model.decoder_blocks),
        "num_heads": getattr(encoder.mixer, "num_heads", None),
        "decoder_num_heads": getattr(decoder.mixer, "num_heads", None),
        "mlp_dim": getattr(encoder.feed_forward, "mlp_dim", None),
        "decoder_mlp_dim": getattr(decoder.feed_forward, "mlp_dim", None),
        "dropout": model.dropout_layer.rate,
        "attention_dropout": getattr(encoder.mixer, "dropout", 0.0),
        "norm_first": encoder.norm_first,
        "activation": keras.activations.serialize(
            getattr(encoder.feed_forward, "activation", None)
        ),
        "positions": None,
        "table_rows": getattr(model.source_positions, "max_length", None),
    }
    for name, value in found.items():
        if value is None and ("num_heads" in name or "mlp_dim" in name):
            owner = encoder if name in ("num_heads", "mlp_dim") else decoder
            part = owner.mixer if "heads" in name else owner.feed_forward
            raise refused(model, type(part).__name__, f"with {name}, as published ones are")
    if source.scale != target.scale:
        raise refused(model, "tables of different `scale`", "with one `scale` of both tables")
    found["positions"] = _kind_of_positions(model, found)
    tables = (_table(found, "target"),) * 2 if found["shared"] else _tables(found)
    check_tables(model, *tables)
    check_blocks(model, _encoder_block(found), _decoder_block(found))
    return found


def _table(given: dict[str, Any], side: str) -> TokenEmbedding:
    target = side == "target"
    rows = given["target_vocab_size"] if target else given["vocab_size"]
    return TokenEmbedding(
        rows,
        given["hidden_dim"],
        given["scale_embedding"],
        logits_bias=target and given["logits_bias"],
        padding_id=given["padding_id"],
    )


def _tables(given: dict[str, Any]) -> tuple[TokenEmbedding, TokenEmbedding]:
    return _table(given, "source"), _table(given, "target")


def _positions(given: dict[str, Any]) -> Any:
    """Sines first, as Marian has them; as fairseq has them; or tables, each with a norm behind."""
    if given["positions"] == "halves":
        return PositionalEncoding(layout="halves")
    if given["positions"] == "fairseq":
        # Its slowest rate is 1 / 10000 itself; and positions are numbered from the padding's on.
        width = given["hidden_dim"]
        if width % 2 or width < 4:
            raise ValueError(f"`d_model` must be even and at least 4. Received: {width}")
        slowest = 10000.0 ** (width / (width - 2))
        return PositionalEncoding(slowest, "add", "halves", given["padding_id"] + 1)
    rows = given["table_rows"]
    return tuple(
        PositionEmbedding(
            rows, first_position=OFFSET, norm=keras.layers.LayerNormalization(epsilon=EPSILON)
        )
        for _ in range(2)
    )


def _encoder_block(given: dict[str, Any]) -> EncoderBlock:
    mixer = SelfAttention(given["num_heads"], dropout=given["attention_dropout"])
    return EncoderBlock(mixer=mixer, **_of_both(given, given["mlp_dim"]))


def _decoder_block(given: dict[str, Any]) -> DecoderBlock:
    attention = {"num_heads": given["decoder_num_heads"], "dropout": given["attention_dropout"]}
    return DecoderBlock(
        mixer=CausalSelfAttention(**attention),
        cross_attention=CrossAttention(**attention),
        **_of_both(given, given["decoder_mlp_dim"]),
    )


def _of_both(given: dict[str, Any], mlp_dim: int) -> dict[str, Any]:
    return {
        "dropout": given["dropout"],
        "feed_forward": FeedForward(mlp_dim, given["activation"]),
        "norm_first": given["norm_first"],
        "norm": keras.layers.LayerNormalization(epsilon=EPSILON),
    }


def _kind_of_positions(model: Transformer, found: dict[str, Any]) -> str:
    """Which of `KINDS` a model has."""
    pair = (model.source_positions, model.target_positions)
    ours = [said(serialized(layer)) for layer in pair]
    for kind in KINDS:
        if kind == "learned" and found["table_rows"] is None:
            continue
        if kind == "fairseq" and (found["hidden_dim"] % 2 or found["hidden_dim"] < 4):
            continue
        made = _positions({**found, "positions": kind})
        made = made if isinstance(made, tuple) else (made, made)
        if ours == [said(serialized(layer)) for layer in made]:
            return kind
    kinds = ", ".join(sorted({type(layer).__name__ for layer in pair}))
    raise refused(model, kinds, "with positions as Marian, M2M-100 or BART has them")


def check_tables(model: Transformer, source: TokenEmbedding, target: TokenEmbedding) -> None:
    """Raises ValueError for tables of tokens other than these, which are not built."""
    for ours, expected in ((model.source_embedding, source), (model.target_embedding, target)):
        if said(serialized(ours)) != said(serialized(expected)):
            received = f"{type(ours).__name__} with {said(ours.get_config())}"
            raise refused(model, received, f"with {type(expected).__name__} as published ones are")


def check_blocks(model: Transformer, encoder: EncoderBlock, decoder: DecoderBlock) -> None:
    """Raises ValueError for blocks other than copies of these, which are not built."""
    hidden = (None, None, model.target_embedding.hidden_dim)
    encoder.build(hidden)
    decoder.build(hidden, hidden)
    sides = (
        ("encoder_block", model.encoder_blocks, encoder),
        ("decoder_block", model.decoder_blocks, decoder),
    )
    for side, blocks, expected in sides:
        theirs = _described(expected)
        for block in blocks:
            ours = _described(block)
            wrong = [name for name, part in ours.items() if part != theirs[name]]
            if wrong:
                received = f"one with another {', '.join(wrong)}"
                raise refused(model, received, f"such that `{side}` is a plain one")


def _described(block: Any) -> dict[str, Any]:
    parts = {
        **parts_of(block),
        "cross_attention": serialized(getattr(block, "cross_attention", None)),
    }
    return {name: said(part) for name, part in parts.items()}
