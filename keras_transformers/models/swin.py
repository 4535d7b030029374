"""The Swin Transformer of Liu et al. 2021, and its second version."""

from collections.abc import Sequence
from typing import Any, Literal, Self, Unpack

import keras
from keras import ops

from keras_transformers.annotations import Part, Tensor
from keras_transformers.layers import PatchEmbedding, PatchMerging, SwinBlock
from keras_transformers.layers.parts import Prototype, serialized_parts
from keras_transformers.layers.vision.patch_merging import pad_map
from keras_transformers.models.image_model import ImageModelOptions, both_sides, with_rates
from keras_transformers.models.pyramid import Pyramid, block_name, check_stages
from keras_transformers.models.settings import check_sizes, keeps_settings, refuse_beside
from keras_transformers.models.swin_variants import (
    NUMBERS,
    STAGES,
    SwinKeywords,
    swin_arguments,
    swin_blocks,
)


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

    @keeps_settings(image_size=both_sides, num_layers=list, blocks=serialized_parts)
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
        super().__init__(**kwargs)
        check_sizes("Swin", self._settings, ["patch_size", "hidden_dim"])
        self._check_stages(["num_layers"], STAGES)
        policy = self.dtype_policy
        self.blocks = self._blocks(blocks)
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

    def _blocks(self, given: Sequence[Part] | None) -> list[Prototype]:
        numbers = {name: self._settings[name] for name in NUMBERS}
        stages = len(self._settings["num_layers"])
        if given is not None:
            refuse_beside("Swin", "blocks", **numbers)
            if len(given) != stages:
                raise ValueError(
                    f"Swin: `blocks` must be a `SwinBlock` for each of {stages} stages. "
                    f"Received: {len(given)}"
                )
        else:
            self._settle(**{name: NUMBERS[name] for name, x in numbers.items() if x is None})
            self._settle(num_heads=list(self._settings["num_heads"]))
            numbers = {name: self._settings[name] for name in NUMBERS}
            check_stages("Swin", "num_heads", numbers["num_heads"], range(stages, stages + 1))
            given = swin_blocks(self._settings["hidden_dim"], **numbers)
        return [Prototype(self, "blocks", each, SwinBlock) for each in given]

    def _copy(self, stage: int, number: int) -> Any:
        """A block like those of its stage, with windows that its map has room for."""
        block = self.blocks[stage].layer
        sides = [-(-side // self.strides()[stage]) for side in self._settings["image_size"]]
        pairs = list(zip(sides, block.window_size, strict=True))
        made = block.with_windows(
            [min(pair) for pair in pairs],
            [window // 2 * (number % 2) * (side > window) for side, window in pairs],
        )
        index = sum(self._settings["num_layers"][:stage]) + number
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
        """As `Transferable.transferred`; `dropout` and `window_size` make blocks like these."""
        prototypes, blocks = self.blocks, None
        of_blocks = self._settings["blocks"] is not None or "dropout" in changes
        if of_blocks and changes.get("window_size") is not None:
            window = (changes.pop("window_size"),) * 2
            made = [each.layer.with_windows(window, (0, 0)) for each in prototypes]
            prototypes = [Prototype(self, "blocks", each, SwinBlock) for each in made]
            blocks = [each.serialized() for each in prototypes]
        changes, rated = with_rates(changes, prototypes, ["dropout"])
        blocks = blocks if rated is None else rated
        if blocks is not None:
            changes = {"blocks": blocks, **dict.fromkeys(NUMBERS), **changes}
        return super().transferred(**changes)

    def build(self, images_shape: Any) -> None:
        self._start_building(images_shape)
        width = self._settings["hidden_dim"]
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
            self._settings["patch_size"] * 2**stage
            for stage in range(len(self._settings["num_layers"]))
        )

    def _entrances(self, stage: int) -> list[keras.layers.Layer]:
        return [self.mergings[stage - 1]] if stage else [self.patch_embedding, self.embedding_norm]

    def _enter(self, stage: int, x: Tensor, training: bool | None = None) -> Tensor:
        if stage:
            return self.mergings[stage - 1](x)
        side = self._settings["patch_size"]
        x = pad_map(x, *(-extent % side for extent in ops.shape(x)[1:3]))
        rows, columns = (extent // side for extent in ops.shape(x)[1:3])
        x = self.embedding_norm(self.patch_embedding(x))
        return ops.reshape(x, (-1, rows, columns, x.shape[-1]))
