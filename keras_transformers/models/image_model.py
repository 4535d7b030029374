"""What the models of images share: settings, a head for classes, freezing and transfer."""

from collections.abc import Sequence
from typing import Any, Self

import keras

from keras_transformers.annotations import Config, LayerOptions, ProblemType, Shape, Tensor
from keras_transformers.layers.composite import Composite, set_trainable
from keras_transformers.layers.parts import Prototype
from keras_transformers.models.settings import ModelSettings, check_problem, keeps_settings
from keras_transformers.models.transfer import Transferable


def check_images(model: Any, images: Any, channels: int) -> None:
    """Raises ValueError unless `images` are a batch of them, floating, as the model takes them."""
    owner = f"{type(model).__name__} '{model.name}'"
    rule = f"`images` must have shape (batch, height, width, {channels})"
    if not hasattr(images, "shape"):
        raise ValueError(f"{owner}: {rule}, in one tensor. Received: a {type(images).__name__}")
    shape, dtype = tuple(images.shape), keras.backend.standardize_dtype(images.dtype)
    if len(shape) != 4:
        hint = "; a single image needs a batch axis, images[None]" if len(shape) == 3 else ""
        raise ValueError(f"{owner}: {rule}. Received: shape {shape}, dtype {dtype}{hint}")
    if shape[-1] != channels:
        raise ValueError(
            f"{owner}: `images` must have {channels} channels, as when the model was built, and "
            f"channels last. Received: shape {shape}"
        )
    if not keras.backend.is_float_dtype(dtype):
        raise ValueError(
            f"{owner}: `images` must be floating, cast and scaled as in training, for instance "
            f"images / 255. Received: dtype {dtype}, shape {shape}"
        )


def check_images_shape(model: Any, images_shape: Any) -> None:
    """Raises ValueError unless a model can be built for images of that shape."""
    sides = () if isinstance(images_shape, dict) else tuple(images_shape)
    known = all(isinstance(side, int | None) for side in sides)
    if len(sides) != 4 or not known or sides[-1] is None:
        hint = "; a single image needs a batch axis, images[None]" if len(sides) == 3 else ""
        raise ValueError(
            f"{type(model).__name__} '{model.name}': `images` must have shape (batch, height, "
            f"width, channels) with known channels. Received: shape {images_shape}{hint}"
        )


class ImageModelOptions(LayerOptions, total=False):
    """What every model of images takes by name as well."""

    problem_type: ProblemType | None


class ImageModel(Transferable, ModelSettings, Composite, keras.Model):
    """Base of `ViT` and the pyramids.

    A subclass makes its layers, calls `_make_head`, and has `represent(images, training)`, which
    gives what the head sees, `_width`, how wide that is, and `_first(blocks)`, the layers up to its
    first `blocks` blocks.

    Args:
        problem_type: What the logits are for, which exports go by: "single_label_classification" (a
            softmax), "multi_label_classification" (a sigmoid of each), "regression", or None: one
            of several classes, a sigmoid of a single logit.
    """

    @keeps_settings()
    def __init__(self, problem_type: ProblemType | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        check_problem(type(self).__name__, self._settings)
        self.frozen_blocks: int | None = None
        self.head: Any = None

    @property
    def problem_type(self) -> ProblemType | None:
        """What the logits are for, as given."""
        return self._settings["problem_type"]

    def _make_head(self) -> None:
        if self._settings["num_classes"] is not None:
            self.head = keras.layers.Dense(
                self._settings["num_classes"], name="head", dtype=self.dtype_policy
            )

    def _start_building(self, images_shape: Shape) -> None:
        """Checks the shape of images and remembers their channels."""
        check_images_shape(self, images_shape)
        self.channels = images_shape[-1]

    def _end_building(self) -> None:
        """Makes the head's weights, and freezes what was frozen when the model was saved."""
        if self.head is not None:
            self.head.build((None, self._width))
        if self.frozen_blocks is not None and self.trainable:  # else all of it is frozen
            self.built = True
            self.freeze(self.frozen_blocks)

    def _check_images(self, images: Tensor) -> None:
        check_images(self, images, self.channels)

    def compute_output_spec(self, images: Tensor, training: bool | None = None) -> Any:
        self._check_images(images)
        return super().compute_output_spec(images, training=training)

    def call(self, images: Tensor, training: bool | None = None) -> Tensor:
        y = self.represent(images, training=training)
        return y if self.head is None else self.head(y)

    def compute_output_shape(self, images_shape: Shape) -> Shape:
        return (images_shape[0], self._settings["num_classes"] or self._width)

    def freeze(self, blocks: int | None = None) -> None:
        """Keeps the embeddings and the first blocks as they are; compile the model after it.

        The other blocks are trained, also those that were frozen before: `freeze(0)` keeps the
        embeddings alone, and `trainable = True` trains all.

        Args:
            blocks: How many; all of them, the default, leave pooling and head to be trained (a
                linear probe). `save` keeps the choice.

        Raises:
            ValueError: If there are not as many blocks.
        """
        depth = len(self.encoder_blocks)
        blocks = depth if blocks is None else blocks
        if not 0 <= blocks <= depth:
            raise ValueError(
                f"{type(self).__name__} '{self.name}': `blocks` must be None or between 0 and "
                f"{depth}. Received: {blocks}"
            )
        self.frozen_blocks = blocks
        if self.built:  # else `build` does it, for what it makes would be trainable
            frozen = self._first(blocks)
            for layer in self._first(depth):
                set_trainable(layer, not any(layer is each for each in frozen))

    def _shape_to_build(self, model: keras.Model) -> Shape:
        return (None, *model._settings["image_size"], self.channels)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "frozen_blocks": self.frozen_blocks}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        config = dict(config)
        frozen_blocks = config.pop("frozen_blocks", None)
        model = super().from_config(config)
        model.frozen_blocks = frozen_blocks
        return model


def drop_path_rates(last: float, depth: int) -> list[float]:
    """Rates of `depth` blocks on a line, from 0 to that of the last (Huang et al. 2016)."""
    return [last * i / max(depth - 1, 1) for i in range(depth)]


def with_rates(
    changes: dict[str, Any], prototypes: Sequence[Prototype], names: Sequence[str]
) -> tuple[dict[str, Any], list[Config] | None]:
    """Changes for `transferred` without the rates of blocks, and blocks that have these.

    Args:
        changes: The rates may be among them.
        prototypes: What the model's blocks are copies of.
        names: Those of the rates.

    Returns:
        The other changes, and the blocks' configurations; None if they stay as they are.
    """
    rates = {name: changes[name] for name in names if name in changes}
    if not rates:
        return changes, None
    others = {name: value for name, value in changes.items() if name not in rates}
    blocks = [each.serialized() for each in prototypes]
    return others, [{**each, "config": {**each["config"], **rates}} for each in blocks]


def both_sides(size: int | Sequence[int]) -> list[int]:
    """`[height, width]` of an image size given as a pair or as an int."""
    return [size, size] if isinstance(size, int) else list(size)
