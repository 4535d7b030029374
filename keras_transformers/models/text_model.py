"""What models of one text share: its tokens and positions as vectors, and a stack of blocks."""

from collections.abc import Sequence
from typing import Any

import keras

from keras_transformers.annotations import Tensor
from keras_transformers.layers import Dropout, PositionEmbedding, TokenEmbedding
from keras_transformers.layers.composite import Composite
from keras_transformers.layers.traced import Traced
from keras_transformers.models.settings import ModelSettings, check_divides, check_sizes
from keras_transformers.models.text_inputs import TakesIds, masks_and_positions, rows_of_table


class TextModel(Traced, TakesIds, ModelSettings, Composite, keras.Model):
    """Base of `TextEncoder` and `LanguageModel`.

    Settings of both are `vocab_size`, `hidden_dim`, `num_heads`, `mlp_dim`, `num_layers`,
    `max_length`, `style` and `dropout`; "modern" has no table of positions. A subclass makes
    `self.norm`, the last one, or None.
    """

    def _check_sizes(self, *optional: str) -> None:
        owner, settings = type(self).__name__, self._settings
        sizes = ("vocab_size", "hidden_dim", "num_heads", "mlp_dim", "num_layers", "max_length")
        check_sizes(owner, settings, sizes, optional)
        check_divides(owner, settings, "num_heads", "hidden_dim")

    def _make_tables(self) -> None:
        settings, policy = self._settings, self.dtype_policy
        self.token_embedding = self._table(settings["vocab_size"], "token_embedding")
        self.position_embedding = None
        if settings["style"] != "modern":
            self.position_embedding = PositionEmbedding(
                settings["max_length"], name="position_embedding", dtype=policy
            )

    def _table(self, rows: int, name: str) -> TokenEmbedding:
        width = self._settings["hidden_dim"]
        return TokenEmbedding(rows, width, scale=False, name=name, dtype=self.dtype_policy)

    def _make_dropout(self) -> None:
        self.dropout_layer = Dropout(self._settings["dropout"], dtype=self.dtype_policy)

    def _build_tables(self) -> None:
        self.token_embedding.build((None, None))
        self._build_in_turn(self.position_embedding)

    def _build_in_turn(self, *layers: Any) -> None:
        """Builds those of the layers that are there, for `(batch, length, hidden_dim)`."""
        for layer in layers:
            if layer is not None:
                layer.build((None, None, self._settings["hidden_dim"]))

    @property
    def most_positions(self) -> int | None:
        """How many positions there are, None without end."""
        return None if self.position_embedding is None else self._settings["max_length"]

    def _embed(self, ids: Tensor, positions: Tensor, token_types: Tensor | None = None) -> Tensor:
        """Vectors `(batch, length, hidden_dim)` of ids at positions; before dropout."""
        x = self.token_embedding(rows_of_table(self, ids))
        if self.position_embedding is None:
            return x
        return self.position_embedding(x, positions=positions)

    def _run(
        self, blocks: Sequence[Any], inputs: dict[str, Tensor], training: bool | None = None
    ) -> Tensor:
        """From `as_inputs` through the blocks and the last norm: `(batch, length, hidden_dim)`."""
        same, padding, positions = masks_and_positions(self, inputs, self.most_positions)
        x = self._embed(inputs["ids"], positions, inputs.get("token_types"))
        x = self.dropout_layer(x, training=training)
        for block in blocks:
            x = block(x, attention_mask=same, padding_mask=padding, training=training)
        return x if self.norm is None else self.norm(x)
