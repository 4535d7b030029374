"""Mistakes on purpose, one a line: a checker must find each, and nothing else. Never run."""

import numpy as np

import keras_transformers
from keras_transformers import (
    distribution,
    export,
    generation,
    inspection,
    layers,
    models,
    precision,
    pretrained,
    saving,
    text,
    training,
    vision,
)

ids = np.ones((2, 5), "int32")
x = np.ones((2, 5, 16), "float32")
encoder = models.TextEncoder(100, hidden_dim=16, num_heads=2, mlp_dim=32)
images = models.ViT.from_variant("Ti/16")
translator = models.Transformer(100)
tokenizer = text.SentencePieceTokenizer.train(["a cat"])
found = generation.generate(translator, ids)

models.TextEncoder(100, hidden_dim="sixteen")  # wrong: no number
models.TextEncoder(100, head="classification")  # wrong: a word where a layer is due
models.TextEncoder.from_variant("tiny", head="clasification")  # wrong: misspelt
models.LanguageModel.from_variant("tiny", num_head=4)  # wrong: no such keyword
models.Transformer.from_variant("bigger", 100)  # wrong: no such size
models.Transformer(100, num_head=8)  # wrong: no such argument
models.Swin(10, version=3)  # wrong: there are two
models.PVT.from_variant("b0", num_layer=(1, 1, 1, 1))  # wrong: misspelt
models.MAE.from_variant("B/16", decoder_head=2)  # wrong: misspelt
models.DETR(4, criterion="focal")  # wrong: no criterion
models.DETR(4, queries="anchors")  # wrong: a name where `from_variant` takes one
models.DETR.from_variant("R50", 4, num_query=9)  # wrong: misspelt
layers.EncoderBlock(8, 32, mixer="fourier")  # wrong: a name where a layer is due
layers.MultiHeadAttention(4, score="cosine")  # wrong: no such score
layers.FeedForward("relu", 64)  # wrong: the other way round
layers.padding_mask([[1, 2, 0]])  # wrong: no tensor
layers.relative_position_index(7)  # wrong: no grid
layers.patchify(x, "4")  # wrong: no number
layers.TokenEmbedding(100)  # wrong: without its width
layers.EncoderBlock(8, 32, droput=0.1)  # wrong: misspelt
layers.WindowAttention(4, 7, droput=0.1)  # wrong: misspelt
generation.generate(translator, ids, search="greedy")  # wrong: a name where a search is due
generation.Sampling(temprature=0.7)  # wrong: misspelt
generation.BeamSearch(4, normalization="mean")  # wrong: no such normalisation
found["scors"]  # wrong: misspelt
found["log_probabilities"]  # wrong: greedy search has none
pretrained.load("folder", task="clasification")  # wrong: misspelt
models.ViT(10, depth=3)  # wrong: another library's word
models.ViT(10, pooling="attention")  # wrong: a name that `from_variant` takes
models.ViT.from_variant("B/16", droput=0.1)  # wrong: misspelt
models.Swin.from_variant("T", stem="patches")  # wrong: no such keyword
saving.load_wieghts(images, "weights.h5")  # wrong: misspelt
precision.in_precision(images, "int3")  # wrong: no such precision
inspection.attention_rollout(3)  # wrong: no weights
training.WarmupLinear(1e-3, 100)  # wrong: without the number of all steps
training.CheckpointAverage(last=5, mode="best")  # wrong: "max" or "min"
training.BudgetedDecay(1e-3, minutes="5")  # wrong: no number
training.score_labels(x, x)  # wrong: without the names
text.read_pairs("a.tsv", colums=(0, 1))  # wrong: misspelt
text.encode_pairs(["a"], ["b"], "tokenizer.model")  # wrong: a path where a tokenizer is due
text.SentencePieceTokenizer.train(["a"], model_type="words")  # wrong: no such model
vision.Preprocessing("224")  # wrong: no number
vision.read_folder(3)  # wrong: no path
export.Translator(translator, 7)  # wrong: no tokenizer
export.image_classifier(images, "served", ["a"], format="tflite")  # wrong: no such format
export.sentence_encoder(encoder, tokenizer, "served", pooling="max")  # wrong: no such pooling
distribution.Devices(data="2")  # wrong: no number
keras_transformers.lode("folder")  # wrong: misspelt
