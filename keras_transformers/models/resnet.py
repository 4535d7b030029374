"""The residual network of He et al. 2016: convolutions, as a backbone for what reads their maps."""

import dataclasses
from collections.abc import Sequence
from typing import Any, Literal, Self, Unpack

import keras
from keras import ops

from keras_transformers.core.types import ProblemType, Shape, Tensor
from keras_transformers.layers import ConvolutionNorm, ResidualBlock
from keras_transformers.models.base import (
    Configuration,
    check_choice,
    check_problem,
    check_sizes,
    variant,
)
from keras_transformers.models.image_model import (
    STRIDES,
    ImageModelOptions,
    Pyramid,
    block_name,
    both_sides,
)

# He et al. 2016, table 1; a smaller one for small data, with maps down to a sixteenth.
VARIANTS: dict[str, dict[str, Any]] = {
    "mini": {
        "hidden_dim": 32,
        "num_layers": (1, 1, 1),
        "bottleneck": False,
        "stem": "convolutions",
        "norm": "group",
    },
    "18": {"num_layers": (2, 2, 2, 2), "bottleneck": False},
    "34": {"num_layers": (3, 4, 6, 3), "bottleneck": False},
    "50": {"num_layers": (3, 4, 6, 3)},
    "101": {"num_layers": (3, 4, 23, 3)},
}


@dataclasses.dataclass(frozen=True)
class ResNetConfiguration(Configuration):
    """The arguments of a `ResNet`."""

    num_classes: int | None
    image_size: list[int]
    hidden_dim: int
    num_layers: list[int]
    bottleneck: bool
    stem: Literal["pooled", "convolutions"]
    norm: Literal["batch", "frozen", "group"]
    problem_type: ProblemType | None


@keras.saving.register_keras_serializable("keras_transformers")
class ResNet(Pyramid):
    """Residual network (He et al. 2016, https://arxiv.org/abs/1512.03385).

    A stem that leaves a position for each 4 x 4 pixels, stages of `ResidualBlock`, each after the
    first with half the rows and columns and twice the width; `y = mean(z)` and a linear head. The
    stride of a bottleneck is that of its 3 x 3 convolution, as in torchvision, timm and DETR.
    Images of any size are taken.

    Args:
        num_classes: Number of classes; None leaves the head out, and the model gives `y`.
        image_size: `(height, width)` in pixels, or an int for both; what `transferred` builds for.
        hidden_dim: Width of the stem and of the first stage's 3 x 3 convolutions.
        num_layers: Blocks of each stage, of up to four.
        bottleneck: Whether blocks have three convolutions; see `ResidualBlock`.
        stem: "pooled", a 7 x 7 convolution and a maximum over 3 x 3 positions, both of stride 2; or
            "convolutions", two 3 x 3 convolutions of stride 2. XLA on a CPU is slow at the gradient
            of that maximum.
        norm: "batch", "frozen" or "group"; see `ConvolutionNorm`.

    Call arguments:
        images: `(batch, height, width, channels)`, floating.
        training: Whether batch norms measure.

    Returns:
        Logits `(batch, num_classes)`, or `(batch, width of the last stage)` without a head.
        `features` gives the maps of all stages.

    Raises:
        ValueError: If a size is not positive or a choice is unknown.

    Example:
    >>> import numpy as np
    >>> from keras_transformers.models import ResNet
    >>> model = ResNet(10, hidden_dim=8, num_layers=(1, 1), norm="group")
    >>> tuple(model(np.zeros((3, 64, 48, 3), "float32")).shape)
    (3, 10)
    >>> maps = model.features(np.zeros((3, 64, 48, 3), "float32"))
    >>> {name: tuple(x.shape[1:]) for name, x in maps.items()}
    {'stride_4': (16, 12, 32), 'stride_8': (8, 6, 64)}
    """

    configuration: ResNetConfiguration

    def __init__(
        self,
        num_classes: int | None = 1000,
        image_size: int | Sequence[int] = 224,
        hidden_dim: int = 64,
        num_layers: Sequence[int] = (3, 4, 6, 3),
        bottleneck: bool = True,
        stem: Literal["pooled", "convolutions"] = "pooled",
        norm: Literal["batch", "frozen", "group"] = "batch",
        **kwargs: Unpack[ImageModelOptions],
    ) -> None:
        problem_type = kwargs.pop("problem_type", None)
        super().__init__(**kwargs)
        self.configuration = ResNetConfiguration(
            num_classes=num_classes,
            image_size=both_sides(image_size),
            hidden_dim=hidden_dim,
            num_layers=list(num_layers),
            bottleneck=bottleneck,
            stem=stem,
            norm=norm,
            problem_type=problem_type,
        )
        arguments = vars(self.configuration)
        check_problem(type(self).__name__, arguments)
        check_sizes("ResNet", arguments, ["hidden_dim"])
        check_choice("ResNet", arguments, "stem", ("pooled", "convolutions"))
        check_choice("ResNet", arguments, "norm", ("batch", "frozen", "group"))
        self._check_stages(["num_layers"], range(1, len(STRIDES) + 1))
        self.stem = [
            self._stem_convolution(i, kernel_size)
            for i, kernel_size in enumerate((7,) if stem == "pooled" else (3, 3))
        ]
        self.encoder_blocks = [
            ResidualBlock(
                hidden_dim * 2**stage,
                2 if stage and not number else 1,
                bottleneck,
                norm,
                name=block_name(stage, number),
                dtype=self.dtype_policy,
            )
            for stage, number in self._positions()
        ]
        self.norm = None
        self._make_head()

    def _stem_convolution(self, number: int, kernel_size: int) -> ConvolutionNorm:
        return ConvolutionNorm(
            self.configuration.hidden_dim,
            kernel_size,
            2,
            self.configuration.norm,
            name=f"stem_{number}",
            dtype=self.dtype_policy,
        )

    @classmethod
    def from_variant(
        cls,
        name: Literal["mini", "18", "34", "50", "101"],
        num_classes: int | None = 1000,
        **changes: Any,
    ) -> Self:
        """A model of a published size.

        Parameters for 1,000 classes: "18" 11.7 M, "34" 21.8 M, "50" 25.6 M, "101" 44.5 M.

        Args:
            name: "mini" (three stages, group norms, for small data), "18", "34", "50" or "101".
            num_classes: Number of classes, or None.
            **changes: Any constructor argument, instead of the variant's.

        Raises:
            ValueError: If there is no such variant.
        """
        return cls(num_classes, **variant("ResNet", name, VARIANTS, changes))

    def build(self, images_shape: Shape) -> None:
        self._start_building(images_shape)
        shape = (None, None, None, self.channels)
        for layer in (*self.stem, *self.encoder_blocks):
            layer.build(shape)
            shape = layer.compute_output_shape(shape)
        self._end_building()

    @property
    def _width(self) -> int:
        return super()._width * (4 if self.configuration.bottleneck else 1)

    def strides(self) -> tuple[int, ...]:
        return STRIDES[: len(self.configuration.num_layers)]

    def _entrances(self, stage: int) -> list[keras.layers.Layer]:
        return [] if stage else self.stem

    def _enter(self, stage: int, x: Tensor, training: bool | None = None) -> Tensor:
        if stage:
            return x
        for convolution in self.stem:
            x = convolution(x, training=training)
        if self.configuration.stem == "convolutions":
            return x
        # Zeros do: the activation before leaves nothing less.
        x = ops.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)))
        return ops.max_pool(x, 3, 2, data_format="channels_last")
