"""The encoder-decoder Transformer of Vaswani et al. 2017."""

from typing import Any, Literal, Self, Unpack

import keras
from keras import ops

from keras_transformers.annotations import Activation, Index, LayerOptions, Part, Shape, Tensor
from keras_transformers.layers import (
    CausalSelfAttention,
    CrossAttention,
    DecoderBlock,
    Dropout,
    EncoderBlock,
    PositionalEncoding,
    SelfAttention,
    TokenEmbedding,
    padding_mask,
    segment_mask,
    segment_positions,
)
from keras_transformers.layers.arguments import Arguments
from keras_transformers.layers.decoder_attention import visible_slots
from keras_transformers.layers.parts import serialized
from keras_transformers.layers.traced import Traced
from keras_transformers.models.coverage import add_coverage, start_coverage
from keras_transformers.models.decoding import CachedDecoding
from keras_transformers.models.settings import (
    check_choice,
    check_divides,
    check_sizes,
    variant,
)
from keras_transformers.models.text_inputs import TakesIds, rows_of_table

# Vaswani et al. 2017, table 3, and smaller ones for small data. `big` took dropout 0.3 for
# English-German and 0.1 for English-French.
VARIANTS: dict[str, dict[str, Any]] = {
    "tiny": {"hidden_dim": 128, "num_heads": 4, "mlp_dim": 512, "num_layers": 2},
    "mini": {"hidden_dim": 192, "num_heads": 6, "mlp_dim": 768, "num_layers": 3},
    "small": {"hidden_dim": 256, "num_heads": 4, "mlp_dim": 1024, "num_layers": 3},
    "base": {"hidden_dim": 512, "num_heads": 8, "mlp_dim": 2048, "num_layers": 6},
    "big": {
        "hidden_dim": 1024,
        "num_heads": 16,
        "mlp_dim": 4096,
        "num_layers": 6,
        "dropout": 0.3,
    },
}


@keras.saving.register_keras_serializable("keras_transformers")
class Transformer(Traced, TakesIds, Arguments, CachedDecoding, keras.Model):
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

    needed_inputs = ("source", "target")
    optional_inputs = ("source_segments", "target_segments")

    def __init__(
        self, vocab_size: int, hidden_dim: int = 512, num_heads: int = 8, mlp_dim: int = 2048,
        num_layers: int = 6, num_decoder_layers: int | None = None, dropout: float = 0.1,
        attention_dropout: float = 0.0, norm_first: bool = False,
        activation: Activation | None = "relu", target_vocab_size: int | None = None,
        positions: Literal["sinusoidal", "halves"] | None = "sinusoidal",
        encoder_mixer: Part | None = None, decoder_mixer: Part | None = None,
        norm_epsilon: float = 1e-6, logits_bias: bool = False, scale_embedding: bool = True,
        padding_id: int = 0, **kwargs: Unpack[LayerOptions]
    ) -> None:
        super().__init__(**kwargs)
        self._settings: dict[str, Any] = {
            "vocab_size": vocab_size,
            "hidden_dim": hidden_dim,
            "num_heads": num_heads,
            "mlp_dim": mlp_dim,
            "num_layers": num_layers,
            "num_decoder_layers": num_decoder_layers,
            "dropout": dropout,
            "attention_dropout": attention_dropout,
            "norm_first": norm_first,
            "activation": keras.activations.serialize(keras.activations.get(activation)),
            "target_vocab_size": target_vocab_size,
            "positions": positions,
            "encoder_mixer": serialized(encoder_mixer),
            "decoder_mixer": serialized(decoder_mixer),
            "norm_epsilon": norm_epsilon,
            "logits_bias": logits_bias,
            "scale_embedding": scale_embedding,
            "padding_id": padding_id,
        }
        self.padding_id = padding_id
        sizes = ("vocab_size", "hidden_dim", "num_heads", "mlp_dim", "num_layers")
        check_sizes("Transformer", self._settings, sizes)
        check_divides("Transformer", self._settings, "num_heads", "hidden_dim")
        check_choice("Transformer", self._settings, "positions", ("sinusoidal", "halves", None))
        policy = self.dtype_policy
        table = {"hidden_dim": hidden_dim, "scale": scale_embedding, "dtype": policy}
        self.source_embedding = TokenEmbedding(vocab_size, name="source_embedding", **table)
        self.target_embedding = self.source_embedding
        if target_vocab_size is not None:
            self.target_embedding = TokenEmbedding(
                target_vocab_size, name="target_embedding", **table
            )
        self.positional_encoding = None
        if positions is not None:
            self.positional_encoding = PositionalEncoding(
                layout="halves" if positions == "halves" else "pairs",
                name="positional_encoding",
                dtype=policy,
            )
        self.dropout_layer = Dropout(dropout, dtype=policy)
        if encoder_mixer is None:
            encoder_mixer = SelfAttention(num_heads, dropout=attention_dropout)
        if decoder_mixer is None:
            decoder_mixer = CausalSelfAttention(num_heads, dropout=attention_dropout)
        across = CrossAttention(num_heads, dropout=attention_dropout)
        norm = {"epsilon": norm_epsilon, "dtype": policy}
        block = {
            "mlp_dim": mlp_dim,
            "dropout": dropout,
            "activation": activation,
            "norm_first": norm_first,
            "norm": keras.layers.LayerNormalization(**norm),
            "dtype": policy,
        }
        self.encoder_blocks = [
            EncoderBlock(mixer=encoder_mixer, name=f"encoder_{i}", **block)
            for i in range(num_layers)
        ]
        depth = num_layers if num_decoder_layers is None else num_decoder_layers
        self.decoder_blocks = [
            DecoderBlock(
                mixer=decoder_mixer, cross_attention=across, name=f"decoder_{i}", **block
            )
            for i in range(depth)
        ]
        self.encoder_norm = self.decoder_norm = None
        if norm_first:
            self.encoder_norm = keras.layers.LayerNormalization(name="encoder_norm", **norm)
            self.decoder_norm = keras.layers.LayerNormalization(name="decoder_norm", **norm)

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
        self.source_embedding.build((None, None))
        if self.target_embedding is not self.source_embedding:
            self.target_embedding.build((None, None))
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

    def compute_output_shape(self, input_shape: dict[str, Shape]) -> Shape:
        return (*input_shape["target"], self.target_embedding.vocab_size)

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

    def _with_bias(self, logits: Tensor) -> Tensor:
        return logits if self.logits_bias is None else logits + ops.cast(
            self.logits_bias, logits.dtype
        )

    def start_decoding(
        self, source: Tensor, beams: int, max_length: Index, coverage: bool = False
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Encodes the source once, and makes what `decode_step` needs.

        The caches hold `batch * heads * (key_dim + value_dim) * (beams * max_length +
        source_length)` numbers of the compute dtype for each decoder block.

        Args:
            source: Integer ids `(batch, source_length)`.
            beams: Number of sequences to decode for each source.
            max_length: Number of steps there may be.
            coverage: Whether to sum up how much each source token was attended to.

        Returns:
            `(state, shared)`. `state` changes with every step: `cache`, and on request `coverage`
            float32 `(batch, beams, source_length)`, the sums of the last block's cross-attention
            (mean of its heads); 1 at padding. `shared` belongs to the source and never changes.
        """
        context = self.encode(source, training=False)
        mask = padding_mask(source, self.padding_id)
        shared = {
            "source_mask": mask,
            "context": [
                block.cross_attention.project_context(context) for block in self.decoder_blocks
            ],
        }
        batch = ops.shape(source)[0]
        state: dict[str, Any] = {
            "cache": [block.start_cache(batch, beams, max_length) for block in self.decoder_blocks]
        }
        if coverage:
            state["coverage"] = start_coverage(mask, beams)
        return state, shared

    def decode_step(
        self, ids: Tensor, index: Index, state: dict[str, Any], shared: dict[str, Any],
        ancestry: Any = None
    ) -> tuple[Tensor, dict[str, Any]]:
        """Scores the next token of every sequence.

        Args:
            ids: Integers `(batch, beams)`, the token at position `index`.
            index: Int or scalar tensor.
            state, shared: From `start_decoding` or the step before.
            ancestry: `generation.Ancestry` of the beams; None where none has moved.

        Returns:
            Logits `(batch, beams, target vocabulary)` and the new `state`.
        """
        x = self.target_embedding.vectors(ops.maximum(ids, 0) if self.padding_id < 0 else ids)
        if self.positional_encoding is not None:
            positions = ops.broadcast_to(ops.cast(index, "int32"), ops.shape(ids))
            x = self.positional_encoding(x, positions=positions)
        slots = None if ancestry is None else ancestry.slots
        visible = visible_slots(index, state["cache"][0], ids.shape[1], slots)
        stack, caches = (self.decoder_blocks, state["cache"], shared["context"]), []
        for block, cache, context in zip(*stack, strict=True):
            x, cache, weights = block.step(
                x, cache, index, visible, context, shared["source_mask"]
            )
            caches.append(cache)
        state = {**state, "cache": caches}
        if "coverage" in state:
            attended = ops.mean(ops.cast(weights, "float32"), axis=1)
            state["coverage"] = add_coverage(state["coverage"], attended, ancestry)
        x = x if self.decoder_norm is None else self.decoder_norm(x)
        return self._with_bias(self.target_embedding.step_logits(x)), state

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), **self._settings}
