"""What our optimizers mend of Keras's, and AdamW that remembers what it must not decay."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import keras
from keras import ops

from keras_transformers.annotations import Tensor
from keras_transformers.optimizer_kernels import apply_adam, has_adam

# Names of biases, norms and their like, and of learned tokens and positions.
NO_DECAY = ("bias", "beta", "gamma", "factor", "class_token", "query_token", "position_embedding")


if TYPE_CHECKING:
    _Optimizer = keras.optimizers.Optimizer
else:
    _Optimizer = object


class ByStep(_Optimizer):
    """What our optimizers mend of Keras's, and rates that differ by depth.

    Gradients of tables, averages while accumulating, and on TensorFlow the size of the graph:
    Keras makes 40 operations for each variable, a third of a step's, which are traced and converted
    before every first step, whatever is cached.

    Args:
        depths: How deep each variable lies, see `block_depths`; None treats all alike.
        layer_decay: Factor on learning rate and weight decay for each depth below the deepest.
    """

    def __init__(
        self,
        *args: Any,
        depths: Sequence[int] | None = None,
        layer_decay: float = 1.0,
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        self.depths = None if depths is None else list(depths)
        self.layer_decay = layer_decay
        self.depth_rates: Any = None  # a variable, once built
        self._share: Any = None  # of the learning rate, while weights of one depth are decayed
        if not 0 < layer_decay <= 1 or (depths is None and layer_decay != 1):
            raise ValueError(
                f"{type(self).__name__}: `layer_decay` must be in (0, 1], and 1 without `depths`. "
                f"Received: layer_decay={layer_decay}, depths={depths}"
            )
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

    def build(self, variables: Sequence[keras.Variable]) -> None:
        if self.built:
            return
        super().build(variables)
        if self.depths is None:
            return
        if len(self.depths) != len(variables):
            raise ValueError(
                f"{type(self).__name__}: `depths` must have a number for each trainable variable, "
                f"{len(variables)}. Received: {len(self.depths)}"
            )
        rates = self.rates_of_depths()
        self.depth_rates = self.add_variable(
            (len(rates),),
            initializer=lambda shape, dtype: ops.convert_to_tensor(rates, dtype),
            dtype="float32",
            name="depth_rates",
        )

    def rates_of_depths(self) -> list[float]:
        """Factor on the learning rate of each depth, from the first: `layer_decay^(last - i)`."""
        last = max(self.depths or [0])
        return [self.layer_decay ** (last - i) for i in range(last + 1)]

    def _by_depth(self, *lists: Sequence[Any]) -> Iterator[tuple[Any, ...]]:
        """A factor on the learning rate, and those parts of the lists that it is for.

        Args:
            *lists: Variables, and what belongs to each.
        """
        if self.depths is None:
            yield (None, *lists)
            return
        depths = [self.depths[self._get_variable_index(variable)] for variable in lists[0]]
        for depth in sorted(set(depths)):
            of_depth = [i for i, each in enumerate(depths) if each == depth]
            yield (self.depth_rates[depth], *([part[i] for i in of_depth] for part in lists))

    def _backend_update_step(
        self, grads: Sequence[Tensor], trainable_variables: Sequence[Any], learning_rate: Tensor
    ) -> None:
        for share, variables, gradients in self._by_depth(trainable_variables, grads):
            rate = learning_rate if share is None else learning_rate * share
            self._update_at_rate(gradients, variables, rate)

    def _update_at_rate(
        self, gradients: Sequence[Tensor], variables: Sequence[Any], learning_rate: Tensor
    ) -> None:
        """Hook: makes the step of some variables."""
        super()._backend_update_step(gradients, variables, learning_rate)

    def _get_current_learning_rate(self) -> Any:
        rate = super()._get_current_learning_rate()
        return rate if self._share is None else rate * self._share

    def _in_one_program(self) -> bool:
        """Whether variables are updated here, and not by tf.distribute for each replica."""
        strategy = getattr(self, "_distribution_strategy", None)
        return strategy is None or type(strategy).__name__ == "_DefaultDistributionStrategy"

    def _adam_by_kernel(
        self,
        gradients: Sequence[Tensor],
        variables: Sequence[Any],
        states: Sequence[tuple[keras.Variable, keras.Variable]],
        learning_rate: Tensor,
    ) -> bool:
        """Adam's step by one operation for each variable, the same numbers, where there is one.

        Args:
            gradients, variables: As Keras hands them to `_backend_update_step`.
            states: Momentum and velocity of each variable.
            learning_rate: A scalar.

        Returns:
            Whether it was done; otherwise nothing was changed: under tf.distribute Keras sums
            gradients first.
        """
        if not has_adam() or not self._in_one_program():
            return False
        scalars: dict[str, dict[str, Tensor]] = {}
        for gradient, variable, state in zip(gradients, variables, states, strict=True):
            dtype = keras.backend.standardize_dtype(variable.dtype)
            if dtype not in scalars:
                scalars[dtype] = self._scalars_of_adam(dtype, learning_rate)
            apply_adam(ops.cast(gradient, dtype), variable, *state, scalars[dtype])
        return True

    def _scalars_of_adam(self, dtype: str, learning_rate: Tensor) -> dict[str, Tensor]:
        own: Any = self
        beta_1, beta_2 = (ops.cast(x, dtype) for x in (own.beta_1, own.beta_2))
        step = ops.cast(self.iterations + 1, dtype)
        return {
            "lr": ops.cast(learning_rate, dtype),
            "beta1": beta_1,
            "beta2": beta_2,
            "epsilon": ops.cast(own.epsilon, dtype),
            "beta1_power": ops.power(beta_1, step),
            "beta2_power": ops.power(beta_2, step),
        }

    def _apply_weight_decay(self, variables: Sequence[keras.Variable]) -> None:
        """Takes the same shares off as Keras does, of which each is computed once."""
        if not self.weight_decay:
            return
        for share, some in self._by_depth(variables):
            self._share = share
            self._decay(some)
        self._share = None

    def _decay(self, variables: Sequence[keras.Variable]) -> None:
        if not self._in_one_program():
            super()._apply_weight_decay(variables)
            return
        kept: dict[str, Tensor] = {}
        for variable in variables:
            if self._use_weight_decay(variable):
                dtype = keras.backend.standardize_dtype(variable.dtype)
                if dtype not in kept:
                    kept[dtype] = ops.cast(self.learning_rate, dtype) * self.weight_decay
                self.assign_sub(variable, ops.multiply(variable, kept[dtype]))

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

    def get_config(self) -> dict[str, Any]:
        config = super().get_config()
        return {**config, "depths": self.depths, "layer_decay": self.layer_decay}


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
        **kwargs: Of `keras.optimizers.AdamW`; and `depths` of the variables, by `block_depths`,
            with `layer_decay`, the factor on learning rate and weight decay for each depth below
            the deepest (Clark et al. 2020, https://arxiv.org/abs/2003.10555).

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

    def _update_at_rate(
        self, gradients: Sequence[Tensor], variables: Sequence[Any], learning_rate: Tensor
    ) -> None:
        indices = [self._get_variable_index(variable) for variable in variables]
        states = [(self._momentums[i], self._velocities[i]) for i in indices]
        given = (gradients, variables, states, learning_rate)
        if self.amsgrad or not self._adam_by_kernel(*given):
            super()._update_at_rate(gradients, variables, learning_rate)

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
