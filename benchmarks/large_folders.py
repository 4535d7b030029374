"""Published folders of large models with random weights, written tensor by tensor.

Nothing here needs a library of networks, nor more memory than one tensor.
"""

import json
import math
import pathlib

import ml_dtypes
import numpy as np

NLLB, LLAMA = "nllb", "llama"
CONFIGS = {
    NLLB: {  # facebook/nllb-200-distilled-600M
        "architectures": ["M2M100ForConditionalGeneration"],
        "model_type": "m2m_100",
        "vocab_size": 256206,
        "d_model": 1024,
        "encoder_layers": 12,
        "decoder_layers": 12,
        "encoder_attention_heads": 16,
        "decoder_attention_heads": 16,
        "encoder_ffn_dim": 4096,
        "decoder_ffn_dim": 4096,
        "activation_function": "relu",
        "max_position_embeddings": 1024,
        "scale_embedding": True,
        "bos_token_id": 0,
        "pad_token_id": 1,
        "eos_token_id": 2,
        "decoder_start_token_id": 2,
        "torch_dtype": "float32",
    },
    LLAMA: {  # meta-llama/Llama-3.2-1B; without its scaling of positions, with which CTranslate2
        # 4.8.5 writes other tokens than transformers and we
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": 128256,
        "hidden_size": 2048,
        "intermediate_size": 8192,
        "num_hidden_layers": 16,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "head_dim": 64,
        "hidden_act": "silu",
        "rms_norm_eps": 1e-5,
        "rope_theta": 500000.0,
        "max_position_embeddings": 131072,
        "tie_word_embeddings": True,
        "bos_token_id": 128000,
        "eos_token_id": 128001,
        "torch_dtype": "bfloat16",
    },
}
SMALL = {  # in place of those, for the smoke test
    NLLB: {"vocab_size": 997, "d_model": 32, "encoder_layers": 2, "decoder_layers": 2}
    | {"encoder_ffn_dim": 48, "decoder_ffn_dim": 48}
    | {"encoder_attention_heads": 4, "decoder_attention_heads": 4},
    LLAMA: {"vocab_size": 499, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2}
    | {"num_attention_heads": 8, "num_key_value_heads": 2, "head_dim": 8}
    | {"bos_token_id": 3, "eos_token_id": 2},
}
TYPES = {
    "float32": ("F32", np.dtype("float32")),
    "bfloat16": ("BF16", np.dtype(ml_dtypes.bfloat16)),
}


def write(folder, kind, small=False):
    """Writes `config.json` and `model.safetensors`; returns the bytes of all weights."""
    config = CONFIGS[kind] | (SMALL[kind] if small else {})
    shapes = (_of_nllb if kind == NLLB else _of_llama)(config)
    name, dtype = TYPES[config["torch_dtype"]]
    header, end = {"__metadata__": {"format": "pt"}}, 0
    for tensor, shape in shapes.items():
        start, end = end, end + math.prod(shape) * dtype.itemsize
        header[tensor] = {"dtype": name, "shape": shape, "data_offsets": [start, end]}
    head = json.dumps(header).encode()
    head += b" " * (-len(head) % 8)
    rng = np.random.default_rng(0)
    with open(pathlib.Path(folder, "model.safetensors"), "wb") as file:
        file.write(len(head).to_bytes(8, "little") + head)
        for tensor, shape in shapes.items():
            value = _value(rng, tensor, shape, config.get("pad_token_id"), config["eos_token_id"])
            value.astype(dtype, copy=False).view("uint8").tofile(file)
    pathlib.Path(folder, "config.json").write_text(json.dumps(config, indent=2))
    return end


def _value(rng, name, shape, *never):
    """Random values such that what is written depends on what went in, and never ends."""
    value = rng.standard_normal(shape, "float32")
    if len(shape) == 1:
        value *= 0.1
        return value + 1 if "norm" in name and name.endswith("weight") else value
    if "proj" in name or "fc" in name:
        return value * 2 / math.sqrt(shape[1])  # less, and tokens repeat themselves
    value *= 1 / math.sqrt(shape[1])
    value[[number for number in never if number is not None]] = 0
    return value


def _of_nllb(config):
    """Names and shapes of the tensors of a published M2M-100."""
    width = config["d_model"]
    shapes = {"model.shared.weight": (config["vocab_size"], width)}

    def linear(name, out, into):
        shapes[f"{name}.weight"], shapes[f"{name}.bias"] = (out, into), (out,)

    def norm(name):
        shapes[f"{name}.weight"] = shapes[f"{name}.bias"] = (width,)

    for side, attentions in (
        ("encoder", ["self_attn"]),
        ("decoder", ["self_attn", "encoder_attn"]),
    ):
        hidden = config[f"{side}_ffn_dim"]
        for number in range(config[f"{side}_layers"]):
            layer = f"model.{side}.layers.{number}"
            for attention in attentions:
                for part in ("q_proj", "k_proj", "v_proj", "out_proj"):
                    linear(f"{layer}.{attention}.{part}", width, width)
                norm(f"{layer}.{attention}_layer_norm")
            linear(f"{layer}.fc1", hidden, width)
            linear(f"{layer}.fc2", width, hidden)
            norm(f"{layer}.final_layer_norm")
        norm(f"model.{side}.layer_norm")
    return shapes


def _of_llama(config):
    """Names and shapes of the tensors of a published Llama with one table."""
    width, hidden = config["hidden_size"], config["intermediate_size"]
    queries = config["num_attention_heads"] * config["head_dim"]
    keys = config["num_key_value_heads"] * config["head_dim"]
    shapes = {"model.embed_tokens.weight": (config["vocab_size"], width)}
    for number in range(config["num_hidden_layers"]):
        shapes |= {
            f"model.layers.{number}.{name}.weight": shape
            for name, shape in {
                "input_layernorm": (width,),
                "self_attn.q_proj": (queries, width),
                "self_attn.k_proj": (keys, width),
                "self_attn.v_proj": (keys, width),
                "self_attn.o_proj": (width, queries),
                "post_attention_layernorm": (width,),
                "mlp.gate_proj": (hidden, width),
                "mlp.up_proj": (hidden, width),
                "mlp.down_proj": (width, hidden),
            }.items()
        }
    return shapes | {"model.norm.weight": (width,)}
