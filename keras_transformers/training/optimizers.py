"""AdamW that keeps its exclusions, Lamb, and corrections of optimizers of Keras."""

import re
import warnings
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import keras
from keras import ops

from keras_transformers.core.backend import apply_adam, has_adam
from keras_transformers.core.types import Tensor

# Names of biases, of norms and other scales, and of learned tokens and positions.
NO_DECAY = (
    "bias", "beta", "gamma", "factor", "scale", "offset", "magnitude",
    "class_token", "query_token", "mask_token", "register_tokens",
    "position_embedding", "relative_key", "relative_value", "table",
)  # fmt: skip
# Dtypes too coarse for a step -> bits of the mantissa, and the smallest unit that is rounded to.
COARSE = {"bfloat16": (7, 2.0**-126), "float16": (10, 2.0**-24)}
REMAINDER = "remainder"


if TYPE_CHECKING:
    _Optimizer = keras.optimizers.Optimizer
else:
    _Optimizer = object


class ByStep(_Optimizer):
    """What our optimizers mend of Keras's, and rates that differ by depth.

    Gradients of tables, schedules and averages while gradients are accumulated, weights that are
    not decayed, variables of 16 bits, and on TensorFlow the size of the graph: Keras makes 40
    operations for each variable, a third of a step's, which are traced and converted before every
    first step, whatever is cached.

    A schedule gets the number of the step, as in papers; Keras's own optimizers give it the number
    of the batch, which is larger where `gradient_accumulation_steps` batches make a step.

    Variables of bfloat16 and float16 are trained as if they were of float32: in bfloat16 a beta of
    0.999 is 1, and a change of a thousandth is lost. Moments and accumulated gradients are of
    float32, steps are computed in it, and what the rounding of a weight takes away is remembered
    for the next step.

    Args:
        depths: How deep each variable lies, see `block_depths`; None treats all alike.
        layer_decay: Factor on learning rate and weight decay for each depth below the deepest.
        no_decay: Parts of the names of the variables that are not decayed, as regular expressions.
        no_decay_variables: Paths of more variables that are not decayed, or their positions among
            those that are trained.
    """

    def __init__(
        self,
        *args: Any,
        depths: Sequence[int] | None = None,
        layer_decay: float = 1.0,
        no_decay: str | Sequence[str] = NO_DECAY,
        no_decay_variables: Sequence[str | int] = (),
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        self.depths = None if depths is None else list(depths)
        self.layer_decay = layer_decay
        self.no_decay = _names(no_decay)
        self.no_decay_variables = tuple(no_decay_variables)
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
        super().apply(_in_full(grads), trainable_variables)

    def build(self, variables: Sequence[keras.Variable]) -> None:
        if self.built:
            return
        coarse = [variable for variable in variables if _dtype(variable) in COARSE]
        if coarse:
            self._check_coarse(coarse[0])
        super().build(variables)
        self._decayed = self._find_decayed(variables)
        self._remainders = [
            self.add_variable_from_reference(variable, name=REMAINDER)
            if _dtype(variable) in COARSE
            else None
            for variable in variables
        ]
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

    def _check_coarse(self, variable: keras.Variable) -> None:
        """ValueError where a variable of 16 bits would be trained wrongly."""
        advice = f'Received: {variable.path} of {_dtype(variable)}. Use the policy "mixed_bfloat16"'
        if self.use_ema:
            raise ValueError(
                f"{type(self).__name__}: `use_ema` needs variables of float32; in 16 bits an "
                f"average would not move. {advice}, or `use_ema=False`."
            )
        if not self._in_one_program():
            raise ValueError(
                f"{type(self).__name__}: under tf.distribute variables must be of float32; "
                f"smaller changes than those of 16 bits would be lost. {advice}."
            )

    def add_variable(
        self, shape: Any, initializer: Any = "zeros", dtype: Any = None, *args: Any, **kwargs: Any
    ) -> keras.Variable:
        """A variable of the optimizer, of float32 for one of 16 bits."""
        if dtype is not None and keras.backend.standardize_dtype(dtype) in COARSE:
            # Eight bits of what rounding takes away are enough, and float16 would not reach it.
            is_remainder = (kwargs.get("name") or "").endswith(f"_{REMAINDER}")
            dtype = "bfloat16" if is_remainder else "float32"
        return super().add_variable(shape, initializer, dtype, *args, **kwargs)

    def load_own_variables(self, store: Any) -> None:
        """Sets the state from a file; those of version 0.2.0 have no remainders of rounding."""
        remainders = {id(each) for each in getattr(self, "_remainders", ()) if each is not None}
        others = [each for each in self.variables if id(each) not in remainders]
        if not remainders or len(store.keys()) != len(others):
            super().load_own_variables(store)
            return
        for i, variable in enumerate(others):
            variable.assign(store[str(i)])

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
        if isinstance(self._learning_rate, keras.optimizers.schedules.LearningRateSchedule):
            rate = self._learning_rate(self.iterations)  # steps; Keras passes batches
        else:
            rate = super()._get_current_learning_rate()
        return rate if self._share is None else rate * self._share

    def _in_one_program(self) -> bool:
        """Whether variables are updated here, and not by tf.distribute for each replica."""
        strategy = getattr(self, "_distribution_strategy", None)
        return strategy is None or type(strategy).__name__ == "_DefaultDistributionStrategy"

    def _precise(self, variable: Any) -> Any:
        """A variable with what rounding took away from it, in the dtype of its step."""
        remainder = self._remainders[self._get_variable_index(variable)]
        if remainder is None:
            return variable
        return ops.add(ops.cast(variable, "float32"), ops.cast(remainder, "float32"))

    def _subtract(self, variable: Any, change: Tensor) -> None:
        """Changes a variable, and remembers what rounding takes away."""
        remainder = self._remainders[self._get_variable_index(variable)]
        if remainder is None:
            self.assign_sub(variable, change)
            return
        value = self._precise(variable) - change
        nearest = _nearest(value, _dtype(variable))
        self.assign(variable, ops.cast(nearest, variable.dtype))
        self.assign(remainder, ops.cast(value - nearest, remainder.dtype))

    def _step_of_adam(
        self,
        gradients: Sequence[Tensor],
        variables: Sequence[Any],
        states: Sequence[tuple[keras.Variable, ...]],
        learning_rate: Tensor,
    ) -> None:
        """Adam's step, by one operation for each variable where there is one.

        Under tf.distribute Keras sums gradients first, and there is none.

        Args:
            gradients, variables: As Keras hands them to `_backend_update_step`.
            states: Momentum and velocity of each variable, and with AMSGrad the largest velocity.
            learning_rate: A scalar.
        """
        scalars: dict[str, dict[str, Tensor]] = {}
        for gradient, variable, state in zip(gradients, variables, states, strict=True):
            dtype = _dtype(state[0])
            if dtype not in scalars:
                scalars[dtype] = self._scalars_of_adam(dtype, learning_rate)
            gradient, numbers = ops.cast(gradient, dtype), scalars[dtype]
            by_kernel = has_adam() and self._in_one_program() and len(state) == 2
            if by_kernel and _dtype(variable) == dtype:
                apply_adam(gradient, variable, state[0], state[1], numbers)
                continue
            moment, velocity = self._moments_of_adam(gradient, state[0], state[1], numbers)
            if len(state) > 2:
                self.assign(state[2], ops.maximum(state[2], velocity))
                velocity = ops.convert_to_tensor(state[2])
            unbiased = ops.sqrt(1 - numbers["beta2_power"]) / (1 - numbers["beta1_power"])
            change = moment / (ops.sqrt(velocity) + numbers["epsilon"])
            self._subtract(variable, numbers["lr"] * unbiased * change)

    def _moments_of_adam(
        self, gradient: Tensor, moment: Any, velocity: Any, numbers: dict[str, Tensor]
    ) -> tuple[Tensor, Tensor]:
        """Moves the two moments, and returns them."""
        self.assign_add(moment, (1 - numbers["beta1"]) * ops.subtract(gradient, moment))
        square = ops.subtract(ops.square(gradient), velocity)
        self.assign_add(velocity, (1 - numbers["beta2"]) * square)
        return ops.convert_to_tensor(moment), ops.convert_to_tensor(velocity)

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

    def exclude_from_weight_decay(
        self,
        var_list: Sequence[keras.Variable] | None = None,
        var_names: str | Sequence[str] | None = None,
    ) -> None:
        """Spares more variables from weight decay, beside those of `no_decay`.

        Part of the configuration: it holds after a model is saved and loaded.

        Args:
            var_list: Variables, remembered by their paths, and once the optimizer is built by
                their positions, as another process may make other paths.
            var_names: Parts of names.

        Raises:
            ValueError: If the optimizer is built.
        """
        if self.built:
            raise ValueError(
                f"{type(self).__name__}: `exclude_from_weight_decay` must be called before the "
                "first step. Received: an optimizer that is built."
            )
        self.no_decay = (*self.no_decay, *_names(var_names or ()))
        paths = (getattr(each, "path", each.name) for each in var_list or ())
        self.no_decay_variables = (*self.no_decay_variables, *paths)

    def _find_decayed(self, variables: Sequence[keras.Variable]) -> list[bool]:
        """Tells which variables are decayed; warns of paths that no variable has."""
        paths = [getattr(variable, "path", variable.name) for variable in variables]
        spared = set(self.no_decay_variables)
        unknown = spared - {*paths, *range(len(paths))}
        if unknown:
            names = ", ".join(sorted(map(str, unknown)))
            warnings.warn(
                f"{type(self).__name__}: `no_decay_variables` has {names}, unknown among the "
                f"{len(paths)} variables that are trained.",
                stacklevel=3,
            )
        self.no_decay_variables = tuple(
            i for i, path in enumerate(paths) if i in spared or path in spared
        )
        parts = re.compile("|".join(self.no_decay)) if self.no_decay else None
        return [
            i not in self.no_decay_variables and not (parts and parts.search(variable.name))
            for i, variable in enumerate(variables)
        ]

    def _use_weight_decay(self, variable: Any) -> bool:
        return self._decayed[self._get_variable_index(variable)]

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
                value = self._precise(variable)
                dtype = _dtype(value)
                if dtype not in kept:
                    kept[dtype] = ops.cast(self.learning_rate, dtype) * self.weight_decay
                self._subtract(variable, ops.multiply(value, kept[dtype]))

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
        return {
            **super().get_config(),
            "depths": self.depths,
            "layer_decay": self.layer_decay,
            "no_decay": list(self.no_decay),
            "no_decay_variables": list(self.no_decay_variables),
        }


@keras.saving.register_keras_serializable("keras_transformers")
class AdamW(ByStep, keras.optimizers.AdamW):
    """`keras.optimizers.AdamW` whose weight decay leaves some variables alone, also after reload.

    Loshchilov & Hutter 2019, https://arxiv.org/abs/1711.05101. What Keras's own
    `exclude_from_weight_decay` was told is lost when a model is saved and loaded; here it is part
    of the configuration. A schedule counts steps, also where `gradient_accumulation_steps` batches
    make one. Variables of bfloat16 and float16 learn as those of float32 do.

    Args:
        learning_rate: A float or a schedule.
        weight_decay: Share of a weight taken off in each step, times the learning rate.
        no_decay: Parts of the names of the variables that are not decayed; by default biases,
            norms and other scales, learned tokens and positions. One string is one part.
        **kwargs: Of `keras.optimizers.AdamW`; `no_decay_variables`, paths or positions of more
            variables that are not decayed; and `depths` of the variables, by `block_depths`, with
            `layer_decay`, the factor on learning rate and weight decay for each depth below the
            deepest (Clark et al. 2020, https://arxiv.org/abs/2003.10555).

    Raises:
        ValueError: When it is built, for variables of 16 bits with `use_ema` or under
            tf.distribute.

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
        no_decay: str | Sequence[str] = NO_DECAY,
        name: str = "adamw",
        **kwargs: Any,
    ) -> None:
        super().__init__(
            learning_rate, weight_decay=weight_decay, no_decay=no_decay, name=name, **kwargs
        )

    def _update_at_rate(
        self, gradients: Sequence[Tensor], variables: Sequence[Any], learning_rate: Tensor
    ) -> None:
        if not self._in_one_program():
            super()._update_at_rate(gradients, variables, learning_rate)
            return
        slots = [self._momentums, self._velocities]
        slots += [self._velocity_hats] if self.amsgrad else []
        indices = [self._get_variable_index(variable) for variable in variables]
        states = [tuple(slot[i] for slot in slots) for i in indices]
        self._step_of_adam(gradients, variables, states, learning_rate)


def _names(given: str | Sequence[str]) -> tuple[str, ...]:
    return (given,) if isinstance(given, str) else tuple(given)


def _dtype(variable: Any) -> str:
    dtype: str = keras.backend.standardize_dtype(variable.dtype)
    return dtype


def _in_full(gradients: Sequence[Any]) -> list[Any]:
    """Gradients as plain tensors of at least 32 bits.

    TensorFlow's gradient of an embedding lists a row once for each position that it was taken to;
    Keras's optimizers square each of the list: for a row taken twice, not the square of the sum.
    Norms and sums of many gradients of 16 bits would overflow or stand still.
    """
    plain = (
        ops.add(each, ops.zeros(each.shape, each.dtype)) if hasattr(each, "indices") else each
        for each in gradients
    )
    return [
        each if each is None or _dtype(each) not in COARSE else ops.cast(each, "float32")
        for each in plain
    ]


def _nearest(value: Tensor, dtype: str) -> Tensor:
    """Rounds float32 to the numbers of a smaller dtype, as float32.

    Not by casting there and back, which XLA leaves out.
    """
    bits, least = COARSE[dtype]
    power = ops.view(ops.bitwise_and(ops.view(value, "int32"), 0x7F800000), "float32")
    unit = ops.maximum(power * 2.0**-bits, least)
    return ops.round(value / unit) * unit


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
