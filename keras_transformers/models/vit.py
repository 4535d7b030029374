"""The Vision Transformer of Dosovitskiy et al. 2021."""

import functools
import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal, Self, TypeAlias, Unpack

import keras
from keras import ops

from keras_transformers.annotations import Activation, Index, Part, Tensor
from keras_transformers.layers import (
    AttentionPooling,
    ConvolutionalStem,
    Dropout,
    EncoderBlock,
    FeedForward,
    PatchEmbedding,
    SelfAttention,
    ShiftedPatchEmbedding,
)
from keras_transformers.layers.parts import Prototype, part, serialized
from keras_transformers.models.base import (
    Makers,
    check_changes,
    check_choice,
    check_numbers,
    check_sizes,
    keeps_settings,
    with_parts,
)
from keras_transformers.models.image_model import (
    POSITIONS,
    ImageEmbedding,
    ImageModel,
    ImageModelOptions,
    ImagePooling,
    Positions,
    as_pooling,
    both_sides,
    drop_path_rates,
    serialized_pooling,
    with_rates,
)

Stem: TypeAlias = Literal["patches", "shifted", "convolutional"]
# Dosovitskiy et al. 2021, table 1 (B, L, H); Touvron et al. 2021, DeiT, table 1 (Ti, S); a smaller
# one for small images.
VARIANTS: dict[str, dict[str, Any]] = {
    "mini": {"hidden_dim": 128, "num_heads": 4, "mlp_dim": 256, "num_layers": 4},
    "Ti": {"hidden_dim": 192, "num_heads": 3, "mlp_dim": 768, "num_layers": 12},
    "S": {"hidden_dim": 384, "num_heads": 6, "mlp_dim": 1536, "num_layers": 12},
    "B": {"hidden_dim": 768, "num_heads": 12, "mlp_dim": 3072, "num_layers": 12},
    "L": {"hidden_dim": 1024, "num_heads": 16, "mlp_dim": 4096, "num_layers": 24},
    "H": {"hidden_dim": 1280, "num_heads": 16, "mlp_dim": 5120, "num_layers": 32},
}
STEMS = {
    "patches": PatchEmbedding,
    "shifted": ShiftedPatchEmbedding,
    "convolutional": ConvolutionalStem,
}
CHOICES = {
    "positions": (*POSITIONS, None),
    "stem": tuple(STEMS),
    "distillation": (None, "token", "head"),
}
# Numbers that make a part, and the keywords by which it is another.
OF_BLOCK, OF_EMBEDDING = ("num_heads", "mlp_dim"), ("patch_size", "hidden_dim")
BLOCK_WORDS = (
    "dropout",
    "drop_path",
    "norm_epsilon",
    "activation",
    "attention_dropout",
    "qkv_bias",
)
BLOCK_WORDS += ("mixer", "feed_forward", "norm", "layer_scale")
EMBEDDING_WORDS = ("class_token", "positions", "stem", "registers", "antialias", "distillation")
POOLING_WORDS = ("representation_dim", "distillation")


class ViTKeywords(ImageModelOptions, total=False):
    """What `ViT.from_variant` takes by name; see there."""

    image_size: int | Sequence[int]
    patch_size: int
    hidden_dim: int
    num_heads: int
    mlp_dim: int
    num_layers: int
    block: Part | None
    embedding: Part | None
    pooling: Literal["token", "mean", "attention"] | ImagePooling | Part
    class_token: bool | None
    positions: Positions | None
    stem: Stem
    representation_dim: int | None
    distillation: Literal["token", "head"] | None
    registers: int
    antialias: bool
    dropout: float
    drop_path: float
    norm_epsilon: float
    activation: Activation | None
    attention_dropout: float
    qkv_bias: bool
    mixer: Part | None
    feed_forward: Part | None
    norm: Part | None
    layer_scale: float | None


def vit_block(
    num_heads: int,
    mlp_dim: int,
    norm_epsilon: float = 1e-6,
    activation: Activation | None = "gelu",
    attention_dropout: float = 0.0,
    qkv_bias: bool = True,
    **given: Any,
) -> EncoderBlock:
    """A pre-norm block; the parts that are not given are made of the numbers."""
    parts = {name: each for name, each in given.items() if each is not None}
    bias: bool | Literal["output"] = True if qkv_bias else "output"
    made = {
        "mixer": lambda: SelfAttention(num_heads, dropout=attention_dropout, use_bias=bias),
        "feed_forward": lambda: FeedForward(mlp_dim, activation),
        "norm": lambda: keras.layers.LayerNormalization(epsilon=norm_epsilon, name="norm"),
    }
    parts |= {name: make() for name, make in made.items() if name not in parts}
    return EncoderBlock(norm_first=True, **parts)


def vit_embedding(
    patch_size: int,
    hidden_dim: int,
    class_token: bool = True,
    positions: Positions | None = "learned",
    stem: Stem = "patches",
    distillation_token: bool = False,
    registers: int = 0,
    antialias: bool = True,
) -> ImageEmbedding:
    """What makes tokens, with a stem of that name."""
    made = STEMS[stem](patch_size, hidden_dim)
    return ImageEmbedding(made, class_token, positions, distillation_token, registers, antialias)


def vit_arguments(name: str, changes: ViTKeywords) -> dict[str, Any]:
    """The constructor's arguments for flat keywords: numbers, and parts where these ask for them.

    Raises:
        ValueError: If there is no such variant or keyword, a value does not fit, or a part is given
            beside what it is made of.
    """
    match = re.fullmatch(r"(\w+)/([1-9]\d*)", name)
    if not match or match[1] not in VARIANTS:
        raise ValueError(
            f"ViT.from_variant: `name` must be one of {', '.join(VARIANTS)}, a slash and the "
            f"patch size, for instance 'S/16'. Received: {name!r}"
        )
    beside: dict[str, tuple[str, ...]]
    beside = {"block": BLOCK_WORDS, "embedding": EMBEDDING_WORDS, "pooling": POOLING_WORDS}
    beside |= {"mixer": ("attention_dropout", "qkv_bias"), "feed_forward": ("activation",)}
    check_changes("ViT", changes, ViTKeywords, beside)
    found: dict[str, Any] = {**VARIANTS[match[1]], "patch_size": int(match[2]), **changes}
    check_numbers("ViT", {name: found[name] for name in (*OF_BLOCK, *OF_EMBEDDING)})
    defaults = {"positions": None, "stem": "patches", "distillation": None}
    for word, known in CHOICES.items():
        check_choice("ViT", {**defaults, **found}, word, known)
    found["pooling"] = pooling = _pooling(found)
    if changes.get("embedding") is None and any(word in found for word in EMBEDDING_WORDS):
        if found.get("class_token") is None:
            found["class_token"] = as_pooling(pooling).of_class_token
        found["distillation_token"] = found.get("distillation") is not None
    made = (*EMBEDDING_WORDS[:-1], "distillation_token")
    makers: Makers = {
        "embedding": (vit_embedding, OF_EMBEDDING, made),
        "block": (vit_block, OF_BLOCK, BLOCK_WORDS),
    }
    found = with_parts(found, changes, makers)
    return {name: value for name, value in found.items() if name not in POOLING_WORDS}


def _pooling(found: Mapping[str, Any]) -> Any:
    """What pools, as the constructor takes it."""
    pooling, width = found.get("pooling", "token"), found.get("representation_dim")
    distillation = found.get("distillation")
    if not isinstance(pooling, str):
        return pooling
    check_choice("ViT", {"pooling": pooling}, "pooling", ("token", "mean", "attention"))
    if distillation and pooling != "token":
        raise ValueError(
            f'ViT: `distillation` needs `pooling`="token". Received: pooling={pooling!r}'
        )
    kind: Any = "distilled" if distillation == "head" else pooling
    if pooling == "attention":
        epsilon = found.get("norm_epsilon", 1e-6)
        kind = AttentionPooling(found["num_heads"], found["mlp_dim"], epsilon)
    return kind if width is None else ImagePooling(kind, width)


# Of table 1 of the paper, and its patches of 16 pixels, where neither a number nor a part is given.
DEFAULTS = {"patch_size": 16, "hidden_dim": 768, "num_heads": 12, "mlp_dim": 3072}


@keras.saving.register_keras_serializable("keras_transformers")
class ViT(ImageModel):
    """Vision Transformer (Dosovitskiy et al. 2021, https://arxiv.org/abs/2010.11929).

    `z_0 = [x_class; x_p^1 E; ...; x_p^N E] + E_pos`, `num_layers` pre-norm encoder blocks, then
    `y = LN(z_L^0)` and a linear head. With mean pooling, `y = LN(mean of the patches)`; with
    attention pooling, `y = AttentionPooling(LN(z_L))`. A batch of images of another size than
    `image_size` is taken too, its positions resized, also where only the call knows the size.

    Args:
        num_classes: Number of classes; None leaves the head out, and the model gives `y`.
        image_size: `(height, width)` in pixels, or an int for both; what the positions are made
            for.
        patch_size: Side of a patch; must divide `image_size`. 16 unless there is an `embedding`.
        hidden_dim: Width of every token (D). 768 unless there is an `embedding`.
        num_heads: Heads of every attention; must divide `hidden_dim`. 12 unless there is a `block`.
        mlp_dim: Width of the feed-forward networks. 3072 unless there is a `block`.
        num_layers: Number of encoder blocks.
        block: What every block is a copy of, in the place of `num_heads` and `mlp_dim`: an
            `EncoderBlock`. Its `drop_path` is that of the last block; the first has 0, those
            between lie on a line (Huang et al. 2016). Its `dropout` is that of embeddings too, and
            a norm like its own stands at the end.
        embedding: What makes tokens of an image, in the place of `patch_size` and `hidden_dim`: an
            `ImageEmbedding`; copied. By numbers, projected patches and learned positions, and a
            class token where `pooling` needs one.
        pooling: "token", "mean" (over the patches), "distilled" (see `ImagePooling`), a layer such
            as `AttentionPooling(12, 3072)`, or an `ImagePooling` of one of them.

    Call arguments:
        images: `(batch, height, width, channels)`, floating.
        training: Whether dropout acts.

    Returns:
        Logits `(batch, num_classes)`, or `(batch, hidden_dim)` without a head.

    Raises:
        ValueError: If a size is not positive, patches do not fill the image, `num_heads` does not
            divide `hidden_dim`, a number is given beside the part that it makes, or what is pooled
            is not there.

    Example:
    >>> import numpy as np
    >>> from keras_transformers.models import ViT
    >>> model = ViT(10, image_size=28, patch_size=7, hidden_dim=16, num_heads=2, mlp_dim=32,
    ...             num_layers=2)
    >>> tuple(model(np.zeros((3, 28, 28, 1), "float32")).shape)
    (3, 10)

    By parts: Fourier mixing instead of attention, and no class token.

    >>> from keras_transformers.layers import EncoderBlock, FourierMixing, PatchEmbedding
    >>> from keras_transformers.models import ImageEmbedding
    >>> block = EncoderBlock(mixer=FourierMixing(), mlp_dim=32, norm_first=True, drop_path=0.1)
    >>> embedding = ImageEmbedding(PatchEmbedding(7, 16), class_token=False)
    >>> model = ViT(10, 28, num_layers=2, block=block, embedding=embedding, pooling="mean")
    >>> tuple(model(np.zeros((3, 28, 28, 1), "float32")).shape)
    (3, 10)
    """

    anew = ("head", "representation", "attention_pooling", "distillation")
    anew += ("embedding/position_embedding", "embedding/distillation")
    defaults = DEFAULTS

    @keeps_settings(
        image_size=both_sides, block=serialized, embedding=serialized, pooling=serialized_pooling
    )
    def __init__(
        self,
        num_classes: int | None = 1000,
        image_size: int | Sequence[int] = 224,
        patch_size: int | None = None,
        hidden_dim: int | None = None,
        num_heads: int | None = None,
        mlp_dim: int | None = None,
        num_layers: int = 12,
        block: Part | None = None,
        embedding: Part | None = None,
        pooling: Literal["token", "mean", "distilled"] | ImagePooling | Part = "token",
        **kwargs: Unpack[ImageModelOptions],
    ) -> None:
        super().__init__(**kwargs)
        check_sizes("ViT", self._settings, ["num_layers"], ["num_classes"])
        self.pooling = as_pooling(pooling)
        self.embedding: ImageEmbedding = self._embedding(embedding)
        self.patch_size = self.embedding.patch_size
        self.prefix_tokens = self.embedding.prefix_tokens
        self.grid(self._settings["image_size"])
        self.pooling.check(self.embedding, num_classes)
        self.block = self._block(block)
        layer, policy = self.block.layer, self.dtype_policy
        self.dropout_layer = Dropout(layer.dropout, dtype=policy)
        self.encoder_blocks = [self.block.copy(self, f"encoder_{i}", i) for i in range(num_layers)]
        rates = drop_path_rates(layer.drop_path, num_layers)
        for each, rate in zip(self.encoder_blocks, rates, strict=True):
            each.drop_path = rate
        self.norm = layer.copied_norm(self, "norm")
        self.attention_pooling: Any = None
        if self.pooling.is_layer:
            kind = keras.layers.Layer
            self.attention_pooling = part(self, "attention_pooling", self.pooling.kind, kind)
        self.representation: Any = None
        if self.pooling.representation_dim is not None:
            self.representation = keras.layers.Dense(
                self.pooling.representation_dim, "tanh", name="representation", dtype=policy
            )
        self._make_head()
        self.distillation_head: Any = None
        if self.pooling.kind == "distilled":
            self.distillation_head = keras.layers.Dense(
                num_classes, name="distillation_head", dtype=policy
            )

    def _embedding(self, given: Part | None) -> Any:
        make = functools.partial(
            vit_embedding,
            class_token=self.pooling.of_class_token,
            distillation_token=self.pooling.kind == "distilled",
        )
        prototype = self._prototype("embedding", given, ImageEmbedding, OF_EMBEDDING, make)
        return prototype.copy(self, "embedding")

    def _block(self, given: Part | None) -> Prototype:
        def make(**numbers: Any) -> EncoderBlock:
            check_numbers("ViT", {**numbers, "hidden_dim": self.embedding.hidden_dim})
            return vit_block(**numbers)

        return self._prototype("block", given, EncoderBlock, OF_BLOCK, make)

    @classmethod
    def from_variant(
        cls, name: str, /, num_classes: int | None = 1000, **changes: Unpack[ViTKeywords]
    ) -> Self:
        """A model of a published size with patches of any size.

        Parameters for 1,000 classes at 224 pixels: "Ti/16" 5.7 M, "S/16" 22.1 M, "B/16" 86.6 M,
        "L/16" 304 M, "H/14" 632 M.

        Args:
            name: "mini", "Ti", "S", "B", "L" or "H", a slash, and the side of a patch: "S/16".
            num_classes: Number of classes, or None.
            **changes: Any constructor argument, instead of the variant's; or one of these, from
                which parts are made. Of the block: `dropout`, `drop_path`, `attention_dropout`,
                `qkv_bias`, `activation` (by default GELU), `norm_epsilon` (by default 1e-6),
                `layer_scale`, `mixer`, `feed_forward` and `norm`. Of the embedding: `class_token`,
                `positions`, `registers`, `antialias`, and `stem`, "patches", "shifted" or
                "convolutional"; see `ImageEmbedding`. Of the pooling: "attention", with the heads
                and widths of the blocks; `representation_dim`; and `distillation`, "token" for a
                distillation token, "head" where that has a head of its own; see `ImagePooling`.

        Raises:
            ValueError: If there is no such variant or keyword, or a keyword is given beside the
                part that it makes.
        """
        return cls(num_classes, **vit_arguments(name, changes))

    def transferred(self, **changes: Any) -> Self:
        """As `Transferable.transferred`; `dropout` and `drop_path` make blocks like these.

        With another `image_size`, biases of the blocks for a grid of patches get the new grid.
        """
        changes, rates = with_rates(changes, [self.block], ["dropout", "drop_path"])
        if rates is not None:
            changes = {"block": rates[0], **dict.fromkeys(OF_BLOCK), **changes}
        block = self._settings["block"] if rates is None else rates[0]
        new_size = changes.get("image_size")
        keeps_block = changes.get("block", block) is block
        keeps_patches = "embedding" not in changes and "patch_size" not in changes
        if block is not None and new_size is not None and keeps_block and keeps_patches:
            old_grid = self.grid(self._settings["image_size"])
            changes["block"] = _with_grid(block, old_grid, self.grid(both_sides(new_size)))
        if "pooling" in changes and not {*OF_EMBEDDING, "embedding"} & changes.keys():
            tokens = {"embedding": serialized(self.embedding), **dict.fromkeys(OF_EMBEDDING)}
            changes = {**tokens, **changes}
        return super().transferred(**changes)

    def build(self, images_shape: Any) -> None:
        self._start_building(images_shape)
        self.embedding.build((None, *self._settings["image_size"], self.channels))
        tokens, hidden = (None, None, self.embedding.hidden_dim), (None, self._pooled_width)
        for layer in (self.dropout_layer, *self.encoder_blocks):
            layer.build(tokens)
        self.norm.build(hidden if self.pooling.kind == "mean" else tokens)
        if self.attention_pooling is not None:
            self.attention_pooling.build(tokens)
        for head in (self.representation, self.distillation_head):
            if head is not None:
                head.build(hidden)
        self._end_building()

    @property
    def _pooled_width(self) -> int:
        width: int = self.embedding.hidden_dim
        if self.attention_pooling is not None:
            width = self.attention_pooling.compute_output_shape((None, None, width))[-1]
        return width

    @property
    def _width(self) -> int:
        return self.pooling.representation_dim or self._pooled_width

    def grid(self, image_size: Sequence[Index | None]) -> tuple[Any, ...]:
        """`(rows, columns)` of patches in an image of `(height, width)`."""
        return self.embedding.grid(image_size)

    def _check_images(self, images: Any) -> None:
        super()._check_images(images)
        if None not in images.shape[1:3]:
            self.embedding.grid(images.shape[1:3])

    def call(self, images: Tensor, training: bool | None = None) -> Tensor:
        if self.distillation_head is None:
            return super().call(images, training=training)
        y = self.norm(self.encode(images, training=training)[:, :2])
        return (self.head(y[:, 0]) + self.distillation_head(y[:, 1])) / 2

    def represent(self, images: Tensor, training: bool | None = None) -> Tensor:
        """What the head sees: `(batch, height, width, channels)` -> `(batch, hidden_dim)`."""
        x = self.encode(images, training=training)
        if self.attention_pooling is not None:
            y = self.attention_pooling(self.norm(x), training=training)
        elif self.pooling.kind == "mean":
            y = self.norm(ops.mean(x[:, self.prefix_tokens :], axis=1))
        else:
            y = self.norm(x[:, 0])
        y = ops.cast(y, self.compute_dtype)
        return y if self.representation is None else self.representation(y)

    def encode(
        self,
        images: Tensor,
        training: bool | None = None,
        return_blocks: bool = False,
        visible: Tensor | None = None,
    ) -> Any:
        """Runs the encoder blocks, before the last norm.

        Args:
            images: `(batch, height, width, channels)`.
            training: Whether dropout acts.
            return_blocks: Whether to return the output of every block.
            visible: Optional int `(batch, kept)`, numbers of the patches to compute with; the
                others are left out, as for a masked autoencoder.

        Returns:
            `(batch, tokens, hidden_dim)`, the class token first and that of distillation next
            where there are such; or a list of them, one a block.
        """
        self._check_images(images)
        x = self.dropout_layer(self.embedding(images, visible=visible), training=training)
        outputs = []
        for block in self.encoder_blocks:
            x = block(x, training=training)
            outputs.append(x)
        return outputs if return_blocks else x

    def features(self, images: Tensor, training: bool | None = None) -> dict[str, Tensor]:
        """The patches after the last norm, as a map, for detection and segmentation.

        Args:
            images: `(batch, height, width, channels)`, floating.
            training: Whether dropout acts.

        Returns:
            Dict of "stride_16" (or what `patch_size` is) to `(batch, rows, columns, hidden_dim)`.
        """
        x = self.encode(images, training=training)
        if self.norm.built and self.pooling.kind != "mean":
            x = self.norm(x)
        rows, columns = self.grid(ops.shape(images)[1:3])
        x = ops.reshape(x[:, self.prefix_tokens :], (-1, rows, columns, x.shape[-1]))
        return {f"stride_{self.patch_size}": x}

    def _first(self, blocks: int | None) -> list[keras.layers.Layer]:
        end = [self.norm] if blocks == len(self.encoder_blocks) else []
        return [self.embedding, *self.encoder_blocks[:blocks], *end]


def _with_grid(config: Any, old_grid: Sequence[Any], new_grid: Sequence[Any]) -> Any:
    """Returns the configuration of a block whose biases are for another grid of patches."""
    if isinstance(config, list):
        return [_with_grid(value, old_grid, new_grid) for value in config]
    if not isinstance(config, dict):
        return config
    changed = {}
    for name, value in config.items():
        is_grid = name == "grid" and isinstance(value, list) and tuple(value) == tuple(old_grid)
        changed[name] = list(new_grid) if is_grid else _with_grid(value, old_grid, new_grid)
    return changed
