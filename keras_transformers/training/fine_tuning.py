"""Fine-tuning: numbers by the number of examples, and gradual unfreezing."""

import dataclasses
import math
from typing import Any, Literal

import keras
import numpy as np

from keras_transformers.core.types import Array
from keras_transformers.layers.base import Rematerialized
from keras_transformers.training.schedules import StepCounter

# Of `benchmarks/small_data.py`: epochs by the number of examples, and the peak of the rate. That
# for 20,000 texts is chosen, not measured. At the smallest sizes a lower rate or twice the epochs
# brought nothing.
EPOCHS = {"text": {200: 8, 2_000: 3, 20_000: 1}, "image": {100: 40, 1_000: 12, 10_000: 4}}
RATES = {"text": 1e-4, "image": 1e-3}
SMALL_BATCHES = 1_000  # examples below which a batch holds 16


@dataclasses.dataclass(frozen=True)
class FineTuning:
    """Numbers for fine-tuning a pre-trained encoder, see `fine_tuning_numbers`.

    Attributes:
        learning_rate: The peak of AdamW's rate, which decays to 0 over all steps.
        epochs: Times that the examples are seen.
        batch_size: Examples in a batch.
        warmup_steps: Steps until the peak: a tenth of all.

    Example:
    >>> from keras_transformers.training import FineTuning
    >>> FineTuning(learning_rate=1e-4, epochs=3, batch_size=32, warmup_steps=19).epochs
    3
    """

    learning_rate: float
    epochs: int
    batch_size: int
    warmup_steps: int


def fine_tuning_numbers(examples: int, kind: Literal["text", "image"] = "text") -> FineTuning:
    """A learning rate, epochs, a batch size and a warm-up for so many labelled examples.

    The rule: the rate follows from the kind, 1e-4 for texts and 1e-3 for images, and so does the
    number of epochs at three sizes: 8, 3 and 1 for 200, 2,000 and 20,000 texts, 40, 12 and 4 for
    100, 1,000 and 10,000 images. Between these epochs lie on a straight line, both axes
    logarithmic; beyond them they stay. Batches hold 16 below 1,000 examples; above, 32 texts or 64
    images. `python -m benchmarks.small_data` measured it.

    Args:
        examples: Labelled rows to train on.
        kind: Whether they are "text" or "image".

    Raises:
        ValueError: If `examples` is not positive, or there is no such kind.

    Example:
    >>> from keras_transformers.training import fine_tuning_numbers
    >>> numbers = fine_tuning_numbers(3000)
    >>> numbers.epochs, numbers.batch_size, numbers.warmup_steps
    (2, 32, 18)
    """
    if examples < 1 or kind not in EPOCHS:
        raise ValueError(
            "fine_tuning_numbers: `examples` must be positive, and `kind` one of "
            f"{', '.join(EPOCHS)}. Received: examples={examples}, kind={kind!r}"
        )
    sizes, epochs = np.log(list(EPOCHS[kind])), np.log(list(EPOCHS[kind].values()))
    repeated = round(math.exp(np.interp(math.log(examples), sizes, epochs)))
    batch = 16 if examples < SMALL_BATCHES else 32 if kind == "text" else 64
    return FineTuning(
        learning_rate=RATES[kind],
        epochs=repeated,
        batch_size=batch,
        warmup_steps=repeated * math.ceil(examples / batch) // 10,
    )


def block_depths(model: keras.Model) -> list[int]:
    """How deep each trainable variable of a model lies, counted in blocks.

    0 is what stands before the first block, `i` block number `i` and what stands between it and the
    next (what begins a stage of a pyramid lies with its first block), and one more than the number
    of blocks what stands behind the last: norms, pooling, heads. Blocks are counted in the model's
    own order: those of an encoder, then those of its decoder.

    Args:
        model: Built, with those variables trainable that the optimizer is to train.

    Returns:
        A number for each of `model.trainable_variables`; `AdamW` and its like take the list.

    Raises:
        ValueError: If the model is not built, or has no blocks.

    Example:
    >>> from keras_transformers.models import ViT
    >>> from keras_transformers.training import AdamW, block_depths
    >>> model = ViT(10, 32, patch_size=8, hidden_dim=16, num_heads=2, mlp_dim=32, num_layers=2)
    >>> model.build((None, 32, 32, 3))
    >>> depths = block_depths(model)
    >>> depths[0], depths[-1], len(depths) == len(model.trainable_variables)
    (0, 3, True)
    >>> model.compile(AdamW(1e-3, depths=depths, layer_decay=0.75), "mse")
    """
    if not model.built:
        raise ValueError(f"block_depths: '{model.name}' must be built, and has no variables yet.")
    found = _of_stages(model) if hasattr(model, "_first") else _of_stack(model)
    if not found:
        raise ValueError(
            f"block_depths: '{model.name}' must have blocks, such as EncoderBlock. Received none."
        )
    return [found[id(variable)] for variable in model.trainable_variables]


def _of_stages(model: Any) -> dict[int, int]:
    """Depths in a model of images, which knows the layers up to a block; by `id` of variables."""
    last = len(model.encoder_blocks)
    reached = [model._first(blocks) for blocks in range(last + 1)]
    reached[last] = [layer for layer in reached[last] if layer is not model.norm]
    found: dict[int, int] = {}
    for depth, layers in enumerate([*reached, [model]]):
        for variable in (variable for layer in layers for variable in layer.variables):
            found.setdefault(id(variable), depth)
    return found


def _of_stack(model: keras.Model) -> dict[int, int]:
    """Depths by the order in which a model made its layers; empty without blocks."""
    order: list[tuple[keras.Variable, int]] = []
    blocks = _walk(model, order, 0)
    if not blocks:
        return {}
    last = max(i for i, (_, inside) in enumerate(order) if inside)
    found: dict[int, int] = {}
    depth = 0
    for i, (variable, inside) in enumerate(order):
        depth = inside or (depth if i < last else blocks + 1)
        found.setdefault(id(variable), depth)  # a table that is shared lies where it comes first
    return found


def _walk(layer: Any, order: list[tuple[keras.Variable, int]], blocks: int) -> int:
    """Lists the variables of a layer with the number of their block, 0 outside; counts blocks."""
    if isinstance(layer, Rematerialized):  # a prototype has no variables
        order.extend((variable, blocks + 1) for variable in layer.variables)
        return blocks + bool(layer.variables)
    inner = list(layer._flatten_layers(include_self=False, recursive=False))
    theirs = {id(variable) for each in inner for variable in each.variables}
    order.extend((variable, 0) for variable in layer.variables if id(variable) not in theirs)
    for each in inner:
        blocks = _walk(each, order, blocks)
    return blocks


class GradualUnfreezing(StepCounter):
    """Trains the head alone at first, and one block more every so many steps, from the last on.

    Howard & Ruder 2018, https://arxiv.org/abs/1801.06146, section 3.3. Depths whose turn has not
    come have a learning rate of 0, and no weight decay: their weights stay as they are, to the bit,
    while the optimizer's moments already follow their gradients. So nothing is compiled again, and
    a step takes as long as any other. Statistics of batch norms in such depths stay too.

    When training ends, all depths learn again, in another `fit` and in a file of the model. A `fit`
    that an exception ends leaves them as they are: call `on_train_end` of the callback then.

    Args:
        steps: Steps of the optimizer from one depth to the next; with
            `gradient_accumulation_steps=k`, `k` batches make one. What stands before the blocks
            comes last. With `steps_per_execution` above 1 a depth's turn comes with the first
            execution that begins with that step or a later one.

    Raises:
        ValueError: If `steps` is not positive; in `fit`, if the optimizer has no `depths`.

    Example:
    >>> import keras, numpy as np
    >>> from keras_transformers.models import ViT
    >>> from keras_transformers.training import AdamW, GradualUnfreezing, block_depths
    >>> model = ViT(2, 8, patch_size=4, hidden_dim=8, num_heads=2, mlp_dim=8, num_layers=1)
    >>> model.build((None, 8, 8, 1))
    >>> model.compile(AdamW(1e-3, depths=block_depths(model)), "mse")
    >>> x, y = np.ones((4, 8, 8, 1), "float32"), np.ones((4, 2), "float32")
    >>> before = keras.ops.convert_to_numpy(model.trainable_variables[0]).copy()  # embedding
    >>> history = model.fit(x, y, 2, epochs=2, verbose=0, callbacks=[GradualUnfreezing(steps=3)])
    >>> bool(np.all(keras.ops.convert_to_numpy(model.trainable_variables[0]) == before))
    True
    """

    def __init__(self, steps: int) -> None:
        super().__init__()
        if steps < 1:
            raise ValueError(
                f"GradualUnfreezing: `steps` must be positive. Received: steps={steps}"
            )
        self.steps = steps
        self._frozen = -1  # depths that are; -1 before the first step
        # Statistics of batch norms that must not move, with their values.
        self._statistics: list[tuple[keras.Variable, Array]] = []

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        if getattr(self.optimizer(), "depths", None) is None:
            raise ValueError(
                "GradualUnfreezing: the optimizer must know how deep variables lie, as of "
                "AdamW(..., depths=block_depths(model)). Received: "
                f"{type(self.optimizer()).__name__} without depths"
            )
        if not self.optimizer().built:  # Keras does it in the first step
            self.model.optimizer.build(self.model.trainable_variables)
        super().on_train_begin(logs)
        self._frozen, self._statistics = -1, []

    def on_train_batch_begin(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        optimizer = self.optimizer()
        rates = optimizer.rates_of_depths()
        frozen = max(len(rates) - 1 - self.begin_execution(batch)[0] // self.steps, 0)
        if frozen != self._frozen:
            self._synchronize()  # else the step would not see the new rates
            optimizer.depth_rates.assign([0.0] * frozen + rates[frozen:])
            values = self._statistics_before(frozen)
            self._statistics = [(v, np.array(keras.ops.convert_to_numpy(v))) for v in values]
        self._frozen = frozen

    def on_train_batch_end(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        super().on_train_batch_end(batch, logs)
        if not self._statistics:
            return
        self._synchronize()
        for variable, value in self._statistics:
            variable.assign(value)

    def on_train_end(self, logs: dict[str, Any] | None = None) -> None:
        super().on_train_end(logs)
        self.optimizer().depth_rates.assign(self.optimizer().rates_of_depths())
        self._statistics = []

    def _statistics_before(self, first: int) -> list[keras.Variable]:
        """Moving means and variances of the batch norms of frozen depths."""
        trained = self.model.trainable_variables
        depths = {id(v): d for v, d in zip(trained, self.optimizer().depths, strict=True)}
        return [
            variable
            for layer in self.model._flatten_layers()
            if isinstance(layer, keras.layers.BatchNormalization) and layer.trainable_variables
            if depths[id(layer.trainable_variables[0])] < first
            for variable in layer.non_trainable_variables
            if keras.backend.is_float_dtype(variable.dtype)
        ]

    def _synchronize(self) -> None:
        """Brings the variables up to date, and makes the next step read them."""
        if keras.backend.backend() == "jax":
            self.model.jax_state_sync()
