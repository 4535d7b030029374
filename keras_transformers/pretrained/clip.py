"""CLIP (Radford et al. 2021)."""

from collections.abc import Mapping
from typing import Any

from keras_transformers.layers import CausalSelfAttention, PatchEmbedding
from keras_transformers.models import DualEncoder, EndPooling, ImageEmbedding, TextEncoder, ViT
from keras_transformers.pretrained.configuration import (
    Configuration,
    Setting,
    natural,
    positive,
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
    layer_norm,
    table_mappings,
    text_block,
    text_encoder,
    text_numbers,
    text_settings,
)
from keras_transformers.pretrained.family import Family, Weights
from keras_transformers.pretrained.tensor_layouts import FLAT, PatchConvolution
from keras_transformers.pretrained.weight_mapping import Mappings, WeightMapping, linear, norm

OF_THE_FIRST = 2  # as END in files of before 2023, when the greatest id was taken


def _read_end(value: Any) -> int | None:
    end_id = natural(value)
    return None if end_id == OF_THE_FIRST else end_id


def _write_end(end_id: int | None) -> int:
    if end_id == OF_THE_FIRST:
        raise ValueError(f"another id than {OF_THE_FIRST}, which stands for the greatest of a text")
    return OF_THE_FIRST if end_id is None else end_id


def _texts(found: Mapping[str, Any]) -> TextEncoder:
    return text_encoder(found, text_block(CausalSelfAttention, found), EndPooling(found["end_id"]))


def _images(found: Mapping[str, Any]) -> ViT:
    embedding = ImageEmbedding(
        PatchEmbedding(found["patch_size"], found["hidden_dim"], use_bias=False),
        antialias=False,
        norm=layer_norm(found["norm_epsilon"]),
    )
    return image_encoder(found, found["image_size"], embedding)


def _make(arguments: dict[str, Any]) -> Any:
    images, texts = arguments["image_encoder"], arguments["text_encoder"]
    model = DualEncoder(_images(images), _texts(texts), arguments["projection_dim"])
    return built(model, images)


def _arguments(model: DualEncoder) -> dict[str, Any]:
    images, texts = encoders_of(model, EndPooling)
    of_texts = {**text_numbers(texts), "end_id": texts.head.end_id}
    of_images = image_numbers(images)
    embedding = {"embedding": lambda each: each.embedding}
    check_like(texts, _texts({**of_texts, "num_layers": 1}), embedding)
    pooling = {"pooling": lambda each: each.pooling.get_config()}
    check_like(images, _images({**of_images, "num_layers": 1}), embedding | pooling)
    own = {name: getattr(model, name) for name in ("projection_dim", "sigmoid", "fill_id")}
    return {**own, "text_encoder": of_texts, "image_encoder": of_images}


def _mappings(model: Any) -> Mappings:
    images, theirs = "image_encoder/embedding", "vision_model.embeddings"
    return [
        *table_mappings(),
        *encoder_mappings("text_encoder", "text_model"),
        *encoder_mappings("image_encoder", "vision_model"),
        WeightMapping(
            f"{images}/patch_embedding/projection/kernel",
            f"{theirs}.patch_embedding.weight",
            PatchConvolution(model.image_encoder.patch_size),
        ),
        WeightMapping(f"{images}/class_token/class_token", f"{theirs}.class_embedding", FLAT),
        *norm(f"{images}/norm", "vision_model.pre_layrnorm"),  # as its code spells it
        *linear("image_projection", "visual_projection", bias=False),
        *linear("text_projection", "text_projection", bias=False),
        WeightMapping("logit_scale", "logit_scale"),
    ]


# Of the encoders used alone; and of older files, which nothing reads any more.
WITHOUT_EFFECT = frozenset({"projection_dim", "dropout"})
CLIP = Family(
    configuration=DualConfiguration(
        name="clip",
        settings=(size("projection_dim", "projection_dim", 512, write=positive),),
        fixed={"sigmoid": False, "fill_id": None},
        without_effect=frozenset({"logit_scale_init_value"}),  # the file has what became of it
        text=Configuration(
            name="clip_text_model",
            settings=(
                *encoder_settings(512, 2048, 8, "quick_gelu", 1e-5),
                *text_settings(49408, 77),
                Setting("eos_token_id", "end_id", 49407, _read_end, _write_end),
            ),
            without_effect=WITHOUT_EFFECT,
        ),
        image=Configuration(
            name="clip_vision_model",
            settings=(*encoder_settings(768, 3072, 12, "quick_gelu", 1e-5), *image_settings(32)),
            without_effect=WITHOUT_EFFECT,
        ),
        replaced=True,
    ),
    weights=Weights(
        mappings=_mappings,
        sizes=SIZES
        | {
            "visual_projection.weight": ("projection_dim", "vision_config.hidden_size"),
            "text_projection.weight": ("projection_dim", "text_config.hidden_size"),
        },
        layers=LAYERS,
    ),
    model=DualEncoder,
    architectures={"CLIPModel": {}},
    tasks={"zero_shot_classification": "CLIPModel"},
    make=_make,
    arguments=_arguments,
)
