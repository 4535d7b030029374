"""From images to the tokens that a Vision Transformer's blocks are given."""

from typing import Any

import keras
from keras import ops

from keras_transformers.annotations import Shape, Tensor
from keras_transformers.layers import (
    ClassToken,
    ConvolutionalStem,
    Dropout,
    GridPositionEmbedding,
    PatchEmbedding,
    ShiftedPatchEmbedding,
    SinusoidalGrid,
)
from keras_transformers.models.image_model import ImageModel

STEMS = {
    "patches": PatchEmbedding,
    "shifted": ShiftedPatchEmbedding,
    "convolutional": ConvolutionalStem,
}
POSITIONS = {"learned": GridPositionEmbedding, "sinusoidal": SinusoidalGrid}


class PatchTokens(ImageModel):
    """Patches, class and distillation tokens before them, positions and dropout; `ViT` has them.

    Their settings are `ViT`'s: `image_size`, `patch_size`, `hidden_dim`, `class_token`,
    `positions`, `stem`, `distillation` and `dropout`.
    """

    def _make_tokens(self) -> None:
        settings, policy = self._settings, self.dtype_policy
        self.patch_size = settings["patch_size"]
        self.has_class_token = settings["class_token"]
        grid = self.grid(settings["image_size"])
        self.patch_embedding = STEMS[settings["stem"]](
            self.patch_size, settings["hidden_dim"], name="patch_embedding", dtype=policy
        )
        self.class_token = self.distillation_token = None
        if self.has_class_token:
            self.class_token = ClassToken(name="class_token", dtype=policy)
        if settings["distillation"] is not None:
            self.distillation_token = ClassToken(name="distillation_token", dtype=policy)
        self.prefix_tokens = self.has_class_token + (self.distillation_token is not None)
        self.position_embedding = None
        if settings["positions"] is not None:
            self.position_embedding = POSITIONS[settings["positions"]](
                grid, self.prefix_tokens, name="position_embedding", dtype=policy
            )
        self.dropout_layer = Dropout(settings["dropout"], dtype=policy)

    def _build_tokens(self, tokens_shape: Shape) -> None:
        """Builds the layers for `self.channels` and tokens `(batch, tokens, hidden_dim)`."""
        image_size = self._settings["image_size"]
        self.patch_embedding.build((None, *image_size, self.channels))
        for layer in (*self._token_layers()[1:], self.dropout_layer):
            layer.build(tokens_shape)

    def _token_layers(self) -> list[keras.layers.Layer]:
        """The layers with weights, the patch embedding first."""
        layers = (self.patch_embedding, self.class_token, self.distillation_token)
        return [each for each in (*layers, self.position_embedding) if each is not None]

    def grid(self, image_size: tuple[int, int]) -> tuple[int, int]:
        """`(rows, columns)` of patches in an image of `(height, width)`.

        A side that only the call knows is a scalar tensor; `PatchEmbedding` checks it there.
        """
        known = [side for side in image_size if isinstance(side, int | None)]
        if len(image_size) != 2 or any(
            side is None or side < self.patch_size or side % self.patch_size for side in known
        ):
            raise ValueError(
                f"ViT '{self.name}': height and width of an image must be multiples of "
                f"`patch_size`={self.patch_size}; resize or pad it. Received: {tuple(image_size)}"
            )
        return tuple(side // self.patch_size for side in image_size)

    def _check_images(self, images: Any) -> None:
        super()._check_images(images)
        if None not in images.shape[1:3]:
            self.grid(images.shape[1:3])

    def _tokens(
        self, images: Tensor, visible: Tensor | None = None, training: bool | None = None
    ) -> Tensor:
        """What the first block is given: `(batch, tokens, hidden_dim)`; see `ViT.encode`."""
        self._check_images(images)
        grid = self.grid(ops.shape(images)[1:3])
        x = self.patch_embedding(images)  # (batch, patches, hidden_dim)
        for token in (self.distillation_token, self.class_token):
            x = x if token is None else token(x)  # one token more
        if self.position_embedding is not None:
            x = self.position_embedding(x, grid=grid)
        if visible is not None:
            prefix = self.prefix_tokens
            patches = ops.take_along_axis(x[:, prefix:], visible[:, :, None], axis=1)
            x = ops.concatenate([x[:, :prefix], patches], axis=1) if prefix else patches
        return self.dropout_layer(x, training=training)
