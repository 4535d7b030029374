"""Low-rank changes of a kernel or table: LoRA, rsLoRA and DoRA."""

import dataclasses
import math
import urllib.parse
import weakref
from collections.abc import Callable, Mapping
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_transformers.core.backend import KERNELS
from keras_transformers.core.types import Array, Shape, Tensor


@dataclasses.dataclass(frozen=True)
class LowRankSettings:
    """What one adapter is, the same in all layers that have it.

    Args:
        rank: Columns of `A` and rows of `B`.
        alpha: The product is scaled by `alpha / rank`.
        dropout: Rate on what `A` is multiplied with, in training.
        dora: Whether magnitudes are learned apart from directions (DoRA).
        rslora: Whether the product is scaled by `alpha / sqrt(rank)` instead (rsLoRA).

    Example:
    >>> from keras_transformers.layers.low_rank import LowRankSettings
    >>> LowRankSettings(rank=4, alpha=8.0).scale
    2.0
    """

    rank: int = 8
    alpha: float = 8.0
    dropout: float = 0.0
    dora: bool = False
    rslora: bool = False

    @property
    def scale(self) -> float:
        """The factor of the product."""
        return self.alpha / (math.sqrt(self.rank) if self.rslora else self.rank)

    def with_scale(self, scale: float) -> "LowRankSettings":
        """Returns the same settings with the `alpha` of another scale."""
        if scale == self.scale:
            return self
        alpha = scale * (math.sqrt(self.rank) if self.rslora else self.rank)
        return dataclasses.replace(self, alpha=alpha)


@keras.saving.register_keras_serializable("keras_transformers")
class LowRank(keras.layers.Layer):
    """Low-rank changes of another layer's kernel `W`, of which none, one or several are active.

    `y = g * (x W + s dropout(x) A B)`, with `s = alpha / rank` (Hu et al. 2021, "LoRA",
    https://arxiv.org/abs/2106.09685) or `alpha / sqrt(rank)` (Kalajdzievski 2023, "rsLoRA",
    https://arxiv.org/abs/2312.03732). `g = 1`, or with DoRA `g = m / ||W + s A B||`, one number for
    each output, whose norm has no gradient (Liu et al. 2024, https://arxiv.org/abs/2402.09353,
    section 4.3). Several that are active add up, each by its weight: `y = x W + sum_i w_i s_i
    dropout(x) A_i B_i`, without DoRA.

    The active adapter is in variables that fit the largest, what is left of them being zeros, whose
    gradients are zero; the others are NumPy arrays. So another one becomes active without compiling
    anything anew. While the kernel holds the active one, all variables are zeros: a program that
    was traced before computes the same, too. Several active ones stand side by side in the
    variables, and `factors` has `w_i s_i` for each column of `A`.

    A file has the arrays of every adapter under its name, whichever is active, with its scale. It
    says which ones are active, by which weights, and whether they are merged; a layer in another
    state refuses the file.

    Args:
        inputs: Number of inputs of the kernel, or of rows of the table.
        outputs: Number of its outputs.
        rank: The largest rank, or the sum of those that are active at once.
        dora: Whether there are magnitudes.
        dropout: Whether there is a seed for dropout.
        table: Whether it changes a table: `A` then starts with zeros instead of `B`, as in PEFT.

    Attributes:
        settings: Dict of name -> `LowRankSettings`, of the adapters that change this kernel.
        active: Dict of name -> weight, of the model's active ones; some may not change this kernel.
        merged: True if the kernel holds the active ones already, which are then not added.
        gain: `g` of a merged one with DoRA, a float64 array.
        others: Of one layer of a model, which keeps them for all: dict of name -> dict of path ->
            array, the weights that an adapter trains besides, where it is not active. Those
            without any adapter are called "".

    Call arguments:
        x: A tensor of any shape.
        training: True in a training step, in which some adapter must be able to learn.

    Returns:
        `x`.
    """

    def __init__(
        self,
        inputs: int,
        outputs: int,
        rank: int,
        dora: bool = False,
        dropout: bool = False,
        table: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**{"name": "adapter", "dtype": "float32", **kwargs})
        self.inputs, self.outputs, self.rank = inputs, outputs, rank
        self.dora, self.dropout, self.table = dora, dropout, table
        self.settings: dict[str, LowRankSettings] = {}
        self._active: tuple[tuple[str, float], ...] = ()
        # Not of Keras's containers, which would be saved and tracked.
        self.__dict__.update(stored={}, others={}, _owner=None)
        # A weight that only a merged one has, so that `set_weights` refuses another state.
        self.merged_mark: Any = None
        # `w_i s_i` of each column, in a state in which they are not all `scale`.
        self.factors: Any = None
        self.gain: Array | None = None
        self.dropout_layer = _AdapterDropout(self) if dropout else None

    def build(self, input_shape: Shape | None = None) -> None:
        def weight(name: str, shape: Shape, trainable: bool = True) -> Any:
            kept = {"initializer": "zeros", "trainable": trainable, "autocast": False}
            return self.add_weight(name=name, shape=shape, **kept)

        self.a = weight("lora_a", (self.inputs, self.rank))
        self.b = weight("lora_b", (self.rank, self.outputs))
        self.scale = weight("lora_scale", (), trainable=False)
        # A magnitude of zero, which no column that does anything has, stands for `g = 1`.
        self.magnitude = weight("magnitude", (self.outputs,)) if self.dora else None

    def belong_to(self, layer: Any) -> None:
        """Sets the layer whose kernel is changed.

        It is no attribute or property: Keras would take it for a layer inside this one.
        """
        self.__dict__["_owner"] = weakref.ref(layer)

    def find_owner(self) -> Any:
        """Returns the layer whose kernel is changed."""
        return self._owner()

    @property
    def active(self) -> dict[str, float]:
        """Name -> weight of the active adapters of the model."""
        return dict(self._active)

    @property
    def acting(self) -> dict[str, float]:
        """Name -> weight of the active adapters that change this kernel, merged or not."""
        return {name: weight for name, weight in self._active if name in self.settings}

    @property
    def merged(self) -> bool:
        """True if the kernel holds the active adapters already."""
        return self.merged_mark is not None

    def call(self, x: Tensor, training: bool | None = None) -> Tensor:
        """Returns `x`, unless the layer would be trained and its adapters cannot learn.

        Keras fills in `training` from the outermost call.

        Raises:
            ValueError: If `training` is True, the layer is trainable, and an adapter is merged,
                none is active, or several are that cannot be trained together.
        """
        if training and self.trainable:
            names = " and ".join(map(repr, self.active))
            if self.merged:
                why = f"{names} is merged into the kernel. Call `training.unmerge` first"
            elif not self._active:
                why = f"one of {sorted(self.settings)} must be active. Call `training.set_adapter`"
            else:
                why = f"{self._conflict()}. Activate one of {names}, or `combine_adapters`"
            raise ValueError(
                f"fit: the adapters of '{self.find_owner().path}' cannot learn: {why}; or "
                "`training.remove_lora`, or set `trainable = False`, to go on without them."
            )
        return x

    def check_learning(self) -> None:
        """Raises ValueError inside a training step in which no adapter of this layer can learn."""
        if self.merged or not self._active or self._conflict():
            self(ops.zeros((1,)))

    def _conflict(self) -> str | None:
        """Why the active adapters cannot be trained together; None if they can."""
        if self.factors is None:
            return None
        besides = [name for name in self.active if self.others.get(name)]
        if besides:
            return (
                f"{besides[0]!r} trains other weights besides (`train` of `add_lora`), whose "
                "changes cannot be told apart from those of other adapters, or of its weight"
            )
        if len({self.settings[name].dropout for name in self.acting}) > 1:
            return "the active adapters have different dropout"
        return None

    def alter(self, x: Tensor, y: Tensor, kernel: Callable[[], Tensor]) -> Tensor:
        """`g (y + s dropout(x) A B)`.

        Args:
            x: Rows `(n, inputs)`.
            y: `x W`, `(n, outputs)`.
            kernel: Function that gives `W` in floating-point numbers; DoRA calls it.
        """
        x = ops.cast(x, y.dtype)
        x = x if self.dropout_layer is None else self.dropout_layer(x)
        return self._with_gain(
            y + self._times(self._scaled(self._times(x, self.a)), self.b), kernel
        )

    def alter_rows(self, ids: Tensor, y: Tensor, kernel: Callable[[], Tensor]) -> Tensor:
        """`g (y + s A[ids] B)`, where `y` are rows `ids` of a table."""
        rows = ops.cast(ops.take(self.a, ids, axis=0), y.dtype)
        shape = ops.shape(y)
        change = self._times(self._scaled(ops.reshape(rows, (-1, self.rank))), self.b)
        return self._with_gain(y + ops.reshape(change, shape), kernel)

    def alter_reversed(self, x: Tensor, reverse: Callable[[Tensor], Tensor], kernel: Any) -> Tensor:
        """`(g x) (W + s A B)^T`, where `reverse(x)` is `x W^T`, of rows `(n, outputs)`."""
        x = self._with_gain(x, kernel)
        low = self._scaled(self._times_transposed(x, self.b))
        return reverse(x) + self._times_transposed(low, self.a)

    def alter_whole(self, kernel: Tensor) -> Tensor:
        """`g (W + s A B)`, of all of `W` at once, in float32."""
        kernel = ops.cast(kernel, "float32")
        changed = kernel + ops.matmul(self._scaled(ops.convert_to_tensor(self.a)), self.b)
        return self._with_gain(changed, lambda: kernel)

    @staticmethod
    def _times(x: Tensor, matrix: Any) -> Tensor:
        kernels = KERNELS.get()
        matrix = ops.cast(matrix, x.dtype)
        product: Tensor = (ops.matmul if kernels is None else kernels.product)(x, matrix)
        return product

    @staticmethod
    def _times_transposed(x: Tensor, matrix: Any) -> Tensor:
        kernels, matrix = KERNELS.get(), ops.cast(matrix, x.dtype)
        if kernels is None:
            return ops.matmul(x, ops.transpose(matrix))
        product: Tensor = kernels.table_product(x, matrix)
        return product

    def _scaled(self, low: Tensor) -> Tensor:
        return low * ops.cast(self.scale if self.factors is None else self.factors, low.dtype)

    def _with_gain(self, y: Tensor, kernel: Callable[[], Tensor]) -> Tensor:
        if self.magnitude is None:
            return y
        changed = ops.cast(kernel(), "float32") + ops.matmul(
            self._scaled(ops.convert_to_tensor(self.a)), self.b
        )
        norm = ops.stop_gradient(ops.sqrt(ops.sum(ops.square(changed), axis=0)))
        magnitude = ops.convert_to_tensor(self.magnitude)
        used = magnitude != 0
        gain = ops.where(used, magnitude / ops.where(used, norm, 1.0), 1.0)
        return y * ops.cast(gain, y.dtype)

    def initial(
        self, settings: LowRankSettings, kernel: Callable[[], Array], seed: int | None = None
    ) -> dict[str, Array]:
        """Arrays of a new adapter, which changes nothing as yet."""
        random = np.random.default_rng(seed)
        shapes = (self.inputs, settings.rank), (settings.rank, self.outputs)
        a, b = (np.zeros(shape, "float32") for shape in shapes)
        if self.table:
            b = random.standard_normal(b.shape, "float32")
        else:  # PyTorch's `kaiming_uniform_(a=sqrt(5))`, of PEFT
            a = random.uniform(-1, 1, a.shape).astype("float32") / np.float32(self.inputs**0.5)
        arrays = {"lora_a": a, "lora_b": b}
        if settings.dora:
            arrays["magnitude"] = np.linalg.norm(kernel().astype("float64"), axis=0)
        return arrays

    def arrays(self, name: str) -> dict[str, Array]:
        """`lora_a` `(inputs, rank)`, `lora_b` `(rank, outputs)`, and with DoRA `magnitude`."""
        if name not in self._in_variables():
            return dict(self.stored[name])
        self._take_over_scale()
        return self._values(name)

    def assign_arrays(self, name: str, arrays: Mapping[str, Array]) -> None:
        """Gives an adapter of this layer other values, in the form of `arrays`.

        Raises:
            ValueError: If one is missing, surplus or of another shape.
        """
        expected = self.shapes(self.settings[name])
        received = {key: tuple(np.shape(value)) for key, value in arrays.items()}
        if received != expected:
            raise ValueError(
                f"{type(self).__name__} '{self.path}': `arrays` of the adapter {name!r} must have "
                f"the shapes {expected}. Received: {received}"
            )
        values = {key: np.asarray(x, "float32") for key, x in arrays.items()}
        names = self._in_variables()
        if name in names:
            self._put({each: self._values(each) for each in names} | {name: values})
        else:
            self.stored[name] = values

    def activate(self, active: Mapping[str, float]) -> None:
        """Makes adapters the active ones; those that this layer does not have change nothing.

        Args:
            active: Dict of name -> weight. One with a weight of 1, or none, needs no `factors`.

        Raises:
            ValueError: If the variables have no room for all of them; see `adapting.make_room`.
        """
        rank = sum(self.settings[name].rank for name in active if name in self.settings)
        if rank > self.rank:
            raise ValueError(
                f"{type(self).__name__} '{self.path}': `active` must have ranks of {self.rank} "
                f"together. Received: {dict(active)}, of {rank}"
            )
        self._store()
        self._active = tuple(active.items())
        self._have_factors(not is_plain(active))
        self._load()

    def _have_factors(self, needed: bool) -> None:
        """Makes or removes the weight `factors`, which only a state has that needs it."""
        if needed and self.factors is None:
            self._tracker.unlock()
            self.factors = self.add_weight(
                name="lora_factors",
                shape=(self.rank,),
                initializer="zeros",
                trainable=False,
                autocast=False,
            )
            self._tracker.lock()
        elif not needed and self.factors is not None:
            self._untrack_variable(self.factors)
            self._tracker.unlock()
            self.factors = None
            self._tracker.lock()

    def merge(self, gain: Array | None) -> None:
        """Takes the active adapters out of the variables; the kernel holds them from now on.

        Args:
            gain: `g` of DoRA, which the kernel is multiplied with; None without DoRA.
        """
        self._store()
        self.gain = gain
        self._tracker.unlock()
        self.merged_mark = self.add_weight(
            name="merged", shape=(), initializer="ones", trainable=False, autocast=False
        )
        self._tracker.lock()

    def unmerge(self) -> None:
        """Puts the active adapters back into the variables; the kernel no longer holds them."""
        self._untrack_variable(self.merged_mark)
        self._tracker.unlock()
        self.merged_mark = self.gain = None
        self._tracker.lock()
        self._load()

    def current_settings(self) -> dict[str, LowRankSettings]:
        """`settings`; the active one's scale is that of the variable, which it multiplies with."""
        self._take_over_scale()
        return self.settings

    def _in_variables(self) -> list[str]:
        """Names of the adapters whose values the variables have, in their order there."""
        return [] if self.merged else list(self.acting)

    def _columns(self, name: str) -> slice:
        """The columns of `lora_a`, and rows of `lora_b`, that an active adapter has."""
        names = self._in_variables()
        ranks = [self.settings[each].rank for each in names]
        first = sum(ranks[: names.index(name)])
        return slice(first, first + self.settings[name].rank)

    def _parts(self, name: str) -> dict[str, tuple[slice, ...]]:
        """Key -> the part of the variable that an active adapter has."""
        columns, whole = self._columns(name), slice(None)
        parts = {"lora_a": (whole, columns), "lora_b": (columns, whole), "magnitude": (whole,)}
        return {key: parts[key] for key in self.shapes(self.settings[name])}

    def _values(self, name: str) -> dict[str, Array]:
        """What the variables have of an active adapter."""
        variables, parts = self._variables(), self._parts(name)
        return {key: np.array(ops.convert_to_numpy(variables[key])[parts[key]]) for key in parts}

    def _take_over_scale(self) -> None:
        """Has in `settings` the scales that `set_weights` may have given to the variables."""
        for name in self._in_variables():
            weight, settings = self.acting[name], self.settings[name]
            factor = float(ops.convert_to_numpy(self.scale))
            if self.factors is not None:
                factor = float(ops.convert_to_numpy(self.factors)[self._columns(name)][0])
            if weight and factor not in (0.0, float(np.float32(weight * settings.scale))):
                self.settings[name] = settings.with_scale(factor / weight)

    def _store(self) -> None:
        """Moves the values of the active adapters from the variables, which become zeros."""
        self.stored.update({name: self.arrays(name) for name in self._in_variables()})
        self._put({})

    def _load(self) -> None:
        """Moves the stored values of the active adapters to the variables."""
        self._put({name: self.stored.pop(name) for name in self._in_variables()})

    def _put(self, values: Mapping[str, Mapping[str, Array]]) -> None:
        """Assigns values of active adapters; what is left of the variables becomes zeros."""
        for key, variable in self._variables().items():
            whole = np.zeros(variable.shape, "float32")
            for name, arrays in values.items():
                if key in arrays:
                    whole[self._parts(name)[key]] = arrays[key]
            variable.assign(whole)
        chosen = {name: self.settings[name] for name in values}
        scales = [settings.scale for settings in chosen.values()]
        self.scale.assign(scales[0] if len(scales) == 1 else float(bool(scales)))
        if self.factors is not None:
            factors = np.zeros(self.rank)
            for name, settings in chosen.items():
                factors[self._columns(name)] = self.acting[name] * settings.scale
            self.factors.assign(factors)
        if self.dropout_layer is not None:  # of which there is one, see `_conflict`
            self.dropout_layer.rate = max((each.dropout for each in chosen.values()), default=0.0)

    def _variables(self) -> dict[str, Any]:
        found = {"lora_a": self.a, "lora_b": self.b}
        return found if self.magnitude is None else {**found, "magnitude": self.magnitude}

    def shapes(self, settings: LowRankSettings) -> dict[str, Shape]:
        """Shapes of the arrays of such an adapter."""
        rank = settings.rank
        found: dict[str, Shape] = {"lora_a": (self.inputs, rank), "lora_b": (rank, self.outputs)}
        return {**found, "magnitude": (self.outputs,)} if settings.dora else found

    def fits(self, settings: LowRankSettings) -> bool:
        """Whether the variables have room for such an adapter."""
        room = (self.dora or not settings.dora) and (self.dropout or not settings.dropout)
        return settings.rank <= self.rank and room

    def take_arrays(self, other: "LowRank") -> None:
        """Takes over the arrays that another one with the same adapters has beside its weights."""
        for name, arrays in other.stored.items():
            self.stored[name] = {key: np.array(value) for key, value in arrays.items()}
        for name, arrays in other.others.items():
            self.others[name] = {path: np.array(value) for path, value in arrays.items()}
        self.gain = None if other.gain is None else np.array(other.gain)

    def named_arrays(self) -> dict[str, Array]:
        """Everything that a file has of the adapters: dict of key to array.

        The keys are `name:what`, where the name is quoted as in an address.
        """
        found: dict[str, Array] = {}
        for name, settings in self.current_settings().items():
            arrays = {f"{_quoted(name)}:{key}": x for key, x in self.arrays(name).items()}
            found |= arrays | {f"{_quoted(name)}:scale": np.array(settings.scale)}
        for name, others in self.others.items():
            found |= {f"{_quoted(name)}:of {_quoted(path)}": x for path, x in others.items()}
        for name, weight in self.acting.items():
            state = "merged" if self.merged else "active"
            by_weight = "" if weight == 1 else f" {weight!r}"
            found[f"{_quoted(name)}:{state}{by_weight}"] = np.array(1, "uint8")
        if self.gain is not None:
            found["gain"] = self.gain
        return found

    def save_own_variables(self, store: Any) -> None:
        for key, value in self.named_arrays().items():
            store[key] = value

    def load_own_variables(self, store: Any) -> None:
        """Takes over what `save_own_variables` of a layer in the same state has written.

        Raises:
            ValueError: If the file has no adapters, or others, or the active or merged ones of it
                are others, or have other weights.
        """
        keys = set(store.keys())
        if "0" in keys:
            self._load_numbered(store)
            return
        expected = self.named_arrays()
        self._check_keys(keys, set(expected))
        for name, settings in list(self.settings.items()):
            shapes = self.shapes(settings)
            arrays = {key: np.array(store[f"{_quoted(name)}:{key}"]) for key in shapes}
            self.settings[name] = settings.with_scale(float(store[f"{_quoted(name)}:scale"][()]))
            self.assign_arrays(name, arrays)
        for name, others in self.others.items():
            for path in others:
                others[path] = np.array(store[f"{_quoted(name)}:of {_quoted(path)}"])
        if self.gain is not None:
            self.gain = np.array(store["gain"])

    def _check_keys(self, keys: set[str], expected: set[str]) -> None:
        """Raises ValueError if a file is of adapters in another state."""
        if not keys:
            raise ValueError(
                f"{type(self).__name__} '{self.path}': the file must have the adapters "
                f"{sorted(self.settings)}. Received: weights without adapters. Load them before "
                "`training.add_lora`, or after `training.remove_lora`"
            )
        if keys != expected:
            raise ValueError(
                f"{type(self).__name__} '{self.path}': the file must have the same adapters, and "
                "the same ones active or merged, by the same weights (`training.set_adapter`, "
                "`training.merge`). "
                f"Expected: {sorted(expected - keys)}. Received: {sorted(keys - expected)}"
            )

    def _load_numbered(self, store: Any) -> None:
        """Reads what version 0.2.0 wrote: variables and arrays by numbers instead of names.

        The adapters must have been added in the same order, with the same one active.
        """
        if self.factors is not None:
            raise ValueError(
                f"{type(self).__name__} '{self.path}': one adapter must be active, by a weight of "
                f"1 (`training.set_adapter`), as in all files of 0.2.0. Received: {self.active}"
            )
        variables = self._variables()
        active = next(iter(self.acting), None)
        stored: dict[str, dict[str, Any]] = {
            name: dict(self.shapes(settings))
            for name, settings in self.settings.items()
            if name != active
        }
        kept = {
            f"{group}_{i}_{j}": (arrays[name], key)
            for group, arrays in (("stored", stored), ("other", self.others))
            for i, name in enumerate(sorted(arrays))
            for j, key in enumerate(sorted(arrays[name]))
        }
        gain = [] if self.gain is None else ["gain"]
        numbers = [str(i) for i in range(len(variables) + 1)]
        self._check_keys(set(store.keys()), {*numbers, *kept, *gain})
        for name, (arrays, key) in kept.items():
            arrays[key] = np.array(store[name])
        if active is not None:
            values = [np.array(store[number]) for number in numbers]
            shapes = self.shapes(self.settings[active])
            whole = dict(zip(self._variables(), values, strict=False))
            stored[active] = {key: whole[key][tuple(map(slice, shapes[key]))] for key in shapes}
            self.settings[active] = self.settings[active].with_scale(float(values[-1]))
        for name, values_of_one in stored.items():
            self.assign_arrays(name, values_of_one)
        if self.gain is not None:
            self.gain = np.array(store["gain"])

    def saved(self) -> dict[str, Any]:
        """What a configuration holds of the adapters, besides their values."""
        shapes = {
            name: {path: (list(array.shape), str(array.dtype)) for path, array in arrays.items()}
            for name, arrays in self.others.items()
        }
        return {
            "names": {
                name: dataclasses.asdict(each) for name, each in self.current_settings().items()
            },
            "rank": self.rank,
            "dora": self.dora,
            "dropout": self.dropout,
            "active": self.active if self.factors is not None else next(iter(self.active), None),
            "merged": self.merged,
            "gain": self.gain is not None,
            "others": shapes,
        }

    def restore(self, config: dict[str, Any]) -> None:
        """Has the adapters of `saved`, with zeros for values."""
        for name, given in config["names"].items():
            self.settings[name] = settings = LowRankSettings(**given)
            if not self.fits(settings):
                raise ValueError(
                    f"{type(self).__name__} '{self.path}': `names` must have ranks up to "
                    f"{self.rank}. Received: {settings}"
                )
            shapes = self.shapes(settings).items()
            self.stored[name] = {key: np.zeros(shape, "float32") for key, shape in shapes}
        for name, found in config["others"].items():
            self.others[name] = {path: np.zeros(*each) for path, each in found.items()}
        active = config["active"]  # one of a weight of 1 by its name
        self.activate({active: 1.0} if isinstance(active, str) else active or {})
        if config["merged"]:
            self.merge(np.ones(self.outputs) if config["gain"] else None)

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "inputs": self.inputs,
            "outputs": self.outputs,
            "rank": self.rank,
            "dora": self.dora,
            "dropout": self.dropout,
            "table": self.table,
        }

    def quantize(self, mode: str, type_check: bool = True, config: Any = None) -> None:
        """Quantises the kernel of the owner, which Keras passes over because it has a layer in it.

        Raises:
            ValueError: If the adapter is merged, or `mode` is neither "int8" nor "int4".
        """
        mode = mode or config.mode
        if self.merged or mode not in ("int8", "int4"):
            raise ValueError(
                f"quantize: the layer '{self.path.removesuffix('/adapter')}' has adapters. `mode` "
                "must be int8 or int4, and no adapter merged (`training.unmerge`, or "
                "`training.remove_lora`, before any layer is quantised). Received: "
                f"mode={mode!r}{', a merged adapter' if self.merged else ''}"
            )
        self.find_owner().quantize(mode, type_check=False, config=config)


class _AdapterDropout(keras.layers.Dropout):
    """The dropout of an adapter, which Keras asks in its place to be quantised."""

    def __init__(self, adapter: LowRank) -> None:
        super().__init__(0.5, name="dropout")
        self.__dict__["_adapter"] = weakref.ref(adapter)

    def find_owner(self) -> Any:
        """Returns the layer whose kernel is changed."""
        return self._adapter().find_owner()

    def quantize(self, mode: str, type_check: bool = True, config: Any = None) -> None:
        """As `LowRank.quantize`."""
        self._adapter().quantize(mode, type_check=type_check, config=config)


def quantized_by(layer: Any) -> Any:
    """The layer that `layer.quantize` quantises: of an adapter, that whose kernel it changes."""
    is_adapter = isinstance(layer, LowRank | _AdapterDropout)
    return layer.find_owner() if is_adapter else layer


def is_plain(active: Mapping[str, float]) -> bool:
    """True if no adapter is active, or one by a weight of 1."""
    return list(active.values()) in ([], [1.0])


def _quoted(name: str) -> str:
    return urllib.parse.quote(name, safe="")
