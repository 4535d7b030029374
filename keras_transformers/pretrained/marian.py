"""Marian's translators, among them OPUS-MT (Tiedemann & Thottingal 2020)."""

from typing import Any

import numpy as np
from keras import ops

from keras_transformers.annotations import Array
from keras_transformers.layers import sinusoidal_encoding
from keras_transformers.models import Transformer
from keras_transformers.models.transformer_variants import transformer_keywords
from keras_transformers.pretrained.configuration import (
    Configuration,
    Setting,
    activation,
    for_both,
    number,
    one_for_both,
    size,
)
from keras_transformers.pretrained.family import Family, Weights
from keras_transformers.pretrained.tensor_layouts import AsIs
from keras_transformers.pretrained.weight_mapping import Computed, WeightMapping, bart_layers

BOTH = ("num_heads", "mlp_dim")


def _make(arguments: dict[str, Any]) -> Any:
    arguments = one_for_both(arguments, BOTH)
    shared = arguments.pop("shared")
    if shared and arguments["target_vocab_size"] != arguments["vocab_size"]:
        raise ValueError(
            "With `share_encoder_decoder_embeddings` both sides must have one `vocab_size`. "
            f"Received: {arguments['vocab_size']} and {arguments['target_vocab_size']}"
        )
    if shared:
        arguments["target_vocab_size"] = None
    model = Transformer.from_variant("base", **arguments)
    model.build({"source": (None, None), "target": (None, None)})
    return model


def _arguments(model: Any) -> dict[str, Any]:
    arguments = transformer_keywords(model)
    shared = arguments["target_vocab_size"] is None
    arguments["shared"] = shared
    if shared:
        arguments["target_vocab_size"] = arguments["vocab_size"]
    return for_both(arguments, BOTH)


def _positions(shape: tuple[int, ...]) -> Array:
    table = sinusoidal_encoding(ops.arange(shape[0]), shape[1], layout="halves")
    return np.asarray(ops.convert_to_numpy(table))


BIAS = "final_logits_bias"
TABLES = [f"model.{side}.embed_tokens.weight" for side in ("encoder", "decoder")]
SHARED = [
    WeightMapping(
        "source_embedding/token_embedding", "model.shared.weight", also=(*TABLES, "lm_head.weight")
    ),
    WeightMapping("source_embedding/logits_bias", BIAS, AsIs(lead=1)),
]
APART = [
    WeightMapping("source_embedding/token_embedding", TABLES[0]),
    WeightMapping("target_embedding/token_embedding", TABLES[1], also=("lm_head.weight",)),
    WeightMapping("target_embedding/logits_bias", BIAS, AsIs(lead=1)),
]
MAPPINGS = [
    *bart_layers(),
    Computed("model.encoder.embed_positions.weight", _positions),
    Computed("model.decoder.embed_positions.weight", _positions),
]

MARIAN_CONFIGURATION = Configuration(
    name="marian",
    settings=(
        size("vocab_size", "vocab_size", 58101),
        size(
            "decoder_vocab_size",
            "target_vocab_size",
            lambda config: config.get("vocab_size", 58101),
        ),
        size("d_model", "hidden_dim", 1024),
        size("encoder_layers", "num_layers", 12),
        size("decoder_layers", "num_decoder_layers", 12),
        size("encoder_attention_heads", "num_heads", 16),
        size("decoder_attention_heads", "decoder_num_heads", 16),
        size("encoder_ffn_dim", "mlp_dim", 4096),
        size("decoder_ffn_dim", "decoder_mlp_dim", 4096),
        activation("activation_function", "activation", "gelu"),
        number("dropout", "dropout", 0.1),
        number("attention_dropout", "attention_dropout", 0.0),
        Setting("scale_embedding", "scale_embedding", False, bool),
        Setting("share_encoder_decoder_embeddings", "shared", True, bool),
        number("pad_token_id", "padding_id", 58100),
    ),
    fixed={
        "norm_first": False,
        "positions": "halves",
        "encoder_block": None,
        "decoder_block": None,
        "embedding": None,
        "norm_epsilon": 1e-5,
        "logits_bias": True,
    },
    settled={
        "normalize_before": (False,),
        "normalize_embedding": (False,),
        "add_final_layer_norm": (False,),
        "static_position_embeddings": (True,),
        "add_bias_logits": (False, True),
    },
    # Positions have no end here, and none is set apart; the others act in training alone.
    without_effect=frozenset("max_position_embeddings num_hidden_layers activation_dropout".split())
    | {"extra_pos_embeddings"}
    | frozenset("encoder_layerdrop decoder_layerdrop classif_dropout classifier_dropout".split()),
)
MARIAN_WEIGHTS = Weights(
    mappings=lambda model: [*(APART if len(_tables(model)) > 1 else SHARED), *MAPPINGS],
    sizes={
        ("model.shared.weight", TABLES[0]): ("vocab_size", "d_model"),
        ("model.shared.weight", TABLES[1]): ("decoder_vocab_size", "d_model"),
        "model.encoder.layers.0.fc1.weight": ("encoder_ffn_dim", "d_model"),
    },
    layers={"encoder_layers": "model.encoder.layers.", "decoder_layers": "model.decoder.layers."},
)
MARIAN = Family(
    configuration=MARIAN_CONFIGURATION,
    weights=MARIAN_WEIGHTS,
    model=Transformer,
    architectures={"MarianMTModel": {}},
    tasks={"translation": "MarianMTModel"},
    make=_make,
    arguments=_arguments,
)


def _tables(model: Transformer) -> set[int]:
    return {id(table) for table in (model.source_embedding, model.target_embedding)}
