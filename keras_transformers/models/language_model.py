"""Decoder-only language models."""

from collections.abc import Sequence
from typing import Any, Literal, Self, TypeAlias, Unpack

import keras
from keras import ops

from keras_transformers import layers
from keras_transformers.core.types import (
    Activation,
    BackPointers,
    Index,
    LayerOptions,
    Part,
    Shape,
    Tensor,
)
from keras_transformers.models.base import (
    check_changes,
    check_choice,
    check_divides,
    drop_numbers,
    pop_keywords,
    select_keywords,
    variant,
)
from keras_transformers.models.decoding import (
    DecodingState,
    check_decodable,
    grow_caches,
    hold_caches_in,
    log_probabilities,
    shortest_cache,
    step_blocks,
    token_positions,
)
from keras_transformers.models.text_model import (
    OF_BLOCK,
    OF_EMBEDDING,
    TextEmbedding,
    TextModel,
    check_text_numbers,
)

Style: TypeAlias = Literal["gpt2", "modern"]

# Radford et al. 2019, table 2 (small to xl), and smaller ones for small data.
VARIANTS: dict[str, dict[str, Any]] = {
    "tiny": {"hidden_dim": 128, "num_heads": 4, "mlp_dim": 512, "num_layers": 2},
    "mini": {"hidden_dim": 256, "num_heads": 4, "mlp_dim": 1024, "num_layers": 4},
    "small": {"hidden_dim": 768, "num_heads": 12, "mlp_dim": 3072, "num_layers": 12},
    "medium": {"hidden_dim": 1024, "num_heads": 16, "mlp_dim": 4096, "num_layers": 24},
    "large": {"hidden_dim": 1280, "num_heads": 20, "mlp_dim": 5120, "num_layers": 36},
    "xl": {"hidden_dim": 1600, "num_heads": 25, "mlp_dim": 6400, "num_layers": 48},
}
# Keywords that make another part than the numbers do.
BLOCK_WORDS = ("style", "num_key_value_heads", "attention_dropout", "activation", "norm_epsilon")
EMBEDDING_WORDS = ("style", "padding_id", "tie_weights")


class LanguageModelKeywords(LayerOptions, total=False):
    """What `LanguageModel.from_variant` takes by name; see there."""

    hidden_dim: int
    num_heads: int
    mlp_dim: int
    num_layers: int
    max_length: int
    dropout: float
    block: Part | Sequence[Part] | None
    embedding: Part | None
    head: Part | None
    style: Style
    num_key_value_heads: int | None
    attention_dropout: float
    activation: Activation | None
    norm_epsilon: float
    padding_id: int
    tie_weights: bool


def decoder_embedding(
    vocab_size: int,
    hidden_dim: int,
    max_length: int = 1024,
    style: Style = "gpt2",
    padding_id: int = 0,
    tie_weights: bool = True,
) -> TextEmbedding:
    """What ids become in a style: with a table of positions in "gpt2", without in "modern"."""
    positions = max_length if style == "gpt2" else None
    return TextEmbedding(
        vocab_size, hidden_dim, positions, padding_id=padding_id, tie_weights=tie_weights
    )


def decoder_block(
    num_heads: int,
    mlp_dim: int,
    dropout: float = 0.1,
    style: Style = "gpt2",
    num_key_value_heads: int | None = None,
    attention_dropout: float | None = None,
    activation: Activation | None = layers.gelu_tanh,
    norm_epsilon: float = 1e-5,
) -> layers.DecoderBlock:
    """A block of a style; the rate on the attention weights is by default `dropout` too."""
    modern = style == "modern"
    attention = layers.CausalSelfAttention(
        num_heads,
        dropout=dropout if attention_dropout is None else attention_dropout,
        use_bias=not modern,
        num_key_value_heads=num_key_value_heads,
        position=layers.RotaryEmbedding() if modern else None,
    )
    network = (
        layers.GatedFeedForward(mlp_dim, "silu", use_bias=False)
        if modern
        else layers.FeedForward(mlp_dim, activation)
    )
    norm = keras.layers.RMSNormalization if modern else keras.layers.LayerNormalization
    return layers.DecoderBlock(
        dropout=dropout,
        norm_first=True,
        mixer=attention,
        feed_forward=network,
        norm=norm(epsilon=norm_epsilon),
    )


def language_model_arguments(
    name: str, vocab_size: int | None, changes: LanguageModelKeywords
) -> dict[str, Any]:
    """The constructor's arguments for flat keywords: numbers, and parts where these ask for them.

    Raises:
        ValueError: If there is no such variant or keyword, a value does not fit, or a part is given
            beside what it is made of.
    """
    owner = "LanguageModel"
    beside = {"block": BLOCK_WORDS, "embedding": EMBEDDING_WORDS}
    check_changes(owner, changes, LanguageModelKeywords, beside)
    settings = variant(owner, name, VARIANTS, changes)
    check_choice(owner, {"style": "gpt2", **settings}, "style", ("gpt2", "modern"))
    if changes.get("embedding") is None or vocab_size is not None:
        settings["vocab_size"] = 50257 if vocab_size is None else vocab_size
    check_text_numbers(owner, settings, ("num_key_value_heads",))
    if settings.get("num_key_value_heads") is not None:
        check_divides(owner, settings, "num_key_value_heads", "num_heads")
    embedding_keywords = select_keywords(settings, EMBEDDING_WORDS)
    block_keywords = select_keywords(settings, BLOCK_WORDS)
    pop_keywords(settings, (*EMBEDDING_WORDS, *BLOCK_WORDS))
    if settings.get("embedding") is not None:
        drop_numbers(settings, OF_EMBEDDING, changes)
    elif embedding_keywords:
        numbers = pop_keywords(settings, OF_EMBEDDING)
        settings["embedding"] = decoder_embedding(**numbers, **embedding_keywords)
    if settings.get("block") is not None:
        drop_numbers(settings, OF_BLOCK, changes)
    elif block_keywords:
        block_keywords["dropout"] = settings.get("dropout", 0.1)
        numbers = pop_keywords(settings, OF_BLOCK)
        settings["block"] = decoder_block(**numbers, **block_keywords)
    return settings


@keras.saving.register_keras_serializable("keras_transformers")
class LanguageModel(TextModel):
    """Decoder-only Transformer: the probability of each token given those before it.

    By numbers it is GPT-2 (Radford et al. 2019, "Language Models are Unsupervised Multitask
    Learners"): learned positions, pre-norm blocks with GELU, a last norm. By parts it is another,
    and `from_variant` makes such from keywords. Logits are the output times the transposed token
    table, unless there is a `head`. Padding is masked inside, on either side of the text.

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
        block: What every block is a copy of, in the place of `num_heads` and `mlp_dim`: a
            `DecoderBlock` without context; or a list of several, of which they are copies in turn.
            If it is pre-norm, a norm like its own stands at the end.
        embedding: What ids become, in the place of `vocab_size`, `hidden_dim` and `max_length`: a
            `TextEmbedding`; copied.
        head: What makes the logits, in the place of the token table: a `LanguageHead`; or a
            `ClassificationHead`, `TaggingHead` or `SpanHead`, with which it writes no text, or a
            layer of your own, as `TextEncoder` takes it; copied.

    Call arguments:
        inputs: Integer ids `(batch, length)`, or floats that hold integers; or a dict of `ids` and
            optionally `segments` (1, 2, 3 ... number the texts of a packed row, 0 = padding).
        training: Whether dropout acts.

    Returns:
        Logits `(batch, length, vocab_size)`: at each position, of the token after it. They have the
        implicit Keras mask of the real tokens. With another head, what it gives.

    Raises:
        ValueError: If a size is not positive, `num_heads` does not divide `hidden_dim`, a number is
            given beside the part that it makes, or a text is longer than `max_length`.

    Example:
    >>> import numpy as np
    >>> from keras_transformers.generation import generate
    >>> from keras_transformers.models import LanguageModel
    >>> model = LanguageModel(31, hidden_dim=16, num_heads=2, mlp_dim=32, num_layers=1)
    >>> tuple(model(np.array([[1, 5, 7, 2, 0]])).shape)
    (1, 5, 31)
    >>> generate(model, prompt=np.array([[5, 7]]), max_length=6)["tokens"][0, :2].tolist()
    [5, 7]

    By parts: distances between tokens instead of positions, and a gated network.

    >>> from keras_transformers.layers import (
    ...     ALiBi, CausalSelfAttention, DecoderBlock, GatedFeedForward)
    >>> from keras_transformers.models import TextEmbedding
    >>> attention = CausalSelfAttention(2, position=ALiBi())
    >>> network = GatedFeedForward(32, "silu")
    >>> block = DecoderBlock(mixer=attention, feed_forward=network, norm_first=True)
    >>> embedding = TextEmbedding(31, 16, max_length=None)
    >>> model = LanguageModel(num_layers=2, block=block, embedding=embedding)
    >>> tuple(model(np.array([[1, 5, 7, 2, 0]])).shape)
    (1, 5, 31)
    """

    variant_keywords = LanguageModelKeywords.__annotations__

    optional_inputs = ("segments",)
    reads_sources = False

    defaults = {"hidden_dim": 768, "num_heads": 12, "mlp_dim": 3072, "max_length": 1024}
    block_kind = layers.DecoderBlock
    block_name = "decoder"
    default_embedding = staticmethod(decoder_embedding)
    default_block = staticmethod(decoder_block)

    def _keep_blocks(self, blocks: list[Any]) -> None:
        self.decoder_blocks = blocks

    @classmethod
    def from_variant(
        cls,
        name: Literal["tiny", "mini", "small", "medium", "large", "xl"],
        /,
        vocab_size: int | None = None,
        **changes: Unpack[LanguageModelKeywords],
    ) -> Self:
        """A model of a published (or smaller) size, in one of two styles.

        Style "gpt2" is that of the constructor. Style "modern" (Touvron et al. 2023, "LLaMA",
        https://arxiv.org/abs/2302.13971, section 2.2) has rotary positions, RMS norms, SwiGLU, no
        biases, and keys and values shared by groups of heads on request.

        Parameters of style "gpt2" with 50,257 tokens: "small" 124 M, "medium" 355 M, "large" 774 M,
        "xl" 1,558 M; beside these "tiny" and "mini".

        Args:
            name: Name of the variant.
            vocab_size: Size of the vocabulary; by default that of GPT-2, 50,257.
            **changes: Any constructor argument, instead of the variant's; or one of these, from
                which parts are made: `style`, "gpt2" or "modern", where `mlp_dim` is two thirds of
                the variant's, for the gate is a third matrix; `num_key_value_heads`, which must
                divide `num_heads`; `attention_dropout`, by default `dropout`; `activation` of the
                feed-forward networks of "gpt2", by default GELU by the tanh; `norm_epsilon`, by
                default 1e-5; `padding_id`, by default 0, and `tie_weights`, by default True, see
                `TextEmbedding`.

        Raises:
            ValueError: If there is no such variant or keyword, or a keyword is given beside the
                part that it makes.
        """
        return cls(**language_model_arguments(name, vocab_size, changes))

    def output_table(self) -> tuple[layers.TokenEmbedding, list[Any]] | None:
        """Returns table and biases of the logits; None with a head, such as one with a soft cap."""
        return super().output_table() if self.head is None else None

    def build(self, inputs_shape: Any) -> None:
        self._build_head(self._build_stack(self.decoder_blocks))

    def call(self, inputs: Tensor | dict[str, Tensor], training: bool | None = None) -> Tensor:
        inputs = self.as_inputs(inputs)
        x = self._run(self.decoder_blocks, inputs, training)
        return (
            self._scored(x, self._logits)
            if self.writes
            else self._headed(x, inputs["ids"], training)
        )

    @property
    def calibrated_blocks(self) -> list[Any]:
        """What GPTQ and AWQ quantise."""
        return self.decoder_blocks

    @property
    def writes(self) -> bool:
        """Whether it makes logits of the vocabulary."""
        return self.head is None or self._restores

    def _check_writes(self, purpose: str) -> None:
        """Raises ValueError if the head makes no logits of the vocabulary."""
        if not self.writes:
            raise ValueError(
                f"LanguageModel '{self.name}': `head` must make logits of the vocabulary "
                f"{purpose}. Received: a {type(self.head).__name__}"
            )

    def _logits(self, x: Tensor) -> Tensor:
        """Of the output of the last norm, `(batch, length, hidden_dim)`."""
        if self.head is None:
            return self.token_embedding.logits(x)
        logits: Tensor = self.head(x, logits=self.token_embedding.logits)
        return logits

    def compute_output_shape(self, inputs_shape: Any) -> Shape:
        ids = inputs_shape["ids"] if isinstance(inputs_shape, dict) else inputs_shape
        if self.head is None:
            return (*ids, self.embedding.vocab_size)
        return self._shape_of_output((*ids, self.embedding.hidden_dim))

    def log_probabilities(self, ids: Tensor) -> Tensor:
        """Computes the log-probability of each token after the tokens before it.

        Logits exist for a few positions at a time.

        Args:
            ids: Integers `(batch, length)`, the first of which has no probability: mostly START.

        Returns:
            Float32 `(batch, length - 1)`, of the tokens from the second on; 0 at padding, and at a
            token right after padding, before which nothing stands. The first of a row is START,
            even if it has the id of padding.

        Raises:
            ValueError: If `head` makes no logits of the vocabulary, or a row is longer than the
                positions of the model and one.

        Example:
        >>> import numpy as np
        >>> from keras_transformers.models import LanguageModel
        >>> model = LanguageModel(31, hidden_dim=16, num_heads=2, mlp_dim=32, num_layers=1)
        >>> tuple(model.log_probabilities(np.array([[1, 5, 7, 2, 0]])).shape)
        (1, 4)
        """
        self._check_writes("for tokens to have probabilities")
        if not self.built:
            self.build((None, None))
        ids = self.as_inputs(ids)["ids"]
        before, following = ids[:, :-1], ids[:, 1:]
        x = self._run(self.decoder_blocks, {"ids": before}, training=False)
        scores = log_probabilities(self._logits, x, following)
        is_first = ops.arange(ops.shape(before)[1]) == 0
        has_before = ops.logical_or(before != self.padding_id, is_first)
        return ops.where(ops.logical_and(has_before, following != self.padding_id), scores, 0.0)

    @property
    def most_decodable(self) -> int | None:
        """How long a text may be that is decoded token by token, None without end.

        The number of positions; and of positions that turn by other angles in longer texts
        (`LongRopeScaling`) the length up to which they do not.
        """
        return shortest_cache(self.decoder_blocks, self.most_positions)

    def start_decoding(
        self, source: Tensor, beams: int, max_length: Index
    ) -> tuple[DecodingState, None]:
        """Makes what `decode_step` needs.

        The caches hold `batch * key_value_heads * 2 * key_dim * beams * max_length` numbers of the
        compute dtype for each block.

        Args:
            source: Anything with as many rows as there are texts to write; a model without an
                encoder looks at nothing else of it.
            beams: Number of sequences to decode for each.
            max_length: Number of steps there may be.

        Returns:
            `(state, None)`: a `DecodingState`.

        Raises:
            ValueError: If there may be more steps than `most_decodable`, or the head writes no
                text.
        """
        self._check_writes("for text to be written")
        check_decodable(self, max_length)
        batch = ops.shape(source)[0]
        caches = [block.start_cache(batch, beams, max_length) for block in self.decoder_blocks]
        return DecodingState(caches), None

    def prefill(
        self, ids: Tensor, following: Tensor | None, state: DecodingState, beams: int
    ) -> tuple[Tensor | None, DecodingState]:
        """Takes in the first tokens of every sequence at once, instead of one a step.

        Args:
            ids: Integers `(batch, length)`, those at the positions `0 .. length - 1`.
            following: Integers `(batch, length)`, the token after each; None where their
                log-probabilities are not asked for, and then no logits are computed.
            state: From `start_decoding`.
            beams: The number it was given.

        Returns:
            Log-probabilities of `following`, float32 `(batch, length)`, or None; and the new
            `state`.
        """
        x = self.embedding(ids, ops.arange(ops.shape(ids)[1], dtype="int32")[None])
        caches = []
        for block, cache in zip(self.decoder_blocks, state.caches, strict=True):
            x, cache = block.prefill(x, cache, beams)
            caches.append(cache)
        state = state._replace(caches=caches)
        if following is None:
            return None, state
        scores = log_probabilities(self._logits, self._normed(x), following)
        return scores, state

    def decode_step(
        self,
        ids: Tensor,
        index: Index,
        state: DecodingState,
        shared: Any = None,
        back_pointers: BackPointers | None = None,
    ) -> tuple[Tensor, DecodingState]:
        """Scores the next token of every sequence.

        Args:
            ids: Integers `(batch, beams)`, the token at position `index`; or `(batch, length)`,
                several of each row from its `index` on, where there is one beam.
            index: Int or scalar tensor; or integers `(batch,)`.
            state: From `start_decoding`, `prefill` or the step before.
            shared: Is ignored: there is no source.
            back_pointers: `generation.BackPointers` of the beams; None where none has moved.

        Returns:
            Logits `(batch, beams or length, vocab_size)` and the new `state`.
        """
        x = self.embedding(ids, token_positions(index, ids, self.embedding.most_positions))
        x, state, _ = step_blocks(self.decoder_blocks, x, index, state, back_pointers)
        logits = self.token_embedding.step_logits
        x = self._normed(x)
        return logits(x) if self.head is None else self.head(x, logits=logits), state

    caches_in = hold_caches_in
    grow_caches = grow_caches
