"""What models of one text share: ids as vectors, and a stack of blocks."""

import itertools
from collections.abc import Sequence
from typing import Any, ClassVar, Self, TypeAlias

import keras
from keras import ops

from keras_transformers.annotations import Part, ProblemType, Shape, Tensor
from keras_transformers.layers import Dropout, TokenEmbedding, padding_mask
from keras_transformers.layers.composite import Composite
from keras_transformers.layers.errors import rate, refuse
from keras_transformers.layers.masks import apply_to_tokens
from keras_transformers.layers.parts import arguments_of_call, part, serialized
from keras_transformers.layers.traced import Traced
from keras_transformers.models.calibration import Calibrated
from keras_transformers.models.settings import ModelSettings, check_numbers, check_sizes
from keras_transformers.models.stack_positions import shortest_limit
from keras_transformers.models.text_embedding import TextEmbedding
from keras_transformers.models.text_inputs import TakesIds, masks_and_positions
from keras_transformers.models.text_variants import OF_BLOCK, OF_EMBEDDING
from keras_transformers.models.transfer import Transferable
from keras_transformers.models.without_logits import TrainsWithoutLogits

LENGTH = 1 << 20  # of a text, in the place of one that is not known
Blocks: TypeAlias = Part | Sequence[Part]  # of all layers, or in turn


class TextModel(
    Calibrated,
    Transferable,
    Traced,
    TakesIds,
    TrainsWithoutLogits,
    ModelSettings,
    Composite,
    keras.Model,
):
    """Base of `TextEncoder` and `LanguageModel`.

    Settings of both are `vocab_size`, `hidden_dim`, `num_heads`, `mlp_dim`, `num_layers`,
    `max_length`, `dropout`, the parts that take the place of numbers, `block` and `embedding`, and
    `head`.

    Attributes:
        block_kind: What a `block` must be.
        default_embedding, default_block: Functions of numbers, by name, that make the default part.
    """

    block_kind: ClassVar[type[keras.layers.Layer]]
    default_embedding: ClassVar[Any]
    default_block: ClassVar[Any]

    def _make_embedding(self, given: Part | None) -> TextEmbedding:
        make = self.default_embedding
        prototype = self._prototype("embedding", given, TextEmbedding, OF_EMBEDDING, make)
        embedding: TextEmbedding = prototype.copy(self, "embedding")
        return embedding

    def _make_blocks(self, given: Blocks | None, name: str) -> tuple[list[Any], Any]:
        """The blocks, `name`_0 and so on, and the norm behind those that are pre-norm, or None."""
        check_sizes(type(self).__name__, self._settings, ("num_layers",))
        dropout, number = self._settings["dropout"], self._settings["num_layers"]

        def make(**numbers: Any) -> Any:
            width = {"hidden_dim": self.embedding.hidden_dim}
            check_numbers(type(self).__name__, {**numbers, **width})
            rates = {} if dropout is None else {"dropout": dropout}
            return self.default_block(**numbers, **rates)

        several: Sequence[Any] = given if isinstance(given, list | tuple) else [given]
        if not several or number % len(several):
            refuse(self, "block", f"one, or as many as divide num_layers={number}", len(several))
        prototypes = [
            self._prototype("block", each, self.block_kind, OF_BLOCK, make) for each in several
        ]
        first = prototypes[0].layer
        if dropout is None:
            self._settle(dropout=first.dropout)
        dropout = rate(self, "dropout", self._settings["dropout"])
        self.dropout_layer = Dropout(dropout, dtype=self.dtype_policy)
        turns = zip(range(number), itertools.cycle(prototypes), strict=False)
        blocks = [prototype.copy(self, f"{name}_{i}", i) for i, prototype in turns]
        for block in blocks:
            block.dropout = dropout
        self._most_mixed = shortest_limit(blocks)
        return blocks, first.copied_norm(self, "norm") if first.norm_first else None

    @property
    def padding_id(self) -> int:
        """The id that stands for padding."""
        return self.embedding.padding_id

    @property
    def token_embedding(self) -> TokenEmbedding:
        """The table of tokens, from which logits come."""
        return self.embedding.token_embedding

    @property
    def most_positions(self) -> int | None:
        """The number of positions that a text may have, None without a limit."""
        known = (self.embedding.most_positions, self._most_mixed)
        return min((most for most in known if most is not None), default=None)

    def _make_head(self, given: Part | None) -> None:
        self.head: Any = None
        self._head_takes: frozenset[str] = frozenset()
        if given is not None:
            self.head = part(self, "head", given, keras.layers.Layer)
            self._head_takes = arguments_of_call(self.head)

    @property
    def _restores(self) -> bool:
        """Whether the head makes logits of the vocabulary."""
        return "logits" in self._head_takes

    def _build_head(self, shape: Shape) -> None:
        if self.head is not None:
            self.head.build(shape, **self._shape_of_logits(shape))

    def _shape_of_logits(self, hidden: Shape) -> dict[str, Shape]:
        """What a head that takes `logits` is told of them."""
        vocab_size = self.embedding.vocab_size
        return {"logits_shape": (*hidden[:-1], vocab_size)} if self._restores else {}

    def _headed(self, x: Tensor, ids: Tensor, training: bool | None) -> Tensor:
        """What the head makes of `(batch, length, hidden_dim)`, given what its `call` names."""
        options: dict[str, Any] = {"training": training, "logits": self.token_embedding.logits}
        options |= {"ids": ids, "real": padding_mask(ids, self.padding_id)}
        return self.head(x, **{k: v for k, v in options.items() if k in self._head_takes})

    def _shape_of_output(self, hidden: Shape) -> Shape:
        """The shape of what the head makes."""
        shape: Shape = self.head.compute_output_shape(hidden, **self._shape_of_logits(hidden))
        return shape

    @property
    def problem_type(self) -> ProblemType | None:
        """What the logits of classes are for, as the head was told."""
        return getattr(self.head, "problem_type", None)

    def transferred(self, **changes: Any) -> Self:
        """As `Transferable.transferred`; `num_classes` alone makes a head like this one's."""
        if "num_classes" in changes and "head" not in changes:
            if not hasattr(self.head, "num_classes"):
                expected = "left out, for the head has no classes; give a `head`"
                refuse(self, "num_classes", expected, changes["num_classes"])
            head = serialized(self.head)
            number = {"num_classes": changes.pop("num_classes")}
            changes["head"] = {**head, "config": {**head["config"], **number}}
        return super().transferred(**changes)

    def compute_mask(self, inputs: Any, previous_mask: Any = None) -> Tensor | None:
        """Which positions of the output stand for a real token; None where it has others."""
        return super().compute_mask(inputs, previous_mask) if self._labels_each_token else None

    @property
    def _labels_each_token(self) -> bool:
        """True if there is an output for each token, `(batch, length, width)`."""
        shape = self.compute_output_shape((None, LENGTH))
        return len(shape) == 3 and shape[1] == LENGTH

    def output_table(self) -> tuple[TokenEmbedding, list[Any]] | None:
        """As `TrainsWithoutLogits.output_table`."""
        table = self.token_embedding
        return table, [] if table.bias is None else [table.bias]

    def _build_stack(self, blocks: Sequence[Any]) -> tuple[None, None, int]:
        """Builds all but a head; returns the shape of what comes out, `(None, None, width)`."""
        shape = (None, None, self.embedding.hidden_dim)
        self.embedding.build(shape[:2])
        for layer in (self.dropout_layer, *blocks, *([] if self.norm is None else [self.norm])):
            layer.build(shape)
        return shape

    def _run(
        self, blocks: Sequence[Any], inputs: dict[str, Tensor], training: bool | None = None
    ) -> Tensor:
        """From `as_inputs` through the blocks and the last norm: `(batch, length, hidden_dim)`."""
        same, padding, positions = masks_and_positions(self, inputs, self.embedding.most_positions)
        types = inputs.get("token_types")
        x = self.embedding(inputs["ids"], positions=positions, token_types=types)
        x = self.dropout_layer(x, training=training)
        for block in blocks:
            x = block(x, attention_mask=same, padding_mask=padding, training=training)
        return self._normed(x, padding)

    def _normed(self, x: Tensor, padding: Tensor | None = None) -> Tensor:
        """What the blocks give, after the last norm, if there is one."""
        if self.norm is None:
            return x
        return ops.cast(apply_to_tokens(self, "norm", self.norm, x, padding), self.compute_dtype)
