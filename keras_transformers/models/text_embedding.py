"""What a model of text does first: ids become vectors that know their positions."""

from typing import Any, Unpack

import keras
from keras import ops

from keras_transformers.annotations import LayerOptions, Part, Shape, Tensor
from keras_transformers.layers import PositionEmbedding, TokenEmbedding
from keras_transformers.layers.arguments import Arguments
from keras_transformers.layers.composite import Composite
from keras_transformers.layers.errors import refuse, whole_number
from keras_transformers.layers.ids import as_ids
from keras_transformers.layers.parts import part, serialized


@keras.saving.register_keras_serializable("keras_transformers")
class TextEmbedding(Arguments, Composite, keras.layers.Layer):
    """The sum of token, position and token-type embeddings, and a norm: what there is of them.

    `x = norm(E[ids] + P[positions] + S[token_types])` (Devlin et al. 2018,
    https://arxiv.org/abs/1810.04805, section 3, figure 2). The `embedding` of `TextEncoder` and
    `LanguageModel`, which take logits from the same table `E`, or from one of
    their own.

    Args:
        vocab_size: Size of the vocabulary.
        hidden_dim: Width of every token.
        max_length: Rows of the table of positions; None for no table, where attention knows
            positions itself.
        token_types: Rows of the table of token types; 0 for none.
        padding_id: The id that stands for padding; where it is a token's in a published vocabulary,
            a negative one, which no token has.
        first_position: Row of that table that the first token gets: 2 in RoBERTa and OPT, whose
            texts are then at most `max_length - 2` long.
        norm: A norm of the sum, for instance `keras.layers.LayerNormalization()`, of which a copy
            is made; None for none.
        scale: Whether token vectors are multiplied by `sqrt(hidden_dim)`, see `TokenEmbedding`.
        embedding_dim: Width of the tables and of the norm, where it is another than `hidden_dim`;
            then a dense layer follows (Lan et al. 2020, "ALBERT",
            https://arxiv.org/abs/1909.11942, section 3.1: factorized embedding parameterization).
        tie_weights: Whether logits come from the table of tokens, see `TokenEmbedding`.

    Call arguments:
        ids: Integers `(batch, length)`, or floats that hold integers.
        positions: Optional integers `(batch, length)`, instead of `0, 1, ...`.
        token_types: Optional integers `(batch, length)`, instead of zeros.

    Returns:
        `(batch, length, hidden_dim)`.

    Raises:
        ValueError: If a size is not positive, or token types are given and there is no table.

    Example:
    >>> import keras, numpy as np
    >>> from keras_transformers.layers import EncoderBlock
    >>> from keras_transformers.models import TextEmbedding, TextEncoder
    >>> norm = keras.layers.LayerNormalization(epsilon=1e-5)
    >>> embedding = TextEmbedding(31, 16, max_length=9, padding_id=1, norm=norm)
    >>> model = TextEncoder(num_layers=2, embedding=embedding, block=EncoderBlock(2, 32))
    >>> tuple(model(np.array([[2, 5, 7, 3, 1]])).shape), model.padding_id
    ((1, 5, 16), 1)
    """

    def __init__(
        self,
        vocab_size: int,
        hidden_dim: int,
        max_length: int | None = 512,
        token_types: int = 0,
        padding_id: int = 0,
        first_position: int = 0,
        norm: Part | None = None,
        scale: bool = False,
        embedding_dim: int | None = None,
        tie_weights: bool = True,
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(**kwargs)
        self.vocab_size = whole_number(self, "vocab_size", vocab_size)
        self.hidden_dim = whole_number(self, "hidden_dim", hidden_dim)
        self.max_length = whole_number(self, "max_length", max_length, optional=True)
        self.token_types = whole_number(self, "token_types", token_types, least=0)
        self.padding_id = padding_id
        self.embedding_dim = whole_number(self, "embedding_dim", embedding_dim, optional=True)
        self.first_position = whole_number(self, "first_position", first_position, least=0)
        self.autocast = False  # half precision would round ids that are held in floats
        self.scale = scale
        self.tie_weights = tie_weights
        tokens = {"scale": scale, "tie_weights": tie_weights}
        self.token_embedding = self._table(vocab_size, "token_embedding", **tokens)
        self.position_embedding = None
        if max_length is not None:
            self.position_embedding = PositionEmbedding(
                max_length,
                first_position=first_position,
                name="position_embedding",
                dtype=self.dtype_policy,
            )
        self.token_type_embedding = None
        if token_types:
            self.token_type_embedding = self._table(token_types, "token_type_embedding")
        self.norm = None if norm is None else part(self, "norm", norm, keras.layers.Layer)
        self.projection = None
        if embedding_dim is not None:
            self.projection = keras.layers.Dense(
                hidden_dim, name="projection", dtype=self.dtype_policy
            )

    @property
    def most_positions(self) -> int | None:
        """How long a text may be, None without end."""
        return None if self.position_embedding is None else self.position_embedding.most_positions

    def _table(
        self, rows: int, name: str, scale: bool = False, tie_weights: bool = True
    ) -> TokenEmbedding:
        width, policy = self.embedding_dim or self.hidden_dim, self.dtype_policy
        return TokenEmbedding(rows, width, scale, tie_weights=tie_weights, name=name, dtype=policy)

    def build(self, ids_shape: Shape) -> None:
        self.token_embedding.build(ids_shape)
        if self.token_type_embedding is not None:
            self.token_type_embedding.build(ids_shape)
        for layer in (self.position_embedding, self.norm, self.projection):
            if layer is not None:
                layer.build((*ids_shape, self.embedding_dim or self.hidden_dim))

    def call(
        self, ids: Tensor, positions: Tensor | None = None, token_types: Tensor | None = None
    ) -> Tensor:
        if self.padding_id < 0:  # a row that is there, for padding outside the vocabulary
            ids = ops.maximum(as_ids(self, "ids", ids), 0)
        x = self.token_embedding(ids)
        if self.position_embedding is not None:
            x = self.position_embedding(x, positions=positions)
        if self.token_type_embedding is not None:
            types = ops.zeros_like(ids) if token_types is None else token_types
            x = x + self.token_type_embedding(types)
        elif token_types is not None:
            refuse(self, "token_types", "left out, for there is no table of them", "one")
        x = x if self.norm is None else ops.cast(self.norm(x), self.compute_dtype)
        return x if self.projection is None else self.projection(x)

    def compute_output_shape(self, ids_shape: Shape) -> Shape:
        return (*ids_shape, self.hidden_dim)

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "vocab_size": self.vocab_size,
            "hidden_dim": self.hidden_dim,
            "max_length": self.max_length,
            "token_types": self.token_types,
            "padding_id": self.padding_id,
            "first_position": self.first_position,
            "norm": serialized(self.norm),
            "scale": self.scale,
            "embedding_dim": self.embedding_dim,
            "tie_weights": self.tie_weights,
        }
