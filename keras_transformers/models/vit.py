"""The Vision Transformer of Dosovitskiy et al. 2021."""

import re
from collections.abc import Sequence
from typing import Any, Literal, Self, Unpack

import keras
from keras import ops

from keras_transformers.annotations import Tensor
from keras_transformers.layers import AttentionPooling, EncoderBlock
from keras_transformers.models.image_model import ImageModelOptions, both_sides, drop_path_rates
from keras_transformers.models.settings import (
    check_choice,
    check_divides,
    check_sizes,
    keeps_settings,
)
from keras_transformers.models.vit_blocks import parts_of_blocks, serialized_block
from keras_transformers.models.vit_tokens import POSITIONS, STEMS, PatchTokens

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
# What these settings may be.
CHOICES = {
    "pooling": ("token", "mean", "attention"),
    "positions": (*POSITIONS, None),
    "stem": tuple(STEMS),
    "distillation": (None, "token", "head"),
}


@keras.saving.register_keras_serializable("keras_transformers")
class ViT(PatchTokens):
    """Vision Transformer (Dosovitskiy et al. 2021, https://arxiv.org/abs/2010.11929).

    `z_0 = [x_class; x_p^1 E; ...; x_p^N E] + E_pos`, `num_layers` pre-norm encoder blocks, then
    `y = LN(z_L^0)` and a linear head. With mean pooling, `y = LN(mean of the patches)`; with
    attention pooling, `y = AttentionPooling(LN(z_L))`. A batch of images of another size than
    `image_size` is taken too, its positions resized, also where only the call knows the size.

    Args:
        num_classes: Number of classes; None leaves the head out, and the model gives `y`.
        image_size: `(height, width)` in pixels, or an int for both; what the positions are made
            for.
        patch_size: Side of a patch; must divide `image_size`.
        hidden_dim: Width of every token (D).
        num_heads: Heads of every attention; must divide `hidden_dim`.
        mlp_dim: Width of the feed-forward networks.
        num_layers: Number of encoder blocks.
        pooling: "token", "mean" (over the patches) or "attention".
        class_token: Whether there is a class token; by default with "token" pooling only.
        positions: "learned", "sinusoidal", or None where the mixer knows positions itself.
        stem: What makes tokens: "patches" (`PatchEmbedding`), "shifted" (`ShiftedPatchEmbedding`)
            or "convolutional" (`ConvolutionalStem`).
        representation_dim: Width of a dense layer with tanh before the head (the paper's while
            pre-training), or None.
        distillation: None; "token" for a second token, after the class token, that has learned from
            a teacher; or "head" for that token with a head of its own, the logits being the mean of
            both (Touvron et al. 2021, "DeiT", https://arxiv.org/abs/2012.12877, section 4).
        dropout: Rate on embeddings and on every residual branch.
        drop_path: Rate of dropping a branch in the last block; the first has 0, those between lie
            on a line (Huang et al. 2016).
        norm_epsilon: Epsilon of all layer norms.
        block: Dict of further arguments of every `EncoderBlock`, `layer_scale`, `mixer`,
            `feed_forward` and `norm`, and of its default parts: `activation`, `attention_dropout`
            and `qkv_bias`.

    Call arguments:
        images: `(batch, height, width, channels)`, floating.
        training: Whether dropout acts.

    Returns:
        Logits `(batch, num_classes)`, or `(batch, hidden_dim)` without a head.

    Raises:
        ValueError: If a size is not positive, patches do not fill the image, `num_heads` does not
            divide `hidden_dim`, or a choice is unknown.

    Example:
    >>> import numpy as np
    >>> from keras_transformers.models import ViT
    >>> model = ViT(10, image_size=28, patch_size=7, hidden_dim=16, num_heads=2, mlp_dim=32,
    ...             num_layers=2)
    >>> tuple(model(np.zeros((3, 28, 28, 1), "float32")).shape)
    (3, 10)
    """

    anew = ("head", "representation", "attention_pooling", "position_embedding", "distillation")

    @keeps_settings(image_size=both_sides, block=serialized_block)
    def __init__(
        self,
        num_classes: int | None = 1000,
        image_size: int | Sequence[int] = 224,
        patch_size: int = 16,
        hidden_dim: int = 768,
        num_heads: int = 12,
        mlp_dim: int = 3072,
        num_layers: int = 12,
        pooling: Literal["token", "mean", "attention"] = "token",
        class_token: bool | None = None,
        positions: Literal["learned", "sinusoidal"] | None = "learned",
        stem: Literal["patches", "shifted", "convolutional"] = "patches",
        representation_dim: int | None = None,
        distillation: Literal["token", "head"] | None = None,
        dropout: float = 0.0,
        drop_path: float = 0.0,
        norm_epsilon: float = 1e-6,
        block: dict[str, Any] | None = None,
        **kwargs: Unpack[ImageModelOptions],
    ) -> None:
        super().__init__(**kwargs)
        if class_token is None:
            self._settle(class_token=pooling == "token")
        self._check_settings()
        self.pooling = pooling
        policy = self.dtype_policy
        self._make_tokens()
        self.encoder_blocks = [
            EncoderBlock(
                dropout=dropout,
                norm_first=True,
                drop_path=rate,
                name=f"encoder_{i}",
                dtype=policy,
                **parts_of_blocks(num_heads, mlp_dim, norm_epsilon, **(block or {})),
            )
            for i, rate in enumerate(drop_path_rates(drop_path, num_layers))
        ]
        self.norm = keras.layers.LayerNormalization(epsilon=norm_epsilon, name="norm", dtype=policy)
        self.attention_pooling: Any = None
        if pooling == "attention":
            self.attention_pooling = AttentionPooling(
                num_heads, mlp_dim, norm_epsilon, name="attention_pooling", dtype=policy
            )
        self._make_heads()

    def _make_heads(self) -> None:
        settings, policy = self._settings, self.dtype_policy
        self.representation: Any = None
        self.distillation_head: Any = None
        if settings["representation_dim"] is not None:
            self.representation = keras.layers.Dense(
                settings["representation_dim"], "tanh", name="representation", dtype=policy
            )
        self._make_head()
        if settings["distillation"] == "head":
            self.distillation_head = keras.layers.Dense(
                settings["num_classes"], name="distillation_head", dtype=policy
            )

    def _check_settings(self) -> None:
        settings = self._settings
        sizes = ["patch_size", "hidden_dim", "num_heads", "mlp_dim", "num_layers"]
        optional = ["num_classes", "representation_dim"]
        check_sizes("ViT", settings, sizes, optional)
        check_divides("ViT", settings, "num_heads", "hidden_dim")
        for name, known in CHOICES.items():
            check_choice("ViT", settings, name, known)
        if settings["pooling"] == "token" and not settings["class_token"]:
            raise ValueError('ViT: `pooling`="token" needs a class token. Received: False')
        with_head = settings["num_classes"] and not settings["representation_dim"]
        if settings["distillation"] and settings["pooling"] != "token":
            raise ValueError(
                'ViT: `distillation` needs `pooling`="token". '
                f"Received: pooling={settings['pooling']!r}"
            )
        if settings["distillation"] == "head" and not with_head:
            raise ValueError(
                'ViT: `distillation`="head" needs classes and no representation. Received: '
                f"num_classes={settings['num_classes']}, "
                f"representation_dim={settings['representation_dim']}"
            )

    @classmethod
    def from_variant(cls, name: str, num_classes: int | None = 1000, **changes: Any) -> Self:
        """A model of a published size with patches of any size.

        Parameters for 1,000 classes at 224 pixels: "Ti/16" 5.7 M, "S/16" 22.1 M, "B/16" 86.6 M,
        "L/16" 304 M, "H/14" 632 M.

        Args:
            name: "mini", "Ti", "S", "B", "L" or "H", a slash, and the side of a patch: "S/16".
            num_classes: Number of classes, or None.
            **changes: Any constructor argument, instead of the variant's.

        Raises:
            ValueError: If there is no such variant.
        """
        match = re.fullmatch(r"(\w+)/([1-9]\d*)", name)
        if not match or match[1] not in VARIANTS:
            raise ValueError(
                f"ViT.from_variant: `name` must be one of {', '.join(VARIANTS)}, a slash and the "
                f"patch size, for instance 'S/16'. Received: {name!r}"
            )
        variant = {**VARIANTS[match[1]], "patch_size": int(match[2])}
        return cls(num_classes, **{**variant, **changes})

    def build(self, images_shape: Any) -> None:
        self._start_building(images_shape)
        tokens = (None, None, self._settings["hidden_dim"])
        hidden = (None, self._settings["hidden_dim"])
        self._build_tokens(tokens)
        for block in self.encoder_blocks:
            block.build(tokens)
        self.norm.build(hidden if self.pooling == "mean" else tokens)
        if self.attention_pooling is not None:
            self.attention_pooling.build(tokens)
        for head in (self.representation, self.distillation_head):
            if head is not None:
                head.build(hidden)
        self._end_building()

    @property
    def _width(self) -> int:
        return self._settings["representation_dim"] or self._settings["hidden_dim"]

    def call(self, images: Tensor, training: bool | None = None) -> Tensor:
        if self.distillation_head is None:
            return super().call(images, training=training)
        y = self.norm(self.encode(images, training=training)[:, :2])
        return (self.head(y[:, 0]) + self.distillation_head(y[:, 1])) / 2

    def represent(self, images: Tensor, training: bool | None = None) -> Tensor:
        """What the head sees: `(batch, height, width, channels)` -> `(batch, hidden_dim)`."""
        x = self.encode(images, training=training)
        if self.pooling == "attention":
            y = self.attention_pooling(self.norm(x), training=training)
        elif self.pooling == "mean":
            y = self.norm(ops.mean(x[:, self.prefix_tokens :], axis=1))
        else:
            y = self.norm(x[:, 0])
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
        x = self._tokens(images, visible, training)
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
        if self.norm.built and self.pooling != "mean":
            x = self.norm(x)
        rows, columns = self.grid(ops.shape(images)[1:3])
        x = ops.reshape(x[:, self.prefix_tokens :], (-1, rows, columns, x.shape[-1]))
        return {f"stride_{self.patch_size}": x}

    def _first(self, blocks: int | None) -> list[keras.layers.Layer]:
        end = [self.norm] if blocks == len(self.encoder_blocks) else []
        return [*self._token_layers(), *self.encoder_blocks[:blocks], *end]
