"""Language models that tests compare with."""

from tests.pretrained.cases.of import of

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

CASES = {
    **of(
        "GPT2Config",
        "gpt2",
        {"gpt2": ("GPT2LMHeadModel", SMALL_GPT2), "gpt2_odd": ("GPT2LMHeadModel", ODD_GPT2)},
        max_length=23,
        end_id=30,
    ),
    **of(
        "LlamaConfig",
        "gpt2",
        {"llama": ("LlamaForCausalLM", SMALL_LLAMA), "llama_odd": ("LlamaForCausalLM", ODD_LLAMA)},
        max_length=23,
        end_id=30,
    ),
}
LARGE = {**of("GPT2Config", "gpt2", {"gpt2": ("GPT2LMHeadModel", {})}, max_length=23, end_id=50256)}
