"""SigLIP (Zhai et al. 2023)."""

from collections.abc import Mapping
from typing import Any

from keras_transformers.layers import AttentionPooling, PatchEmbedding, SelfAttention
from keras_transformers.models import DualEncoder, ImageEmbedding, LastPooling, TextEncoder, ViT
from keras_transformers.pretrained.configuration import (
    Combined,
    Configuration,
    Setting,
    natural,
    size,
)
from keras_transformers.pretrained.dual_encoder_parts import (
    LAYERS,
    SIZES,
    DualConfiguration,
    built,
    check_like,
    encoder_mappings,
    encoder_settings,
    encoders_of,
    image_encoder,
    image_numbers,
    image_settings,
    table_mappings,
    text_block,
    text_encoder,
    text_numbers,
    text_settings,
)
from keras_transformers.pretrained.family import Family, Weights
from keras_transformers.pretrained.parts import refused
from keras_transformers.pretrained.tensor_layouts import (
    FLAT,
    LINEAR,
    OUTPUT,
    AsIs,
    FusedPart,
    PatchConvolution,
)
from keras_transformers.pretrained.weight_mapping import Mappings, WeightMapping, linear, norm

HEAD = "vision_model.head"


def _read_sides(config: dict[str, Any]) -> list[int]:
    """What of an image is in whole patches: the published convolution passes over the rest."""
    side, patch = config["image_size"], config["patch_size"]
    if side < patch:
        raise ValueError(f"`image_size` must be at least `patch_size`={patch}. Received: {side}")
    return [side // patch * patch] * 2


def _texts(found: Mapping[str, Any]) -> TextEncoder:
    return text_encoder(found, text_block(SelfAttention, found), LastPooling(found["units"]))


def _pooling(found: Mapping[str, Any]) -> AttentionPooling:
    numbers = (found[name] for name in ("num_heads", "mlp_dim", "norm_epsilon", "activation"))
    return AttentionPooling(*numbers)


def _images(found: Mapping[str, Any]) -> ViT:
    patches = PatchEmbedding(found["patch_size"], found["hidden_dim"])
    embedding = ImageEmbedding(patches, class_token=False, antialias=False)
    return image_encoder(found, found["whole_size"], embedding, pooling=_pooling(found))


def _make(arguments: dict[str, Any]) -> Any:
    images, texts = arguments["image_encoder"], arguments["text_encoder"]
    model = DualEncoder(_images(images), _texts(texts), sigmoid=True, fill_id=texts["fill_id"])
    return built(model, images)


def _arguments(model: DualEncoder) -> dict[str, Any]:
    images, texts = encoders_of(model, LastPooling)
    of_texts = {**text_numbers(texts), "units": texts.head.units, "fill_id": model.fill_id}
    if model.fill_id is None:
        raise refused(model, "fill_id=None", "of texts that are filled, by a `fill_id`")
    of_images = image_numbers(images)
    of_images |= {"whole_size": of_images["image_size"], "image_size": list(model.image_size)}
    parts = {"embedding": lambda each: each.embedding}
    check_like(texts, _texts({**of_texts, "num_layers": 1}), parts)
    parts["pooling"] = lambda each: each.attention_pooling
    check_like(images, _images({**of_images, "num_layers": 1}), parts)
    own = {name: getattr(model, name) for name in ("projection_dim", "sigmoid")}
    return {**own, "text_encoder": of_texts, "image_encoder": of_images}


def _pooling_mappings(ours: str) -> Mappings:
    """The mappings of the attention that pools, whose projections lie in one tensor."""
    mappings: Mappings = [WeightMapping(f"{ours}/query_token", f"{HEAD}.probe")]
    for number, name in enumerate(("query", "key", "value")):
        for weight, theirs, layout in (("kernel", "weight", LINEAR), ("bias", "bias", FLAT)):
            fused = FusedPart(number, layout, axis=0)
            path = f"{ours}/attention/{name}/{weight}"
            mappings.append(WeightMapping(path, f"{HEAD}.attention.in_proj_{theirs}", fused))
    output = f"{ours}/attention/attention_output"
    return [
        *mappings,
        WeightMapping(f"{output}/kernel", f"{HEAD}.attention.out_proj.weight", OUTPUT),
        WeightMapping(f"{output}/bias", f"{HEAD}.attention.out_proj.bias"),
        *norm(f"{ours}/norm", f"{HEAD}.layernorm"),
        *linear(f"{ours}/feed_forward/hidden", f"{HEAD}.mlp.fc1"),
        *linear(f"{ours}/feed_forward/output", f"{HEAD}.mlp.fc2"),
    ]


def _mappings(model: Any) -> Mappings:
    patches = "image_encoder/embedding/patch_embedding/projection"
    theirs = "vision_model.embeddings.patch_embedding"
    layout = PatchConvolution(model.image_encoder.patch_size)
    return [
        *table_mappings(),
        *encoder_mappings("text_encoder", "text_model"),
        *encoder_mappings("image_encoder", "vision_model"),
        WeightMapping(f"{patches}/kernel", f"{theirs}.weight", layout),
        WeightMapping(f"{patches}/bias", f"{theirs}.bias"),
        *_pooling_mappings("image_encoder/attention_pooling"),
        *linear("text_encoder/head/projection", "text_model.head"),
        WeightMapping("logit_scale", "logit_scale", AsIs(lead=1)),
        WeightMapping("logit_bias", "logit_bias", AsIs(lead=1)),
    ]


ACTIVATION = "gelu_pytorch_tanh"
SIGLIP = Family(
    configuration=DualConfiguration(
        name="siglip",
        settings=(),
        fixed={"sigmoid": True, "projection_dim": None},
        text=Configuration(
            name="siglip_text_model",
            settings=(
                *encoder_settings(768, 3072, 12, ACTIVATION, 1e-6),
                *text_settings(32000, 64),
                size("projection_size", "units", lambda config: config.get("hidden_size", 768)),
                # What the published tokenizer fills texts with, all of which the encoder sees.
                Setting("pad_token_id", "fill_id", 1, natural),
            ),
        ),
        image=Configuration(
            name="siglip_vision_model",
            settings=(*encoder_settings(768, 3072, 12, ACTIVATION, 1e-6), *image_settings(16)),
            combined=(Combined("whole_size", (), _read_sides, lambda found: {}),),
            settled={"vision_use_head": (True,)},
        ),
    ),
    weights=Weights(
        mappings=_mappings,
        sizes=SIZES
        | {"text_model.head.weight": ("text_config.projection_size", "text_config.hidden_size")},
        layers=LAYERS,
    ),
    model=DualEncoder,
    architectures={"SiglipModel": {}},
    tasks={"zero_shot_classification": "SiglipModel"},
    make=_make,
    arguments=_arguments,
)
