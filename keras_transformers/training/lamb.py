"""LAMB, for large batches."""

from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from keras_transformers.annotations import Tensor
from keras_transformers.training.optimizers import ByStep


@keras.saving.register_keras_serializable("keras_transformers")
class Lamb(ByStep, keras.optimizers.Lamb):
    """Adam whose step is as long as the weights are, times the learning rate.

    `W <- W - lr |W| / |U| U`, where `U = M / (sqrt(V) + epsilon) + weight_decay W` with Adam's
    moments, both without bias (You et al. 2020, https://arxiv.org/abs/1904.00962, algorithm 2).
    `keras.optimizers.Lamb` applies the decay beside that ratio, and to all variables.

    Args:
        **kwargs: Of `keras.optimizers.Lamb`: `learning_rate`, `weight_decay`, `beta_1`, ...; and
            `no_decay`, `no_decay_variables`, `depths` and `layer_decay`, see `AdamW`.

    Example:
    >>> import keras
    >>> from keras_transformers.training import Lamb
    >>> Lamb(1e-3, depths=[0, 1, 2], layer_decay=0.5).rates_of_depths()
    [0.25, 0.5, 1.0]
    """

    def update_step(self, gradient: Tensor, variable: Any, learning_rate: Tensor) -> None:
        index = self._get_variable_index(variable)
        state = self._momentums[index], self._velocities[index]
        dtype = keras.backend.standardize_dtype(state[0].dtype)
        numbers = self._scalars_of_adam(dtype, learning_rate)
        moment, velocity = self._moments_of_adam(ops.cast(gradient, dtype), *state, numbers)
        root = ops.sqrt(velocity / (1 - numbers["beta2_power"]))
        update = moment / (1 - numbers["beta1_power"]) / (root + numbers["epsilon"])
        weights = ops.convert_to_tensor(self._precise(variable))
        if self.weight_decay and self._use_weight_decay(variable):
            update = update + self.weight_decay * weights
        lengths = [ops.sqrt(ops.sum(ops.square(each))) for each in (weights, update)]
        is_usual = ops.logical_and(lengths[0] > 0, lengths[1] > 0)
        ratio = ops.where(is_usual, lengths[0] / ops.where(is_usual, lengths[1], 1.0), 1.0)
        self._subtract(variable, numbers["lr"] * ratio * update)

    def _apply_weight_decay(self, variables: Sequence[keras.Variable]) -> None:
        """Leaves it to `update_step`."""
