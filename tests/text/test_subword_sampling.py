"""Claims about SubwordSampler: splits are as probable as published, and follow from the seed."""

import collections
import functools
import hashlib
import io
import itertools
import subprocess
import sys

import numpy as np
import pytest
import sentencepiece
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from keras_transformers.text import SentencePieceTokenizer, SubwordSampler, encode_pairs

LINES = [
    "the cat sat on the mat",
    "a dog sat on the log",
    "she sells sea shells on the sea shore",
    "the old cat chased the dog along the shore",
    "日本語 и кот",
] * 20
DRAWS = 20_000


def trained(**options):
    """A tokenizer, with options that `SentencePieceTokenizer.train` does not offer."""
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(LINES), model_writer=model, pad_id=0, bos_id=1, eos_id=2,
        unk_id=3, minloglevel=2, hard_vocab_limit=False, **{"vocab_size": 60, **options},
    )  # fmt: skip
    return SentencePieceTokenizer(model.getvalue())


TOKENIZERS = {
    "plain": trained(),
    "bytes": trained(byte_fallback=True, vocab_size=320),
    "lossless": SentencePieceTokenizer.train(LINES, 290, lossless=True),
    "symbols": trained(user_defined_symbols=["<sep>", "at", "on the", "\n"]),
    "suffixes": trained(treat_whitespace_as_suffix=True),
    "phrases": trained(split_by_whitespace=False, remove_extra_whitespaces=False),
}
TEXTS = ["cats", "on the cat", "she☃☃s ☃", "at<sep>a\nt", ""]
kinds = pytest.mark.parametrize("kind", sorted(TOKENIZERS))


def processor_of(kind):
    return sentencepiece.SentencePieceProcessor(model_proto=TOKENIZERS[kind].proto)


def drawn(sampler, chosen, seed, **marks):
    """The splits as tuples."""
    ids, lengths = sampler.sample(chosen, seed, **marks)
    assert ids.dtype == np.int32 and lengths.sum() == len(ids)
    return [tuple(part.tolist()) for part in np.split(ids, np.cumsum(lengths)[:-1])]


def score(processor, number, largest):
    """Of a piece in SentencePiece's lattice; symbols of the user, 0 in the file, are preferred."""
    points = processor.get_score(number)
    return points or len(processor.id_to_piece(number)) * largest - 0.1


def probabilities(kind, text, alpha):
    """Of each split of the whole text, by writing them all down."""
    processor = processor_of(kind)
    known = {
        processor.id_to_piece(number): number
        for number in range(4, processor.vocab_size())
        if not processor.is_byte(number)
    }
    normal = [each for each in map(processor.get_score, known.values()) if each < 0]
    least, largest = min(normal), max(0, *normal)
    text = processor.normalize(text)

    def splits(position):
        if position == len(text):
            yield (), 0.0
            return
        ways = [
            (
                (known[text[position:end]],),
                score(processor, known[text[position:end]], largest),
                end,
            )
            for end in range(position + 1, len(text) + 1)
            if text[position:end] in known
        ]
        if text[position] not in known:
            ids = tuple(
                processor.piece_to_id(f"<0x{byte:02X}>") for byte in text[position].encode()
            )
            ways.append(((3,) if 3 in ids else ids, least - 10, position + 1))
        for ids, points, end in ways:
            for rest, of_rest in splits(end):
                yield ids + rest, points + of_rest

    found = collections.Counter()
    for ids, points in splits(0):
        runs = itertools.groupby(ids, key=lambda number: number == 3)
        merged = [[3] if unknown else list(run) for unknown, run in runs]
        found[tuple(itertools.chain(*merged))] += np.exp(alpha * points)
    return {ids: weight / found.total() for ids, weight in found.items()}


@kinds
@pytest.mark.parametrize("alpha", [0.0, 0.3])
def test_each_split_is_drawn_as_often_as_its_scores_say(kind, alpha):
    sampler = SubwordSampler(TOKENIZERS[kind], TEXTS, alpha)
    for number, text in enumerate(TEXTS):
        expected = probabilities(kind, text, alpha)
        counts = collections.Counter(drawn(sampler, [number] * DRAWS, seed=[1, number]))
        assert set(counts) <= set(expected)
        often = [ids for ids in expected if expected[ids] * DRAWS >= 10]
        shares = np.array([expected[ids] for ids in often])
        found = np.array([counts[ids] for ids in often])
        rare = 1 - shares.sum(), DRAWS - found.sum()
        assert abs(rare[1] - rare[0] * DRAWS) < 5 * np.sqrt(max(rare[0], 0) * DRAWS) + 1
        if len(often) > 1:
            pvalue = stats.chisquare(found, shares / shares.sum() * found.sum()).pvalue
            assert pvalue > 1e-3


@kinds
def test_each_split_is_drawn_as_often_as_by_sentencepiece(kind):
    sampler = SubwordSampler(TOKENIZERS[kind], TEXTS, 0.2)
    for number, text in enumerate(TEXTS):
        theirs = processor_of(kind).encode(
            [text] * DRAWS, enable_sampling=True, alpha=0.2, nbest_size=-1
        )
        both = [collections.Counter(drawn(sampler, [number] * DRAWS, seed=number))]
        both.append(collections.Counter(map(tuple, theirs)))
        often = [ids for ids in both[0] | both[1] if both[0][ids] + both[1][ids] >= 20]
        table = np.array([[each[ids] for ids in often] for each in both])
        rare = DRAWS - table.sum(axis=1, keepdims=True)
        table = np.hstack([table, rare]) if rare.sum() >= 20 else table
        assert table.shape[1] == 1 or stats.chi2_contingency(table).pvalue > 1e-6


SOME = "\u2581\x10\x101 \n\t\0<sep>\ufeff☃𝄞the caté日"
ANY_TEXT = st.text(max_size=30) | st.text(SOME, max_size=30)


@kinds
@settings(max_examples=40, deadline=None)
@given(lines=st.lists(ANY_TEXT, max_size=5), seed=st.integers(0, 99))
def test_every_split_reads_as_the_best_one_does(kind, lines, seed):
    tokenizer, processor = TOKENIZERS[kind], processor_of(kind)
    sampler = SubwordSampler(tokenizer, lines, 0.1)
    splits = drawn(sampler, np.arange(len(lines)), seed) if lines else []
    read = [processor.decode(list(ids)) for ids in splits]
    assert read == [processor.decode(processor.encode(line)) for line in lines]
    if kind == "lossless":
        assert read == lines
    marked = drawn(sampler, np.arange(len(lines)), seed, start=True, end=True) if lines else []
    assert marked == [(1, *ids, 2) for ids in splits]


@kinds
@settings(max_examples=40, deadline=None)
@given(lines=st.lists(ANY_TEXT, min_size=1, max_size=5))
def test_a_huge_alpha_draws_a_best_split(kind, lines):
    lines = [*lines, *LINES[:5]]
    tokenizer, processor = TOKENIZERS[kind], processor_of(kind)
    splits = drawn(SubwordSampler(tokenizer, lines, 1e6), np.arange(len(lines)), seed=1)
    best = [tuple(ids) for ids in tokenizer.tokenize(lines).to_list()]
    for ours, theirs in zip(splits, best, strict=True):  # of two that score the same it is either
        points = [sum(score(processor, number, 0) for number in ids) for ids in (ours, theirs)]
        assert ours == theirs or points[0] == pytest.approx(points[1], abs=1e-4)
    assert splits[-4:] == best[-4:]


def fingerprint():
    """Of what is drawn from a corpus, alone and as pairs, two epochs of them."""
    sampler = SubwordSampler(TOKENIZERS["plain"], LINES, 0.2)
    pairs = encode_pairs(LINES, LINES[::-1], TOKENIZERS["plain"], shuffle_seed=3, sample=0.2)
    found = [drawn(sampler, [5, 2, 2, 9], seed=[1, 2])]
    found += [[pair[side].numpy().tolist() for pair in pairs for side in pair] for _ in range(2)]
    return hashlib.sha256(repr(found).encode()).hexdigest()


@pytest.mark.slow
def test_the_seed_alone_decides_also_in_another_process():
    code = "from tests.text.test_subword_sampling import fingerprint; print(fingerprint())"
    command = [sys.executable, "-c", code]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert printed.strip() == fingerprint()


def test_other_seeds_draw_other_splits_and_a_sentence_chosen_twice_has_two():
    sampler = SubwordSampler(TOKENIZERS["plain"], LINES[:5], 0.1)
    chosen = [3] * 50 + [0, 1, 2, 4]
    first = drawn(sampler, chosen, seed=5)
    assert first == drawn(sampler, chosen, seed=5)
    assert first != drawn(sampler, chosen, seed=6)
    assert len(set(first[:50])) > 40


@pytest.mark.parametrize("longest", [None, (16, 16)])
def test_sampled_pairs_follow_from_the_seed_and_the_epoch(longest):
    def epochs(seed):
        pairs = encode_pairs(
            LINES, LINES, TOKENIZERS["plain"], seed, sample=0.1, batch_size=40, longest=longest
        )
        return [
            [batch[side].to_list() for batch in pairs for side in ("source", "target")]
            for _ in range(2)
        ]

    first, second = epochs(3)
    assert epochs(3) == [first, second]
    assert first != second
    assert epochs(4)[0] != first
    tf.random.set_seed(9)
    assert epochs(3) == [first, second]


def test_source_and_target_of_a_pair_are_drawn_apart():
    pairs = encode_pairs(LINES, LINES, TOKENIZERS["plain"], sample=0.1)
    same = [np.array_equal(pair["source"], pair["target"][1:]) for pair in pairs]
    assert np.mean(same) < 0.5


def test_pairs_of_a_bpe_model_are_drawn_by_dropout_of_merges():
    tokenizer = SentencePieceTokenizer.train(LINES, 60, "bpe")
    pairs = list(encode_pairs(LINES, LINES, tokenizer, sample=0.5))
    read = [tokenizer.detokenize(pair["source"]).numpy().decode() for pair in pairs]
    assert read == LINES
    assert len({tuple(pair["source"].numpy()) for pair in pairs[::5]}) > 1


def test_a_text_without_words_has_no_ids():
    for lines in ([], [""], ["", "  "]):
        ids, lengths = SubwordSampler(TOKENIZERS["plain"], lines, 0.1).sample(range(len(lines)), 1)
        assert ids.size == 0 and lengths.tolist() == [0] * len(lines)


def test_models_of_another_kind_and_impossible_strengths_are_refused():
    with pytest.raises(ValueError, match="must be a SentencePieceTokenizer of a unigram or a bpe"):
        SubwordSampler(None, LINES, 0.1)
    for alpha in (-0.1, np.inf, np.nan):
        with pytest.raises(ValueError, match=f"`alpha` must be at least 0. Received: {alpha}"):
            SubwordSampler(TOKENIZERS["plain"], LINES, alpha)


RNG = np.random.default_rng(2)
WORDS = "lower lowest newer newest wider widest new low wide slow slower".split()
WORD_LINES = [" ".join(RNG.choice(WORDS, 1 + i % 6)) for i in range(300)]


@functools.cache
def made(**options):
    return SentencePieceTokenizer.train(WORD_LINES, 45, model_type="bpe", **options)


def rows(found):
    ids, lengths = found
    return [part.tolist() for part in np.split(ids, np.cumsum(lengths)[:-1])]


def test_without_dropout_splits_are_those_of_the_model():
    texts = [
        "lower new",
        "",
        "newest  lowest slowest low",
        "wxyz new 日本",
        "ééé",
        *WORD_LINES[:50],
    ]
    for tokenizer in (made(), SentencePieceTokenizer.train(WORD_LINES, 310, "bpe", 1.0, True)):
        found = SubwordSampler(tokenizer, texts, 0.0).sample(range(len(texts)), seed=1)
        assert rows(found) == tokenizer.tokenize(texts).to_list()


def test_all_merges_dropped_leaves_characters():
    found = SubwordSampler(made(), ["lower new"], 1.0).sample([0], seed=1)
    assert made().pieces(found[0]) == list("▁lower▁new")


def algorithm_1(pieces, scores, symbols, p):
    """The probability of each split of a word: all choices of the paper's algorithm 1."""
    found = collections.Counter()
    merges = [
        (-scores[a + b], i)
        for i, (a, b) in enumerate(zip(symbols, symbols[1:], strict=False))
        if a + b in pieces
    ]
    # The k-th best is taken where it remains, and all that are better were left out.
    for k, (_, i) in enumerate(sorted(merges)):
        after = (*symbols[:i], symbols[i] + symbols[i + 1], *symbols[i + 2 :])
        for split, probability in algorithm_1(pieces, scores, after, p).items():
            found[split] += p**k * (1 - p) * probability
    found[symbols] += p ** len(merges)
    return found


@pytest.mark.parametrize("dropout", [0.1, 0.5])
def test_splits_are_drawn_as_often_as_the_algorithm_says(dropout):
    tokenizer, number = made(), 20_000
    pieces = tokenizer.pieces(range(4, tokenizer.vocab_size))
    scores = {piece: -rank for rank, piece in enumerate(pieces)}
    expected = algorithm_1(set(pieces), scores, tuple("▁newest"), dropout)
    sampler = SubwordSampler(tokenizer, ["low", "newest"], dropout)
    drawn = rows(sampler.sample(np.ones(number, int), seed=3))
    names = tokenizer.pieces(range(tokenizer.vocab_size))
    counts = collections.Counter(tuple(names[token] for token in row) for row in drawn)
    assert sum(expected.values()) == pytest.approx(1)
    assert set(counts) <= set(expected)
    for split, probability in expected.items():
        spread = np.sqrt(probability * (1 - probability) / number)
        assert counts[split] / number == pytest.approx(probability, abs=5 * spread + 1e-9)


def test_a_seed_draws_the_same_splits_and_words_may_be_merged_in_parts(monkeypatch):
    sampler, chosen = SubwordSampler(made(), WORD_LINES, 0.3), range(40)
    found = rows(sampler.sample(chosen, seed=7))
    assert rows(sampler.sample(chosen, seed=7)) == found != rows(sampler.sample(chosen, seed=8))
    monkeypatch.setattr("keras_transformers.text.subword_sampling.AT_ONCE", 60)
    in_parts = sampler.sample(chosen, seed=7)
    again = made().detokenize(tf.RaggedTensor.from_row_lengths(*in_parts)).numpy()
    assert [line.decode() for line in again] == WORD_LINES[:40]


def test_pairs_are_drawn_anew_each_epoch_by_the_seed():
    def epoch(number):
        pairs = encode_pairs(
            WORD_LINES[:9],
            WORD_LINES[:9],
            made(),
            shuffle_seed=1,
            sample=0.5,
            epoch=tf.constant(number),
        )
        return [ids.numpy().tolist() for pair in pairs for ids in pair.values()]

    assert epoch(0) == epoch(0) != epoch(1)


def test_more_than_all_merges_cannot_be_left_out():
    with pytest.raises(ValueError, match=r"`alpha` must be from 0 to 1.* bpe model. Received: 1.5"):
        SubwordSampler(made(), WORD_LINES, 1.5)
