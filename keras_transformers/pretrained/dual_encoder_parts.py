"""What CLIP and SigLIP share: the settings of two encoders in those of the whole, and parts."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import keras

from keras_transformers.layers import EncoderBlock, FeedForward
from keras_transformers.layers.parts import serialized
from keras_transformers.models import DualEncoder, TextEmbedding, TextEncoder, ViT
from keras_transformers.models.vit_variants import vit_block
from keras_transformers.pretrained.configuration import (
    Configuration,
    Setting,
    activation,
    number,
    positive,
    size,
)
from keras_transformers.pretrained.parts import parts_of, refused, said
from keras_transformers.pretrained.weight_mapping import (
    Mappings,
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
        """As `Configuration.read`; what is inside becomes a dict of arguments of each encoder."""
        arguments = super().read(config, where)
        for name, inner in self._inner.items():
            found = self._said(config, name)
            if not isinstance(found, dict):
                raise ValueError(f"{where}: `{name}` must be a dict. Received: {found!r:.200}")
            arguments[OURS[name]] = inner.read(found, f"{where}: in `{name}`")
        return arguments

    def _said(self, config: Mapping[str, Any], name: str) -> Any:
        """The configuration inside; empty where it has nothing but defaults."""
        first = config.get(f"{name}_dict") if self.replaced else None
        return (config.get(name) or {}) if first is None else first

    def extent(self, config: dict[str, Any], setting: Any) -> Any:
        """As `Configuration.extent`; "text_config.hidden_size" is that of an encoder."""
        name, dot, rest = setting.partition(".") if isinstance(setting, str) else ("", "", "")
        if dot:
            return self._inner[name].extent(self._said(config, name), rest)
        return super().extent(config, setting)

    def write(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """As `Configuration.write`."""
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


def layer_norm(epsilon: float) -> keras.layers.Layer:
    """A layer norm."""
    return keras.layers.LayerNormalization(epsilon=epsilon)


def text_block(kind: Callable[..., keras.layers.Layer], found: Mapping[str, Any]) -> EncoderBlock:
    """A pre-norm block with an attention of that kind."""
    return EncoderBlock(
        norm_first=True,
        mixer=kind(found["num_heads"], dropout=found["attention_dropout"]),
        feed_forward=FeedForward(found["mlp_dim"], found["activation"]),
        norm=layer_norm(found["norm_epsilon"]),
    )


def text_encoder(found: Mapping[str, Any], block: EncoderBlock, head: Any) -> TextEncoder:
    """The text encoder of these numbers; no id is set aside for padding."""
    sizes = {name: found[name] for name in ("vocab_size", "hidden_dim", "max_length")}
    return TextEncoder(
        num_layers=found["num_layers"],
        dropout=0.0,
        block=block,
        embedding=TextEmbedding(**sizes, padding_id=-1),
        head=head,
    )


def image_encoder(found: Mapping[str, Any], sides: Any, embedding: Any, **parts: Any) -> ViT:
    """The image encoder of these numbers, for images of these sides."""
    names = ("num_heads", "mlp_dim", "norm_epsilon", "activation", "attention_dropout")
    block = vit_block(*(found[name] for name in names))
    return ViT(
        None, sides, num_layers=found["num_layers"], block=block, embedding=embedding, **parts
    )


def encoders_of(model: DualEncoder, head: type) -> tuple[ViT, TextEncoder]:
    """Those of images and of texts; ValueError unless a ViT and one with such a head."""
    images, texts = model.image_encoder, model.text_encoder
    for each, kind in ((images, ViT), (texts.head, head)):
        if not isinstance(each, kind):
            raise refused(model, type(each).__name__, f"made with a {kind.__name__}")
    return images, texts


def built(model: DualEncoder, image_encoder: Mapping[str, Any]) -> DualEncoder:
    """The model with weights."""
    images = (None, *image_encoder["image_size"], image_encoder["channels"])
    model.build({"images": images, "ids": (None, None)})
    return model


def numbers_of(model: Any) -> dict[str, Any]:
    """What `encoder_settings` stand for, of an encoder; ValueError where its blocks have none."""
    block, settings = model.encoder_blocks[0], model.get_config()
    if isinstance(settings["block"], list | tuple):
        raise refused(model, "blocks of several kinds", "of blocks of one kind")
    found = {
        "hidden_dim": model.embedding.hidden_dim,
        "num_layers": settings["num_layers"],
        "num_heads": getattr(block.mixer, "num_heads", None),
        "mlp_dim": getattr(block.feed_forward, "mlp_dim", None),
        "attention_dropout": getattr(block.mixer, "dropout", None),
        "norm_epsilon": getattr(block.mixer_norm, "epsilon", None),
    }
    missing = [name for name, value in found.items() if value is None]
    if missing:
        raise refused(model, f"without {', '.join(missing)}", "of plain attention and layer norms")
    activation = keras.activations.serialize(getattr(block.feed_forward, "activation", None))
    return {**found, "activation": activation}


def text_numbers(model: TextEncoder) -> dict[str, Any]:
    """What the settings of a text encoder stand for."""
    of_table = {name: getattr(model.embedding, name) for name in ("vocab_size", "max_length")}
    return {**numbers_of(model), **of_table}


def image_numbers(model: ViT) -> dict[str, Any]:
    """What the settings of an image encoder stand for."""
    sides = model.get_config()["image_size"]
    found = {"patch_size": model.patch_size, "channels": model.channels}
    return {**numbers_of(model), **found, "image_size": list(sides)}


def check_like(model: Any, made: Any, parts: Mapping[str, Callable[[Any], Any]]) -> None:
    """Raises ValueError unless an encoder is like the one that its numbers make.

    Args:
        model: The encoder.
        made: The other.
        parts: Name -> function of either that gives a part besides the blocks, or a setting.
    """
    of_blocks = [parts_of(each.encoder_blocks[0]) for each in (model, made)]
    pairs = {name: (of_blocks[0][name], of_blocks[1][name]) for name in of_blocks[0]}
    for name, part in parts.items():
        pairs[name] = tuple(_written(part(each)) for each in (model, made))
    for name, (ours, theirs) in pairs.items():
        if said(ours) != said(theirs):
            raise refused(model, said(ours), f"with the `{name}` of the published models")


def _written(part: Any) -> Any:
    return serialized(part) if isinstance(part, keras.layers.Layer) else part


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
