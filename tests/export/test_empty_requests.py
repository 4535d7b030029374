"""Claims about requests with nothing in them: no row, one empty text, empty texts only."""

import functools

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_transformers import export, models
from keras_transformers.generation import BeamSearch, Greedy, Sampling
from keras_transformers.models import EndPooling, SpanHead
from keras_transformers.vision import Preprocessing
from tests.export import examples
from tests.export.test_requests import first_rows
from tests.export.test_text_generator import model_of, tokenizer_of
from tests.serving.answers import differences
from tests.serving.loader import as_lists
from tests.slow import slow_except


def _text_regressor():
    head = models.ClassificationHead(1, problem_type="regression")
    return export.TextRegressor(examples._encoder(head), examples.word_pieces(), (8, 16))


def _question_answerer():
    return export.QuestionAnswerer(examples._encoder(SpanHead()), examples.word_pieces(), (16,))


def _segmenter():
    heads = {"num_heads": (1, 1, 2, 2), "reductions": (4, 2, 1, 1), "mlp_ratios": (2, 2, 2, 2)}
    stages = {"hidden_dims": (4, 4, 6, 6), "num_layers": (1, 1, 1, 1)}
    model = models.SegFormer(3, models.PVT(None, 32, **stages, **heads), decoder_dim=9)
    model.build((None, 32, 32, 3))
    return export.Segmenter(model, ["sky", "sea", "sand"], Preprocessing(32, crop=False))


def _array_classifier():
    model = models.ViT(2, 8, 4, hidden_dim=12, num_heads=2, mlp_dim=16, num_layers=1)
    model.build((None, 8, 8, 4))
    return export.ImageClassifier(model, ["sea", "land"], Preprocessing(8, 4, [0.4] * 4, 0.3))


def _zero_shot_classifier():
    tokenizer = examples.tokenizer()
    images = models.ViT(None, 28, 7, hidden_dim=16, num_heads=2, mlp_dim=32, num_layers=1)
    pooling = EndPooling(tokenizer.end_id)
    sizes = {"num_heads": 2, "mlp_dim": 32, "num_layers": 1, "max_length": 9}
    texts = models.TextEncoder(tokenizer.vocab_size, 12, head=pooling, **sizes)
    model = models.DualEncoder(images, texts, projection_dim=8)
    model.build({"images": (None, 28, 28, 3), "ids": (None, None)})
    return export.ZeroShotClassifier(model, tokenizer)


def _writer(search):
    """Its tokenizer has no START, so that an empty prompt has no token at all."""
    kind = "byte pairs"
    return export.TextGenerator(model_of(kind), tokenizer_of(kind), search, 5, (4, 8))


MAKE = {
    **examples.MAKE,
    "text generator, greedy": lambda: _writer(Greedy()),
    "text generator, beams": lambda: _writer(BeamSearch(3)),
    "text generator, sampling": lambda: _writer(Sampling(seed=2, num_samples=2)),
    "text regressor": _text_regressor,
    "question answerer": _question_answerer,
    "array classifier": _array_classifier,
    "segmenter": _segmenter,
    "zero-shot classifier": _zero_shot_classifier,
}
SAMPLED = ("translator, sampling", "text generator, gpt2", "text generator, sampling")
IMAGES = ("image classifier, vit", "image encoder", "detector", "segmenter", "array classifier")
EMPTY = {"one empty text": [""], "only empty texts": ["", "  ", "\n", ""]}
SIGNATURES = slow_except(["serving_default", "xla"], "serving_default")


@functools.cache
def served(name):
    keras.utils.set_random_seed(3)
    return MAKE[name]()


def answered(name, signature, texts):
    """What an export answers to texts, or, of images, to none."""
    export = served(name)
    run = export if signature == "xla" else export.portable
    if export.kind == "question_answerer":
        pairs = [[text, text] for text in texts]
        return as_lists(run(tf.constant(pairs, tf.string, shape=[len(pairs), 2])))
    if name == "array classifier":
        return as_lists(run(tf.zeros((0, 8, 8, 4), tf.uint8)))
    request = examples.as_tensor(texts)
    if export.kind == "zero_shot_classifier":
        images = examples.as_tensor(examples.images()[: len(texts)])
        classes = request if texts else examples.as_tensor(["cat"])
        found = as_lists(run(images, classes))
        return {key: value for key, value in found.items() if texts or key != "truncated"}
    return as_lists(run(request))


@pytest.mark.parametrize("signature", SIGNATURES)
@pytest.mark.parametrize("name", slow_except(list(MAKE), "question answerer"))
def test_no_row_is_answered_by_no_row(name, signature):
    found = answered(name, signature, [])
    assert found and all(value == [] for value in found.values())


@pytest.mark.parametrize("signature", SIGNATURES)
@pytest.mark.parametrize("texts", slow_except(EMPTY, "one empty text"))
@pytest.mark.parametrize(
    "name", slow_except([name for name in MAKE if name not in IMAGES], "question answerer")
)
def test_empty_texts_are_answered_as_beside_others(name, texts, signature):
    found = answered(name, signature, texts)
    assert all(len(value) == len(texts) for value in found.values())
    numbers = [value for value in found.values() if isinstance(value[0], float)]
    assert np.isfinite(numbers).all()
    if name not in SAMPLED and name != "zero-shot classifier":
        among = answered(name, signature, [*texts, "the cat sat"])
        first = first_rows(among, len(texts))
        assert not differences({"answers": [first]}, {"answers": [found]})
