"""The Transformer of Vaswani et al. 2017."""

import dataclasses
from collections.abc import Mapping, Sequence
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
from keras_transformers.layers.checks import refuse
from keras_transformers.layers.embeddings import ListedTokens
from keras_transformers.layers.masks import apply_to_tokens
from keras_transformers.layers.parts import Prototype, serialized, serialized_parts
from keras_transformers.models.base import (
    Configuration,
    check_changes,
    check_numbers,
    check_sizes,
    refuse_beside,
    variant,
    with_defaults,
)
from keras_transformers.models.decoding import (
    DecodingState,
    Source,
    add_coverage,
    check_decodable,
    grow_caches,
    hold_caches_in,
    log_probabilities,
    shortest_cache,
    start_coverage,
    step_blocks,
    token_positions,
)
from keras_transformers.models.text_model import (
    TokenModel,
    bias_of_positions,
    build_positions,
    hidden_states,
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
DEFAULTS = {"hidden_dim": 512, "num_heads": 8, "mlp_dim": 2048}
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


@dataclasses.dataclass(frozen=True)
class TransformerConfiguration(Configuration):
    """The arguments of a `Transformer`; see there."""

    vocab_size: Any
    hidden_dim: int | None
    num_heads: int | None
    mlp_dim: int | None
    num_layers: int | tuple[int, int]
    dropout: float
    embedding: Any
    positions: Any
    encoder_block: Any
    decoder_block: Any


def _completed(configuration: TransformerConfiguration) -> Any:
    """Returns a configuration with the numbers of default parts, after checking all numbers.

    Raises:
        ValueError: If a size is not positive, or stands beside the part that has its own.
    """
    owner = "Transformer"
    needed: list[str] = []
    if configuration.embedding is None:
        needed += ["vocab_size", "hidden_dim"]
    else:
        refuse_beside(
            owner,
            "embedding",
            vocab_size=configuration.vocab_size,
            hidden_dim=configuration.hidden_dim,
        )
    if configuration.encoder_block is None or configuration.decoder_block is None:
        needed += ["num_heads", "mlp_dim"]
    else:
        refuse_beside(
            owner, "decoder_block", num_heads=configuration.num_heads, mlp_dim=configuration.mlp_dim
        )
    configuration = with_defaults(configuration, needed, DEFAULTS)
    values = vars(configuration)
    check_numbers(owner, {name: values[name] for name in needed})
    for depth in _pair(configuration.num_layers):
        check_sizes(owner, {"num_layers": depth}, ("num_layers",))
    return configuration


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
        made["positions"] = layers.PositionalEncoding(layout="halves")
    elif made.get("positions") == "relative":
        made["positions"] = (
            layers.RelativePositionBias(),
            layers.RelativePositionBias(bidirectional=False),
        )
    table, block = ({each: made.pop(each) for each in all_ if each in made} for all_ in FLAT)
    for part in given:
        refuse_beside("Transformer", part, **(table if part == "embedding" else block))
    if table or block:
        check_numbers("Transformer", {each: made[each] for each in NUMBERS if each not in replaced})
    if table:
        made["embedding"] = _tables(made.pop("vocab_size"), made.pop("hidden_dim"), **table)
    if block:
        numbers = (made.pop("num_heads"), made.pop("mlp_dim"), made.get("dropout", 0.1))
        made.update(zip(BLOCKS, make_blocks(*numbers, **block), strict=True))
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

    def table(rows: int, bias: bool) -> layers.TokenEmbedding:
        return layers.TokenEmbedding(
            rows, hidden_dim, scale_embedding, logits_bias=bias, padding_id=padding_id
        )

    if target_vocab_size is None:
        return table(vocab_size, logits_bias)
    return table(vocab_size, False), table(target_vocab_size, logits_bias)


def make_blocks(
    num_heads: int,
    mlp_dim: int,
    dropout: float,
    attention_dropout: float = 0.0,
    norm_first: bool = False,
    activation: Activation | None = "relu",
    encoder_mixer: Part | None = None,
    decoder_mixer: Part | None = None,
    norm_epsilon: float = 1e-6,
) -> tuple[layers.EncoderBlock, layers.DecoderBlock]:
    """Makes the `encoder_block` and the `decoder_block` of a model."""
    attention: dict[str, Any] = {"num_heads": num_heads, "dropout": attention_dropout}
    shared: dict[str, Any] = {
        "mlp_dim": mlp_dim,
        "dropout": dropout,
        "activation": activation,
        "norm_first": norm_first,
        "norm": keras.layers.LayerNormalization(epsilon=norm_epsilon),
    }
    encoder_mixer = layers.SelfAttention(**attention) if encoder_mixer is None else encoder_mixer
    decoder_mixer = (
        layers.CausalSelfAttention(**attention) if decoder_mixer is None else decoder_mixer
    )
    across = layers.CrossAttention(**attention)
    return (
        layers.EncoderBlock(mixer=encoder_mixer, **shared),
        layers.DecoderBlock(mixer=decoder_mixer, cross_attention=across, **shared),
    )


def _pair(value: Any) -> Sequence[Any]:
    """What encoder and decoder, or source and target, have: the same where one was given."""
    return value if isinstance(value, (tuple, list)) and len(value) == 2 else (value, value)


class Translator(TokenModel):
    """Base of `Transformer` and `RecurrentTranslator`.

    Attributes:
        source_embedding, target_embedding: The tables, which may be one; the target's makes logits.
        padding_id: The id that stands for padding, on both sides.
    """

    needed_inputs = ("source", "target")

    def _make_tables(self, source: Any, target: Any = None) -> None:
        """Copies of the `TokenEmbedding` of the source and of the target; one where that is None.

        Raises:
            ValueError: If the two do not fit each other.
        """
        kind = layers.TokenEmbedding
        prototype = Prototype(self, "embedding", source, kind)
        self.source_embedding = prototype.copy(self, "source_embedding")
        self.target_embedding = self.source_embedding
        if target is not None:
            prototype = Prototype(self, "embedding", target, kind)
            self.target_embedding = prototype.copy(self, "target_embedding")
        self.padding_id = self.target_embedding.padding_id
        source, target = self.source_embedding, self.target_embedding
        numbers = {"hidden_dim": (source.hidden_dim, target.hidden_dim)}
        numbers["padding_id"] = (source.padding_id, target.padding_id)
        for name, (of_source, of_target) in numbers.items():
            if of_source != of_target:
                raise ValueError(
                    f"{type(self).__name__}: the two of `embedding` must have the same `{name}`. "
                    f"Received: {of_source} and {of_target}"
                )

    def _build_tables(self) -> None:
        self.source_embedding.build((None, None))
        if self.target_embedding is not self.source_embedding:
            self.target_embedding.build((None, None))

    def output_table(self) -> tuple[layers.TokenEmbedding, list[Any]] | None:
        """Returns the table of the target, which makes the logits, and its bias if it has one."""
        table = self.target_embedding
        return table, [] if table.bias is None else [table.bias]

    def step_within(self, ids: Tensor) -> Any:
        """`decode_step` with the logits of some target tokens alone, as a function of its own.

        Args:
            ids: Integers `(tokens,)`, whose rows of the table are taken once, for all steps.

        Returns:
            Function as `decode_step`, whose logits are `(batch, beams, tokens)`.
        """
        listed = ListedTokens(self.target_embedding, ids)

        def step(*arguments: Any) -> tuple[Tensor, Any]:
            with hidden_states():
                x, state = self.decode_step(*arguments)
            return listed.step_logits(x), state

        return step

    def log_probabilities(self, source: Tensor, target: Tensor) -> Tensor:
        """How probable the tokens of given translations are, each after those before it.

        Logits exist for a few positions at a time.

        Args:
            source: Ids `(batch, length)`.
            target: Ids `(batch, length + 1)`, the first of which is START; END should be the last
                real one.

        Returns:
            Float32 `(batch, length)`, of the tokens from the second on; 0 at padding.
        """
        following = target[:, 1:]
        with hidden_states():
            x = self({"source": source, "target": target[:, :-1]}, training=False)
        found = log_probabilities(self.target_embedding.logits, x, following)
        return ops.where(ops.equal(following, self.padding_id), 0.0, found)

    def next_log_probabilities(self, source: Tensor, target: Tensor) -> Tensor:
        """How probable each token of the vocabulary is behind the beginnings of translations.

        Args:
            source: Ids `(batch, length)`.
            target: Ids `(batch, length)`, the first of which is START; padding behind the last.

        Returns:
            Float32 `(batch, target vocabulary)`.
        """
        with hidden_states():
            x = self({"source": source, "target": target}, training=False)
        # Behind START, which with Marian's models is padding's id.
        real = ops.not_equal(target[:, 1:], self.padding_id)
        last = ops.sum(ops.cast(real, "int32"), axis=1)
        x = ops.take_along_axis(x, last[:, None, None], axis=1)
        logits = ops.cast(self.target_embedding.logits(x)[:, 0], "float32")
        return ops.log_softmax(logits)

    def compute_output_shape(self, input_shape: dict[str, Shape]) -> Shape:
        return (*input_shape["target"], self.target_embedding.vocab_size)


@keras.saving.register_keras_serializable("keras_transformers")
class Transformer(Translator):
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

    variant_keywords = TransformerOptions.__annotations__

    optional_inputs = ("source_segments", "target_segments")

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
        configuration = TransformerConfiguration(
            vocab_size=vocab_size,
            hidden_dim=hidden_dim,
            num_heads=num_heads,
            mlp_dim=mlp_dim,
            num_layers=num_layers,
            dropout=dropout,
            embedding=serialized_parts(embedding),
            positions=serialized_parts(positions),
            encoder_block=serialized(encoder_block),
            decoder_block=serialized(decoder_block),
        )
        self.configuration = configuration = _completed(configuration)
        tables = embedding
        if tables is None:
            tables = layers.TokenEmbedding(configuration.vocab_size, configuration.hidden_dim)
        self._make_tables(*(tables if isinstance(tables, (tuple, list)) else (tables,)))
        self._make_positions(positions)
        self.dropout_layer = layers.Dropout(dropout, dtype=self.dtype_policy)
        numbers = (configuration.num_heads, configuration.mlp_dim, dropout)
        depth, decoder_depth = _pair(num_layers)
        if encoder_block is None:
            encoder_block = layers.EncoderBlock(*numbers)
        self.encoder_blocks = self._copies("encoder", encoder_block, depth)
        if decoder_block is None:
            decoder_block = layers.DecoderBlock(*numbers)
        self.decoder_blocks = self._copies("decoder", decoder_block, decoder_depth)
        self.encoder_norm = self.encoder_blocks[0].closing_norm(self, "encoder_norm")
        self.decoder_norm = self.decoder_blocks[0].closing_norm(self, "decoder_norm")

    def _make_positions(self, positions: Any) -> None:
        source, target = _pair(positions)
        self.source_positions = make_positions(self, source, "source_positions")
        self.target_positions = self.source_positions
        if target is not source:
            self.target_positions = make_positions(self, target, "target_positions")
        kinds = (type(None), layers.AttentionPositionEncoding)
        self.adds_positions = not isinstance(self.target_positions, kinds)

    @property
    def most_positions(self) -> int | None:
        """How long a source and a target may be, None without end."""
        terms = (self.source_positions, self.target_positions)
        return shortest_limit([*terms, *self.encoder_blocks, *self.decoder_blocks])

    def _copies(self, side: Literal["encoder", "decoder"], block: Part, depth: int) -> list[Any]:
        """As many copies of a block as its stack has."""
        kind = layers.EncoderBlock if side == "encoder" else layers.DecoderBlock
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
        training = bool(training)  # Keras has asked the layers around this one
        inputs = self.as_inputs(inputs)
        segments, target_segments = inputs.get("source_segments"), inputs.get("target_segments")
        if (segments is None) != (target_segments is None):
            raise ValueError(
                f"Transformer '{self.name}': `inputs` must have both 'source_segments' and "
                f"'target_segments', or neither. Received: {sorted(inputs)}"
            )
        context = self.encode(inputs["source"], segments, training=training)
        if segments is None or target_segments is None:
            # Padded targets need no mask: they come last, and no real token sees a later one.
            self_mask = None
            context_mask = ops.not_equal(inputs["source"], self.padding_id)  # (batch, source)
        else:
            self_mask = layers.segment_mask(target_segments)  # (batch, target, target)
            context_mask = layers.segment_mask(target_segments, segments)
        x = self.target_embedding(inputs["target"])
        x = self._with_positions(self.target_positions, x, self_mask, training)
        bias = None
        if isinstance(self.target_positions, layers.AttentionPositionEncoding):
            bias = bias_of_positions(self.target_positions, ops.shape(x)[1])
        for block in self.decoder_blocks:
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
        self_mask = None if source_segments is None else layers.segment_mask(source_segments)
        padding = ops.not_equal(source, self.padding_id) if self_mask is None else None
        x = self.source_embedding(source)
        x = self._with_positions(self.source_positions, x, self_mask, training)
        bias = None
        if isinstance(self.source_positions, layers.AttentionPositionEncoding):
            bias = bias_of_positions(self.source_positions, ops.shape(x)[1])
        for block in self.encoder_blocks:
            x = block(
                x, attention_mask=self_mask, padding_mask=padding, attention_bias=bias,
                training=training,
            )  # fmt: skip
        if self.encoder_norm is None:
            return x
        return ops.cast(apply_to_tokens(self, "norm", self.encoder_norm, x, padding), x.dtype)

    def _with_positions(
        self, layer: Any, x: Tensor, self_mask: Tensor | None, training: bool | None
    ) -> Tensor:
        """Adds positions, which start anew in each segment, and applies dropout.

        Positions that enter the scores of attention instead are not added here.
        """
        if layer is not None and not isinstance(layer, layers.AttentionPositionEncoding):
            positions = None if self_mask is None else layers.segment_positions(self_mask)
            x = layer(x, positions=positions)
        return x if training is False else self.dropout_layer(x, training=training)

    @property
    def most_decodable(self) -> int | None:
        """The most tokens that can be decoded: all target positions, or None without a limit."""
        return shortest_cache(
            self.decoder_blocks, getattr(self.target_positions, "most_positions", None)
        )

    def start_decoding(
        self, source: Tensor, beams: int, max_length: Index, coverage: bool = False
    ) -> tuple[DecodingState, Source]:
        """Encodes the source once, and makes what `decode_step` needs.

        The caches hold `batch * heads * (key_dim + value_dim) * (beams * max_length +
        source_length)` numbers of the compute dtype for each decoder block.

        Args:
            source: Integer ids `(batch, source_length)`.
            beams: Number of sequences to decode for each source.
            max_length: Number of steps there may be.
            coverage: Whether to sum up how much each source token was attended to.

        Returns:
            `(state, shared)`: a `DecodingState`, whose coverage is the sums of the last block's
            cross-attention (mean of its heads), 1 at padding; and the `Source`.

        Raises:
            ValueError: If there may be more steps than `most_decodable`.
        """
        check_decodable(self, max_length)
        context = self.encode(source, training=False)
        mask = layers.padding_mask(source, self.padding_id)
        shared = [block.cross_attention.project_context(context) for block in self.decoder_blocks]
        batch = ops.shape(source)[0]
        caches = [block.start_cache(batch, beams, max_length) for block in self.decoder_blocks]
        state = DecodingState(caches, start_coverage(mask, beams) if coverage else ())
        return state, Source(shared, mask)

    def decode_step(
        self,
        ids: Tensor,
        index: Index,
        state: DecodingState,
        shared: Source,
        back_pointers: BackPointers | None = None,
    ) -> tuple[Tensor, DecodingState]:
        """Scores the next token of every sequence.

        Args:
            ids: Integers `(batch, beams)`, the token at position `index`; or `(batch, length)`,
                several of each row from its `index` on, where there is one beam.
            index: Int or scalar tensor; or integers `(batch,)`.
            state, shared: From `start_decoding` or the step before.
            back_pointers: `generation.BackPointers` of the beams; None where none has moved.

        Returns:
            Logits `(batch, beams or length, target vocabulary)` and the new `state`.
        """
        x = self.target_embedding.vectors(ids)
        bias = self.target_positions  # that all blocks share
        if self.adds_positions:
            here = token_positions(
                index, ids, getattr(self.target_positions, "most_positions", None)
            )
            x, bias = self.target_positions(x, positions=here), None
        x, state, weights = step_blocks(
            self.decoder_blocks, x, index, state, back_pointers, shared.context, shared.mask, bias
        )
        if not isinstance(state.coverage, tuple):
            attended = ops.mean(ops.cast(weights, "float32"), axis=1)
            coverage = add_coverage(state.coverage, attended, back_pointers)
            state = state._replace(coverage=coverage)
        x = x if self.decoder_norm is None else ops.cast(self.decoder_norm(x), x.dtype)
        return self._scored(x, self.target_embedding.step_logits), state

    caches_in = hold_caches_in
    grow_caches = grow_caches
