"""Families of `TextEncoder`: BERT, DistilBERT, RoBERTa, XLM-R, ELECTRA and ModernBERT."""

from collections.abc import Callable, Mapping
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
from keras_transformers.models.text_encoder import HEAD_WORDS, encoder_head, encoder_norm
from keras_transformers.pretrained.family import (
    ENCODER_HEADS,
    Configuration,
    Family,
    Setting,
    Weights,
    activation,
    boolean,
    number,
    positive,
    read_block,
    read_head,
    size,
    text_classes,
)
from keras_transformers.pretrained.weight_mapping import (
    FLAT,
    LINEAR,
    OUTPUT,
    FusedPart,
    Mappings,
    WeightMapping,
    attention,
    linear,
    norm,
)


def make_encoder(arguments: dict[str, Any], head_activation: str | None = None) -> TextEncoder:
    """Makes an encoder of flat keywords.

    Args:
        arguments: The keywords.
        head_activation: Name of the activation of a head that restores tokens; by default that of
            the blocks.
    """
    if head_activation is not None and arguments["head"] == "masked_language":
        head = encoder_head(
            "masked_language",
            activation=head_activation,
            norm=encoder_norm("bert", arguments["norm_epsilon"]),
            embedding_dim=arguments["embedding_dim"],
        )
        arguments = _replace_head(arguments, head)
    return TextEncoder.from_variant("base", **arguments)


def _replace_head(arguments: dict[str, Any], head: keras.layers.Layer | None) -> dict[str, Any]:
    """Returns keywords with a layer in the place of those that make a head."""
    keywords = {name: value for name, value in arguments.items() if name not in HEAD_WORDS}
    return {**keywords, "head": head}


def read_encoder(model: TextEncoder) -> dict[str, Any]:
    """Returns the keywords that `make_encoder` makes such a model of."""
    embedding = model.embedding
    return {
        "vocab_size": embedding.vocab_size,
        "hidden_dim": embedding.hidden_dim,
        "max_length": embedding.max_length,
        "token_types": embedding.token_types,
        "padding_id": embedding.padding_id,
        "first_position": embedding.first_position,
        "embedding_dim": embedding.embedding_dim,
        "num_layers": len(model.encoder_blocks),
        "dropout": model.configuration.dropout,
        **read_block(model.encoder_blocks[0]),
        **_read_head(model.head),
    }


def _read_head(head: Any) -> dict[str, Any]:
    settings = read_head(head)
    if isinstance(head, MaskedLanguageHead):
        settings["head"] = "masked_language"
    if isinstance(head, ClassificationHead):
        settings["pooling"] = head.pooling
        settings["pooler_activation"] = keras.activations.serialize(head.activation)
    return settings


def embeddings(start: str, tied: str) -> Mappings:
    """The mappings of a model's embedding, the table of tokens also under the name `tied`."""
    table = f"{start}.word_embeddings.weight"
    return [
        WeightMapping("embedding/token_embedding/token_embedding", table, also=(tied,)),
        WeightMapping(
            "embedding/position_embedding/position_embedding", f"{start}.position_embeddings.weight"
        ),
        WeightMapping(
            "embedding/token_type_embedding/token_embedding",
            f"{start}.token_type_embeddings.weight",
        ),
        *norm("embedding/norm", f"{start}.LayerNorm"),
    ]


def bert_layers(prefix: str) -> Mappings:
    """The mappings of the blocks of BERT and of what has the same names but for the first."""
    layer = f"{prefix}.encoder.layer.{{i}}"
    return [
        *attention(
            "encoder_{i}/mixer",
            f"{layer}.attention.self.query",
            f"{layer}.attention.self.key",
            f"{layer}.attention.self.value",
            f"{layer}.attention.output.dense",
        ),
        *norm("encoder_{i}/mixer_norm", f"{layer}.attention.output.LayerNorm"),
        *linear("encoder_{i}/feed_forward/hidden", f"{layer}.intermediate.dense"),
        *linear("encoder_{i}/feed_forward/output", f"{layer}.output.dense"),
        *norm("encoder_{i}/feed_forward_norm", f"{layer}.output.LayerNorm"),
    ]


def bert_settings(vocab_size: int) -> tuple[Setting, ...]:
    """The settings of BERT and its like, with what the size of the vocabulary is by default."""
    return (
        size("vocab_size", "vocab_size", vocab_size),
        size("hidden_size", "hidden_dim", 768),
        size("num_hidden_layers", "num_layers", 12),
        size("num_attention_heads", "num_heads", 12),
        size("intermediate_size", "mlp_dim", 3072),
        size("max_position_embeddings", "max_length", 512),
        size("type_vocab_size", "token_types", 2),
        activation("hidden_act", "activation", "gelu"),
        number("hidden_dropout_prob", "dropout", 0.1),
        number("attention_probs_dropout_prob", "attention_dropout", 0.1),
        number("layer_norm_eps", "norm_epsilon", 1e-12),
    )


def bert_weights(
    prefix: str, title: str, mappings: Callable[[Any], Mappings], width: str = "hidden_size"
) -> Weights:
    """The weights of BERT and its like.

    Args:
        prefix: What the names of the encoder's tensors begin with.
        title: What the names of the published classes begin with.
        mappings: As for `Weights`.
        width: The setting that says how wide the tables are.
    """
    start = f"{prefix}.embeddings"
    return Weights(
        mappings=mappings,
        sizes={
            f"{start}.word_embeddings.weight": ("vocab_size", width),
            f"{start}.position_embeddings.weight": ("max_position_embeddings", width),
            f"{prefix}.encoder.layer.0.intermediate.dense.weight": (
                "intermediate_size",
                "hidden_size",
            ),
        },
        layers={"num_hidden_layers": f"{prefix}.encoder.layer."},
        prefix=f"{prefix}.",
        bare=(f"{title}Model",),
    )


def classes(model: Any) -> Mappings:
    """The mappings of heads of classes and spans; behind a pooler classes have another name."""
    pooled = hasattr(model.head, "pooler")
    return [
        *linear("head/pooler", "classifier.dense"),
        *linear("head/classes", "classifier.out_proj" if pooled else "classifier"),
        *linear("head/ends", "qa_outputs"),
    ]


BERT_ROWS = [
    *embeddings("bert.embeddings", "cls.predictions.decoder.weight"),
    *bert_layers("bert"),
    *linear("head/transform", "cls.predictions.transform.dense"),
    *norm("head/norm", "cls.predictions.transform.LayerNorm"),
    WeightMapping("head/bias", "cls.predictions.bias", also=("cls.predictions.decoder.bias",)),
    *linear("head/pooler", "bert.pooler.dense"),
    *linear("head/classes", "classifier"),
    *linear("head/ends", "qa_outputs"),
]

DISTILBERT_LAYER = "distilbert.transformer.layer.{i}"
DISTILBERT_ROWS = [
    *embeddings("distilbert.embeddings", "vocab_projector.weight"),
    *attention(
        "encoder_{i}/mixer",
        *(f"{DISTILBERT_LAYER}.attention.{name}_lin" for name in ("q", "k", "v", "out")),
    ),
    *norm("encoder_{i}/mixer_norm", f"{DISTILBERT_LAYER}.sa_layer_norm"),
    *linear("encoder_{i}/feed_forward/hidden", f"{DISTILBERT_LAYER}.ffn.lin1"),
    *linear("encoder_{i}/feed_forward/output", f"{DISTILBERT_LAYER}.ffn.lin2"),
    *norm("encoder_{i}/feed_forward_norm", f"{DISTILBERT_LAYER}.output_layer_norm"),
    *linear("head/transform", "vocab_transform"),
    *norm("head/norm", "vocab_layer_norm"),
    WeightMapping("head/bias", "vocab_projector.bias"),
    *linear("head/pooler", "pre_classifier"),
    *linear("head/classes", "classifier"),
    *linear("head/ends", "qa_outputs"),
]

FIXED = {"pooling": "token", "padding_id": 0, "first_position": 0, "embedding_dim": None}

BERT_CONFIGURATION = Configuration(
    name="bert",
    settings=bert_settings(30522),
    fixed={**FIXED, "pooler_activation": "tanh"},
    settled={"position_embedding_type": ("absolute",), "pad_token_id": (0, None)},
    without_effect=frozenset({"classifier_dropout", "directionality", "pooler_fc_size"})
    | {"pooler_num_attention_heads", "pooler_num_fc_layers", "pooler_size_per_head"}
    | {"pooler_type"},
)
BERT = Family(
    configuration=BERT_CONFIGURATION,
    weights=bert_weights("bert", "Bert", lambda model: BERT_ROWS),
    model=TextEncoder,
    **text_classes("Bert", ENCODER_HEADS, BertForPreTraining=ENCODER_HEADS["ForMaskedLM"]),
    make=make_encoder,
    read=read_encoder,
)

DISTILBERT_CONFIGURATION = Configuration(
    name="distilbert",
    settings=(
        size("vocab_size", "vocab_size", 30522),
        size("dim", "hidden_dim", 768),
        size("n_layers", "num_layers", 6),
        size("n_heads", "num_heads", 12),
        size("hidden_dim", "mlp_dim", 3072),
        size("max_position_embeddings", "max_length", 512),
        activation("activation", "activation", "gelu"),
        number("dropout", "dropout", 0.1),
        number("attention_dropout", "attention_dropout", 0.1),
    ),
    fixed={**FIXED, "token_types": 0, "norm_epsilon": 1e-12, "pooler_activation": "relu"},
    settled={"pad_token_id": (0, None)},
    # The table of positions is in the file, however it was made.
    without_effect=frozenset({"sinusoidal_pos_embds", "qa_dropout", "seq_classif_dropout"})
    | {"output_past", "tie_weights_"},
)
DISTILBERT_WEIGHTS = Weights(
    mappings=lambda model: DISTILBERT_ROWS,
    sizes={
        "distilbert.embeddings.word_embeddings.weight": ("vocab_size", "dim"),
        "distilbert.embeddings.position_embeddings.weight": ("max_position_embeddings", "dim"),
        "distilbert.transformer.layer.0.ffn.lin1.weight": ("hidden_dim", "dim"),
    },
    layers={"n_layers": "distilbert.transformer.layer."},
    prefix="distilbert.",
    bare=("DistilBertModel",),
)
DISTILBERT = Family(
    configuration=DISTILBERT_CONFIGURATION,
    weights=DISTILBERT_WEIGHTS,
    model=TextEncoder,
    **text_classes("DistilBert", ENCODER_HEADS),
    make=make_encoder,
    read=read_encoder,
)


HEAD_ACTIVATION = "gelu"  # of a head that restores tokens, whatever the blocks have
ROBERTA_MAPPINGS = [
    *embeddings("roberta.embeddings", "lm_head.decoder.weight"),
    *bert_layers("roberta"),
    *linear("head/transform", "lm_head.dense"),
    *norm("head/norm", "lm_head.layer_norm"),
    WeightMapping("head/bias", "lm_head.bias", also=("lm_head.decoder.bias",)),
]


def _roberta_family(name: str, title: str, vocab_size: int) -> Family:
    """A family of RoBERTa's kind.

    Args:
        name: Its `model_type`.
        title: What the names of the published classes begin with.
        vocab_size: Size of the vocabulary where nothing is said.
    """
    configuration = Configuration(
        name=name,
        settings=bert_settings(vocab_size),
        # The position of padding is its id, and the first token has the one after it.
        fixed={**FIXED, "padding_id": 1, "first_position": 2, "pooler_activation": "tanh"},
        settled={"position_embedding_type": ("absolute",), "pad_token_id": (1,)},
        without_effect=frozenset({"classifier_dropout", "output_past"}),
    )
    return Family(
        configuration=configuration,
        weights=bert_weights("roberta", title, lambda model: [*ROBERTA_MAPPINGS, *classes(model)]),
        model=TextEncoder,
        **text_classes(title, ENCODER_HEADS),
        make=lambda arguments: make_encoder(arguments, HEAD_ACTIVATION),
        read=read_encoder,
    )


ROBERTA = _roberta_family("roberta", "Roberta", 50265)
XLM_ROBERTA = _roberta_family("xlm-roberta", "XLMRoberta", 30522)


# Of the discriminator: whether each token was replaced, one logit.
DETECTION: dict[str, Any] = {"head": "detection", "num_classes": 1}
BLOCKS = [
    *embeddings("electra.embeddings", "generator_lm_head.weight"),
    *linear("embedding/projection", "electra.embeddings_project"),
    *bert_layers("electra"),
]
ELECTRA_MAPPINGS = [
    *BLOCKS,
    *linear("head/transform/dense", "generator_predictions.dense"),
    *norm("head/transform/norm", "generator_predictions.LayerNorm"),
    WeightMapping("head/bias", "generator_lm_head.bias"),
]
DETECTION_MAPPINGS = [
    *BLOCKS,
    *linear("head/transform/dense", "discriminator_predictions.dense"),
    *linear("head/classes", "discriminator_predictions.dense_prediction"),
]


def _detects(head: Any) -> bool:
    return isinstance(head, TaggingHead) and head.transform is not None


def _electra_mappings(model: Any) -> Mappings:
    if _detects(model.head):
        return DETECTION_MAPPINGS
    return [*ELECTRA_MAPPINGS, *classes(model)]


def _make_electra(arguments: dict[str, Any]) -> TextEncoder:
    if arguments["head"] == "detection":
        transform = HeadTransform(arguments["activation"])
        head = TaggingHead(1, dropout=0.0, transform=transform)
        arguments = _replace_head(arguments, head)
    return make_encoder(arguments, HEAD_ACTIVATION)


def _read_electra(model: TextEncoder) -> dict[str, Any]:
    arguments = read_encoder(model)
    if arguments["embedding_dim"] is None:
        arguments["embedding_dim"] = arguments["hidden_dim"]
    return {**arguments, **DETECTION} if _detects(model.head) else arguments


ELECTRA_CONFIGURATION = Configuration(
    name="electra",
    settings=(*bert_settings(30522), size("embedding_size", "embedding_dim", 128)),
    fixed={
        **{key: value for key, value in FIXED.items() if key != "embedding_dim"},
        "pooler_activation": "gelu",
    },
    settled={"position_embedding_type": ("absolute",), "pad_token_id": (0, None)},
    # Those of the summary belong to multiple choice alone.
    without_effect=frozenset({"classifier_dropout", "summary_type", "summary_use_proj"})
    | {"summary_activation", "summary_first_dropout", "summary_last_dropout"}
    | {"summary_proj_to_labels"},
)
ELECTRA = Family(
    configuration=ELECTRA_CONFIGURATION,
    weights=bert_weights("electra", "Electra", _electra_mappings, width="embedding_size"),
    model=TextEncoder,
    **text_classes("Electra", ENCODER_HEADS, ElectraForPreTraining=DETECTION),
    make=_make_electra,
    read=_read_electra,
)


DEFAULT_WAVELENGTHS = (160_000.0, 10_000.0)  # of global and of local layers


def _modernbert_norm(arguments: Mapping[str, Any]) -> keras.layers.LayerNormalization:
    epsilon, center = arguments["norm_epsilon"], arguments["norm_bias"]
    return keras.layers.LayerNormalization(epsilon=epsilon, center=center)


def _modernbert_blocks(arguments: Mapping[str, Any]) -> list[EncoderBlock]:
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
            norm_first=True,
            mixer=attentions[local],
            feed_forward=network,
            norm=_modernbert_norm(arguments),
        )
        for i, local in enumerate(arguments["local"])
    ]


def _modernbert_embedding(arguments: Mapping[str, Any]) -> TextEmbedding:
    return TextEmbedding(
        arguments["vocab_size"],
        arguments["hidden_dim"],
        None,
        padding_id=arguments["padding_id"],
        norm=_modernbert_norm(arguments),
    )


def _modernbert_head(arguments: Mapping[str, Any]) -> keras.layers.Layer | None:
    act, bias = arguments["head_activation"], arguments["head_bias"]
    transform = HeadTransform(act, _modernbert_norm(arguments), bias)
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
        block=_modernbert_blocks(arguments),
        embedding=_modernbert_embedding(arguments),
        head=_modernbert_head(arguments),
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
        **_read_modernbert_head(model.head),
    }


def _read_modernbert_head(head: Any) -> dict[str, Any]:
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


MODERNBERT_MAPPINGS = [
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
    mappings=lambda model: MODERNBERT_MAPPINGS,
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
