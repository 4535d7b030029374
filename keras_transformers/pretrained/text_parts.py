"""The keywords that would make a model of text, read from its parts: what `config.json` can say."""

from collections.abc import Callable
from typing import Any, TypeAlias

import keras

from keras_transformers.layers.parts import serialized
from keras_transformers.models import (
    ClassificationHead,
    LanguageModel,
    MaskedLanguageHead,
    SpanHead,
    TaggingHead,
    TextEncoder,
)
from keras_transformers.models.language_model_variants import decoder_block, decoder_embedding
from keras_transformers.models.text_encoder_variants import (
    encoder_block,
    encoder_embedding,
    encoder_head,
    encoder_norm,
)
from keras_transformers.pretrained.heads import head_keywords
from keras_transformers.pretrained.parts import parts_of, refused, said

# Of each part, the function that makes it and the keywords that this takes.
Makers: TypeAlias = dict[str, tuple[Callable[..., Any], tuple[str, ...]]]
OF_BLOCK = ("num_heads", "mlp_dim", "style", "attention_dropout", "activation", "norm_epsilon")


def encoder_keywords(
    model: TextEncoder,
    restoring: str | None = None,
    of_head: Callable[[Any, dict[str, Any]], dict[str, Any] | None] = lambda head, found: None,
) -> dict[str, Any]:
    """What `TextEncoder.from_variant` makes such a model of; of heads, those of the model's own.

    Args:
        model: Built.
        restoring: Name of the activation that a `MaskedLanguageHead` must have; by default that of
            the feed-forward networks.
        of_head: Function of the head and of what was found that gives the keywords of a head that
            only this family has, None of another.

    Raises:
        ValueError: If no keywords make such a model; the message names the part.
    """
    found = numbers_of(model, model.encoder_blocks[0])
    names = ("vocab_size", "hidden_dim", "max_length", "token_types", "padding_id")
    of_embedding = (*names, "first_position", "embedding_dim", "norm_epsilon", "style")
    found |= {name: getattr(model.embedding, name) for name in of_embedding[:-2]}
    styles = ("bert", "modern")
    makers: Makers = {
        "embedding": (encoder_embedding, of_embedding),
        "block": (encoder_block, OF_BLOCK),
    }
    found = _styled(model, model.encoder_blocks[0], found, styles, makers)
    return found | (of_head(model.head, found) or _of_head(model.head, found, restoring))


def decoder_keywords(model: LanguageModel) -> dict[str, Any]:
    """What `LanguageModel.from_variant` makes such a model of; raises as `encoder_keywords`."""
    block = model.decoder_blocks[0]
    found = numbers_of(model, block)
    if isinstance(model.get_config()["block"], list | tuple):
        expected = "such that keywords of `from_variant` make it"
        raise refused(model, "blocks of several kinds", expected)
    of_embedding = ("vocab_size", "hidden_dim", "max_length", "padding_id", "tie_weights", "style")
    found |= {name: getattr(model.embedding, name) for name in of_embedding[:-1]}
    found |= head_keywords(model.head)
    found["num_key_value_heads"] = getattr(block.mixer, "num_key_value_heads", None)
    of_block = (*OF_BLOCK, "num_key_value_heads")
    makers: Makers = {
        "embedding": (decoder_embedding, of_embedding),
        "block": (decoder_block, of_block),
    }
    return _styled(model, block, found, ("gpt2", "modern"), makers)


def numbers_of(model: Any, block: Any) -> dict[str, Any]:
    """The keywords that are numbers of a block of any style."""
    mixer, network = block.mixer, block.feed_forward
    found = {
        "num_layers": model.get_config()["num_layers"],
        "dropout": model.get_config()["dropout"],
        "num_heads": getattr(mixer, "num_heads", None),
        "mlp_dim": getattr(network, "mlp_dim", None),
        "attention_dropout": getattr(mixer, "dropout", None),
        "norm_epsilon": getattr(block.mixer_norm, "epsilon", None),
    }
    for name, part in (("num_heads", mixer), ("mlp_dim", network), ("norm_epsilon", block)):
        if found[name] is None:
            raise refused(model, type(part).__name__, f"with {name}, as published ones are")
    return {
        **found,
        "activation": keras.activations.serialize(getattr(network, "activation", None)),
    }


def _styled(
    model: Any, block: Any, found: dict[str, Any], styles: tuple[str, ...], makers: Makers
) -> dict[str, Any]:
    """What was found, with the style in which it makes such parts."""
    wrong = []
    for style in styles:
        given = {**found, "style": style}
        made = {
            name: make(**{word: given[word] for word in words})
            for name, (make, words) in makers.items()
        }
        ours = {**parts_of(block), "embedding": serialized(model.embedding)}
        theirs = {**parts_of(made["block"]), "embedding": serialized(made["embedding"])}
        differing = [name for name, part in ours.items() if said(part) != said(theirs[name])]
        if not differing:
            return given
        wrong.append((differing[0], ours[differing[0]]))
    name, part = wrong[0]
    received = part["class_name"] if isinstance(part, dict) else part
    if isinstance(part, dict):
        received = f"{received} with {said(part['config'])}"
    raise refused(model, received, f"such that keywords of `from_variant` make its `{name}`")


def of_restoring(
    head: MaskedLanguageHead, found: dict[str, Any], activation: str, table: int | None
) -> dict[str, Any]:
    """The keywords of a head that restores tokens.

    Args:
        head: The head.
        found: Those of the rest of the model.
        activation: Name of the activation that it must have.
        table: Width of a table of tokens that it has a transform for.
    """
    norm = encoder_norm(found["style"], found["norm_epsilon"])
    made = encoder_head("masked_language", activation=activation, norm=norm, embedding_dim=table)
    if said(serialized(head)) != said(serialized(made)):
        expected = f"with a head with activation {activation!r} and the norm of the blocks"
        raise refused(head, said(head.get_config()), expected)
    return {"head": "masked_language", "num_classes": None}


def _of_head(head: Any, found: dict[str, Any], restoring: str | None) -> dict[str, Any]:
    """The keywords of a head."""
    if isinstance(head, MaskedLanguageHead):
        activation = found["activation"] if restoring is None else restoring
        return of_restoring(head, found, activation, found["embedding_dim"])
    if getattr(head, "_transform", None) is not None:
        raise refused(head, said(head.get_config()), "without a `transform`")
    if isinstance(head, SpanHead):
        return {"head": "question_answering", "num_classes": None}
    if isinstance(head, TaggingHead):
        return {"head": "tagging", "num_classes": head.num_classes}
    if isinstance(head, ClassificationHead):
        return {
            "head": "classification",
            "num_classes": head.num_classes,
            "pooling": head.pooling,
            "pooler_activation": keras.activations.serialize(head.activation),
            "problem_type": head.problem_type,
        }
    if head is not None:
        raise refused(head, type(head).__name__, "with one of the heads of keras_transformers")
    return {"head": None, "num_classes": None}
