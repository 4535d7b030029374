"""What the hierarchical models share: stages, each with half the rows and columns of the last."""

import itertools
from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from keras_transformers.annotations import Tensor
from keras_transformers.models.image_model import ImageModel, drop_path_rates
from keras_transformers.models.settings import check_sizes

STRIDES = (4, 8, 16, 32)  # as all papers have it
FOUR = range(4, 5)  # numbers of stages that there may be


class Pyramid(ImageModel):
    """Base of `Swin`, `PVT`, `MViT` and `ResNet`.

    A subclass makes `self.encoder_blocks`, all blocks in order, named by `block_name`, and has
    `_enter(stage, x, training)`, which gives a stage's first map from the last stage's, or from
    images at stage 0; `_leave(stage, x)`, by default nothing; and `_entrances(stage)`, the layers
    of the two.
    """

    def _check_stages(self, names: Sequence[str], stages: range = FOUR) -> None:
        """Raises ValueError unless these settings have a positive integer for each stage.

        `stages` are the numbers of them that there may be.
        """
        owner, settings = type(self).__name__, self._settings
        for name in names:
            check_stages(owner, name, settings[name], stages)
        check_sizes(owner, settings, [], ["num_classes"])

    def _positions(self) -> list[tuple[int, int]]:
        """Stage of every block, in order, and its number inside the stage."""
        counts = self._settings["num_layers"]
        return [(stage, number) for stage, count in enumerate(counts) for number in range(count)]

    def _drop_path(self) -> list[float]:
        """Rates of the blocks of all stages."""
        return drop_path_rates(self._settings["drop_path"], sum(self._settings["num_layers"]))

    def _leave(self, stage: int, x: Tensor) -> Tensor:
        return x

    @property
    def _width(self) -> int:
        return self._settings["hidden_dim"] * 2 ** (len(self._settings["num_layers"]) - 1)

    def _first(self, blocks: int | None) -> list[keras.layers.Layer]:
        reached = [stage for stage, _ in self._positions()[:blocks]] or [-1]
        entrances = itertools.chain(*map(self._entrances, range(reached[-1] + 1)))
        end = [self.norm] if self.norm is not None and blocks == len(self.encoder_blocks) else []
        return [*entrances, *self.encoder_blocks[:blocks], *end]

    def encode(self, images: Tensor, training: bool | None = None) -> list[Tensor]:
        """Runs the stages: list of `(batch, rows, columns, width)`, one a stage."""
        self._check_images(images)
        x, maps, blocks = images, [], iter(self.encoder_blocks)
        for stage, count in enumerate(self._settings["num_layers"]):
            x = self._enter(stage, x, training)
            for block in itertools.islice(blocks, count):
                x = block(x, training=training)
            x = self._leave(stage, x)
            maps.append(x)
        return maps

    def features(self, images: Tensor, training: bool | None = None) -> dict[str, Tensor]:
        """The output of every stage, for detection and segmentation.

        Args:
            images: `(batch, height, width, channels)`, floating.
            training: Whether dropout acts.

        Returns:
            Dict of "stride_4", "stride_8", "stride_16", "stride_32" (as many pixels as a stage's
            positions are apart) to `(batch, height / stride, width / stride, width of the stage)`,
            the sides rounded up.
        """
        maps = self.encode(images, training=training)
        return {f"stride_{stride}": x for stride, x in zip(self.strides(), maps, strict=True)}

    def strides(self) -> tuple[int, ...]:
        """How many pixels the positions of each stage are apart."""
        return STRIDES

    def represent(self, images: Tensor, training: bool | None = None) -> Tensor:
        """What the head sees: `(batch, height, width, channels)` -> `(batch, last width)`."""
        x = self.encode(images, training=training)[-1]
        x = x if self.norm is None else ops.cast(self.norm(x), self.compute_dtype)
        return ops.mean(x, axis=(1, 2))


def check_stages(
    owner: str, name: str, sizes: Any, stages: range = FOUR, or_none: bool = False
) -> None:
    """Raises ValueError unless each stage has a positive integer, or perhaps None."""
    right = (or_none if n is None else isinstance(n, int) and n > 0 for n in sizes)
    if len(sizes) not in stages or not all(right):
        number = f"{stages[0]} to {stages[-1]}" if len(stages) > 1 else stages[0]
        raise ValueError(
            f"{owner}: `{name}` must have a positive integer for each of {number} stages. "
            f"Received: {sizes!r}"
        )


def block_name(stage: int, number: int) -> str:
    """What a block is called."""
    return f"stage_{stage}_block_{number}"


def norm(model: Any, name: str) -> keras.layers.Layer:
    """A layer norm of a model's."""
    return keras.layers.LayerNormalization(
        epsilon=model._settings["norm_epsilon"], name=name, dtype=model.dtype_policy
    )
