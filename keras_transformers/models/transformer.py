"""The encoder-decoder Transformer of Vaswani et al. 2017."""

from typing import Any, Literal, Self, Unpack

import keras

from keras_transformers.annotations import Activation, LayerOptions, Part, Shape, Tensor
from keras_transformers.layers import (
    CausalSelfAttention,
    CrossAttention,
    DecoderBlock,
    Dropout,
    EncoderBlock,
    PositionalEncoding,
    SelfAttention,
    padding_mask,
    segment_mask,
    segment_positions,
)
from keras_transformers.layers.parts import serialized
from keras_transformers.models.decoding import TransformerDecoding
from keras_transformers.models.settings import (
    check_choice,
    check_divides,
    check_sizes,
    keeps_settings,
    serialized_activation,
    variant,
)
from keras_transformers.models.text_inputs import rows_of_table
from keras_transformers.models.translator import Translator

# Vaswani et al. 2017, table 3, and smaller ones for small data. `big` took dropout 0.3 for
# English-German and 0.1 for English-French.
VARIANTS: dict[str, dict[str, Any]] = {
    "tiny": {"hidden_dim": 128, "num_heads": 4, "mlp_dim": 512, "num_layers": 2},
    "mini": {"hidden_dim": 192, "num_heads": 6, "mlp_dim": 768, "num_layers": 3},
    "small": {"hidden_dim": 256, "num_heads": 4, "mlp_dim": 1024, "num_layers": 3},
    "base": {"hidden_dim": 512, "num_heads": 8, "mlp_dim": 2048, "num_layers": 6},
    "big": {"hidden_dim": 1024, "num_heads": 16, "mlp_dim": 4096, "num_layers": 6, "dropout": 0.3},
}


@keras.saving.register_keras_serializable("keras_transformers")
class Transformer(TransformerDecoding, Translator):
    """Encoder-decoder Transformer (Vaswani et al. 2017, https://arxiv.org/abs/1706.03762).

    Source and target ids are embedded (times `sqrt(D)`), given sinusoidal positions and dropout,
    and passed through `num_layers` encoder and decoder blocks; logits are the decoder's output
    times the transposed target embedding. Padding is masked inside, exactly: adding more of it
    changes no real position.

    Several pairs can share a row (Krell et al. 2021, https://arxiv.org/abs/2107.02027): with
    `source_segments` and `target_segments`, tokens attend inside their own segment only and
    positions start anew in each.

    Args:
        vocab_size: Size of the (source) vocabulary.
        hidden_dim: Width of every token (D, d_model).
        num_heads: Heads of every attention; must divide `hidden_dim`.
        mlp_dim: Width of the feed-forward networks (d_ff).
        num_layers: Number of encoder blocks (N).
        num_decoder_layers: Number of decoder blocks; by default `num_layers`.
        dropout: Rate on embeddings and on every residual branch.
        attention_dropout: Rate on the attention weights.
        norm_first: True for pre-norm blocks, each stack closed by one norm.
        activation: Activation of the feed-forward networks.
        target_vocab_size: Size of the target vocabulary where it has a table of its own; None
            shares one table between source, target and output.
        positions: "sinusoidal", "halves" (the same numbers, all sines first, as in Marian), or None
            where the mixers know positions themselves.
        encoder_mixer, decoder_mixer: What mixes the tokens in place of self-attention; see
            `EncoderBlock`. For instance `SelfAttention(8, position=RotaryEmbedding())` and
            `CausalSelfAttention(8, position=RotaryEmbedding())`.
        norm_epsilon: Epsilon of all norms.
        logits_bias: Whether each token of the target vocabulary has a bias of its own.
        scale_embedding: Whether embeddings are multiplied by `sqrt(D)`.
        padding_id: The id that stands for padding.

    Call arguments:
        inputs: Dict of integers, or floats that hold integers, `source` `(batch, source_length)`
            and `target` `(batch, target_length)` (the decoder's input, START first); optionally
            `source_segments` and `target_segments` of the same shapes.
        training: Whether dropout acts.

    Returns:
        Logits `(batch, target_length, target vocabulary)`, with the implicit Keras mask of the
        target's real tokens. `inspection.attention_maps` shows the attention weights.

    Raises:
        ValueError: If a size is not positive, `num_heads` does not divide `hidden_dim`, or `inputs`
            lacks "source" or "target", or has segments for one of them only.

    Example:
    >>> import numpy as np
    >>> from keras_transformers.models import Transformer
    >>> model = Transformer(vocab_size=31, hidden_dim=16, num_heads=2, mlp_dim=32, num_layers=1)
    >>> ids = np.array([[1, 5, 7, 2, 0]])
    >>> tuple(model({"source": ids, "target": ids[:, :3]}).shape)
    (1, 3, 31)
    """

    optional_inputs = ("source_segments", "target_segments")

    @keeps_settings(
        activation=serialized_activation, encoder_mixer=serialized, decoder_mixer=serialized
    )
    def __init__(
        self,
        vocab_size: int,
        hidden_dim: int = 512,
        num_heads: int = 8,
        mlp_dim: int = 2048,
        num_layers: int = 6,
        num_decoder_layers: int | None = None,
        dropout: float = 0.1,
        attention_dropout: float = 0.0,
        norm_first: bool = False,
        activation: Activation | None = "relu",
        target_vocab_size: int | None = None,
        positions: Literal["sinusoidal", "halves"] | None = "sinusoidal",
        encoder_mixer: Part | None = None,
        decoder_mixer: Part | None = None,
        norm_epsilon: float = 1e-6,
        logits_bias: bool = False,
        scale_embedding: bool = True,
        padding_id: int = 0,
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(**kwargs)
        self._check_settings()
        self.padding_id = padding_id
        policy = self.dtype_policy
        self._make_tables(hidden_dim, scale_embedding)
        self.positional_encoding = None
        if positions is not None:
            self.positional_encoding = PositionalEncoding(
                layout="halves" if positions == "halves" else "pairs",
                name="positional_encoding",
                dtype=policy,
            )
        self.dropout_layer = Dropout(dropout, dtype=policy)
        norm = {"epsilon": norm_epsilon, "dtype": policy}
        self._make_blocks(
            encoder_mixer,
            decoder_mixer,
            activation=activation,
            norm=keras.layers.LayerNormalization(**norm),
        )
        self.encoder_norm = self.decoder_norm = None
        if norm_first:
            self.encoder_norm = keras.layers.LayerNormalization(name="encoder_norm", **norm)
            self.decoder_norm = keras.layers.LayerNormalization(name="decoder_norm", **norm)

    def _check_settings(self) -> None:
        settings = self._settings
        sizes = ("vocab_size", "hidden_dim", "num_heads", "mlp_dim", "num_layers")
        check_sizes("Transformer", settings, sizes)
        check_divides("Transformer", settings, "num_heads", "hidden_dim")
        check_choice("Transformer", settings, "positions", ("sinusoidal", "halves", None))

    def _make_blocks(
        self, encoder_mixer: Part | None, decoder_mixer: Part | None, **parts: Any
    ) -> None:
        settings = self._settings
        attention = {"num_heads": settings["num_heads"], "dropout": settings["attention_dropout"]}
        if encoder_mixer is None:
            encoder_mixer = SelfAttention(**attention)
        if decoder_mixer is None:
            decoder_mixer = CausalSelfAttention(**attention)
        across = CrossAttention(**attention)
        taken = ("mlp_dim", "dropout", "norm_first")
        block = {name: settings[name] for name in taken} | {"dtype": self.dtype_policy, **parts}
        depth, decoder_depth = settings["num_layers"], settings["num_decoder_layers"]
        self.encoder_blocks = [
            EncoderBlock(mixer=encoder_mixer, name=f"encoder_{i}", **block) for i in range(depth)
        ]
        self.decoder_blocks = [
            DecoderBlock(mixer=decoder_mixer, cross_attention=across, name=f"decoder_{i}", **block)
            for i in range(depth if decoder_depth is None else decoder_depth)
        ]

    @classmethod
    def from_variant(
        cls, name: Literal["tiny", "mini", "small", "base", "big"], vocab_size: int, **changes: Any
    ) -> Self:
        """A model of a published (or smaller) size: "tiny", "mini", "small", "base" or "big".

        Args:
            name: Name of the variant (Vaswani et al. 2017, table 3, for "base" and "big").
            vocab_size: Size of the vocabulary.
            **changes: Any constructor argument, instead of the variant's.

        Raises:
            ValueError: If there is no such variant.
        """
        return cls(vocab_size, **variant("Transformer", name, VARIANTS, changes))

    def build(self, input_shape: dict[str, Shape]) -> None:
        hidden = (None, None, self._settings["hidden_dim"])
        self._build_tables()
        if self.positional_encoding is not None:
            self.positional_encoding.build(hidden)
        self.dropout_layer.build(hidden)
        for block in self.encoder_blocks:
            block.build(hidden)
        for block in self.decoder_blocks:
            block.build(hidden, hidden)
        for norm in (self.encoder_norm, self.decoder_norm):
            if norm is not None:
                norm.build(hidden)
        self.logits_bias = None
        if self._settings["logits_bias"]:
            self.logits_bias = self.add_weight(
                name="logits_bias", shape=(self.target_embedding.vocab_size,), initializer="zeros"
            )

    def call(self, inputs: dict[str, Tensor], training: bool | None = None) -> Tensor:
        inputs = self.as_inputs(inputs)
        segments, target_segments = inputs.get("source_segments"), inputs.get("target_segments")
        if (segments is None) != (target_segments is None):
            raise ValueError(
                f"Transformer '{self.name}': `inputs` must have both 'source_segments' and "
                f"'target_segments', or neither. Received: {sorted(inputs)}"
            )
        context = self.encode(inputs["source"], segments, training=training)
        if segments is None or target_segments is None:
            self_mask, context_mask = None, padding_mask(inputs["source"], self.padding_id)
        else:
            self_mask = segment_mask(target_segments)
            context_mask = segment_mask(target_segments, segments)
        x = self._embed(self.target_embedding, inputs["target"], self_mask, training)
        for block in self.decoder_blocks:
            # Padded targets need no mask: they come last, and no real token sees a later one.
            x = block(
                x, context, attention_mask=self_mask, context_mask=context_mask, training=training
            )
        x = x if self.decoder_norm is None else self.decoder_norm(x)
        return self._with_bias(self.target_embedding.logits(x))

    def encode(
        self, source: Tensor, source_segments: Tensor | None = None, training: bool | None = None
    ) -> Tensor:
        """Runs the encoder: ids `(batch, length)` -> `(batch, length, hidden_dim)`."""
        same = None if source_segments is None else segment_mask(source_segments)
        padding = padding_mask(source, self.padding_id) if same is None else None
        x = self._embed(self.source_embedding, source, same, training)
        for block in self.encoder_blocks:
            x = block(x, attention_mask=same, padding_mask=padding, training=training)
        return x if self.encoder_norm is None else self.encoder_norm(x)

    def _embed(
        self, embedding: Any, ids: Tensor, same_segment: Tensor | None, training: bool | None
    ) -> Tensor:
        x = embedding(rows_of_table(self, ids))
        if self.positional_encoding is not None:
            positions = None if same_segment is None else segment_positions(same_segment)
            x = self.positional_encoding(x, positions=positions)
        return self.dropout_layer(x, training=training)
