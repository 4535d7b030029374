"""What a ModernBERT is made of, and the settings that would make a model, read from its parts."""

from collections.abc import Mapping
from typing import Any

import keras

from keras_transformers.layers import (
    EncoderBlock,
    FirstEncoderBlock,
    GatedFeedForward,
    LocalAttention,
    RotaryEmbedding,
    SelfAttention,
)
from keras_transformers.models import (
    ClassificationHead,
    HeadTransform,
    MaskedLanguageHead,
    SpanHead,
    TaggingHead,
    TextEmbedding,
    TextEncoder,
)
from keras_transformers.pretrained.parts import parts_of, refused, said

HEADS: dict[type, str] = {
    ClassificationHead: "classification",
    MaskedLanguageHead: "masked_language",
    SpanHead: "question_answering",
    TaggingHead: "tagging",
}
DEFAULT_WAVELENGTHS = (160_000.0, 10_000.0)  # of global and of local layers


def _norm(arguments: Mapping[str, Any]) -> keras.layers.LayerNormalization:
    epsilon, center = arguments["norm_epsilon"], arguments["norm_bias"]
    return keras.layers.LayerNormalization(epsilon=epsilon, center=center)


def _blocks(arguments: Mapping[str, Any]) -> list[EncoderBlock]:
    """The blocks in order; what differs is the attention, and that the first lacks a norm."""
    kinds: dict[bool, Any] = {False: SelfAttention, True: LocalAttention}
    attentions = {
        local: kind(
            arguments["num_heads"],
            **({"window_size": arguments["window_size"]} if local else {}),
            dropout=arguments["attention_dropout"],
            use_bias=arguments["attention_bias"],
            position=RotaryEmbedding(arguments["wavelengths"][local]),
        )
        for local, kind in kinds.items()
        if local in arguments["local"]
    }
    network = GatedFeedForward(
        arguments["mlp_dim"],
        arguments["activation"],
        arguments["mlp_dropout"],
        use_bias=arguments["mlp_bias"],
    )
    return [
        (EncoderBlock if i else FirstEncoderBlock)(
            norm_first=True, mixer=attentions[local], feed_forward=network, norm=_norm(arguments)
        )
        for i, local in enumerate(arguments["local"])
    ]


def _embedding(arguments: Mapping[str, Any]) -> TextEmbedding:
    return TextEmbedding(
        arguments["vocab_size"],
        arguments["hidden_dim"],
        None,
        padding_id=arguments["padding_id"],
        norm=_norm(arguments),
    )


def _head(arguments: Mapping[str, Any]) -> keras.layers.Layer | None:
    act, bias = arguments["head_activation"], arguments["head_bias"]
    transform = HeadTransform(act, _norm(arguments), bias)
    kind, classes = arguments["head"], arguments["num_classes"]
    if kind == "masked_language":
        return MaskedLanguageHead(transform=transform)
    if kind == "tagging":
        return TaggingHead(classes, 0.0, transform)
    if kind == "question_answering":
        return SpanHead(0.0, transform)
    if kind == "classification":
        problem, pooling = arguments.get("problem_type"), arguments["pooling"]
        return ClassificationHead(
            classes, pooling, dropout=0.0, problem_type=problem, transform=transform
        )
    return None


def make_modernbert(arguments: dict[str, Any]) -> TextEncoder:
    """A built model of ModernBERT's settings, by our names."""
    if len(arguments["local"]) != arguments["num_layers"]:
        raise ValueError(
            f"`layer_types` must have num_hidden_layers={arguments['num_layers']} entries. "
            f"Received: {len(arguments['local'])}"
        )
    model = TextEncoder(
        num_layers=arguments["num_layers"],
        block=_blocks(arguments),
        embedding=_embedding(arguments),
        head=_head(arguments),
    )
    model.build((None, None))
    return model


def _name(activation: Any) -> Any:
    """The name of an activation."""
    return keras.activations.serialize(activation)


def arguments_of_modernbert(model: TextEncoder) -> dict[str, Any]:
    """What `make_modernbert` makes such a model of.

    Raises:
        ValueError: If nothing does; the message names the part.
    """
    blocks, head = model.encoder_blocks, model.head
    local = [isinstance(block.mixer, LocalAttention) for block in blocks]
    mixer, network, last = blocks[0].mixer, blocks[0].feed_forward, blocks[-1].feed_forward_norm
    wavelengths = dict(enumerate(DEFAULT_WAVELENGTHS))
    for is_local, block in zip(local, blocks, strict=True):
        position = getattr(block.mixer, "position", None)
        wavelengths[is_local] = getattr(position, "max_wavelength", wavelengths[is_local])
    windows = [getattr(block.mixer, "window_size", None) for block in blocks]
    pooled = isinstance(head, ClassificationHead)
    transform = getattr(head, "pooler" if pooled else "transform", None)
    found = {
        **{name: getattr(model.embedding, name) for name in ("vocab_size", "hidden_dim")},
        "padding_id": model.padding_id,
        "num_layers": len(blocks),
        "num_heads": getattr(mixer, "num_heads", 1),
        "mlp_dim": getattr(network, "mlp_dim", 1),
        "activation": _name(getattr(network, "activation", None)),
        "norm_epsilon": getattr(last, "epsilon", 1e-5),
        "norm_bias": getattr(last, "center", False),
        "local": local,
        "wavelengths": [wavelengths[0], wavelengths[1]],
        "window_size": next((each for each in windows if each), 128),
        "attention_dropout": getattr(mixer, "dropout", 0.0),
        "attention_bias": bool(getattr(mixer, "use_bias", False)),
        "mlp_dropout": getattr(network, "dropout", 0.0),
        "mlp_bias": getattr(network, "use_bias", False),
        "head": HEADS.get(type(head)),
        "num_classes": getattr(head, "num_classes", None),
        "pooling": getattr(head, "pooling", "token"),
        "problem_type": model.problem_type,
        "head_activation": _name(getattr(transform, "activation", keras.activations.gelu)),
        "head_bias": getattr(transform, "use_bias", False),
    }
    _check(model, found)
    return found


def _check(model: TextEncoder, found: Mapping[str, Any]) -> None:
    """Raises ValueError unless a model is of the parts that are made of what was found."""
    pairs: list[tuple[str, Any, Any]] = [("embedding", model.embedding, _embedding(found))]
    pairs.append(("head", model.head, _head(found)))
    for name, ours, made in pairs:
        one, other = (None if part is None else said(part.get_config()) for part in (ours, made))
        if one != other:
            raise refused(model, one, f"such that ModernBERT's settings make its {name}")
    for ours, made in zip(model.encoder_blocks, _blocks(found), strict=True):
        one, other = said(parts_of(ours)), said(parts_of(made))
        if one != other:
            raise refused(model, one, "of blocks as ModernBERT's settings make them")
