"""A small one of every export, for the claims that hold for all of them."""

import functools

import keras
import numpy as np
import tensorflow as tf

from keras_transformers import export, models
from keras_transformers.generation import BeamSearch, Greedy, Sampling
from keras_transformers.precision import in_precision
from keras_transformers.text import SentencePieceTokenizer, WordPieceTokenizer, encode_pairs, packed
from keras_transformers.training import SmoothedCrossEntropy, token_learning
from keras_transformers.vision import Preprocessing
from tests.writers import writer_of_all_parts

WORDS = "the cat sat on a mat and saw the dog run to an old house by the sea".split()
LINES = [" ".join(np.random.default_rng(i).choice(WORDS, 1 + i % 13)) for i in range(70)]
TEXTS = [*LINES, "", "   ", "日本語 😀", "\x00", "ein Satz, der nicht dazu gehört"]
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
MASKED = [line.replace("cat", "[MASK]", 1) for line in LINES]


@functools.cache
def tokenizer():
    return SentencePieceTokenizer.train(LINES, vocab_size=36)


@functools.cache
def word_pieces():
    return WordPieceTokenizer([*SPECIAL, *sorted(set(WORDS))])


@functools.cache
def images():
    """Encoded images of several sizes and kinds."""
    rng = np.random.default_rng(0)
    sizes = [(40, 30, 3), (17, 23, 1), (64, 64, 3), (5, 90, 4)]
    pixels = [rng.integers(0, 256, sizes[i % 4], "uint8") for i in range(7)]
    encoded = [tf.io.encode_png(each).numpy() for each in pixels]
    return [*encoded, tf.io.encode_jpeg(pixels[0]).numpy()]


def _transformer(**settings):
    size = {"hidden_dim": 32, "num_heads": 2, "mlp_dim": 48, "num_layers": 1}
    return models.Transformer.from_variant("base", tokenizer().vocab_size, **size, **settings)


def _translator(search, **settings):
    return export.Translator(_transformer(**settings), tokenizer(), search, (8, 16))


def _taught_translator(precision):
    """One that copies: in fewer bits untrained models find equally good what is not the same."""
    model = _transformer(norm_first=True)
    batches = packed(encode_pairs(LINES, LINES, tokenizer(), 1), 48, 48, rows=4)
    model.compile(keras.optimizers.Adam(1e-2), SmoothedCrossEntropy(), jit_compile=True)
    model.fit(batches.repeat(), steps_per_epoch=150, shuffle=False, verbose=0)
    copy = in_precision(model, precision)
    return export.Translator(copy, tokenizer(), BeamSearch(3), (8, 16))


def _recurrent():
    model = models.RecurrentTranslator(tokenizer().vocab_size, 32)
    return export.Translator(model, tokenizer(), BeamSearch(3, coverage_penalty=0.2), (8, 16))


def _generator(search, style):
    model = models.LanguageModel.from_variant(
        "tiny", tokenizer().vocab_size, style=style, num_layers=1
    )
    return export.TextGenerator(model, tokenizer(), search, 11, (4, 8))


def _taught_generator(precision):
    """One that has learned the lines by heart."""
    ids = tokenizer().tokenize(LINES, start=True, end=True).to_tensor(tokenizer().pad_id).numpy()
    model = models.LanguageModel.from_variant("tiny", tokenizer().vocab_size, num_layers=1)
    learning = token_learning(model.padding_id)
    model.compile(keras.optimizers.Adam(1e-2), jit_compile=True, **learning)
    model.fit(ids[:, :-1], ids[:, 1:], batch_size=len(ids), epochs=100, verbose=0)
    copy = in_precision(model, precision)
    return export.TextGenerator(copy, tokenizer(), BeamSearch(2), 11, (4, 8))


def _encoder(head=None, **settings):
    return models.TextEncoder.from_variant(
        "tiny", word_pieces().vocab_size, head=head, num_layers=1, **settings
    )


def _text_classifier(precision="float32"):
    model = _encoder("classification", **CLASSES)
    if precision != "float32":
        model.build((None, None))
        model = in_precision(model, precision)
    return export.TextClassifier(model, word_pieces(), ["a", "b", "c"], (8, 16))


def _image_classifier(precision="float32"):
    model = models.ViT.from_variant("Ti/14", image_size=28, num_layers=2, **CLASSES)
    model.build((None, 28, 28, 3))
    model = model if precision == "float32" else in_precision(model, precision)
    return export.ImageClassifier(model, ["cat", "dog", "bird"])


def _image_encoder():
    model = models.ViT.from_variant("Ti/14", None, image_size=28, num_layers=2)
    model.build((None, 28, 28, 3))
    return export.ImageEncoder(model, Preprocessing(28))


def _detector():
    model = models.DETR.from_variant("mini", num_classes=2, num_queries=7)
    model.build((None, 64, 64, 3))
    return export.Detector(model, ["cat", "dog"], Preprocessing(64))


CLASSES = {"num_classes": 3}
MAKE = {
    "translator, beams": lambda: _translator(BeamSearch(3), norm_first=True),
    "translator, greedy": lambda: _translator(Greedy()),
    "translator, sampling": lambda: _translator(Sampling(seed=5, num_samples=2, top_k=7)),
    "translator, recurrent": _recurrent,
    "text generator, gpt2": lambda: _generator(Sampling(seed=3, top_p=0.9), "gpt2"),
    "text generator, modern": lambda: _generator(BeamSearch(2), "modern"),
    "text generator, all parts": lambda: export.TextGenerator(
        writer_of_all_parts(tokenizer().vocab_size), tokenizer(), BeamSearch(2), 11, (4, 8)
    ),
    "text classifier": _text_classifier,
    "mask filler": lambda: export.MaskFiller(
        _encoder("masked_language"), word_pieces(), lengths=(8, 16)
    ),
    "sentence encoder": lambda: export.SentenceEncoder(_encoder(), word_pieces(), lengths=(8, 16)),
    "text tagger": lambda: export.TextTagger(
        _encoder("tagging", **CLASSES), word_pieces(), ["O", "B-CAT", "I-CAT"], lengths=(8, 16)
    ),
    "image classifier, vit": _image_classifier,
    "image encoder": _image_encoder,
    "detector": _detector,
}

ONE_OF_EACH = ("translator, beams", "text generator, gpt2", *list(MAKE)[7:])
IN_FEWER_BITS = {
    f"{name}, {precision}": functools.partial(make, precision)
    for name, make in {
        "translator": _taught_translator,
        "text generator": _taught_generator,
        "text classifier": _text_classifier,
        "image classifier": _image_classifier,
    }.items()
    for precision in ("bfloat16", "float16", "int8", "int4")
}


def requests(served):
    """What an export is asked: many at once, one, none."""
    if served.kind in ("image_classifier", "image_encoder", "detector"):
        return [images(), images()[:1], []]
    texts = MASKED if served.kind == "mask_filler" else TEXTS
    return [texts, texts[:1], texts[5:9], []]


def as_tensor(request):
    return tf.constant(request, tf.string, shape=[len(request)])
