"""Encoder-only text models, as BERT."""

from typing import Any, Literal, Self, TypeAlias, Unpack

import keras
from keras import ops

from keras_transformers import layers
from keras_transformers.core.types import Activation, LayerOptions, Part, ProblemType, Shape, Tensor
from keras_transformers.models.base import (
    check_changes,
    check_choice,
    check_problem,
    drop_numbers,
    pop_keywords,
    select_keywords,
    variant,
)
from keras_transformers.models.text_heads import (
    POOLINGS,
    ClassificationHead,
    HeadTransform,
    MaskedLanguageHead,
    Pooling,
    SpanHead,
    TaggingHead,
)
from keras_transformers.models.text_model import (
    OF_BLOCK,
    OF_EMBEDDING,
    TextEmbedding,
    TextModel,
    check_text_numbers,
)

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
) -> layers.EncoderBlock:
    """A block of a style; the rate on the attention weights is by default `dropout` too."""
    weights = dropout if attention_dropout is None else attention_dropout
    modern = style == "modern"
    attention = layers.SelfAttention(
        num_heads,
        dropout=weights,
        use_bias=not modern,
        position=layers.RotaryEmbedding() if modern else None,
    )
    network = (
        layers.GatedFeedForward(mlp_dim, "gelu", use_bias=False)
        if modern
        else layers.FeedForward(mlp_dim, activation)
    )
    return layers.EncoderBlock(
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
    settings = variant(owner, name, VARIANTS, changes)
    if changes.get("embedding") is None or vocab_size is not None:
        settings["vocab_size"] = 30522 if vocab_size is None else vocab_size
    _check(owner, settings)
    dropout, style = settings.get("dropout", 0.1), settings.get("style", "bert")
    head: Any = settings.get("head")
    if not isinstance(head, (keras.layers.Layer, dict)):
        head_keywords = select_keywords(settings, (*HEAD_WORDS, "embedding_dim"))
        head_keywords["activation"] = settings.get("activation", "gelu")
        norm = encoder_norm(style, settings.get("norm_epsilon"))
        settings["head"] = encoder_head(head, dropout=dropout, norm=norm, **head_keywords)
    embedding_keywords = select_keywords(settings, EMBEDDING_WORDS)
    block_keywords = select_keywords(settings, BLOCK_WORDS)
    pop_keywords(settings, (*EMBEDDING_WORDS, *BLOCK_WORDS, *HEAD_WORDS))
    if settings.get("embedding") is not None:
        drop_numbers(settings, OF_EMBEDDING, changes)
    elif embedding_keywords:
        numbers = pop_keywords(settings, OF_EMBEDDING)
        settings["embedding"] = encoder_embedding(**numbers, **embedding_keywords)
    if settings.get("block") is not None:
        drop_numbers(settings, OF_BLOCK, changes)
    elif block_keywords:
        numbers = pop_keywords(settings, OF_BLOCK)
        settings["block"] = encoder_block(**numbers, dropout=dropout, **block_keywords)
    return settings


def _check(owner: str, settings: dict[str, Any]) -> None:
    check_text_numbers(owner, settings, ("num_classes",))
    given = {"head": None, "style": "bert", "pooling": "token", "problem_type": None, **settings}
    if not isinstance(given["head"], (keras.layers.Layer, dict)):
        check_choice(owner, given, "head", TASKS)
    check_choice(owner, given, "style", ("bert", "modern"))
    check_choice(owner, given, "pooling", POOLINGS)
    check_problem(owner, {"num_classes": None, **given})


@keras.saving.register_keras_serializable("keras_transformers")
class TextEncoder(TextModel):
    """Encoder-only Transformer for text, with a head for a task.

    By numbers it is BERT (Devlin et al. 2018, https://arxiv.org/abs/1810.04805): sum of token,
    position and token-type embeddings, norm, post-norm blocks with GELU. By parts it is another,
    and `from_variant` makes such from keywords. Padding is masked inside, on either side of the
    text.

    Several texts can share a row: with `segments`, tokens attend inside their own only and
    positions start anew in each.

    Args:
        vocab_size: Size of the vocabulary.
        hidden_dim: Width of every token.
        num_heads: Heads of every attention; must divide `hidden_dim`.
        mlp_dim: Width of the feed-forward networks.
        num_layers: Number of blocks.
        max_length: Number of positions in the table.
        dropout: Rate on embeddings and on every residual branch; by default that of the `block`. By
            numbers, 0.1, also on the attention weights.
        block: What every block is a copy of, in the place of `num_heads` and `mlp_dim`: an
            `EncoderBlock`. If it is pre-norm, a norm like its own stands at the end.
        embedding: What ids become, in the place of `vocab_size`, `hidden_dim` and `max_length`: a
            `TextEmbedding`; copied.
        head: None for the encoder alone; or `ClassificationHead`, `TaggingHead`, `SpanHead`,
            `MaskedLanguageHead` or a layer of your own, which is called with `(batch, length,
            hidden_dim)`, and with `ids`, `real`, `logits` and `training` where its `call` names
            them (see these); copied. `EndPooling` and `LastPooling` make one vector of a text.

    Call arguments:
        inputs: Integer ids `(batch, length)`, or floats that hold integers, or a dict of `ids`,
            and optionally `token_types` (0 or 1, the sentence of a pair), `segments` (1, 2, 3 ...
            number the texts of a packed row, 0 = padding), each `(batch, length)`, and, for a
            `MaskedLanguageHead`, `masked_positions` `(batch, positions)`: where logits are wanted.
        training: Whether dropout acts.

    Returns:
        Without a head `(batch, length, hidden_dim)`; logits `(batch, length or positions,
        vocab_size)`, `(batch, num_classes)`, `(batch, length, num_classes)` or `(batch, 2,
        length)`. What has a position for each token has the implicit Keras mask of the real ones.

    Raises:
        ValueError: If a size is not positive, `num_heads` does not divide `hidden_dim`, a number is
            given beside the part that it makes, or a text is longer than `max_length`.

    Example:
    >>> import numpy as np
    >>> from keras_transformers.models import ClassificationHead, TextEncoder
    >>> model = TextEncoder(31, hidden_dim=16, num_heads=2, mlp_dim=32, num_layers=1,
    ...                     head=ClassificationHead(3))
    >>> tuple(model(np.array([[2, 5, 7, 3, 0]])).shape)
    (1, 3)

    By parts: Fourier mixing instead of attention, and no table of positions (FNet).

    >>> from keras_transformers.layers import EncoderBlock, FourierMixing
    >>> from keras_transformers.models import TextEmbedding
    >>> block = EncoderBlock(mixer=FourierMixing(ignore_mask=True), mlp_dim=32, activation="gelu")
    >>> embedding = TextEmbedding(31, 16, max_length=None)
    >>> model = TextEncoder(num_layers=2, block=block, embedding=embedding)
    >>> tuple(model(np.array([[2, 5, 7, 3]])).shape)
    (1, 4, 16)
    """

    variant_keywords = TextEncoderKeywords.__annotations__

    defaults = {"hidden_dim": 768, "num_heads": 12, "mlp_dim": 3072, "max_length": 512}
    block_kind = layers.EncoderBlock
    block_name = "encoder"
    default_embedding = staticmethod(encoder_embedding)
    default_block = staticmethod(encoder_block)
    optional_inputs = ("token_types", "segments", "masked_positions")

    def _keep_blocks(self, blocks: list[Any]) -> None:
        self.encoder_blocks = blocks

    def output_table(self) -> tuple[layers.TokenEmbedding, list[Any]] | None:
        """Returns table and biases of the logits; None unless the head restores masked tokens."""
        if not isinstance(self.head, MaskedLanguageHead):
            return None
        table = self.token_embedding
        biases = [] if table.bias is None else [table.bias]
        return table, [*biases, getattr(self.head, "bias", None)]

    @classmethod
    def from_variant(
        cls,
        name: Literal["tiny", "mini", "small", "medium", "base", "large"],
        /,
        vocab_size: int | None = None,
        **changes: Unpack[TextEncoderKeywords],
    ) -> Self:
        """A model of a published size, in one of two styles.

        Style "bert" is that of the constructor. Style "modern" (Warner et al. 2024, "ModernBERT",
        https://arxiv.org/abs/2412.13663, section 2.1) has token embeddings and a norm, pre-norm
        blocks with rotary positions, GEGLU and no biases, and a last norm.

        Parameters of style "bert" with 30,522 tokens and a pooler: "tiny" 4.4 M, "mini" 11.2 M,
        "small" 28.8 M, "medium" 41.4 M, "base" 109.5 M, "large" 335 M.

        Args:
            name: Name of the variant.
            vocab_size: Size of the vocabulary; by default that of the published models in English,
                30,522.
            **changes: Any constructor argument, instead of the variant's; or one of these, from
                which parts are made: `style`, "bert" or "modern", where `mlp_dim` is two thirds of
                the variant's, for the gate is a third matrix; `attention_dropout`, by default
                `dropout`; `activation` of the feed-forward networks of "bert" and of
                "masked_language", by default GELU; `norm_epsilon`, by default the published
                models', 1e-12 and 1e-5; of "bert" `token_types`, by default 2, of which DistilBERT
                has 0; `padding_id`, `first_position`, `embedding_dim` and `tie_weights`, see
                `TextEmbedding`. `head` is a layer, or "masked_language", "question_answering",
                "classification" or "tagging", the last two with `num_classes`, `pooling`,
                `pooler_activation` and `problem_type`; see `ClassificationHead`.

        Raises:
            ValueError: If there is no such variant or keyword, or a keyword is given beside the
                part that it makes.
        """
        return cls(**text_encoder_arguments(name, vocab_size, changes))

    @property
    def calibrated_blocks(self) -> list[Any]:
        """What GPTQ and AWQ quantise."""
        return self.encoder_blocks

    def build(self, inputs_shape: Any) -> None:
        self._build_head(self._build_stack(self.encoder_blocks))

    def call(self, inputs: Tensor | dict[str, Tensor], training: bool | None = None) -> Tensor:
        inputs = self.as_inputs(inputs)
        x = self.encode(inputs, training=training)
        if self.head is None:
            return x
        if self._restores and "masked_positions" in inputs:
            positions = ops.cast(inputs["masked_positions"], "int32")[..., None]
            x = ops.take_along_axis(x, positions, axis=1)
        if self._gives_hidden:
            return self.head.vectors(x)
        return self._headed(x, inputs["ids"], training)

    def compute_output_shape(self, inputs_shape: Any) -> Shape:
        positions = ids = inputs_shape
        if isinstance(inputs_shape, dict):
            ids = inputs_shape["ids"]
            positions = inputs_shape.get("masked_positions", ids)
        hidden = (*(positions if self._restores else ids), self.embedding.hidden_dim)
        return hidden if self.head is None else self._shape_of_output(hidden)

    def compute_mask(self, inputs: Any, previous_mask: Any = None) -> Tensor | None:
        """Which positions of the output stand for a real token; None where it has others."""
        chosen = isinstance(inputs, dict) and inputs.get("masked_positions") is not None
        return None if chosen else super().compute_mask(inputs, previous_mask)

    def encode(self, inputs: Any, training: bool | None = None) -> Tensor:
        """Runs the blocks: ids, or a dict as for a call -> `(batch, length, hidden_dim)`."""
        return self._run(self.encoder_blocks, self.as_inputs(inputs), training)
