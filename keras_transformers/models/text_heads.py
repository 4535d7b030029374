"""Heads and pooling of text models: tokens, classes, tags, spans, alignment."""

import dataclasses
from collections.abc import Callable
from typing import Any, Literal, TypeAlias, Unpack

import keras
from keras import ops

from keras_transformers.core.types import Activation, LayerOptions, Part, ProblemType, Shape, Tensor
from keras_transformers.layers import Dropout, padding_mask
from keras_transformers.layers.attention.scores import soft_capped
from keras_transformers.layers.base import BaseLayer, ReadByBuild
from keras_transformers.layers.checks import as_ids, rate, refuse, whole_number
from keras_transformers.layers.parts import Prototype, part_or_numbers, serialized
from keras_transformers.models.base import BaseModel, Configuration, check_problem, check_sizes
from keras_transformers.models.text_model import hidden_states


@keras.saving.register_keras_serializable("keras_transformers")
class LanguageHead(BaseLayer):
    """The `head` of a `LanguageModel` whose logits have a soft cap.

    `c tanh(y E^T / c)` (Gemma 2, Riviere et al. 2024, https://arxiv.org/abs/2408.00118, section 2).

    Args:
        soft_cap: `c` above, positive.

    Call arguments:
        x: `(batch, length, hidden_dim)`.
        logits: Function from `(batch, length, hidden_dim)` to `(batch, length, vocab_size)`, the
            product with the model's table.

    Returns:
        Logits `(batch, length, vocab_size)`.

    Raises:
        ValueError: If `soft_cap` is not positive.

    Example:
    >>> import numpy as np
    >>> from keras_transformers.models import LanguageHead, LanguageModel
    >>> model = LanguageModel.from_variant("tiny", 31, style="modern", head=LanguageHead(0.5))
    >>> bool(abs(np.array(model(np.array([[1, 5, 7]])))).max() < 0.5)
    True
    """

    def __init__(self, soft_cap: float, **kwargs: Unpack[LayerOptions]) -> None:
        super().__init__(**kwargs)
        if not soft_cap > 0:
            refuse(self, "soft_cap", "positive", soft_cap)
        self.soft_cap = soft_cap

    def build(self, x_shape: Shape, logits_shape: Shape) -> None:
        """Makes nothing: the table is the model's."""

    def call(self, x: Tensor, logits: Callable[[Tensor], Tensor]) -> Tensor:
        x = ops.cast(x, self.compute_dtype)
        scores = logits(x)
        return keras.ops.cast(soft_capped(scores, self.soft_cap), scores.dtype)

    def compute_output_shape(self, x_shape: Shape, logits_shape: Shape) -> Shape:
        return logits_shape

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "soft_cap": self.soft_cap}


@keras.saving.register_keras_serializable("keras_transformers")
class HeadTransform(BaseLayer):
    """`norm(act(W x + b))`, the `transform` of a head: what stands before its last layer.

    ModernBERT's heads have it without a bias (Warner et al. 2024, https://arxiv.org/abs/2412.13663,
    and their code), ELECTRA's generator with as many units as its table of tokens is wide (Clark et
    al. 2020, https://arxiv.org/abs/2003.10555, section 3.2).

    Args:
        activation: `act` above.
        norm: A norm, for instance `keras.layers.LayerNormalization()`, of which a copy is made;
            None for none.
        use_bias: Whether there is `b`.
        units: Rows of `W`; by default the width of `x`.

    Call arguments:
        x: `(..., hidden_dim)`.

    Returns:
        `(..., units)`.

    Raises:
        ValueError: If `units` is not positive.

    Example:
    >>> import keras, numpy as np
    >>> from keras_transformers.models import ClassificationHead, HeadTransform, TextEncoder
    >>> transform = HeadTransform(norm=keras.layers.LayerNormalization(), use_bias=False)
    >>> head = ClassificationHead(3, pooling="mean", transform=transform)
    >>> model = TextEncoder.from_variant("tiny", 31, style="modern", head=head)
    >>> tuple(model(np.array([[2, 5, 7, 3, 0]])).shape)
    (1, 3)
    """

    def __init__(
        self,
        activation: Activation | None = "gelu",
        norm: Part | None = None,
        use_bias: bool = True,
        units: int | None = None,
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(**kwargs)
        self.activation = keras.activations.get(activation)
        self._norm = None if norm is None else Prototype(self, "norm", norm, keras.layers.Layer)
        self.use_bias = use_bias
        self.units = whole_number(self, "units", units, optional=True)

    def build(self, x_shape: Shape) -> None:
        self.dense = keras.layers.Dense(
            self.units or x_shape[-1],
            self.activation,
            use_bias=self.use_bias,
            name="dense",
            dtype=self.dtype_policy,
        )
        self.dense.build(x_shape)
        self.norm: Any = None
        if self._norm is not None:
            self.norm = self._norm.copy(self, "norm")
            self.norm.build(self.compute_output_shape(x_shape))

    def call(self, x: Tensor) -> Tensor:
        x = ops.cast(x, self.compute_dtype)
        x = self.dense(x)
        return x if self.norm is None else ops.cast(self.norm(x), self.compute_dtype)

    def compute_output_shape(self, x_shape: Shape) -> Shape:
        return (*x_shape[:-1], self.units or x_shape[-1])

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "activation": keras.activations.serialize(self.activation),
            "norm": serialized(None if self._norm is None else self._norm.layer),
            "use_bias": self.use_bias,
            "units": self.units,
        }


Pooling: TypeAlias = Literal["token", "mean", "last"]
POOLINGS = ("token", "mean", "last")


def pooled_tokens(x: Tensor, real: Tensor, pooling: Pooling) -> Tensor:
    """One vector for each row of `x` `(batch, length, hidden_dim)`, in float32 at least.

    Args:
        real: Bool `(batch, length)`, False at padding.
        pooling: "token", the first real one, for padding may come before it; "mean"; or "last", the
            last real one.
    """
    if pooling != "mean":
        number = ops.cumsum(ops.cast(real, "int32"), axis=1)
        wanted = 1 if pooling == "token" else number[:, -1:]
        real = ops.logical_and(real, number == wanted)
    dtype = keras.backend.result_type(x.dtype, "float32")
    total = ops.sum(ops.where(ops.expand_dims(real, -1), ops.cast(x, dtype), 0.0), axis=1)
    return total / ops.maximum(ops.sum(ops.cast(real, dtype), axis=1, keepdims=True), 1.0)


@keras.saving.register_keras_serializable("keras_transformers")
class ClassificationHead(BaseLayer):
    """One class for a whole text.

    With pooling "token", `tanh(W h_1 + b)` of the first real token, dropout, and a dense layer
    (Devlin et al. 2018, https://arxiv.org/abs/1810.04805, section 3.1 and 4.1); with "mean", the
    same of the mean over real tokens; with "last", of the last real token, the only one that has
    seen the whole text in a decoder.

    Args:
        num_classes: Number of classes.
        pooling: "token", "mean" or "last".
        activation: Instead of tanh.
        dropout: Rate before the last layer.
        transform: What stands in the place of the dense layer with `activation`: a `HeadTransform`,
            or `keras.layers.Identity()` for nothing; copied.
        problem_type: What the logits are for, which exports go by: "single_label_classification" (a
            softmax), "multi_label_classification" (a sigmoid of each), "regression", or None: one
            of several classes, a sigmoid of a single logit.
        use_bias: Whether the last layer has a bias.

    Call arguments:
        x: `(batch, length, hidden_dim)`.
        real: Bool `(batch, length)`; True = real token.
        training: Whether dropout acts.

    Returns:
        Logits `(batch, num_classes)`.

    Raises:
        ValueError: If `num_classes` is not positive, or a choice is unknown.

    Example:
    >>> import numpy as np
    >>> from keras_transformers.models import ClassificationHead, TextEncoder
    >>> head = ClassificationHead(3, pooling="mean", problem_type="multi_label_classification")
    >>> model = TextEncoder(31, hidden_dim=16, num_heads=2, mlp_dim=32, num_layers=1, head=head)
    >>> tuple(model(np.array([[2, 5, 7, 3, 0]])).shape)
    (1, 3)
    """

    dropout: Any = ReadByBuild()

    def __init__(
        self,
        num_classes: int,
        pooling: Pooling = "token",
        activation: Activation | None = "tanh",
        dropout: float = 0.1,
        problem_type: ProblemType | None = None,
        transform: Part | None = None,
        use_bias: bool = True,
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(**kwargs)
        self.num_classes = whole_number(self, "num_classes", num_classes)
        self._transform = part_or_numbers(self, "transform", transform, keras.layers.Layer)
        if pooling not in POOLINGS:
            refuse(self, "pooling", f"one of {', '.join(POOLINGS)}", repr(pooling))
        self.use_bias = use_bias
        self.pooling = pooling
        self.activation = keras.activations.get(activation)
        self.dropout = rate(self, "dropout", dropout)
        settings = {"problem_type": problem_type, "num_classes": num_classes}
        check_problem("ClassificationHead", settings)
        self.problem_type = problem_type

    def build(self, x_shape: Shape, real_shape: Shape | None = None) -> None:
        width = x_shape[-1]
        if self._transform is None:
            self.pooler: Any = keras.layers.Dense(
                width, self.activation, name="pooler", dtype=self.dtype_policy
            )
        else:
            self.pooler = self._transform.copy(self, "transform")
        self.pooler.build((None, width))
        self.dropout_layer = Dropout(self.dropout, dtype=self.dtype_policy)
        self.classes = keras.layers.Dense(
            self.num_classes, use_bias=self.use_bias, name="classes", dtype=self.dtype_policy
        )
        self.classes.build(self.pooler.compute_output_shape((None, width)))

    def call(self, x: Tensor, real: Tensor, training: bool | None = None) -> Tensor:
        x = ops.cast(x, self.compute_dtype)
        pooled = self.pooler(ops.cast(pooled_tokens(x, real, self.pooling), x.dtype))
        return self.classes(self.dropout_layer(pooled, training=training))

    def compute_output_shape(self, x_shape: Shape, real_shape: Shape | None = None) -> Shape:
        return (x_shape[0], self.num_classes)

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "num_classes": self.num_classes,
            "pooling": self.pooling,
            # Beside a transform it is of no effect.
            "activation": keras.activations.serialize(self.activation)
            if self._transform is None
            else None,
            "dropout": self.dropout,
            "problem_type": self.problem_type,
            "transform": None if self._transform is None else self._transform.serialized(),
            "use_bias": self.use_bias,
        }


@keras.saving.register_keras_serializable("keras_transformers")
class TaggingHead(BaseLayer):
    """One class for each token: dropout and a dense layer (Devlin et al. 2018, section 5.3).

    Args:
        num_classes: Number of classes.
        dropout: Rate before the layer.
        transform: What every token goes through first, a `HeadTransform`, or None; copied.

    Call arguments:
        x: `(batch, length, hidden_dim)`.
        training: Whether dropout acts.

    Returns:
        Logits `(batch, length, num_classes)`.

    Raises:
        ValueError: If `num_classes` is not positive.

    Example:
    >>> import numpy as np
    >>> from keras_transformers.models import TaggingHead, TextEncoder
    >>> model = TextEncoder.from_variant("tiny", 31, head=TaggingHead(num_classes=3))
    >>> tuple(model(np.array([[2, 5, 7, 3, 0]])).shape)
    (1, 5, 3)
    """

    dropout: Any = ReadByBuild()

    def __init__(
        self,
        num_classes: int,
        dropout: float = 0.1,
        transform: Part | None = None,
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(**kwargs)
        self.num_classes = whole_number(self, "num_classes", num_classes)
        self.dropout = rate(self, "dropout", dropout)
        self._transform = part_or_numbers(self, "transform", transform, HeadTransform)

    def build(self, x_shape: Shape) -> None:
        self.transform: Any = None
        if self._transform is not None:
            self.transform = self._transform.copy(self, "transform")
            self.transform.build(x_shape)
            x_shape = self.transform.compute_output_shape(x_shape)
        self.dropout_layer = Dropout(self.dropout, dtype=self.dtype_policy)
        self.classes = keras.layers.Dense(self.num_classes, name="classes", dtype=self.dtype_policy)
        self.classes.build(x_shape)

    def call(self, x: Tensor, training: bool | None = None) -> Tensor:
        x = ops.cast(x, self.compute_dtype)
        x = x if self.transform is None else self.transform(x)
        return self.classes(self.dropout_layer(x, training=training))

    def compute_output_shape(self, x_shape: Shape) -> Shape:
        return (*x_shape[:-1], self.num_classes)

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "num_classes": self.num_classes,
            "dropout": self.dropout,
            "transform": None if self._transform is None else self._transform.serialized(),
        }


@keras.saving.register_keras_serializable("keras_transformers")
class MaskedLanguageHead(BaseLayer):
    """Which token stood at a position: `norm(act(W h + b)) E^T + c`, `E` the token table.

    The table is the encoder's own (Devlin et al. 2018, https://arxiv.org/abs/1810.04805, section
    3.1, and their code).

    Args:
        activation: `act` above.
        norm: What stands in the place of `keras.layers.LayerNormalization(epsilon=1e-12)`; copied.
        transform: What stands in the place of both, a `HeadTransform` with as many units as the
            table is wide; copied.

    Call arguments:
        x: `(batch, positions, hidden_dim)`.
        logits: Function from `(batch, positions, hidden_dim)` to `(batch, positions, vocab_size)`,
            the product with the table.

    Returns:
        Logits `(batch, positions, vocab_size)`.

    Example:
    >>> import numpy as np
    >>> from keras_transformers.models import MaskedLanguageHead, TextEncoder
    >>> model = TextEncoder.from_variant("tiny", 31, head=MaskedLanguageHead("relu"))
    >>> tuple(model(np.array([[2, 5, 7, 3, 0]])).shape)
    (1, 5, 31)
    """

    def __init__(
        self,
        activation: Activation | None = "gelu",
        norm: Part | None = None,
        transform: Part | None = None,
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(**kwargs)
        self.activation = keras.activations.get(activation)
        self._transform = part_or_numbers(self, "transform", transform, HeadTransform, norm=norm)
        norm = keras.layers.LayerNormalization(epsilon=1e-12) if norm is None else norm
        self._norm = Prototype(self, "norm", norm, keras.layers.Layer)

    def build(self, x_shape: Shape, logits_shape: Shape) -> None:
        """For `x`, and for what `logits` makes of it, whose width is that of the vocabulary."""
        self.norm: Any = None
        if self._transform is None:
            self.transform: Any = keras.layers.Dense(
                x_shape[-1], self.activation, name="transform", dtype=self.dtype_policy
            )
            self.norm = self._norm.copy(self, "norm")
            self.norm.build(x_shape)
        else:
            self.transform = self._transform.copy(self, "transform")
        self.transform.build(x_shape)
        self.bias = self.add_weight(name="bias", shape=(logits_shape[-1],), initializer="zeros")

    def call(self, x: Tensor, logits: Callable[[Tensor], Tensor]) -> Tensor:
        x = ops.cast(x, self.compute_dtype)
        scores = logits(self.vectors(x))
        return scores + ops.cast(self.bias, scores.dtype)

    def vectors(self, x: Tensor) -> Tensor:
        """What is multiplied with the table."""
        vectors: Any = self.transform(x)
        vectors = vectors if self.norm is None else self.norm(vectors)
        return ops.cast(vectors, self.compute_dtype)

    def compute_output_shape(self, x_shape: Shape, logits_shape: Shape) -> Shape:
        return tuple(logits_shape)

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "activation": keras.activations.serialize(self.activation),
            "norm": self._norm.serialized() if self._transform is None else None,
            "transform": None if self._transform is None else self._transform.serialized(),
        }


NEVER = -1e4  # the logit where no answer starts or ends, which half precision has too


@keras.saving.register_keras_serializable("keras_transformers")
class SpanHead(BaseLayer):
    """Where an answer starts and where it ends: two logits of each token.

    `S h_i` and `E h_i` for question and text in one row (Devlin et al. 2018,
    https://arxiv.org/abs/1810.04805, section 4.2). Positions are the last axis, so that
    `SparseCategoricalCrossentropy(from_logits=True)` trains it with labels `(batch, 2)`: the
    positions of the answer's first and last token.

    Args:
        dropout: Rate before the layer.
        transform: What every token goes through first, a `HeadTransform`, or None; copied.

    Call arguments:
        x: `(batch, length, hidden_dim)`.
        real: Bool `(batch, length)`; True = real token. No answer starts or ends at another.
        training: Whether dropout acts.

    Returns:
        Logits `(batch, 2, length)`, of the start and of the end.

    Example:
    >>> import numpy as np
    >>> from keras_transformers.models import SpanHead, TextEncoder
    >>> model = TextEncoder.from_variant("tiny", 31, head=SpanHead())
    >>> tuple(model(np.array([[2, 5, 3, 7, 9, 8, 3, 0]])).shape)
    (1, 2, 8)
    """

    dropout: Any = ReadByBuild()

    def __init__(
        self, dropout: float = 0.0, transform: Part | None = None, **kwargs: Unpack[LayerOptions]
    ) -> None:
        super().__init__(**kwargs)
        self.dropout = rate(self, "dropout", dropout)
        self._transform = part_or_numbers(self, "transform", transform, HeadTransform)

    def build(self, x_shape: Shape, real_shape: Shape | None = None) -> None:
        self.transform: Any = None
        if self._transform is not None:
            self.transform = self._transform.copy(self, "transform")
            self.transform.build(x_shape)
            x_shape = self.transform.compute_output_shape(x_shape)
        self.dropout_layer = Dropout(self.dropout, dtype=self.dtype_policy)
        self.ends = keras.layers.Dense(2, name="ends", dtype=self.dtype_policy)
        self.ends.build(x_shape)

    def call(self, x: Tensor, real: Tensor, training: bool | None = None) -> Tensor:
        x = ops.cast(x, self.compute_dtype)
        x = x if self.transform is None else self.transform(x)
        logits = self.ends(self.dropout_layer(x, training=training))  # (batch, length, 2)
        never = ops.cast(NEVER, logits.dtype)
        return ops.transpose(ops.where(real[..., None], logits, never), (0, 2, 1))

    def compute_output_shape(self, x_shape: Shape, real_shape: Shape | None = None) -> Shape:
        return (x_shape[0], 2, x_shape[1])

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "dropout": self.dropout,
            "transform": None if self._transform is None else self._transform.serialized(),
        }


@keras.saving.register_keras_serializable("keras_transformers")
class EndPooling(BaseLayer):
    """The vector of a text is that of its END (Radford et al. 2021, "CLIP", section 2.4).

    https://arxiv.org/abs/2103.00020. In a causal encoder END is the first token that has seen all
    of the text. A `head` of `TextEncoder`.

    Args:
        end_id: The id of END, whose first position counts; a text without it is taken at its first
            token. None for the greatest id of each text, as OpenAI's code has it, in whose
            vocabulary END is the last.

    Call arguments:
        x: `(batch, length, hidden_dim)`.
        ids: Integers `(batch, length)`.

    Returns:
        `(batch, hidden_dim)`.

    Raises:
        ValueError: If `end_id` is negative.

    Example:
    >>> import numpy as np
    >>> from keras_transformers.models import EndPooling, TextEncoder
    >>> model = TextEncoder(31, hidden_dim=16, num_heads=2, mlp_dim=32, num_layers=1,
    ...                     head=EndPooling(3))
    >>> tuple(model(np.array([[2, 5, 7, 3, 0]])).shape)
    (1, 16)
    """

    def __init__(self, end_id: int | None = None, **kwargs: Unpack[LayerOptions]) -> None:
        super().__init__(**kwargs)
        self.end_id = whole_number(self, "end_id", end_id, least=0, optional=True)
        self.autocast = False  # half precision would round ids that are held in floats

    def build(self, x_shape: Shape, ids_shape: Shape | None = None) -> None:
        """Nothing to make."""

    def call(self, x: Tensor, ids: Tensor) -> Tensor:
        x = ops.cast(x, self.compute_dtype)
        ids = as_ids(self, "ids", ids)
        ends = ids if self.end_id is None else ops.cast(ids == self.end_id, "int32")
        first = ops.argmax(ends, axis=1)
        return ops.take_along_axis(x, first[:, None, None], axis=1)[:, 0]

    def compute_output_shape(self, x_shape: Shape, ids_shape: Shape | None = None) -> Shape:
        return (x_shape[0], x_shape[-1])

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "end_id": self.end_id}


@keras.saving.register_keras_serializable("keras_transformers")
class LastPooling(BaseLayer):
    """The vector of a text is that of its last position, padding or not, through a dense layer.

    `W h_n + b`, for texts that are all of one length, filled with a token that the encoder sees
    (Zhai et al. 2023, "SigLIP", https://arxiv.org/abs/2303.15343, in the code of big_vision). A
    `head` of `TextEncoder`.

    Args:
        units: Width of the vector.

    Call arguments:
        x: `(batch, length, hidden_dim)`.

    Returns:
        `(batch, units)`.

    Raises:
        ValueError: If `units` is not positive.

    Example:
    >>> import numpy as np
    >>> from keras_transformers.models import LastPooling, TextEncoder
    >>> model = TextEncoder(31, hidden_dim=16, num_heads=2, mlp_dim=32, num_layers=1,
    ...                     head=LastPooling(24))
    >>> tuple(model(np.array([[2, 5, 7, 3, 3]])).shape)
    (1, 24)
    """

    def __init__(self, units: int, **kwargs: Unpack[LayerOptions]) -> None:
        super().__init__(**kwargs)
        self.units = whole_number(self, "units", units)

    def build(self, x_shape: Shape) -> None:
        self.projection = keras.layers.Dense(self.units, name="projection", dtype=self.dtype_policy)
        self.projection.build((None, x_shape[-1]))

    def call(self, x: Tensor) -> Tensor:
        x = ops.cast(x, self.compute_dtype)
        return self.projection(x[:, -1])

    def compute_output_shape(self, x_shape: Shape) -> Shape:
        return (x_shape[0], self.units)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "units": self.units}


HIDDEN = -1e9  # score of a padded position


@dataclasses.dataclass(frozen=True)
class AlignmentConfiguration(Configuration):
    """The arguments of an `AlignmentHead`; see there."""

    key_dim: int


@keras.saving.register_keras_serializable("keras_transformers")
class AlignmentHead(BaseModel):
    """An attention from a translation to its source, taught what stands for what.

    One head, `(W_q [y_t, y_t+1])^T (W_k x_s) / sqrt(d)`: queries are made of the decoder's states
    where a piece is produced and where it is read, keys of the encoder's states. It stands beside a
    translator that does not change, as the alignment layer of Zenkel et al. 2019
    (https://arxiv.org/abs/1901.11359), and learns from links as the head that Garg et al. 2019
    (https://arxiv.org/abs/1909.02074) supervise; see `alignment.learn_alignment`.

    Args:
        key_dim: Width of a query and a key (d).

    Call arguments:
        inputs: Dict of `states` `(batch, target_length, hidden_dim)`, the decoder's, `context`
            `(batch, source_length, hidden_dim)`, the encoder's, and `mask`, bool
            `(batch, source_length)`, True where there is no padding.

    Returns:
        Scores, float32 `(batch, target_length, source_length)`, whose softmax says what the piece
        that each query produces stands for.

    Raises:
        ValueError: If `key_dim` is not positive.

    Example:
    >>> import numpy as np
    >>> from keras_transformers.models import AlignmentHead, Transformer
    >>> model = Transformer(vocab_size=31, hidden_dim=16, num_heads=2, mlp_dim=32, num_layers=1)
    >>> ids = np.array([[1, 5, 7, 2, 0]])
    >>> tuple(AlignmentHead(8).scores(model, {"source": ids, "target": ids[:, :3]}).shape)
    (1, 3, 5)
    """

    def __init__(self, key_dim: int = 128, **kwargs: Unpack[LayerOptions]) -> None:
        super().__init__(**kwargs)
        self.configuration = AlignmentConfiguration(key_dim)
        check_sizes("AlignmentHead", vars(self.configuration), ("key_dim",))
        self.key_dim: int = self.configuration.key_dim
        self.query_dense = keras.layers.Dense(key_dim, dtype=self.dtype_policy)
        self.key_dense = keras.layers.Dense(key_dim, dtype=self.dtype_policy)

    def build(self, input_shape: dict[str, Shape]) -> None:
        states, context = input_shape["states"], input_shape["context"]
        self.query_dense.build((*states[:-1], 2 * states[-1]))
        self.key_dense.build(context)

    def call(self, inputs: dict[str, Tensor], training: bool | None = None) -> Tensor:
        states = inputs["states"]
        # Where a piece is read is the next position; behind the last there is none.
        read = ops.pad(states[:, 1:], ((0, 0), (0, 1), (0, 0)))
        query = self.query_dense(ops.concatenate([states, read], axis=-1))
        key = self.key_dense(inputs["context"])
        scores = ops.cast(ops.einsum("btd,bsd->bts", query, key), "float32") / self.key_dim**0.5
        return ops.where(inputs["mask"][:, None], scores, HIDDEN)

    def compute_output_shape(self, input_shape: dict[str, Shape]) -> Shape:
        return (*input_shape["states"][:2], input_shape["context"][1])

    def scores(self, translator: Any, ids: dict[str, Tensor]) -> Tensor:
        """Scores for a translator's `source` and `target` ids; no gradient reaches its weights."""
        with hidden_states():
            states = translator(ids, training=False)
        context = translator.encode(ids["source"], training=False)
        inputs = {
            "states": ops.stop_gradient(states),
            "context": ops.stop_gradient(context),
            "mask": padding_mask(ids["source"], translator.padding_id),
        }
        return self(inputs)
