"""Claims about the passages of Shakespeare's plays."""

import collections

import pytest

from recipes.data import plays

DATA = plays.load(words=40)


def test_passages_are_of_one_length_and_of_every_play():
    for split in (DATA.train, DATA.valid, DATA.test):
        assert {len(text.split()) for text in split.texts} == {40}
        assert len(split.labels) == len(split.texts)
        assert set(split.labels) == set(range(len(split.classes)))
    assert len(DATA.train.classes) == 36
    assert len(DATA.train) > 8 * len(DATA.test)
    assert "HAMLET, PRINCE OF DENMARK" in DATA.train.classes
    assert min(collections.Counter(DATA.train.labels).values()) > 200


def test_no_passage_is_in_two_sets():
    train, valid, test = (set(split.texts) for split in (DATA.train, DATA.valid, DATA.test))
    assert not train & valid and not train & test and not valid & test


def test_speakers_and_directions_are_left_out():
    words = collections.Counter(word for text in DATA.train.texts for word in text.split())
    for word in ("HAMLET.", "Ham.", "MACBETH.", "[Enter", "Exeunt.]", "ACT"):
        assert words[word] == 0
    assert any("To be, or not to be" in text for text in DATA.train.texts)


def test_a_passage_without_words_is_refused():
    with pytest.raises(ValueError, match="`words` must be positive. Received: 0"):
        plays.load(words=0)
