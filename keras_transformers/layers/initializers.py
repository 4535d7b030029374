"""An initialiser in any precision."""

from typing import Any

import keras
from keras import ops

from keras_transformers.annotations import Shape


@keras.saving.register_keras_serializable("keras_transformers", "Orthogonal")
class Orthogonal(keras.initializers.Orthogonal):
    """Keras's `Orthogonal`, made in float32 and cast: TensorFlow has no QR in bfloat16."""

    def __call__(self, shape: Shape, dtype: Any = None) -> Any:
        return ops.cast(super().__call__(shape, "float32"), dtype or keras.config.floatx())
