"""Claims about tokenizers with a part of their vocabulary."""

import json
import string

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sentencepiece import sentencepiece_model_pb2

from keras_transformers import pretrained
from keras_transformers.text import (
    AddedToken,
    FairseqTokenizer,
    FastTokenizer,
    SentencePieceTokenizer,
    SiglipTokenizer,
    TrimmedTokenizer,
    WordPieceTokenizer,
    coverage,
    trim_tokenizer,
)
from recipes.data.translation import load as load_pairs
from tests.pretrained.folders import gpt2, marian
from tests.pretrained.piece_folders import CLASSES, spm, write
from tests.slow import slow_except

PAIRS = load_pairs("ui.en-de").train
# Letters of the vocabularies, some that they lack, marks, and spaces of several kinds.
LETTERS = string.ascii_letters + "äöüßÄ09.,:-'  \t\n▁ЖД日本☃é½"
MARKS = ["<s>", "</s>", "<unk>", "<mask>", ">>fra<<", "<extra_id_3>", "[UNK]", "<|endoftext|>"]
WORDS = PAIRS.sources[:200] + PAIRS.targets[:200]
TEXTS = st.lists(
    st.lists(
        st.one_of(st.text(LETTERS, max_size=6), st.sampled_from(MARKS), st.sampled_from(WORDS)),
        max_size=4,
    ).map("".join),
    min_size=1,
    max_size=6,
)
OWN = ("unigram", "bpe", "bytes", "lossless")
KINDS = (*CLASSES, "xlmr", "marian", "gpt2", "bert", *OWN)


def own(kind):
    options = {"byte_fallback": True} if kind == "bytes" else {}
    options |= {"model_type": "bpe"} if kind in ("bpe", "bytes") else {}
    options |= {"lossless": True} if kind == "lossless" else {}
    lines = PAIRS.sources[:800] + PAIRS.targets[:800]
    return SentencePieceTokenizer.train(lines, 500, **options)


@pytest.fixture(scope="module")
def tokenizers(tmp_path_factory):
    """A function from a kind to its tokenizer, made once."""
    made = {}

    def make(kind):
        if kind not in made:
            folder = tmp_path_factory.mktemp(kind)
            if kind in CLASSES:
                made[kind] = pretrained.load_tokenizer(write(folder, kind))
            elif kind in ("marian", "gpt2"):
                (marian if kind == "marian" else gpt2)(folder)
                made[kind] = pretrained.load_tokenizer(folder)
            elif kind == "xlmr":
                mask = AddedToken("<mask>", special=True, lstrip=True)
                made[kind] = FairseqTokenizer(spm("unigram"), [mask])
            elif kind == "bert":
                made[kind] = WordPieceTokenizer.train(PAIRS.sources[:800], 400)
            else:
                made[kind] = own(kind)
        return made[kind]

    return make


def cut(tokenizer, texts):
    """The pieces of texts."""
    return [tokenizer.pieces(row) for row in tokenizer.tokenize(texts).to_list()]


@pytest.mark.parametrize("kind", slow_except(KINDS, "NllbTokenizer", "gpt2", "bert", *OWN))
def test_the_same_texts_are_cut_into_the_same_pieces(kind, tokenizers):
    tokenizer = tokenizers(kind)

    @given(TEXTS)
    @settings(max_examples=8, deadline=None)
    def holds(texts):
        try:
            trimmed = trim_tokenizer(tokenizer, texts)
        except ValueError as error:
            assert "must have text" in str(error)
            return
        assert cut(trimmed.tokenizer, texts) == cut(tokenizer, texts)
        old, new = tokenizer.tokenize(texts, end=True), trimmed.tokenizer.tokenize(texts, end=True)
        assert trimmed.kept[np.array(new.flat_values)].tolist() == old.flat_values.numpy().tolist()
        assert (np.diff(trimmed.kept) > 0).all()
        assert len(trimmed.kept) == trimmed.tokenizer.vocab_size <= tokenizer.vocab_size
        names = tokenizer.pieces(trimmed.kept)
        assert trimmed.tokenizer.pieces(range(len(trimmed.kept))) == names

    holds()


@pytest.mark.parametrize("kind", KINDS)
def test_much_goes_and_marks_and_bytes_stay(kind, tokenizers):
    tokenizer = tokenizers(kind)
    trimmed = trim_tokenizer(tokenizer, ["the door"])
    assert trimmed.tokenizer.vocab_size < tokenizer.vocab_size
    ids = [tokenizer.end_id, *getattr(tokenizer, "added_ids", ())]
    ids += [*getattr(tokenizer, "language_ids", {}).values()]
    ids += [getattr(tokenizer, "unknown_id", tokenizer.end_id)]
    ids += [
        each for each in (tokenizer.pad_id, tokenizer.start_id) if each is not None and each >= 0
    ]
    assert {*ids} <= {*trimmed.kept.tolist()}
    assert trimmed.renumbered([tokenizer.end_id]) == [trimmed.tokenizer.end_id]
    assert trimmed.tokenizer.get_config().keys() == tokenizer.get_config().keys()


@pytest.mark.parametrize("kind", KINDS)
def test_no_character_of_the_scripts_becomes_unknown(kind, tokenizers):
    """Of other texts in the same letters; what was unknown before still is."""
    tokenizer = tokenizers(kind)
    trimmed = trim_tokenizer(tokenizer, ["the door"]).tokenizer
    unknown = getattr(tokenizer, "unknown_id", -1)
    before = [unknown in row for row in tokenizer.tokenize(WORDS).to_list()]
    now = getattr(trimmed, "unknown_id", -1)
    assert [now in row for row in trimmed.tokenize(WORDS).to_list()] == before
    back = trimmed.detokenize(trimmed.tokenize(WORDS)).numpy().tolist()
    assert back == tokenizer.detokenize(tokenizer.tokenize(WORDS)).numpy().tolist()


def test_pieces_of_other_scripts_go_and_may_be_asked_for():
    lines = ["the cat sat on the mat", "кошка сидела на ковре", "7 + 8 = 15"] * 20
    tokenizer = SentencePieceTokenizer.train(lines, 35)
    trimmed = trim_tokenizer(tokenizer, ["the mat"])
    pieces = {*trimmed.tokenizer.pieces(range(trimmed.tokenizer.vocab_size))}
    assert {"c", "s", "7", "+"} <= pieces and not {*"кошвр"} & pieces
    ids = trimmed.tokenizer.tokenize("кошка").numpy()
    assert trimmed.tokenizer.unknown_id in ids
    asked = trim_tokenizer(tokenizer, ["the mat"], also=["к", tokenizer.vocab_size - 1])
    assert "к" in asked.tokenizer.pieces(range(asked.tokenizer.vocab_size))
    assert tokenizer.vocab_size - 1 in asked.kept


@pytest.mark.parametrize("kind", ["unigram", "bpe", "NllbTokenizer", "marian", "gpt2", "bert"])
def test_size_keeps_the_most_frequent_pieces_besides(kind, tokenizers):
    tokenizer = tokenizers(kind)
    least = trim_tokenizer(tokenizer, ["the door"])
    size = (least.tokenizer.vocab_size + tokenizer.vocab_size) // 2
    more = trim_tokenizer(tokenizer, ["the door"], size=size)
    assert {*least.kept.tolist()} < {*more.kept.tolist()}
    assert size - 3 <= more.tokenizer.vocab_size <= size
    assert cut(more.tokenizer, ["the door"]) == cut(tokenizer, ["the door"])
    shorter = [len(each.tokenizer.tokenize(WORDS).flat_values) for each in (more, least)]
    assert shorter[0] < shorter[1]
    whole = trim_tokenizer(tokenizer, WORDS, size=10**6).tokenizer
    assert cut(whole, WORDS) == cut(tokenizer, WORDS)


def by_hand(scores, samples=b""):
    """A tokenizer of the unigrams with these scores."""
    model = sentencepiece_model_pb2.ModelProto()
    for number, mark in enumerate(["<pad>", "<s>", "</s>", "<unk>"]):
        model.pieces.add(piece=mark, type=2 if mark == "<unk>" else 3)
        setattr(model.trainer_spec, ("pad_id", "bos_id", "eos_id", "unk_id")[number], number)
    for piece, score in scores.items():
        model.pieces.add(piece=piece, score=score)
    model.normalizer_spec.name = "identity"
    return SentencePieceTokenizer(model.SerializeToString() + samples)


def test_the_cost_of_unknown_characters_stays():
    """It is 10 more than that of the rarest piece: cheaper ones would stand beside "bc" here."""
    scores = {"▁": -1, "a": -1, "b": -50, "c": -60, "aZb": -60, "bc": -1, "rare": -200}
    tokenizer, texts = by_hand(scores), ["aZbc", "bc"]
    trimmed = trim_tokenizer(tokenizer, texts).tokenizer
    assert cut(tokenizer, texts) == [["▁", "aZb", "c"], ["▁", "bc"]] == cut(trimmed, texts)
    without = by_hand({piece: score for piece, score in scores.items() if piece != "rare"})
    assert cut(without, texts[:1]) == [["▁", "a", "<unk>", "bc"]]


def test_samples_by_which_sentencepiece_tests_itself_go():
    """A file with samples is read only if they are cut as it says."""

    def field(number, content):
        return bytes([8 * number + 2, len(content)]) + content

    samples = field(4, field(1, field(1, b"bc") + field(2, "▁ bc".encode())))
    tokenizer = by_hand({"▁": -1, "b": -50, "c": -60, "bc": -2, "d": -70}, samples)
    trimmed = trim_tokenizer(tokenizer, ["d"]).tokenizer
    assert cut(trimmed, ["bc d"]) == [["▁", "b", "c", "▁", "d"]]


def test_a_word_that_is_unknown_stays_so():
    """Without "ab", "abc" would become "a ##bc", were not the pieces kept that make it unknown."""
    vocab = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "ab", "##bc", "##b", "abcd"]
    tokenizer = WordPieceTokenizer(vocab)
    trimmed = trim_tokenizer(tokenizer, ["abc", "a", "a b"], also=["##bc"]).tokenizer
    assert cut(trimmed, ["abc", "a"]) == [["[UNK]"], ["a"]]
    assert "abcd" not in trimmed.vocab


def test_both_models_of_marian_lose_the_same(tokenizers):
    tokenizer = tokenizers("marian")
    sources, targets = PAIRS.sources[:5], PAIRS.targets[:5]
    trimmed = trim_tokenizer(tokenizer, sources, targets).tokenizer
    assert cut(trimmed, sources) == cut(tokenizer, sources)
    other = trimmed.for_targets()
    assert other.vocab == trimmed.vocab
    assert cut(other, targets) == cut(tokenizer.for_targets(), targets)


def test_what_cannot_be_trimmed_is_refused_by_name(tokenizers):
    tokenizer = tokenizers("unigram")
    for texts in ([], ["", " "]):
        with pytest.raises(ValueError, match="`texts` must have text in them. Received: none"):
            trim_tokenizer(tokenizer, texts)
    with pytest.raises(ValueError, match="trim_tokenizer: `strings` must be an iterable of str"):
        trim_tokenizer(tokenizer, "a text")
    with pytest.raises(ValueError, match="`size` must be at least [0-9]+, which.*Received: 5"):
        trim_tokenizer(tokenizer, ["a"], size=5)
    for also in ("nothing", -1, 10**6):
        with pytest.raises(ValueError, match=f"`also` must be pieces, or ids from.*{also}"):
            trim_tokenizer(tokenizer, ["a"], also=[also])
    with pytest.raises(ValueError, match="among those that are kept.*Received: .2, 60"):
        TrimmedTokenizer(tokenizer, np.arange(2)).renumbered([1, 2, 60])
    for kind in (FastTokenizer, SiglipTokenizer):
        with pytest.raises(
            ValueError, match=f"`tokenizer` must be a .*Received: a {kind.__name__}"
        ):
            trim_tokenizer(object.__new__(kind), ["a"])
    marian = tokenizers("marian")
    config = json.loads(json.dumps(marian.get_config())) | {"target_vocab": list(marian.vocab)}
    with pytest.raises(ValueError, match="one vocabulary for both sides.*with a `target_vocab`"):
        trim_tokenizer(type(marian).from_config(config), ["a"])


def test_coverage_counts_words_pieces_and_what_is_unknown(tokenizers):
    tokenizer = tokenizers("unigram")
    found = coverage(tokenizer, iter(["the door", "☃ ☃", ""]))
    ids = tokenizer.tokenize(["the door", "☃ ☃"]).flat_values.numpy()
    assert (found.texts, found.words, found.pieces) == (3, 4, len(ids))
    assert found.unknown == (ids == tokenizer.unknown_id).mean() > 0
    assert found.pieces_per_word == len(ids) / 4
    assert found.used == len({*ids.tolist()}) / 500
    trimmed = trim_tokenizer(tokenizer, ["the door"]).tokenizer
    assert coverage(trimmed, ["the door"]).used > coverage(tokenizer, ["the door"]).used
    assert coverage(tokenizers("gpt2"), ["☃"]).unknown == 0
    with pytest.raises(ValueError, match="coverage: `texts` must have words in them"):
        coverage(tokenizer, [" "])
