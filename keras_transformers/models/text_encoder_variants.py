"""Sizes and styles of `TextEncoder`: which parts flat keywords make."""

import functools
from typing import Any, Literal, TypeAlias

import keras

from keras_transformers.annotations import Activation, LayerOptions, Part, ProblemType
from keras_transformers.layers import (
    EncoderBlock,
    FeedForward,
    GatedFeedForward,
    RotaryEmbedding,
    SelfAttention,
)
from keras_transformers.models.head_transform import HeadTransform
from keras_transformers.models.settings import (
    Makers,
    check_changes,
    check_choice,
    check_problem,
    variant,
    with_parts,
)
from keras_transformers.models.span_head import SpanHead
from keras_transformers.models.text_embedding import TextEmbedding
from keras_transformers.models.text_heads import (
    POOLINGS,
    ClassificationHead,
    MaskedLanguageHead,
    Pooling,
    TaggingHead,
)
from keras_transformers.models.text_variants import OF_BLOCK, OF_EMBEDDING, check_text_numbers

Style: TypeAlias = Literal["bert", "modern"]
Task: TypeAlias = Literal["masked_language", "classification", "tagging", "question_answering"]

# Devlin et al. 2018, section 3 (base, large); Turc et al. 2019, https://arxiv.org/abs/1908.08962,
# table 1 (the others).
VARIANTS: dict[str, dict[str, Any]] = {
    "tiny": {"hidden_dim": 128, "num_heads": 2, "mlp_dim": 512, "num_layers": 2},
    "mini": {"hidden_dim": 256, "num_heads": 4, "mlp_dim": 1024, "num_layers": 4},
    "small": {"hidden_dim": 512, "num_heads": 8, "mlp_dim": 2048, "num_layers": 4},
    "medium": {"hidden_dim": 512, "num_heads": 8, "mlp_dim": 2048, "num_layers": 8},
    "base": {"hidden_dim": 768, "num_heads": 12, "mlp_dim": 3072, "num_layers": 12},
    "large": {"hidden_dim": 1024, "num_heads": 16, "mlp_dim": 4096, "num_layers": 24},
}
TASKS = (None, "masked_language", "classification", "tagging", "question_answering")
# Keywords that make another part than the numbers do.
BLOCK_WORDS = ("style", "attention_dropout", "activation", "norm_epsilon")
EMBEDDING_WORDS = ("style", "token_types", "padding_id", "first_position", "norm_epsilon")
EMBEDDING_WORDS += ("embedding_dim", "tie_weights")
HEAD_WORDS = ("num_classes", "pooling", "pooler_activation", "problem_type")


class TextEncoderKeywords(LayerOptions, total=False):
    """What `TextEncoder.from_variant` takes by name; see there."""

    hidden_dim: int
    num_heads: int
    mlp_dim: int
    num_layers: int
    max_length: int
    dropout: float
    block: Part | None
    embedding: Part | None
    head: Task | Part | None
    style: Style
    attention_dropout: float
    activation: Activation | None
    norm_epsilon: float | None
    token_types: int
    padding_id: int
    first_position: int
    embedding_dim: int | None
    tie_weights: bool
    num_classes: int | None
    pooling: Pooling
    pooler_activation: Activation | None
    problem_type: ProblemType | None


def encoder_norm(
    style: Style = "bert", norm_epsilon: float | None = None
) -> keras.layers.LayerNormalization:
    """A norm of a style, by default with the published models' epsilon."""
    modern = style == "modern"
    if norm_epsilon is None:
        norm_epsilon = 1e-5 if modern else 1e-12
    return keras.layers.LayerNormalization(epsilon=norm_epsilon, center=not modern)


def encoder_embedding(
    vocab_size: int,
    hidden_dim: int,
    max_length: int | None = 512,
    style: Style = "bert",
    token_types: int = 2,
    padding_id: int = 0,
    first_position: int = 0,
    norm_epsilon: float | None = None,
    embedding_dim: int | None = None,
    tie_weights: bool = True,
) -> TextEmbedding:
    """What ids become in a style: "modern" has tables neither of positions nor of token types."""
    norm = encoder_norm(style, norm_epsilon)
    if style == "modern":
        max_length, token_types, first_position = None, 0, 0
    if embedding_dim == hidden_dim:
        embedding_dim = None
    return TextEmbedding(
        vocab_size,
        hidden_dim,
        max_length,
        token_types,
        padding_id,
        first_position,
        norm,
        embedding_dim=embedding_dim,
        tie_weights=tie_weights,
    )


def encoder_block(
    num_heads: int,
    mlp_dim: int,
    dropout: float = 0.1,
    style: Style = "bert",
    attention_dropout: float | None = None,
    activation: Activation | None = "gelu",
    norm_epsilon: float | None = None,
) -> EncoderBlock:
    """A block of a style; the rate on the attention weights is by default `dropout` too."""
    weights = dropout if attention_dropout is None else attention_dropout
    modern = style == "modern"
    attention = SelfAttention(
        num_heads,
        dropout=weights,
        use_bias=not modern,
        position=RotaryEmbedding() if modern else None,
    )
    network = (
        GatedFeedForward(mlp_dim, "gelu", use_bias=False)
        if modern
        else FeedForward(mlp_dim, activation)
    )
    return EncoderBlock(
        dropout=dropout,
        norm_first=modern,
        mixer=attention,
        feed_forward=network,
        norm=encoder_norm(style, norm_epsilon),
    )


def encoder_head(
    task: Task | None,
    num_classes: int | None = None,
    pooling: Pooling = "token",
    pooler_activation: Activation | None = "tanh",
    problem_type: ProblemType | None = None,
    dropout: float = 0.1,
    activation: Activation | None = "gelu",
    norm: Part | None = None,
    embedding_dim: int | None = None,
) -> keras.layers.Layer | None:
    """The head for a task; the last three arguments are those of "masked_language"."""
    if task == "masked_language":
        if embedding_dim is not None:
            transform = HeadTransform(activation, norm, units=embedding_dim)
            return MaskedLanguageHead(transform=transform)
        return MaskedLanguageHead(activation, norm)
    if task is None:
        return None
    if task == "question_answering":
        return SpanHead()
    if num_classes is None:
        raise ValueError(
            f"TextEncoder: `num_classes` must be given for head={task!r}. Received: None"
        )
    if task == "tagging":
        return TaggingHead(num_classes, dropout)
    return ClassificationHead(num_classes, pooling, pooler_activation, dropout, problem_type)


def text_encoder_arguments(
    name: str, vocab_size: int | None, changes: TextEncoderKeywords
) -> dict[str, Any]:
    """The constructor's arguments for flat keywords: numbers, and parts where these ask for them.

    Raises:
        ValueError: If there is no such variant or keyword, a value does not fit, or a part is given
            beside what it is made of.
    """
    owner = "TextEncoder"
    beside = {"block": BLOCK_WORDS, "embedding": EMBEDDING_WORDS, "head": HEAD_WORDS}
    check_changes(owner, changes, TextEncoderKeywords, beside)
    found = variant(owner, name, VARIANTS, changes)
    if changes.get("embedding") is None or vocab_size is not None:
        found["vocab_size"] = 30522 if vocab_size is None else vocab_size
    _check(owner, found)
    dropout, style = found.get("dropout", 0.1), found.get("style", "bert")
    head: Any = found.get("head")
    if not isinstance(head, (keras.layers.Layer, dict)):
        norm = encoder_norm(style, found.get("norm_epsilon"))
        more = {name: found[name] for name in HEAD_WORDS if name in found}
        more["activation"] = found.get("activation", "gelu")
        more["embedding_dim"] = found.get("embedding_dim")
        found["head"] = encoder_head(head, dropout=dropout, norm=norm, **more)
    block = functools.partial(encoder_block, dropout=dropout)
    makers: Makers = {
        "embedding": (encoder_embedding, OF_EMBEDDING, EMBEDDING_WORDS),
        "block": (block, OF_BLOCK, BLOCK_WORDS),
    }
    found = with_parts(found, changes, makers)
    return {name: value for name, value in found.items() if name not in HEAD_WORDS}


def _check(owner: str, settings: dict[str, Any]) -> None:
    check_text_numbers(owner, settings, ("num_classes",))
    given = {"head": None, "style": "bert", "pooling": "token", "problem_type": None, **settings}
    if not isinstance(given["head"], (keras.layers.Layer, dict)):
        check_choice(owner, given, "head", TASKS)
    check_choice(owner, given, "style", ("bert", "modern"))
    check_choice(owner, given, "pooling", POOLINGS)
    check_problem(owner, {"num_classes": None, **given})
