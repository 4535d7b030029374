"""Claims about all tokenizers: which ids and texts they accept, and sentences as context."""

import io

import numpy as np
import pytest
import sentencepiece as published
import tensorflow as tf

from keras_transformers.core.words import SEPARATOR, byte_letters, in_context, without_context
from keras_transformers.text import (
    BytePairTokenizer,
    FairseqTokenizer,
    MarianTokenizer,
    PairCorpus,
    SentencePieceTokenizer,
    SubwordSampler,
    WordPieceTokenizer,
    encode_pairs,
    read_pairs,
)
from keras_transformers.text.tokenizers import with_room

LINES = ["the cat sat on the mat", "a dog sat on the log"] * 20


def sentencepiece():
    return SentencePieceTokenizer.train(LINES, 20)


def wordpiece():
    return WordPieceTokenizer.train(LINES, 40)


def byte_pairs():
    pieces = [*byte_letters(), "at", "cat", "<|endoftext|>"]
    vocab = {piece: number for number, piece in enumerate(pieces)}
    return BytePairTokenizer(vocab, [("a", "t"), ("c", "at")])


def marian():
    trained = sentencepiece()
    pieces = trained.pieces(range(trained.vocab_size))
    kept = [piece for piece in pieces if piece not in ("<pad>", "<s>")]
    return MarianTokenizer(trained.proto, [*kept, "<pad>"])


def fairseq():
    file, options = io.BytesIO(), {"vocab_size": 19, "minloglevel": 2}
    lines = iter(LINES)
    published.SentencePieceTrainer.train(sentence_iterator=lines, model_writer=file, **options)
    return FairseqTokenizer(file.getvalue())


MADE = {make.__name__: make() for make in (sentencepiece, wordpiece, byte_pairs, marian, fairseq)}
ALL = pytest.mark.parametrize("kind", MADE)
TRAINED = pytest.mark.parametrize("kind", [SentencePieceTokenizer, WordPieceTokenizer])


def outside(tokenizer):
    """Ids that are none of the vocabulary, nor padding."""
    ids = (-2, -1, tokenizer.vocab_size, 2**31 - 1, -(2**31))
    return [each for each in ids if each != tokenizer.pad_id]


def texts(strings):
    return [text.decode() for text in np.ravel(strings.numpy())]


@ALL
def test_every_id_of_the_vocabulary_has_a_piece_and_no_other_has(kind):
    tokenizer = MADE[kind]
    assert len(tokenizer.pieces(range(tokenizer.vocab_size))) == tokenizer.vocab_size
    assert tokenizer.pieces([]) == []
    for wrong in {*outside(tokenizer), -1}:
        for ids in ([wrong], np.array([5, wrong]), tf.constant([wrong])):
            with pytest.raises(ValueError, match=rf"\.pieces: `ids` must be from 0.*\[{wrong}\]"):
                tokenizer.pieces(ids)
    for ids in ([[5]], 5.5, np.array([5.5])):
        with pytest.raises((ValueError, TypeError)):
            tokenizer.pieces(ids)


@ALL
def test_ids_outside_the_vocabulary_are_refused_by_detokenize(kind):
    tokenizer = MADE[kind]
    for wrong in (*outside(tokenizer), 2**32 + 5):  # the last is 5 in 32 bits
        for ids in ([[5, wrong]], np.array([[wrong]]), tf.ragged.constant([[5], [wrong, 5]])):
            if isinstance(ids, tf.RaggedTensor) or wrong < 2**31:
                with pytest.raises(ValueError, match=r"detokenize: `ids` must be from 0 to.*Rec"):
                    tokenizer.detokenize(ids)
    with pytest.raises(ValueError, match="detokenize: `ids` must be integers. Received: float"):
        tokenizer.detokenize([[5.0]])
    with pytest.raises(ValueError, match="detokenize: `ids` must be integers. Received: string"):
        tokenizer.detokenize(["cat"])


@ALL
def test_in_a_graph_they_end_the_program_with_the_same_sentence(kind):
    tokenizer = MADE[kind]
    spec = tf.TensorSpec([None, None], tf.int32)
    read = tf.function(tokenizer.detokenize, input_signature=[spec])
    ids = tokenizer.tokenize(["the cat", "a"], end=True).to_tensor(tokenizer.pad_id)
    assert texts(read(ids)) == texts(tokenizer.detokenize(ids))
    for wrong in outside(tokenizer)[:3]:
        with pytest.raises(tf.errors.InvalidArgumentError, match="`ids` must be from 0 to"):
            read(tf.constant([[5, wrong]]))


@ALL
def test_lists_of_any_lengths_are_ids(kind):
    tokenizer = MADE[kind]
    lines = ["the cat sat", "a", "the dog on the log"]
    ids = tokenizer.tokenize(lines)
    rows = ids.to_list()
    expected = texts(tokenizer.detokenize(ids))
    assert texts(tokenizer.detokenize(rows)) == expected
    assert texts(tokenizer.detokenize(tuple(map(tuple, rows)))) == expected
    assert texts(tokenizer.detokenize([np.array(row) for row in rows])) == expected
    assert texts(tokenizer.detokenize(list(ids))) == expected
    assert texts(tokenizer.detokenize([[], rows[0]])) == ["", expected[0]]
    assert texts(tokenizer.detokenize(rows[2])) == expected[2:]
    assert texts(tokenizer.detokenize([[], []])) == ["", ""]


@TRAINED
def test_a_vocabulary_is_learnt_from_texts_and_from_nothing_that_is_none(kind):
    for strings, received in (
        ({"file1": LINES}, "a dict; `.values.*` are its values"),
        ("the cat sat on the mat", "a str"),
        (b"the cat sat on the mat", "a bytes"),
        (7, "a int"),
        ([*LINES, ["the cat"]], "a list at position 40"),
        ([None], "a NoneType at position 0"),
    ):
        with pytest.raises(ValueError, match=rf"train: `strings` must be .*Received: {received}"):
            kind.train(strings, 40)


@TRAINED
def test_texts_may_come_as_a_dataset_or_in_bytes(kind):
    size = 20 if kind is SentencePieceTokenizer else 40
    expected = kind.train(LINES, size).get_config()
    assert kind.train((line.encode() for line in LINES), size).get_config() == expected
    assert kind.train(tf.data.Dataset.from_tensor_slices(LINES), size).get_config() == expected


CONTEXT_LINES = ["the cat sat on the mat", "the dog sat on the log", "it is old"] * 20
MARK = 4


@pytest.fixture(scope="module", params=["unigram", "bpe"])
def tokenizer(request):
    return SentencePieceTokenizer.train(CONTEXT_LINES, 23, request.param, tags=("<context2>",))


def by_hand(tokenizer, *sentences):
    """The ids of sentences, each by itself, with the mark between them."""
    ids = []
    for sentence in sentences:
        ids += [MARK] * bool(ids) + tokenizer.tokenize(sentence).numpy().tolist()
    return [*ids, tokenizer.end_id]


def sources_of(tmp_path, content, name="a.tsv", **options):
    path = tmp_path / name
    path.write_text(content, encoding="utf-8")
    return read_pairs(path, **options)


def test_sources_stand_behind_those_before_them_in_their_document(tmp_path):
    content = "a\tA\nb\tB\nc\tC\nd\tD\n\ne\tE\nf\tF\n"
    for context, expected in (
        (1, ["a", "a|b", "b|c", "c|d", "e", "e|f"]),
        (2, ["a", "a|b", "a|b|c", "b|c|d", "e", "e|f"]),
        (0, ["a", "b", "c", "d", "e", "f"]),
    ):
        corpus = sources_of(tmp_path, content, context=context)
        assert [text.replace(SEPARATOR, "|") for text in corpus.sources] == expected
        assert corpus.targets == [*"ABCDEF"] and without_context(corpus.sources) == [*"abcdef"]


def test_a_line_that_is_left_out_ends_a_document_and_is_counted(tmp_path):
    corpus = sources_of(tmp_path, "a\tA\nno tab\nb\tB\n\tx\nc\tC\ny\t \nd\td\ne\tE\n", context=2)
    assert corpus.sources == ["a", "b", "c", "d", "d\x1ee"]
    assert corpus.left_out == {"without a tab": 1, "with an empty side": 2}
    assert corpus.noted == {"with source equal to target": 1}


def test_a_third_column_tells_documents_apart(tmp_path):
    columns, expected = ("source", "target", "talk"), ["a", "a\x1eb", "c", "d", "d\x1ee"]
    rows = ["a,A,1", '"b",B,1', "c,C,2", 'd,"D\nd",1', "e,E,1"]
    content = "source,target,talk\n" + "\n".join(rows) + "\n"
    found = sources_of(tmp_path, content, "a.csv", context=2, columns=columns)
    assert found.sources == expected
    rows = [("a", "A", "1"), ("b", "B", "1"), ("c", "C", "2"), ("d", "D", "1"), ("e", "E", "1")]
    names = [dict(zip(columns, row, strict=True)) for row in rows]
    assert read_pairs(names, context=1, columns=columns).sources == expected
    with pytest.raises(ValueError, match=r"b\.csv: `context` needs a column"):
        sources_of(tmp_path, "source,target\na,A\n", "b.csv", context=1)
    with pytest.raises(ValueError, match="`context` must be 0 or more. Received: -1"):
        read_pairs(names, context=-1)


def test_no_text_holds_what_stands_between_sentences(tmp_path):
    corpus = sources_of(tmp_path, "a\x1eb\tA\nc\x1e\tC\n", context=1)
    assert corpus.sources == ["a b", "a b\x1ec"]
    assert in_context("a\x1e", []) == "a"


def test_what_is_held_out_keeps_its_context_and_is_known_by_its_sentence(tmp_path):
    lines = [f"s{number % 30}\tt{number % 30}" for number in range(60)]
    corpus = sources_of(tmp_path, "\n".join(lines), context=1)
    first, second = corpus.split()
    assert not {*without_context(first.sources)} & {*without_context(second.sources)}
    assert {*second.sources} <= {*corpus.sources} and len(second) >= 10


def test_a_mark_stands_behind_each_previous_sentence(tokenizer):
    assert tokenizer.context.sentences == 2 and tokenizer.context.mark == MARK
    rows = [["the dog", "the cat", "it is"], ["it is", "old"], ["the mat"], ["", "it"], ["it", ""]]
    texts = [SEPARATOR.join(row) for row in rows]
    expected = [by_hand(tokenizer, *row) for row in rows]
    expected[3] = [MARK, *by_hand(tokenizer, "it")]
    expected[4] = [*by_hand(tokenizer, "it")[:-1], MARK, tokenizer.end_id]
    assert tokenizer.tokenize(texts, end=True).to_list() == expected
    assert tokenizer.tokenize(texts[0], end=True).numpy().tolist() == expected[0]
    assert tokenizer.tokenize(["the log\x1e" + texts[0]], end=True).to_list() == expected[:1]
    assert not {MARK} & {*tokenizer.tokenize("<context2> it <context2>is").numpy().tolist()}
    ids = [*by_hand(tokenizer, "it is", "old")[:-1], 2]
    assert MARK in ids and tokenizer.detokenize(ids) == b"it is old"


def test_a_vocabulary_without_the_mark_reads_no_context():
    tokenizer = SentencePieceTokenizer.train(CONTEXT_LINES, 23, tags=("<bt>",))
    assert tokenizer.context is None
    assert with_room(["it\x1eis old"], tokenizer, 1) == ["it\x1eis old"]


def test_drawn_splits_have_the_mark_where_the_best_have_it(tokenizer):
    texts = ["the dog\x1ethe cat\x1eit is", "it is old", "x\x1ethe cat sat"]
    best = tokenizer.tokenize(texts, end=True).to_list()
    sampler = SubwordSampler(tokenizer, texts, 0.2)
    seen = set()
    for seed in range(8):
        ids, lengths = sampler.sample([0, 1, 2], seed, end=True)
        rows = np.split(ids, np.cumsum(lengths)[:-1])
        for row, text, whole in zip(rows, texts, best, strict=True):
            row = row.tolist()
            seen.add(tuple(row))
            parts = [tokenizer.detokenize(part).numpy() for part in _cut(row)]
            assert parts == [tokenizer.detokenize(part).numpy() for part in _cut(whole)], text
    assert len(seen) > 3


def _cut(ids):
    parts = [[]]
    for number in ids:
        parts = [*parts, []] if number == MARK else [*parts[:-1], [*parts[-1], number]]
    return parts


def test_the_oldest_sentences_go_where_there_is_no_room(tokenizer):
    generator = np.random.default_rng(3)
    words = [[*generator.integers(5, 20, size).tolist()] for size in (3, 0, 5, 2)]
    rows = [[*words[0], MARK, *words[2], MARK, *words[3]], words[2], [*words[0], MARK], []]
    for room in range(1, 14):
        kept, lengths = tokenizer.context.within(tf.ragged.constant(rows, tf.int32), room)
        for row, found, length in zip(rows, kept.to_list(), lengths.numpy(), strict=True):
            parts = _cut(row)
            while len(parts) > 1 and sum(map(len, parts)) + len(parts) - 1 > room:
                parts = parts[1:]
            expected = parts[0]
            for part in parts[1:]:
                expected = [*expected, MARK, *part]
            assert found == expected and length == len(parts[-1])


def test_a_pair_that_is_too_long_loses_context_before_it_is_left_out(tokenizer):
    sources = ["it is old\x1ethe cat\x1eit is", "the cat\x1ethe dog sat on the log", "it"]
    sizes = [[len(by_hand(tokenizer, *s.split(SEPARATOR)[i:])) for i in range(3)] for s in sources]
    longest = sizes[0][1]
    assert sizes[0][0] > longest and sizes[1][1] > longest >= sizes[2][0]
    corpus = PairCorpus("toy", sources, ["a", "b", "c"], 3)
    found = corpus.without_long(tokenizer, longest, 9)
    assert found.sources == ["the cat\x1eit is", "it"] and found.targets == ["a", "c"]
    assert sum(found.left_out.values()) == 1
    assert found.noted == {"with fewer previous sentences": 1}
    assert with_room(sources, tokenizer, longest)[1] == "the dog sat on the log"


def test_batches_hold_each_pair_with_its_context_in_any_order(tokenizer):
    sources = ["it is", "it is\x1ethe cat", "it is\x1ethe cat\x1ethe dog sat", "it is old"]
    targets = ["the mat", "the log", "the cat", "the dog"]
    expected = {
        tuple(tokenizer.tokenize(target).numpy()): by_hand(tokenizer, *source.split(SEPARATOR))
        for source, target in zip(sources, targets, strict=True)
    }
    pairs = list(encode_pairs(sources, targets, tokenizer, shuffle_seed=5))
    assert len(pairs) == 4
    for pair in pairs:
        _, *target, _ = pair["target"].numpy().tolist()
        assert pair["source"].numpy().tolist() == expected[tuple(target)]
