"""The published models that tests compare with: a small one and an odd one of each kind."""

import numpy as np

SMALL_TEXT = {
    "vocab_size": 31,
    "hidden_size": 12,
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
    "intermediate_size": 20,
    "max_position_embeddings": 17,
    "num_labels": 3,
}
ODD_TEXT = {
    **SMALL_TEXT,
    "hidden_size": 20,
    "num_hidden_layers": 1,
    "num_attention_heads": 5,
    "hidden_act": "gelu_new",
    "type_vocab_size": 3,
    "layer_norm_eps": 1e-5,
}
SMALL_ROBERTA = {**SMALL_TEXT, "type_vocab_size": 1, "pad_token_id": 1}
ODD_ROBERTA = {**ODD_TEXT, "pad_token_id": 1}
SMALL_DISTIL = {
    "vocab_size": 31,
    "dim": 12,
    "n_layers": 2,
    "n_heads": 3,
    "hidden_dim": 20,
    "max_position_embeddings": 17,
    "num_labels": 3,
}
ODD_DISTIL = {**SMALL_DISTIL, "dim": 20, "n_heads": 5, "activation": "relu"}
SMALL_PICTURES = {
    "hidden_size": 12,
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
    "intermediate_size": 20,
    "image_size": 20,
    "patch_size": 4,
    "num_labels": 3,
}
ODD_PICTURES = {
    **SMALL_PICTURES,
    "hidden_size": 20,
    "num_attention_heads": 5,
    "hidden_act": "relu",
    "qkv_bias": False,
    "num_channels": 2,
    "layer_norm_eps": 1e-5,
}
SMALL_SWIN = {
    "image_size": 96,
    "patch_size": 4,
    "embed_dim": 4,
    "depths": [2, 2, 2, 1],
    "num_heads": [1, 2, 2, 4],
    "window_size": 3,
    "num_labels": 3,
}
ODD_SWIN = {
    **SMALL_SWIN,
    "depths": [1, 2, 1, 1],
    "num_heads": [2, 4, 4, 8],
    "hidden_act": "gelu_new",
    "qkv_bias": False,
    "mlp_ratio": 3.0,
    "num_channels": 2,
}
SMALL_GPT2 = {
    "vocab_size": 31,
    "n_embd": 12,
    "n_layer": 2,
    "n_head": 3,
    "n_positions": 23,
    "bos_token_id": 30,
    "eos_token_id": 30,
}
ODD_GPT2 = {
    **SMALL_GPT2,
    "n_embd": 20,
    "n_head": 5,
    "n_inner": 28,
    "activation_function": "relu",
    "layer_norm_epsilon": 1e-3,
}
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
SMALL_DETR = {
    "use_timm_backbone": False,
    "use_pretrained_backbone": False,
    "backbone": None,
    "num_labels": 5,
    "num_queries": 7,
    "d_model": 24,
    "encoder_layers": 2,
    "encoder_attention_heads": 3,
    "encoder_ffn_dim": 20,
    "decoder_layers": 1,
    "decoder_attention_heads": 3,
    "decoder_ffn_dim": 20,
}
SMALL_BACKBONE = {
    "embedding_size": 4,
    "hidden_sizes": [16, 32, 64, 128],
    "depths": [1, 2, 1, 1],
    "out_features": ["stage4"],
}
ODD_DETR = {**SMALL_DETR, "d_model": 16, "encoder_attention_heads": 4, "eos_coefficient": 0.2}
ODD_DETR |= {"decoder_attention_heads": 4, "class_cost": 2, "giou_loss_coefficient": 3}
ODD_BACKBONE = {
    "embedding_size": 8,
    "hidden_sizes": [8, 16, 32, 64],
    "depths": [1, 1, 1, 2],
    "layer_type": "basic",
    "out_features": ["stage4"],
}


def _of(config_class, run, classes, **more):
    """Cases of several published classes: dict of name to case."""
    return {
        name: {"config_class": config_class, "run": run, "class": kind, "config": config, **more}
        for name, (kind, config) in classes.items()
    }


CASES = {
    **_of(
        "BertConfig",
        "text",
        {
            "bert": ("BertModel", SMALL_TEXT),
            "bert_masked": ("BertForMaskedLM", SMALL_TEXT),
            "bert_classes": ("BertForSequenceClassification", SMALL_TEXT),
            "bert_tags": ("BertForTokenClassification", SMALL_TEXT),
            "bert_odd": ("BertForMaskedLM", ODD_TEXT),
        },
    ),
    **_of(
        "DistilBertConfig",
        "text",
        {
            "distilbert": ("DistilBertModel", SMALL_DISTIL),
            "distilbert_masked": ("DistilBertForMaskedLM", SMALL_DISTIL),
            "distilbert_classes": ("DistilBertForSequenceClassification", SMALL_DISTIL),
            "distilbert_tags": ("DistilBertForTokenClassification", SMALL_DISTIL),
            "distilbert_odd": ("DistilBertForMaskedLM", ODD_DISTIL),
        },
    ),
    **_of(
        "RobertaConfig",
        "text",
        {
            "roberta": ("RobertaModel", SMALL_ROBERTA),
            "roberta_masked": ("RobertaForMaskedLM", SMALL_ROBERTA),
            "roberta_classes": ("RobertaForSequenceClassification", SMALL_ROBERTA),
            "roberta_tags": ("RobertaForTokenClassification", SMALL_ROBERTA),
            "roberta_odd": ("RobertaForMaskedLM", ODD_ROBERTA),
        },
    ),
    **_of(
        "GPT2Config",
        "gpt2",
        {"gpt2": ("GPT2LMHeadModel", SMALL_GPT2), "gpt2_odd": ("GPT2LMHeadModel", ODD_GPT2)},
        max_length=23,
        end_id=30,
    ),
    **_of(
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
    **_of(
        "ViTConfig",
        "images",
        {
            "vit": ("ViTForImageClassification", SMALL_PICTURES),
            "vit_base": ("ViTModel", SMALL_PICTURES),
            "vit_odd": ("ViTForImageClassification", ODD_PICTURES),
        },
    ),
    **_of(
        "DeiTConfig",
        "images",
        {
            "deit": ("DeiTForImageClassification", SMALL_PICTURES),
            "deit_teacher": ("DeiTForImageClassificationWithTeacher", SMALL_PICTURES),
            "deit_base": ("DeiTModel", SMALL_PICTURES),
            "deit_odd": ("DeiTForImageClassificationWithTeacher", ODD_PICTURES),
        },
    ),
    **_of(
        "ViTMAEConfig",
        "images",
        {
            "vit_mae": (
                "ViTMAEForPreTraining",
                {
                    **SMALL_PICTURES,
                    "decoder_hidden_size": 8,
                    "decoder_num_hidden_layers": 1,
                    "decoder_num_attention_heads": 2,
                    "decoder_intermediate_size": 16,
                },
            ),
            "vit_mae_odd": (
                "ViTMAEForPreTraining",
                {
                    **ODD_PICTURES,
                    "decoder_hidden_size": 12,
                    "decoder_num_hidden_layers": 2,
                    "decoder_num_attention_heads": 3,
                    "decoder_intermediate_size": 16,
                    "norm_pix_loss": True,
                    "mask_ratio": 0.5,
                },
            ),
        },
    ),
    **_of(
        "SwinConfig",
        "images",
        {
            "swin": ("SwinForImageClassification", SMALL_SWIN),
            "swin_base": ("SwinModel", SMALL_SWIN),
            "swin_odd": ("SwinForImageClassification", ODD_SWIN),
        },
    ),
    **_of(
        "Swinv2Config",
        "images",
        {
            "swinv2": ("Swinv2ForImageClassification", SMALL_SWIN),
            "swinv2_odd": (
                "Swinv2ForImageClassification",
                {**ODD_SWIN, "pretrained_window_sizes": [5, 5, 5, 2]},
            ),
        },
    ),
    **_of(
        "DetrConfig",
        "detr",
        {"detr": ("DetrForObjectDetection", SMALL_DETR)},
        backbone_config=SMALL_BACKBONE,
    ),
    **_of(
        "DetrConfig",
        "detr",
        {"detr_odd": ("DetrForObjectDetection", ODD_DETR)},
        backbone_config=ODD_BACKBONE,
    ),
}
# Of the published sizes; the defaults of the configurations are those, but for OPUS-MT's.
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
LARGE = {
    **_of("BertConfig", "text", {"bert": ("BertForMaskedLM", {})}),
    **_of("DistilBertConfig", "text", {"distilbert": ("DistilBertForMaskedLM", {})}),
    **_of("GPT2Config", "gpt2", {"gpt2": ("GPT2LMHeadModel", {})}, max_length=23, end_id=50256),
    **_of(
        "MarianConfig",
        "marian",
        {"marian": ("MarianMTModel", OPUS)},
        max_length=24,
        end_id=0,
        kept=("embed_positions.weight",),
    ),
    **_of("ViTConfig", "images", {"vit": ("ViTForImageClassification", {"num_labels": 1000})}),
    **_of(
        "DeiTConfig",
        "images",
        {"deit": ("DeiTForImageClassificationWithTeacher", {"num_labels": 1000})},
    ),
    **_of("ViTMAEConfig", "images", {"vit_mae": ("ViTMAEForPreTraining", {})}),
    **_of("SwinConfig", "images", {"swin": ("SwinForImageClassification", {"num_labels": 1000})}),
    **_of(
        "Swinv2Config",
        "images",
        {
            "swinv2": (
                "Swinv2ForImageClassification",
                {"num_labels": 1000, "image_size": 256, "window_size": 8},
            )
        },
    ),
    **_of(
        "DetrConfig",
        "detr",
        {
            "detr": (
                "DetrForObjectDetection",
                {
                    "use_timm_backbone": False,
                    "use_pretrained_backbone": False,
                    "backbone": None,
                    "num_labels": 91,
                },
            )
        },
        backbone_config={"out_features": ["stage4"]},
    ),
}


def sequences(case, seed=5):
    """Ids and mask, int64 `(rows, length)`, of a case: padding behind the ids of each row."""
    config = case["config"]
    vocab = config.get("vocab_size", {"GPT2Config": 50257}.get(case["config_class"], 30522))
    padding = config.get("pad_token_id", 0)
    rng = np.random.default_rng(seed)
    rows, length = (100, 9) if vocab < 100 else (2, 9)
    first = 2 if padding == 1 else 1
    ends = (each for each in (padding, case.get("end_id")) if each and each >= first)
    ids = rng.integers(first, min([vocab, *ends]), (rows, length))  # none that means nothing
    mask = np.ones_like(ids)
    if case["run"] in ("text", "marian"):
        for row, size in enumerate(rng.integers(4, length + 1, rows)):
            mask[row, size:] = 0
            if case["run"] == "marian":
                ids[row, size - 1] = case["end_id"]
    return np.where(mask, ids, padding), mask


def images(case):
    """Pictures `(2, height, width, channels)` of a case."""
    config = case["config"]
    channels = config.get("num_channels", 3)
    large = not config.get("hidden_size") and not config.get("embed_dim")
    side = config.get("image_size", 224 if large else 0)
    size = (96, 128) if case["run"] == "detr" else (side, side)
    values = np.random.default_rng(sum(size)).normal(size=(2, *size, channels))
    return values.astype("float32")


def thinned(values):
    """Every 64th value of the last axis where there are very many, as a golden file holds them."""
    return values[..., ::64] if values.size > 200_000 else values


def sharpened(weights):
    """The weights, those that attention looks with larger, or all would look alike."""
    ends = ("q_proj.weight", "k_proj.weight", "query.weight", "key.weight", "q_lin.weight")
    ends += ("k_lin.weight", "c_attn.weight", "query_position_embeddings.weight")
    return {k: v * (3 if k.endswith(ends) else 1) for k, v in weights.items()}
