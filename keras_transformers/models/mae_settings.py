"""The settings of a masked autoencoder: keywords, checks, and the blocks that numbers make."""

from collections.abc import Mapping
from typing import Any

from keras_transformers.annotations import LayerOptions, Part
from keras_transformers.layers import EncoderBlock
from keras_transformers.models.settings import check_sizes
from keras_transformers.models.vit import ViT
from keras_transformers.models.vit_variants import vit_block


class MAEKeywords(LayerOptions, total=False):
    """What `MAE.from_variant` takes by name; see `MAE`."""

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
    network, mixer = (block.given_part(name) or block for name in ("feed_forward", "mixer"))
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
