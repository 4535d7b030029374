"""Families of `Transformer`: BART, mBART, PEGASUS, M2M-100, NLLB, Marian, T5 and mT5."""

from collections.abc import Mapping
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_transformers import layers
from keras_transformers.core.types import Array
from keras_transformers.models import Transformer
from keras_transformers.pretrained.family import (
    Combined,
    Configuration,
    Family,
    Setting,
    Weights,
    activation,
    number,
    positive,
    read_activation,
    size,
    write_activation,
)
from keras_transformers.pretrained.weight_mapping import (
    LINEAR,
    OUTPUT,
    AsIs,
    Computed,
    Mappings,
    WeightMapping,
    bart_layers,
    norm,
)

EPSILON = 1e-5  # of every norm
OFFSET = 2  # rows of BART's tables of positions in front of that of the first token


def make_translator(arguments: dict[str, Any]) -> Transformer:
    """Makes a translator of flat arguments.

    Raises:
        ValueError: If the sizes of the vocabularies do not fit, or heads do not divide the width.
    """
    vocab_sizes = arguments["vocab_size"], arguments["target_vocab_size"]
    if arguments["shared"] and vocab_sizes[0] != vocab_sizes[1]:
        raise ValueError(
            "With `share_encoder_decoder_embeddings` both sides must have one `vocab_size`. "
            f"Received: {vocab_sizes[0]} and {vocab_sizes[1]}"
        )
    width = arguments["hidden_dim"]
    for name in ("num_heads", "decoder_num_heads"):
        if width % arguments[name]:
            raise ValueError(f"`{name}` must divide the width {width}. Received: {arguments[name]}")
    target = _table(arguments, vocab_sizes[1], arguments["logits_bias"])
    both = (_table(arguments, vocab_sizes[0], False), target)
    attention = {"dropout": arguments["attention_dropout"]}
    heads, decoder_heads = arguments["num_heads"], arguments["decoder_num_heads"]
    return Transformer(
        num_layers=(arguments["num_layers"], arguments["num_decoder_layers"]),
        dropout=arguments["dropout"],
        embedding=target if arguments["shared"] else both,
        positions=_positions(arguments),
        encoder_block=layers.EncoderBlock(
            mixer=layers.SelfAttention(heads, **attention),
            **_shared_parts(arguments, arguments["mlp_dim"]),
        ),
        decoder_block=layers.DecoderBlock(
            mixer=layers.CausalSelfAttention(decoder_heads, **attention),
            cross_attention=layers.CrossAttention(decoder_heads, **attention),
            **_shared_parts(arguments, arguments["decoder_mlp_dim"]),
        ),
    )


def _table(arguments: dict[str, Any], rows: int, logits_bias: bool) -> layers.TokenEmbedding:
    return layers.TokenEmbedding(
        rows,
        arguments["hidden_dim"],
        arguments["scale_embedding"],
        logits_bias=logits_bias,
        padding_id=arguments["padding_id"],
    )


def _positions(arguments: dict[str, Any]) -> Any:
    """Makes sines as Marian has them, or as fairseq; or two tables, each with a norm behind it."""
    if arguments["positions"] == "halves":
        return layers.PositionalEncoding(layout="halves")
    if arguments["positions"] == "fairseq":
        # Its slowest rate is 1 / 10000 itself; and positions are numbered from the padding's on.
        width = arguments["hidden_dim"]
        if width % 2 or width < 4:
            raise ValueError(f"`d_model` must be even and at least 4. Received: {width}")
        slowest = 10000.0 ** (width / (width - 2))
        return layers.PositionalEncoding(slowest, "add", "halves", arguments["padding_id"] + 1)
    norm = keras.layers.LayerNormalization(epsilon=EPSILON)
    rows = arguments["table_rows"]
    source, target = (
        layers.PositionEmbedding(rows, first_position=OFFSET, norm=norm) for _ in range(2)
    )
    return source, target


def _shared_parts(arguments: dict[str, Any], mlp_dim: int) -> dict[str, Any]:
    """Returns the arguments of a block that are the same in encoder and decoder."""
    return {
        "dropout": arguments["dropout"],
        "feed_forward": layers.FeedForward(mlp_dim, arguments["activation"]),
        "norm_first": arguments["norm_first"],
        "norm": keras.layers.LayerNormalization(epsilon=EPSILON),
    }


def translator_shape(arguments: dict[str, Any]) -> dict[str, Any]:
    """Returns the shape that a translator is built for."""
    return {"source": (None, None), "target": (None, None)}


def read_translator(model: Transformer) -> dict[str, Any]:
    """Returns the arguments that `make_translator` makes such a model of."""
    source, target = model.source_embedding, model.target_embedding
    encoder, decoder = model.encoder_blocks[0], model.decoder_blocks[0]
    arguments = {
        "vocab_size": source.vocab_size,
        "target_vocab_size": target.vocab_size,
        "shared": source is target,
        "hidden_dim": target.hidden_dim,
        "scale_embedding": target.scale,
        "logits_bias": target.logits_bias,
        "padding_id": model.padding_id,
        "num_layers": len(model.encoder_blocks),
        "num_decoder_layers": len(model.decoder_blocks),
        "num_heads": encoder.mixer.num_heads,
        "decoder_num_heads": decoder.mixer.num_heads,
        "mlp_dim": encoder.feed_forward.mlp_dim,
        "decoder_mlp_dim": decoder.feed_forward.mlp_dim,
        "dropout": model.configuration.dropout,
        "attention_dropout": encoder.mixer.dropout,
        "norm_first": encoder.norm_first,
        "activation": keras.activations.serialize(encoder.feed_forward.activation),
    }
    positions = model.source_positions
    if isinstance(positions, layers.PositionEmbedding):
        return {**arguments, "positions": "learned", "table_rows": positions.max_length}
    kind = "fairseq" if positions.first_position else "halves"
    return {**arguments, "positions": kind}


BIAS = "final_logits_bias"
TABLES = [f"model.{side}.embed_tokens.weight" for side in ("encoder", "decoder")]
SHARED: Mappings = [
    WeightMapping(
        "source_embedding/token_embedding", "model.shared.weight", also=(*TABLES, "lm_head.weight")
    ),
    WeightMapping("source_embedding/logits_bias", BIAS, AsIs(lead=1)),
]


def _sines(shape: tuple[int, ...]) -> Array:
    table = layers.sinusoidal_encoding(ops.arange(shape[0]), shape[1], layout="halves")
    return np.asarray(ops.convert_to_numpy(table))


# Of Marian and PEGASUS; they are in the files.
COMPUTED_POSITIONS: Mappings = [
    Computed("model.encoder.embed_positions.weight", _sines),
    Computed("model.decoder.embed_positions.weight", _sines),
]
SIDES = {"source": "encoder", "target": "decoder"}
POSITIONS: Mappings = [
    mapping
    for ours, theirs in SIDES.items()
    for mapping in (
        WeightMapping(
            f"{ours}_positions/position_embedding", f"model.{theirs}.embed_positions.weight"
        ),
        *norm(f"{ours}_positions/norm", f"model.{theirs}.layernorm_embedding"),
    )
]
CLOSING_NORMS: Mappings = [
    mapping
    for side in SIDES.values()
    for mapping in norm(f"{side}_norm", f"model.{side}.layer_norm")
]


def settings_of_both_stacks(width: int, depth: int, heads: int, hidden: int) -> tuple[Setting, ...]:
    """The sizes of encoder and decoder, with what they are where nothing is said."""
    return (
        size("d_model", "hidden_dim", width),
        size("encoder_layers", "num_layers", depth),
        size("decoder_layers", "num_decoder_layers", depth),
        size("encoder_attention_heads", "num_heads", heads),
        size("decoder_attention_heads", "decoder_num_heads", heads),
        size("encoder_ffn_dim", "mlp_dim", hidden),
        size("decoder_ffn_dim", "decoder_mlp_dim", hidden),
    )


# They act in training alone.
IN_TRAINING = frozenset("num_hidden_layers activation_dropout encoder_layerdrop".split())
IN_TRAINING |= {"decoder_layerdrop", "classifier_dropout", "classif_dropout"}


def _rows(value: Any) -> int:
    return positive(value) + OFFSET


def _bart_settings(defaults: Mapping[str, Any]) -> tuple[Setting, ...]:
    """The settings of all of them, with what they are where nothing is said."""
    return (
        size("vocab_size", "vocab_size", defaults.get("vocab_size", 50265)),
        *settings_of_both_stacks(1024, 12, 16, 4096),
        activation("activation_function", "activation", defaults["activation"]),
        number("dropout", "dropout", 0.1),
        number("attention_dropout", "attention_dropout", defaults.get("attention_dropout", 0.0)),
        Setting("scale_embedding", "scale_embedding", defaults.get("scale_embedding", False), bool),
        number("pad_token_id", "padding_id", defaults.get("padding_id", 1)),
    )


def _bart_family(
    name: str,
    kind: str,
    task: str,
    defaults: Mapping[str, Any],
    fixed: Mapping[str, Any],
    mappings: Mappings,
    settled: Mapping[str, Any] | None = None,
    without_effect: frozenset[str] = frozenset(),
) -> Family:
    """One whose layers are called as BART's, and that has one table of tokens.

    Args:
        name: Its `model_type`.
        kind: Published class.
        task: What that does.
        defaults: Of those settings that differ, what they are where nothing is said.
        fixed: As for `Configuration`.
        mappings: Those beside `bart_layers`.
        settled, without_effect: As for `Configuration`.
    """
    settings = _bart_settings(defaults)
    sizes: dict[Any, tuple[Any, ...]] = {
        ("model.shared.weight", *TABLES): ("vocab_size", "d_model"),
        "model.encoder.layers.0.fc1.weight": ("encoder_ffn_dim", "d_model"),
        "model.decoder.layers.0.fc1.weight": ("decoder_ffn_dim", "d_model"),
    }
    if fixed["positions"] == "learned":
        rows = Setting("max_position_embeddings", "table_rows", 1024, _rows, lambda x: x - OFFSET)
        settings += (rows,)
        sizes["model.encoder.embed_positions.weight"] = ("max_position_embeddings", "d_model")
    else:  # they have no end
        without_effect = without_effect | {"max_position_embeddings"}
    return Family(
        configuration=Configuration(
            name=name,
            settings=settings,
            fixed={**fixed, "shared": True},
            settled=settled or {},
            without_effect=IN_TRAINING | without_effect,
        ),
        weights=Weights(
            mappings=lambda model: [*SHARED, *bart_layers(), *mappings],
            sizes=sizes,
            layers={
                "encoder_layers": "model.encoder.layers.",
                "decoder_layers": "model.decoder.layers.",
            },
        ),
        model=Transformer,
        architectures={kind: {}},
        tasks={task: kind},
        make=lambda x: make_translator({**x, "target_vocab_size": x["vocab_size"]}),
        read=read_translator,
        shape=translator_shape,
    )


BART = _bart_family(
    "bart",
    "BartForConditionalGeneration",
    "summarization",
    defaults={"activation": "gelu"},
    fixed={"norm_first": False, "positions": "learned", "logits_bias": True},
    mappings=POSITIONS,
    settled={
        "normalize_before": (False,),
        "normalize_embedding": (True,),
        "add_final_layer_norm": (False,),
        "static_position_embeddings": (False,),
        "add_bias_logits": (False, True),
    },
    without_effect=frozenset({"extra_pos_embeddings"}),
)
MBART = _bart_family(
    "mbart",
    "MBartForConditionalGeneration",
    "translation",
    defaults={"activation": "gelu"},
    fixed={"norm_first": True, "positions": "learned", "logits_bias": True},
    mappings=[*POSITIONS, *CLOSING_NORMS],
    settled={
        "normalize_before": (True,),
        "normalize_embedding": (True,),
        "add_final_layer_norm": (True,),
        "static_position_embeddings": (False,),
        "add_bias_logits": (False, True),
    },
    without_effect=frozenset({"extra_pos_embeddings", "max_length"}),
)
PEGASUS = _bart_family(
    "pegasus",
    "PegasusForConditionalGeneration",
    "summarization",
    defaults={"activation": "gelu", "padding_id": 0},
    fixed={"norm_first": True, "positions": "halves", "logits_bias": True},
    mappings=[*CLOSING_NORMS, *COMPUTED_POSITIONS],
    settled={
        "normalize_before": (True,),
        "normalize_embedding": (False,),
        "add_final_layer_norm": (True,),
        "static_position_embeddings": (True,),
        "add_bias_logits": (False, True),
    },
    without_effect=frozenset({"extra_pos_embeddings"}),
)
M2M_100 = _bart_family(
    "m2m_100",
    "M2M100ForConditionalGeneration",
    "translation",
    defaults={
        "activation": "relu",
        "vocab_size": 128112,
        "attention_dropout": 0.1,
        "scale_embedding": True,
    },
    fixed={"norm_first": True, "positions": "fairseq", "logits_bias": False},
    mappings=CLOSING_NORMS,
)


APART: Mappings = [
    WeightMapping("source_embedding/token_embedding", TABLES[0]),
    WeightMapping("target_embedding/token_embedding", TABLES[1], also=("lm_head.weight",)),
    WeightMapping("target_embedding/logits_bias", BIAS, AsIs(lead=1)),
]


def _marian_mappings(model: Transformer) -> Mappings:
    shared = model.source_embedding is model.target_embedding
    return [*(SHARED if shared else APART), *bart_layers(), *COMPUTED_POSITIONS]


# Translations begin with padding. Without this setting `transformers` takes 58100, which is padding
# in the first vocabulary that was published.
START = Combined(
    "padding_id",
    ("decoder_start_token_id",),
    read=lambda config: config["pad_token_id"],
    write=lambda arguments: {"decoder_start_token_id": arguments["padding_id"]},
)
MARIAN_CONFIGURATION = Configuration(
    name="marian",
    settings=(
        size("vocab_size", "vocab_size", 58101),
        size(
            "decoder_vocab_size",
            "target_vocab_size",
            lambda config: config.get("vocab_size", 58101),
        ),
        *settings_of_both_stacks(1024, 12, 16, 4096),
        activation("activation_function", "activation", "gelu"),
        number("dropout", "dropout", 0.1),
        number("attention_dropout", "attention_dropout", 0.0),
        Setting("scale_embedding", "scale_embedding", False, bool),
        Setting("share_encoder_decoder_embeddings", "shared", True, bool),
        number("pad_token_id", "padding_id", 58100),
    ),
    combined=(START,),
    fixed={"norm_first": False, "positions": "halves", "logits_bias": True},
    settled={
        "normalize_before": (False,),
        "normalize_embedding": (False,),
        "add_final_layer_norm": (False,),
        "static_position_embeddings": (True,),
        "add_bias_logits": (False, True),
    },
    # Positions have no end here, and none is set apart.
    without_effect=IN_TRAINING | {"max_position_embeddings", "extra_pos_embeddings"},
)
MARIAN_WEIGHTS = Weights(
    mappings=_marian_mappings,
    sizes={
        ("model.shared.weight", TABLES[0]): ("vocab_size", "d_model"),
        ("model.shared.weight", TABLES[1]): ("decoder_vocab_size", "d_model"),
        "model.encoder.layers.0.fc1.weight": ("encoder_ffn_dim", "d_model"),
        "model.decoder.layers.0.fc1.weight": ("decoder_ffn_dim", "d_model"),
    },
    layers={"encoder_layers": "model.encoder.layers.", "decoder_layers": "model.decoder.layers."},
)
MARIAN = Family(
    configuration=MARIAN_CONFIGURATION,
    weights=MARIAN_WEIGHTS,
    model=Transformer,
    architectures={"MarianMTModel": {}},
    tasks={"translation": "MarianMTModel"},
    make=make_translator,
    read=read_translator,
    shape=translator_shape,
)


GATED = "gated-"
T5_HEAD = "lm_head.weight"
T5_TABLES = ("shared.weight", "encoder.embed_tokens.weight", "decoder.embed_tokens.weight")
# The first is of its classifiers; the last two follow from `feed_forward_proj`.
T5_WITHOUT_EFFECT = frozenset("classifier_dropout output_past n_positions".split())
T5_WITHOUT_EFFECT |= {"dense_act_fn", "is_gated_act"}
# Of each block the branches in their order, and what the published code calls each.
T5_BRANCHES = {
    "encoder": (("mixer", "SelfAttention"), ("feed_forward", "DenseReluDense")),
    "decoder": (
        ("mixer", "SelfAttention"),
        ("cross_attention", "EncDecAttention"),
        ("feed_forward", "DenseReluDense"),
    ),
}


def read_network(value: str) -> tuple[bool, str]:
    """Returns whether `feed_forward_proj` names a gated network, and the activation."""
    gated = str(value).startswith(GATED)
    name = str(value).removeprefix(GATED)
    return gated, read_activation("gelu_new" if gated and name == "gelu" else name)


def write_network(network: tuple[bool, str]) -> str:
    """Returns the `feed_forward_proj` that `read_network` reads so."""
    gated, activation = network
    name = write_activation(activation)
    if not gated:
        return name
    if name == "gelu":  # which would be read as the other
        raise ValueError("a gated network with gelu_tanh, not 'gelu'")
    return GATED + ("gelu" if name == "gelu_new" else name)


def make_t5(arguments: dict[str, Any]) -> Transformer:
    """Makes a model of flat arguments."""
    buckets, distance = arguments["num_buckets"], arguments["max_distance"]
    attention = {name: arguments[name] for name in ("num_heads", "key_dim", "dropout")}
    attention |= {"use_bias": False, "score": "dot"}
    gated, activation = arguments["network"]
    network = layers.GatedFeedForward if gated else layers.FeedForward
    dropout = arguments["dropout"]
    parts = {
        "dropout": dropout,
        "feed_forward": network(arguments["mlp_dim"], activation, dropout, use_bias=False),
        "norm": keras.layers.RMSNormalization(epsilon=arguments["norm_epsilon"]),
        "norm_first": True,
    }
    return Transformer(
        num_layers=(arguments["num_layers"], arguments["num_decoder_layers"]),
        dropout=dropout,
        embedding=layers.TokenEmbedding(
            arguments["vocab_size"],
            arguments["hidden_dim"],
            scale=False,
            padding_id=arguments["padding_id"],
            logits_scale=arguments["hidden_dim"] ** -0.5 if arguments["scale_logits"] else 1.0,
            tie_weights=arguments["tied"],
        ),
        positions=(
            layers.RelativePositionBias(buckets, distance, bidirectional=True),
            layers.RelativePositionBias(buckets, distance, bidirectional=False),
        ),
        encoder_block=layers.EncoderBlock(mixer=layers.SelfAttention(**attention), **parts),
        decoder_block=layers.DecoderBlock(
            mixer=layers.CausalSelfAttention(**attention),
            cross_attention=layers.CrossAttention(**attention),
            **parts,
        ),
    )


def read_t5(model: Transformer) -> dict[str, Any]:
    """Returns the arguments that `make_t5` makes such a model of."""
    tokens, bias, block = model.target_embedding, model.source_positions, model.encoder_blocks[0]
    network = block.feed_forward
    activation = keras.activations.serialize(network.activation)
    return {
        "vocab_size": tokens.vocab_size,
        "hidden_dim": tokens.hidden_dim,
        "padding_id": model.padding_id,
        "shared": model.source_embedding is tokens,
        "tied": tokens.tie_weights,
        "scale_logits": tokens.logits_scale != 1,
        "num_layers": len(model.encoder_blocks),
        "num_decoder_layers": len(model.decoder_blocks),
        "num_heads": block.mixer.num_heads,
        "key_dim": block.mixer.key_dim,
        "mlp_dim": network.mlp_dim,
        "network": (isinstance(network, layers.GatedFeedForward), activation),
        "dropout": model.configuration.dropout,
        "norm_epsilon": block.mixer_norm.epsilon,
        "num_buckets": bias.num_buckets,
        "max_distance": bias.max_distance,
    }


def _t5_mappings(model: Transformer) -> Mappings:
    also = (*T5_TABLES[1:], T5_HEAD) if model.source_embedding.tie_weights else T5_TABLES[1:]
    mappings: Mappings = [
        WeightMapping("source_embedding/token_embedding", T5_TABLES[0], also=also),
        WeightMapping("source_embedding/output_embedding", T5_HEAD),
    ]
    gated = isinstance(model.encoder_blocks[0].feed_forward, layers.GatedFeedForward)
    network = (("gate", "wi_0"), ("hidden", "wi_1")) if gated else (("hidden", "wi"),)
    linear = {
        "feed_forward": (*network, ("output", "wo")),
        "mixer": (("query", "q"), ("key", "k"), ("value", "v")),
    }
    linear["cross_attention"] = linear["mixer"]
    for ours, theirs in (("source", "encoder"), ("target", "decoder")):
        first = f"{theirs}.block.0.layer.0.SelfAttention.relative_attention_bias.weight"
        mappings += [
            WeightMapping(f"{ours}_positions/relative_bias", first),
            WeightMapping(f"{theirs}_norm/scale", f"{theirs}.final_layer_norm.weight"),
        ]
    for side, branches in T5_BRANCHES.items():
        for i, (branch, called) in enumerate(branches):
            ours, theirs = f"{side}_{{i}}/{branch}", f"{side}.block.{{i}}.layer.{i}"
            mappings.append(WeightMapping(f"{ours}_norm/scale", f"{theirs}.layer_norm.weight"))
            theirs = f"{theirs}.{called}"
            mappings += [
                WeightMapping(f"{ours}/{one}/kernel", f"{theirs}.{other}.weight", LINEAR)
                for one, other in linear[branch]
            ]
            if branch != "feed_forward":
                output = f"{ours}/attention_output/kernel"
                mappings.append(WeightMapping(output, f"{theirs}.o.weight", OUTPUT))
    return mappings


def _t5_settings(sizes: Mapping[str, int], network: str) -> tuple[Setting, ...]:
    """The settings of T5 and mT5, with what they are where nothing is said."""
    return (
        size("vocab_size", "vocab_size", sizes["vocab_size"]),
        size("d_model", "hidden_dim", 512),
        size("d_kv", "key_dim", 64),
        size("d_ff", "mlp_dim", sizes["d_ff"]),
        size("num_layers", "num_layers", sizes["num_layers"]),
        size(
            "num_decoder_layers",
            "num_decoder_layers",
            lambda config: config.get("num_layers", sizes["num_layers"]),
        ),
        size("num_heads", "num_heads", sizes["num_heads"]),
        size("relative_attention_num_buckets", "num_buckets", 32),
        size("relative_attention_max_distance", "max_distance", 128),
        number("dropout_rate", "dropout", 0.1),
        number("layer_norm_epsilon", "norm_epsilon", 1e-6),
        Setting("feed_forward_proj", "network", network, read_network, write_network),
        number("pad_token_id", "padding_id", 0),
    )


def _t5_family(
    name: str, kind: str, settings: tuple[Setting, ...], fixed: dict[str, Any]
) -> Family:
    """One of T5's family: its `model_type`, published class, settings and fixed arguments."""
    relative = "SelfAttention.relative_attention_bias.weight"
    return Family(
        configuration=Configuration(
            name=name,
            settings=settings,
            fixed={**fixed, "shared": True},
            # Whether there are two tables is seen from the file: `transformers` 5 writes True.
            settled={"tie_word_embeddings": (True, False)},
            without_effect=T5_WITHOUT_EFFECT,
        ),
        weights=Weights(
            mappings=_t5_mappings,
            sizes={
                T5_TABLES: ("vocab_size", "d_model"),
                f"encoder.block.0.layer.0.{relative}": (
                    "relative_attention_num_buckets",
                    "num_heads",
                ),
                "encoder.block.0.layer.1.DenseReluDense.wo.weight": ("d_model", "d_ff"),
            },
            layers={"num_layers": "encoder.block.", "num_decoder_layers": "decoder.block."},
            arguments=lambda names: {"tied": T5_HEAD not in names},
        ),
        model=Transformer,
        architectures={kind: {}},
        tasks={"text_to_text": kind},
        make=make_t5,
        read=read_t5,
        shape=translator_shape,
    )


def _scaled(config: dict[str, Any]) -> bool:
    return config.get("tie_word_embeddings") is not False


T5 = _t5_family(
    "t5",
    "T5ForConditionalGeneration",
    (
        *_t5_settings({"vocab_size": 32128, "d_ff": 2048, "num_layers": 6, "num_heads": 8}, "relu"),
        # Older files say by the first whether logits are scaled; where both are there, the second.
        Setting("tie_word_embeddings", "scale_logits", True, bool),
        Setting("scale_decoder_outputs", "scale_logits", _scaled, bool),
    ),
    fixed={},
)
MT5 = _t5_family(
    "mt5",
    "MT5ForConditionalGeneration",
    _t5_settings(
        {"vocab_size": 250112, "d_ff": 1024, "num_layers": 8, "num_heads": 6}, "gated-gelu"
    ),
    fixed={"scale_logits": False},
)
