"""Swin (Liu et al. 2021) and Swin V2 (Liu et al. 2022)."""

import dataclasses
from collections.abc import Sequence
from typing import Any, Literal, Self, Unpack

import keras
from keras import ops

from keras_transformers.core.types import Activation, Config, Part, ProblemType, Tensor
from keras_transformers.layers import (
    FeedForward,
    PatchEmbedding,
    PatchMerging,
    SwinBlock,
    WindowAttention,
)
from keras_transformers.layers.parts import Prototype, serialized_parts
from keras_transformers.layers.patches import pad_map
from keras_transformers.models.base import (
    Configuration,
    check_changes,
    check_choice,
    check_problem,
    check_sizes,
    drop_numbers,
    number_or_default,
    pop_keywords,
    refuse_beside,
    variant,
)
from keras_transformers.models.image_model import (
    ImageModelOptions,
    Pyramid,
    block_name,
    both_sides,
    check_stages,
    with_rates,
)

# Liu et al. 2021, section 3.3; a smaller one for small images.
VARIANTS: dict[str, dict[str, Any]] = {
    "mini": {"hidden_dim": 32, "num_layers": (2, 2, 2, 2), "num_heads": (1, 2, 4, 8)},
    "T": {"hidden_dim": 96, "num_layers": (2, 2, 6, 2), "num_heads": (3, 6, 12, 24)},
    "S": {"hidden_dim": 96, "num_layers": (2, 2, 18, 2), "num_heads": (3, 6, 12, 24)},
    "B": {"hidden_dim": 128, "num_layers": (2, 2, 18, 2), "num_heads": (4, 8, 16, 32)},
    "L": {"hidden_dim": 192, "num_layers": (2, 2, 18, 2), "num_heads": (6, 12, 24, 48)},
}
SECOND = {"image_size": 256, "window_size": 8}  # of the second version, Liu et al. 2022, table 4
STAGES = range(1, 9)  # numbers of them that there may be
# Numbers that make the blocks where these are not given, and the keywords by which they are others.
NUMBERS: dict[str, Any] = {"num_heads": (3, 6, 12, 24), "window_size": 7, "version": 1}
WORDS = ("pretrained_window_size", "mlp_ratio", "mask_padding", "dropout", "norm_epsilon")
WORDS += ("activation", "qkv_bias")


class SwinKeywords(ImageModelOptions, total=False):
    """The keyword arguments of `Swin.from_variant`; see there."""

    image_size: int | Sequence[int]
    patch_size: int
    hidden_dim: int
    num_layers: Sequence[int]
    num_heads: Sequence[int]
    window_size: int
    version: Literal[1, 2]
    drop_path: float
    blocks: Sequence[Part] | None
    pretrained_window_size: int | Sequence[int | None] | None
    mlp_ratio: int
    mask_padding: bool
    dropout: float
    norm_epsilon: float
    activation: Activation | None
    qkv_bias: bool


def swin_blocks(
    hidden_dim: int,
    num_heads: Sequence[int] = NUMBERS["num_heads"],
    window_size: int = 7,
    version: Literal[1, 2] = 1,
    pretrained_window_size: int | Sequence[int | None] | None = None,
    mlp_ratio: int = 4,
    mask_padding: bool = True,
    dropout: float = 0.0,
    norm_epsilon: float = 1e-5,
    activation: Activation | None = "gelu",
    qkv_bias: bool = True,
) -> list[SwinBlock]:
    """A block of each stage, which is not shifted.

    Raises:
        ValueError: If a size is not positive, or there are not as many as stages.
    """
    stages = len(num_heads)
    trained = window_size_of_each_stage(pretrained_window_size, stages)
    sizes = {"hidden_dim": hidden_dim, "window_size": window_size, "mlp_ratio": mlp_ratio}
    check_sizes("Swin", sizes, list(sizes))
    check_choice("Swin", {"version": version}, "version", (1, 2))
    check_stages("Swin", "num_heads", num_heads, STAGES)
    same = range(stages, stages + 1)
    check_stages("Swin", "pretrained_window_size", trained, same, or_none=True)
    return [
        SwinBlock(
            mixer=WindowAttention(
                heads,
                window_size,
                cosine=version == 2,
                pretrained_window_size=trained[stage],
                use_bias=True if qkv_bias else "output",
            ),
            feed_forward=FeedForward(mlp_ratio * hidden_dim * 2**stage, activation),
            norm_first=version == 1,
            mask_padding=mask_padding,
            norm=keras.layers.LayerNormalization(epsilon=norm_epsilon, name="norm"),
            dropout=dropout,
        )
        for stage, heads in enumerate(num_heads)
    ]


def window_size_of_each_stage(
    window_size: int | Sequence[int | None] | None, stages: int
) -> list[int | None]:
    """A window size, or None, of each stage, given as a list of them or as one for all."""
    if isinstance(window_size, int | None):
        return [window_size] * stages
    return list(window_size)


def swin_arguments(name: str, changes: SwinKeywords) -> dict[str, Any]:
    """The constructor's arguments for flat keywords: numbers, and blocks where these ask for them.

    Raises:
        ValueError: If there is no such variant or keyword, a value does not fit, or blocks are
            given beside what they are made of.
    """
    check_changes("Swin", changes, SwinKeywords, {"blocks": WORDS})
    second = SECOND if changes.get("version") == 2 else {}
    settings = variant("Swin", name, VARIANTS, {**second, **changes})
    keywords = pop_keywords(settings, WORDS)
    if settings.get("blocks") is not None:
        drop_numbers(settings, NUMBERS, changes)
    elif keywords:
        numbers = pop_keywords(settings, NUMBERS)
        settings["blocks"] = swin_blocks(settings["hidden_dim"], **numbers, **keywords)
    return settings


@dataclasses.dataclass(frozen=True)
class SwinConfiguration(Configuration):
    """The arguments of a `Swin`, its blocks in their serialised form."""

    num_classes: int | None
    image_size: list[int]
    patch_size: int
    hidden_dim: int
    num_layers: list[int]
    num_heads: Sequence[int] | None
    window_size: int | None
    version: int | None
    drop_path: float | None
    blocks: list[Config] | None
    problem_type: ProblemType | None


@keras.saving.register_keras_serializable("keras_transformers")
class Swin(Pyramid):
    """Swin Transformer (Liu et al. 2021, https://arxiv.org/abs/2103.14030).

    Patches, then stages of `SwinBlock`, four in the paper, the windows of every second block
    shifted by half a window, with `PatchMerging` between; `y = mean(LN(z))` and a linear head. The
    second version (Liu et al. 2022, https://arxiv.org/abs/2111.09883) has cosines for scores, a
    bias from a small network, and norms at the end of the branches. Cost grows linearly with the
    number of patches.
    Images of any size are taken: what is missing to whole patches, windows or pairs is padded.

    Args:
        num_classes: Number of classes; None leaves the head out, and the model gives `y`.
        image_size: `(height, width)` in pixels, or an int for both. A stage whose map has less than
            a window at this size gets windows as large as its map.
        patch_size: Side of a patch.
        hidden_dim: Width of the first stage; each has twice that of the last.
        num_layers: Blocks of each stage, from one stage to eight.
        num_heads: Heads of each stage; must divide its width. 3, 6, 12 and 24 unless there are
            `blocks`.
        window_size: Side of a window in tokens. 7 unless there are `blocks`.
        version: 1, the default unless there are `blocks`, or 2.
        drop_path: Rate of dropping a branch in the last block; the first has 0, those between lie
            on a line (Huang et al. 2016). None for those of the `blocks`, or 0.
        blocks: What the blocks of a stage are copies of, one `SwinBlock` for each, in
            the place of `num_heads`, `window_size` and `version`. The model shifts every second
            copy; and merges and ends with norms like those of the first.

    Call arguments:
        images: `(batch, height, width, channels)`, floating.
        training: Whether dropout acts.

    Returns:
        Logits `(batch, num_classes)`, or `(batch, 8 * hidden_dim)`, of four stages,
        without a head. `features` gives
        the maps of all stages.

    Raises:
        ValueError: If a size is not positive, heads do not divide a stage's width, there is no such
            version, or a number is given beside the blocks.

    Example:
    >>> import numpy as np
    >>> from keras_transformers.models import Swin
    >>> model = Swin(10, image_size=64, hidden_dim=8, num_layers=(1, 2, 1, 1),
    ...              num_heads=(1, 2, 4, 8), window_size=4)
    >>> tuple(model(np.zeros((3, 64, 64, 3), "float32")).shape)
    (3, 10)
    >>> maps = model.features(np.zeros((3, 72, 60, 3), "float32"))
    >>> {name: tuple(x.shape[1:]) for name, x in maps.items()}["stride_8"]
    (9, 8, 16)

    By parts: gated networks, and no heads in the second half.

    >>> from keras_transformers.layers import FourierMixing, GatedFeedForward, SwinBlock
    >>> from keras_transformers.layers import WindowAttention
    >>> mixers = WindowAttention(1, 4), WindowAttention(2, 4), FourierMixing(), FourierMixing()
    >>> blocks = [SwinBlock(mixer=mixer, feed_forward=GatedFeedForward(16 * 2**stage),
    ...                     window_size=4 if stage > 1 else None)
    ...           for stage, mixer in enumerate(mixers)]
    >>> model = Swin(10, 64, hidden_dim=8, num_layers=(1, 2, 1, 1), blocks=blocks)
    >>> tuple(model(np.zeros((3, 64, 64, 3), "float32")).shape)
    (3, 10)
    """

    variant_keywords = SwinKeywords.__annotations__

    configuration: SwinConfiguration

    def __init__(
        self,
        num_classes: int | None = 1000,
        image_size: int | Sequence[int] = 224,
        patch_size: int = 4,
        hidden_dim: int = 96,
        num_layers: Sequence[int] = (2, 2, 6, 2),
        num_heads: Sequence[int] | None = None,
        window_size: int | None = None,
        version: Literal[1, 2] | None = None,
        drop_path: float | None = None,
        blocks: Sequence[Part] | None = None,
        **kwargs: Unpack[ImageModelOptions],
    ) -> None:
        problem_type = kwargs.pop("problem_type", None)
        super().__init__(**kwargs)
        heads = number_or_default(num_heads, NUMBERS["num_heads"], blocks)
        self.configuration = SwinConfiguration(
            num_classes=num_classes,
            image_size=both_sides(image_size),
            patch_size=patch_size,
            hidden_dim=hidden_dim,
            num_layers=list(num_layers),
            num_heads=list(heads) if blocks is None else heads,
            window_size=number_or_default(window_size, NUMBERS["window_size"], blocks),
            version=number_or_default(version, NUMBERS["version"], blocks),
            drop_path=drop_path,
            blocks=serialized_parts(blocks),
            problem_type=problem_type,
        )
        check_problem(type(self).__name__, vars(self.configuration))
        check_sizes("Swin", vars(self.configuration), ["patch_size", "hidden_dim"])
        self._check_stages(["num_layers"], STAGES)
        policy = self.dtype_policy
        self.blocks = self._make_blocks(blocks)
        first: Any = self.blocks[0].layer
        self.patch_embedding = PatchEmbedding(
            patch_size, hidden_dim, name="patch_embedding", dtype=policy
        )
        self.embedding_norm = first.copied_norm(self, "embedding_norm")
        self.norm = first.copied_norm(self, "norm")
        norm_of_mergings = first.copied_norm(self, "norm")
        self.mergings = [
            PatchMerging(first.norm_first, norm_of_mergings, name=f"merging_{i}", dtype=policy)
            for i in range(1, len(num_layers))
        ]
        self.encoder_blocks = [self._copy(*position) for position in self._positions()]
        if drop_path is not None:
            for block, rate in zip(self.encoder_blocks, self._drop_path(), strict=True):
                block.drop_path = rate
        self._make_head()

    def _make_blocks(self, blocks: Sequence[Part] | None) -> list[Prototype]:
        """Returns a prototype for each stage: of the given blocks, or of those of the numbers."""
        stages = len(self.configuration.num_layers)
        numbers: dict[str, Any] = {name: vars(self.configuration)[name] for name in NUMBERS}
        if blocks is None:
            check_stages("Swin", "num_heads", numbers["num_heads"], range(stages, stages + 1))
            blocks = swin_blocks(self.configuration.hidden_dim, **numbers)
        else:
            refuse_beside("Swin", "blocks", **numbers)
        if len(blocks) != stages:
            raise ValueError(
                f"Swin: `blocks` must be a `SwinBlock` for each of {stages} stages. "
                f"Received: {len(blocks)}"
            )
        return [Prototype(self, "blocks", block, SwinBlock) for block in blocks]

    def _copy(self, stage: int, number: int) -> Any:
        """A block like those of its stage, with windows that its map has room for."""
        block = self.blocks[stage].layer
        sides = [-(-side // self.strides()[stage]) for side in self.configuration.image_size]
        pairs = list(zip(sides, block.window_size, strict=True))
        made = block.with_windows(
            [min(pair) for pair in pairs],
            [window // 2 * (number % 2) * (side > window) for side, window in pairs],
        )
        index = sum(self.configuration.num_layers[:stage]) + number
        prototype = Prototype(self, "blocks", made, SwinBlock)
        return prototype.copy(self, block_name(stage, number), index)

    @classmethod
    def from_variant(
        cls,
        name: Literal["mini", "T", "S", "B", "L"],
        /,
        num_classes: int | None = 1000,
        **changes: Unpack[SwinKeywords],
    ) -> Self:
        """A model of a published size, of either version.

        Parameters for 1,000 classes: version 1 at 224 pixels "T" 28.3 M, "S" 49.6 M, "B" 87.8 M,
        "L" 196.5 M; version 2 at 256 pixels in windows of 8 "T" 28.3 M, "S" 49.7 M, "B" 87.9 M.

        Args:
            name: "mini", "T", "S", "B" or "L".
            num_classes: Number of classes, or None.
            **changes: Any constructor argument, instead of the variant's, `version=2` for the
                second version; or one of these, from which blocks are made: `mlp_ratio`, how much
                wider than a token the hidden layer of the feed-forward networks is, by default 4;
                their `activation`, by default GELU; `dropout` on every residual branch;
                `mask_padding`, see `SwinBlock`; `norm_epsilon`, by default 1e-5; `qkv_bias`,
                whether the projections to queries, keys and values have biases; and of version 2
                `pretrained_window_size`, by which offsets are measured, where it is not
                `window_size`, or one for each stage.

        Raises:
            ValueError: If there is no such variant or keyword, or a keyword is given beside the
                blocks.
        """
        return cls(num_classes, **swin_arguments(name, changes))

    def transferred(self, **changes: Any) -> Self:
        """Returns a model for another task; `dropout` and `window_size` make blocks like these.

        See `ImageModel.transferred`.
        """
        prototypes, blocks = self.blocks, None
        of_blocks = self.configuration.blocks is not None or "dropout" in changes
        if of_blocks and changes.get("window_size") is not None:
            window = (changes.pop("window_size"),) * 2
            layers = [prototype.layer.with_windows(window, (0, 0)) for prototype in prototypes]
            prototypes = [Prototype(self, "blocks", layer, SwinBlock) for layer in layers]
            blocks = [prototype.serialized() for prototype in prototypes]
        changes, rated = with_rates(changes, prototypes, ["dropout"])
        blocks = blocks if rated is None else rated
        if blocks is not None:
            changes = {"blocks": blocks, **dict.fromkeys(NUMBERS), **changes}
        return super().transferred(**changes)

    def build(self, images_shape: Any) -> None:
        self._start_building(images_shape)
        width = self.configuration.hidden_dim
        self.patch_embedding.build((None, None, None, self.channels))
        self.embedding_norm.build((None, None, width))
        for (stage, _), block in zip(self._positions(), self.encoder_blocks, strict=True):
            block.build((None, None, None, width * 2**stage))
        for stage, merging in enumerate(self.mergings):
            merging.build((None, None, None, width * 2**stage))
        self.norm.build((None, None, None, self._width))
        self._end_building()

    def strides(self) -> tuple[int, ...]:
        return tuple(
            self.configuration.patch_size * 2**stage
            for stage in range(len(self.configuration.num_layers))
        )

    def _entrances(self, stage: int) -> list[keras.layers.Layer]:
        return [self.mergings[stage - 1]] if stage else [self.patch_embedding, self.embedding_norm]

    def _enter(self, stage: int, x: Tensor, training: bool | None = None) -> Tensor:
        if stage:
            return self.mergings[stage - 1](x)
        side = self.configuration.patch_size
        x = pad_map(x, *(-extent % side for extent in ops.shape(x)[1:3]))
        rows, columns = (extent // side for extent in ops.shape(x)[1:3])
        x = self.embedding_norm(self.patch_embedding(x))
        return ops.reshape(x, (-1, rows, columns, x.shape[-1]))
