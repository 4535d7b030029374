"""Claims about pages that are asked again before they have answered: the last request wins."""

import itertools
import json
import threading
import time
import types

import PIL.Image
import pytest

from keras_transformers import loading
from keras_transformers.predictors import KINDS
from recipes.lib.pages import PAGES, answers
from tests.recipes import tiny_folders
from tests.recipes.chromium import MISSING, message, one, served, type_in, wait

pytestmark = pytest.mark.skipif("gradio" in MISSING, reason="needs gradio")
in_browser = pytest.mark.skipif(bool(MISSING), reason=f"needs {', '.join(MISSING)}")
OLD, NEW = "old", "a newer one"


def requests_of(answer):
    """Handlers of a page of one output whose answer belongs to its first input, of two."""
    from recipes.lib.pages import requests

    return requests.Requests(answer, 1, 1)


def window(name="a window"):
    return types.SimpleNamespace(session_hash=name)


def shown(steps):
    """What a handler shows, without the steps that change nothing."""
    return [step for step in steps if isinstance(step, tuple)]


def two_steps(text, setting):
    yield text, "half"
    yield text.upper(), setting


def test_one_request_is_answered_step_by_step():
    requests = requests_of(two_steps)
    steps = [(None, ""), (None, ""), ("a", "half"), ("A", "bold")]
    assert shown(requests.ask(window(), "a", "bold", 1)) == steps
    assert requests.edit(window(), "a", 2) == requests._unchanged
    assert requests.edit(window(), "ab", 3) == (None, "")
    assert requests.edit(window(), "abc", 4) == requests._unchanged  # nothing is there to remove


def test_a_newer_request_ends_the_older_one():
    requests = requests_of(two_steps)
    old = requests.ask(window(), "old", "", 1)
    assert shown(itertools.islice(old, 3))[-1] == ("old", "half")
    new = requests.ask(window(), "new", "", 2)
    assert next(new) == (None, "")
    assert shown(old) == []
    assert shown(new)[-1] == ("NEW", "")
    assert shown(requests.ask(window(), "late", "", 1.5)) == []  # was sent before "new"


def test_a_request_that_waits_is_left_out_when_a_newer_one_comes():
    requests = requests_of(two_steps)
    first, second = (requests.ask(window(), text, "", i) for i, text in enumerate("ab", 1))
    assert shown(itertools.islice(first, 3))
    next(second)
    third = requests.ask(window(), "c", "", 3)
    next(third)
    assert shown(second) == shown(first) == []
    assert shown(third)[-1] == ("C", "")


def test_an_edit_hides_what_is_still_to_come():
    requests = requests_of(two_steps)
    steps = requests.ask(window(), "old", "", 1)
    assert shown(itertools.islice(steps, 3))[-1] == ("old", "half")
    assert requests.edit(window(), "ol", 2) == (None, "")
    assert shown(steps) == [(None, "")]  # for a step that may have been on its way


def test_an_edit_from_before_the_request_has_no_effect():
    requests = requests_of(two_steps)
    steps = requests.ask(window(), "new", "", 2)
    assert shown(itertools.islice(steps, 3))
    assert requests.edit(window(), "ne", 1) == requests._unchanged
    assert shown(steps) == [("NEW", "")]


def test_another_window_is_answered_afterwards():
    requests = requests_of(two_steps)
    first, second = requests.ask(window("a"), "a", "", 2), requests.ask(window("b"), "b", "", 1)
    assert shown(itertools.islice(first, 3))
    next(second)
    assert shown(first)[-1] == ("A", "")
    assert shown(second)[-1] == ("B", "")


def test_a_window_that_is_closed_leaves_its_turn_to_others():
    requests = requests_of(two_steps)
    steps = requests.ask(window("a"), "a", "", 1)
    assert shown(itertools.islice(steps, 3))
    steps.close()
    assert shown(requests.ask(window("b"), "b", "", 1))[-1] == ("B", "")


def test_a_refused_request_leaves_its_turn_to_others():
    def refuse(text, setting):
        raise ValueError("Type a text first.")
        yield

    requests = requests_of(refuse)
    for number in (1, 2):
        assert shown(requests.ask(window(), "", "", number))[-1] == (None, "Type a text first.")


@pytest.mark.parametrize("kind", sorted(PAGES))
def test_every_page_accepts_a_click_at_any_time(kind, tmp_path):
    from recipes.lib.pages import layout, requests

    (tmp_path / "config.json").write_text('{"dataset": "tfds:none"}')  # no examples to read
    page = layout.page(KINDS[kind](None), tmp_path).get_config_file()
    page = json.loads(json.dumps(page, default=str))  # as a browser reads it
    named = {block["props"].get("elem_id"): block["id"] for block in page["components"]}
    timed = [each for each in page["dependencies"] if each["js"] == requests.WITH_TIME]
    (ask,) = (each for each in timed if [named["ask"], "click"] in each["targets"])
    (edit,) = (each for each in timed if each is not ask)
    assert ask["trigger_mode"] == "multiple" and edit["trigger_mode"] == "always_last"
    inputs = [named[name] for name in ("input", "other") if name in named]
    assert sorted(edit["targets"]) == sorted([number, "change"] for number in inputs)
    assert edit["outputs"] == ask["outputs"] and named["message"] == ask["outputs"][-1]
    assert {named[name] for name in ("answer", "message")} <= set(ask["outputs"])
    assert ask["inputs"][: len(inputs)] == edit["inputs"][:-1] == inputs
    assert ask["inputs"][-1] == edit["inputs"][-1] not in inputs


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tiny_folders.translator(tmp_path_factory.mktemp("translator"))


# Kind -> module, function and the answer that it gives, of what was put in.
ANSWERS = {
    "translator": (answers, "translate", lambda t: {"translation": t, "truncated": False}),
    "text_generator": (answers, "write", lambda text: (text, "")),
    "mask_filler": (answers, "fill", lambda text: (text, {text: 1.0}, "")),
    "text_classifier": (answers, "classify_text", lambda text: ({text: 1.0}, "")),
    "text_regressor": (answers, "rate", lambda text: (len(text), "")),
    "text_tagger": (answers, "tag", lambda text: ([(text, "X")], "")),
    "sentence_encoder": (answers, "text_similarity", lambda text, _: (len(text), "")),
    "question_answerer": (answers, "answer", lambda text, _: (text, [], "")),
}
IN_DIGITS = ("text_regressor", "sentence_encoder")


class Blocking:
    """A function that answers `OLD` when it is released, and all else at once."""

    def __init__(self, answer):
        self._answer = answer
        self.entered, self.released = threading.Event(), threading.Event()

    def __call__(self, predictor, *inputs):
        if OLD in inputs:
            self.entered.set()
            assert self.released.wait(100)
        return self._answer(*inputs)


@pytest.fixture
def opened(monkeypatch, tmp_path, browser):
    """Opens the page of a kind, whose requests are answered by a `Blocking`, until the end."""
    pages = []

    def open_page(kind, module, name, answer):
        function = Blocking(answer)
        monkeypatch.setattr(module, name, function)
        predictor = KINDS[kind](None)
        monkeypatch.setattr(loading, "begin", lambda folder: (predictor, lambda: None))
        (tmp_path / "config.json").write_text('{"dataset": "tfds:none"}')
        pages.append((served(tmp_path), function))
        browser.get(pages[-1][0].local_url)
        return function

    yield open_page
    for page, function in pages:
        function.released.set()
        page.close()


def answer_of(browser):
    """The text that stands in the place of the answer."""
    fields = browser.find_elements("css selector", "#answer textarea, #answer input")
    return fields[0].get_property("value") if fields else one(browser, "#answer").text


@pytest.mark.slow
@in_browser
@pytest.mark.parametrize("kind", sorted(ANSWERS))
def test_a_text_that_is_edited_and_sent_again_is_answered(browser, opened, kind):
    function = opened(kind, *ANSWERS[kind])
    old, new = (f"{len(OLD)}", f"{len(NEW)}") if kind in IN_DIGITS else (OLD, NEW)
    type_in(browser, OLD)
    assert function.entered.wait(60)
    type_in(browser, NEW)
    time.sleep(1)
    assert old not in answer_of(browser) and new not in answer_of(browser)
    function.released.set()
    wait(browser, lambda: new in answer_of(browser))
    time.sleep(1)
    assert new in answer_of(browser)
    one(browser, "#input textarea, #input input").send_keys(" that is longer")
    wait(browser, lambda: new not in answer_of(browser))


@pytest.mark.slow
@in_browser
def test_no_alternative_of_an_old_text_stands_beside_a_new_one(browser, monkeypatch, folder):
    alternatives = Blocking(lambda text, search: [(0.0, f"other {text}")])
    monkeypatch.setattr(answers, "translate", lambda _, text: ANSWERS["translator"][2](text))
    monkeypatch.setattr(answers, "alternatives", alternatives)
    monkeypatch.setattr(answers, "alignment_picture", lambda *inputs: None)
    page = served(folder)
    try:
        browser.get(page.local_url)
        type_in(browser, OLD)
        wait(browser, lambda: answer_of(browser) == OLD)
        assert alternatives.entered.wait(60)
        wait(browser, lambda: "Looking for alternatives" in message(browser))
        type_in(browser, NEW)
        wait(browser, lambda: answer_of(browser) == "")
        alternatives.released.set()
        table = lambda: one(browser, "#alternatives").text  # noqa: E731
        seen = set()
        while f"other {NEW}" not in table():
            seen.add((answer_of(browser), OLD in table()))
        assert seen <= {("", False), (NEW, False)}
        assert answer_of(browser) == NEW
    finally:
        alternatives.released.set()
        page.close()


@pytest.mark.slow
@in_browser
def test_an_image_that_replaces_another_is_answered(browser, opened, monkeypatch, tmp_path):
    def classify(image):
        return {"old image" if image == OLD else "new image": 1.0}

    def name_of(upload, folder):
        return OLD if "old" in upload["path"] else NEW

    monkeypatch.setattr(answers, "uploaded", name_of)
    function = opened("image_classifier", answers, "classify_picture", classify)
    for name in ("old", "new"):
        PIL.Image.new("RGB", (30, 20)).save(tmp_path / f"{name}.png")
    one(browser, "#input input[type=file]").send_keys(str(tmp_path / "old.png"))
    assert function.entered.wait(60)
    one(browser, "#input button[aria-label='Remove Image'], #input button[title='Clear']").click()
    one(browser, "#input input[type=file]").send_keys(str(tmp_path / "new.png"))
    time.sleep(1)
    function.released.set()
    wait(browser, lambda: "new image" in answer_of(browser))
    time.sleep(1)
    assert "new image" in answer_of(browser)


@pytest.mark.slow
@in_browser
def test_a_page_says_that_the_model_is_loading_and_answers_afterwards(browser, folder):
    predictor, read = loading.begin(folder)
    loaded = threading.Event()

    def read_later():
        assert loaded.wait(100)
        read()

    from recipes import demo
    from recipes.lib.pages import layout

    page = layout.page(predictor, folder, read_later)
    page.launch(**demo.launching(layout))
    try:
        browser.get(page.local_url)
        wait(browser, lambda: "The model is loading ..." in one(browser, "#about").text)
        loaded.set()
        wait(
            browser,
            lambda: answers.described(predictor, folder)[-20:] in one(browser, "#about").text,
        )
        type_in(browser, "the cat sat")
        assert wait(browser, lambda: answer_of(browser)) == predictor.predict("the cat sat")
    finally:
        loaded.set()
        page.close()
