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

CASES = {
    **of(
        "GPT2Config",
        "gpt2",
        {"gpt2": ("GPT2LMHeadModel", SMALL_GPT2), "gpt2_odd": ("GPT2LMHeadModel", ODD_GPT2)},
        max_length=23,
        end_id=30,
    )
}
LARGE = {**of("GPT2Config", "gpt2", {"gpt2": ("GPT2LMHeadModel", {})}, max_length=23, end_id=50256)}
