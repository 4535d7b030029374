"""Claims about links between the words of a translation and of its source."""

import keras
import numpy as np
import pytest

from keras_transformers.alignment import Pairs, align_words, learn_alignment, pharaoh, read_pharaoh
from keras_transformers.inspection import attention_maps
from keras_transformers.models import AlignmentHead, Transformer
from keras_transformers.text import SentencePieceTokenizer
from keras_transformers.training import alignment_error_rate

WORDS = "the cat sat on a mat and saw the dog run to an old house by the sea".split()
LINES = [" ".join(np.random.default_rng(i).choice(WORDS, 1 + i % 7)) for i in range(60)]


@pytest.fixture(scope="module")
def tokenizer():
    return SentencePieceTokenizer.train(LINES, vocab_size=30)


@pytest.fixture(scope="module")
def model():
    model = Transformer(30, hidden_dim=16, num_heads=2, mlp_dim=32, num_layers=3)
    model.build({"source": (None, None), "target": (None, None)})
    generator = np.random.default_rng(5)
    model.set_weights([generator.normal(0, 0.7, each.shape) for each in model.get_weights()])
    return model


def by_loops(model, tokenizer, source, target, layer, heads, at):
    """The links of a pair alone, piece by piece, in float64."""
    ids = {
        "source": tokenizer.tokenize([source], end=True).numpy(),
        "target": tokenizer.tokenize([target], start=True, end=True).numpy(),
    }
    maps = attention_maps(model, ids, f"decoder_{layer}/cross_attention")
    weights = np.mean([list(maps.values())[0][0, head] for head in heads], axis=0, dtype="float64")
    pieces = [tokenizer.pieces(ids[side][0].tolist()) for side in ("source", "target")]
    of_source = np.cumsum([piece[0] == "\u2581" for piece in pieces[0][:-1]]) - 1
    of_target = np.cumsum([piece[0] == "\u2581" for piece in pieces[1][1:-1]]) - 1
    links = []
    for word in range(len(target.split())):
        sums, rest = np.zeros(len(source.split())), 0.0
        for piece in np.flatnonzero(of_target == word):
            row = weights[piece + 1 if at == "input" else piece]
            for other in range(len(sums)):
                sums[other] += max(row[: len(of_source)][of_source == other])
            rest += row[len(of_source) :].sum()
        if sums.max() > rest:
            links.append((int(sums.argmax()), word))
    return links


@pytest.mark.parametrize("at", ["input", "output"])
@pytest.mark.parametrize(("layer", "heads"), [(None, None), (0, [1]), (1, [0, 1])])
def test_each_word_is_linked_to_the_word_that_is_attended_to_most(
    model, tokenizer, at, layer, heads
):
    sources, targets = LINES[20:30], LINES[30:40]
    found = align_words(model, tokenizer, sources, targets, layer, heads, at)
    chosen = (2 if layer is None else layer, [0, 1] if heads is None else heads)
    for source, target, links in zip(sources, targets, found, strict=True):
        assert links == by_loops(model, tokenizer, source, target, *chosen, at)
    assert sum(map(len, found)) > 9


def test_words_are_what_white_space_divides_and_empty_texts_have_no_links(model, tokenizer):
    texts = ["the  cat,  sat ", "", "   "]
    found = align_words(model, tokenizer, texts, ["a mat", "a", "a"])
    assert all(source < 3 and target < 2 for source, target in found[0])
    assert found[1:] == [[], []]


def test_a_text_that_may_be_cut_in_two_ways_is_still_divided_into_its_words(model, tokenizer):
    class Ambiguous:
        """Cuts the second word otherwise where it stands alone."""

        def __getattr__(self, name):
            return getattr(tokenizer, name)

        def tokenize(self, strings):
            texts = [each.numpy().decode() for each in strings]
            return tokenizer.tokenize([f"{text} a" if text == " cat" else text for text in texts])

    assert align_words(model, Ambiguous(), ["the cat sat"], ["a mat"]) == align_words(
        model, tokenizer, ["the cat sat"], ["a mat"]
    )


def test_wrong_requests_are_refused(model, tokenizer):
    for options, said in (
        ({"layer": 3}, "`layer` must be from 0 to 2. Received: 3"),
        ({"heads": [2]}, r"`heads` must be some of 0 to 1. Received: \[2\]"),
        ({"heads": []}, "`heads` must be some of"),
        ({"at": "both"}, '`at` must be "input" or "output"'),
    ):
        with pytest.raises(ValueError, match=said):
            align_words(model, tokenizer, ["a"], ["a"], **options)
    with pytest.raises(ValueError, match="as long as each other. Received: 2 and 1"):
        align_words(model, tokenizer, ["a", "a"], ["a"])


def test_pharaoh_s_format_is_written_and_read():
    links = [(2, 0), (0, 1), (10, 3)]
    assert pharaoh(links) == "0-1 2-0 10-3"
    assert sorted(read_pharaoh(pharaoh(links))) == sorted(links)
    assert read_pharaoh("") == read_pharaoh(" \n") == []
    for wrong in ("0-", "0:1", "a-1", "-1-2", "0-1-2"):
        with pytest.raises(ValueError, match=f"must have links such as 0-0. Received: '{wrong}'"):
            read_pharaoh(f"0-0 {wrong}")


def test_the_alignment_error_rate_is_that_of_och_and_ney():
    """By hand: |A| = 4, |S| = 3, |A & S| = 2, |A & P| = 3."""
    links = [[(0, 0), (1, 1)], [(0, 0), (2, 2)]]
    sure = [[(0, 0), (1, 2)], [(0, 0)]]
    possible = [[(1, 1)], [(5, 5)]]
    assert alignment_error_rate(links, sure, possible) == {
        "error_rate": pytest.approx(1 - 5 / 7),
        "precision": 3 / 4,
        "recall": 2 / 3,
    }
    everything = [[*a, *b] for a, b in zip(sure, possible, strict=True)]
    assert alignment_error_rate(everything, sure, possible)["error_rate"] == 0
    assert alignment_error_rate(links, sure)["error_rate"] == pytest.approx(1 - 4 / 7)
    assert alignment_error_rate([[]], [[]])["error_rate"] == 0
    assert alignment_error_rate([[]], [[(0, 0)]]) == {
        "error_rate": 1.0,
        "precision": 1.0,
        "recall": 0.0,
    }
    with pytest.raises(ValueError, match="as long as each other. Received: 1, 2, 2"):
        alignment_error_rate([[]], [[], []])


def test_each_query_of_a_linked_word_is_to_attend_to_the_words_it_is_linked_to(tokenizer):
    """By hand: what produces a piece stands one position before it."""
    pairs = Pairs("test", tokenizer, ["the sea house"], ["a dog the"])
    pieces = [
        [len(tokenizer.tokenize([word]).numpy()[0]) for word in text.split()]
        for text in ("the sea house", "a dog the")
    ]
    wanted, weights = pairs.wanted(0, [(0, 1), (2, 1), (1, 2)], (20, 24))
    starts = [np.cumsum([0, *sizes]) for sizes in pieces]
    expected = np.zeros((20, 24))
    dog, the = (slice(*starts[1][i : i + 2]) for i in (1, 2))
    keys = np.r_[starts[0][0] : starts[0][1], starts[0][2] : starts[0][3]]
    expected[dog, keys] = 1 / len(keys)
    expected[the, starts[0][1] : starts[0][2]] = 1 / pieces[0][1]
    np.testing.assert_allclose(wanted, expected, rtol=1e-6)
    assert weights.tolist() == (expected.sum(axis=1) > 0).tolist()


@pytest.mark.slow
def test_a_head_learns_links_and_the_translator_stays_as_it_is(tokenizer):
    """Targets are the sources backwards, so that no diagonal is of use."""
    model = Transformer(30, hidden_dim=32, num_heads=2, mlp_dim=32, num_layers=1)
    model.build({"source": (None, None), "target": (None, None)})
    before = model.get_weights()
    generator = np.random.default_rng(3)
    words = sorted(set(WORDS))
    sources = [" ".join(generator.permutation(words)[: 2 + i % 6]) for i in range(400)]
    targets = [" ".join(reversed(text.split())) for text in sources]
    links = [[(len(t.split()) - 1 - i, i) for i in range(len(t.split()))] for t in sources]
    head = learn_alignment(
        model, tokenizer, sources[50:], targets[50:], links[50:], epochs=25, learning_rate=1e-2
    )
    for old, new in zip(before, model.get_weights(), strict=True):
        np.testing.assert_array_equal(old, new)
    found = align_words(model, tokenizer, sources[:50], targets[:50], learned=head)
    assert alignment_error_rate(found, links[:50])["error_rate"] < 0.1
    plain = align_words(model, tokenizer, sources[:50], targets[:50])
    assert alignment_error_rate(plain, links[:50])["error_rate"] > 0.3
    with pytest.raises(ValueError, match="must have their defaults beside a `learned` head"):
        align_words(model, tokenizer, ["a"], ["a"], layer=0, learned=head)


def test_a_head_s_scores_are_those_of_its_equation_and_outlast_a_file(model, tmp_path):
    head = AlignmentHead(5)
    ids = {"source": np.array([[5, 7, 9, 2, 0]]), "target": np.array([[1, 6, 8]])}
    found = np.asarray(head.scores(model, ids), "float64")
    states = [np.asarray(x, "float64") for x in (model.encode(ids["source"])[0],)]
    from keras_transformers.models.text_model import hidden_states

    with hidden_states():
        decoded = np.asarray(model(ids)[0], "float64")
    read = np.concatenate([decoded[1:], np.zeros((1, 16))])
    queries = np.concatenate([decoded, read], axis=1) @ np.asarray(head.query_dense.kernel)
    keys = states[0] @ np.asarray(head.key_dense.kernel)
    expected = queries @ keys.T / np.sqrt(5)
    np.testing.assert_allclose(found[0, :, :4], expected[:, :4], atol=1e-4)
    assert (found[0, :, 4] < -1e8).all()
    head.save(tmp_path / "alignment.keras")
    again = keras.saving.load_model(tmp_path / "alignment.keras")
    np.testing.assert_array_equal(again.scores(model, ids), head.scores(model, ids))


def test_links_for_other_pairs_are_refused(model, tokenizer):
    with pytest.raises(ValueError, match="`links` must have those of each pair, 2. Received: 1"):
        learn_alignment(model, tokenizer, ["a", "a"], ["a", "a"], [[]])
    with pytest.raises(ValueError, match="`links` must be of words.*has 1 and 1. Received: 0-7"):
        learn_alignment(model, tokenizer, ["a"], ["a"], [[(0, 7)]])
