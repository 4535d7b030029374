"""The Transformer of Vaswani et al. 2017."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, Self, TypeAlias, Unpack

import keras
from keras import ops

from keras_transformers.annotations import Activation, LayerOptions, Part, Shape, Tensor
from keras_transformers.layers import (
    AttentionPositionEncoding,
    CausalSelfAttention,
    CrossAttention,
    DecoderBlock,
    Dropout,
    EncoderBlock,
    PositionalEncoding,
    RelativePositionBias,
    SelfAttention,
    TokenEmbedding,
    padding_mask,
    segment_mask,
    segment_positions,
)
from keras_transformers.layers.checks import refuse
from keras_transformers.layers.masks import apply_to_tokens
from keras_transformers.layers.parts import OF_EVERY_LAYER, Prototype, serialized, serialized_parts
from keras_transformers.models.base import (
    check_changes,
    check_numbers,
    check_sizes,
    keeps_settings,
    refuse_beside,
    variant,
)
from keras_transformers.models.decoding import TransformerDecoding, Translator
from keras_transformers.models.text_model import (
    bias_of_positions,
    build_positions,
    make_positions,
    shortest_limit,
)

# Vaswani et al. 2017, table 3, and smaller ones for small data. `big` took dropout 0.3 for
# English-German and 0.1 for English-French.
VARIANTS: dict[str, dict[str, Any]] = {
    "tiny": {"hidden_dim": 128, "num_heads": 4, "mlp_dim": 512, "num_layers": 2},
    "mini": {"hidden_dim": 192, "num_heads": 6, "mlp_dim": 768, "num_layers": 3},
    "small": {"hidden_dim": 256, "num_heads": 4, "mlp_dim": 1024, "num_layers": 3},
    "base": {"hidden_dim": 512, "num_heads": 8, "mlp_dim": 2048, "num_layers": 6},
    "big": {"hidden_dim": 1024, "num_heads": 16, "mlp_dim": 4096, "num_layers": 6, "dropout": 0.3},
}
# What a stack is given of positions, or what each of two is given.
Positions: TypeAlias = Literal["sinusoidal"] | Part | tuple[Part | None, Part | None] | None
NUMBERS = ("vocab_size", "hidden_dim", "num_heads", "mlp_dim")  # of which default parts are made
BLOCKS = ("encoder_block", "decoder_block")
# The keywords of the tables, and of the blocks, that the constructor does not take.
FLAT = (("target_vocab_size", "logits_bias", "scale_embedding", "padding_id"), (
    "attention_dropout", "norm_first", "activation", "encoder_mixer", "decoder_mixer",
    "norm_epsilon",
))  # fmt: skip


class TransformerOptions(LayerOptions, total=False):
    """What `Transformer.from_variant` takes by name."""

    hidden_dim: int
    num_heads: int
    mlp_dim: int
    num_layers: int | tuple[int, int]
    dropout: float
    embedding: Part | tuple[Part, Part] | None
    positions: Positions | Literal["halves", "relative"]
    encoder_block: Part | None
    decoder_block: Part | None
    num_decoder_layers: int | None
    attention_dropout: float
    norm_first: bool
    activation: Activation | None
    target_vocab_size: int | None
    encoder_mixer: Part | None
    decoder_mixer: Part | None
    norm_epsilon: float
    logits_bias: bool
    scale_embedding: bool
    padding_id: int


def transformer_arguments(
    name: str, vocab_size: int | None, changes: Mapping[str, Any]
) -> dict[str, Any]:
    """What the constructor takes, for a variant with changes among `TransformerOptions`.

    A keyword that the constructor does not take makes a part; without any, numbers stay numbers.

    Raises:
        ValueError: If there is no such variant or keyword, or a keyword is given beside the object
            that has its own.
    """
    check_changes("Transformer", changes, TransformerOptions)
    sizes = variant("Transformer", name, VARIANTS, {})
    given = [each for each in ("embedding", *BLOCKS) if changes.get(each) is not None]
    replaced = {"hidden_dim"} if "embedding" in given else set()
    replaced |= {"num_heads", "mlp_dim"} if set(BLOCKS) <= set(given) else set()
    kept = {each: size for each, size in sizes.items() if each not in replaced}
    made = {**kept, **changes}
    if vocab_size is not None:
        made["vocab_size"] = vocab_size
    decoder_depth = made.pop("num_decoder_layers", None)
    if decoder_depth is not None:
        made["num_layers"] = (made["num_layers"], decoder_depth)
    if made.get("positions") == "halves":
        made["positions"] = PositionalEncoding(layout="halves")
    elif made.get("positions") == "relative":
        made["positions"] = (RelativePositionBias(), RelativePositionBias(bidirectional=False))
    table, block = ({each: made.pop(each) for each in all_ if each in made} for all_ in FLAT)
    for part in given:
        refuse_beside("Transformer", part, **(table if part == "embedding" else block))
    if table or block:
        check_numbers("Transformer", {each: made[each] for each in NUMBERS if each not in replaced})
    if table:
        made["embedding"] = _tables(made.pop("vocab_size"), made.pop("hidden_dim"), **table)
    if block:
        numbers = (made.pop("num_heads"), made.pop("mlp_dim"), made.get("dropout", 0.1))
        made.update(zip(BLOCKS, _blocks(*numbers, **block), strict=True))
    return made


def _tables(
    vocab_size: int,
    hidden_dim: int,
    target_vocab_size: int | None = None,
    logits_bias: bool = False,
    scale_embedding: bool = True,
    padding_id: int = 0,
) -> Any:
    """The `embedding` of a model: one table, or those of source and target."""

    def table(rows: int, bias: bool) -> TokenEmbedding:
        return TokenEmbedding(
            rows, hidden_dim, scale_embedding, logits_bias=bias, padding_id=padding_id
        )

    if target_vocab_size is None:
        return table(vocab_size, logits_bias)
    return table(vocab_size, False), table(target_vocab_size, logits_bias)


def _blocks(
    num_heads: int,
    mlp_dim: int,
    dropout: float,
    attention_dropout: float = 0.0,
    norm_first: bool = False,
    activation: Activation | None = "relu",
    encoder_mixer: Part | None = None,
    decoder_mixer: Part | None = None,
    norm_epsilon: float = 1e-6,
) -> tuple[EncoderBlock, DecoderBlock]:
    """The `encoder_block` and the `decoder_block` of a model."""
    attention: dict[str, Any] = {"num_heads": num_heads, "dropout": attention_dropout}
    shared: dict[str, Any] = {
        "mlp_dim": mlp_dim,
        "dropout": dropout,
        "activation": activation,
        "norm_first": norm_first,
        "norm": keras.layers.LayerNormalization(epsilon=norm_epsilon),
    }
    encoder_mixer = SelfAttention(**attention) if encoder_mixer is None else encoder_mixer
    decoder_mixer = CausalSelfAttention(**attention) if decoder_mixer is None else decoder_mixer
    across = CrossAttention(**attention)
    return (
        EncoderBlock(mixer=encoder_mixer, **shared),
        DecoderBlock(mixer=decoder_mixer, cross_attention=across, **shared),
    )


def transformer_keywords(model: Any) -> dict[str, Any]:
    """The keywords of `from_variant` that make the same as a built `Transformer`, from its parts.

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
    encoder, decoder = _blocks(**numbers)
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


def _pair(value: Any) -> Sequence[Any]:
    """What encoder and decoder, or source and target, have: the same where one was given."""
    return value if isinstance(value, (tuple, list)) and len(value) == 2 else (value, value)


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

    A number makes a default part, and an object takes a part's whole place; it is copied.
    `from_variant` takes more numbers, and makes the parts of them.

    Args:
        vocab_size: Size of the vocabulary. None beside an `embedding`.
        hidden_dim: Width of every token (D, d_model), 512 by default. None beside an `embedding`.
        num_heads: Heads of every attention, 8 by default; must divide the width. None beside blocks
            for encoder and decoder.
        mlp_dim: Width of the feed-forward networks (d_ff), 2048 by default. None likewise.
        num_layers: Number of blocks (N) of encoder and decoder, or a pair of numbers.
        dropout: Rate on embeddings, and on every residual branch of the default blocks.
        embedding: What stands in the place of `TokenEmbedding(vocab_size, hidden_dim)`: one table
            for source, target and output, or a pair, of which the target's makes the logits.
        positions: What the stacks know of positions: "sinusoidal", for `PositionalEncoding()`, or
            another layer that is added to the embeddings; a term of the scores that all blocks of a
            stack share, `RelativePositionBias()` for instance; or None, where mixers know
            positions themselves. One is shared by both stacks, a pair is of encoder and decoder.
        encoder_block: What stands in the place of `EncoderBlock(num_heads, mlp_dim, dropout)`, and
            is copied for each layer. Where it is pre-norm, a copy of its norm closes the stack.
        decoder_block: The same for `DecoderBlock(num_heads, mlp_dim, dropout)`.

    Call arguments:
        inputs: Dict of integers, or floats that hold integers, `source` `(batch, source_length)`
            and `target` `(batch, target_length)` (the decoder's input, START first); optionally
            `source_segments` and `target_segments` of the same shapes.
        training: Whether dropout acts.

    Returns:
        Logits `(batch, target_length, target vocabulary)`, with the implicit Keras mask of the
        target's real tokens. `inspection.attention_maps` shows the attention weights.

    Raises:
        ValueError: If a size is not positive, `num_heads` does not divide the width, a number is
            given beside the object that has its own, or `inputs` lacks "source" or "target", or has
            segments for one of them only.

    Example:
    >>> import numpy as np
    >>> from keras_transformers.models import Transformer
    >>> model = Transformer(vocab_size=31, hidden_dim=16, num_heads=2, mlp_dim=32, num_layers=1)
    >>> ids = np.array([[1, 5, 7, 2, 0]])
    >>> tuple(model({"source": ids, "target": ids[:, :3]}).shape)
    (1, 3, 31)

    With other parts: pre-norm blocks, and one bias of relative positions for each stack.
    >>> from keras_transformers.layers import DecoderBlock, EncoderBlock, RelativePositionBias
    >>> model = Transformer(
    ...     vocab_size=31,
    ...     hidden_dim=16,
    ...     num_layers=2,
    ...     positions=(RelativePositionBias(), RelativePositionBias(bidirectional=False)),
    ...     encoder_block=EncoderBlock(2, 32, activation="gelu", norm_first=True),
    ...     decoder_block=DecoderBlock(2, 32, activation="gelu", norm_first=True),
    ... )
    >>> tuple(model({"source": ids, "target": ids[:, :3]}).shape)
    (1, 3, 31)
    """

    optional_inputs = ("source_segments", "target_segments")

    @keeps_settings(
        embedding=serialized_parts,
        positions=serialized_parts,
        encoder_block=serialized,
        decoder_block=serialized,
    )
    def __init__(
        self,
        vocab_size: int | None = None,
        hidden_dim: int | None = None,
        num_heads: int | None = None,
        mlp_dim: int | None = None,
        num_layers: int | tuple[int, int] = 6,
        dropout: float = 0.1,
        embedding: Part | tuple[Part, Part] | None = None,
        positions: Positions = "sinusoidal",
        encoder_block: Part | None = None,
        decoder_block: Part | None = None,
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(**kwargs)
        self._settle_numbers()
        settings = self._settings
        tables = embedding
        if tables is None:
            tables = TokenEmbedding(settings["vocab_size"], settings["hidden_dim"])
        self._make_tables(*(tables if isinstance(tables, (tuple, list)) else (tables,)))
        self._make_positions(positions)
        self.dropout_layer = Dropout(dropout, dtype=self.dtype_policy)
        numbers = (settings["num_heads"], settings["mlp_dim"], dropout)
        depth, decoder_depth = _pair(num_layers)
        if encoder_block is None:
            encoder_block = EncoderBlock(*numbers)
        self.encoder_blocks = self._copies("encoder", encoder_block, depth)
        if decoder_block is None:
            decoder_block = DecoderBlock(*numbers)
        self.decoder_blocks = self._copies("decoder", decoder_block, decoder_depth)
        self.encoder_norm = self.encoder_blocks[0].closing_norm(self, "encoder_norm")
        self.decoder_norm = self.decoder_blocks[0].closing_norm(self, "decoder_norm")

    def _settle_numbers(self) -> None:
        """Sets the numbers of default parts that were not given, and checks all."""
        settings = self._settings
        numbers: dict[str, Any] = {}
        if settings["embedding"] is None:
            numbers = {"vocab_size": None, "hidden_dim": 512}
        else:
            beside = {name: settings[name] for name in ("vocab_size", "hidden_dim")}
            refuse_beside("Transformer", "embedding", **beside)
        if settings["encoder_block"] is None or settings["decoder_block"] is None:
            numbers |= {"num_heads": 8, "mlp_dim": 2048}
        else:
            beside = {name: settings[name] for name in ("num_heads", "mlp_dim")}
            refuse_beside("Transformer", "decoder_block", **beside)
        numbers |= {name: settings[name] for name in numbers if settings[name] is not None}
        check_numbers("Transformer", numbers)
        for depth in _pair(settings["num_layers"]):
            check_sizes("Transformer", {"num_layers": depth}, ("num_layers",))
        self._settle(**numbers)

    def _make_positions(self, positions: Any) -> None:
        source, target = _pair(positions)
        self.source_positions = make_positions(self, source, "source_positions")
        self.target_positions = self.source_positions
        if target is not source:
            self.target_positions = make_positions(self, target, "target_positions")
        kinds = (type(None), AttentionPositionEncoding)
        self.adds_positions = not isinstance(self.target_positions, kinds)

    @property
    def most_positions(self) -> int | None:
        """How long a source and a target may be, None without end."""
        terms = (self.source_positions, self.target_positions)
        return shortest_limit([*terms, *self.encoder_blocks, *self.decoder_blocks])

    def _copies(self, side: Literal["encoder", "decoder"], block: Part, depth: int) -> list[Any]:
        """As many copies of a block as its stack has."""
        kind = EncoderBlock if side == "encoder" else DecoderBlock
        prototype = Prototype(self, f"{side}_block", block, kind)
        if side == "decoder" and not prototype.layer.causal:
            refuse(self, "decoder_block", "causal", "one with causal=False")
        return [prototype.copy(self, f"{side}_{i}", i) for i in range(depth)]

    @classmethod
    def from_variant(
        cls,
        name: Literal["tiny", "mini", "small", "base", "big"],
        /,
        vocab_size: int | None = None,
        **changes: Unpack[TransformerOptions],
    ) -> Self:
        """A model of a published (or smaller) size: "tiny", "mini", "small", "base" or "big".

        Args:
            name: Name of the variant (Vaswani et al. 2017, table 3, for "base" and "big").
            vocab_size: Size of the (source) vocabulary; None beside an `embedding`.
            **changes: Arguments of the constructor, instead of the variant's; and what its parts
                are made of:
                `num_decoder_layers`, by default `num_layers`; `attention_dropout`, on the attention
                weights; `norm_first` and `norm_epsilon`, 1e-6; `activation` of the feed-forward
                networks, "relu"; `encoder_mixer` and `decoder_mixer`, in place of self-attention;
                `target_vocab_size`, where the target has a table of its own; `scale_embedding`,
                whether embeddings are multiplied by `sqrt(D)`, True; `logits_bias`, whether each
                token of the target vocabulary has one, False; `padding_id`, 0; and for `positions`
                also "halves", the sinusoidal encoding with all sines first, as in Marian, or
                "relative", a `RelativePositionBias` of encoder and one of decoder, as in T5.

        Raises:
            ValueError: If there is no such variant or keyword, or a keyword is given beside the
                object that has its own.
        """
        return cls(**transformer_arguments(name, vocab_size, changes))

    def build(self, input_shape: dict[str, Shape]) -> None:
        width = self.target_embedding.hidden_dim
        hidden = (None, None, width)
        self._build_tables()
        self.dropout_layer.build(hidden)
        for block in self.encoder_blocks:
            block.build(hidden)
        for block in self.decoder_blocks:
            block.build(hidden, hidden)
        build_positions(self, self.source_positions, width, self.encoder_blocks[0])
        build_positions(self, self.target_positions, width, self.decoder_blocks[0])
        for norm in (self.encoder_norm, self.decoder_norm):
            if norm is not None:
                norm.build(hidden)

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
        x = self.target_embedding(inputs["target"])
        x = self._with_positions(self.target_positions, x, self_mask, training)
        bias = bias_of_positions(self.target_positions, ops.shape(x)[1])
        for block in self.decoder_blocks:
            # Padded targets need no mask: they come last, and no real token sees a later one.
            x = block(
                x, context, attention_mask=self_mask, context_mask=context_mask,
                attention_bias=bias, training=training,
            )  # fmt: skip
        x = x if self.decoder_norm is None else ops.cast(self.decoder_norm(x), x.dtype)
        return self._scored(x, self.target_embedding.logits)

    def encode(
        self, source: Tensor, source_segments: Tensor | None = None, training: bool | None = None
    ) -> Tensor:
        """Runs the encoder: ids `(batch, length)` -> `(batch, length, hidden_dim)`."""
        same = None if source_segments is None else segment_mask(source_segments)
        padding = padding_mask(source, self.padding_id) if same is None else None
        x = self.source_embedding(source)
        x = self._with_positions(self.source_positions, x, same, training)
        bias = bias_of_positions(self.source_positions, ops.shape(x)[1])
        for block in self.encoder_blocks:
            x = block(
                x, attention_mask=same, padding_mask=padding, attention_bias=bias, training=training
            )
        if self.encoder_norm is None:
            return x
        return ops.cast(apply_to_tokens(self, "norm", self.encoder_norm, x, padding), x.dtype)

    def _with_positions(
        self, layer: Any, x: Tensor, same_segment: Tensor | None, training: bool | None
    ) -> Tensor:
        """Embeddings with positions, counted anew in each segment, and dropout."""
        positions = None if same_segment is None else segment_positions(same_segment)
        if layer is not None and not isinstance(layer, AttentionPositionEncoding):
            x = layer(x, positions=positions)
        return self.dropout_layer(x, training=training)
