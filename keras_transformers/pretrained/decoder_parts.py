"""A `LanguageModel` of flat keywords, and the keywords of one: what Llama's kin share."""

from typing import Any

import keras

from keras_transformers.layers import (
    CausalSelfAttention,
    DecoderBlock,
    GatedFeedForward,
    LocalAttention,
    NormalizedScore,
    OffsetRMSNormalization,
    RotaryEmbedding,
    SandwichDecoderBlock,
    ScaledDotScore,
    Score,
    SoftCapScore,
)
from keras_transformers.layers.parts import serialized
from keras_transformers.models import LanguageModel, TextEmbedding
from keras_transformers.pretrained.heads import decoder_head, head_keywords
from keras_transformers.pretrained.parts import parts_of, refused, said
from keras_transformers.pretrained.text_parts import numbers_of

OF_ROPE = ("max_wavelength", "rotary_dim", "scaling", "scaling_factor", "original_length")
# What Gemma has otherwise: norms on both sides of a branch, whose factors are one and an offset,
# and embeddings times the root of the width.
PLAIN = {"normalized": False, "score_scale": None, "score_cap": None, "logits_cap": None}
PLAIN |= {"gemma": False}


def make_language_model(arguments: dict[str, Any]) -> LanguageModel:
    """A built model of the keywords that `language_model_keywords` gives."""
    given = {**PLAIN, **arguments}
    windows = given["windows"]
    blocks = [_block(given, window) for window in windows or [None]]
    if windows and len(set(windows)) == 1:
        blocks = blocks[:1]
    model = LanguageModel(
        num_layers=given["num_layers"],
        dropout=given.get("dropout", 0.0),
        block=blocks if len(blocks) > 1 else blocks[0],
        embedding=_embedding(given),
        head=decoder_head(given),
        dtype=given.get("dtype"),
    )
    model.build((None, None))
    return model


def language_model_keywords(model: LanguageModel) -> dict[str, Any]:
    """What `make_language_model` makes such a model of.

    Args:
        model: Built.

    Raises:
        ValueError: If no keywords make such a model; the message names the part.
    """
    block = model.decoder_blocks[0]
    mixer, network = block.mixer, block.feed_forward
    score, position = getattr(mixer, "score", None), getattr(mixer, "position", None)
    found = {**PLAIN, **numbers_of(model, block)}
    if not isinstance(position, RotaryEmbedding) or position.interleaved:
        received = type(mixer if position is None else position).__name__
        raise refused(model, received, "with rotary positions of halves, as published ones are")
    settings = position.get_config()
    shared, key_dim, _ = mixer.head_dims
    windows = [getattr(each.mixer, "window_size", None) for each in model.decoder_blocks]
    found |= {
        "vocab_size": model.embedding.vocab_size,
        "hidden_dim": model.embedding.hidden_dim,
        "padding_id": model.padding_id,
        "num_key_value_heads": shared,
        "head_dim": key_dim,
        "attention_bias": mixer.use_bias,
        "mlp_bias": getattr(network, "use_bias", None),
        "rope": {name: settings[name] for name in OF_ROPE},
        "windows": windows if any(windows) else None,
        "normalized": isinstance(score, NormalizedScore),
        "score_scale": getattr(score, "scale", None),
        "score_cap": getattr(score, "cap", None),
        **head_keywords(model.head),
        "gemma": isinstance(block, SandwichDecoderBlock),
        "tied": model.embedding.tie_weights,
    }
    _check_parts(model, found)
    return found


def _embedding(given: dict[str, Any]) -> TextEmbedding:
    return TextEmbedding(
        given["vocab_size"],
        given["hidden_dim"],
        None,
        padding_id=given["padding_id"],
        scale=given["gemma"],
        tie_weights=given["tied"] or given["head"] is not None,
    )


def _block(given: dict[str, Any], window: int | None) -> DecoderBlock:
    settings: dict[str, Any] = {
        "key_dim": given["head_dim"],
        "dropout": given["attention_dropout"],
        "use_bias": given["attention_bias"],
        "score": _score(given),
        "num_key_value_heads": given["num_key_value_heads"],
        "position": RotaryEmbedding(**given["rope"]),
    }
    if window is None:
        attention = CausalSelfAttention(given["num_heads"], **settings)
    else:
        attention = LocalAttention(given["num_heads"], window, causal=True, **settings)
    block = SandwichDecoderBlock if given["gemma"] else DecoderBlock
    return block(
        dropout=given.get("dropout", 0.0),
        norm_first=True,
        mixer=attention,
        feed_forward=GatedFeedForward(
            given["mlp_dim"], given["activation"], use_bias=given["mlp_bias"]
        ),
        norm=_norm(given),
    )


def _norm(given: dict[str, Any]) -> keras.layers.Layer:
    kind = OffsetRMSNormalization if given["gemma"] else keras.layers.RMSNormalization
    return kind(epsilon=given["norm_epsilon"])


def _score(given: dict[str, Any]) -> Score:
    scale = given["score_scale"]
    if given["normalized"]:
        return NormalizedScore(_norm(given), scale)
    if given["score_cap"] is not None:
        return SoftCapScore(given["score_cap"], scale)
    return ScaledDotScore(scale)


def _check_parts(model: LanguageModel, found: dict[str, Any]) -> None:
    """Raises ValueError for parts that are others than these keywords make."""
    if said(serialized(model.embedding)) != said(serialized(_embedding(found))):
        received = f"{type(model.embedding).__name__} with {said(model.embedding.get_config())}"
        raise refused(model, received, "with an `embedding` as published ones have it")
    windows = found["windows"] or [None] * len(model.decoder_blocks)
    for block, window in zip(model.decoder_blocks, windows, strict=True):
        ours, theirs = _described(block), _described(_block(found, window))
        wrong = [name for name, part in ours.items() if part != theirs[name]]
        if wrong:
            received = f"another {wrong[0]}: {ours[wrong[0]]}"
            raise refused(model, received, "with blocks as published ones have them")


def _described(block: DecoderBlock) -> dict[str, Any]:
    """The parts of a block, in whose attention widths are said that may follow from others."""
    parts = parts_of(block)
    settings, dims = parts["mixer"]["config"], getattr(block.mixer, "head_dims", None)
    if dims is not None:
        value_dim = None if dims[2] == dims[1] else dims[2]
        settings |= {"num_key_value_heads": dims[0], "key_dim": dims[1], "value_dim": value_dim}
    return {name: said(part) for name, part in parts.items()}
