"""Symbolic calls of layers that take options and masks."""

from typing import Any

import keras

from keras_transformers.annotations import Mixin


class Traced(Mixin):
    """Makes a symbolic call of a layer with `compute_output_shape` run its `call` all the same.

    Keras would otherwise ask `compute_output_shape` alone, which knows of no options such as
    `return_attention_scores`; and what `call` checks, masks for instance, would be checked when the
    model runs and not where the mistake is made. Inputs have the dtype that Keras casts those of a
    call to, whether or not the caller has cast them.
    """

    def compute_output_spec(self, *args: Any, **kwargs: Any) -> Any:
        args, kwargs = keras.tree.map_structure(self._as_called, (args, kwargs))
        known = (
            None not in x.shape[1:]
            for x in keras.tree.flatten((args, kwargs))
            if isinstance(x, keras.KerasTensor)
        )
        options = kwargs.get("return_attention_scores")
        if keras.backend.backend() != "tensorflow" and not options and not all(known):
            return super().compute_output_spec(*args, **kwargs)  # sizes are expressions there
        return keras.Operation.compute_output_spec(self, *args, **kwargs)

    def _as_called(self, x: Any) -> Any:
        return self.dtype_policy.convert_input(x, self.autocast, self.input_dtype)
