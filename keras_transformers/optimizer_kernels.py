"""Steps of optimizers that a backend has as one operation."""

from typing import Any

import keras

from keras_transformers.annotations import Tensor


def has_adam() -> bool:
    """Whether the backend has Adam's step as one operation, as TensorFlow has."""
    return keras.backend.backend() == "tensorflow"


def apply_adam(
    gradient: Tensor, variable: Any, moment: Any, velocity: Any, scalars: dict[str, Tensor]
) -> None:
    """Adam's step (Kingma & Ba 2015, https://arxiv.org/abs/1412.6980, section 2, last formulas).

    Args:
        gradient: Of the variable's shape and dtype.
        variable, moment, velocity: What it changes.
        scalars: `lr`, `beta1`, `beta2`, `epsilon`, and the powers `beta1_power` and `beta2_power`
            of this step, all of that dtype.
    """
    import tensorflow as tf

    var, m, v = (_handle(each) for each in (variable, moment, velocity))
    tf.raw_ops.ResourceApplyAdam(var=var, m=m, v=v, grad=gradient, **scalars)


def _handle(variable: Any) -> Any:
    return (variable.value if isinstance(variable, keras.Variable) else variable).handle
