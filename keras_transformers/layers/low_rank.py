"""Low-rank changes of a kernel or table: LoRA, rsLoRA and DoRA."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_transformers.annotations import Array, Shape, Tensor
from keras_transformers.layers.low_rank_settings import LowRankSettings
from keras_transformers.layers.portable import KERNELS


@keras.saving.register_keras_serializable("keras_transformers")
class LowRank(keras.layers.Layer):
    """Low-rank changes of another layer's kernel `W`, of which one is active or none.

    `y = g * (x W + s dropout(x) A B)`, with `s = alpha / rank` (Hu et al. 2021, "LoRA",
    https://arxiv.org/abs/2106.09685) or `alpha / sqrt(rank)` (Kalajdzievski 2023, "rsLoRA",
    https://arxiv.org/abs/2312.03732). `g = 1`, or with DoRA `g = m / ||W + s A B||`, one number for
    each output, whose norm has no gradient (Liu et al. 2024, https://arxiv.org/abs/2402.09353,
    section 4.3).

    The active adapter is in variables that fit the largest, what is left of them being zeros, whose
    gradients are zero; the others are NumPy arrays. So another one becomes active without compiling
    anything anew.

    Args:
        inputs: Number of inputs of the kernel, or of rows of the table.
        outputs: Number of its outputs.
        rank: The largest rank.
        dora: Whether there are magnitudes.
        dropout: Whether there is a seed for dropout.
        table: Whether it changes a table: `A` then starts with zeros instead of `B`, as in PEFT.

    Attributes:
        settings: Dict of name -> `LowRankSettings`, of the adapters that change this kernel.
        active: Name of the model's active one, which may not change this kernel; or None.
        merged: Whether the kernel holds the active one already, which is then not added.
        gain: `g` of a merged one with DoRA, a float64 array.
        others: Of one layer of a model, which keeps them for all: dict of name -> dict of path ->
            array, the weights that an adapter trains besides, where it is not active. Those
            without any adapter are called "".
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
        self.active: str | None = None
        self.merged = False
        # Not of Keras's containers, which would be saved and tracked.
        self.__dict__.update(stored={}, others={})
        self.gain: Array | None = None
        self.dropout_layer = keras.layers.Dropout(0.5) if dropout else None

    def build(self, input_shape: Shape | None = None) -> None:
        def weight(name: str, shape: Shape, trainable: bool = True) -> Any:
            kept = {"initializer": "zeros", "trainable": trainable, "autocast": False}
            return self.add_weight(name=name, shape=shape, **kept)

        self.a = weight("lora_a", (self.inputs, self.rank))
        self.b = weight("lora_b", (self.rank, self.outputs))
        self.scale = weight("lora_scale", (), trainable=False)
        # A magnitude of zero, which no column that does anything has, stands for `g = 1`.
        self.magnitude = weight("magnitude", (self.outputs,)) if self.dora else None

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
        return low * ops.cast(self.scale, low.dtype)

    def _with_gain(self, y: Tensor, kernel: Callable[[], Tensor]) -> Tensor:
        if self.magnitude is None:
            return y
        changed = ops.cast(kernel(), "float32") + ops.matmul(self.scale * self.a, self.b)
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
        if name != self.active:
            return dict(self.stored[name])
        variables, shapes = self._variables(), self.shapes(self.settings[name])
        values = {key: ops.convert_to_numpy(variables[key]) for key in shapes}
        return {key: np.array(x[tuple(map(slice, shapes[key]))]) for key, x in values.items()}

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
        self.stored[name] = {key: np.asarray(x, "float32") for key, x in arrays.items()}
        if name == self.active:
            self._take(name)

    def activate(self, name: str | None) -> None:
        """Makes an adapter the active one; one that this layer does not have changes nothing."""
        if self.active in self.settings:
            self.stored[self.active] = self.arrays(self.active)
        self._take(name)

    def _take(self, name: str | None) -> None:
        settings = self.settings.get(name) if name is not None else None
        arrays = self.stored.pop(name) if settings else {}
        for key, variable in self._variables().items():
            whole = np.zeros(variable.shape, "float32")
            if key in arrays:
                whole[tuple(map(slice, arrays[key].shape))] = arrays[key]
            variable.assign(whole)
        self.scale.assign(settings.scale if settings else 0.0)
        if self.dropout_layer is not None:
            self.dropout_layer.rate = settings.dropout if settings else 0.0
        self.active = name

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

    def _kept(self) -> dict[str, tuple[dict[str, Array], str]]:
        """What is saved besides variables: names in the file -> dict and key of an array."""
        groups = {"stored": self.stored, "other": self.others}
        return {
            f"{group}_{i}_{j}": (arrays[name], key)
            for group, arrays in groups.items()
            for i, name in enumerate(sorted(arrays))
            for j, key in enumerate(sorted(arrays[name]))
        }

    def take_kept(self, other: "LowRank") -> None:
        """Takes over what another with the same adapters keeps besides variables."""
        theirs = other._kept()
        for name, (arrays, key) in self._kept().items():
            found, same = theirs[name]
            arrays[key] = np.array(found[same])
        self.gain = None if other.gain is None else np.array(other.gain)

    def save_own_variables(self, store: Any) -> None:
        super().save_own_variables(store)
        for name, (arrays, key) in self._kept().items():
            store[name] = arrays[key]
        if self.gain is not None:
            store["gain"] = self.gain

    def load_own_variables(self, store: Any) -> None:
        own = 3 if self.magnitude is None else 4  # in the order of their making
        super().load_own_variables({str(i): store[str(i)] for i in range(own)})
        for name, (arrays, key) in self._kept().items():
            arrays[key] = np.array(store[name])
        if self.gain is not None:
            self.gain = np.array(store["gain"])

    def saved(self) -> dict[str, Any]:
        """What a configuration holds of the adapters, besides their values."""
        shapes = {
            name: {path: (list(array.shape), str(array.dtype)) for path, array in arrays.items()}
            for name, arrays in self.others.items()
        }
        return {
            "names": {name: dataclasses.asdict(each) for name, each in self.settings.items()},
            "rank": self.rank,
            "dora": self.dora,
            "dropout": self.dropout,
            "active": self.active,
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
        self.activate(config["active"])
        self.merged = config["merged"]
        self.gain = np.ones(self.outputs) if config["gain"] else None

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
