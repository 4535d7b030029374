"""The Vision Transformer of Dosovitskiy et al. 2021: embedding, blocks, pooling and head."""

import dataclasses
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal, Self, TypeAlias, Unpack

import keras
from keras import ops

from keras_transformers.core.types import (
    Activation,
    Config,
    Index,
    LayerOptions,
    Part,
    ProblemType,
    Shape,
    Tensor,
)
from keras_transformers.layers import (
    AttentionPooling,
    ClassToken,
    ConvolutionalStem,
    Dropout,
    EncoderBlock,
    GridPositionEmbedding,
    PatchEmbedding,
    RegisterTokens,
    SelfAttention,
    ShiftedPatchEmbedding,
    SinusoidalGrid,
)
from keras_transformers.layers.base import BaseLayer
from keras_transformers.layers.checks import refuse, whole_number
from keras_transformers.layers.parts import (
    Prototype,
    follow_owner,
    part,
    part_or_numbers,
    serialized,
)
from keras_transformers.layers.patches import ToPatches, are_known_and_fit
from keras_transformers.models.base import (
    Configuration,
    check_changes,
    check_choice,
    check_numbers,
    check_problem,
    check_sizes,
    drop_numbers,
    number_or_default,
    pop_keywords,
)
from keras_transformers.models.image_model import (
    ImageModel,
    ImageModelOptions,
    ImagePooling,
    as_pooling,
    both_sides,
    check_images,
    drop_path_rates,
    serialized_pooling,
    with_rates,
)

Positions: TypeAlias = Literal["learned", "sinusoidal"]
POSITIONS = {"learned": GridPositionEmbedding, "sinusoidal": SinusoidalGrid}


@keras.saving.register_keras_serializable("keras_transformers")
class ImageEmbedding(BaseLayer):
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
        return [layer for layer in layers if layer is not None]

    def grid(self, image_size: Sequence[Index | None]) -> tuple[Any, ...]:
        """`(rows, columns)` of patches in an image of `(height, width)`.

        A side that only the call knows is a scalar tensor; the stem checks it there.
        """
        given = [side for side in image_size if isinstance(side, int | None)]
        if len(image_size) != 2 or any(
            side is None or side < self.patch_size or side % self.patch_size for side in given
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
            x = x if token is None else token(x)  # in front, so the class token is the first
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
    """The keyword arguments of `ViT.from_variant`; see there."""

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
    mixer: Part | None = None,
    feed_forward: Part | None = None,
    norm: Part | None = None,
    **options: Any,
) -> EncoderBlock:
    """Makes a pre-norm block; numbers make the parts that are None."""
    options = {name: value for name, value in options.items() if value is not None}
    if mixer is None and (attention_dropout or not qkv_bias):
        bias: bool | Literal["output"] = True if qkv_bias else "output"
        mixer = SelfAttention(num_heads, dropout=attention_dropout, use_bias=bias)
    if mixer is None:
        options["num_heads"] = num_heads
    if feed_forward is None:
        options |= {"mlp_dim": mlp_dim, "activation": activation}
    if norm is None and norm_epsilon != 1e-6:
        norm = keras.layers.LayerNormalization(epsilon=norm_epsilon, name="norm")
    return EncoderBlock(
        norm_first=True, mixer=mixer, feed_forward=feed_forward, norm=norm, **options
    )


def vit_embedding(
    patch_size: int,
    hidden_dim: int,
    class_token: bool = True,
    positions: Positions | None = "learned",
    stem: Stem = "patches",
    distillation_token: bool = False,
    registers: int = 0,
    antialias: bool = True,
    **options: Unpack[LayerOptions],
) -> ImageEmbedding:
    """Makes an embedding with the stem of that name."""
    return ImageEmbedding(
        STEMS[stem](patch_size, hidden_dim),
        class_token,
        positions,
        distillation_token,
        registers,
        antialias,
        **options,
    )


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
    settings: dict[str, Any] = {**VARIANTS[match[1]], "patch_size": int(match[2]), **changes}
    check_numbers("ViT", {name: settings[name] for name in (*OF_BLOCK, *OF_EMBEDDING)})
    for keyword, choices in CHOICES.items():
        if keyword in settings:
            check_choice("ViT", settings, keyword, choices)
    settings["pooling"] = make_pooling(settings)
    embedding_keywords = pop_keywords(settings, EMBEDDING_WORDS)
    block_keywords = pop_keywords(settings, BLOCK_WORDS)
    settings.pop("representation_dim", None)
    if settings.get("embedding") is not None:
        drop_numbers(settings, OF_EMBEDDING, changes)
    elif embedding_keywords:
        has_teacher = embedding_keywords.pop("distillation", None) is not None
        if embedding_keywords.get("class_token") is None:
            needs_class_token = as_pooling(settings["pooling"]).of_class_token
            embedding_keywords["class_token"] = needs_class_token
        numbers = pop_keywords(settings, OF_EMBEDDING)
        settings["embedding"] = vit_embedding(
            **numbers, **embedding_keywords, distillation_token=has_teacher
        )
    if settings.get("block") is not None:
        drop_numbers(settings, OF_BLOCK, changes)
    elif block_keywords:
        settings["block"] = vit_block(**pop_keywords(settings, OF_BLOCK), **block_keywords)
    return settings


def make_pooling(settings: Mapping[str, Any]) -> Any:
    """Returns the constructor's argument `pooling` for the keywords of `from_variant`."""
    pooling, width = settings.get("pooling", "token"), settings.get("representation_dim")
    distillation = settings.get("distillation")
    if not isinstance(pooling, str):
        return pooling
    check_choice("ViT", {"pooling": pooling}, "pooling", ("token", "mean", "attention"))
    if distillation and pooling != "token":
        raise ValueError(
            f'ViT: `distillation` needs `pooling`="token". Received: pooling={pooling!r}'
        )
    kind: Any = "distilled" if distillation == "head" else pooling
    if pooling == "attention":
        epsilon = settings.get("norm_epsilon", 1e-6)
        kind = AttentionPooling(settings["num_heads"], settings["mlp_dim"], epsilon)
    return kind if width is None else ImagePooling(kind, width)


@dataclasses.dataclass(frozen=True)
class ViTConfiguration(Configuration):
    """The arguments of a `ViT`, its parts in their serialised form."""

    num_classes: int | None
    image_size: list[int]
    patch_size: int | None
    hidden_dim: int | None
    num_heads: int | None
    mlp_dim: int | None
    num_layers: int
    block: Config | None
    embedding: Config | None
    pooling: str | Config
    problem_type: ProblemType | None


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

    variant_keywords = ViTKeywords.__annotations__

    anew = ("head", "representation", "attention_pooling", "distillation")
    anew += ("embedding/position_embedding", "embedding/distillation")

    configuration: ViTConfiguration

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
        problem_type = kwargs.pop("problem_type", None)
        super().__init__(**kwargs)
        # ViT-B/16, where neither a number nor a part is given.
        self.configuration = ViTConfiguration(
            num_classes=num_classes,
            image_size=both_sides(image_size),
            patch_size=number_or_default(patch_size, 16, embedding),
            hidden_dim=number_or_default(hidden_dim, 768, embedding),
            num_heads=number_or_default(num_heads, 12, block),
            mlp_dim=number_or_default(mlp_dim, 3072, block),
            num_layers=num_layers,
            block=serialized(block),
            embedding=serialized(embedding),
            pooling=serialized_pooling(pooling),
            problem_type=problem_type,
        )
        check_problem(type(self).__name__, vars(self.configuration))
        check_sizes("ViT", vars(self.configuration), ["num_layers"], ["num_classes"])
        self.pooling = as_pooling(pooling)
        self.embedding: ImageEmbedding = self._make_embedding(embedding)
        self.patch_size = self.embedding.patch_size
        self.prefix_tokens = self.embedding.prefix_tokens
        self.grid(self.configuration.image_size)
        self.pooling.check(self.embedding, num_classes)
        self.block = self._make_block(block)
        self.dropout_layer = Dropout(self.block.layer.dropout, dtype=self.dtype_policy)
        self.encoder_blocks = [self.block.copy(self, f"encoder_{i}", i) for i in range(num_layers)]
        rates = drop_path_rates(self.block.layer.drop_path, num_layers)
        for encoder_block, rate in zip(self.encoder_blocks, rates, strict=True):
            encoder_block.drop_path = rate
        self.norm = self.block.layer.copied_norm(self, "norm")
        self._make_heads()

    def _make_embedding(self, embedding: Part | None) -> Any:
        """Returns a copy of the given embedding, or the one that the numbers make."""
        numbers: dict[str, Any] = {
            "patch_size": self.configuration.patch_size,
            "hidden_dim": self.configuration.hidden_dim,
        }
        prototype = part_or_numbers(self, "embedding", embedding, ImageEmbedding, **numbers)
        if prototype is not None:
            return prototype.copy(self, "embedding")
        check_sizes(type(self).__name__, numbers, OF_EMBEDDING)
        new = vit_embedding(
            **numbers,
            class_token=self.pooling.of_class_token,
            distillation_token=self.pooling.kind == "distilled",
            name="embedding",
            dtype=self.dtype_policy,
        )
        follow_owner(new, None)
        return new

    def _make_block(self, block: Part | None) -> Prototype:
        """Returns the prototype of the blocks: the one given, or the one that the numbers make."""
        numbers: dict[str, Any] = {
            "num_heads": self.configuration.num_heads,
            "mlp_dim": self.configuration.mlp_dim,
        }
        prototype = part_or_numbers(self, "block", block, EncoderBlock, **numbers)
        if prototype is not None:
            return prototype
        check_sizes(type(self).__name__, numbers, OF_BLOCK)
        check_numbers("ViT", {**numbers, "hidden_dim": self.embedding.hidden_dim})
        return Prototype(self, "block", vit_block(**numbers), EncoderBlock)

    def _make_heads(self) -> None:
        """Makes the layers behind the last norm, or sets them to None."""
        policy = self.dtype_policy
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
                self.configuration.num_classes, name="distillation_head", dtype=policy
            )

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
        """Returns a model for another task; `dropout` and `drop_path` make blocks like these.

        See `ImageModel.transferred`. With another `image_size`, biases of the blocks for a grid of
        patches get the new grid.
        """
        changes, rates = with_rates(changes, [self.block], ["dropout", "drop_path"])
        if rates is not None:
            changes = {"block": rates[0], **dict.fromkeys(OF_BLOCK), **changes}
        block = self.configuration.block if rates is None else rates[0]
        new_size = changes.get("image_size")
        keeps_block = changes.get("block", block) is block
        keeps_patches = "embedding" not in changes and "patch_size" not in changes
        if block is not None and new_size is not None and keeps_block and keeps_patches:
            old_grid = self.grid(self.configuration.image_size)
            changes["block"] = replace_grid(block, old_grid, self.grid(both_sides(new_size)))
        if "pooling" in changes and not {*OF_EMBEDDING, "embedding"} & changes.keys():
            tokens = {"embedding": serialized(self.embedding), **dict.fromkeys(OF_EMBEDDING)}
            changes = {**tokens, **changes}
        return super().transferred(**changes)

    def build(self, images_shape: Any) -> None:
        self._start_building(images_shape)
        self.embedding.build((None, *self.configuration.image_size, self.channels))
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
        check_images(self, images, self.channels)
        if None not in images.shape[1:3]:
            self.embedding.grid(images.shape[1:3])

    def call(self, images: Tensor, training: bool | None = None) -> Tensor:
        training = bool(training)  # Keras has asked the layers around this one
        x = self._embed(images, training)  # (batch, tokens, hidden_dim)
        for block in self.encoder_blocks:
            x = block(x, training=training)
        if self.distillation_head is not None:
            # The class token and that of the teacher; the mean of both logits, in training too.
            y = self.norm(x[:, :2])
            return (self.head(y[:, 0]) + self.distillation_head(y[:, 1])) / 2
        y = self._pool(x, training)  # (batch, hidden_dim)
        return y if self.head is None else self.head(y)

    def _embed(
        self, images: Tensor, training: bool | None, visible: Tensor | None = None
    ) -> Tensor:
        """Checks images, and returns their tokens after dropout."""
        shape: Any = getattr(images, "shape", ())
        is_right = (
            len(shape) == 4
            and shape[3] == self.channels
            and are_known_and_fit(shape, (self.patch_size, self.patch_size))
            and keras.backend.is_float_dtype(keras.backend.standardize_dtype(images.dtype))
        )
        if not is_right:
            self._check_images(images)
        x = self.embedding(images, visible=visible)
        return x if training is False else self.dropout_layer(x, training=training)

    def _pool(self, x: Tensor, training: bool | None) -> Tensor:
        """Returns the input of the head, of the output of the last block."""
        if self.attention_pooling is not None:
            y = self.attention_pooling(self.norm(x), training=training)
        elif self.pooling.kind == "mean":
            y = self.norm(ops.mean(x[:, self.prefix_tokens :], axis=1))
        else:
            y = self.norm(x[:, 0])  # of the class token
        y = ops.cast(y, self.compute_dtype)
        return y if self.representation is None else self.representation(y)

    def represent(self, images: Tensor, training: bool | None = None) -> Tensor:
        """Returns the input of the head: images -> `(batch, hidden_dim)`."""
        return self._pool(self.encode(images, training=training), training)

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
        x = self._embed(images, training, visible)
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


def replace_grid(config: Any, old_grid: Sequence[Any], new_grid: Sequence[Any]) -> Any:
    """Returns the configuration of a block whose biases are for another grid of patches."""
    if isinstance(config, list):
        return [replace_grid(value, old_grid, new_grid) for value in config]
    if not isinstance(config, dict):
        return config
    changed = {}
    for name, value in config.items():
        is_grid = name == "grid" and isinstance(value, list) and tuple(value) == tuple(old_grid)
        changed[name] = list(new_grid) if is_grid else replace_grid(value, old_grid, new_grid)
    return changed
