"""Claims about streams: the same batches from any step on, nothing before it encoded again."""

import json

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_transformers import text
from keras_transformers.shards import Encoded, Journal, Position, Shards, ShardStream
from keras_transformers.tables import LABELS, PAIRS, TEXTS
from keras_transformers.training import ExactResume
from tests.interruption import Kill, Killed

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefgh"]
TOKENIZER = text.WordPieceTokenizer(WORDS)
RNG = np.random.default_rng(0)
PAIRS_OF_WORDS = [
    tuple(" ".join(RNG.choice(WORDS[5:], RNG.integers(1, 9))) for _ in range(2)) for _ in range(97)
]
LONG = [row for row, (s, t) in enumerate(PAIRS_OF_WORDS) if max(map(len, (s, t))) > 13]  # 7 words


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Pairs in three shards, with a bad line in each, which is its eleventh."""
    folder = tmp_path_factory.mktemp("shards")
    for number in range(3):
        lines = ["\t".join(pair) for pair in PAIRS_OF_WORDS[number::3]]
        (folder / f"{number}.tsv").write_text("\n".join([*lines[:10], "no tab", *lines[10:]]))
    return folder


def pairs(folder, journal=None, seed=1, **own):
    """A stream of pairs, packed; 20 in a buffer."""
    shards = Shards.find(f"{folder}/*.tsv", PAIRS, seed, buffer=20, open_files=2)
    encode = text.encoder_of_pairs(TOKENIZER, (8, 8), **own)
    return ShardStream(
        shards, encode, lambda c, epoch: text.packed(c, 8, 8, 2, epoch=epoch), journal
    )


def lengths(folder, journal=None, buffer=20, called=None):
    """A stream of the lengths of the sources, five in a batch; cheap to make."""

    def encode(key, sources, targets):
        if called is not None:
            tf.numpy_function(lambda key: called.append(key.tolist()), [key], [])
        found = [tf.strings.length(side) for side in (sources, targets)]
        long = tf.maximum(*found) > 13  # letters and blanks of seven words
        return Encoded(found[0][~long], {"over 7 words": long})

    shards = Shards.find(f"{folder}/*.tsv", PAIRS, seed=1, buffer=buffer)
    return ShardStream(shards, encode, lambda c, epoch: c.unbatch().batch(5), journal)


def arrays(dataset, number):
    return [tf.nest.flatten(batch) for batch in dataset.take(number).as_numpy_iterator()]


def assert_same(batches, expected):
    assert len(batches) == len(expected)
    for one, other in zip(batches, expected, strict=True):
        for array, wanted in zip(one, other, strict=True):
            np.testing.assert_array_equal(array, wanted)


def test_a_stream_gives_the_same_batches_from_any_step_on(folder, tmp_path):
    expected = arrays(pairs(folder, tmp_path / "journal").batches(), 70)
    assert_same(arrays(pairs(folder).batches(37), 33), expected[37:])
    assert_same(arrays(pairs(folder, tmp_path / "journal").batches(64), 6), expected[64:])


@pytest.mark.parametrize("start", [1, 5, 49])
def test_with_a_journal_too(folder, tmp_path, start):
    expected = arrays(lengths(folder, tmp_path / "journal").batches(), 50)
    found = lengths(folder, tmp_path / "journal").batches(start)
    assert_same(arrays(found, 50 - start), expected[start:])


def test_a_pass_holds_every_pair_that_fits_once(folder, tmp_path):
    stream = pairs(folder, tmp_path / "journal")
    list(stream.batches().take(70))
    lines = map(json.loads, (tmp_path / "journal").read_text().splitlines())
    steps = [each["step"] for each in lines if "step" in each and each["position"][0] == 1]
    found = []
    for inputs, _ in stream.batches().take(steps[0]).as_numpy_iterator():
        for ids, of in zip(inputs["source"], inputs["source_segments"], strict=True):
            found += [ids[of == number].tolist() for number in range(1, of.max() + 1)]
    kept = [s for row, (s, _) in enumerate(PAIRS_OF_WORDS) if row not in LONG]
    assert sorted(found) == sorted(TOKENIZER.tokenize(kept, end=True).to_list())


def test_only_the_buffer_of_a_step_is_encoded_again(folder, tmp_path):
    path, called = tmp_path / "journal", []
    expected = arrays(lengths(folder, path).batches(), 60)
    (first,) = [
        json.loads(line)["position"][:2]
        for line in path.read_text().splitlines()[1:]
        if json.loads(line).get("step", 99) <= 45
    ][-1:]
    assert first[0] > 1  # of a later pass
    assert_same(arrays(lengths(folder, path, called=called).batches(45), 15), expected[45:])
    assert min(called)[:2] == first
    with pytest.raises(ValueError, match="is of a run on other buffer; what is resumed must read"):
        lengths(folder, path, buffer=11)


def test_rows_that_are_left_out_are_counted_once_with_file_and_line(folder, tmp_path):
    path = tmp_path / "journal"
    list(lengths(folder, path).batches().take(9))
    for _ in range(2):  # goes on, and over the end of the first pass
        stream = lengths(folder, path)
        list(stream.batches(6).take(40))
    counts = {"without a tab": 3, "over 7 words": len(LONG)}
    assert stream.journal.counts["left_out"] == counts
    assert Journal(path, stream.shards.identity()).counts["left_out"] == counts
    entries = map(json.loads, path.read_text().splitlines())
    rows = [tuple(row) for entry in entries for row in entry.get("left_out", ())]
    assert len(rows) == len(set(rows)) == 3 + len(LONG)
    expected = {
        (str(folder / f"{row % 3}.tsv"), row // 3 + (1 if row // 3 < 10 else 2)) for row in LONG
    }
    assert {row[:2] for row in rows if row[2] != "without a tab"} == expected
    assert {row[:2] for row in rows} - expected == {
        (str(folder / f"{n}.tsv"), 11) for n in range(3)
    }
    assert f"{len(LONG)} over 7 words" in stream.summary()
    assert "0.tsv, line 11: without a tab" in stream.summary()


def test_a_journal_that_a_kill_cut_off_is_gone_on_with(tmp_path):
    path, positions = tmp_path / "journal", [Position(0, n, ((0, n),), 1, 0) for n in range(3)]
    journal = Journal(path, {"shards": ["a"]})
    for step, position in zip((0, 5, 9), positions, strict=True):
        journal.begins(position, step)
    path.write_bytes(path.read_bytes()[:-7])
    journal = Journal(path, {"shards": ["a"]})
    assert journal.before(100) == (positions[1], 5) and journal.before(4) == (positions[0], 0)
    journal.begins(positions[2], 9)
    assert Journal(path, {"shards": ["a"]}).before(100) == (positions[2], 9)
    with pytest.raises(ValueError, match="journal is of a run on other shards"):
        Journal(path, {"shards": ["b"]})


def test_subwords_that_are_drawn_follow_from_the_seed(folder):
    lines = [side for pair in PAIRS_OF_WORDS for side in pair]
    tokenizer = text.SentencePieceTokenizer.train(lines, vocab_size=20)
    shards = Shards.find(f"{folder}/*.tsv", PAIRS, seed=1, buffer=20)

    def batches(start, number, seed=1):
        encode = text.encoder_of_pairs(tokenizer, (18, 18), sample=0.2, seed=seed)
        arrange = lambda chunks, epoch: text.packed(chunks, 18, 18, 2, epoch=epoch)  # noqa: E731
        return arrays(ShardStream(shards, encode, arrange).batches(start), number)

    expected = batches(0, 8)
    assert_same(batches(6, 2), expected[6:])
    with pytest.raises(AssertionError):
        assert_same(batches(0, 2, seed=2), expected[:2])


def test_documents_and_labelled_texts_are_streamed(tmp_path):
    lines = [f"{source}\t{'xy'[len(source) % 2]}" for source, _ in PAIRS_OF_WORDS]
    (tmp_path / "a.tsv").write_text("\n".join([*lines, "a\tz"]))
    row = text.row_of_labels(["x", "y"])
    shards = Shards.find(tmp_path / "a.tsv", (TEXTS, LABELS), seed=1, row=row)
    spec = [tf.TensorSpec((None,), tf.string), tf.TensorSpec((None,), tf.int32)]
    stream = ShardStream(
        shards, text.encoder_of_labelled(TOKENIZER, 8), text.bucketing((4, 8), 32), signature=spec
    )
    number = 0
    for ids, labels, weights in stream.batches().as_numpy_iterator():
        assert ids.shape in ((8, 4), (4, 8)) and ids.shape[:1] == labels.shape == weights.shape
        for found, label, weight in zip(ids, labels, weights, strict=True):
            words = [WORDS[i] for i in found if i > 4]
            assert weight == 0 or len(words) == 6 or label == (2 * len(words) - 1) % 2
            number += weight
        if number == len(lines):
            break
    assert stream.journal.counts["left_out"] == {"of a class that is not in the list": 1}
    long = sum(len(source.split()) > 6 for source, _ in PAIRS_OF_WORDS)
    assert stream.journal.counts["noted"] == {"over 8 pieces, cut": long}
    shards = Shards.find(tmp_path / "a.tsv", [TEXTS], seed=1, chosen=[0])
    stream = ShardStream(
        shards,
        text.encoder_of_documents(TOKENIZER),
        lambda chunks, epoch: text.packed_documents(chunks, 16, 4, epoch=epoch),
    )
    expected = arrays(stream.batches(), 12)
    assert_same(arrays(stream.batches(7), 5), expected[7:])
    assert expected[0][0].shape == (4, 16)


def test_a_killed_run_goes_on_to_the_same_weights(folder, tmp_path):
    def train(name, kill=-1):
        keras.utils.set_random_seed(1)
        model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(3), keras.layers.Dense(1)])
        model.compile(keras.optimizers.Adam(), "mse", jit_compile=False)
        resume = ExactResume(tmp_path / name, None, every_steps=5)
        stream = lengths(folder, tmp_path / name / "journal")
        data = stream.batches(resume.start[0] * 13 + resume.start[1]).map(numbers)
        model.fit(
            data,
            steps_per_epoch=13,
            epochs=3,
            initial_epoch=resume.start[0],
            callbacks=resume.after([Kill(kill)]),
            verbose=0,
        )
        return model.get_weights()

    def numbers(found):
        found = tf.cast(found, tf.float32)[:, None]
        return found, tf.math.sin(found)

    expected = train("whole")
    with pytest.raises(Killed):
        train("killed", 23)
    for array, wanted in zip(train("killed"), expected, strict=True):
        np.testing.assert_array_equal(array, wanted)
