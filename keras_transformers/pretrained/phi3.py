"""Phi-3 (Abdin et al. 2024, https://arxiv.org/abs/2404.14219) and Phi-4."""

from keras_transformers.models import LanguageModel
from keras_transformers.pretrained.configuration import Configuration, activation, number
from keras_transformers.pretrained.decoder_parts import language_model_keywords, make_language_model
from keras_transformers.pretrained.decoder_settings import one_window, padding, rope
from keras_transformers.pretrained.family import Family, Weights
from keras_transformers.pretrained.heads import WITHOUT_SPANS, of_texts
from keras_transformers.pretrained.llama import (
    FIXED,
    LAYER,
    LAYERS,
    SETTLED,
    TABLE,
    WITHOUT_EFFECT,
    ends,
    norms,
    sizes_of_decoder,
)
from keras_transformers.pretrained.tensor_layouts import LINEAR, OUTPUT, Stacked
from keras_transformers.pretrained.weight_mapping import Mappings, WeightMapping

DEFAULTS = {
    "vocab_size": 32064,
    "hidden_size": 3072,
    "intermediate_size": 8192,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "rms_norm_eps": 1e-5,
}


def _mappings(model: LanguageModel) -> Mappings:
    mixer, network = model.decoder_blocks[0].mixer, model.decoder_blocks[0].feed_forward
    shared, key_dim, _ = mixer.head_dims
    fused = {
        "mixer": (
            f"{LAYER}.self_attn.qkv_proj.weight",
            {
                "query": mixer.num_heads * key_dim,
                "key": shared * key_dim,
                "value": shared * key_dim,
            },
        ),
        "feed_forward": (
            f"{LAYER}.mlp.gate_up_proj.weight",
            {"gate": network.mlp_dim, "hidden": network.mlp_dim},
        ),
    }
    mappings = [
        *ends(model),
        *norms(),
        WeightMapping(
            "decoder_{i}/mixer/attention_output/kernel", f"{LAYER}.self_attn.o_proj.weight", OUTPUT
        ),
        WeightMapping(
            "decoder_{i}/feed_forward/output/kernel", f"{LAYER}.mlp.down_proj.weight", LINEAR
        ),
    ]
    for part, (theirs, rows) in fused.items():
        for position, name in enumerate(rows):
            layout = Stacked(position, tuple(rows.values()), LINEAR)
            mappings.append(WeightMapping(f"decoder_{{i}}/{part}/{name}/kernel", theirs, layout))
    return mappings


PHI3 = Family(
    configuration=Configuration(
        name="phi3",
        settings=(
            *sizes_of_decoder(DEFAULTS),
            activation("hidden_act", "activation", "silu"),
            number("resid_pdrop", "dropout", 0.0),
        ),
        combined=(padding(32000), rope(4096, partial=True, original_length=4096), one_window(None)),
        fixed={name: value for name, value in FIXED.items() if name != "windows"},
        settled=SETTLED,
        # Nobody reads them: no projection has a bias, and code in a folder is never run.
        without_effect=WITHOUT_EFFECT | {"embd_pdrop", "attention_bias", "auto_map"},
    ),
    weights=Weights(
        mappings=_mappings,
        sizes={
            **TABLE,
            "model.layers.0.mlp.down_proj.weight": ("hidden_size", "intermediate_size"),
        },
        layers=LAYERS,
    ),
    model=LanguageModel,
    **of_texts("Phi3", WITHOUT_SPANS),
    make=make_language_model,
    arguments=language_model_keywords,
)
