"""CLIP (Radford et al. 2021) and SigLIP (Zhai et al. 2023)."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import keras

from keras_transformers.layers import (
    AttentionPooling,
    CausalSelfAttention,
    EncoderBlock,
    FeedForward,
    PatchEmbedding,
    SelfAttention,
)
from keras_transformers.models import (
    DualEncoder,
    EndPooling,
    ImageEmbedding,
    LastPooling,
    TextEmbedding,
    TextEncoder,
    ViT,
)
from keras_transformers.models.vit import vit_block
from keras_transformers.pretrained.family import (
    Combined,
    Configuration,
    Family,
    Setting,
    Weights,
    activation,
    natural,
    number,
    positive,
    read_block,
    size,
)
from keras_transformers.pretrained.vit import image_shape
from keras_transformers.pretrained.weight_mapping import (
    FLAT,
    LINEAR,
    OUTPUT,
    AsIs,
    FusedPart,
    Mappings,
    PatchConvolution,
    WeightMapping,
    attention,
    linear,
    norm,
)

TEXT, IMAGE = "text_config", "vision_config"
OURS = {TEXT: "text_encoder", IMAGE: "image_encoder"}


@dataclasses.dataclass(frozen=True, kw_only=True)
class DualConfiguration(Configuration):
    """The `config.json` of a model with two encoders, each with a configuration inside it.

    Args:
        text, image: Those of the encoders.
        replaced: Whether `text_config_dict`, which the first files have, stands in the place of
            `text_config`, and `vision_config_dict` likewise.
    """

    text: Configuration
    image: Configuration
    replaced: bool = False

    @property
    def _inner(self) -> dict[str, Configuration]:
        return {TEXT: self.text, IMAGE: self.image}

    @property
    def known(self) -> set[str]:
        """Every published setting, of the encoders too."""
        first = {f"{name}_dict" for name in OURS if self.replaced}
        return super().known | self.text.known | self.image.known | OURS.keys() | first

    def read(self, config: dict[str, Any], where: Any) -> dict[str, Any]:
        """Returns our arguments, with a dict of those of each encoder."""
        arguments = super().read(config, where)
        for name, inner in self._inner.items():
            settings = self._inner_config(config, name)
            if not isinstance(settings, dict):
                raise ValueError(f"{where}: `{name}` must be a dict. Received: {settings!r:.200}")
            arguments[OURS[name]] = inner.read(settings, f"{where}: in `{name}`")
        return arguments

    def _inner_config(self, config: Mapping[str, Any], name: str) -> Any:
        """Returns the configuration of an encoder; empty if it has nothing but defaults."""
        first = config.get(f"{name}_dict") if self.replaced else None
        return (config.get(name) or {}) if first is None else first

    def extent(self, config: dict[str, Any], setting: Any) -> Any:
        """Returns the value of a setting; "text_config.hidden_size" is one of an encoder."""
        name, dot, rest = setting.partition(".") if isinstance(setting, str) else ("", "", "")
        if dot:
            return self._inner[name].extent(self._inner_config(config, name), rest)
        return super().extent(config, setting)

    def write(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Returns the published configuration for our arguments."""
        config = super().write(arguments)
        return config | {k: v.write(arguments[OURS[k]]) for k, v in self._inner.items()}


def read_square(value: Any) -> list[int]:
    """`[side, side]` of an image; the published code computes with one number."""
    return [positive(value)] * 2


def write_square(sides: list[int]) -> int:
    """One number for a square."""
    if sides[0] != sides[1]:
        raise ValueError("two equal sides")
    return sides[0]


def encoder_settings(
    hidden_dim: int, mlp_dim: int, num_heads: int, hidden_act: str, norm_epsilon: float
) -> tuple[Setting, ...]:
    """The settings that both encoders have, with what they are where nothing is said."""
    return (
        size("hidden_size", "hidden_dim", hidden_dim),
        size("intermediate_size", "mlp_dim", mlp_dim),
        size("num_hidden_layers", "num_layers", 12),
        size("num_attention_heads", "num_heads", num_heads),
        activation("hidden_act", "activation", hidden_act),
        number("attention_dropout", "attention_dropout", 0.0),
        number("layer_norm_eps", "norm_epsilon", norm_epsilon),
    )


def text_settings(vocab_size: int, max_length: int) -> tuple[Setting, ...]:
    """The settings that the text encoder alone has."""
    return (
        size("vocab_size", "vocab_size", vocab_size),
        size("max_position_embeddings", "max_length", max_length),
    )


def image_settings(patch_size: int) -> tuple[Setting, ...]:
    """The settings that the image encoder alone has."""
    return (
        Setting("image_size", "image_size", 224, read_square, write_square),
        size("patch_size", "patch_size", patch_size),
        size("num_channels", "channels", 3),
    )


def text_encoder(
    arguments: Mapping[str, Any], attention: type[SelfAttention], head: keras.layers.Layer
) -> TextEncoder:
    """Makes the text encoder, which has no id for padding.

    Args:
        arguments: Flat arguments.
        attention: Class of the attention.
        head: The layer that makes one vector of a text.
    """
    block = EncoderBlock(
        norm_first=True,
        mixer=attention(arguments["num_heads"], dropout=arguments["attention_dropout"]),
        feed_forward=FeedForward(arguments["mlp_dim"], arguments["activation"]),
        norm=keras.layers.LayerNormalization(epsilon=arguments["norm_epsilon"]),
    )
    sizes = {name: arguments[name] for name in ("vocab_size", "hidden_dim", "max_length")}
    return TextEncoder(
        num_layers=arguments["num_layers"],
        dropout=0.0,
        block=block,
        embedding=TextEmbedding(**sizes, padding_id=-1),
        head=head,
    )


def image_encoder(
    arguments: Mapping[str, Any], image_size: list[int], embedding: ImageEmbedding, **parts: Any
) -> ViT:
    """Makes the image encoder.

    Args:
        arguments: Flat arguments.
        image_size: Height and width of its images.
        embedding: The layer that makes tokens of an image.
        **parts: Further arguments of `ViT`.
    """
    block = vit_block(
        arguments["num_heads"],
        arguments["mlp_dim"],
        arguments["norm_epsilon"],
        arguments["activation"],
        arguments["attention_dropout"],
    )
    depth = arguments["num_layers"]
    return ViT(None, image_size, num_layers=depth, block=block, embedding=embedding, **parts)


def dual_shape(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the shape that a model is built for."""
    return {"images": image_shape(arguments["image_encoder"]), "ids": (None, None)}


def read_encoder(model: TextEncoder | ViT) -> dict[str, Any]:
    """Returns the arguments that `encoder_settings` write, of either encoder."""
    return {
        "hidden_dim": model.embedding.hidden_dim,
        "num_layers": len(model.encoder_blocks),
        **read_block(model.encoder_blocks[0]),
    }


def read_text_encoder(model: TextEncoder) -> dict[str, Any]:
    """Returns the arguments of the text encoder, but for its head."""
    sizes = {"vocab_size": model.embedding.vocab_size, "max_length": model.embedding.max_length}
    return {**read_encoder(model), **sizes}


def read_image_encoder(model: ViT) -> dict[str, Any]:
    """Returns the arguments of the image encoder, but for its pooling."""
    return {
        **read_encoder(model),
        "patch_size": model.patch_size,
        "channels": model.channels,
        "image_size": model.configuration.image_size,
    }


def encoder_mappings(ours: str, theirs: str) -> Mappings:
    """The mappings of the blocks of an encoder."""
    block, layer = f"{ours}/encoder_{{i}}", f"{theirs}.encoder.layers.{{i}}"
    names = (f"{layer}.self_attn.{name}_proj" for name in ("q", "k", "v", "out"))
    return [
        *attention(f"{block}/mixer", *names),
        *norm(f"{block}/mixer_norm", f"{layer}.layer_norm1"),
        *linear(f"{block}/feed_forward/hidden", f"{layer}.mlp.fc1"),
        *linear(f"{block}/feed_forward/output", f"{layer}.mlp.fc2"),
        *norm(f"{block}/feed_forward_norm", f"{layer}.layer_norm2"),
    ]


def table_mappings() -> Mappings:
    """The mappings of tables, and of the norms behind both stacks."""
    table = "position_embedding/position_embedding"
    texts, images = "text_encoder/embedding", "image_encoder/embedding"
    tokens, rows = "embeddings.token_embedding.weight", "embeddings.position_embedding.weight"
    return [
        WeightMapping(f"{texts}/token_embedding/token_embedding", f"text_model.{tokens}"),
        WeightMapping(f"{texts}/{table}", f"text_model.{rows}"),
        WeightMapping(f"{images}/{table}", f"vision_model.{rows}"),
        *norm("text_encoder/norm", "text_model.final_layer_norm"),
        *norm("image_encoder/norm", "vision_model.post_layernorm"),
    ]


SIZES = {
    "text_model.embeddings.token_embedding.weight": (f"{TEXT}.vocab_size", f"{TEXT}.hidden_size"),
    "text_model.embeddings.position_embedding.weight": (
        f"{TEXT}.max_position_embeddings",
        f"{TEXT}.hidden_size",
    ),
    "vision_model.embeddings.patch_embedding.weight": (
        f"{IMAGE}.hidden_size",
        f"{IMAGE}.num_channels",
        f"{IMAGE}.patch_size",
        f"{IMAGE}.patch_size",
    ),
    "text_model.encoder.layers.0.mlp.fc1.weight": (
        f"{TEXT}.intermediate_size",
        f"{TEXT}.hidden_size",
    ),
    "vision_model.encoder.layers.0.mlp.fc1.weight": (
        f"{IMAGE}.intermediate_size",
        f"{IMAGE}.hidden_size",
    ),
}
LAYERS = {
    f"{TEXT}.num_hidden_layers": "text_model.encoder.layers.",
    f"{IMAGE}.num_hidden_layers": "vision_model.encoder.layers.",
}


OF_THE_FIRST = 2  # as END in files of before 2023, when the greatest id was taken


def _read_end(value: Any) -> int | None:
    end_id = natural(value)
    return None if end_id == OF_THE_FIRST else end_id


def _write_end(end_id: int | None) -> int:
    if end_id == OF_THE_FIRST:
        raise ValueError(f"another id than {OF_THE_FIRST}, which stands for the greatest of a text")
    return OF_THE_FIRST if end_id is None else end_id


def _make_clip(arguments: dict[str, Any]) -> DualEncoder:
    images, texts = arguments["image_encoder"], arguments["text_encoder"]
    embedding = ImageEmbedding(
        PatchEmbedding(images["patch_size"], images["hidden_dim"], use_bias=False),
        antialias=False,
        norm=keras.layers.LayerNormalization(epsilon=images["norm_epsilon"]),
    )
    return DualEncoder(
        image_encoder(images, images["image_size"], embedding),
        text_encoder(texts, CausalSelfAttention, EndPooling(texts["end_id"])),
        arguments["projection_dim"],
    )


def _read_clip(model: DualEncoder) -> dict[str, Any]:
    texts = model.text_encoder
    return {
        "projection_dim": model.projection_dim,
        "sigmoid": model.sigmoid,
        "fill_id": model.fill_id,
        "text_encoder": {**read_text_encoder(texts), "end_id": texts.head.end_id},
        "image_encoder": read_image_encoder(model.image_encoder),
    }


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
        settings=(size("projection_dim", "projection_dim", 512),),
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
    make=_make_clip,
    read=_read_clip,
    shape=dual_shape,
)


HEAD = "vision_model.head"


def _read_sides(config: dict[str, Any]) -> list[int]:
    """Returns the size of the whole patches, to which the published convolution is applied."""
    side, patch = config["image_size"], config["patch_size"]
    if side < patch:
        raise ValueError(f"`image_size` must be at least `patch_size`={patch}. Received: {side}")
    return [side // patch * patch] * 2


def _make_siglip(arguments: dict[str, Any]) -> DualEncoder:
    images, texts = arguments["image_encoder"], arguments["text_encoder"]
    embedding = ImageEmbedding(
        PatchEmbedding(images["patch_size"], images["hidden_dim"]),
        class_token=False,
        antialias=False,
    )
    names = ("num_heads", "mlp_dim", "norm_epsilon", "activation")
    pooling = AttentionPooling(*(images[name] for name in names))
    return DualEncoder(
        image_encoder(images, images["whole_size"], embedding, pooling=pooling),
        text_encoder(texts, SelfAttention, LastPooling(texts["units"])),
        sigmoid=True,
        fill_id=texts["fill_id"],
    )


def _read_siglip(model: DualEncoder) -> dict[str, Any]:
    texts, images = model.text_encoder, model.image_encoder
    sizes = {"whole_size": images.configuration.image_size, "image_size": list(model.image_size)}
    texts_arguments = {"units": texts.head.units, "fill_id": model.fill_id}
    return {
        "projection_dim": model.projection_dim,
        "sigmoid": model.sigmoid,
        "text_encoder": {**read_text_encoder(texts), **texts_arguments},
        "image_encoder": {**read_image_encoder(images), **sizes},
    }


def _pooling_mappings(ours: str) -> Mappings:
    """The mappings of the attention that pools, whose projections lie in one tensor."""
    mappings: Mappings = [WeightMapping(f"{ours}/query_token", f"{HEAD}.probe")]
    for position, name in enumerate(("query", "key", "value")):
        for weight, theirs, layout in (("kernel", "weight", LINEAR), ("bias", "bias", FLAT)):
            fused = FusedPart(position, layout, axis=0)
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


def _siglip_mappings(model: Any) -> Mappings:
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
                Setting("pad_token_id", "fill_id", 1, natural, natural),
            ),
        ),
        image=Configuration(
            name="siglip_vision_model",
            settings=(*encoder_settings(768, 3072, 12, ACTIVATION, 1e-6), *image_settings(16)),
            combined=(Combined("whole_size", (), _read_sides, lambda arguments: {}),),
            settled={"vision_use_head": (True,)},
        ),
    ),
    weights=Weights(
        mappings=_siglip_mappings,
        sizes=SIZES
        | {"text_model.head.weight": ("text_config.projection_size", "text_config.hidden_size")},
        layers=LAYERS,
    ),
    model=DualEncoder,
    architectures={"SiglipModel": {}},
    tasks={"zero_shot_classification": "SiglipModel"},
    make=_make_siglip,
    read=_read_siglip,
    shape=dual_shape,
)
