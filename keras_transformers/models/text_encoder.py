"""Encoder-only Transformers for text: BERT (Devlin et al. 2018), and a modern one."""

from typing import Any, Literal, Self, Unpack

import keras
from keras import ops

from keras_transformers.annotations import Activation, LayerOptions, ProblemType, Shape, Tensor
from keras_transformers.layers import EncoderBlock, padding_mask
from keras_transformers.models.settings import (
    check_choice,
    check_problem,
    keeps_settings,
    serialized_activation,
    variant,
)
from keras_transformers.models.text_heads import HEADS, make_head
from keras_transformers.models.text_model import TextModel
from keras_transformers.models.text_styles import encoder_norm, encoder_parts
from keras_transformers.models.transfer import Transferable

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


@keras.saving.register_keras_serializable("keras_transformers")
class TextEncoder(Transferable, TextModel):
    """Encoder-only Transformer for text, with a head for one of three tasks.

    Style "bert" (Devlin et al. 2018, https://arxiv.org/abs/1810.04805): sum of token, position and
    token-type embeddings, norm, post-norm blocks with GELU. Style "modern" (Warner et al. 2024,
    "ModernBERT", https://arxiv.org/abs/2412.13663, section 2.1): token embeddings and norm,
    pre-norm blocks with rotary positions, GEGLU and no biases, and a last norm. Padding (id 0) is
    masked inside, on either side of the text.

    Several texts can share a row: with `segments`, tokens attend inside their own only and
    positions start anew in each.

    Args:
        vocab_size: Size of the vocabulary.
        hidden_dim: Width of every token.
        num_heads: Heads of every attention; must divide `hidden_dim`.
        mlp_dim: Width of the feed-forward networks.
        num_layers: Number of blocks.
        head: None for the encoder alone, "masked_language", "classification" or "tagging".
        num_classes: For the last two: number of classes.
        max_length: Number of positions in the table of "bert"; "modern" has none.
        style: "bert" or "modern".
        pooling: What "classification" looks at: "token", the first real one, or "mean", of all
            real ones.
        dropout: Rate on embeddings, on every residual branch, and in the head.
        attention_dropout: Rate on the attention weights.
        token_types: Of "bert": rows of the table of token types; 0 for none (Sanh et al. 2019,
            "DistilBERT", https://arxiv.org/abs/1910.01108, section 3).
        activation: Activation of the feed-forward networks of "bert" and of "masked_language".
        norm_epsilon: Epsilon of all norms; by default the published models', 1e-12 and 1e-5.
        pooler_activation: Activation of the layer before the classes of "classification".
        problem_type: Of "classification", what the logits are for, which exports go by:
            "single_label_classification" (a softmax), "multi_label_classification" (a sigmoid of
            each), "regression", or None: one of several classes, a sigmoid of a single logit.

    Call arguments:
        inputs: Integer ids `(batch, length)`, or floats that hold integers, 0 = padding; or a dict
            of `ids`, and optionally `token_types` (0 or 1, the sentence of a pair; "bert" only),
            `segments` (1, 2, 3 ... number the texts of a packed row, 0 = padding), each `(batch,
            length)`, and, for "masked_language", `masked_positions` `(batch, positions)`: where
            logits are wanted.
        training: Whether dropout acts.

    Returns:
        Without a head `(batch, length, hidden_dim)`; logits `(batch, length or positions,
        vocab_size)`, `(batch, num_classes)` or `(batch, length, num_classes)`. What has a position
        for each token has the implicit Keras mask of the real ones.

    Raises:
        ValueError: If a size is not positive, `num_heads` does not divide `hidden_dim`, a choice is
            unknown, `num_classes` is missing, or a text is longer than `max_length`.

    Example:
    >>> import numpy as np
    >>> from keras_transformers.models import TextEncoder
    >>> model = TextEncoder(31, hidden_dim=16, num_heads=2, mlp_dim=32, num_layers=1,
    ...                     head="classification", num_classes=3)
    >>> tuple(model(np.array([[2, 5, 7, 3, 0]])).shape)
    (1, 3)
    """

    padding_id = 0
    optional_inputs = ("token_types", "segments", "masked_positions")

    @keeps_settings(activation=serialized_activation)
    def __init__(
        self,
        vocab_size: int,
        hidden_dim: int = 768,
        num_heads: int = 12,
        mlp_dim: int = 3072,
        num_layers: int = 12,
        head: Literal["masked_language", "classification", "tagging"] | None = None,
        num_classes: int | None = None,
        max_length: int = 512,
        style: Literal["bert", "modern"] = "bert",
        pooling: Literal["token", "mean"] = "token",
        dropout: float = 0.1,
        attention_dropout: float = 0.1,
        token_types: int = 2,
        activation: Activation | None = "gelu",
        norm_epsilon: float | None = None,
        pooler_activation: Activation | None = "tanh",
        problem_type: ProblemType | None = None,
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(**kwargs)
        self._check_settings()
        policy = self.dtype_policy
        self._make_tables()
        self.token_type_embedding = None
        if style == "bert" and token_types:
            self.token_type_embedding = self._table(token_types, "token_type_embedding")
        self.embedding_norm = self._norm("embedding_norm")
        self._make_dropout()
        self.encoder_blocks = [
            EncoderBlock(
                dropout=dropout,
                name=f"encoder_{i}",
                dtype=policy,
                norm=self._norm("norm"),
                **encoder_parts(self._settings),
            )
            for i in range(num_layers)
        ]
        self.norm = self._norm("norm") if style == "modern" else None
        self.head: Any = make_head(self._settings, self._norm("norm"), policy)

    def _norm(self, name: str) -> keras.layers.Layer:
        return encoder_norm(self._settings, name, self.dtype_policy)

    def _check_settings(self) -> None:
        settings = self._settings
        self._check_sizes("num_classes")
        check_choice("TextEncoder", settings, "head", HEADS)
        check_choice("TextEncoder", settings, "style", ("bert", "modern"))
        check_choice("TextEncoder", settings, "pooling", ("token", "mean"))
        check_problem("TextEncoder", settings)
        needed = settings["head"] in ("classification", "tagging")
        if needed and settings["num_classes"] is None:
            raise ValueError(
                f"TextEncoder: `num_classes` must be given for head={settings['head']!r}. "
                "Received: None"
            )

    @property
    def problem_type(self) -> ProblemType | None:
        """What the logits of classes are for, as given."""
        return self._settings["problem_type"]

    @classmethod
    def from_variant(
        cls,
        name: Literal["tiny", "mini", "small", "medium", "base", "large"],
        vocab_size: int = 30522,
        **changes: Any,
    ) -> Self:
        """A model of a published size.

        Parameters of style "bert" with 30,522 tokens and a pooler: "tiny" 4.4 M, "mini" 11.2 M,
        "small" 28.8 M, "medium" 41.4 M, "base" 109.5 M, "large" 335 M.

        Args:
            name: Name of the variant.
            vocab_size: Size of the vocabulary; by default that of the published models in English.
            **changes: Any constructor argument, instead of the variant's. With `style="modern"`
                `mlp_dim` is two thirds of the variant's, for the gate is a third matrix.

        Raises:
            ValueError: If there is no such variant.
        """
        return cls(vocab_size, **variant("TextEncoder", name, VARIANTS, changes))

    def build(self, inputs_shape: Any) -> None:
        self._build_tables()
        if self.token_type_embedding is not None:
            self.token_type_embedding.build((None, None))
        layers = (self.embedding_norm, self.dropout_layer, *self.encoder_blocks)
        self._build_in_turn(*layers, self.norm, self.head)

    def call(self, inputs: Tensor | dict[str, Tensor], training: bool | None = None) -> Tensor:
        inputs = self.as_inputs(inputs)
        x = self.encode(inputs, training=training)
        kind = self._settings["head"]
        if kind == "classification":
            return self.head(x, padding_mask(inputs["ids"]), training=training)
        if kind == "tagging":
            return self.head(x, training=training)
        if kind == "masked_language":
            if "masked_positions" in inputs:
                positions = ops.cast(inputs["masked_positions"], "int32")[..., None]
                x = ops.take_along_axis(x, positions, axis=1)
            return self.head(x, logits=self.token_embedding.logits)
        return x

    def compute_output_shape(self, inputs_shape: Any) -> Shape:
        positions = ids = inputs_shape
        if isinstance(inputs_shape, dict):
            ids = inputs_shape["ids"]
            positions = inputs_shape.get("masked_positions", ids)
        hidden = (*ids, self._settings["hidden_dim"])
        if self._settings["head"] == "masked_language":
            return (*positions, self._settings["vocab_size"])
        return hidden if self.head is None else self.head.compute_output_shape(hidden)

    def compute_mask(self, inputs: Any, previous_mask: Any = None) -> Tensor | None:
        """Which positions of the output stand for a real token; None where it has others."""
        chosen = isinstance(inputs, dict) and inputs.get("masked_positions") is not None
        if chosen or self._settings["head"] == "classification":
            return None
        return super().compute_mask(inputs, previous_mask)

    def encode(self, inputs: Any, training: bool | None = None) -> Tensor:
        """Runs the blocks: ids, or a dict as for a call -> `(batch, length, hidden_dim)`."""
        return self._run(self.encoder_blocks, self.as_inputs(inputs), training)

    def _embed(self, ids: Tensor, positions: Tensor, token_types: Tensor | None = None) -> Tensor:
        x = super()._embed(ids, positions)
        if self.token_type_embedding is not None:
            types = ops.zeros_like(ids) if token_types is None else token_types
            x = x + self.token_type_embedding(types)
        elif token_types is not None:
            raise ValueError(
                f"TextEncoder '{self.name}': `token_types` must be left out, for this model knows "
                "none. Received: one"
            )
        return self.embedding_norm(x)
