"""Makes attention.npz: position encodings and mixers as transformers and torch compute them.

    pip install torch==2.13.0 transformers
    python tests/golden/make_attention.py

Written by torch 2.13.0 and transformers 5.23.0.
"""

import pathlib

import numpy as np
import torch
import transformers
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS
from transformers.models.beit.modeling_beit import BeitRelativePositionBias
from transformers.models.bloom.modeling_bloom import build_alibi_tensor
from transformers.models.fnet.modeling_fnet import FNetBasicFourierTransform
from transformers.models.gptj import modeling_gptj
from transformers.models.llama import modeling_llama
from transformers.models.t5.modeling_t5 import T5Attention

HEADS, LENGTH, KEY_DIM = 6, 11, 14  # no power of two among them
DISTANCES = np.arange(-300, 301)
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 128}


def rotary(scaling):
    """Llama's rotation of random heads, and the frequencies of a longer context."""
    config = transformers.LlamaConfig(
        hidden_size=HEADS * KEY_DIM,
        num_attention_heads=HEADS,
        max_position_embeddings=512,
        rope_parameters={"rope_theta": 10000.0, **scaling},
    )
    kind = scaling["rope_type"]
    if kind == "default":
        embedding = modeling_llama.LlamaRotaryEmbedding(config)
        return embedding.inv_freq, embedding.attention_scaling
    return ROPE_INIT_FUNCTIONS[kind](config, "cpu")


def main():
    torch.manual_seed(5)
    arrays, x = {}, torch.randn(2, HEADS, LENGTH, KEY_DIM)
    positions = torch.arange(LENGTH)[None]
    arrays["heads"] = x.numpy()
    scalings = {
        "default": {"rope_type": "default"},
        "linear": {"rope_type": "linear", "factor": 4.0},
        "yarn": YARN,
    }
    for name, scaling in scalings.items():
        rates, gain = rotary(scaling)
        angles = positions[..., None] * rates
        angles = torch.cat([angles, angles], dim=-1)
        cosine, sine = angles.cos() * gain, angles.sin() * gain
        turned = modeling_llama.apply_rotary_pos_emb(x, x, cosine, sine)[0]
        arrays[f"rotary_{name}"] = turned.numpy()
    table = modeling_gptj.create_sinusoidal_positions(LENGTH, 8)
    sine, cosine = (part[None] for part in torch.split(table, 4, dim=-1))
    partly = x.transpose(1, 2)  # GPT-J has the heads after the length, and turns 8 features
    turned = modeling_gptj.apply_rotary_pos_emb(partly[..., :8], sine, cosine)
    arrays["rotary_interleaved"] = torch.cat([turned, partly[..., 8:]], -1).transpose(1, 2).numpy()

    mask = torch.ones(1, LENGTH)
    arrays["alibi"] = build_alibi_tensor(mask, HEADS, torch.float32).numpy()  # -> slope * j
    for name, both in (("both", True), ("causal", False)):
        buckets = T5Attention._relative_position_bucket(
            torch.tensor(DISTANCES), bidirectional=both, num_buckets=32, max_distance=128
        )
        arrays[f"t5_{name}"] = buckets.numpy().astype("int32")
    index = BeitRelativePositionBias.generate_relative_position_index((3, 5))
    arrays["beit_index"] = index.numpy().astype("int32")

    x = torch.randn(3, LENGTH, KEY_DIM)
    arrays["x"] = x.numpy()
    fourier = FNetBasicFourierTransform(
        transformers.FNetConfig(use_tpu_fourier_optimizations=False)
    )
    arrays["fourier"] = fourier(x)[0].numpy()
    lstm = torch.nn.LSTM(KEY_DIM, 5, batch_first=True, bidirectional=True)
    arrays["lstm"] = lstm(x)[0].detach().numpy()
    for name, weight in lstm.named_parameters():
        arrays[f"lstm_{name}"] = weight.detach().numpy()
    np.savez_compressed(pathlib.Path(__file__).with_name("attention.npz"), **arrays)


if __name__ == "__main__":
    main()
