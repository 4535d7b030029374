"""Claims about texts that are handed over while a model writes them."""

import functools
import itertools
import json
import pathlib
import random
import tempfile
import types

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import ops

import keras_transformers
from keras_transformers import pretrained
from keras_transformers.export import TextGenerator, Translator
from keras_transformers.generation import BeamSearch, Boundaries, Constraints, Greedy, Sampling
from keras_transformers.generation.decode import Part
from keras_transformers.models import LanguageModel, Transformer
from keras_transformers.predictors import TextGeneratorPredictor, TextStream, TranslatorPredictor
from keras_transformers.tasks.loading import fitting_of_run
from keras_transformers.tasks.text_predictor import byte_id, settled_text
from keras_transformers.text import FastTokenizer, SentencePieceTokenizer, WordPieceTokenizer
from tests.pretrained import folders
from tests.pretrained.piece_folders import write
from tests.slow import slow_except
from tests.text import scripts

LINES = ["the king and the queen", "to be or not to be", "a cat sat on the mat"] * 9
SIZES = {"hidden_dim": 24, "num_heads": 2, "mlp_dim": 32, "num_layers": 1}
SENTENCE_PIECES = {
    "sentence pieces": {"vocab_size": 28},
    "sentence pieces with bytes": {"vocab_size": 280, "byte_fallback": True},
    "lossless": {"vocab_size": 280, "lossless": True},
}
KINDS = ("byte pairs", "word pieces", "pieces", *SENTENCE_PIECES, *scripts.KINDS)
TOLD = ["byte pairs", "sentence pieces with bytes", "lossless", "llama 2", "bert"]


@functools.cache
def tokenizer_of(kind):
    if kind in SENTENCE_PIECES:
        return SentencePieceTokenizer.train(LINES, **SENTENCE_PIECES[kind])
    if kind == "word pieces":
        return WordPieceTokenizer.train(LINES, 60)
    if kind in scripts.KINDS:
        return FastTokenizer(scripts.learnt(kind), "<s>", "</s>", "<pad>", "<mask>")
    folder = pathlib.Path(tempfile.mkdtemp())
    if kind == "byte pairs":
        folders.gpt2(folder)
    else:
        write(folder, "T5Tokenizer")
    return pretrained.load_tokenizer(folder)


# -------------------------------------------------------------- what can no longer change


def drawn_ids(tokenizer, draw):
    """Ids of a text of many scripts, or any ids, with those of bytes more often than others."""
    if draw.random() < 0.5:
        (text,) = scripts.fuzzed(1, draw.randrange(10_000))
        ids = tokenizer.tokenize([text]).to_list()[0]
        return ids[: draw.randint(0, len(ids))]
    pieces = tokenizer.pieces(range(tokenizer.vocab_size))
    of_bytes = [i for i, piece in enumerate(pieces) if piece.startswith("<0x") or len(piece) == 1]
    every = range(tokenizer.vocab_size)
    return [draw.choice(draw.choice((of_bytes or every, every))) for _ in range(12)]


@pytest.mark.parametrize("kind", slow_except(KINDS, *TOLD))
def test_pieces_of_any_tokens_join_to_their_text(kind):
    tokenizer, draw = tokenizer_of(kind), random.Random(kind)

    def texts_of(rows):
        ids = tf.ragged.constant([[*before, *row] for row in rows], tf.int32)
        texts = tokenizer.detokenize(ids).numpy()
        return [text[len(begin) :].decode("utf-8", "replace") for text in texts]

    for _ in range(20):
        before = tokenizer.tokenize(["", "the king ", "an emoji 😀"][draw.randrange(3)]).numpy()
        begin = tokenizer.detokenize([before]).numpy()[0]
        ids = [each for each in drawn_ids(tokenizer, draw) if each != tokenizer.end_id]
        sizes = itertools.accumulate(draw.choices((1, 1, 2, 5), k=len(ids)), initial=0)
        cuts = [size for size in sizes if size < len(ids)]
        parts = [Part(ids[i:j], False) for i, j in itertools.pairwise([*cuts, len(ids)])]
        pieces = list(TextStream(parts, texts_of, byte_id(tokenizer)))
        whole = texts_of([ids])[0] if ids else ""
        assert "".join(pieces) == whole, (ids, pieces)
        assert all(pieces) and not any(piece.endswith("\ufffd") for piece in pieces[:-1])


@pytest.mark.parametrize(
    ("text", "followed", "settled"),
    [
        ("the cat", "the cat\ufffd", "the cat"),
        ("the cat \n", "the cat \n\ufffd", "the cat"),
        ("a \ufffd\ufffd", "a \ufffd", "a"),
        ("a\ufffdb", "a\ufffdb\ufffd", "a\ufffdb"),
        ("a日本", "a\ufffd\ufffd\ufffd", "a"),  # bytes that count as a whole
        ("a\x10", "a\x10", "a"),
        ("", "\ufffd", ""),
    ],
)
def test_what_a_further_token_may_change_is_held_back(text, followed, settled):
    assert settled_text(text, followed) == settled


# ------------------------------------------------------------------ models that say their part


class Reciting:
    """Stands for a language model that recites ids from a position on, and then END."""

    reads_sources, built, variables, most_decodable = False, True, (), None
    dtype_policy = keras.DTypePolicy("float32")

    def __init__(self, tokenizer, position, ids, padding_id):
        self.padding_id = padding_id
        rows = [tokenizer.end_id] * position + [*ids] + [tokenizer.end_id] * 90
        self.logits = 9 * np.eye(tokenizer.vocab_size, dtype="float32")[rows]

    def start_decoding(self, source, beams, max_length):
        return ops.zeros((ops.shape(source)[0] * beams, 1)), None

    def decode_step(self, ids, index, state, shared, back_pointers):
        logits = ops.take(ops.convert_to_tensor(self.logits), index, axis=0)
        return ops.broadcast_to(logits, (*ops.shape(ids), logits.shape[-1])), state


PROMPT = "an emoji 👩‍👩‍👧 and 人人生"
RECITED = {
    "byte pairs": " 尊严, \n 😀😀 é the king",
    "sentence pieces with bytes": "尊严 😀😀 é the king",
    "lossless": " 尊严,\n  😀😀 é the king \n",
    "word pieces": "the king, the queen",
    "sentence pieces": "the king and the queen",
    "pieces": "Open the window, and close it",
    "llama 3": " 尊严, 😀😀 é the king",
    "llama 2": "尊严 😀😀 é all human beings",
    "bytes of unigram": "尊严 😀😀 é all human beings",
}
CUTS = [(kind, cut) for kind in RECITED for cut in (None, 5, 3)]
CUT_CASES = {f"{kind}, {cut}": (kind, cut) for kind, cut in CUTS}


@pytest.mark.parametrize(
    "case",
    slow_except(
        CUT_CASES,
        "byte pairs, None",
        "byte pairs, 3",
        "sentence pieces with bytes, None",
        "sentence pieces with bytes, 5",
        "word pieces, None",
        "llama 2, None",
        "llama 2, 5",
    ),
)
def test_a_recited_text_is_that_of_predict(case):
    kind, cut = case
    tokenizer, prompt = tokenizer_of(kind), PROMPT
    ids = tokenizer.tokenize([RECITED[kind]]).to_list()[0]
    size = len(tokenizer.tokenize([prompt]).to_list()[0]) - (tokenizer.start_id is None)
    padding = -1 if tokenizer.start_id is None else tokenizer.pad_id
    model = Reciting(tokenizer, size, ids, padding)
    number = len(ids) + 2 if cut is None else cut
    writer = TextGenerator(model, tokenizer, Greedy(), number, prompt_lengths=(64,))
    expected = writer.predict(prompt, details=True)
    for at_a_time in (1, 4):
        stream = writer.stream(prompt, tokens_at_a_time=at_a_time)
        pieces = list(stream)
        assert "".join(pieces) == expected["continuation"]
        assert stream.prompt + "".join(pieces) == expected["text"]
        assert stream.finished == expected["finished"] == (cut is None)
        assert not stream.truncated
    if cut is None:
        assert len(pieces) > 1 and not any("\ufffd" in piece for piece in pieces)
        assert ("😀😀" in "".join(pieces)) == ("😀" in RECITED[kind])


# --------------------------------------------------------------------------------- predictors


def random_weights(model, shape):
    model.build(shape)
    rng = np.random.default_rng(0)
    model.set_weights([rng.normal(size=weight.shape) / 2 for weight in model.get_weights()])
    return model


@functools.cache
def generator(kind="byte pairs"):
    """A predictor that goes on with texts by random weights."""
    tokenizer = tokenizer_of(kind)
    padding = -1 if kind == "byte pairs" else tokenizer.pad_id
    options = {"max_length": 80, "padding_id": padding}
    model = LanguageModel.from_variant("small", tokenizer.vocab_size, **SIZES, **options)
    writer = TextGenerator(random_weights(model, (None, None)), tokenizer, Greedy(), 12, (16,))
    return TextGeneratorPredictor(writer)


@functools.cache
def translator(languages=()):
    tokenizer = SentencePieceTokenizer.train(LINES, vocab_size=28, languages=languages)
    model = Transformer.from_variant("base", tokenizer.vocab_size, **SIZES)
    shape = {"source": (None, None), "target": (None, None)}
    return TranslatorPredictor(Translator(random_weights(model, shape), tokenizer, Greedy(), (16,)))


SEARCHES = {
    "own": {},
    "seed": {"search": Sampling(temperature=2.0), "seed": 3},
    "length": {"new_tokens": 5, "search": Greedy(Constraints(no_repeat_ngram=2))},
    "last": {"search": Greedy(Constraints(boundaries=Boundaries(last=2)))},
}


@pytest.mark.parametrize("settings", slow_except(SEARCHES, "own", "seed"))
@pytest.mark.parametrize("kind", slow_except(["byte pairs", "lossless", "llama 2"], "byte pairs"))
def test_a_streamed_continuation_is_that_of_predict(kind, settings):
    ours = generator(kind)
    for prompt in ("the king", "", "to be, 日本"):
        expected = ours.predict(prompt, details=True, **settings)
        stream = ours.stream(prompt, **settings)
        assert "".join(stream) == expected["continuation"]
        assert stream.prompt + expected["continuation"] == expected["text"]
        assert stream.finished == expected["finished"]


@pytest.mark.slow
def test_a_stream_ends_in_front_of_a_stop_string():
    ours, prompt = generator(), "the king"
    whole = ours.predict(prompt, details=True)["continuation"]
    middle = next(i for i in range(2, len(whole) - 3) if "\ufffd" not in whole[i : i + 3])
    strings = ["never", whole[middle : middle + 3]]
    expected = ours.predict(prompt, details=True, stop_strings=strings)
    stream = ours.stream(prompt, stop_strings=strings, tokens_at_a_time=1)
    assert "".join(stream) == expected["continuation"] == whole[: whole.index(strings[1])]
    assert stream.finished and expected["finished"]


@pytest.mark.parametrize("string, pieces", [("cdx", ["ab", "cdf"]), ("cd", ["ab"])])
def test_what_may_begin_a_stop_string_is_held_back(string, pieces):
    parts = [Part([0, 1], False), Part([2], False), Part([3], False), Part([5], True)]

    def texts_of(rows):
        return ["".join("abcdef"[token] for token in row) for row in rows]

    assert list(TextStream(parts, texts_of, stop_strings=[string])) == pieces


@pytest.mark.parametrize("settings", slow_except(SEARCHES, "own", "last"))
def test_a_streamed_translation_is_that_of_predict(settings):
    ours = translator()
    for text in ("the king", "to be or not to be", "", " "):
        expected = ours.predict(text, details=True, **settings)
        stream = ours.stream(text, **settings)
        assert "".join(stream) == expected["translation"] and stream.prompt == ""
        assert stream.finished == expected["finished"]


def test_a_translation_is_streamed_into_the_language_that_is_asked_for():
    ours = translator(("de", "es"))
    for language in ("de", "es"):
        expected = ours.predict("the king", target_language=language)
        assert "".join(ours.stream("the king", language)) == expected
        assert "".join(ours.towards(language).stream("the king")) == expected
    with pytest.raises(ValueError, match="`target_language` must be one of de, es"):
        ours.stream("the king")
    with pytest.raises(ValueError, match="`target_language` must be None"):
        translator().stream("the king", "de")


def test_a_piece_comes_before_the_rest_is_written_and_nothing_compiles_twice():
    ours = generator()
    model = ours._run.model
    whole = "".join(ours.stream("the king", tokens_at_a_time=1))
    number, runs = len(model._generators), []
    for program in model._generators.values():
        run = program.run
        program.run = lambda inputs, run=run: runs.append(inputs) or run(inputs)
    pieces = ours.stream("the king", tokens_at_a_time=1)
    first = next(pieces)
    assert first and 2 <= len(runs) < 8
    assert first + "".join(pieces) == whole and len(runs) <= 13
    for prompt in ("to be", "or not"):
        "".join(ours.stream(prompt))
    assert len(model._generators) == number


def test_a_stream_may_be_dropped_and_streams_may_take_turns():
    ours, hot = generator(), {"search": Sampling(temperature=2.0)}
    seeds = (1, 2)
    expected = [ours.predict("the king", details=True, seed=seed, **hot) for seed in seeds]
    streams = [ours.stream("the king", seed=seed, tokens_at_a_time=1, **hot) for seed in seeds]
    next(ours.stream("the king", seed=5, **hot))
    left = ours.stream("the king", seed=5, tokens_at_a_time=1, **hot)
    next(left)
    left.close()
    assert list(left) == []
    turns = list(itertools.zip_longest(*streams, fillvalue=""))
    assert ["".join(row) for row in zip(*turns, strict=True)] == [
        each["continuation"] for each in expected
    ]
    assert ours.predict("the king", details=True, seed=1, **hot) == expected[0]


def test_a_prompt_that_is_cut_is_told():
    ours, prompt = generator(), "to be or not to be " * 9
    expected = ours.predict(prompt, details=True)
    with pytest.warns(UserWarning, match="^stream: the text is longer than the model reads"):
        stream = ours.stream(prompt)
    assert stream.truncated and expected["truncated"]
    assert stream.prompt + "".join(stream) == expected["text"]


@pytest.mark.parametrize("of", [generator, translator])
@pytest.mark.parametrize(
    ("text", "settings", "message"),
    [
        (["the king"], {}, "stream: the text must be one text"),
        (5, {}, r"stream: the text must be text \(str or UTF-8 bytes\). Received: 5"),
        (b"\xff", {}, "stream: the text must be text in UTF-8"),
        ("a", {"search": BeamSearch(3)}, "to stream, `search` must be .*Received: BeamSearch of 3"),
        ("a", {"search": Sampling(num_samples=2)}, "`search` must be .* Sampling of 2"),
        ("a", {"seed": 3}, "`seed` must be None for a search that draws nothing"),
        ("a", {"new_tokens": 0}, "`new_tokens` must be positive"),
        ("a", {"tokens_at_a_time": 0}, "`tokens_at_a_time` must be None or an integer"),
    ],
)
def test_impossible_streams_are_refused(of, text, settings, message):
    with pytest.raises(ValueError, match=message):
        of().stream(text, **settings)


@pytest.mark.parametrize("kind", [TextGeneratorPredictor, TranslatorPredictor])
def test_a_saved_model_alone_does_not_stream(kind):
    with pytest.raises(ValueError, match="stream: .* has no model that learns.*a SavedModel"):
        kind(lambda text: {}).stream("the king")


def test_a_run_streams_by_its_own_settings(tmp_path):
    numbers = {"temperature": 0.5, "top_p": 0.7, "new_tokens": 16, "seed": 1}
    (tmp_path / "config.json").write_text(json.dumps(numbers))
    run = generator()._run
    parts = {"model": run.model, "tokenizer": run.tokenizer, "labels": None}
    made = types.SimpleNamespace(kind="text_generator", **parts)
    served = fitting_of_run(tmp_path, made).served()
    assert served.search == Sampling(0.5, top_p=0.7) and served.new_tokens == 16


def test_a_published_folder_streams(tmp_path):
    model = folders.gpt2(tmp_path)
    model.build((None, None))
    pretrained.save(model, tmp_path)
    asked = {"do_sample": True, "max_new_tokens": 4, "top_k": 0}
    (tmp_path / "generation_config.json").write_text(json.dumps(asked))
    loaded = keras_transformers.load(tmp_path, seed=5)
    expected = loaded.predict("to be", details=True)["continuation"]
    assert "".join(loaded.stream("to be")) == "".join(loaded.stream("to be")) == expected
