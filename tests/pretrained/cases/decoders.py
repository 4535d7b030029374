"""Language models that tests compare with."""

from tests.pretrained.cases.of import of, of_spans

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
    "tie_word_embeddings": False,
}

SMALL_LLAMA = {
    "vocab_size": 31,
    "hidden_size": 12,
    "intermediate_size": 20,
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
    "max_position_embeddings": 64,
    "bos_token_id": 29,
    "eos_token_id": [30, 28],
    "hidden_act": "silu",
}
# Heads of another width than the model's by their number, and positions as in Llama 3.1.
ODD_LLAMA = {
    **SMALL_LLAMA,
    "hidden_size": 20,
    "num_hidden_layers": 1,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 6,
    "hidden_act": "gelu_pytorch_tanh",
    "rms_norm_eps": 1e-3,
    "attention_bias": True,
    "mlp_bias": True,
    "tie_word_embeddings": True,
    "rope_parameters": {
        "rope_type": "llama3",
        "rope_theta": 500.0,
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 64,
    },
}

SMALL_MISTRAL = {**SMALL_LLAMA, "num_key_value_heads": 1, "sliding_window": 4}
SMALL_MISTRAL |= {"rms_norm_eps": 1e-5}
ODD_MISTRAL = {
    **SMALL_MISTRAL,
    "hidden_size": 20,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 6,
    "sliding_window": 2,
    "tie_word_embeddings": True,
    "rope_parameters": {"rope_type": "linear", "rope_theta": 1000000.0, "factor": 4.0},
}
# The second layer has a window.
SMALL_QWEN2 = {
    **SMALL_LLAMA,
    "num_key_value_heads": 3,
    "use_sliding_window": True,
    "sliding_window": 4,
    "max_window_layers": 1,
}
ODD_QWEN2 = {
    **SMALL_LLAMA,
    "hidden_size": 24,
    "num_hidden_layers": 1,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "tie_word_embeddings": True,
    "rope_parameters": {
        "rope_type": "yarn",
        "rope_theta": 1000000.0,
        "factor": 4.0,
        "original_max_position_embeddings": 16,
    },
}
SMALL_QWEN3 = {**SMALL_LLAMA, "num_hidden_layers": 1, "num_key_value_heads": 3, "head_dim": 6}
ODD_QWEN3 = {
    **SMALL_QWEN2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "attention_bias": True,
    "tie_word_embeddings": True,
    "rms_norm_eps": 1e-3,
    "layer_types": ["sliding_attention", "full_attention"],
}
SMALL_GEMMA2 = {
    **{key: value for key, value in SMALL_LLAMA.items() if key != "hidden_act"},
    "num_key_value_heads": 1,
    "head_dim": 6,
    "query_pre_attn_scalar": 5,
    "sliding_window": 4,
    "attn_logit_softcapping": 2.0,
    "final_logit_softcapping": 3.0,
}
ODD_GEMMA2 = {
    **SMALL_GEMMA2,
    "num_hidden_layers": 1,
    "hidden_activation": "silu",
    "attention_bias": True,
    "attn_logit_softcapping": None,
    "final_logit_softcapping": None,
    "layer_types": ["full_attention"],
}
SMALL_PHI3 = {**SMALL_LLAMA, "num_key_value_heads": 1, "pad_token_id": 0}
# Half of each head turns, as LongRoPE has it.
ODD_PHI3 = {
    **SMALL_PHI3,
    "hidden_size": 24,
    "num_hidden_layers": 1,
    "num_attention_heads": 3,
    "num_key_value_heads": 3,
    "max_position_embeddings": 256,
    "original_max_position_embeddings": 64,
    "sliding_window": 5,
    "tie_word_embeddings": True,
    "rope_parameters": {
        "rope_type": "longrope",
        "rope_theta": 10000.0,
        "partial_rotary_factor": 0.5,
        "short_factor": [1.0, 1.5],
        "long_factor": [2.0, 9.0],
    },
}
# Without logits of tokens; padding has an id.
OF_HEADS = {"num_labels": 3, "pad_token_id": 0, "tie_word_embeddings": True}
HEADS = {
    "gpt2_classes": ("GPT2ForSequenceClassification", SMALL_GPT2),
    "gpt2_tags": ("GPT2ForTokenClassification", SMALL_GPT2),
    "gpt2_answers": ("GPT2ForQuestionAnswering", SMALL_GPT2),
    "llama_classes": ("LlamaForSequenceClassification", SMALL_LLAMA),
    "llama_tags": ("LlamaForTokenClassification", SMALL_LLAMA),
    "llama_answers": ("LlamaForQuestionAnswering", SMALL_LLAMA),
    "mistral_answers": ("MistralForQuestionAnswering", SMALL_MISTRAL),
    "qwen2_classes": ("Qwen2ForSequenceClassification", SMALL_QWEN2),
    "qwen3_answers": ("Qwen3ForQuestionAnswering", SMALL_QWEN3),
    "gemma2_classes": (
        "Gemma2ForSequenceClassification",
        {**SMALL_GEMMA2, "final_logit_softcapping": None},
    ),
    "phi3_tags": ("Phi3ForTokenClassification", SMALL_PHI3),
}


def _of_head(name, kind, config):
    """A case of a head that writes no text."""
    config = {**config, **OF_HEADS}
    config = of_spans(config) if "Question" in kind else config
    found = {"config_class": f"{kind.partition('For')[0]}Config", "run": "text", "class": kind}
    family = name.partition("_")[0]
    return {**found, "config": config, "family": family if family in ("mistral", "phi3") else None}


OF_LLAMA = {
    "llama": ("Llama", SMALL_LLAMA, ODD_LLAMA),
    "mistral": ("Mistral", SMALL_MISTRAL, ODD_MISTRAL),
    "qwen2": ("Qwen2", SMALL_QWEN2, ODD_QWEN2),
    "qwen3": ("Qwen3", SMALL_QWEN3, ODD_QWEN3),
    "gemma2": ("Gemma2", SMALL_GEMMA2, ODD_GEMMA2),
    "phi3": ("Phi3", SMALL_PHI3, ODD_PHI3),
}

CASES = {
    **of(
        "GPT2Config",
        "gpt2",
        {"gpt2": ("GPT2LMHeadModel", SMALL_GPT2), "gpt2_odd": ("GPT2LMHeadModel", ODD_GPT2)},
        max_length=23,
        end_id=30,
    ),
    **{
        f"{name}{ending}": {
            "config_class": f"{kind}Config",
            "run": "gpt2",
            "class": f"{kind}ForCausalLM",
            "config": config,
            "max_length": 23,
            "end_id": 30,
            # Two programs a case are compiled for it.
            "generates": not ending,
            # Without a window or a part of each head that turns, Llama has the same parts.
            "family": name if name in ("mistral", "phi3") else None,
        }
        for name, (kind, *configs) in OF_LLAMA.items()
        for ending, config in zip(("", "_odd"), configs, strict=True)
    },
    **{name: _of_head(name, kind, config) for name, (kind, config) in HEADS.items()},
}
# Of SmolLM2-135M.
SMOLLM2 = {
    "vocab_size": 49152,
    "hidden_size": 576,
    "intermediate_size": 1536,
    "num_hidden_layers": 30,
    "num_attention_heads": 9,
    "num_key_value_heads": 3,
    "max_position_embeddings": 8192,
    "rms_norm_eps": 1e-5,
    "rope_parameters": {"rope_type": "default", "rope_theta": 100000.0},
    "tie_word_embeddings": True,
    "bos_token_id": 0,
    "eos_token_id": 0,
}
# Of Qwen2.5-0.5B, but for its layers, which are 24.
QWEN2 = {
    "vocab_size": 151936,
    "hidden_size": 896,
    "intermediate_size": 4864,
    "num_hidden_layers": 6,
    "num_attention_heads": 14,
    "num_key_value_heads": 2,
    "max_position_embeddings": 32768,
    "max_window_layers": 24,
    "rope_parameters": {"rope_type": "default", "rope_theta": 1000000.0},
    "tie_word_embeddings": True,
    "bos_token_id": 151643,
    "eos_token_id": 151643,
}
LARGE = {
    **of("GPT2Config", "gpt2", {"gpt2": ("GPT2LMHeadModel", {})}, max_length=23, end_id=50256),
    **of(
        "LlamaConfig",
        "gpt2",
        {"llama": ("LlamaForCausalLM", SMOLLM2)},
        generates=False,
        precision="float64",
    ),
    **of("Qwen2Config", "gpt2", {"qwen2": ("Qwen2ForCausalLM", QWEN2)}, generates=False),
}
