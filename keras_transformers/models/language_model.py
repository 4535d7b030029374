"""Decoder-only Transformers: GPT-2 (Radford et al. 2019), and a modern one."""

from typing import Any, Literal, Self, Unpack

import keras
from keras import ops

from keras_transformers.annotations import (
    Activation,
    BackPointers,
    Index,
    LayerOptions,
    Shape,
    Tensor,
)
from keras_transformers.layers import DecoderBlock, gelu_tanh
from keras_transformers.models.decoding import CachedDecoding, DecodingState, log_probabilities
from keras_transformers.models.settings import (
    check_choice,
    check_divides,
    keeps_settings,
    serialized_activation,
    variant,
)
from keras_transformers.models.text_model import TextModel
from keras_transformers.models.text_styles import decoder_norm, decoder_parts

# Radford et al. 2019, table 2 (small to xl), and smaller ones for small data.
VARIANTS: dict[str, dict[str, Any]] = {
    "tiny": {"hidden_dim": 128, "num_heads": 4, "mlp_dim": 512, "num_layers": 2},
    "mini": {"hidden_dim": 256, "num_heads": 4, "mlp_dim": 1024, "num_layers": 4},
    "small": {"hidden_dim": 768, "num_heads": 12, "mlp_dim": 3072, "num_layers": 12},
    "medium": {"hidden_dim": 1024, "num_heads": 16, "mlp_dim": 4096, "num_layers": 24},
    "large": {"hidden_dim": 1280, "num_heads": 20, "mlp_dim": 5120, "num_layers": 36},
    "xl": {"hidden_dim": 1600, "num_heads": 25, "mlp_dim": 6400, "num_layers": 48},
}


@keras.saving.register_keras_serializable("keras_transformers")
class LanguageModel(CachedDecoding, TextModel):
    """Decoder-only Transformer: the probability of each token given those before it.

    Style "gpt2" (Radford et al. 2019, "Language Models are Unsupervised Multitask Learners"):
    learned positions, pre-norm blocks with GELU, a last norm. Style "modern" (Touvron et al. 2023,
    "LLaMA", https://arxiv.org/abs/2302.13971, section 2.2): rotary positions, RMS norms, SwiGLU, no
    biases, and keys and values shared by groups of heads on request. Logits are the output times
    the transposed token table. Padding is masked inside, on either side of the text.

    Several texts can share a row: with `segments`, tokens attend inside their own only and
    positions start anew in each.

    Args:
        vocab_size: Size of the vocabulary.
        hidden_dim: Width of every token.
        num_heads: Heads of every attention; must divide `hidden_dim`.
        mlp_dim: Width of the feed-forward networks.
        num_layers: Number of blocks.
        num_key_value_heads: Heads of keys and values; must divide `num_heads`; None for as many.
        max_length: Number of positions in the table of "gpt2"; "modern" has none.
        style: "gpt2" or "modern".
        dropout: Rate on embeddings and on every residual branch.
        attention_dropout: Rate on the attention weights.
        activation: Activation of the feed-forward networks of "gpt2"; by default GELU by the tanh.
        norm_epsilon: Epsilon of all norms.
        padding_id: The id that stands for padding; where it is a token's in a published vocabulary,
            a negative one, which no token has.

    Call arguments:
        inputs: Integer ids `(batch, length)`, or floats that hold integers; or a dict of `ids` and
            optionally `segments` (1, 2, 3 ... number the texts of a packed row, 0 = padding).
        training: Whether dropout acts.

    Returns:
        Logits `(batch, length, vocab_size)`: at each position, of the token after it. They have the
        implicit Keras mask of the real tokens.

    Raises:
        ValueError: If a size is not positive, `num_heads` does not divide `hidden_dim`, `style` is
            unknown, or a text is longer than `max_length`.

    Example:
    >>> import numpy as np
    >>> from keras_transformers.generation import generate
    >>> from keras_transformers.models import LanguageModel
    >>> model = LanguageModel(31, hidden_dim=16, num_heads=2, mlp_dim=32, num_layers=1)
    >>> tuple(model(np.array([[1, 5, 7, 2, 0]])).shape)
    (1, 5, 31)
    >>> generate(model, prompt=np.array([[5, 7]]), max_length=6)["tokens"][0, :2].tolist()
    [5, 7]
    """

    optional_inputs = ("segments",)

    @keeps_settings(activation=serialized_activation)
    def __init__(
        self,
        vocab_size: int,
        hidden_dim: int = 768,
        num_heads: int = 12,
        mlp_dim: int = 3072,
        num_layers: int = 12,
        num_key_value_heads: int | None = None,
        max_length: int = 1024,
        style: Literal["gpt2", "modern"] = "gpt2",
        dropout: float = 0.1,
        attention_dropout: float = 0.1,
        activation: Activation | None = gelu_tanh,
        norm_epsilon: float = 1e-5,
        padding_id: int = 0,
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(**kwargs)
        self._check_settings()
        self.padding_id = padding_id
        policy = self.dtype_policy
        self._make_tables()
        self._make_dropout()
        self.decoder_blocks = [
            DecoderBlock(
                dropout=dropout,
                norm_first=True,
                name=f"decoder_{i}",
                dtype=policy,
                norm=decoder_norm(self._settings, "norm", policy),
                **decoder_parts(self._settings),
            )
            for i in range(num_layers)
        ]
        self.norm = decoder_norm(self._settings, "norm", policy)

    def _check_settings(self) -> None:
        settings = self._settings
        self._check_sizes("num_key_value_heads")
        if settings["num_key_value_heads"] is not None:
            check_divides("LanguageModel", settings, "num_key_value_heads", "num_heads")
        check_choice("LanguageModel", settings, "style", ("gpt2", "modern"))

    @classmethod
    def from_variant(
        cls,
        name: Literal["tiny", "mini", "small", "medium", "large", "xl"],
        vocab_size: int = 50257,
        **changes: Any,
    ) -> Self:
        """A model of a published (or smaller) size.

        Parameters of style "gpt2" with 50,257 tokens: "small" 124 M, "medium" 355 M, "large" 774 M,
        "xl" 1,558 M; beside these "tiny" and "mini".

        Args:
            name: Name of the variant.
            vocab_size: Size of the vocabulary; by default that of GPT-2.
            **changes: Any constructor argument, instead of the variant's. With `style="modern"`
                `mlp_dim` is two thirds of the variant's, for the gate is a third matrix.

        Raises:
            ValueError: If there is no such variant.
        """
        return cls(vocab_size, **variant("LanguageModel", name, VARIANTS, changes))

    def build(self, inputs_shape: Any) -> None:
        self._build_tables()
        self._build_in_turn(self.dropout_layer, *self.decoder_blocks, self.norm)

    def call(self, inputs: Tensor | dict[str, Tensor], training: bool | None = None) -> Tensor:
        x = self._run(self.decoder_blocks, self.as_inputs(inputs), training)
        return self.token_embedding.logits(x)

    def compute_output_shape(self, inputs_shape: Any) -> Shape:
        ids = inputs_shape["ids"] if isinstance(inputs_shape, dict) else inputs_shape
        return (*ids, self._settings["vocab_size"])

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
            ValueError: If there may be more steps than positions.
        """
        # A tensor is what nobody knows while tracing; who traces sees to it.
        most = self.most_positions
        if isinstance(max_length, int) and most is not None and max_length > most:
            raise ValueError(
                f"LanguageModel '{self.name}': `max_length` must be at most the model's, "
                f"{most}. Received: {max_length}"
            )
        batch = ops.shape(source)[0]
        return DecodingState(self._start_caches(batch, beams, max_length)), None

    def prefill(
        self, ids: Tensor, following: Tensor, state: DecodingState, beams: int
    ) -> tuple[Tensor, DecodingState]:
        """Takes in the first tokens of every sequence at once, instead of one a step.

        Args:
            ids: Integers `(batch, length)`, those at the positions `0 .. length - 1`.
            following: Integers `(batch, length)`, the token after each.
            state: From `start_decoding`.
            beams: The number it was given.

        Returns:
            Log-probabilities of `following`, float32 `(batch, length)`, and the new `state`.
        """
        x = self._embed(ids, ops.arange(ops.shape(ids)[1], dtype="int32")[None])
        caches = []
        for block, cache in zip(self.decoder_blocks, state.caches, strict=True):
            x, cache = block.prefill(x, cache, beams)
            caches.append(cache)
        scores = log_probabilities(self.token_embedding.logits, self.norm(x), following)
        return scores, state._replace(caches=caches)

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
            ids: Integers `(batch, beams)`, the token at position `index`.
            index: Int or scalar tensor.
            state: From `start_decoding`, `prefill` or the step before.
            shared: Is ignored: there is no source.
            back_pointers: `generation.BackPointers` of the beams; None where none has moved.

        Returns:
            Logits `(batch, beams, vocab_size)` and the new `state`.
        """
        x = self._embed(ids, ops.broadcast_to(ops.cast(index, "int32"), ops.shape(ids)))
        x, state, _ = self._step_blocks(x, index, state, back_pointers)
        return self.token_embedding.step_logits(self.norm(x)), state
