"""ModernBERT (Warner et al. 2024)."""

from collections.abc import Mapping
from typing import Any

import keras

from keras_transformers.layers import (
    EncoderBlock,
    FirstEncoderBlock,
    GatedFeedForward,
    LocalAttention,
    RotaryEmbedding,
    SelfAttention,
)
from keras_transformers.models import (
    ClassificationHead,
    HeadTransform,
    MaskedLanguageHead,
    SpanHead,
    TaggingHead,
    TextEmbedding,
    TextEncoder,
)
from keras_transformers.pretrained.family import (
    Configuration,
    Family,
    Setting,
    Weights,
    activation,
    boolean,
    number,
    positive,
    size,
)
from keras_transformers.pretrained.heads import ENCODER_HEADS, read_head, text_classes
from keras_transformers.pretrained.weight_mapping import (
    FLAT,
    LINEAR,
    OUTPUT,
    FusedPart,
    Mappings,
    WeightMapping,
    linear,
    norm,
)

DEFAULT_WAVELENGTHS = (160_000.0, 10_000.0)  # of global and of local layers


def _norm(arguments: Mapping[str, Any]) -> keras.layers.LayerNormalization:
    epsilon, center = arguments["norm_epsilon"], arguments["norm_bias"]
    return keras.layers.LayerNormalization(epsilon=epsilon, center=center)


def _blocks(arguments: Mapping[str, Any]) -> list[EncoderBlock]:
    """Makes the blocks in order, which differ in the attention; the first lacks a norm."""
    kinds: dict[bool, Any] = {False: SelfAttention, True: LocalAttention}
    attentions = {
        local: kind(
            arguments["num_heads"],
            **({"window_size": arguments["window_size"]} if local else {}),
            dropout=arguments["attention_dropout"],
            use_bias=arguments["attention_bias"],
            position=RotaryEmbedding(arguments["wavelengths"][local]),
        )
        for local, kind in kinds.items()
        if local in arguments["local"]
    }
    network = GatedFeedForward(
        arguments["mlp_dim"],
        arguments["activation"],
        arguments["mlp_dropout"],
        use_bias=arguments["mlp_bias"],
    )
    return [
        (EncoderBlock if i else FirstEncoderBlock)(
            norm_first=True, mixer=attentions[local], feed_forward=network, norm=_norm(arguments)
        )
        for i, local in enumerate(arguments["local"])
    ]


def _embedding(arguments: Mapping[str, Any]) -> TextEmbedding:
    return TextEmbedding(
        arguments["vocab_size"],
        arguments["hidden_dim"],
        None,
        padding_id=arguments["padding_id"],
        norm=_norm(arguments),
    )


def _head(arguments: Mapping[str, Any]) -> keras.layers.Layer | None:
    act, bias = arguments["head_activation"], arguments["head_bias"]
    transform = HeadTransform(act, _norm(arguments), bias)
    kind, classes = arguments["head"], arguments["num_classes"]
    if kind == "masked_language":
        return MaskedLanguageHead(transform=transform)
    if kind == "tagging":
        return TaggingHead(classes, 0.0, transform)
    if kind == "question_answering":
        return SpanHead(0.0, transform)
    if kind == "classification":
        problem, pooling = arguments.get("problem_type"), arguments["pooling"]
        return ClassificationHead(
            classes, pooling, dropout=0.0, problem_type=problem, transform=transform
        )
    return None


def make_modernbert(arguments: dict[str, Any]) -> TextEncoder:
    """Makes a model of flat arguments.

    Raises:
        ValueError: If there is not one kind of attention for each layer.
    """
    if len(arguments["local"]) != arguments["num_layers"]:
        raise ValueError(
            f"`layer_types` must have num_hidden_layers={arguments['num_layers']} entries. "
            f"Received: {len(arguments['local'])}"
        )
    return TextEncoder(
        num_layers=arguments["num_layers"],
        block=_blocks(arguments),
        embedding=_embedding(arguments),
        head=_head(arguments),
    )


def read_modernbert(model: TextEncoder) -> dict[str, Any]:
    """Returns the arguments that `make_modernbert` makes such a model of."""
    blocks = model.encoder_blocks
    mixer, network, norm = blocks[0].mixer, blocks[0].feed_forward, blocks[-1].feed_forward_norm
    is_local = [isinstance(block.mixer, LocalAttention) for block in blocks]
    wavelengths = list(DEFAULT_WAVELENGTHS)
    window_size = 128
    for block in blocks:
        if isinstance(block.mixer, LocalAttention):
            window_size = block.mixer.window_size
        wavelengths[isinstance(block.mixer, LocalAttention)] = block.mixer.position.max_wavelength
    return {
        "vocab_size": model.embedding.vocab_size,
        "hidden_dim": model.embedding.hidden_dim,
        "padding_id": model.padding_id,
        "num_layers": len(blocks),
        "num_heads": mixer.num_heads,
        "attention_dropout": mixer.dropout,
        "attention_bias": mixer.use_bias,
        "local": is_local,
        "wavelengths": wavelengths,
        "window_size": window_size,
        "mlp_dim": network.mlp_dim,
        "mlp_dropout": network.dropout,
        "mlp_bias": network.use_bias,
        "activation": keras.activations.serialize(network.activation),
        "norm_epsilon": norm.epsilon,
        "norm_bias": norm.center,
        **_read_head(model.head),
    }


def _read_head(head: Any) -> dict[str, Any]:
    settings = {"pooling": "token", "head_activation": "gelu", "head_bias": False}
    settings |= read_head(head)
    if isinstance(head, MaskedLanguageHead):
        settings["head"] = "masked_language"
    transform = None
    if isinstance(head, MaskedLanguageHead | TaggingHead | SpanHead):
        transform = head.transform
    elif isinstance(head, ClassificationHead):
        transform = head.pooler
        settings["pooling"] = head.pooling
    if isinstance(transform, HeadTransform):
        settings["head_activation"] = keras.activations.serialize(transform.activation)
        settings["head_bias"] = transform.use_bias
    return settings


MOST_LAYERS = 1 << 12
GLOBAL, LOCAL = "full_attention", "sliding_attention"
WAVELENGTHS = dict(zip((GLOBAL, LOCAL), DEFAULT_WAVELENGTHS, strict=True))
OLDER = {GLOBAL: "global_rope_theta", LOCAL: "local_rope_theta"}
POOLING = {"cls": "token", "mean": "mean"}


def _layer_types(config: Mapping[str, Any]) -> Any:
    """Of older files, which say that every n-th layer is global; what they say if it is wrong."""
    every, layers = config.get("global_attn_every_n_layers", 3), config.get("num_hidden_layers", 22)
    for count in (every, layers):
        if not isinstance(count, int) or not 0 < count <= MOST_LAYERS:
            return count
    return [LOCAL if i % every else GLOBAL for i in range(layers)]


def _read_layer_types(types: Any) -> list[bool]:
    """Returns for each layer whether it is local."""
    if not isinstance(types, list) or not {*types} <= {GLOBAL, LOCAL}:
        raise ValueError(
            f"a list of {GLOBAL!r} and {LOCAL!r}, or `global_attn_every_n_layers` a positive "
            "integer"
        )
    return [kind == LOCAL for kind in types]


def _rotary(config: Mapping[str, Any]) -> dict[str, Any]:
    """Of older files, which have a number each."""
    return {kind: {"rope_theta": config.get(name)} for kind, name in OLDER.items()}


def _read_wavelengths(parameters: Any) -> list[float]:
    """Returns the longest wavelengths of global and of local layers."""
    wavelengths = []
    for kind, default in WAVELENGTHS.items():
        settings = dict((parameters or {}).get(kind) or {})
        wavelength = settings.pop("rope_theta", None) or default
        if settings.pop("rope_type", "default") != "default" or any(settings.values()):
            raise ValueError(f"of `rope_type` 'default' for {kind}, without a scaling")
        if isinstance(wavelength, bool) or not isinstance(wavelength, int | float):
            raise ValueError(f"such that `rope_theta` of {kind} is a number")
        wavelengths.append(float(wavelength))
    return wavelengths


def _write_wavelengths(wavelengths: list[float]) -> dict[str, Any]:
    return {
        kind: {"rope_type": "default", "rope_theta": wavelength}
        for kind, wavelength in zip(WAVELENGTHS, wavelengths, strict=True)
    }


def _read_pooling(name: Any) -> str:
    if name not in POOLING:
        raise ValueError(f"one of {', '.join(POOLING)}")
    return POOLING[name]


def _window(value: Any) -> int:
    if positive(value) < 2:
        raise ValueError("an integer, 2 or more")
    return value


def _fused(ours: str, theirs: str, parts: tuple[str, ...]) -> Mappings:
    """The mappings of layers whose kernels, and biases, are one tensor."""
    mappings: Mappings = []
    for i, part in enumerate(parts):
        for weight, name, layout in (("kernel", "weight", LINEAR), ("bias", "bias", FLAT)):
            fused = FusedPart(i, layout, len(parts), axis=0)
            mappings.append(WeightMapping(f"{ours}/{part}/{weight}", f"{theirs}.{name}", fused))
    return mappings


MAPPINGS = [
    WeightMapping(
        "embedding/token_embedding/token_embedding",
        "model.embeddings.tok_embeddings.weight",
        also=("decoder.weight",),
    ),
    *norm("embedding/norm", "model.embeddings.norm"),
    *norm("encoder_{i}/mixer_norm", "model.layers.{i}.attn_norm"),
    *_fused("encoder_{i}/mixer", "model.layers.{i}.attn.Wqkv", ("query", "key", "value")),
    WeightMapping(
        "encoder_{i}/mixer/attention_output/kernel", "model.layers.{i}.attn.Wo.weight", OUTPUT
    ),
    WeightMapping("encoder_{i}/mixer/attention_output/bias", "model.layers.{i}.attn.Wo.bias"),
    *norm("encoder_{i}/feed_forward_norm", "model.layers.{i}.mlp_norm"),
    *_fused("encoder_{i}/feed_forward", "model.layers.{i}.mlp.Wi", ("gate", "hidden")),
    *linear("encoder_{i}/feed_forward/output", "model.layers.{i}.mlp.Wo"),
    *norm("norm", "model.final_norm"),
    *linear("head/transform/dense", "head.dense"),
    *norm("head/transform/norm", "head.norm"),
    WeightMapping("head/bias", "decoder.bias"),
    *linear("head/classes", "classifier"),
    *linear("head/ends", "classifier"),
]

MODERNBERT_CONFIGURATION = Configuration(
    name="modernbert",
    settings=(
        size("vocab_size", "vocab_size", 50368),
        size("hidden_size", "hidden_dim", 768),
        size("num_hidden_layers", "num_layers", 22),
        size("num_attention_heads", "num_heads", 12),
        size("intermediate_size", "mlp_dim", 1152),
        activation("hidden_activation", "activation", "gelu"),
        number("norm_eps", "norm_epsilon", 1e-5),
        Setting("norm_bias", "norm_bias", False, bool),
        Setting("pad_token_id", "padding_id", 50283),
        Setting(
            "layer_types",
            "local",
            _layer_types,
            _read_layer_types,
            lambda local: [LOCAL if is_local else GLOBAL for is_local in local],
        ),
        Setting("rope_parameters", "wavelengths", _rotary, _read_wavelengths, _write_wavelengths),
        Setting("local_attention", "window_size", 128, _window),
        number("attention_dropout", "attention_dropout", 0.0),
        Setting("attention_bias", "attention_bias", False, bool, boolean),
        number("mlp_dropout", "mlp_dropout", 0.0),
        Setting("mlp_bias", "mlp_bias", False, bool),
        Setting(
            "classifier_pooling",
            "pooling",
            "cls",
            _read_pooling,
            lambda ours: {our: their for their, our in POOLING.items()}[ours],
        ),
        activation("classifier_activation", "head_activation", "gelu"),
        Setting("classifier_bias", "head_bias", False, bool),
    ),
    settled={
        "decoder_bias": (True,),
        "embedding_dropout": (0.0,),
        "head_dim": (None,),
        "rope_scaling": (None,),
        "sliding_window": (None,),  # which would be half of `local_attention`
        "position_embedding_type": ("absolute",),  # of the first files, which nothing reads
    },
    # The first are read in the place of others, see `_layer_types` and `_rotary`; the next say how
    # long texts were in training, how to compute the same, and what a loss is computed of.
    without_effect=frozenset({"global_attn_every_n_layers", *OLDER.values()})
    | {"max_position_embeddings", "deterministic_flash_attn", "reference_compile"}
    | {"repad_logits_with_grad", "sparse_prediction", "sparse_pred_ignore_index"}
    | {"initializer_cutoff_factor", "classifier_dropout", "layer_norm_eps"},
)
MODERNBERT_WEIGHTS = Weights(
    mappings=lambda model: MAPPINGS,
    sizes={"model.embeddings.tok_embeddings.weight": ("vocab_size", "hidden_size")},
    layers={"num_hidden_layers": "model.layers."},
    prefix="model.",
    bare=("ModernBertModel",),
)
MODERNBERT = Family(
    configuration=MODERNBERT_CONFIGURATION,
    weights=MODERNBERT_WEIGHTS,
    model=TextEncoder,
    **text_classes("ModernBert", ENCODER_HEADS),
    make=make_modernbert,
    read=read_modernbert,
)
