"""Masked autoencoders (He et al. 2022)."""

from typing import Any

from keras_transformers.models import MAE, ViT
from keras_transformers.models.mae_settings import block_like
from keras_transformers.pretrained.configuration import Configuration, Setting, number, size
from keras_transformers.pretrained.family import Family, Weights
from keras_transformers.pretrained.module_names import MODULES_OF_VIT
from keras_transformers.pretrained.tensor_layouts import AsIs
from keras_transformers.pretrained.vit import (
    FIXED,
    OF_VIT,
    SETTLED,
    WITHOUT_EFFECT,
    arguments_of_vit,
    check_block,
    embedding_mappings,
    encoder_mappings,
    keywords_of_block,
    sizes,
)
from keras_transformers.pretrained.weight_mapping import (
    Mappings,
    WeightMapping,
    also_called,
    inside,
    linear,
    norm,
)

DECODER = ("decoder_dim", "decoder_heads", "decoder_mlp_dim", "decoder_layers")
DECODER += ("mask_ratio", "normalize_patches")
LAYERS = "decoder.decoder_layers."
LAYERS_OF_TRANSFORMERS_5 = "decoder.decoder_encoder.layer."  # as its `save_pretrained` writes them


def _mappings(model: Any) -> Mappings:
    of_encoder = [
        *embedding_mappings("encoder/", "vit.embeddings", model.encoder.patch_size),
        *encoder_mappings("encoder/encoder_{i}", "vit.encoder.layer.{i}"),
        *norm("encoder/norm", "vit.layernorm"),
    ]
    return [
        *inside(of_encoder, "encoder/", model.encoder),
        WeightMapping("mask_token", "decoder.mask_token"),
        WeightMapping(
            "decoder_positions/position_embedding", "decoder.decoder_pos_embed", AsIs(lead=1)
        ),
        *linear("decoder_embedding", "decoder.decoder_embed"),
        *also_called(
            encoder_mappings("decoder_{i}", f"{LAYERS}{{i}}"), LAYERS, LAYERS_OF_TRANSFORMERS_5
        ),
        *norm("decoder_norm", "decoder.decoder_norm"),
        *linear("prediction", "decoder.decoder_pred"),
    ]


def _make(arguments: dict[str, Any]) -> Any:
    arguments = dict(arguments)
    decoder = {name: arguments.pop(name) for name in DECODER}
    channels = arguments.pop("channels")
    model = MAE(ViT.from_variant("B/16", None, name="encoder", **arguments), **decoder)
    model.build((None, *arguments["image_size"], channels))
    return model


def _arguments(model: Any) -> dict[str, Any]:
    settings, block = model.get_config(), model.decoder_blocks[0]
    sizes = {name: keywords_of_block(block)[name] for name in ("num_heads", "mlp_dim")}
    check_block(model, block, block_like(model.encoder.block.layer, **sizes))
    of_block = {f"decoder_{name.removeprefix('num_')}": size for name, size in sizes.items()}
    numbers = {name: settings[name] for name in DECODER}
    return {**arguments_of_vit(model.encoder), **numbers, **of_block}


VIT_MAE_CONFIGURATION = Configuration(
    name="vit_mae",
    settings=(
        *OF_VIT,
        size("decoder_hidden_size", "decoder_dim", 512),
        size("decoder_num_hidden_layers", "decoder_layers", 8),
        size("decoder_num_attention_heads", "decoder_heads", 16),
        size("decoder_intermediate_size", "decoder_mlp_dim", 2048),
        number("mask_ratio", "mask_ratio", 0.75),
        Setting("norm_pix_loss", "normalize_patches", False, bool),
    ),
    # Their positions are a table in the file, sines and cosines in an order of their own.
    fixed={**FIXED, "distillation": None},
    settled=SETTLED,
    without_effect=WITHOUT_EFFECT,
)
VIT_MAE_WEIGHTS = Weights(
    mappings=_mappings,
    sizes=sizes("vit"),
    layers={
        "num_hidden_layers": "vit.encoder.layer.",
        "decoder_num_hidden_layers": (LAYERS, LAYERS_OF_TRANSFORMERS_5),
    },
    modules=MODULES_OF_VIT,
)
VIT_MAE = Family(
    configuration=VIT_MAE_CONFIGURATION,
    weights=VIT_MAE_WEIGHTS,
    model=MAE,
    architectures={"ViTMAEForPreTraining": {}},
    tasks={"reconstruction": "ViTMAEForPreTraining"},
    make=_make,
    arguments=_arguments,
)
