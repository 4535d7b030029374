"""Calls of real users about writing and translating, once each, as they make them."""

import json

import numpy as np
import pytest

from keras_transformers import generation, models, pretrained


def writer():
    model = models.LanguageModel.from_variant("tiny", 23, num_layers=1)
    model.build((None, None))
    return model


def test_the_generation_settings_of_an_opus_folder_are_all_known(tmp_path):
    asked = {
        "bad_words_ids": [[22]],
        "bos_token_id": 0,
        "decoder_start_token_id": 22,
        "eos_token_id": 0,
        "forced_eos_token_id": 0,
        "max_length": 512,
        "num_beams": 6,
        "pad_token_id": 22,
        "renormalize_logits": True,
        "transformers_version": "4.32.0",
    }
    (tmp_path / "generation_config.json").write_text(json.dumps(asked))
    search = pretrained.load_search(tmp_path)
    assert search.beam_size == 6 and search.constraints.boundaries.last == 0


def test_a_setting_that_cannot_be_followed_is_named(tmp_path):
    (tmp_path / "generation_config.json").write_text(
        json.dumps({"do_sample": True, "typical_p": 0.3})
    )
    with pytest.raises(ValueError, match="`typical_p`"):
        pretrained.load_search(tmp_path)


@pytest.mark.parametrize(
    ("prompt", "options", "message"),
    [
        ([[5, 7]], {"max_length": 0}, "`max_length` must be an integer of at least 1"),
        ([[5, 99]], {"max_length": 6}, "ids of `prompt` must be from 0 to 22. Received: 99"),
        (np.array([5, 7]), {"max_length": 6}, r"`prompt` must be integer ids.*\(2,\)"),
        (np.array(5), {"max_length": 6}, r"`prompt` must be integer ids.*shape \(\)"),
    ],
)
def test_a_prompt_that_cannot_be_continued_gets_a_sentence(prompt, options, message):
    with pytest.raises(ValueError, match=f"generate: {message}"):
        generation.generate(writer(), prompt=prompt, **options)
