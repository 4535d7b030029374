"""Claims about the page: served, opened in a browser, asked and read; and about its command."""

import copy
import io
import json
import os
import socket
import subprocess
import sys

import numpy as np
import PIL.Image
import pytest
import tensorflow as tf

import keras_transformers
from keras_transformers import loading
from keras_transformers.predictors import KINDS
from recipes import demo
from recipes.lib.pages import PAGES, PICTURE_PAGES
from tests.recipes import tiny_folders
from tests.recipes.chromium import MISSING, message, one, served, type_in, wait

in_browser = pytest.mark.skipif(bool(MISSING), reason=f"needs {', '.join(MISSING)}")
with_gradio = pytest.mark.skipif("gradio" in MISSING, reason="needs gradio")


@pytest.fixture(scope="module")
def asked_for():
    """Names of the hosts that this process looks up or calls while the pages are served."""
    names, patch = set(), pytest.MonkeyPatch()
    look_up, connect = socket.getaddrinfo, socket.socket.connect

    def noted_look_up(host, *more, **options):
        names.add(host)
        return look_up(host, *more, **options)

    def noted_connect(self, address):
        if self.family != socket.AF_UNIX:
            names.add(address[0])
        return connect(self, address)

    patch.setattr(socket, "getaddrinfo", noted_look_up)
    patch.setattr(socket.socket, "connect", noted_connect)
    yield names
    patch.undo()


@pytest.fixture(scope="module")
def translator(tmp_path_factory, asked_for):
    folder = tiny_folders.translator(tmp_path_factory.mktemp("translator"))
    page = served(folder)
    yield page.local_url, folder
    page.close()


@pytest.fixture(scope="module")
def classifier(tmp_path_factory, asked_for):
    folder = tiny_folders.image_classifier(tmp_path_factory.mktemp("classifier"))
    page = served(folder)
    yield page.local_url, folder
    page.close()


@with_gradio
@pytest.mark.parametrize("kind", sorted(PAGES))
def test_every_page_has_what_all_have(kind, tmp_path):
    from recipes.lib.pages import layout

    (tmp_path / "config.json").write_text('{"dataset": "tfds:none"}')  # no examples to read
    page = layout.page(KINDS[kind](None), tmp_path)
    shown = {block.elem_id for block in page.blocks.values()}
    assert {"input", "ask", "answer", "message"} <= shown
    assert ("missing" in shown) == (kind in ("translator", "text_generator", "image_classifier"))


@with_gradio
def test_what_fails_without_a_word_is_answered_by_a_sentence(capsys):
    from recipes.lib.pages import requests

    def fails(request):
        yield request, "half"
        raise RuntimeError("whatever")

    assert list(requests.answered(fails, 1)(7)) == [(7, "half"), (None, requests.WRONG)]
    assert "RuntimeError: whatever" in capsys.readouterr().err


@pytest.mark.slow
@in_browser
def test_a_sentence_is_typed_and_its_translation_read(browser, translator):
    address, folder = translator
    browser.get(address)
    type_in(browser, "the cat sat")
    translation = wait(browser, lambda: one(browser, "#answer textarea").get_property("value"))
    assert translation == keras_transformers.load(folder).predict("the cat sat")
    cells = "#alternatives .body-cell"
    listed = wait(browser, lambda: browser.find_elements("css selector", cells))
    assert listed[1].text == translation and len(listed) > 2
    assert wait(browser, lambda: one(browser, "#alignment img").get_property("naturalWidth")) > 100


@pytest.mark.slow
@in_browser
def test_nothing_typed_is_answered_by_a_sentence(browser, translator):
    browser.get(translator[0])
    type_in(browser, "  ")
    assert wait(browser, lambda: message(browser)) == "Type a text first."
    assert one(browser, "#answer textarea").get_property("value") == ""


@pytest.mark.slow
@in_browser
def test_the_page_of_a_bare_saved_model_says_what_it_cannot_show(browser, translator):
    page = served(translator[1] / "saved_model")
    try:
        browser.get(page.local_url)
        assert "needs the Keras model" in one(browser, "#missing").text
        type_in(browser, "a dog")
        wait(browser, lambda: one(browser, "#answer textarea").get_property("value"))
        assert not browser.find_elements("css selector", "#alternatives, #alignment")
    finally:
        page.close()


@pytest.mark.slow
@in_browser
def test_a_picture_is_uploaded_and_its_class_read(browser, classifier, tmp_path):
    address, folder = classifier
    noise = np.random.default_rng(0).integers(0, 256, (40, 30, 3), np.uint8)
    PIL.Image.fromarray(noise).save(tmp_path / "a.png")
    browser.get(address)
    one(browser, "#input input[type=file]").send_keys(str(tmp_path / "a.png"))
    found = keras_transformers.load(folder).predict(tmp_path / "a.png")
    answer = wait(browser, lambda: "%" in (text := one(browser, "#answer").text) and text)
    assert found["label"] in answer and f"{found['probability']:.0%}" in answer
    assert answer.count("%") == 5
    assert wait(browser, lambda: one(browser, "#attention img").get_property("naturalWidth")) == 448


@pytest.mark.slow
@in_browser
def test_a_file_that_is_no_picture_is_answered_by_a_sentence(browser, classifier, tmp_path):
    (tmp_path / "a.png").write_bytes(b"no picture")
    browser.get(classifier[0])
    one(browser, "#ask").click()
    assert wait(browser, lambda: message(browser)) == "Choose a picture first."
    one(browser, "#input input[type=file]").send_keys(str(tmp_path / "a.png"))
    wait(browser, lambda: message(browser).startswith("This file is no picture"))


@pytest.fixture
def stand_in(monkeypatch, tmp_path):
    """Serves the page of a predictor that is made of a function, until the test is over."""
    pages = []

    def serve(kind, run):
        predictor = KINDS[kind](run)
        monkeypatch.setattr(loading, "begin", lambda folder: (predictor, lambda: None))
        (tmp_path / "config.json").write_text('{"dataset": "tfds:none"}')
        pages.append(served(tmp_path))
        return pages[-1].local_url

    yield serve
    for page in pages:
        page.close()


def uploaded(address, size):
    """What the page takes for an image, once it has its file."""
    import httpx  # gradio's own

    file = io.BytesIO()
    PIL.Image.new("RGB", size).save(file, "png")
    files = {"files": ("a.png", file.getvalue())}
    (path,) = httpx.post(f"{address}gradio_api/upload", files=files).json()
    return {"path": path, "meta": {"_type": "gradio.FileData"}}


def asked(address, *inputs):
    """What a page shows for some inputs, its message last, by the requests of a browser."""
    import httpx
    from gradio_client.utils import apply_diff

    config = httpx.get(f"{address}config").json()
    named = {each["props"].get("elem_id"): each["id"] for each in config["components"]}
    click = [named["ask"], "click"]
    (number,) = (each["id"] for each in config["dependencies"] if click in each["targets"])
    body = {"data": [*inputs, 0], "fn_index": number, "session_hash": "one"}
    httpx.post(f"{address}gradio_api/queue/join", json=body).raise_for_status()
    answers = httpx.get(f"{address}gradio_api/queue/data?session_hash=one", timeout=60).text
    events = [json.loads(line.removeprefix("data:")) for line in answers.splitlines() if line]
    first, *further = (each for each in events if each["msg"] == "process_generating")
    shown = [first["output"]["data"]]
    for each in further:  # of each output, what has changed
        pairs = zip(shown[-1], each["output"]["data"], strict=True)
        shown.append([apply_diff(copy.deepcopy(before), change) for before, change in pairs])
    assert any(each["msg"] == "process_completed" for each in events)
    return shown[-2]  # the last one changes nothing


@with_gradio
def test_a_text_is_rated_on_its_page(stand_in):
    def rate(text):
        return {"value": tf.constant([1 / 3]), "truncated": tf.constant([True])}

    page = stand_in("text_regressor", rate)
    cut = "The text is longer than the model reads: its end was cut off."
    assert asked(page, "Well made.") == [0.333333, cut]
    assert asked(page, " ") == [None, "Type a text first."]


@with_gradio
def test_the_words_of_a_text_are_tagged_on_its_page(stand_in):
    def tag(text):
        words = {"words": [["Bo", "sat"]], "tags": [["B-PER", "O"]], "probabilities": [[0.5, 0.5]]}
        words |= {"starts": [[0, 3]], "ends": [[2, 6]], "number": [2], "truncated": [False]}
        return {name: tf.constant(value) for name, value in words.items()}

    page = stand_in("text_tagger", tag)
    parts, message = asked(page, "Bo sat")
    shown = [(each["token"], each["class_or_confidence"]) for each in parts]
    assert (shown, message) == ([("Bo", "PER"), (" sat", None)], "")
    assert asked(page, "") == [None, "Type a text first."]


@with_gradio
def test_a_question_is_answered_on_its_page(stand_in):
    def answer(pairs):
        found = {"answer": ["cat"], "start": [2], "end": [5], "score": [0.75], "no_answer": [0.25]}
        return {name: tf.constant(value) for name, value in found.items()} | {
            "truncated": tf.constant([False])
        }

    page = stand_in("question_answerer", answer)
    found, parts, message = asked(page, "Who?", "A cat sat.")
    shown = [(each["token"], each["class_or_confidence"]) for each in parts]
    assert found == "cat" and message == "Score: 0.75; 1 is surest."
    assert shown == [("A ", None), ("cat", "answer"), (" sat.", None)]
    assert asked(page, "Who?", "") == [None, None, "Type a text first."]


@with_gradio
def test_an_image_is_uploaded_and_its_pixels_classified(stand_in):
    def segment(image):
        return {"map": tf.constant([[[0, 1], [1, 1]]]), "size": tf.constant([[2, 2]])}

    page = stand_in("segmenter", segment)
    shown, message = asked(page, uploaded(page, (2, 2)))
    labels = [each["label"] for each in shown["annotations"]]
    assert (labels, message) == (["1: 75.0%", "0: 25.0%"], "")
    assert asked(page, None) == [None, "Choose a picture first."]


@with_gradio
@pytest.mark.parametrize("kind", sorted(PAGES))
def test_no_handler_reads_a_file_that_was_not_uploaded(stand_in, kind, tmp_path):
    """A file entry without `meta` passes gradio's own check of paths."""
    import httpx

    requests = []

    def record(*request):
        requests.append(request)
        raise ValueError("not answered")

    PIL.Image.new("RGB", (7, 5)).save(tmp_path / "secret.png")
    entry = {"path": str(tmp_path / "secret.png")}
    address = stand_in(kind, record)
    number = 0
    for handler in httpx.get(f"{address}config").json()["dependencies"]:
        if handler["backend_fn"] and handler["inputs"]:
            number += 1
            body = {"data": [entry] * len(handler["inputs"]), "fn_index": handler["id"]}
            body["session_hash"] = f"session {number}"
            httpx.post(f"{address}gradio_api/queue/join", json=body).raise_for_status()
            events = f"{address}gradio_api/queue/data?session_hash={body['session_hash']}"
            assert "process_completed" in httpx.get(events, timeout=60).text
    assert number
    secret = (tmp_path / "secret.png").read_bytes()
    rows = [row for request in requests for row in tf.nest.flatten(request)]
    assert all(secret not in np.asarray(row).astype("S").tobytes() for row in rows)
    if kind in PICTURE_PAGES:
        assert requests == []


@with_gradio
def test_two_images_are_compared(stand_in):
    def encode(image):
        wide = tf.map_fn(lambda each: tf.shape(tf.io.decode_png(each))[1] > 5, image, tf.bool)
        return {"embedding": tf.where(wide[:, None], [[3.0, 0.0]], [[1.0, 1.0]])}

    page = stand_in("image_encoder", encode)
    both = [uploaded(page, size) for size in ((9, 5), (4, 5))]
    assert asked(page, *both) == ["0.707", ""]
    assert asked(page, both[0], None) == [None, "Choose a picture first."]


@pytest.mark.slow
@in_browser
def test_two_texts_are_compared(browser, stand_in):
    def encode(text):
        lengths = tf.cast(tf.strings.length(text), tf.float32)
        embedding = tf.stack([tf.math.cos(lengths), tf.math.sin(lengths)], axis=1)
        return {"embedding": embedding, "truncated": tf.zeros(len(lengths), tf.bool)}

    browser.get(stand_in("sentence_encoder", encode))
    one(browser, "#other textarea").send_keys("three")
    type_in(browser, "one")
    found = wait(browser, lambda: one(browser, "#answer textarea").get_property("value"))
    assert found == f"{np.cos(2):.3f}"


@pytest.mark.slow
@in_browser
def test_another_least_score_shows_other_boxes(browser, stand_in, tmp_path):
    def detect(image):
        return {
            "boxes": tf.constant([[[10.0, 10, 30, 40], [20, 30, 50, 70]]]),
            "label": tf.constant([["cat", "dog"]]),
            "score": tf.constant([[0.75, 0.25]]),
            "number": tf.constant([1]),
        }

    PIL.Image.new("RGB", (80, 80)).save(tmp_path / "a.png")
    browser.get(stand_in("detector", detect))
    one(browser, "#input input[type=file]").send_keys(str(tmp_path / "a.png"))
    wait(browser, lambda: message(browser) == "Boxes with a score of 0.50 or more: 1 of 2.")
    least = one(browser, "#threshold input[type=number]")
    least.clear()
    least.send_keys("0.2\t")
    wait(browser, lambda: message(browser) == "Boxes with a score of 0.20 or more: 2 of 2.")
    listed = wait(browser, lambda: browser.find_elements("css selector", "#boxes .body-cell"))
    assert [cell.text for cell in listed[:6]] == ["cat", "75", "10", "10", "30", "40"]


@pytest.mark.slow
@in_browser
def test_a_page_needs_no_other_machine(browser, translator, classifier, asked_for):
    for address in (translator[0], classifier[0]):
        browser.get_log("performance")
        browser.get(address)
        one(browser, "#ask")
        events = [json.loads(row["message"])["message"] for row in browser.get_log("performance")]
        asked = [
            event["params"]["request"]["url"]
            for event in events
            if event["method"] == "Network.requestWillBeSent"
        ]
        assert len(asked) > 5
        own = (address, "data:", "blob:")
        assert [url for url in asked if not url.startswith(own)] == []
    assert {str(name) for name in asked_for} <= {"127.0.0.1", "localhost", "::1"}
    assert os.environ["GRADIO_ANALYTICS_ENABLED"] == "False"


def command(code, *arguments):
    """What came of the command line, after some code."""
    program = f"import sys\n{code}\nfrom recipes import demo\ndemo.main()"
    return subprocess.run(
        [sys.executable, "-c", program, *map(str, arguments)], capture_output=True, text=True
    )


@pytest.mark.slow
def test_a_missing_gradio_is_said_in_a_sentence(tmp_path):
    result = command("sys.modules['gradio'] = None", tmp_path)
    assert result.returncode == 1
    last = result.stderr.strip().splitlines()[-1]
    assert last == "recipes.demo: the page needs gradio: pip install 'keras_transformers[demo]'"


@with_gradio
def test_a_start_is_said_at_once_and_a_folder_with_nothing_in_it_in_a_sentence(tmp_path):
    called = [sys.executable, "-m", "recipes.demo", str(tmp_path / "none")]
    result = subprocess.run(called, capture_output=True, text=True)
    assert result.returncode == 1
    assert result.stdout == "The page is starting ...\n"
    last = result.stderr.strip().splitlines()[-1]
    assert last == f"recipes.demo: load: there is no folder {tmp_path / 'none'}."


@pytest.fixture
def free_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


@with_gradio
def test_a_page_is_open_while_its_model_is_read(monkeypatch, free_port, tmp_path):
    import httpx

    (tmp_path / "config.json").write_text('{"dataset": "tfds:none"}')
    address, lines = f"http://127.0.0.1:{free_port}/", []
    monkeypatch.setattr(demo, "print", lambda line, **_: lines.append(line), raising=False)

    def read():
        assert "The model is loading ..." in httpx.get(f"{address}config").text
        raise ValueError("load: the SavedModel is damaged.")

    stand_in = KINDS["mask_filler"](None)
    monkeypatch.setattr(loading, "begin", lambda folder: (stand_in, read))
    with pytest.raises(ValueError, match="^load: the SavedModel is damaged.$"):
        demo.serve(demo.Config(str(tmp_path), free_port))
    assert lines == [f"The page is at {address}; the model is loading ..."]
    with pytest.raises(httpx.ConnectError):
        httpx.get(address)


@with_gradio
def test_a_port_that_is_taken_is_said_before_anything_is_loaded(monkeypatch, tmp_path):
    monkeypatch.setattr(loading, "begin", None)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(ValueError, match=f"^--port: {port} is taken; choose another.$"):
            demo.serve(demo.Config(str(tmp_path), port))
