"""What our optimizers mend of Keras's, and AdamW that remembers what it must not decay."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import keras
from keras import ops

# Names of biases, norms and their like, and of learned tokens and positions.
NO_DECAY = ("bias", "beta", "gamma", "factor", "class_token", "query_token", "position_embedding")


if TYPE_CHECKING:
    _Optimizer = keras.optimizers.Optimizer
else:
    _Optimizer = object


class ByStep(_Optimizer):
    """What both optimizers mend of Keras's: gradients of tables, averages while accumulating."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if self.gradient_accumulation_steps and self.use_ema and self.ema_overwrite_frequency:
            raise ValueError(
                f"{type(self).__name__}: `ema_overwrite_frequency` must be None with "
                "`gradient_accumulation_steps`: weights would change between batches of one step. "
                f"Received: {self.ema_overwrite_frequency}"
            )

    def apply(
        self, grads: Sequence[Any], trainable_variables: Sequence[keras.Variable] | None = None
    ) -> None:
        super().apply(_dense(grads), trainable_variables)

    def _update_model_variables_moving_average(
        self, trainable_variables: Sequence[keras.Variable]
    ) -> None:
        """Averages once a step; Keras does after each batch, a momentum of `m^k` for `k` of them.

        Between steps it stays as it is, by a momentum of 1.
        """
        batches = self.gradient_accumulation_steps
        if not batches or not self.use_ema:
            super()._update_model_variables_moving_average(trainable_variables)
            return
        made = (self._iterations + 1) % batches == 0
        later = self._iterations >= batches  # until the first step, the weights are the average
        momentum = ops.where(later, ops.where(made, self.ema_momentum, 1.0), 0.0)
        for variable, average in zip(
            trainable_variables, self._model_variables_moving_average, strict=True
        ):
            if average is not None:
                share = ops.cast(momentum, variable.dtype)
                average.assign(share * average + (1 - share) * variable)


@keras.saving.register_keras_serializable("keras_transformers")
class AdamW(ByStep, keras.optimizers.AdamW):
    """`keras.optimizers.AdamW` whose weight decay leaves some variables alone, also after reload.

    Loshchilov & Hutter 2019, https://arxiv.org/abs/1711.05101. What Keras's own
    `exclude_from_weight_decay` was told is lost when a model is saved and loaded; here it is part
    of the configuration.

    Args:
        learning_rate: A float or a schedule.
        weight_decay: Share of a weight taken off in each step, times the learning rate.
        no_decay: Parts of the names of the variables that are not decayed; by default biases,
            norms, layer scales, learned tokens and positions.
        **kwargs: Of `keras.optimizers.AdamW`.

    Example:
    >>> import keras
    >>> from keras_transformers.training import AdamW
    >>> optimizer = AdamW(1e-3, weight_decay=0.05)
    >>> again = keras.optimizers.deserialize(keras.optimizers.serialize(optimizer))
    >>> again.no_decay == optimizer.no_decay
    True
    """

    def __init__(
        self,
        learning_rate: Any = 1e-3,
        weight_decay: float = 4e-3,
        no_decay: Sequence[str] = NO_DECAY,
        name: str = "adamw",
        **kwargs: Any,
    ) -> None:
        super().__init__(learning_rate, weight_decay=weight_decay, name=name, **kwargs)
        self.no_decay = tuple(no_decay)
        self.exclude_from_weight_decay(var_names=list(self.no_decay))

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "no_decay": list(self.no_decay)}


def _dense(gradients: Sequence[Any]) -> list[Any]:
    """Gradients as plain tensors.

    TensorFlow's gradient of an embedding lists a row once for each position that it was taken to;
    Keras's optimizers square each of the list: for a row taken twice, not the square of the sum.
    """
    return [
        ops.add(each, ops.zeros(each.shape, each.dtype)) if hasattr(each, "indices") else each
        for each in gradients
    ]
