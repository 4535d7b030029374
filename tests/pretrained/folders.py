"""Folders of published weights, small ones, as the recipes and `load` are given them."""

import contextlib
import json
import pathlib

import numpy as np

from keras_transformers import models, pretrained, text, vision
from keras_transformers.core.words import byte_letters
from keras_transformers.pretrained.clip import CLIP
from keras_transformers.pretrained.folder import FAMILIES

GOLDEN = np.load(pathlib.Path(__file__).parents[1] / "golden" / "published_tokenizers.npz")
WIDTHS = {"hidden_dim": 16, "num_heads": 2, "mlp_dim": 32, "num_layers": 1}
PICTURES = {**WIDTHS, "image_size": 16, "patch_size": 4}


def marian(folder):
    for name in ("source.spm", "target.spm"):
        (folder / name).write_bytes(GOLDEN[name].tobytes())
    (folder / "vocab.json").write_text(str(GOLDEN["vocab.json"]))
    tokenizer = pretrained.load_tokenizer(folder)
    return models.Transformer.from_variant(
        "base",
        tokenizer.vocab_size,
        **WIDTHS,
        positions="halves",
        norm_epsilon=1e-5,
        logits_bias=True,
        padding_id=tokenizer.pad_id,
    )


def gpt2(folder):
    for name in ("vocab.json", "merges.txt"):
        (folder / name).write_text(str(GOLDEN[f"gpt2/{name}"]), encoding="utf-8")
    size = pretrained.load_tokenizer(folder).vocab_size
    return models.LanguageModel.from_variant("small", size, **WIDTHS, max_length=80, padding_id=-1)


def bert(folder, head="masked_language", **options):
    words = text.WordPieceTokenizer.train(["the king and the queen, to be or not to be"], 60)
    pretrained.save_tokenizer(words, folder)
    return models.TextEncoder.from_variant(
        "base", words.vocab_size, **WIDTHS, head=head, max_length=64, **options
    )


def vit(folder):
    pretrained.save_preprocessing(vision.Preprocessing(16, crop=False), folder)
    return models.ViT(4, **PICTURES)


def swin(folder):
    pretrained.save_preprocessing(vision.Preprocessing(16, crop=False), folder)
    return models.Swin.from_variant(
        "T",
        4,
        image_size=16,
        patch_size=2,
        hidden_dim=4,
        num_layers=(1, 1, 1, 1),
        num_heads=(1, 1, 2, 2),
        window_size=2,
        mask_padding=False,
    )


def detr(folder):
    pretrained.save_preprocessing(vision.Preprocessing(64), folder, detection=True)
    backbone = models.ResNet(None, 64, 8, (1, 1, 1, 1), bottleneck=False, norm="frozen")
    widths = {name: WIDTHS[name] for name in ("hidden_dim", "num_heads", "mlp_dim")}
    return models.DETR(4, backbone, **widths, num_layers=1)


def clip_pieces(folder):
    """`vocab.json` and `merges.txt` of few of CLIP's pieces; how many there are."""
    letters = byte_letters()
    pairs = ["c a", "ca t</w>", "d o", "do g</w>", "a t</w>", "p h", "ph o", "Ã ©</w>", "' s</w>"]
    pieces = [*letters, *(f"{each}</w>" for each in letters)]
    pieces += ["".join(pair.split()) for pair in pairs]
    pieces += ["<|startoftext|>", "<|endoftext|>"]
    vocab = {piece: number for number, piece in enumerate(pieces)}
    (folder / "vocab.json").write_text(json.dumps(vocab), encoding="utf-8")
    (folder / "merges.txt").write_text("#version: 0.2\n" + "\n".join(pairs), encoding="utf-8")
    return len(pieces)


def clip(folder):
    """A small CLIP, built, with its pieces and preprocessing in the folder."""
    size = clip_pieces(folder)
    pretrained.save_preprocessing(vision.Preprocessing(16, crop=False), folder)
    settings = CLIP.configuration.read({}, "config.json")
    sizes = {"hidden_dim": 16, "num_heads": 2, "mlp_dim": 32, "num_layers": 1}
    settings["text_encoder"] |= {**sizes, "vocab_size": size, "end_id": size - 1}
    settings["image_encoder"] |= {**sizes, "image_size": [16, 16], "patch_size": 4}
    return CLIP.build({**settings, "projection_dim": 8})


SLIDING = {  # model type -> its window, which is shorter than the texts of tests
    "mistral": {"num_key_value_heads": 2, "head_dim": 8, "sliding_window": 3},
    "gemma2": {"num_key_value_heads": 2, "head_dim": 8, "sliding_window": 3},
    "modernbert": {"local_attention": 4, "global_attn_every_n_layers": 2},
}


def sliding(folder, model_type):
    """A published folder of a small model whose attention sees a window."""
    if model_type == "modernbert":
        bert(folder)
    else:
        gpt2(folder)
        asked = {"tokenizer_class": "GPT2Tokenizer"}
        (folder / "tokenizer_config.json").write_text(json.dumps(asked))
    sizes = {"hidden_size": 16, "num_attention_heads": 2, "intermediate_size": 32}
    sizes |= {"num_hidden_layers": 2, "max_position_embeddings": 64, "pad_token_id": 0}
    size = pretrained.load_tokenizer(folder).vocab_size
    config = {"model_type": model_type, "vocab_size": size, **sizes, **SLIDING[model_type]}
    family = FAMILIES[model_type]
    settings = family.configuration.read(config, "config.json")
    kinds = ("ForCausalLM", "ForMaskedLM")
    (head,) = (each for name, each in family.architectures.items() if name.endswith(kinds))
    return pretrained.save(family.build({**settings, **head}), folder)


# Of each recipe: what makes its model, and what that is built for.
MADE = {
    "translation": (marian, {"source": (None, None), "target": (None, None)}),
    "language_model": (gpt2, (None, None)),
    "text_classification": (bert, (None, None)),
    "vit": (vit, (None, 16, 16, 3)),
    "swin": (swin, (None, 16, 16, 3)),
    "detr": (detr, (None, 64, 64, 3)),
}


@contextlib.contextmanager
def eagerly():
    """Nothing is traced or compiled, which would take longer than all else."""
    import tensorflow as tf

    tf.config.run_functions_eagerly(True)
    try:
        yield
    finally:
        tf.config.run_functions_eagerly(False)
