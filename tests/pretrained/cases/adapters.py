"""The published adapters that tests read: `LoraConfig`'s arguments, by the case that they are for.

Between them they have every kind of adapter, of configuration and of module that is read.
"""

import zlib

import numpy as np

from tests.published import random_weights

ADAPTERS = {
    "bert_classes": {
        "r": 3,
        "lora_alpha": 5,
        "target_modules": r".*\.attention\.(self\.(query|value)|output\.dense)",
        "modules_to_save": ["classifier"],
        "alpha_pattern": {"layer.0.attention.self.query": 7},
    },
    "gpt2": {
        "r": 4,
        "lora_alpha": 2,
        "use_rslora": True,
        "target_modules": ["c_attn", "c_proj", "c_fc", "wte", "lm_head"],
        "rank_pattern": {"mlp.c_fc": 2},
        "alpha_pattern": {"^transformer.h.0.attn.c_attn": 3},
    },
    "marian": {"r": 2, "use_dora": True, "target_modules": ["q_proj", "v_proj", "out_proj", "fc1"]},
    "t5": {"r": 3, "target_modules": "all-linear"},
    "vit": {
        "r": 2,
        "use_dora": True,
        "use_rslora": True,
        "target_modules": ["q_proj", "v_proj", "o_proj", "fc1"],
        "modules_to_save": ["classifier"],
        "layers_to_transform": [1],
    },
    "bert": {"r": 2, "target_modules": ["query", "word_embeddings"]},
}


def adapter_tensors(shapes):
    """The tensors of an adapter, made from their names.

    Magnitudes are positive, as those of a kernel are. What changes a tied table where it makes
    logits is what changes it where tokens are looked up.
    """
    tensors = random_weights(shapes)
    for name, value in tensors.items():
        if name.endswith("lora_magnitude_vector"):
            rng = np.random.default_rng(zlib.crc32(name.encode()))
            tensors[name] = rng.uniform(0.5, 1.5, value.shape).astype("float32")
    for name in [name for name in tensors if name.endswith("lora_embedding_A")]:
        start = name.removesuffix("A")
        head = f"{name.split('.transformer.')[0]}.lm_head.lora"
        if f"{head}_A.weight" in tensors:
            tensors[f"{head}_A.weight"] = tensors[f"{start}B"].T.copy()
            tensors[f"{head}_B.weight"] = tensors[name].T.copy()
    return tensors
