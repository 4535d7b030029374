"""Claims about predictors of text: what they take, and what they give."""

import json
import os

import numpy as np
import pytest
import tensorflow as tf

import keras_transformers
from keras_transformers import export, predictors
from keras_transformers.predictors import Refused, TranslatorPredictor


class Shouter:
    """Stands for a translator, and remembers how many rows each request had."""

    def __init__(self):
        self.requests = []

    def __call__(self, text):
        self.requests.append(len(text))
        if tf.reduce_any(text == b"impossible"):
            raise tf.errors.InvalidArgumentError(None, None, "no such thing\nat all")
        rows = tf.shape(text)
        return {
            "translation": tf.strings.upper(text),
            "score": tf.zeros(rows, tf.float32),
            "truncated": tf.zeros(rows, tf.bool),
        }


@pytest.fixture
def translator():
    return TranslatorPredictor(Shouter())


@pytest.mark.parametrize(
    "one", ["açaí", "açaí".encode(), np.str_("açaí"), np.array("açaí"), tf.constant("açaí")]
)
def test_one_text_gives_one_answer(one, translator):
    assert translator.predict(one) == translator.predict([one])[0]
    assert isinstance(translator.predict(one), str)


@pytest.mark.parametrize(
    "make", [list, tuple, np.array, tf.constant, lambda x: np.array(x, object), iter]
)
def test_many_texts_give_a_list_in_their_order(make, translator):
    texts = [f"line {i}" for i in range(7)]
    assert translator.predict(make(texts), batch_size=3) == [text.upper() for text in texts]
    assert translator._run.requests == [3, 3, 1]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.parametrize(
    ("name", "use"),
    [
        ("predict", lambda translator: translator.predict("a")),
        ("predict", lambda translator: list(translator.each(["a"]))),
        ("score", lambda translator: translator.score(["a"], ["b"])),
        ("predictor.model", lambda translator: translator.model),
        ("load", lambda translator: TranslatorPredictor(Shouter())),
        ("load", lambda translator: keras_transformers.load(os.curdir)),
    ],
)
def test_a_forked_child_is_told_that_it_would_wait_forever(name, use, translator):
    translator.predict("a")
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            use(translator)
            os.write(writer, b"no error")
        except BaseException as error:
            os.write(writer, f"{type(error).__name__}: {error}".encode())
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    said = os.read(reader, 10_000).decode()
    assert said.startswith(f"RuntimeError: {name}: this process must not be a fork of one that has")
    assert said.endswith(f"Received: process {child}, forked from {os.getpid()}")


def test_texts_that_are_cut_are_counted_in_a_warning(translator, recwarn):
    translator.predict(["short"])
    assert not recwarn.list
    run = translator._run

    def cutting(text):
        return {**run(text), "truncated": tf.strings.length(text) > 9}

    translator._run = cutting
    with pytest.warns(UserWarning, match="predict: 2 of 3 texts are longer than the model reads"):
        translator.predict(["longer than nine", "short", "also longer"], batch_size=2)


def test_nothing_gives_nothing(translator):
    assert translator.predict([]) == [] and translator.predict("") == ""


@pytest.mark.parametrize("bad", [None, 3, 2.5, float("nan"), ["nested"], {"text": "a"}, object()])
def test_what_is_no_text_is_named_with_its_number(bad, translator):
    with pytest.raises(ValueError, match=r"item 1 must be text .*Received: ") as refused:
        translator.predict(["good", bad])
    assert type(bad).__name__ in str(refused.value)


@pytest.mark.parametrize("bad", [b"\xff\xfe", "\ud800"])
def test_what_is_not_utf8_is_refused(bad, translator):
    with pytest.raises(ValueError, match="item 2 must be text in UTF-8"):
        translator.predict(["a", b"b", bad])


def test_each_answers_the_good_and_refuses_the_bad(translator):
    answers = list(translator.each(["a", None, "impossible", b"b", "c", "impossible"]))
    assert [answers[i] for i in (0, 3, 4)] == ["A", "B", "C"]
    assert all(isinstance(answers[i], Refused) for i in (1, 2, 5))
    assert "refused by the model: no such thing Received: 'impossible'" in answers[2].reason


def test_a_batch_size_must_be_positive(translator):
    with pytest.raises(ValueError, match="`batch_size` must be positive. Received: 0"):
        translator.predict(["a"], batch_size=0)


def test_parts_that_there_are_not_are_named():
    asked = []
    translator = TranslatorPredictor(
        Shouter(), parts={"tokenizer": lambda: asked.append(1) or "pieces"}, source="folder"
    )
    assert translator.tokenizer == translator.tokenizer == "pieces" and asked == [1]
    with pytest.raises(AttributeError, match="folder has no model"):
        _ = translator.model


def test_answers_of_every_kind_go_through_json():
    found = {
        "translation": ["Tür"],
        "score": [-1.5],
        "truncated": [True],
        "text": ["Tür"],
        "continuation": ["r"],
        "finished": [False],
        "candidates": [["a", ""]],
        "probabilities": [[0.75, 0.0]],
        "label": ["x"],
        "probability": [0.75],
        "embedding": [[0.5, 2.0]],
        "value": [4.5],
        "words": [["Bo", ""]],
        "tags": [["B-PER", ""]],
        "starts": [[3, 0]],
        "ends": [[5, 0]],
        "number": [1],
    }
    found = {name: tf.constant(value) for name, value in found.items()}
    given = {}
    for kind, made in predictors.KINDS.items():
        if made.takes == "text":
            given[kind] = [
                made(lambda text: found, ["x", "y"]).predict("a", details=details)
                for details in (False, True)
            ]
    assert json.loads(json.dumps(given)) == given
    sentence = {"score": -1.5, "truncated": True}
    answer = {"translation": "Tür", "finished": False, **sentence}
    assert given["translator"] == ["Tür", answer]
    assert given["text_generator"][0] == "Tür"
    assert given["mask_filler"][0]["candidates"] == [{"token": "a", "probability": 0.75}]
    assert given["text_classifier"][0]["probabilities"] == {"x": 0.75, "y": 0.0}
    word = {"word": "Bo", "tag": "B-PER", "probability": 0.75, "start": 3, "end": 5}
    assert given["text_tagger"] == [[["Bo", "B-PER", 0.75]], {"words": [word], "truncated": True}]
    assert given["text_regressor"] == [4.5, {"value": 4.5, "truncated": True}]
    assert given["sentence_encoder"] == [[0.5, 2.0], {"embedding": [0.5, 2.0], "truncated": True}]


def test_entities_are_given_where_the_tags_mark_them():
    words, tags = [["New", "York", "and", "Rome"]], [["B-LOC", "I-LOC", "O", "B-LOC"]]
    found = {"words": words, "tags": tags, "probabilities": [[0.5, 1.0, 1.0, 0.75]]}
    found |= {"starts": [[0, 5, 10, 14]], "ends": [[3, 9, 13, 18]]}
    found = {name: tf.constant(value) for name, value in found.items()}
    found |= {"number": tf.constant([4]), "truncated": tf.constant([False])}
    made = predictors.TextTaggerPredictor(lambda text: found, ["O", "B-LOC", "I-LOC"])
    entities = made.predict("New  York and Rome", details=True)["entities"]
    one = {"text": "New  York", "type": "LOC", "probability": 0.75, "start": 0, "end": 9}
    other = {"text": "Rome", "type": "LOC", "probability": 0.75, "start": 14, "end": 18}
    assert entities == [one, other]


def test_every_exporter_has_a_predictor_and_every_predictor_an_exporter():
    exporters = [getattr(export, name) for name in export.__all__ if name[0].isupper()]
    kinds = [exporter.kind for exporter in exporters if hasattr(exporter, "kind")]
    of_arrays = ["array_classifier"]  # which an image classifier is that has more than colours
    assert sorted(kinds + of_arrays) == sorted(predictors.KINDS)


@pytest.mark.parametrize("text", ["open the door", b"open the door"])
def test_methods_for_lists_refuse_one_text(text):
    with pytest.raises(TypeError, match=r"a list of texts; for one alone, use `predict`"):
        export.Translator.translate(lambda texts: None, text)
