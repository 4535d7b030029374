"""Claims about what the pages compute, with models that answer at once."""

import io
import itertools
import pathlib
import re

import keras
import numpy as np
import PIL.Image
import pytest
import tensorflow as tf

import keras_transformers
from keras_transformers.export import TextGenerator
from keras_transformers.generation import BeamSearch, Greedy
from keras_transformers.models import LanguageModel, Swin, ViT
from keras_transformers.predictors import (
    KINDS,
    DetectorPredictor,
    ImageClassifierPredictor,
    MaskFillerPredictor,
    QuestionAnswererPredictor,
    SegmenterPredictor,
    SentenceEncoderPredictor,
    TextClassifierPredictor,
    TextRegressorPredictor,
    TextTaggerPredictor,
)
from keras_transformers.text import SentencePieceTokenizer
from keras_transformers.vision import Preprocessing
from recipes.lib.pages import PAGES, answers, examples
from tests.recipes import tiny_folders

WITHOUT_PAGE = {"array_classifier", "zero_shot_classifier"}  # as `layout.page` says


def test_every_kind_of_predictor_has_a_page():
    """Here, and not only beside the pages, since gradio is seldom installed."""
    assert {*PAGES} == KINDS.keys() - WITHOUT_PAGE
    path = pathlib.Path(answers.__file__).with_name("layout.py")
    (pages,) = re.findall(r"^LAYOUTS = \(([\w,\s]+)\)$", path.read_text("utf-8"), re.MULTILINE)
    assert {*re.findall(r"\w+", pages)} == {*PAGES}


@pytest.fixture(scope="module")
def translating(tmp_path_factory):
    folder = tiny_folders.translator(tmp_path_factory.mktemp("translator"))
    return keras_transformers.load(folder), folder


@pytest.mark.slow
def test_the_first_alternative_is_the_translation(translating):
    predictor, folder = translating
    search = answers.search_of(folder, 4)
    assert search == BeamSearch(4, 1.0, n_best=4)
    ranked = answers.alternatives(predictor, "the cat", search)
    found = answers.translate(predictor, "the cat")
    assert ranked[0][1] == found["translation"] != ""
    assert ranked[0][0] == pytest.approx(found["score"], abs=1e-4)
    assert len({text for _, text in ranked}) == len(ranked) > 1
    assert [score for score, _ in ranked] == sorted((s for s, _ in ranked), reverse=True)


@pytest.mark.slow
def test_the_alignment_of_what_can_be_read_is_drawn(translating):
    predictor, _ = translating
    drawn = answers.alignment_picture(predictor, "the cat", "a dog")
    assert drawn.dtype == np.uint8 and drawn.shape[2] == 3 and drawn.std() > 0
    assert answers.alignment_picture(predictor, "the cat " * 40, "a dog") is None


def test_a_folder_that_says_no_search_is_searched_by_beams(tmp_path):
    assert answers.search_of(tmp_path, 3).n_best == 3


@pytest.mark.slow
@pytest.mark.parametrize("text", ["", "  \n", None])
def test_no_text_is_refused_in_a_sentence(translating, text):
    with pytest.raises(ValueError, match="^Type a text first.$"):
        answers.translate(translating[0], text)


@pytest.mark.slow
def test_what_a_bare_saved_model_lacks_is_said(translating):
    predictor, folder = translating
    assert answers.missing_parts(predictor, "model", "tokenizer") == ""
    bare = keras_transformers.load(folder / "saved_model")
    assert answers.missing_parts(bare, "model", "tokenizer") == (
        "needs the Keras model and the tokenizer, which a SavedModel alone does not have: give the "
        "folder of the run."
    )
    assert "Transformer" in answers.described(predictor, folder)
    assert "Transformer" not in answers.described(bare, folder)


def test_the_five_best_classes_come_best_first():
    probabilities = [0.1, 0.3, 0.05, 0.2, 0.15, 0.2]

    def classify(image):
        return {
            "label": tf.constant(["b"]),
            "probability": tf.constant([0.3]),
            "probabilities": tf.constant([probabilities]),
        }

    predictor = ImageClassifierPredictor(classify, list("abcdef"))
    found = answers.classify_picture(predictor, PIL.Image.new("L", (7, 5)))
    assert list(found) == ["b", "d", "f", "e", "a"]


@pytest.mark.parametrize("kind", [ViT, Swin])
def test_attention_lies_over_the_picture_as_the_model_sees_it(kind):
    sizes = {"num_classes": 3, "image_size": 16, "patch_size": 4}
    sizes |= {"window_size": 2} if kind is Swin else {"num_layers": 1}
    model = kind.from_variant(
        "mini/4" if kind is ViT else "mini",
        **{
            name: size for name, size in sizes.items() if not (kind is ViT and name == "patch_size")
        },
    )
    model.build((None, 16, 16, 1))
    parts = {"model": lambda: model, "preprocessing": lambda: Preprocessing(16, 1)}
    predictor = ImageClassifierPredictor(None, parts=parts)
    noise = np.random.default_rng(0).integers(0, 256, (20, 30, 3), np.uint8)
    shown, how = answers.attention(predictor, PIL.Image.fromarray(noise))
    assert shown.shape == (448, 448, 3) and shown.dtype == np.uint8
    assert ("relevance" if kind is ViT else "gradient") in how


def test_a_model_without_attention_shows_none():
    model = keras.Sequential([keras.Input((8, 8, 1)), keras.layers.Flatten()])
    parts = {"model": lambda: model, "preprocessing": lambda: Preprocessing(8, 1)}
    predictor = ImageClassifierPredictor(None, parts=parts)
    shown, why = answers.attention(predictor, PIL.Image.new("L", (8, 8)))
    assert shown is None and "no attention" in why


def test_what_is_warm_is_bright():
    shown = answers.overlaid(np.zeros((4, 4, 1), np.uint8), np.array([[0.0, 0.0], [0.0, 2.0]]))
    quarter = shown.shape[0] // 2
    brightness = shown.reshape(2, quarter, 2, quarter, 3).mean((1, 3, 4))
    assert brightness.argmax() == 3


def test_boxes_are_drawn_and_listed_from_a_score_on():
    def detect(image):
        return {
            "boxes": tf.constant([[[100.0, 100, 300, 400], [2, 3, 5, 7]]]),
            "label": tf.constant([["cat", "dog"]]),
            "score": tf.constant([[0.75, 0.25]]),
            "number": tf.constant([1]),
        }

    picture = PIL.Image.new("RGB", (500, 450))
    found = answers.detect(DetectorPredictor(detect), picture)
    assert [len(answers.above_threshold(found, least)) for least in (0.0, 0.5, 0.9)] == [2, 1, 0]
    kept = answers.above_threshold(found, 0.5)
    assert answers.rows_of(kept) == [["cat", 75.0, 100, 100, 300, 400]]
    drawn = answers.with_boxes(picture, kept)
    assert drawn.shape == (450, 500, 3)
    assert drawn[250, 100].any() and drawn[399, 200].any()  # its left and lower sides
    assert not drawn[250, 200].any() and not drawn[:90].any()
    assert not answers.with_boxes(picture, []).any()


@pytest.mark.parametrize(("size", "drawn"), [((4, 2), (896, 448)), ((3000, 1500), (1024, 512))])
def test_classes_of_pixels_are_laid_over_the_image(size, drawn):
    right = np.broadcast_to(np.arange(size[0]) >= size[0] // 4, size[::-1]).astype("int32")

    def segment(image):
        return {"map": tf.constant(right[None]), "size": tf.constant([size[::-1]])}

    predictor = SegmenterPredictor(segment, ["sky", "road"])
    pixels, masks, left_out = answers.segment(predictor, PIL.Image.new("L", size, 7))
    assert pixels.shape == (*drawn[::-1], 3) and (pixels == 7).all()
    assert [name for _, name in masks] == ["road: 75.0%", "sky: 25.0%"] and left_out == ""
    of_road = np.arange(drawn[0]) >= drawn[0] // 4
    np.testing.assert_array_equal(masks[0][0] > 0, np.broadcast_to(of_road, drawn[::-1]))
    np.testing.assert_array_equal(masks[1][0] > 0, ~(masks[0][0] > 0))


def test_the_smallest_classes_are_left_out_in_a_sentence():
    numbers = np.arange(24, dtype="int32").reshape(1, 1, 24)
    segment = lambda image: {"map": numbers, "size": [[1, 24]]}  # noqa: E731
    _, masks, left_out = answers.segment(SegmenterPredictor(segment), PIL.Image.new("L", (24, 1)))
    assert len(masks) == 20 and left_out == "Classes that are too small to be shown: 4."


def test_a_photograph_is_turned_the_right_way_up(tmp_path):
    photograph = PIL.Image.new("RGB", (30, 20))
    exif = photograph.getexif()
    exif[274] = 6  # lies on its side
    photograph.save(tmp_path / "a.jpg", exif=exif)
    assert answers.opened(tmp_path / "a.jpg").size == (20, 30)


@pytest.mark.parametrize("content", [b"", b"no picture", "cut"])
def test_what_is_no_picture_is_refused_in_a_sentence(tmp_path, content):
    if content == "cut":
        file = io.BytesIO()
        PIL.Image.effect_noise((50, 50), 50).save(file, "png")
        content = file.getvalue()[:200]
    (tmp_path / "a.png").write_bytes(content)
    with pytest.raises(ValueError, match="^This file is no picture"):
        answers.opened(tmp_path / "a.png")
    with pytest.raises(ValueError, match="^Choose a picture first.$"):
        answers.opened(None)


def test_only_files_that_were_uploaded_are_opened(tmp_path):
    folder = tmp_path / "uploads"
    folder.mkdir()
    PIL.Image.new("RGB", (30, 20)).save(folder / "a.png")
    PIL.Image.new("RGB", (30, 20)).save(tmp_path / "secret.png")
    (folder / "link.png").symlink_to(tmp_path / "secret.png")
    assert answers.uploaded({"path": str(folder / "a.png")}, folder).size == (30, 20)
    for name in ("../secret.png", tmp_path / "secret.png", "link.png"):
        with pytest.raises(ValueError, match="^Upload the picture"):
            answers.uploaded({"path": str(folder / name)}, folder)
    for nothing in (None, {}, {"path": None}):
        with pytest.raises(ValueError, match="^Choose a picture first.$"):
            answers.uploaded(nothing, folder)


def test_a_text_is_filled_in_where_it_is_masked():
    def fill(text):
        return {
            "text": tf.constant(["to be"]),
            "candidates": tf.constant([["be", "do", "be"]]),
            "probabilities": tf.constant([[0.5, 0.3, 0.1]]),
            "truncated": tf.constant([True]),
        }

    text, candidates, note = answers.fill(MaskFillerPredictor(fill), "to [MASK]")
    assert text == "to be" and candidates == pytest.approx({"be": 0.5, "do": 0.3})
    assert note == "The text is longer than the model reads: its end was cut off."
    with pytest.raises(ValueError, match=r"\[MASK\] where"):
        answers.fill(MaskFillerPredictor(fill), "to be")


def test_a_text_is_classified():
    def classify(text):
        probabilities = tf.constant([[0.25, 0.75]])
        found = {"label": tf.constant(["b"]), "probability": tf.constant([0.75])}
        return found | {"probabilities": probabilities, "truncated": tf.constant([False])}

    found = answers.classify_text(TextClassifierPredictor(classify, ["a", "b"]), "to be")
    assert found == ({"b": 0.75, "a": 0.25}, "")


def test_a_text_is_rated_to_six_digits():
    def rate(text):
        return {"value": tf.constant([200 / 3]), "truncated": tf.constant([False])}

    assert answers.rate(TextRegressorPredictor(rate), "to be") == (66.6667, "")


@pytest.mark.parametrize("marked", [True, False])
def test_a_tagged_text_is_given_in_parts(marked):
    tags = ["B-LOC", "I-LOC", "O", "O"] if marked else ["ADJ", "NOUN", "VERB", ""]

    def tag(text):
        found = {"words": ["New", "York", "is", "."], "tags": tags, "probabilities": [0.5] * 4}
        found |= {"starts": [1, 6, 11, 13], "ends": [4, 10, 13, 14], "number": 4}
        return {name: tf.constant([value]) for name, value in found.items()} | {
            "truncated": tf.constant([True])
        }

    parts, note = answers.tag(TextTaggerPredictor(tag), " New  York is.")
    assert "".join(part for part, _ in parts) == " New  York is."
    tagged = [pair for pair in parts if pair[1]]
    words = [("New", "ADJ"), ("York", "NOUN"), ("is", "VERB")]
    assert tagged == ([("New  York", "LOC")] if marked else words)
    assert note == "The text is longer than the model reads: its end was cut off."


@pytest.mark.parametrize(("no_answer", "truncated"), [(0.5, False), (0.125, True)])
def test_an_answer_is_marked_in_its_text(no_answer, truncated):
    def answer(pairs):
        found = {"answer": ["Zoë"], "start": [0], "end": [3], "score": [0.25]}
        found |= {"no_answer": [no_answer], "truncated": [truncated]}
        return {name: tf.constant(value) for name, value in found.items()}

    answerer = QuestionAnswererPredictor(answer)
    found, parts, said = answers.answer(answerer, "Who?", "Zoë sat.")
    assert (found, parts) == ("Zoë", [("Zoë", "answer"), (" sat.", None)])
    assert said.startswith("Score: 0.25; 1 is surest.")
    assert (answers.NO_ANSWER in said) == (not truncated) and (
        answers.CUT_PAIR in said
    ) == truncated
    for pair, name in ((("", "Zoë sat."), "question"), (("Who?", " "), "text")):
        with pytest.raises(ValueError, match=f"^Type a {name} first.$"):
            answers.answer(answerer, *pair)


def test_similarity_is_the_cosine():
    vectors = {b"one": [3.0, 0.0], b"other": [1.0, 1.0], b"nothing": [0.0, 0.0]}

    def encode(text):
        embedding = tf.constant([vectors[each] for each in text.numpy()])
        return {"embedding": embedding, "truncated": tf.zeros(len(embedding), tf.bool)}

    encoder = SentenceEncoderPredictor(encode)
    assert answers.text_similarity(encoder, "one", "other")[0] == pytest.approx(0.5**0.5)
    assert answers.text_similarity(encoder, "one", "nothing")[0] == 0
    with pytest.raises(ValueError, match="^Type a second text first.$"):
        answers.text_similarity(encoder, "one", "")


def test_the_nucleus_is_the_fewest_tokens_that_sum_to_top_p():
    logits = np.log([[0.1, 0.5, 0.15, 0.25]]).astype("float32")
    for top_p, kept in ((0.4, [1]), (0.6, [1, 3]), (0.8, [1, 2, 3]), (1.0, [0, 1, 2, 3])):
        found = answers.nucleus(logits, top_p).numpy()[0]
        assert np.flatnonzero(found > answers.MASKED).tolist() == kept
        np.testing.assert_array_equal(found[kept], logits[0, kept])


@pytest.mark.slow
def test_a_writer_takes_another_temperature_without_compiling(monkeypatch):
    tokenizer = SentencePieceTokenizer.train(tiny_folders.SENTENCES * 9, vocab_size=23)
    model = LanguageModel.from_variant("tiny", tokenizer.vocab_size)
    pen = answers.Writer(model, tokenizer, new_tokens=8)
    greedy = TextGenerator(model, tokenizer, Greedy(), new_tokens=8).write(["the cat"])[0]
    *_, last = pen.write("the cat", 1.0, 0.001)
    assert last == (greedy, "")  # the most probable token alone
    monkeypatch.setattr(LanguageModel, "decode_step", None)  # what is compiled needs it no more
    *_, last = pen.write("the cat", 0.001, 1.0)
    assert last == (greedy, "")
    bold = {list(pen.write("the cat", 2.0, 1.0))[-1][0] for _ in range(4)}
    assert len(bold) > 1 and all(text.startswith("the cat") for text in bold)
    assert all(note == "" for _, note in pen.write("", 1.0, 1.0))
    with pytest.raises(ValueError, match="above 0"):
        next(pen.write("the cat", 0.0, 1.0))


def test_a_text_grows_on_its_page():
    tokenizer = SentencePieceTokenizer.train(tiny_folders.SENTENCES * 9, vocab_size=23)
    model = LanguageModel.from_variant("tiny", tokenizer.vocab_size)
    pen = answers.Writer(model, tokenizer, new_tokens=24)
    shown = list(pen.write("the cat", 1.0, 0.001))
    texts = [text for text, _ in shown]
    assert texts[0] == "the cat" and len(texts) > 2
    assert all(after.startswith(before) for before, after in itertools.pairwise(texts))
    assert texts[-1] == TextGenerator(model, tokenizer, Greedy(), 24).write(["the cat"])[0]
    assert {note for _, note in shown} == {""}


def test_a_writer_starts_from_the_numbers_of_its_run(tmp_path):
    assert answers.sampling_settings(tmp_path) == answers.SamplingSettings(0.8, 0.95, 128)
    settings = '{"temperature": 0.5, "top_p": 0.7, "new_tokens": 16, "prompts": ["", "Ho"]}'
    (tmp_path / "config.json").write_text(settings)
    assert answers.sampling_settings(tmp_path) == answers.SamplingSettings(0.5, 0.7, 16)
    assert examples.prompts(tmp_path) == ["", "Ho"]


@pytest.mark.slow
def test_examples_are_what_the_run_was_scored_on(translating, tmp_path):
    assert examples.sentences(translating[1]) == tiny_folders.SENTENCES
    assert examples.sentences(tmp_path) == examples.SENTENCES
    assert examples.threshold(tmp_path) == 0.5
    (tmp_path / "metrics.json").write_text('{"test_threshold": 0.3}')
    assert examples.threshold(tmp_path) == 0.3
    shown = examples.pictures(tmp_path)
    assert len(shown) == examples.NUMBER and shown[0].shape == (28, 28, 1)
    (tmp_path / "config.json").write_text('{"dataset": "tfds:mnist"}')  # not on this machine
    assert examples.pictures(tmp_path) == []
    PIL.Image.new("L", (7, 5)).save(tmp_path / "example.png")
    assert [shown.shape for shown in examples.pictures(tmp_path)] == [(5, 7)]
