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
from keras_transformers.layers.parts import serialized
from keras_transformers.models import Transformer
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
from keras_transformers.pretrained.parts import check_blocks, check_tables, refused, said
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
    """Whether the feed-forward networks are gated, and their activation, of `feed_forward_proj`."""
    gated = str(value).startswith(GATED)
    name = str(value).removeprefix(GATED)
    return gated, read_activation("gelu_new" if gated and name == "gelu" else name)


def write_network(network: tuple[bool, str]) -> str:
    """What `read_network` reads so."""
    gated, activation = network
    name = write_activation(activation)
    if not gated:
        return name
    if name == "gelu":  # which would be read as the other
        raise ValueError("a gated network with gelu_tanh, not 'gelu'")
    return GATED + ("gelu" if name == "gelu_new" else name)


def make_t5(given: dict[str, Any]) -> Transformer:
    """A built model of the keywords that `t5_keywords` gives."""
    model = Transformer(
        num_layers=(given["num_layers"], given["num_decoder_layers"]),
        dropout=given["dropout"],
        embedding=_table(given),
        positions=(_positions(given, True), _positions(given, False)),
        encoder_block=EncoderBlock(mixer=_attention(given, SelfAttention), **_of_both(given)),
        decoder_block=_decoder_block(given),
    )
    model.build({"source": (None, None), "target": (None, None)})
    return model


def _table(given: dict[str, Any]) -> TokenEmbedding:
    scale = given["hidden_dim"] ** -0.5 if given["scale_logits"] else 1.0
    names = {name: given[name] for name in ("vocab_size", "hidden_dim", "padding_id")}
    return TokenEmbedding(**names, scale=False, logits_scale=scale, tie_weights=given["tied"])


def _positions(given: dict[str, Any], bidirectional: bool) -> RelativePositionBias:
    return RelativePositionBias(given["num_buckets"], given["max_distance"], bidirectional)


def _attention(given: dict[str, Any], kind: type) -> Any:
    names = {name: given[name] for name in ("num_heads", "key_dim", "dropout")}
    return kind(**names, use_bias=False, score="dot")


def _of_both(given: dict[str, Any]) -> dict[str, Any]:
    gated, activation = given["network"]
    network = GatedFeedForward if gated else FeedForward
    return {
        "dropout": given["dropout"],
        "feed_forward": network(given["mlp_dim"], activation, given["dropout"], use_bias=False),
        "norm": keras.layers.RMSNormalization(epsilon=given["norm_epsilon"]),
        "norm_first": True,
    }


def _decoder_block(given: dict[str, Any]) -> DecoderBlock:
    return DecoderBlock(
        mixer=_attention(given, CausalSelfAttention),
        cross_attention=_attention(given, CrossAttention),
        **_of_both(given),
    )


def t5_keywords(model: Transformer) -> dict[str, Any]:
    """What `make_t5` makes such a model of.

    Args:
        model: Built.

    Raises:
        ValueError: If no keywords make such a model; the message names the part.
    """
    block, tokens = model.encoder_blocks[0], model.target_embedding
    bias, network = model.source_positions, block.feed_forward
    known = isinstance(bias, RelativePositionBias)
    if not known or not isinstance(network, FeedForward | GatedFeedForward):
        received = f"{type(bias).__name__} and {type(network).__name__}"
        raise refused(model, received, "with a RelativePositionBias and a FeedForward, as T5 is")
    found = {
        "vocab_size": tokens.vocab_size,
        "hidden_dim": tokens.hidden_dim,
        "padding_id": model.padding_id,
        "tied": tokens.tie_weights,
        "scale_logits": tokens.logits_scale != 1,
        "num_layers": len(model.encoder_blocks),
        "num_decoder_layers": len(model.decoder_blocks),
        "num_heads": getattr(block.mixer, "num_heads", None),
        "key_dim": getattr(block.mixer, "key_dim", None),
        "mlp_dim": network.mlp_dim,
        "network": (
            isinstance(network, GatedFeedForward),
            keras.activations.serialize(network.activation),
        ),
        "dropout": model.dropout_layer.rate,
        "norm_epsilon": getattr(block.mixer_norm, "epsilon", None),
        "num_buckets": bias.num_buckets,
        "max_distance": bias.max_distance,
    }
    for name in ("num_heads", "key_dim", "norm_epsilon"):
        if found[name] is None:
            raise refused(model, type(block.mixer).__name__, f"with {name}, as published ones are")
    table = _table(found)
    check_tables(model, table, table)
    ours = (model.source_positions, model.target_positions)
    for side, layer in zip((True, False), ours, strict=True):
        if said(serialized(layer)) != said(serialized(_positions(found, side))):
            raise refused(model, type(layer).__name__, "with biases of relative positions as in T5")
    encoder = EncoderBlock(mixer=_attention(found, SelfAttention), **_of_both(found))
    check_blocks(model, encoder, _decoder_block(found))
    return found


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
            fixed=fixed,
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
        arguments=t5_keywords,
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
