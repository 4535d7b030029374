"""Folders as runs leave them, of models that nobody has trained, in seconds."""

import csv
import dataclasses
import json

import keras

from keras_transformers.export import ImageClassifier, Translator
from keras_transformers.generation import BeamSearch
from keras_transformers.models import Transformer, ViT
from keras_transformers.text import SentencePieceTokenizer
from keras_transformers.vision import Preprocessing

SENTENCES = ["the cat sat on the mat", "a dog saw the cat", "the dog sat on a log"]
SEARCH = BeamSearch(4, 1.0)


def translator(folder):
    """A translator's folder."""
    keras.utils.set_random_seed(3)
    tokenizer = SentencePieceTokenizer.train(SENTENCES * 9, vocab_size=23)
    model = Transformer(tokenizer.vocab_size, hidden_dim=8, num_heads=2, mlp_dim=16, num_layers=1)
    model.build({"source": (None, None), "target": (None, None)})
    # The end scores zero, so that a sentence does not end before it has begun.
    embeddings = model.weights[0].numpy()
    embeddings[tokenizer.end_id] = 0
    model.weights[0].assign(embeddings)
    tokenizer.save(folder / "tokenizer.model")
    model.save(folder / "model.keras")
    Translator(model, tokenizer, SEARCH, source_lengths=(16,)).save(folder / "saved_model")
    settings = {"beam_size": SEARCH.beam_size, "length_penalty": SEARCH.length_penalty}
    (folder / "config.json").write_text(json.dumps(settings))
    with open(folder / "translations.tsv", "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, delimiter="\t")
        writer.writerow(["source", "reference", "translation"])
        writer.writerows([text, text, text] for text in SENTENCES)
    return folder


def image_classifier(folder):
    """The folder of an image classifier of ten classes."""
    keras.utils.set_random_seed(3)
    preprocessing = Preprocessing(16, channels=1)
    model = ViT.from_variant("mini/8", num_classes=10, image_size=16, num_layers=1)
    model.build((None, 16, 16, 1))
    model.save(folder / "model.keras")
    settings = json.dumps(dataclasses.asdict(preprocessing))
    (folder / "preprocessing.json").write_text(settings)
    names = [f"class {number}" for number in range(10)]
    ImageClassifier(model, names, preprocessing).save(folder / "saved_model")
    (folder / "config.json").write_text(json.dumps({"dataset": "fashion-mnist-12k"}))
    return folder
