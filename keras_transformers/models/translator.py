"""What models that translate share: their inputs, and tables of source and target tokens."""

from typing import Any

import keras
from keras import ops

from keras_transformers.annotations import Shape, Tensor
from keras_transformers.layers import TokenEmbedding
from keras_transformers.layers.composite import Composite
from keras_transformers.layers.listed_tokens import ListedTokens
from keras_transformers.layers.parts import Prototype
from keras_transformers.layers.traced import Traced
from keras_transformers.models.decoding import log_probabilities
from keras_transformers.models.settings import ModelSettings
from keras_transformers.models.text_inputs import TakesIds
from keras_transformers.models.without_logits import TrainsWithoutLogits, hidden_states


class Translator(Traced, TakesIds, TrainsWithoutLogits, ModelSettings, Composite, keras.Model):
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
        kind = TokenEmbedding
        prototype = Prototype(self, "embedding", source, kind)
        self.source_embedding = prototype.copy(self, "source_embedding")
        self.target_embedding = self.source_embedding
        if target is not None:
            prototype = Prototype(self, "embedding", target, kind)
            self.target_embedding = prototype.copy(self, "target_embedding")
        self.padding_id = self.target_embedding.padding_id
        for name in ("hidden_dim", "padding_id"):
            found = [getattr(each, name) for each in (self.source_embedding, self.target_embedding)]
            if found[0] != found[1]:
                raise ValueError(
                    f"{type(self).__name__}: the two of `embedding` must have the same `{name}`. "
                    f"Received: {found[0]} and {found[1]}"
                )

    def _build_tables(self) -> None:
        self.source_embedding.build((None, None))
        if self.target_embedding is not self.source_embedding:
            self.target_embedding.build((None, None))

    def output_table(self) -> tuple[TokenEmbedding, list[Any]] | None:
        """As `TrainsWithoutLogits.output_table`."""
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
