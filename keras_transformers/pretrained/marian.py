"""Marian's translators, among them OPUS-MT (Tiedemann & Thottingal 2020)."""

from keras_transformers.models import Transformer
from keras_transformers.pretrained.bart import (
    BIAS,
    COMPUTED_POSITIONS,
    IN_TRAINING,
    SHARED,
    TABLES,
    settings_of_both_stacks,
)
from keras_transformers.pretrained.configuration import (
    Combined,
    Configuration,
    Setting,
    activation,
    number,
    size,
)
from keras_transformers.pretrained.family import Family, Weights
from keras_transformers.pretrained.tensor_layouts import AsIs
from keras_transformers.pretrained.translator_parts import make_translator, translator_keywords
from keras_transformers.pretrained.weight_mapping import Mappings, WeightMapping, bart_layers

APART: Mappings = [
    WeightMapping("source_embedding/token_embedding", TABLES[0]),
    WeightMapping("target_embedding/token_embedding", TABLES[1], also=("lm_head.weight",)),
    WeightMapping("target_embedding/logits_bias", BIAS, AsIs(lead=1)),
]


def _mappings(model: Transformer) -> Mappings:
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
    mappings=_mappings,
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
    arguments=translator_keywords,
)
