"""Claims about taggers of words: what they learn, answer and keep."""

import numpy as np
import pytest

import keras_transformers
from keras_transformers import models, training
from keras_transformers.fitting import Held, TextTaggerFitting
from keras_transformers.tasks.tagging import UNSCORED, _Rows
from keras_transformers.text import TaggedCorpus, read_tagged
from tests.fitting.test_fitting import FAST, loaded, sentences
from tests.loading.test_published import bert, publish
from tests.pretrained import folders

NAMES = ["O", "B-ROYAL", "I-ROYAL"]


def tagged(number, seed=0):
    """Sentences whose tags follow from the words: a king begins what a queen goes on with."""
    of_word = {"king": "B-ROYAL", "queen": "I-ROYAL"}
    rows = [sentence.split() for sentence in sentences(number, seed)]
    return [
        {"tokens": words, "ner_tags": [of_word.get(word, "O") for word in words]} for words in rows
    ]


def tagger(folder, names=NAMES):
    folder.mkdir()
    make, shape = bert("tagging", num_classes=len(names))
    return keras_transformers.load(publish(folder, make, shape, names))


def test_an_encoder_learns_tags_and_is_the_same_when_it_is_loaded_again(tmp_path):
    data, test = tagged(60), tagged(30, seed=1)
    with folders.eagerly():
        predictor = loaded("sentence_encoder", tmp_path / "bert")
        history = predictor.fit(data, epochs=4, **FAST)
        assert (predictor.kind, predictor.labels) == ("text_tagger", ["O", "B-ROYAL", "I-ROYAL"])
        assert history["loss"][-1] < 0.1 * history["loss"][0]
        scores = predictor.evaluate(test)
        assert scores["accuracy"] > 0.98 and scores["f1"] > 0.95
        assert (scores["rows"], scores["untagged"]) == (30, 0)
        found = predictor.predict("to be king queen or  king", details=True)
        again = keras_transformers.load(predictor.save(tmp_path / "own"))
        assert again.predict(test[0]["tokens"]) == predictor.predict(test[0]["tokens"])
        assert again.evaluate(test) == scores
    fitting = again.fitting_for("fit")  # which keeps its head for tags that it knows
    assert fitting._prepare_head(fitting._labels(read_tagged(data))).model is again.model
    texts = [(each["text"], each["type"], each["start"], each["end"]) for each in found["entities"]]
    assert texts == [("king queen", "ROYAL", 6, 16), ("king", "ROYAL", 21, 25)]
    assert [each["word"] for each in found["words"]] == "to be king queen or king".split()


def test_a_published_tagger_answers_with_its_names(tmp_path):
    predictor = tagger(tmp_path / "bert")
    assert (predictor.kind, predictor.labels) == ("text_tagger", NAMES)
    with folders.eagerly():
        answers = predictor.predict(["the king's  queen", "", "to be\tor not"])
    ids = predictor.tokenizer.tokenize(["to be or not"], start=True, end=True).to_tensor()
    logits = np.asarray(predictor.model(ids))[0].astype("float64")
    probabilities = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    words = [(word, tag) for word, tag, _ in answers[2]]
    assert words == [*zip("to be or not".split(), np.array(NAMES)[logits.argmax(-1)[1:-1]],
                          strict=True)]  # fmt: skip
    np.testing.assert_allclose(
        [each[2] for each in answers[2]], probabilities.max(-1)[1:-1], rtol=1e-5
    )
    assert answers[1] == []


@pytest.mark.slow
def test_a_program_answers_as_what_it_was_made_of(tmp_path):
    predictor = tagger(tmp_path / "bert")
    texts = ["the king's  queen", "", "to be\tor not"]
    with folders.eagerly():
        detailed = predictor.predict(texts, details=True)
    program = keras_transformers.load(predictor.export(tmp_path / "served"))
    assert (program.kind, program.labels) == ("text_tagger", NAMES)
    for ours, theirs in zip(program.predict(texts, details=True), detailed, strict=True):
        assert [each["tag"] for each in ours["words"]] == [each["tag"] for each in theirs["words"]]
        for one, other in zip(ours["words"], theirs["words"], strict=True):
            assert {**one, "probability": 0} == {**other, "probability": 0}
            assert one["probability"] == pytest.approx(other["probability"], rel=1e-5)


def test_the_label_stands_at_the_first_piece_and_nowhere_else(tmp_path):
    predictor = tagger(tmp_path / "bert")
    model, words = predictor.model, predictor.tokenizer
    held = Held(model, words, labels=NAMES, options={"lengths": (12,)})
    corpus = TaggedCorpus("toy", [["tobe", "\u200b", "to"], ["the"] * 20], [NAMES, ["O"] * 20])
    rows = _Rows.encode(held, corpus)
    pieces = len(words.tokenize("tobe"))
    assert pieces > 1
    first = [0, *[UNSCORED] * (pieces - 1), 2]
    assert rows.labels.to_list() == [[UNSCORED, *first, UNSCORED],
                                     [UNSCORED, *[0] * 10, UNSCORED]]  # fmt: skip
    assert (rows.num_cut, rows.num_without_piece) == (1, 1)
    for ids, labels in rows.batches((8, 12), 36):
        assert ids.shape == labels.shape
        assert (labels.numpy()[(ids == model.padding_id).numpy()] == UNSCORED).all()
    served = TextTaggerFitting(held).served()
    with folders.eagerly():
        tags = served.tags(corpus.words)
        truncated = served.portable(["the " * 20, "the"])["truncated"]
    assert tags[0][1] == "" and tags[1][10:] == [""] * 10 and "" not in tags[1][:10]
    assert truncated.numpy().tolist() == [True, False]


def test_scores_count_what_the_model_cannot_see_as_wrong(tmp_path):
    predictor = tagger(tmp_path / "bert")
    predictor.fitting_for("evaluate").held.options["lengths"] = (12,)
    with folders.eagerly():
        tags = predictor.fitting_for("evaluate").served().tags([["the"] * 20])[0]
        assert tags[:10] == [tags[0]] * 10
        scores = predictor.evaluate([(["the"] * 20, [tags[0]] * 20)])
    assert (scores["accuracy"], scores["words"], scores["untagged"]) == (0.5, 20, 10)


def test_an_adapter_is_trained_alone(tmp_path):
    data = tagged(40)
    with folders.eagerly():
        predictor = loaded("mask_filler", tmp_path / "bert")
        before = {each.path: np.asarray(each) for each in predictor.model.weights}
        predictor.add_lora(2)
        predictor.fit(data, epochs=1, **FAST)
        assert predictor.kind == "text_tagger"
    model = predictor.model
    assert training.adapters_of(model)["default"].rank == 2
    kept = [each for each in model.weights if each.path in before and "lora" not in each.path]
    assert len(kept) > 10
    for each in kept:
        np.testing.assert_array_equal(each, before[each.path])
    assert "head" in {each.path.split("/")[1] for each in model.trainable_variables}


@pytest.mark.slow
def test_a_language_model_learns_tags_of_a_conll_file(tmp_path):
    """Whose words need the blank before them; compiled, as users train."""
    lines = [
        "\n".join(map(" ".join, zip(row["tokens"], row["ner_tags"], strict=True)))
        for row in tagged(200)
    ]
    (tmp_path / "a.conll").write_text("\n\n".join(lines))
    predictor = loaded("text_generator", tmp_path / "gpt2")
    predictor.fit(tmp_path / "a.conll", epochs=5, **FAST)
    assert predictor.kind == "text_tagger"
    assert predictor.evaluate(tmp_path / "a.conll")["f1"] > 0.95


def test_what_cannot_be_learned_or_scored_is_refused(tmp_path):
    predictor = tagger(tmp_path / "bert")
    rows = [(["a", "b"], ["X", "X"])] * 12
    with pytest.raises(ValueError, match="nothing to tell apart: all words have one tag"):
        predictor.fit(rows, verbose=0)
    with pytest.raises(ValueError, match="must have some of the model's tags, O, B-.* It has X"):
        predictor.evaluate(rows)
    with pytest.raises(TypeError, match="a text_tagger has no option class_weights; it has probl"):
        predictor.fit(rows, class_weights="balanced")
    with pytest.raises(ValueError, match="`problem_type` of a text_tagger must be 'tagging'"):
        predictor.fit(rows, problem_type="regression")
    with pytest.raises(ValueError, match="left out: 2 with other numbers of words and tags"):
        predictor.fit([("the king", "royal"), ("to be", "plain")], verbose=0)
    words = predictor.tokenizer
    options = {"head": "classification", "num_classes": 2}
    of_texts = models.TextEncoder.from_variant("tiny", words.vocab_size, **options)
    with pytest.raises(ValueError, match=r"must give two logits or more for each token.*\(1, 2\)"):
        keras_transformers.export.TextTagger(of_texts, words, ["a", "b"])
    with pytest.raises(ValueError, match="`labels` must have a name for each of 3 logits"):
        keras_transformers.export.TextTagger(predictor.model, words, ["a"])


def test_texts_with_as_many_tags_are_learned_where_it_is_said(tmp_path):
    rows = [(" ".join(row["tokens"]), " ".join(row["ner_tags"])) for row in tagged(24)]
    with folders.eagerly():
        predictor = loaded("text_classifier", tmp_path / "bert")
        predictor.fit(rows, epochs=1, problem_type="tagging", **FAST)
        assert predictor.kind == "text_tagger"
