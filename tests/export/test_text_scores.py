"""Claims about what an exported text generator says of tokens: of its own, and of other texts."""

import functools
import itertools
import json

import numpy as np
import pytest
import tensorflow as tf

import keras_transformers
from keras_transformers.export import TextGenerator
from keras_transformers.generation import BeamSearch, Boundaries, Constraints, Greedy, Sampling
from keras_transformers.predictors import TextGeneratorPredictor
from recipes import predict
from recipes.lib import translating
from tests.export.test_text_generator import COMPILED, ENDS, continued, model_of, tokenizer_of
from tests.pretrained.folders import eagerly
from tests.slow import slow_except

NEW_TOKENS, LONGEST = 6, 12
LONG = "to be or not to be, the king and the queen, or not the king, and so on"
KINDS = slow_except(ENDS.keys(), "byte pairs")


GREEDY = Greedy()


@functools.cache
def generator_of(kind, search=GREEDY):
    lengths = (4, LONGEST)
    return TextGenerator(model_of(kind), tokenizer_of(kind), search, NEW_TOKENS, lengths)


def log_probabilities(kind, ids):
    """Of all tokens after each of `ids`, by a whole pass of the model, in float64."""
    logits = model_of(kind)(np.array([ids], "int32"), training=False).numpy()[0].astype("float64")
    return logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))


def scores_after(kind, before, ids):
    """Of `ids`, each after those before it."""
    found = log_probabilities(kind, [*before, *ids])[len(before) - 1 : -1]
    return found[np.arange(len(ids)), ids]


def ids_of(kind, texts):
    return tokenizer_of(kind).tokenize(texts).to_list()


def begun(kind, ids):
    """What the model reads of a prompt: its end behind START, or something at least."""
    tokenizer = tokenizer_of(kind)
    ids = ids[-LONGEST:]
    return (ids or [tokenizer.end_id]) if tokenizer.start_id is None else [tokenizer.start_id, *ids]


def check(kind, row, ids, before):
    """A row of an answer says of `ids` what the model does."""
    pieces, values = zip(*row["tokens"], strict=True) if row["tokens"] else ((), ())
    assert list(pieces) == tokenizer_of(kind).pieces(ids)
    expected = scores_after(kind, before, ids) if ids else []
    np.testing.assert_allclose(values, expected, atol=2e-4)
    total = row["log_probability"] if "log_probability" in row else row["score"]
    assert total == pytest.approx(sum(expected), abs=1e-3)


def predictor_of(generator, compiled):
    """What answers by XLA, or by the functions that a SavedModel has."""
    if compiled:
        return TextGeneratorPredictor(generator)

    class Portable:
        @staticmethod
        def further_signature(name):
            signature = generator.further_signature(name)
            return signature._replace(compiled=signature.portable)

    return TextGeneratorPredictor(Portable)


@pytest.fixture
def untraced():
    with eagerly():
        yield


# ------------------------------------------------------------------------------ what is written


@pytest.mark.parametrize("compiled", COMPILED)
@pytest.mark.parametrize("kind", KINDS)
def test_the_tokens_of_a_continuation_have_the_model_s_own_log_probabilities(kind, compiled):
    end, tokenizer = ENDS[kind], tokenizer_of(kind)
    prompts = ["the king", f"the king{end}and the queen", "", LONG, "t", f"{end}", "to be or"]
    generator = generator_of(kind)
    rows = predictor_of(generator, compiled).predict(prompts, scores=True)
    plain = TextGeneratorPredictor(generator if compiled else generator.portable)
    plain = plain.predict(prompts, details=True)
    for prompt, row, details in zip(prompts, rows, plain, strict=True):
        assert {name: row[name] for name in details} == details
        assert row.keys() - details.keys() == {"tokens", "log_probability"}
        before = begun(kind, ids_of(kind, [prompt])[0])
        check(kind, row, continued(model_of(kind), before, tokenizer.end_id), before)
    is_cut = [len(ids) > LONGEST for ids in ids_of(kind, prompts)]
    assert [row["truncated"] for row in rows] == is_cut and is_cut[prompts.index(LONG)]
    alone = predictor_of(generator, compiled).predict(prompts[1], scores=True)
    assert alone["log_probability"] == pytest.approx(rows[1]["log_probability"], abs=1e-3)


SEARCHES = {
    "samples": Sampling(5.0, top_k=20, num_samples=3, seed=2),
    "beams": BeamSearch(3, length_penalty=2.0, n_best=2),
    "one sample": Sampling(3.0, top_p=0.9, seed=2, constraints=Constraints(repetition_penalty=1.5)),
}


@pytest.mark.parametrize("compiled", COMPILED)
@pytest.mark.parametrize("name", slow_except(SEARCHES.keys(), "samples"))
def test_no_setting_of_the_search_is_in_the_log_probabilities(name, compiled):
    """Of each of several texts, the first of which is the answer's own."""
    kind, tokenizer = "word pieces", tokenizer_of("word pieces")  # whose pieces are all distinct
    rows = predictor_of(generator_of(kind, SEARCHES[name]), compiled)
    rows = rows.predict(["the king", "", LONG, "or not"], scores=True)
    for prompt, row in zip(["the king", "", LONG, "or not"], rows, strict=True):
        before = begun(kind, ids_of(kind, [prompt])[0])
        every, totals = row.get("all_tokens"), row.get("log_probabilities")
        if name == "one sample":
            assert every is None and totals is None
            every, totals = [row["tokens"]], [row["log_probability"]]
        assert every[0] == row["tokens"] and totals[0] == row["log_probability"]
        assert len(every) == len(row.get("texts", [0])) == len(totals)
        for tokens, total in zip(every, totals, strict=True):
            ids = [tokenizer.vocab.index(piece) for piece, _ in tokens]
            check(kind, {"tokens": tokens, "log_probability": total}, ids, before)
            text = [token for token in [*before[1:], *ids] if token != tokenizer.end_id]
            shown = tokenizer.detokenize([text]).numpy()[0].decode()
            assert shown in row.get("texts", [row["text"]])
        if name == "samples":
            assert len({*map(str, every)}) == 3


def test_an_end_counts_where_the_model_has_chosen_it(untraced):
    kind, tokenizer = "word pieces", tokenizer_of("word pieces")
    prompts = ["the king", "to be", "or not", "queen", "and", "the", "be the king", "not"]
    end = tokenizer.end_id
    written = [continued(model_of(kind), begun(kind, ids), end) for ids in ids_of(kind, prompts)]
    most = NEW_TOKENS - 1  # behind them an END is forced
    # A token of some of the texts, and not of all, taken for an END.
    tokens = sorted({token for ids in written for token in ids[:most]} - {end})
    other = next(x for x in tokens if not all({x, end} & {*ids[:most]} for ids in written))
    forced = Greedy(Constraints(boundaries=Boundaries(ends=(end, other), last=end)))
    rows = TextGeneratorPredictor(generator_of(kind, forced)).predict(prompts, scores=True)
    assert {row["finished"] for row in rows} == {False, True}
    for row, ids in zip(rows, written, strict=True):
        stops = [i + 1 for i, token in enumerate(ids[:most]) if token in (end, other)]
        assert row["finished"] == bool(stops)
        expected = ids[: stops[0] if stops else most]
        assert [piece for piece, _ in row["tokens"]] == tokenizer.pieces(expected)


# ------------------------------------------------------------------------------- other texts


def cut_together(kind, prompt, text):
    """What the model reads before a text, the tokens of the text, and whether some are cut off."""
    tokenizer, most = tokenizer_of(kind), LONGEST + NEW_TOKENS
    alone, both = ids_of(kind, [prompt, prompt + text])
    pairs = itertools.takewhile(lambda pair: pair[0] == pair[1], zip(alone, both, strict=False))
    common = len(list(pairs))
    ids = both[common:][:most]
    before = both[:common][max(common + len(ids) - most, 0) :]
    first = [] if tokenizer.start_id is None else [tokenizer.start_id]
    return (first + before) or [tokenizer.end_id], ids, len(before) + len(ids) < len(both)


def pairs_of(kind):
    end = ENDS[kind]
    return [
        ("the king", " and the queen"),
        ("", "to be or not"),
        ("the kin", "g and"),  # a token may end in the text
        ("the king ", "and"),
        (f"to be{end}or", f" not{end}"),
        ("to be", ""),
        ("", ""),
        ("", end),
        ("t", "he"),
        (LONG, " the queen"),
        ("the king", f" {LONG} {LONG}"),
        ("", f"{LONG} {LONG}"),
    ]


@pytest.mark.parametrize("compiled", COMPILED)
@pytest.mark.parametrize("kind", KINDS)
def test_texts_after_prompts_are_scored_token_by_token(kind, compiled):
    pairs = pairs_of(kind)
    prompts, texts = zip(*pairs, strict=True)
    ours = predictor_of(generator_of(kind), compiled)
    rows = ours.score(texts, prompts)
    expected = [cut_together(kind, *pair) for pair in pairs]
    for row, (before, ids, is_cut) in zip(rows, expected, strict=True):
        check(kind, row, ids, before)
        assert row["truncated"] == is_cut
        assert row["score"] == pytest.approx(sum(value for _, value in row["tokens"]), abs=1e-3)
    assert [row["truncated"] for row in rows][-3:] == [True] * 3
    assert sum(len(ids) for _, ids, _ in expected) > 50
    again = ours.score(texts, prompts, batch_size=5)
    np.testing.assert_allclose(*([row["score"] for row in x] for x in (rows, again)), atol=1e-3)
    alone = ours.score(texts[:1])[0]
    check(kind, alone, cut_together(kind, "", texts[0])[1], cut_together(kind, "", texts[0])[0])
    assert ours.score([]) == ours.score([], []) == []


@pytest.mark.parametrize("kind", slow_except(["word pieces", "llama 3"], "word pieces"))
def test_a_text_is_as_probable_as_its_beginning_and_what_follows(kind, untraced):
    """P(a b) = P(a) P(b | a), and a text that the model has written as it said itself."""
    ours = TextGeneratorPredictor(generator_of(kind))
    begin, rest = "the king", " and the queen"
    together, first = generator_of(kind).score([begin + rest, begin])
    second = ours.score([rest], [begin])[0]
    assert together["score"] == pytest.approx(first["score"] + second["score"], abs=1e-3)
    assert together["tokens"][: len(first["tokens"])] == [
        (piece, pytest.approx(value, abs=1e-3)) for piece, value in first["tokens"]
    ]
    assert np.exp(-first["score"] / len(first["tokens"])) > 1


def test_what_is_no_list_of_texts_is_refused():
    ours = TextGeneratorPredictor(generator_of("word pieces"))
    for given in (("the king",), (["a", "b"], ["a"]), (["a"], "a")):
        with pytest.raises(ValueError, match="score: `texts` must be a list, and `prompts` None"):
            ours.score(*given)
    with pytest.raises(ValueError, match="score: item 1 must be text .*Received: 3 .int."):
        ours.score(["a", 3])
    with pytest.raises(ValueError, match="score: `batch_size` must be positive. Received: 0"):
        ours.score(["a"], batch_size=0)
    for ask in (lambda x: x.score(["a"]), lambda x: x.predict("a", scores=True)):
        with pytest.raises(AttributeError, match="has no signature '(score|tokens)'"):
            ask(TextGeneratorPredictor(lambda text: {}))


# ------------------------------------------------------------------------------ SavedModels


@pytest.mark.parametrize(
    ("kind", "search"),
    [
        ("word pieces", SEARCHES["beams"]),
        ("byte pairs", Greedy()),
        ("llama 3", SEARCHES["samples"]),
    ],
)
@pytest.mark.slow
def test_a_saved_model_says_the_same_by_itself(kind, search, tmp_path):
    generator = generator_of(kind, search)
    path = generator.save(tmp_path / "saved")
    loaded, ours = keras_transformers.load(path), predictor_of(generator, kind != "word pieces")
    prompts, texts = zip(*pairs_of(kind), strict=True)
    both = [
        (loaded.predict(prompts, scores=True), ours.predict(prompts, scores=True)),
        (loaded.score(texts, prompts), ours.score(texts, prompts)),
        (loaded.score(texts), ours.score(texts, [""] * len(texts))),
    ]
    for rows, expected in both:
        for row, other in zip(rows, expected, strict=True):
            assert row.keys() == other.keys()
            assert [piece for piece, _ in row["tokens"]] == [piece for piece, _ in other["tokens"]]
            values = ([value for _, value in each["tokens"]] for each in (row, other))
            np.testing.assert_allclose(*values, atol=1e-3)
            same = ("text", "continuation", "texts", "finished", "truncated")
            assert all(row[name] == other[name] for name in same if name in row)
    served = tf.saved_model.load(str(path)).signatures
    none = tf.zeros([0], tf.string)
    for answer in (served["tokens"](text=none), served["score"](text=none, prompt=none)):
        assert {name: values.shape[0] for name, values in answer.items()} == dict.fromkeys(
            answer, 0
        )
    answer = served["score"](text=tf.constant(texts), prompt=tf.constant(prompts))
    assert answer["tokens"].shape == answer["log_probabilities"].shape
    assert not answer["log_probabilities"].numpy()[answer["tokens"].numpy() == b""].any()


def test_settings_of_a_request_are_those_that_are_scored(untraced):
    ours = TextGeneratorPredictor(generator_of("word pieces"))
    prompts = ["the king", "or not"]
    options = {"search": SEARCHES["samples"], "seed": 5, "n_best": 2, "new_tokens": 3}
    found = ours.predict(prompts, scores=True, **options)
    assert [row["texts"] for row in found] == ours.predict(prompts, **options)
    assert all(len(row["all_tokens"]) == 2 and len(row["tokens"]) <= 3 for row in found)
    by_one = list(ours.each(prompts, batch_size=1, scores=True, **options))
    assert [row["texts"] for row in by_one] == [row["texts"] for row in found]


class Unscored:
    """A model of the user's, which writes and has no `log_probabilities`."""

    def __init__(self, model):
        names = ("built", "start_decoding", "decode_step", "variables", "padding_id", "embedding")
        names += ("most_positions", "most_decodable", "reads_sources", "dtype_policy")
        vars(self).update({name: getattr(model, name) for name in names})


@pytest.mark.slow
def test_a_model_that_scores_nothing_is_saved_without_those_signatures(tmp_path):
    kind = "word pieces"
    generator = TextGenerator(Unscored(model_of(kind)), tokenizer_of(kind), Greedy(), 3, (8,))
    with pytest.raises(AttributeError, match="Unscored has no `log_probabilities`"):
        generator.score(["the king"])
    path = generator.save(tmp_path / "saved")
    assert {*tf.saved_model.load(str(path)).signatures} == {"serving_default", "xla"}
    with pytest.raises(
        AttributeError, match="has no signature 'tokens'; export it by this version"
    ):
        keras_transformers.load(path).predict("the king", scores=True)
    with pytest.raises(ValueError, match="--scores: tokens: .* has no signature 'tokens'"):
        predict.run(predict.Config(str(path), ("the king",), scores=True))


def test_the_command_line_gives_scores(tmp_path, capsys, monkeypatch, untraced):
    ours = TextGeneratorPredictor(generator_of("word pieces"))
    monkeypatch.setattr(keras_transformers, "load", lambda *_: ours)
    predict.run(predict.Config("a model", ("the king", ""), scores=True))
    expected = [json.loads(json.dumps(ours.predict(x, scores=True))) for x in ("the king", "")]
    printed = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    for row, other in zip(printed, expected, strict=True):
        assert row.keys() == other.keys() and row["text"] == other["text"]
        assert row["log_probability"] == pytest.approx(other["log_probability"], abs=1e-3)
    (tmp_path / "in.txt").write_text("the king\nor not\n")
    files = {"input": str(tmp_path / "in.txt"), "output": str(tmp_path / "out"), "scores": True}
    predict.run(predict.Config("a model", **files))
    lines = (tmp_path / "out" / "predictions.jsonl").read_text().splitlines()
    assert all(json.loads(line)["tokens"] for line in lines)
    with pytest.raises(ValueError, match="--format must be jsonl beside --scores. Received: txt"):
        predict.run(predict.Config("a model", **{**files, "output": "other"}, format="txt"))
    with pytest.raises(ValueError, match="begun with another"):
        predict.run(predict.Config("a model", **{**files, "scores": False}))
    for kind, advice in (("translator", "left out beside --search"), ("detector", "of translat")):
        ours.kind = kind
        monkeypatch.setattr(translating, "change_search", lambda predictor, *_: predictor)
        with pytest.raises(ValueError, match=f"--scores .*{advice}"):
            predict.run(predict.Config("a model", ("a",), scores=True, search="greedy"))
