"""Claims about what a published folder asks of a search: every key is known, none is ignored."""

import json

import pytest

from keras_transformers import generation, pretrained
from keras_transformers.pretrained.search import IMITATED, KEYS, Only

# Settings of each key that is imitated, and a search that must differ from the same without it.
CHANGES = {
    "num_beams": ({}, 4),
    "do_sample": ({}, True),
    "early_stopping": ({"num_beams": 2}, "never"),
    "length_penalty": ({"num_beams": 2}, 2.0),
    "num_return_sequences": ({"num_beams": 2}, 2),
    "temperature": ({"do_sample": True}, 0.5),
    "top_k": ({"do_sample": True}, 7),
    "top_p": ({"do_sample": True}, 0.9),
    "min_p": ({"do_sample": True}, 0.1),
    "min_length": ({}, 3),
    "min_new_tokens": ({}, 3),
    "no_repeat_ngram_size": ({}, 3),
    "bad_words_ids": ({}, [[5], [6, 7]]),
    "suppress_tokens": ({}, [5]),
    "begin_suppress_tokens": ({}, [5]),
    "forced_bos_token_id": ({}, 5),
    "forced_eos_token_id": ({}, 5),
    "decoder_start_token_id": ({}, 5),
    "eos_token_id": ({}, [5, 6]),
    "renormalize_logits": ({}, True),
    "repetition_penalty": ({}, 1.05),
}
MODES = {None: {}, "greedy": {}, "sampling": {"do_sample": True}, "beams": {"num_beams": 2}}


@pytest.fixture
def search(tmp_path):
    """The search that a folder asks for by these settings."""

    def load(name="generation_config.json", /, **settings):
        (tmp_path / name).write_text(json.dumps(settings))
        found = pretrained.load_search(tmp_path)
        (tmp_path / name).unlink()
        return found

    return load


def test_every_key_of_transformers_is_in_the_table():
    transformers = pytest.importorskip("transformers")
    unknown = vars(transformers.GenerationConfig()).keys() - KEYS.keys()
    assert not unknown
    assert all(rule == IMITATED or isinstance(rule, Only | str) for rule in KEYS.values())


def test_every_key_that_is_imitated_changes_the_search(search):
    assert CHANGES.keys() == {key for key, rule in KEYS.items() if rule == IMITATED}
    for key, (others, value) in CHANGES.items():
        assert search(**others, **{key: value}) != search(**others), key


def test_a_language_takes_the_place_of_the_first_token_that_a_folder_asks_for(tmp_path):
    asked = {"forced_bos_token_id": 5, "decoder_start_token_id": 2}
    (tmp_path / "generation_config.json").write_text(json.dumps(asked))
    for language, first in ((None, 5), (7, 7)):
        boundaries = pretrained.load_search(tmp_path, language).constraints.boundaries
        assert (boundaries.first, boundaries.start) == (first, 2)


@pytest.mark.parametrize("key", [key for key, rule in KEYS.items() if isinstance(rule, Only)])
def test_what_no_search_imitates_is_refused_by_name_where_it_is_read(search, key):
    rule = KEYS[key]
    for value in (*rule.values, None):
        assert search(**MODES[rule.mode], **{key: value}) == search(**MODES[rule.mode])
    with pytest.raises(ValueError, match=rf"generation_config.json: `{key}` must be .*Received"):
        search(**MODES[rule.mode], **{key: 3})
    if rule.mode == "sampling":
        assert search(**{key: 3}) == search()


def test_what_is_not_read_has_no_effect(search):
    for key, rule in KEYS.items():
        if isinstance(rule, str) and rule != IMITATED:
            assert search(num_beams=3, **{key: 7}) == search(num_beams=3), key


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"num_beams": 4, "do_sample": True}, "`num_beams` must be 1 with `do_sample`"),
        ({"num_beams": "4"}, "`num_beams` must be an integer of at least 1. Received: '4'"),
        ({"num_return_sequences": 2}, "`num_return_sequences` must be 1 without"),
        ({"bad_words_ids": [5]}, "`bad_words_ids` must be a list of lists"),
        ({"forced_eos_token_id": [5, 6]}, "`forced_eos_token_id` must be one id"),
        ({"eos_token_id": "</s>"}, "`eos_token_id` must be an id or a list of ids"),
        (
            {"suppress_tokens": [5], "forced_eos_token_id": 5},
            "`suppress_tokens` must be none of the forced tokens",
        ),
        ({"num_beams": 2, "early_stopping": "soon"}, "`early_stopping` must be True, False"),
        ({"repetition_penalty": 0.0}, "`repetition_penalty` must be a positive number"),
        ({"encoder_repetition_penalty": 1.2}, "`encoder_repetition_penalty` must be 1.0 or None"),
        ({"cache_implementation": "quantized"}, "`cache_implementation` must be 'dynamic'"),
    ],
)
def test_what_cannot_be_done_is_refused_in_a_sentence(search, settings, complaint):
    with pytest.raises(ValueError, match=complaint):
        search(**settings)


def test_a_key_that_transformers_does_not_know_is_named(search):
    with pytest.warns(UserWarning, match="generation_config.json: `speech_speed` is no setting"):
        search(speech_speed=2)


@pytest.mark.parametrize(
    ("settings", "first"),
    [
        ({"bos_token_id": 5}, 5),
        ({"bos_token_id": 5, "forced_bos_token_id": 7}, 5),
        ({"model_type": "bart"}, 0),
        ({"model_type": "mbart"}, 0),
        ({"model_type": "bart", "forced_bos_token_id": 7}, 0),
        ({"forced_bos_token_id": 7}, 7),
        ({"bos_token_id": 5, "force_bos_token_to_be_generated": False}, None),
    ],
)
def test_older_configurations_force_the_first_token_by_another_name(search, settings, first):
    settings = {"force_bos_token_to_be_generated": True, **settings}
    found = search("config.json", **settings)
    assert found.constraints.boundaries.first == first
    with pytest.warns(UserWarning, match="is no setting of transformers 5"):
        other = search(**settings)
    assert other.constraints.boundaries.first == settings.get("forced_bos_token_id")
    try:
        from transformers import BartConfig, GenerationConfig, MBartConfig
    except ImportError:
        return
    kind = {"bart": BartConfig, "mbart": MBartConfig}.get(settings.get("model_type"))
    theirs = settings if kind is None else kind(**settings)
    assert GenerationConfig.from_model_config(theirs).forced_bos_token_id == first


def test_settings_of_older_folders_stand_in_config_json(search):
    found = search("config.json", num_beams=6, bad_words_ids=[[9]], eos_token_id=0, d_model=512)
    constraints = generation.Constraints(banned=(9,), boundaries=generation.Boundaries((0,)))
    assert found == generation.BeamSearch(
        6, 1.0, constraints=constraints, normalization="length", early_stopping=False
    )
