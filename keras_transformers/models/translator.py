"""What models that translate share: their inputs, and tables of source and target tokens."""

import keras

from keras_transformers.annotations import Shape
from keras_transformers.layers import TokenEmbedding
from keras_transformers.layers.composite import Composite
from keras_transformers.layers.traced import Traced
from keras_transformers.models.settings import ModelSettings
from keras_transformers.models.text_inputs import TakesIds


class Translator(Traced, TakesIds, ModelSettings, Composite, keras.Model):
    """Base of `Transformer` and `RecurrentTranslator`.

    Settings of both are `vocab_size` and `target_vocab_size`; where the latter is None, one table
    serves source, target and output.
    """

    needed_inputs = ("source", "target")

    def _make_tables(self, hidden_dim: int, scale: bool) -> None:
        settings = self._settings
        table = {"hidden_dim": hidden_dim, "scale": scale, "dtype": self.dtype_policy}
        self.source_embedding = self.target_embedding = TokenEmbedding(
            settings["vocab_size"], name="source_embedding", **table
        )
        if settings["target_vocab_size"] is not None:
            self.target_embedding = TokenEmbedding(
                settings["target_vocab_size"], name="target_embedding", **table
            )

    def _build_tables(self) -> None:
        self.source_embedding.build((None, None))
        if self.target_embedding is not self.source_embedding:
            self.target_embedding.build((None, None))

    def compute_output_shape(self, input_shape: dict[str, Shape]) -> Shape:
        return (*input_shape["target"], self.target_embedding.vocab_size)
