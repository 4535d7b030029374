"""Claims about scores of tags, beside the package `seqeval` and by hand."""

import numpy as np
import pytest

from keras_transformers.data.labels import entities_of, mark_entities
from keras_transformers.training import score_tags


@pytest.mark.parametrize(
    ("tags", "expected"),
    [
        ("O B-A I-A O B-A", [("A", 1, 3), ("A", 4, 5)]),
        ("B-A B-A I-B I-B", [("A", 0, 1), ("A", 1, 2), ("B", 2, 4)]),  # another type begins anew
        ("I-A I-A B-A", [("A", 0, 2), ("A", 2, 3)]),  # as IOB1 has it
        ("S-A B-A I-A E-A E-A", [("A", 0, 1), ("A", 1, 4), ("A", 4, 5)]),
        ("S-A I-A", [("A", 0, 1), ("A", 1, 2)]),
        ("B-X-Y I-X-Y I-X", [("X-Y", 0, 2), ("X", 2, 3)]),
        ("O O", []),
    ],
)
def test_entities_are_read_as_conlleval_does(tags, expected):
    assert [tuple(each) for each in entities_of(tags.split())] == expected


def test_a_word_without_a_tag_ends_an_entity():
    assert [tuple(each) for each in entities_of(["B-A", "", "I-A"])] == [("A", 0, 1), ("A", 2, 3)]


@pytest.mark.parametrize(
    ("tags", "marked"),
    [("O B-A", True), ("I-A E-B S-C", True), ("O", False), ("B-A X-B", False), ("B-A PER", False)],
)
def test_tags_mark_entities_only_if_all_do(tags, marked):
    assert mark_entities(tags.split()) == marked


def test_scores_by_hand():
    """Four entities, three found, of which two are right; six of eight words."""
    right = [["B-A", "I-A", "O", "B-B"], ["B-B", "O", "B-A", "O"]]
    found = [["B-A", "I-A", "O", "B-A"], ["B-B", "O", "O", "O"]]
    scores = score_tags(found, right).numbers()
    expected = {"accuracy": 6 / 8, "precision": 2 / 3, "recall": 2 / 4, "f1": 4 / 7}
    assert scores == pytest.approx(expected)
    assert score_tags([["DET", "VERB"]], [["DET", "NOUN"]]).numbers() == {"accuracy": 0.5}
    nothing = {"accuracy": 0.5, "precision": 0.0, "recall": 0.0, "f1": 0.0}
    assert score_tags([["O", ""]], [["O", "B-A"]]).numbers() == nothing


@pytest.mark.parametrize("letters", ["BI", "BIES"])
@pytest.mark.filterwarnings("ignore")
def test_scores_are_those_of_seqeval(letters):
    metrics = pytest.importorskip("seqeval.metrics")
    random = np.random.default_rng(0)
    names = ["O", "O", *(f"{letter}-{kind}" for letter in letters for kind in ("A", "B", "X-Y"))]
    for _ in range(100):
        right = [random.choice(names, random.integers(1, 9)).tolist() for _ in range(4)]
        found = [
            [str(random.choice(names)) if random.random() < 0.3 else tag for tag in tags]
            for tags in right
        ]
        scores = score_tags(found, right).numbers()
        for name, number in scores.items():
            theirs = getattr(metrics, f"{name}_score")(right, found)
            assert number == pytest.approx(theirs, abs=1e-12)
        spans = [tuple(entity) for entity in entities_of(found[0])]
        theirs = metrics.sequence_labeling.get_entities(found[0])
        assert spans == [(kind, first, last + 1) for kind, first, last in theirs]


def test_other_numbers_of_words_are_refused():
    with pytest.raises(ValueError, match="the same words. Received: 1 in 1 sentences and 2 in 1"):
        score_tags([["O"]], [["O", "O"]])
    with pytest.raises(ValueError, match="score_tags: .* 0 in 0 sentences"):
        score_tags([], [])
