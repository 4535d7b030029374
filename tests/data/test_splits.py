"""Claims about what is held out: duplicates stay together, and the choice follows from the rows."""

import collections

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from keras_transformers.data.splits import (
    LARGEST,
    MOST,
    PARTS,
    count_duplicates,
    find_parts,
    held_out,
    number_held_out,
    part_of,
    share_held_out,
)

KEYS = st.lists(st.text("abc ", max_size=3), min_size=5, max_size=60)


def chosen_or_none(keys, *given, **options):
    try:
        return held_out(keys, *given, **options)
    except ValueError:
        return None


@settings(max_examples=60, deadline=None)
@given(KEYS, st.integers(0, 3))
def test_rows_with_the_same_text_stay_together(keys, seed):
    chosen = chosen_or_none(keys, seed)
    plain = [" ".join(key.split()) for key in keys]
    if chosen is None:
        assert len(set(plain)) == 1
        return
    assert not {plain[i] for i in np.flatnonzero(chosen)} & {
        plain[i] for i in np.flatnonzero(~chosen)
    }
    assert 0 < chosen.sum() < len(keys)


@settings(max_examples=60, deadline=None)
@given(KEYS, st.randoms())
def test_the_choice_does_not_depend_on_the_order_of_the_rows(keys, random):
    chosen, order = chosen_or_none(keys), list(range(len(keys)))
    random.shuffle(order)
    again = chosen_or_none([keys[i] for i in order])
    assert (chosen is None) == (again is None)
    assert chosen is None or again.tolist() == chosen[order].tolist()


@settings(max_examples=60, deadline=None)
@given(st.integers(10, 200), st.integers(1, 4), st.integers(0, 9))
def test_each_class_gives_its_share_and_keeps_some(rows, classes, seed):
    strata = [row % classes for row in range(rows)]
    chosen = held_out([f"text {row}" for row in range(rows)], seed, strata)
    sizes = collections.Counter(strata)
    taken = collections.Counter(np.array(strata)[chosen].tolist())
    share = number_held_out(rows) / rows
    for each, size in sizes.items():
        assert abs(taken[each] - share * size) <= 0.5 and taken[each] < size


@given(st.integers(5, 10**7))
def test_a_tenth_is_held_out_of_many_rows_and_at_most_a_fifth_of_few(rows):
    number = number_held_out(rows)
    assert 1 <= number <= min(MOST, LARGEST * rows)
    assert number == rows // 10 or not 500 < rows < 10_000 or abs(number - rows / 10) <= 0.5


def test_a_second_part_shares_nothing_with_the_first_and_seeds_differ():
    keys = [f"text {row}" for row in range(300)]
    test = held_out(keys)
    rest = [key for key, out in zip(keys, test, strict=True) if not out]
    assert held_out(rest).sum() == 50 and test.sum() == 50
    assert (held_out(keys, seed=1) != test).any()
    assert held_out(keys + ["more"])[:300].tolist() == test.tolist()


@pytest.mark.parametrize("keys", [[], ["a"] * 90, ["a", "b", "c"]])
def test_too_few_rows_are_refused(keys):
    with pytest.raises(ValueError, match=f"{len(keys)} rows with .* too few to hold some out"):
        held_out(keys)


def test_the_usual_names_of_parts_are_known_in_any_case_and_others_are_not():
    for part, names in PARTS.items():
        assert {part_of(name) for name in (*names, *map(str.upper, names), f" {part} ")} == {part}
    assert [part_of(name) for name in ("trains", "cat", "", "test2")] == [None] * 4
    assert find_parts("a", ["Val", "cat", "TRAIN"]) == {"train": "TRAIN", "valid": "Val"}
    with pytest.raises(ValueError, match="a has more than one split for valid: val, dev"):
        find_parts("a", ["train", "val", "dev"], "split")


@settings(max_examples=60, deadline=None)
@given(KEYS, st.floats(0.05, 0.9), st.integers(0, 3))
def test_a_share_keeps_copies_together_and_takes_some_of_every_stratum_but_never_all(
    keys, share, seed
):
    plain = [" ".join(key.split()) for key in keys]
    strata = [len(text) % 2 for text in plain]
    chosen = share_held_out(keys, share, seed, strata)
    held = {plain[row] for row in np.flatnonzero(chosen)}
    assert not held & {plain[row] for row in np.flatnonzero(~chosen)}
    for stratum in set(strata):
        texts = {text for text, of in zip(plain, strata, strict=True) if of == stratum}
        assert bool(texts & held) == (len(texts) > 1) and not texts <= held


def test_duplicates_are_counted_within_parts_between_them_and_between_labels():
    parts = {"train": ["a", "b", "A "], "valid": ["c", "b"], "test": ["a", "c", "d"]}
    labels = {"train": [0, 1, 0], "valid": [0, 0], "test": [1, 0, 0]}
    expected = {
        "repeated in train": 1,
        "of valid also in train": 1,
        "of test also in train": 1,
        "of test also in valid": 1,
    }
    assert count_duplicates(parts) == expected
    assert count_duplicates(parts, labels) == expected | {"with several labels": 2}
    assert count_duplicates({"train": ["a"], "test": [b"b"]}) == {}
