"""What a user writes, on every part of the library: a checker finds nothing in it. Never run."""

import pathlib

import keras
import numpy as np
import tensorflow as tf
from keras import ops

import keras_transformers
from keras_transformers import (
    detection,
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
from keras_transformers.annotations import Tensor

ids = np.array([[5, 7, 2], [6, 2, 0]], "int32")
x = np.ones((2, 5, 16), "float32")


class Doubling(layers.Score):
    """A score of one's own."""

    def compare(self, query: Tensor, key: Tensor) -> Tensor:
        return 2.0 * super().compare(query, key)


block = layers.EncoderBlock(mixer=layers.SelfAttention(4, score=Doubling()), mlp_dim=32)
symbols = block(keras.Input((None, 16)))  # symbolic, as well as of every backend
for each in (x, tf.constant(x), ops.convert_to_tensor(x)):
    y = block(each, training=False)
mask = layers.combine_masks(layers.padding_mask(ids)[:, None, :], layers.causal_mask(3), None)
output, weights = layers.dot_product_attention(x[:, :, None], x[:, :, None], x[:, :, None])
patches = layers.patchify(np.zeros((2, 8, 8, 3), "float32"), (4, 4))
print(np.asarray(output).shape, 1 - weights[0], patches.shape[1] + 1, mask)

translator = models.Transformer(1000, hidden_dim=64, num_heads=4, mlp_dim=128, num_layers=2)
translator.compile(training.AdamW(training.InverseSquareRoot(64)), training.SmoothedCrossEntropy())
found = generation.generate(translator, ids, search=generation.BeamSearch(4), max_length=9)
print(found["tokens"].shape, float(found["log_probabilities"][0]))
drawn = generation.generate_all(translator, [[5, 2], [7, 8, 2]], generation.Sampling(top_p=0.9))
print(len(drawn["scores"]), float(training.InverseSquareRoot(64)(10)))
encoder = models.TextEncoder.from_variant("tiny", 1000, head="classification", num_classes=3)
half = precision.in_precision(encoder, "bfloat16")
maps = inspection.attention_maps(encoder, ids)
print({path: each.shape for path, each in maps.items()}, inspection.attention_rollout(maps))
images = models.ViT.from_variant("Ti/16", num_classes=10, image_size=(32, 48))
detector = models.DETR(
    4, backbone=models.Swin.from_variant("T", None), queries=models.ProposalQueries(9)
)
answers = detection.best_answers(ops.zeros((1, 9, 5)), ops.zeros((1, 9, 4)))
print(answers["boxes"].shape, images.transferred(num_classes=3).count_params())

tokenizer = text.SentencePieceTokenizer.train(["a cat sat", "on a mat"], vocab_size=300)
tokenizer.save(pathlib.Path("tokenizer.model"))
pairs = text.read_pairs("pairs.tsv", max_length=200).without_long(tokenizer, 32, 32)
dataset = text.encode_pairs(pairs.sources, pairs.targets, tokenizer, shuffle_seed=1)
batches = text.bucketed(dataset, (16, 32), tokens_per_batch=512)
translator.fit(batches, callbacks=[training.CheckpointAverage(3, "val_accuracy", "max")])
corpus = vision.read_folder(pathlib.Path("images"))
preprocessing = vision.Preprocessing(32, mean=(0.5, 0.5, 0.5), std=0.25)
scores = training.score_classes(np.eye(2), [0, 1], corpus.classes)
print(scores.top1, {row["class"]: row["f1"] for row in scores.table})

served = export.Translator(translator, tokenizer, generation.Greedy())
folder: pathlib.Path = served.save("served", version=1, warmup=[["a cat"]])
export.image_classifier(images, "classifier", corpus.classes, preprocessing, format="onnx")
saving.save_weights(images, "weights.safetensors")
again = pretrained.load("opus-mt", task="translation")
print(again.encode(ids).shape, keras_transformers.load(folder).predict(["a cat"], details=True))
with distribution.distribute("data=2"):
    again.fit(batches)
