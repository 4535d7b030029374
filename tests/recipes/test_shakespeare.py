"""Claims about Shakespeare's works, scenes and passages."""

import collections

import pytest

from recipes.data import shakespeare

DATA = shakespeare.passages(words=40)
TRAIN, VALID, TEST = DATA["train"], DATA["valid"], DATA["test"]


def test_passages_are_of_one_length_and_of_every_play():
    for split in (TRAIN, VALID, TEST):
        assert {len(text.split()) for text in split.texts} == {40}
        assert len(split.labels) == len(split.texts)
        assert set(split.labels) == set(range(len(split.classes)))
    assert len(TRAIN.classes) == 36
    assert len(TRAIN) > 8 * len(TEST)
    assert "HAMLET, PRINCE OF DENMARK" in TRAIN.classes
    assert min(collections.Counter(TRAIN.labels).values()) > 200


def test_no_passage_is_in_two_sets():
    train, valid, test = (set(split.texts) for split in (TRAIN, VALID, TEST))
    assert not train & valid and not train & test and not valid & test


def test_speakers_and_directions_are_left_out():
    words = collections.Counter(word for text in TRAIN.texts for word in text.split())
    for word in ("HAMLET.", "Ham.", "MACBETH.", "[Enter", "Exeunt.]", "ACT"):
        assert words[word] == 0
    assert any("To be, or not to be" in text for text in TRAIN.texts)


def test_a_passage_without_words_is_refused():
    with pytest.raises(ValueError, match="`words` must be positive. Received: 0"):
        shakespeare.passages(words=0)


def test_works_are_whole_and_four_plays_are_held_out():
    corpora = shakespeare.by_work()
    assert [len(corpora[split]) for split in ("train", "valid", "test")] == [38, 1, 3]
    everything = "".join(text for corpus in corpora.values() for text in corpus.texts)
    assert len(everything) > 5_040_000  # of 5,057,321 characters, titles and authors included
    assert "Is this a dagger" in corpora["valid"].texts[0]
    assert not any("Is this a dagger" in text for text in corpora["train"].texts)
    assert any("\nALL.\nSpeak, speak.\n" in text for text in corpora["train"].texts)


def test_scenes_of_passages_are_those_of_the_split():
    scenes = shakespeare.by_scene()
    held_out = " ".join(scenes["test"].texts)
    assert all(text in held_out for text in TEST.texts)
    assert not any(text in held_out for text in TRAIN.texts)
