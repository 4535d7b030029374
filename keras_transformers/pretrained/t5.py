"""T5, version 1.1 too (Raffel et al. 2020), Flan-T5 (Chung et al. 2022), mT5 (Xue et al. 2021)."""

from collections.abc import Mapping
from typing import Any

import keras

from keras_transformers.layers import (
    CausalSelfAttention,
    CrossAttention,
    DecoderBlock,
    EncoderBlock,
    FeedForward,
    GatedFeedForward,
    RelativePositionBias,
    SelfAttention,
    TokenEmbedding,
)
from keras_transformers.models import Transformer
from keras_transformers.pretrained.bart import translator_shape
from keras_transformers.pretrained.family import (
    Configuration,
    Family,
    Setting,
    Weights,
    number,
    read_activation,
    size,
    write_activation,
)
from keras_transformers.pretrained.weight_mapping import LINEAR, OUTPUT, Mappings, WeightMapping

GATED = "gated-"
HEAD = "lm_head.weight"
TABLES = ("shared.weight", "encoder.embed_tokens.weight", "decoder.embed_tokens.weight")
# The first is of its classifiers; the last two follow from `feed_forward_proj`.
WITHOUT_EFFECT = frozenset("classifier_dropout output_past n_positions".split())
WITHOUT_EFFECT |= {"dense_act_fn", "is_gated_act"}
# Of each block the branches in their order, and what the published code calls each.
BRANCHES = {
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
    network = GatedFeedForward if gated else FeedForward
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
        embedding=TokenEmbedding(
            arguments["vocab_size"],
            arguments["hidden_dim"],
            scale=False,
            padding_id=arguments["padding_id"],
            logits_scale=arguments["hidden_dim"] ** -0.5 if arguments["scale_logits"] else 1.0,
            tie_weights=arguments["tied"],
        ),
        positions=(
            RelativePositionBias(buckets, distance, bidirectional=True),
            RelativePositionBias(buckets, distance, bidirectional=False),
        ),
        encoder_block=EncoderBlock(mixer=SelfAttention(**attention), **parts),
        decoder_block=DecoderBlock(
            mixer=CausalSelfAttention(**attention),
            cross_attention=CrossAttention(**attention),
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
        "network": (isinstance(network, GatedFeedForward), activation),
        "dropout": model.configuration.dropout,
        "norm_epsilon": block.mixer_norm.epsilon,
        "num_buckets": bias.num_buckets,
        "max_distance": bias.max_distance,
    }


def _mappings(model: Transformer) -> Mappings:
    also = (*TABLES[1:], HEAD) if model.source_embedding.tie_weights else TABLES[1:]
    mappings: Mappings = [
        WeightMapping("source_embedding/token_embedding", TABLES[0], also=also),
        WeightMapping("source_embedding/output_embedding", HEAD),
    ]
    gated = isinstance(model.encoder_blocks[0].feed_forward, GatedFeedForward)
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
    for side, branches in BRANCHES.items():
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


def _settings(sizes: Mapping[str, int], network: str) -> tuple[Setting, ...]:
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


def _family(name: str, kind: str, settings: tuple[Setting, ...], fixed: dict[str, Any]) -> Family:
    """One of T5's family: its `model_type`, published class, settings and fixed arguments."""
    relative = "SelfAttention.relative_attention_bias.weight"
    return Family(
        configuration=Configuration(
            name=name,
            settings=settings,
            fixed={**fixed, "shared": True},
            # Whether there are two tables is seen from the file: `transformers` 5 writes True.
            settled={"tie_word_embeddings": (True, False)},
            without_effect=WITHOUT_EFFECT,
        ),
        weights=Weights(
            mappings=_mappings,
            sizes={
                TABLES: ("vocab_size", "d_model"),
                f"encoder.block.0.layer.0.{relative}": (
                    "relative_attention_num_buckets",
                    "num_heads",
                ),
                "encoder.block.0.layer.1.DenseReluDense.wo.weight": ("d_model", "d_ff"),
            },
            layers={"num_layers": "encoder.block.", "num_decoder_layers": "decoder.block."},
            arguments=lambda names: {"tied": HEAD not in names},
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


T5 = _family(
    "t5",
    "T5ForConditionalGeneration",
    (
        *_settings({"vocab_size": 32128, "d_ff": 2048, "num_layers": 6, "num_heads": 8}, "relu"),
        # Older files say by the first whether logits are scaled; where both are there, the second.
        Setting("tie_word_embeddings", "scale_logits", True, bool),
        Setting("scale_decoder_outputs", "scale_logits", _scaled, bool),
    ),
    fixed={},
)
MT5 = _family(
    "mt5",
    "MT5ForConditionalGeneration",
    _settings({"vocab_size": 250112, "d_ff": 1024, "num_layers": 8, "num_heads": 6}, "gated-gelu"),
    fixed={"scale_logits": False},
)
