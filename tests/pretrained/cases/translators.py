"""Models from sequence to sequence that tests compare with."""

from tests.pretrained.cases.of import of

SMALL_MARIAN = {
    "vocab_size": 31,
    "d_model": 12,
    "encoder_layers": 2,
    "decoder_layers": 1,
    "encoder_attention_heads": 3,
    "decoder_attention_heads": 3,
    "encoder_ffn_dim": 20,
    "decoder_ffn_dim": 20,
    "max_position_embeddings": 32,
    "activation_function": "swish",
    "scale_embedding": True,
    "pad_token_id": 30,
    "decoder_start_token_id": 30,
    "eos_token_id": 0,
    "forced_eos_token_id": 0,
}
ODD_MARIAN = {
    **SMALL_MARIAN,
    "d_model": 20,
    "encoder_layers": 1,
    "decoder_layers": 2,
    "encoder_attention_heads": 5,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 28,
    "activation_function": "relu",
    "scale_embedding": False,
    "share_encoder_decoder_embeddings": False,
    "decoder_vocab_size": 31,
}
SMALL_BART = {
    "vocab_size": 31,
    "d_model": 12,
    "encoder_layers": 2,
    "decoder_layers": 1,
    "encoder_attention_heads": 3,
    "decoder_attention_heads": 3,
    "encoder_ffn_dim": 20,
    "decoder_ffn_dim": 20,
    "max_position_embeddings": 32,
    "pad_token_id": 1,
    "bos_token_id": 0,
    "eos_token_id": 30,
    "decoder_start_token_id": 30,
    "forced_eos_token_id": None,
}
# Encoder and decoder of different sizes, and what the published ones have otherwise.
ODD_BART = {
    **SMALL_BART,
    "d_model": 20,
    "encoder_layers": 1,
    "decoder_layers": 2,
    "encoder_attention_heads": 5,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 28,
    "activation_function": "gelu_new",
    "decoder_start_token_id": 0,
    "scale_embedding": True,
}
OF_BART = {
    "bart": ("BartConfig", "BartForConditionalGeneration", {}),
    "mbart": ("MBartConfig", "MBartForConditionalGeneration", {}),
    "pegasus": ("PegasusConfig", "PegasusForConditionalGeneration", {"pad_token_id": 0}),
    "m2m_100": ("M2M100Config", "M2M100ForConditionalGeneration", {}),
}
SMALL_T5 = {
    "vocab_size": 31,
    "d_model": 12,
    "d_kv": 5,
    "d_ff": 20,
    "num_layers": 2,
    "num_decoder_layers": 1,
    "num_heads": 3,
    "relative_attention_num_buckets": 8,
    "relative_attention_max_distance": 6,
    "eos_token_id": 30,
    "decoder_start_token_id": 0,
}
ODD_T5 = {
    **SMALL_T5,
    "num_layers": 2,
    "num_decoder_layers": 2,  # `transformers` 5.24 caches no more layers than the encoder has
    "num_heads": 2,
    "feed_forward_proj": "gated-gelu",
    "layer_norm_epsilon": 1e-3,
    "tie_word_embeddings": False,
}
HEAD = {"lm_head.weight": (31, 12)}  # `transformers` ties a model that it makes

CASES = {
    **of(
        "MarianConfig",
        "marian",
        {"marian": ("MarianMTModel", SMALL_MARIAN), "marian_odd": ("MarianMTModel", ODD_MARIAN)},
        max_length=20,
        end_id=0,
        kept=("embed_positions.weight",),
    ),
    **{
        f"{name}{ending}": {
            "config_class": config_class,
            "run": "marian",
            "class": kind,
            "config": {**config, **own},
            "max_length": 20,
            "end_id": 30,
            "start_id": config["decoder_start_token_id"],
            "kept": ("embed_positions.weight",) if name == "pegasus" else (),
        }
        for name, (config_class, kind, own) in OF_BART.items()
        for ending, config in (("", SMALL_BART), ("_odd", ODD_BART))
    },
    **{
        name: {
            "config_class": f"{kind}Config",
            "run": "marian",
            "class": f"{kind}ForConditionalGeneration",
            "config": config,
            "max_length": 20,
            "end_id": 30,
            "family": kind.lower(),
            "more": more,
        }
        for name, kind, config, more in (
            ("t5", "T5", SMALL_T5, {}),
            ("t5_odd", "T5", ODD_T5, HEAD),
            ("mt5", "MT5", {**SMALL_T5, "feed_forward_proj": "gated-gelu"}, {}),
        )
    },
}
# The defaults of the configuration are those of no published one.
OPUS = {
    **{key: SMALL_MARIAN[key] for key in ("activation_function", "scale_embedding")},
    "vocab_size": 58101,
    "d_model": 512,
    "encoder_layers": 6,
    "decoder_layers": 6,
    "encoder_attention_heads": 8,
    "decoder_attention_heads": 8,
    "encoder_ffn_dim": 2048,
    "decoder_ffn_dim": 2048,
    "max_position_embeddings": 512,
    "pad_token_id": 58100,
    "decoder_start_token_id": 58100,
    "eos_token_id": 0,
    "forced_eos_token_id": 0,
}
# NLLB's distilled one of 600 million weights, but for where its marks are.
NLLB = {
    "vocab_size": 256206,
    "max_position_embeddings": 1024,
    "pad_token_id": 1,
    "eos_token_id": 256205,
    "decoder_start_token_id": 256205,
}
T5_SMALL = {"vocab_size": 32128, "eos_token_id": 32127, "decoder_start_token_id": 0}
LARGE = {
    **of(
        "MarianConfig",
        "marian",
        {"marian": ("MarianMTModel", OPUS)},
        max_length=24,
        end_id=0,
        kept=("embed_positions.weight",),
    ),
    **of(
        "M2M100Config",
        "marian",
        {"m2m_100": ("M2M100ForConditionalGeneration", NLLB)},
        max_length=24,
        end_id=256205,
        start_id=256205,
    ),
    **of(
        "T5Config",
        "marian",
        {"t5": ("T5ForConditionalGeneration", T5_SMALL)},
        max_length=24,
        end_id=32127,
    ),
}
