"""The base class of image models, the pooling of a `ViT`, and the base class of pyramids."""

import dataclasses
import itertools
from collections.abc import Sequence
from typing import Any, Literal, Self, TypeAlias

import keras
from keras import ops

from keras_transformers.core.types import Config, LayerOptions, Part, ProblemType, Shape, Tensor
from keras_transformers.layers.base import set_trainable
from keras_transformers.layers.parts import Prototype, serialized, serialized_parts
from keras_transformers.models.base import BaseModel, check_sizes, transfer


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
    """The keyword arguments of every image model."""

    problem_type: ProblemType | None


class ImageModel(BaseModel):
    """Base of `ViT` and the pyramids.

    A subclass makes its layers, calls `_make_head`, and has `represent(images, training)`, which
    returns the input of the head, `_width`, the width of that, and `_first(blocks)`, the layers up
    to its first `blocks` blocks.

    Attributes:
        configuration: The arguments of the constructor, with `num_classes`, `image_size` and
            `problem_type`.
        problem_type: What the logits are for, which exports go by: "single_label_classification" (a
            softmax), "multi_label_classification" (a sigmoid of each), "regression", or None: one
            of several classes, a sigmoid of a single logit.
        anew: Starts of the paths of weights that another task may start anew; see `take_over`.
    """

    anew: tuple[str, ...] = ("head",)

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.frozen_blocks: int | None = None
        self.head: Any = None

    @property
    def problem_type(self) -> ProblemType | None:
        """The kind of problem that the logits are for, as given."""
        return self.configuration.problem_type

    def _make_head(self) -> None:
        num_classes = self.configuration.num_classes
        if num_classes is not None:
            self.head = keras.layers.Dense(num_classes, name="head", dtype=self.dtype_policy)

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
        return (images_shape[0], self.configuration.num_classes or self._width)

    def transferred(self, **changes: Any) -> Self:
        """Returns a new model for another task that starts from the weights of this one.

        Args:
            **changes: Constructor arguments that differ, most often `num_classes`, of images also
                `image_size`; and `dropout` and `drop_path` of the blocks. A head of the same kind
                and size is taken over, another starts anew, as does a pooling that was not there;
                tables of positions are resized. Of a quantised model, a head and a pooling get
                floating-point numbers, so that they can be trained.

        Returns:
            A built model of the same class, with nothing frozen.

        Raises:
            ValueError: If a weight other than those gets another shape, or this model is not built,
                or has adapters that are not merged.

        Example:
        >>> import numpy as np
        >>> from keras_transformers.models import ViT
        >>> model = ViT(10, image_size=28, patch_size=7, hidden_dim=16, num_heads=2, mlp_dim=32,
        ...             num_layers=2)
        >>> model.build((None, 28, 28, 1))
        >>> larger = model.transferred(num_classes=3, image_size=42)
        >>> tuple(larger(np.zeros((2, 42, 42, 1), "float32")).shape)
        (2, 3)
        """
        model: Self = transfer(self, changes)
        return model

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
                set_trainable(layer, not any(layer is inner for inner in frozen))

    def _shape_to_build(self, model: keras.Model) -> Shape:
        return (None, *model.configuration.image_size, self.channels)

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
    changes = {name: value for name, value in changes.items() if name not in rates}
    configs = [prototype.serialized() for prototype in prototypes]
    return changes, [{**block, "config": {**block["config"], **rates}} for block in configs]


def both_sides(size: int | Sequence[int]) -> list[int]:
    """`[height, width]` of an image size given as a pair or as an int."""
    return [size, size] if isinstance(size, int) else list(size)


Pooled: TypeAlias = Literal["token", "mean", "distilled"]
WORDS = ("token", "mean", "distilled")


@keras.saving.register_keras_serializable("keras_transformers")
@dataclasses.dataclass(frozen=True, eq=False)
class ImagePooling:
    """The step from the tokens of a `ViT` to the vector that its head sees.

    Args:
        kind: "token", the class token; "mean", of the patches; "distilled", class and distillation
            token, each with a head of its own, the logits being the mean of both (Touvron et al.
            2021, "DeiT", https://arxiv.org/abs/2012.12877, section 4); or a layer from tokens
            after the last norm, `(batch, tokens, hidden_dim)`, to a vector, such as
            `AttentionPooling(12, 3072)`, of which a copy is made.
        representation_dim: Width of a dense layer with tanh before the head (of Dosovitskiy et al.
            2021 while pre-training), or None.

    Raises:
        ValueError: If there is no such kind, `representation_dim` is not positive, or both heads of
            "distilled" would be given a representation.

    Example:
    >>> import numpy as np
    >>> from keras_transformers.layers import AttentionPooling
    >>> from keras_transformers.models import ImagePooling, ViT
    >>> pooling = ImagePooling(AttentionPooling(2, 32), representation_dim=24)
    >>> model = ViT(10, 32, 8, 16, 2, 32, num_layers=1, pooling=pooling)
    >>> tuple(model(np.zeros((3, 32, 32, 1), "float32")).shape), model.head.kernel.shape[0]
    ((3, 10), 24)
    """

    kind: Pooled | Part = "token"
    representation_dim: int | None = None

    def __post_init__(self) -> None:
        if not (self.kind in WORDS if isinstance(self.kind, str) else self.is_layer):
            raise ValueError(
                f"ViT: `pooling` must be one of {', '.join(WORDS)} or a layer such as "
                f"`AttentionPooling(num_heads, mlp_dim)`. Received: {self.kind!r}"
            )
        width = self.representation_dim
        if width is not None and not (isinstance(width, int) and width > 0):
            raise ValueError(
                f"ViT: `representation_dim` must be a positive integer. Received: {width!r}"
            )
        if self.kind == "distilled" and width is not None:
            raise ValueError(
                'ViT: `representation_dim` must be None with `pooling`="distilled". '
                f"Received: {width}"
            )

    @property
    def is_layer(self) -> bool:
        """True if a layer pools."""
        return isinstance(self.kind, keras.layers.Layer)

    @property
    def of_class_token(self) -> bool:
        """True if a class token is needed."""
        return self.kind in ("token", "distilled")

    def check(self, embedding: Any, num_classes: int | None) -> None:
        """Raises ValueError unless the tokens and classes are there that are needed."""
        needed = {
            "a class token": not self.of_class_token or embedding.class_token is not None,
            "a distillation token": self.kind != "distilled"
            or embedding.distillation_token is not None,
            "classes": self.kind != "distilled" or num_classes is not None,
        }
        for thing, is_present in needed.items():
            if not is_present:
                raise ValueError(f'ViT: `pooling`="{self.kind}" needs {thing}. Received: none')

    def get_config(self) -> Config:
        kind = serialized(self.kind) if self.is_layer else self.kind
        return {"kind": kind, "representation_dim": self.representation_dim}

    @classmethod
    def from_config(cls, config: Config) -> Self:
        return cls(**{**config, "kind": deserialize_part(config["kind"])})


def as_pooling(pooling: Any) -> ImagePooling:
    """Returns an `ImagePooling` of the argument `pooling`, whatever form it has."""
    pooling = deserialize_part(pooling)
    return pooling if isinstance(pooling, ImagePooling) else ImagePooling(pooling)


def serialized_pooling(pooling: Any) -> Any:
    """Returns the configuration of the argument `pooling`; a word stays as it is."""
    if isinstance(pooling, ImagePooling):
        return keras.saving.serialize_keras_object(pooling)
    return serialized_parts(pooling)


def deserialize_part(config: Any) -> Any:
    """Returns the object of a configuration, and anything else as it is."""
    return keras.saving.deserialize_keras_object(config) if isinstance(config, dict) else config


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
        """Raises ValueError unless these arguments have a positive integer for each stage.

        `stages` are the numbers of stages that the model may have.
        """
        owner, arguments = type(self).__name__, vars(self.configuration)
        for name in names:
            check_stages(owner, name, arguments[name], stages)
        check_sizes(owner, arguments, [], ["num_classes"])

    def _positions(self) -> list[tuple[int, int]]:
        """Returns the stage of every block, in order, and its number inside the stage."""
        counts = self.configuration.num_layers
        return [(stage, number) for stage, count in enumerate(counts) for number in range(count)]

    def _drop_path(self) -> list[float]:
        """Returns the rates of the blocks of all stages."""
        return drop_path_rates(self.configuration.drop_path, sum(self.configuration.num_layers))

    def _leave(self, stage: int, x: Tensor) -> Tensor:
        return x

    @property
    def _width(self) -> int:
        width: int = self.configuration.hidden_dim * 2 ** (len(self.configuration.num_layers) - 1)
        return width

    def _first(self, blocks: int | None) -> list[keras.layers.Layer]:
        reached = [stage for stage, _ in self._positions()[:blocks]] or [-1]
        entrances = itertools.chain(*map(self._entrances, range(reached[-1] + 1)))
        end = [self.norm] if self.norm is not None and blocks == len(self.encoder_blocks) else []
        return [*entrances, *self.encoder_blocks[:blocks], *end]

    def encode(self, images: Tensor, training: bool | None = None) -> list[Tensor]:
        """Runs the stages: list of `(batch, rows, columns, width)`, one a stage."""
        self._check_images(images)
        x, maps, blocks = images, [], iter(self.encoder_blocks)
        for stage, count in enumerate(self.configuration.num_layers):
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
        """Returns the distance of the positions of each stage, in pixels."""
        return STRIDES

    def represent(self, images: Tensor, training: bool | None = None) -> Tensor:
        """Returns the input of the head: images -> `(batch, width of the last stage)`."""
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
    """Returns the name of a block."""
    return f"stage_{stage}_block_{number}"


def norm(model: Any, name: str) -> keras.layers.Layer:
    """A layer norm of a model's."""
    return keras.layers.LayerNormalization(
        epsilon=model.configuration.norm_epsilon, name=name, dtype=model.dtype_policy
    )
