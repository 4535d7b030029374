"""Distillation: a student learns from labels and from the answers of a teacher."""

from typing import Any, NoReturn

import keras
from keras import ops

from keras_transformers.core.types import ProblemType, Tensor
from keras_transformers.training.losses import (
    ReducedLosses,
    SmoothedCrossEntropy,
    signed,
    token_weights,
)
from keras_transformers.training.metrics import SEVERAL

# Keras's losses that take logits where they are told so.
OF_KERAS = (
    keras.losses.SparseCategoricalCrossentropy,
    keras.losses.CategoricalCrossentropy,
    keras.losses.BinaryCrossentropy,
)
OF_IDS = (SmoothedCrossEntropy, keras.losses.SparseCategoricalCrossentropy)
# Keras's names of reductions that divide by the number of all losses, of which a mask leaves some.
OVER_ALL = ("mean", "sum_over_batch_size")


def distillation_loss(
    teacher_logits: Tensor,
    student_logits: Tensor,
    temperature: float = 2.0,
    problem_type: ProblemType | None = None,
) -> Tensor:
    """How far a student is from its teacher, `T^2 KL(p || q)`, at every position.

    `p` and `q` are the softmaxes of the logits over `T` of teacher and student; the factor `T^2`
    keeps the size of the gradients (Hinton et al. 2015, https://arxiv.org/abs/1503.02531, section
    2). For "multi_label_classification" it is the mean over labels of the same divergence, between
    "yes" and "no", of sigmoids. Computed in float32; the teacher has no gradient.

    Args:
        teacher_logits: `(..., classes)`.
        student_logits: `(..., classes)`.
        temperature: `T`. A high one shows the student which wrong answers are nearly right.
        problem_type: Of the models.

    Returns:
        Float32 `(...)`, at least 0.

    Raises:
        ValueError: If `temperature` is not positive.

    Example:
    >>> from keras import ops
    >>> from keras_transformers.training import distillation_loss
    >>> round(float(distillation_loss(ops.array([0.0, 2.0]), ops.zeros(2), 2.0)), 4)
    0.4438
    """
    _check_temperature("distillation_loss", temperature)
    teacher = ops.stop_gradient(ops.cast(teacher_logits, "float32")) / temperature
    student = ops.cast(student_logits, "float32") / temperature
    if problem_type == SEVERAL:
        yes = ops.sigmoid(teacher) * (ops.log_sigmoid(teacher) - ops.log_sigmoid(student))
        no = ops.sigmoid(-teacher) * (ops.log_sigmoid(-teacher) - ops.log_sigmoid(-student))
        return temperature**2 * ops.mean(yes + no, axis=-1)
    p = ops.softmax(teacher, axis=-1)
    difference = ops.log_softmax(teacher, axis=-1) - ops.log_softmax(student, axis=-1)
    # A class that the teacher excludes has the logit -inf, whose logarithm is no number.
    return temperature**2 * ops.sum(p * ops.where(p > 0, difference, 0.0), axis=-1)


class Distiller(keras.Model):
    """A student that `fit` trains by labels and by what a teacher answers to the same inputs.

    `alpha T^2 KL(p || q) + (1 - alpha) loss` for every row or token (Hinton et al. 2015,
    https://arxiv.org/abs/1503.02531, section 2), see `distillation_loss`. `compile` takes the
    `loss`; whatever it leaves out (padding, ignored labels, masked positions) counts in neither
    term, and both are weighed and reduced in the same way. `evaluate` gives the same sum.

    The teacher answers in inference mode and stays as it is; its weights are no weights of this
    model. `save`, `save_weights`, `load_weights` and `export` are those of the student, which can
    also be used at any time as `distiller.student`. Its inputs are those of the teacher, packed
    rows with `segments` included. Both may have any precision; losses are computed in float32.

    Args:
        teacher: A built model that gives logits.
        student: A model that gives logits of the same shape, for the same classes or tokens in the
            same order.
        alpha: Share of what the teacher says, in `(0, 1]`.
        temperature: `T`.

    Call arguments:
        inputs: Whatever the student takes.

    Returns:
        The logits of the student.

    Raises:
        ValueError: If `teacher` is not built or shares trained weights with the student, or a
            number is out of range; in `compile`, if `loss` is no cross-entropy of logits, or
            `loss_weights` are set; in `fit` and `evaluate`, if the logits of the two have different
            shapes, or as `loss` does.

    Example:
    >>> import numpy as np
    >>> from keras_transformers.models import LanguageModel
    >>> from keras_transformers.training import AdamW, Distiller, SmoothedCrossEntropy
    >>> teacher = LanguageModel.from_variant("tiny", 31, num_layers=2)
    >>> teacher.build((None, None))
    >>> distiller = Distiller(teacher, LanguageModel.from_variant("tiny", 31, num_layers=1))
    >>> distiller.compile(AdamW(1e-3), SmoothedCrossEntropy(0.0), jit_compile=True)
    >>> ids = np.array([[1, 5, 7, 3], [1, 7, 5, 3]])
    >>> sorted(distiller.fit(ids[:, :-1], ids[:, 1:], verbose=0).history)
    ['loss']
    >>> distiller.student.count_params() == distiller.count_params()
    True
    """

    def __init__(
        self,
        teacher: keras.Model,
        student: keras.Model,
        alpha: float = 0.5,
        temperature: float = 2.0,
        name: str = "distiller",
    ) -> None:
        # The policy of the student: `compile` scales the loss where that is mixed_float16.
        policy = getattr(student.dtype_policy, "default_policy", student.dtype_policy)
        super().__init__(name=name, dtype=policy)
        if not 0 < alpha <= 1:
            raise ValueError(f"Distiller: `alpha` must be in (0, 1]. Received: {alpha}")
        _check_temperature("Distiller", temperature)
        if not teacher.built:
            raise ValueError(
                "Distiller: `teacher` must be built, with the weights that it has learned. "
                f"Received: '{teacher.name}', not built"
            )
        self.student = student
        self.alpha, self.temperature = alpha, temperature
        # In a function, for Keras tracks and saves every model that is an attribute.
        self._teacher_of = lambda: teacher
        self._check_apart()
        self.built = student.built

    @property
    def teacher(self) -> Any:
        """The teacher."""
        return self._teacher_of()

    @property
    def non_trainable_variables(self) -> list[keras.Variable]:
        """Variables that no step trains: on JAX, those of the teacher are among them.

        JAX would else write their values into each program that it compiles.
        """
        variables: list[keras.Variable] = super().non_trainable_variables
        if keras.backend.backend() != "jax" or not hasattr(self, "_teacher_of"):
            return variables
        known = {id(variable) for variable in self.variables}
        return variables + [each for each in self.teacher.variables if id(each) not in known]

    def build(self, input_shape: Any) -> None:
        if not self.student.built:
            self.student.build(input_shape)

    def call(self, inputs: Any, training: bool | None = None) -> Tensor:
        logits: Tensor = self.student(inputs, training=training)
        return logits

    def compile(self, optimizer: Any = "rmsprop", loss: Any = None, **options: Any) -> None:
        """Compiles as `keras.Model.compile` does.

        Args:
            optimizer: Of the student.
            loss: `SmoothedCrossEntropy` or another loss of ours for tokens; or one of Keras with
                `from_logits=True`: `SparseCategoricalCrossentropy`, `CategoricalCrossentropy`, or
                `BinaryCrossentropy` where there can be several labels at once.
            **options: Of `keras.Model.compile`, but for `loss_weights`.

        Raises:
            ValueError: See the class.
        """
        if options.pop("loss_weights", None) is not None:
            raise ValueError("Distiller: `loss_weights` must be None; `alpha` weighs the losses.")
        takes_logits = isinstance(loss, SmoothedCrossEntropy) or (
            isinstance(loss, OF_KERAS) and loss.from_logits
        )
        if not takes_logits:
            raise ValueError(
                "Distiller: `loss` must be a cross-entropy of logits: `SmoothedCrossEntropy`, or "
                "Keras's SparseCategoricalCrossentropy, CategoricalCrossentropy or "
                f"BinaryCrossentropy with `from_logits=True`. Received: loss={loss!r}"
            )
        self._check_apart()
        super().compile(optimizer, loss, loss_weights=1.0 - self.alpha, **options)

    def fit(self, *args: Any, **kwargs: Any) -> Any:
        """Trains as `keras.Model.fit` does; refuses `class_weight` where tokens have labels."""
        if kwargs.get("class_weight") is not None and isinstance(self.loss, SmoothedCrossEntropy):
            raise ValueError(
                "Distiller: `class_weight` of `fit` must be None, because Keras would read one "
                "class in each row of labels. Weigh tokens by a `sample_weight` of the labels' "
                f"shape. Received: class_weight={kwargs['class_weight']}"
            )
        return super().fit(*args, **kwargs)

    def compute_loss(
        self,
        x: Any = None,
        y: Any = None,
        y_pred: Any = None,
        sample_weight: Any = None,
        training: bool = True,
    ) -> Any:
        total = super().compute_loss(x, y, y_pred, sample_weight, training=training)
        logits = ops.stop_gradient(self.teacher(x, training=False))
        self._check_shapes(logits, y_pred)
        return total + self.alpha * ops.cast(self._soft_loss(y, y_pred, logits, sample_weight),
                                             total.dtype)  # fmt: skip

    def _soft_loss(self, y: Any, y_pred: Any, logits: Tensor, sample_weight: Any) -> Any:
        """The mean distance from the teacher, weighed and reduced as the loss of the labels is."""
        loss: Any = self.loss
        is_real, mask = _counted(loss, y, y_pred)
        weights = token_weights(ops.cast(is_real, "int32"), 0, sample_weight)
        if mask is not None:
            share = ops.cast(mask, "float32")
            if loss.reduction in OVER_ALL:
                size = ops.cast(ops.size(share), "float32")
                share = share * size / ops.maximum(ops.sum(share), 1.0)
            weights = weights * share
            is_real = ops.logical_and(is_real, mask)
        # Not the losses alone: 0 times a NaN at padding would reach the gradient.
        real = is_real[..., None]
        teacher = ops.where(real, ops.cast(logits, "float32"), 0.0)
        student = ops.where(real, ops.cast(y_pred, "float32"), 0.0)
        problem: Any = SEVERAL if isinstance(loss, keras.losses.BinaryCrossentropy) else None
        losses = distillation_loss(teacher, student, self.temperature, problem)
        reduced = ReducedLosses(reduction=loss.reduction, dtype="float32")
        return reduced(losses, losses, sample_weight=weights)

    def _check_shapes(self, logits: Any, y_pred: Any) -> None:
        """Raises ValueError unless teacher and student give one tensor of the same shape."""
        single = not keras.tree.is_nested(logits) and not keras.tree.is_nested(y_pred)
        if single and len(logits.shape) == len(y_pred.shape):
            pairs = zip(logits.shape, y_pred.shape, strict=True)
            if all(None in pair or pair[0] == pair[1] for pair in pairs):
                return
        shapes = [
            keras.tree.map_structure(lambda z: str(tuple(z.shape)), each)
            for each in (logits, y_pred)
        ]
        raise ValueError(
            "Distiller: teacher and student must give logits of the same shape, for the same "
            "classes or tokens in the same order. Received: of the teacher "
            f"'{self.teacher.name}' {shapes[0]}, of the student '{self.student.name}' {shapes[1]}"
        )

    def _check_apart(self) -> None:
        """Raises ValueError if training the student would change the teacher."""
        trained = {id(variable) for variable in self.student.trainable_variables}
        shared = [each.path for each in self.teacher.variables if id(each) in trained]
        if shared:
            raise ValueError(
                "Distiller: teacher and student must not share weights that are trained. "
                f"Received: {shared[0]} and {len(shared) - 1} more"
            )

    def save(self, *args: Any, **kwargs: Any) -> Any:
        """Saves the student, see `keras.Model.save`."""
        return self.student.save(*args, **kwargs)

    def save_weights(self, *args: Any, **kwargs: Any) -> Any:
        """Saves the weights of the student, see `keras.Model.save_weights`."""
        return self.student.save_weights(*args, **kwargs)

    def load_weights(self, *args: Any, **kwargs: Any) -> Any:
        """Loads weights into the student, see `keras.Model.load_weights`."""
        return self.student.load_weights(*args, **kwargs)

    def export(self, *args: Any, **kwargs: Any) -> Any:
        """Exports the student, see `keras.Model.export`."""
        return self.student.export(*args, **kwargs)

    def get_config(self) -> NoReturn:
        raise ValueError(
            "Distiller: it has no configuration, for its teacher is saved nowhere. Save its "
            "`student`, as its method `save` does, and make a new `Distiller` of both."
        )


def _counted(loss: Any, y: Any, y_pred: Any) -> tuple[Tensor, Tensor | None]:
    """Which positions have a label, and Keras's mask of them, bool `(...)`; None for no mask."""
    mask = getattr(y_pred, "_keras_mask", None)  # Keras's losses obey that of the logits
    if not isinstance(loss, OF_IDS):
        return ops.ones_like(y_pred[..., 0], "bool"), mask
    labels = signed(y)
    if len(labels.shape) == len(y_pred.shape):  # Keras takes labels (batch, 1), too
        labels = ops.squeeze(labels, axis=-1)
    if isinstance(loss, SmoothedCrossEntropy):
        return ops.not_equal(labels, loss.ignore_id), mask
    ignored: int | None = loss.ignore_class
    if ignored is not None:
        is_real = ops.not_equal(labels, ignored)
        mask = is_real if mask is None else ops.logical_and(mask, is_real)
    return ops.ones_like(labels, "bool"), mask


def _check_temperature(owner: str, temperature: float) -> None:
    if temperature <= 0:
        raise ValueError(f"{owner}: `temperature` must be positive. Received: {temperature}")
