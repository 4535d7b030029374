"""From images to the tokens that a Vision Transformer's blocks are given."""

import math
from collections.abc import Sequence
from typing import Any, Literal, TypeAlias, Unpack

import keras
from keras import ops

from keras_transformers.annotations import Index, LayerOptions, Part, Shape, Tensor
from keras_transformers.layers import (
    ClassToken,
    GridPositionEmbedding,
    RegisterTokens,
    SinusoidalGrid,
)
from keras_transformers.layers.arguments import Arguments
from keras_transformers.layers.composite import Composite
from keras_transformers.layers.errors import refuse, whole_number
from keras_transformers.layers.parts import part, serialized
from keras_transformers.layers.vision.patch_embedding import ToPatches

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
