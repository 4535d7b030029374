"""Claims about the pages of published weights, which have no run's numbers beside them."""

import numpy as np
import PIL.Image
import pytest

import keras_transformers
from keras_transformers import pretrained
from keras_transformers.generation import BeamSearch
from recipes.lib.pages import answers
from tests.pretrained import folders


def published(folder, name):
    """The predictor of a small model of the family that a recipe goes on from."""
    make, shape = folders.MADE[name]
    model = make(folder)
    model.build(shape)
    pretrained.save(model, folder)
    return keras_transformers.load(folder)


@pytest.mark.parametrize("name", ["vit", "swin"])
def test_attention_is_shown(name, tmp_path):
    predictor = published(tmp_path, name)
    shown, _ = answers.attention(predictor, PIL.Image.effect_noise((40, 30), 50))
    assert shown.shape == (448, 448, 3) and shown.std() > 0


@pytest.mark.slow
def test_alternatives_to_a_greedy_translation_are_found_by_beams(tmp_path):
    predictor = published(tmp_path, "translation")
    search = answers.search_of(tmp_path, 3)
    assert search == BeamSearch(3, 0.0, n_best=3)
    ranked = answers.alternatives(predictor, "the king", search)
    assert 1 <= len(ranked) <= 3 and all(np.isfinite(score) for score, _ in ranked)
    assert answers.alignment_picture(predictor, "the king", "the queen").ndim == 3


@pytest.mark.slow
def test_a_text_may_begin_where_the_tokenizer_has_no_start(tmp_path):
    predictor = published(tmp_path, "language_model")
    own = answers.sampling_settings(tmp_path, predictor)
    assert own == answers.SamplingSettings(0.8, 0.95, 40)  # half its positions
    pen = answers.Writer(predictor.model, predictor.tokenizer, own.new_tokens)
    assert all(text.startswith("the king") for text, _ in pen.write("the king", 0.5, 0.9))
    assert all(note == "" for _, note in pen.write("", 0.5, 0.9))
