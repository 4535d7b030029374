"""Masked autoencoders (He et al. 2022)."""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any, Self, Unpack

import keras
from keras import ops

from keras_transformers.core.types import Config, Index, LayerOptions, Part, Shape, Tensor
from keras_transformers.detection import of_images
from keras_transformers.layers import EncoderBlock, patchify, unpatchify
from keras_transformers.layers.base import frozen_like
from keras_transformers.layers.parts import Prototype, part, part_or_numbers, serialized
from keras_transformers.models.base import (
    BaseModel,
    Configuration,
    check_changes,
    check_divides,
    check_sizes,
    number_or_default,
)
from keras_transformers.models.image_model import check_images, check_images_shape
from keras_transformers.models.vit import POSITIONS, ViT, vit_block


class MAEKeywords(LayerOptions, total=False):
    """The keyword arguments of `MAE.from_variant`; see `MAE`."""

    decoder_dim: int
    decoder_heads: int | None
    decoder_mlp_dim: int | None
    decoder_layers: int
    mask_ratio: float
    normalize_patches: bool
    seed: int | None
    decoder_block: Part | None


def block_like(block: EncoderBlock, num_heads: int, mlp_dim: int) -> EncoderBlock:
    """A block of these sizes with activation, biases and norm like those of another."""
    network, mixer = block.given_feed_forward() or block, block.given_mixer() or block
    return vit_block(
        num_heads,
        mlp_dim,
        activation=getattr(network, "activation", "gelu"),
        qkv_bias=getattr(mixer, "use_bias", True) != "output",
        norm=block.copied_norm(block, "norm"),
    )


def check_mae(settings: Mapping[str, Any], encoder: ViT) -> None:
    """Raises ValueError unless the numbers are such, and the encoder ends with a norm."""
    after = {
        "num_classes": encoder.get_config()["num_classes"],
        "representation_dim": encoder.pooling.representation_dim,
        "frozen_blocks": encoder.frozen_blocks,
        "distillation_token": encoder.embedding.distillation_token,
        "attention_pooling": encoder.attention_pooling,
    }
    wrong = [f"{name}={value}" for name, value in after.items() if value is not None]
    if wrong:
        raise ValueError(
            "MAE: `encoder` must have no classes, representation, attention pooling, "
            f"distillation token or frozen blocks. Received: {', '.join(wrong)}"
        )
    check_sizes("MAE", settings, ["decoder_dim", "decoder_layers"])
    share = settings["mask_ratio"]
    if not 0 < share < 1:
        raise ValueError(f"MAE: `mask_ratio` must be in (0, 1). Received: {share}")


@dataclasses.dataclass(frozen=True)
class MAEConfiguration(Configuration):
    """The arguments of an `MAE` but for the encoder, which `get_config` adds."""

    decoder_dim: int
    decoder_heads: int | None
    decoder_mlp_dim: int | None
    decoder_layers: int
    mask_ratio: float
    normalize_patches: bool
    seed: int | None
    decoder_block: Config | None


@keras.saving.register_keras_serializable("keras_transformers")
class MAE(BaseModel):
    """Masked autoencoder (He et al. 2022, https://arxiv.org/abs/2111.06377).

    Most patches of an image are removed at random; a `ViT` encodes the others, and a small decoder,
    given them and mask tokens at the positions of the removed, all with position embeddings, draws
    the removed ones. The loss is the mean squared error on the removed patches, each patch
    normalised to mean 0 and variance 1. It is the model's own: `compile(optimizer)` and
    `fit(images)`.

    Afterwards `mae.encoder.transferred(num_classes=10, drop_path=0.1)` is a classifier to
    fine-tune, and `.freeze()` of it a linear probe.

    Args:
        encoder: A `ViT` without classes; the model makes its own copy.
        decoder_dim: Width of the decoder's tokens.
        decoder_heads: Heads of its attention; must divide `decoder_dim`. 16 unless there is a
            `decoder_block`.
        decoder_mlp_dim: Width of its feed-forward networks. `4 * decoder_dim` unless there is a
            `decoder_block`.
        decoder_layers: Number of its blocks.
        mask_ratio: Share of patches to remove, in (0, 1).
        normalize_patches: Whether patches are normalised before they are compared.
        seed: Optional integer for the choice of patches.
        decoder_block: What every block of the decoder is a copy of, in the place of `decoder_heads`
            and `decoder_mlp_dim`: an `EncoderBlock`. By numbers, activation, biases and norm are
            those of the encoder's.

    Call arguments:
        images: `(batch, height, width, channels)`, floating.
        training: Whether dropout acts.

    Returns:
        Dict of "patches", `(batch, patches, patch_size^2 channels)`, and "masked", bool
        `(batch, patches)`; True = removed.

    Raises:
        ValueError: If the encoder has classes or more than a norm after its blocks, a size is not
            positive, `mask_ratio` is not in (0, 1), or `decoder_heads` does not divide
            `decoder_dim`.

    Example:
    >>> import numpy as np
    >>> from keras_transformers.models import MAE, ViT
    >>> encoder = ViT(None, image_size=28, patch_size=7, hidden_dim=16, num_heads=2, mlp_dim=32,
    ...               num_layers=2)
    >>> mae = MAE(encoder, decoder_dim=8, decoder_heads=2, decoder_layers=1)
    >>> mae.compile("adam")
    >>> losses = mae.fit(np.zeros((8, 28, 28, 1), "float32"), verbose=0).history["loss"]
    >>> model = mae.encoder.transferred(num_classes=10)
    >>> tuple(model(np.zeros((3, 28, 28, 1), "float32")).shape)
    (3, 10)
    """

    variant_keywords = MAEKeywords.__annotations__

    configuration: MAEConfiguration

    def __init__(
        self,
        encoder: ViT | dict[str, Any],
        decoder_dim: int = 512,
        decoder_heads: int | None = None,
        decoder_mlp_dim: int | None = None,
        decoder_layers: int = 8,
        mask_ratio: float = 0.75,
        normalize_patches: bool = True,
        seed: int | None = None,
        decoder_block: Part | None = None,
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(**kwargs)
        config = MAEConfiguration(
            decoder_dim=decoder_dim,
            decoder_heads=number_or_default(decoder_heads, 16, decoder_block),
            decoder_mlp_dim=decoder_mlp_dim,
            decoder_layers=decoder_layers,
            mask_ratio=mask_ratio,
            normalize_patches=normalize_patches,
            seed=seed,
            decoder_block=serialized(decoder_block),
        )
        self.encoder = part(self, "encoder", encoder, ViT)
        check_mae(vars(config), self.encoder)
        mlp_dim = number_or_default(config.decoder_mlp_dim, 4 * config.decoder_dim, decoder_block)
        self.configuration = dataclasses.replace(config, decoder_mlp_dim=mlp_dim)
        self.seed_generator = keras.random.SeedGenerator(seed)
        policy, embedding = self.dtype_policy, self.encoder.embedding
        self.decoder_embedding = keras.layers.Dense(
            decoder_dim, name="decoder_embedding", dtype=policy
        )
        grid = self.encoder.grid(self.encoder.get_config()["image_size"])
        self.decoder_positions = POSITIONS[embedding.positions or "sinusoidal"](
            grid, self.encoder.prefix_tokens, name="decoder_positions", dtype=policy
        )
        block = self._make_block(decoder_block)
        self.decoder_blocks = [block.copy(self, f"decoder_{i}", i) for i in range(decoder_layers)]
        self.decoder_norm = block.layer.copied_norm(self, "decoder_norm")

    def _make_block(self, block: Part | None) -> Prototype:
        """Returns the prototype of the decoder's blocks: the one given, or that of the numbers."""
        config = self.configuration
        heads, mlp_dim = config.decoder_heads, config.decoder_mlp_dim
        numbers: dict[str, Any] = {"decoder_heads": heads, "decoder_mlp_dim": mlp_dim}
        prototype = part_or_numbers(self, "decoder_block", block, EncoderBlock, **numbers)
        if prototype is not None:
            return prototype
        check_sizes(type(self).__name__, numbers, tuple(numbers))
        check_divides("MAE", vars(config), "decoder_heads", "decoder_dim")
        new = block_like(self.encoder.block.layer, *numbers.values())
        return Prototype(self, "decoder_block", new, EncoderBlock)

    @classmethod
    def from_variant(
        cls, name: str, /, image_size: int | Sequence[int] = 224, **changes: Unpack[MAEKeywords]
    ) -> Self:
        """A model whose encoder has a published size, with the paper's decoder.

        Args:
            name: As for `ViT.from_variant`: "B/16".
            image_size: Of the encoder.
            **changes: Constructor arguments of `MAE`, but for the encoder.

        Raises:
            ValueError: If there is no such variant or keyword.
        """
        check_changes("MAE", changes, MAEKeywords)
        encoder = ViT.from_variant(name, None, image_size=image_size, positions="sinusoidal")
        return cls(encoder, **changes)

    def build(self, images_shape: Any) -> None:
        check_images_shape(self, images_shape)
        self.channels = images_shape[-1]
        self.encoder.build(images_shape)
        width = self.configuration.decoder_dim
        tokens = (None, None, width)
        self.decoder_embedding.build((None, None, self.encoder.embedding.hidden_dim))
        self.mask_token = self.add_weight(
            name="mask_token", shape=(1, 1, width), initializer="truncated_normal"
        )
        for layer in (self.decoder_positions, *self.decoder_blocks, self.decoder_norm):
            layer.build(tokens)
        prediction = keras.layers.Dense(
            self.encoder.patch_size**2 * images_shape[-1],
            name="prediction",
            dtype=self.dtype_policy,
        )
        self.prediction = frozen_like(self, prediction)
        self.prediction.build(tokens)

    def call(self, images: Tensor, training: bool | None = None) -> dict[str, Tensor]:
        check_images(self, images, self.channels)
        batch, patches = ops.shape(images)[0], self._patches(images)
        noise = keras.random.uniform((batch, patches), seed=self.seed_generator)
        return self.reconstruct(images, noise, training=training)

    def reconstruct(
        self, images: Tensor, noise: Tensor, training: bool | None = None
    ) -> dict[str, Tensor]:
        """A call whose patches are chosen by the caller.

        Args:
            images: `(batch, height, width, channels)`.
            noise: `(batch, patches)`, floating; those with the least are kept.
            training: Whether dropout acts.

        Returns:
            As for a call.
        """
        patches = self._patches(images)
        kept = self._kept(patches)
        order = ops.argsort(noise, axis=1)
        rank = ops.argsort(order, axis=1)  # of each patch
        x = self.encoder.encode(images, training=training, visible=order[:, :kept])
        x = self.decoder_embedding(self.encoder.norm(x))
        prefix = self.encoder.prefix_tokens
        hidden = ops.broadcast_to(
            ops.cast(self.mask_token, x.dtype), (ops.shape(x)[0], patches - kept, x.shape[-1])
        )
        seen = ops.concatenate([x[:, prefix:], hidden], axis=1)
        seen = ops.take_along_axis(seen, rank[:, :, None], axis=1)
        x = ops.concatenate([x[:, :prefix], seen], axis=1) if prefix else seen
        x = self.decoder_positions(x, grid=self.encoder.grid(ops.shape(images)[1:3]))
        for block in self.decoder_blocks:
            x = block(x, training=training)
        predicted = self.prediction(self.decoder_norm(x))[:, prefix:]
        return {"patches": predicted, "masked": rank >= kept}

    def _patches(self, images: Tensor) -> Index:
        rows, columns = self.encoder.grid(ops.shape(images)[1:3])
        return rows * columns

    def _kept(self, patches: Index) -> Index:
        share = 1 - self.configuration.mask_ratio
        if isinstance(patches, int):
            return int(patches * share)
        return ops.cast(ops.cast(patches, "float64") * share, "int32")  # known in the call

    def compute_output_shape(self, images_shape: Any) -> dict[str, Shape]:
        batch, *sides, channels = images_shape
        patches = None if None in sides else math.prod(self.encoder.grid(sides))
        values = self.encoder.patch_size**2 * channels
        return {"patches": (batch, patches, values), "masked": (batch, patches)}

    def compute_output_spec(
        self, images: Tensor, training: bool | None = None
    ) -> dict[str, keras.KerasTensor]:
        check_images(self, images, self.channels)
        dtypes = {"patches": self.compute_dtype, "masked": "bool"}
        shapes = self.compute_output_shape(images.shape)
        return {name: keras.KerasTensor(shapes[name], dtype) for name, dtype in dtypes.items()}

    def compute_loss(
        self,
        x: Any = None,
        y: Any = None,
        y_pred: Any = None,
        sample_weight: Any = None,
        training: bool = True,
    ) -> Tensor:
        """Mean squared error on the removed patches; Keras calls it.

        `sample_weight`, `(batch,)`, multiplies the errors of each image; what they are divided by
        stays, as in Keras's losses.
        """
        target, _, _ = self._targets(x)
        error = ops.mean(ops.square(ops.cast(y_pred["patches"], "float32") - target), axis=-1)
        masked = ops.cast(y_pred["masked"], "float32")
        if sample_weight is not None:
            error = error * of_images(sample_weight, "MAE")[:, None]
        return ops.sum(error * masked) / ops.sum(masked)

    def _targets(self, images: Tensor) -> tuple[Any, Any, Any]:
        """Returns the target patches, float32, and the mean and deviation taken out of each."""
        target = patchify(ops.cast(images, "float32"), self.encoder.patch_size)
        if not self.configuration.normalize_patches:
            return target, 0.0, 1.0
        values = target.shape[-1]
        mean = ops.mean(target, axis=-1, keepdims=True)
        variance = ops.sum(ops.square(target - mean), axis=-1, keepdims=True) / (values - 1)
        deviation = ops.sqrt(variance + 1e-6)
        return (target - mean) / deviation, mean, deviation

    def draw(self, images: Tensor, found: dict[str, Tensor]) -> Tensor:
        """Images of what a call found: what was removed as the model draws it, the rest as it was.

        Args:
            images: `(batch, height, width, channels)`.
            found: What a call gave for them.

        Returns:
            `(batch, height, width, channels)`, float32. Where patches are normalised, each drawn
            one has the mean and deviation of the original.
        """
        _, mean, deviation = self._targets(images)
        drawn = ops.cast(found["patches"], "float32") * deviation + mean
        original = patchify(ops.cast(images, "float32"), self.encoder.patch_size)
        patches = ops.where(found["masked"][:, :, None], drawn, original)
        grid = self.encoder.grid(ops.shape(images)[1:3])
        return unpatchify(patches, self.encoder.patch_size, grid)

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "encoder": keras.saving.serialize_keras_object(self.encoder),
        }
