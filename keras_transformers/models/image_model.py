"""The parts of image models: base class, embedding, pooling, and the base of pyramids."""

import dataclasses
import itertools
import math
from collections.abc import Sequence
from typing import Any, Literal, Self, TypeAlias, Unpack

import keras
from keras import ops

from keras_transformers.annotations import (
    Config,
    Index,
    LayerOptions,
    Part,
    ProblemType,
    Shape,
    Tensor,
)
from keras_transformers.layers import (
    ClassToken,
    GridPositionEmbedding,
    RegisterTokens,
    SinusoidalGrid,
)
from keras_transformers.layers.base import Arguments, Composite, set_trainable
from keras_transformers.layers.checks import refuse, whole_number
from keras_transformers.layers.parts import Prototype, part, serialized, serialized_parts
from keras_transformers.layers.patches import ToPatches
from keras_transformers.models.base import (
    ModelSettings,
    Transferable,
    check_problem,
    check_sizes,
    keeps_settings,
)


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


Positions: TypeAlias = Literal["learned", "sinusoidal"]
POSITIONS = {"learned": GridPositionEmbedding, "sinusoidal": SinusoidalGrid}


@keras.saving.register_keras_serializable("keras_transformers")
class ImageEmbedding(Arguments, Composite, keras.layers.Layer):
    """Patches, class and distillation tokens before them, and positions.

    `z_0 = [x_class; x_p^1 E; ...; x_p^N E] + E_pos` (Dosovitskiy et al. 2021,
    https://arxiv.org/abs/2010.11929, eq. 1). The `embedding` of a `ViT`.

    Args:
        stem: What makes tokens of patches: `PatchEmbedding(16, 768)`, `ShiftedPatchEmbedding` or
            `ConvolutionalStem`, of which a copy is made.
        class_token: Whether there is a class token, the first.
        positions: "learned", "sinusoidal", or None where the mixer knows positions itself.
        distillation_token: Whether there is a token, after the class token, that has learned from a
            teacher (Touvron et al. 2021, "DeiT", https://arxiv.org/abs/2012.12877, section 4).
        registers: Number of `RegisterTokens` behind these, which have no positions.
        antialias: How learned positions are resized, see `resize_positions`.
        norm: A norm of what comes out, for instance `keras.layers.LayerNormalization()`, of which a
            copy is made (Radford et al. 2021, "CLIP", https://arxiv.org/abs/2103.00020, section
            2.4); None for none.

    Call arguments:
        images: `(batch, height, width, channels)`, floating.
        visible: Optional int `(batch, kept)`, numbers of the patches to keep; the others are left
            out, as for a masked autoencoder.

    Returns:
        `(batch, tokens, hidden_dim)`.

    Raises:
        ValueError: If there are no such positions, or whole patches do not fill an image.

    Example:
    >>> import numpy as np
    >>> from keras_transformers.layers import ConvolutionalStem, EncoderBlock
    >>> from keras_transformers.models import ImageEmbedding, ViT
    >>> embedding = ImageEmbedding(ConvolutionalStem(8, 16), positions="sinusoidal")
    >>> model = ViT(10, 32, num_layers=2, embedding=embedding, block=EncoderBlock(2, 32))
    >>> tuple(model(np.zeros((3, 32, 32, 1), "float32")).shape), model.embedding.prefix_tokens
    ((3, 10), 1)
    """

    def __init__(
        self,
        stem: Part,
        class_token: bool = True,
        positions: Positions | None = "learned",
        distillation_token: bool = False,
        registers: int = 0,
        antialias: bool = True,
        norm: Part | None = None,
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(**kwargs)
        self.patch_embedding = part(self, "stem", stem, ToPatches)
        self.patch_embedding.name = "patch_embedding"
        self.patch_size = whole_number(self, "patch_size", self.patch_embedding.patch_size)
        if positions not in (*POSITIONS, None):
            known = f"one of {', '.join(POSITIONS)}, None"
            refuse(self, "positions", known, repr(positions))
        self.positions = positions
        policy = self.dtype_policy
        self.class_token = self.distillation_token = None
        if class_token:
            self.class_token = ClassToken(name="class_token", dtype=policy)
        if distillation_token:
            self.distillation_token = ClassToken(name="distillation_token", dtype=policy)
        named = sum(x is not None for x in (self.class_token, self.distillation_token))
        self.registers = whole_number(self, "registers", registers, least=0)
        self.antialias = antialias
        self.register_tokens = None
        if registers:
            self.register_tokens = RegisterTokens(
                registers, named, name="register_tokens", dtype=policy
            )
        self.prefix_tokens = named + registers
        self.position_embedding: Any = None
        self.norm = None if norm is None else part(self, "norm", norm, keras.layers.Layer)

    @property
    def hidden_dim(self) -> int:
        """Width of every token."""
        width: int = self.patch_embedding.hidden_dim
        return width

    def build(self, images_shape: Shape) -> None:
        grid = self.grid(images_shape[1:3])
        tokens = (None, None, self.hidden_dim)
        self.patch_embedding.build(images_shape)
        for token in (self.class_token, self.distillation_token, self.register_tokens):
            if token is not None:
                token.build(tokens)
        if self.positions is not None:
            resized = {"antialias": self.antialias} if self.positions == "learned" else {}
            self.position_embedding = POSITIONS[self.positions](
                grid,
                self.prefix_tokens - self.registers,
                name="position_embedding",
                dtype=self.dtype_policy,
                **resized,
            )
            self.position_embedding.build(tokens)
        if self.norm is not None:
            self.norm.build(tokens)

    def layers_with_weights(self) -> list[keras.layers.Layer]:
        """The layers inside, the patch embedding first."""
        layers = (self.patch_embedding, self.class_token, self.distillation_token)
        layers += (self.register_tokens, self.position_embedding, self.norm)
        return [each for each in layers if each is not None]

    def grid(self, image_size: Sequence[Index | None]) -> tuple[Any, ...]:
        """`(rows, columns)` of patches in an image of `(height, width)`.

        A side that only the call knows is a scalar tensor; `PatchEmbedding` checks it there.
        """
        known = [side for side in image_size if isinstance(side, int | None)]
        if len(image_size) != 2 or any(
            side is None or side < self.patch_size or side % self.patch_size for side in known
        ):
            raise ValueError(
                f"ViT: height and width of an image must be multiples of "
                f"`patch_size`={self.patch_size}; resize or pad it. Received: {tuple(image_size)}"
            )
        return tuple(side // self.patch_size for side in image_size)

    def call(self, images: Tensor, visible: Tensor | None = None) -> Tensor:
        grid = self.grid(ops.shape(images)[1:3])
        x = self.patch_embedding(images)  # (batch, patches, hidden_dim)
        for token in (self.distillation_token, self.class_token):
            x = x if token is None else token(x)  # one token more
        if self.position_embedding is not None:
            x = self.position_embedding(x, grid=grid)
        if self.register_tokens is not None:
            x = self.register_tokens(x)
        x = ops.cast(x if self.norm is None else self.norm(x), self.compute_dtype)
        if visible is None:
            return x
        prefix = self.prefix_tokens
        patches = ops.take_along_axis(x[:, prefix:], visible[:, :, None], axis=1)
        return ops.concatenate([x[:, :prefix], patches], axis=1) if prefix else patches

    def compute_output_shape(
        self, images_shape: Shape, visible_shape: Shape | None = None
    ) -> Shape:
        patches = None
        if visible_shape is not None:
            patches = visible_shape[1]
        elif None not in images_shape[1:3]:
            patches = math.prod(self.grid(images_shape[1:3]))
        length = None if patches is None else self.prefix_tokens + patches
        return (images_shape[0], length, self.hidden_dim)

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "stem": serialized(self.patch_embedding),
            "class_token": self.class_token is not None,
            "positions": self.positions,
            "distillation_token": self.distillation_token is not None,
            "registers": self.registers,
            "antialias": self.antialias,
            "norm": serialized(self.norm),
        }


Pooled: TypeAlias = Literal["token", "mean", "distilled"]
WORDS = ("token", "mean", "distilled")


@keras.saving.register_keras_serializable("keras_transformers")
@dataclasses.dataclass(frozen=True, eq=False)
class ImagePooling:
    """How the tokens of a `ViT` become the vector that its head sees.

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
        """Whether a layer pools."""
        return isinstance(self.kind, keras.layers.Layer)

    @property
    def of_class_token(self) -> bool:
        """Whether a class token is needed."""
        return self.kind in ("token", "distilled")

    def check(self, embedding: ImageEmbedding, num_classes: int | None) -> None:
        """Raises ValueError unless the tokens and classes are there that are needed."""
        needed = {
            "a class token": not self.of_class_token or embedding.class_token is not None,
            "a distillation token": self.kind != "distilled"
            or embedding.distillation_token is not None,
            "classes": self.kind != "distilled" or num_classes is not None,
        }
        for thing, there in needed.items():
            if not there:
                raise ValueError(f'ViT: `pooling`="{self.kind}" needs {thing}. Received: none')

    def get_config(self) -> Config:
        kind = serialized(self.kind) if self.is_layer else self.kind
        return {"kind": kind, "representation_dim": self.representation_dim}

    @classmethod
    def from_config(cls, config: Config) -> Self:
        return cls(**{**config, "kind": _deserialized(config["kind"])})


def as_pooling(given: Any) -> ImagePooling:
    """An `ImagePooling`; a kind of it, or the configuration of either, as one."""
    given = _deserialized(given)
    return given if isinstance(given, ImagePooling) else ImagePooling(given)


def serialized_pooling(given: Any) -> Any:
    """What `as_pooling` takes as a configuration; words as they are."""
    if isinstance(given, ImagePooling):
        return keras.saving.serialize_keras_object(given)
    return serialized_parts(given)


def _deserialized(given: Any) -> Any:
    return keras.saving.deserialize_keras_object(given) if isinstance(given, dict) else given


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
