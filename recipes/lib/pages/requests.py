"""Requests of pages: the newest one of each window is answered; and components of all pages.

Gradio accepts a click while an earlier one is answered (`trigger_mode="multiple"`). Which answers
are shown is decided here:
- The model answers one request at a time.
- In each browser window the last request wins: an earlier one ends when its current step is done.
- An edit of an input removes the answer to the old input, and hides what is still to come of it.

Every request and edit carries the browser's time, so the order in which they arrive has no effect.
"""

import dataclasses
import functools
import threading
import traceback
from typing import Any

import gradio as gr

WRONG = "Something went wrong with this request; the terminal says what."
WITH_TIME = "(...inputs) => [...inputs.slice(0, -1), Date.now()]"
WINDOWS = 1000  # of browsers, whose last request is kept
POLL = 0.1  # seconds between two looks at whether a newer request has come


def answered(answer, number):
    """Returns a handler of `number` outputs and a message, from a function that may fail.

    Args:
        answer: Generator function that yields tuples of outputs and a sentence.
    """

    @functools.wraps(answer)
    def handler(*inputs):
        try:
            yield from answer(*inputs)
        except ValueError as error:
            yield *[None] * number, str(error)
        except Exception:
            traceback.print_exc()
            yield *[None] * number, WRONG

    return handler


@dataclasses.dataclass(eq=False)
class Request:
    """Inputs of a request, and the time at which its browser sent it, in milliseconds."""

    inputs: list[Any]
    time: float


@dataclasses.dataclass(eq=False)
class Window:
    """A window of a browser: its newest request, and the request whose answer may be shown."""

    newest: Request = dataclasses.field(default_factory=lambda: Request([], 0.0))
    current: Request | None = None


class Requests:
    """Handlers of the requests of a page and of edits; in each window the newest request wins.

    Args:
        answer: Generator function that yields tuples of outputs and a sentence, see `answered`.
        number: Number of its outputs, without the sentence.
        edited: Number of its first inputs to which an answer belongs; the others are settings.
    """

    def __init__(self, answer, number, edited):
        self._answer = answered(answer, number)
        self._edited = edited
        self._nothing = (*[None] * number, "")
        self._unchanged = [gr.skip()] * (number + 1)
        self._window = functools.lru_cache(WINDOWS)(lambda session: Window())
        self._registering = threading.Lock()
        self._turn = threading.Lock()

    def ask(self, request: gr.Request, *values):
        """Yields the answer to a request step by step, until a newer request or an edit comes.

        Gradio shows the last tuple once more when a generator ends. So the last one changes
        nothing, and the turn of the next request begins after all that this one has shown.
        """
        window = self._window(request.session_hash)
        newest = self._request(values)
        with self._registering:
            if newest.time < window.newest.time:
                return
            window.newest = window.current = newest
        yield self._nothing
        while not self._turn.acquire(timeout=POLL):
            if window.current is not newest:
                yield self._unchanged
                return
        try:
            yield self._nothing  # the request before may have shown something since
            yield from self._shown(window, newest, values[:-1])
            if window.current is None:  # an edit has come while an answer was on its way
                yield self._nothing
            yield self._unchanged
        finally:
            self._turn.release()

    def _shown(self, window, request, inputs):
        for outputs in self._answer(*inputs):
            if window.current is not request:
                return
            yield outputs
            if window.current is not request:
                return

    def edit(self, request: gr.Request, *values):
        """Returns the outputs after an edit: empty ones if the answer belongs to other inputs."""
        window = self._window(request.session_hash)
        edited = self._request(values)
        with self._registering:
            current = window.current
            if current is None or edited.time < current.time or edited.inputs == current.inputs:
                return self._unchanged
            window.current = None
        return self._nothing

    def _request(self, values):
        *inputs, time = values
        return Request([_plain(value) for value in inputs[: self._edited]], float(time or 0))


def _plain(value):
    """Returns an input for comparison; a file, which is a dict, becomes its path."""
    return value.get("path") if isinstance(value, dict) else value


def connect(answer, inputs, outputs, message, triggers, settings=(), **options):
    """Runs a generator function at any of the triggers; the last request wins, see `Requests`.

    Args:
        answer: Generator function of the inputs and settings, see `answered`.
        inputs: Components whose edits remove the answer.
        outputs, message: Components that show the outputs and the sentence.
        triggers: Events of components.
        settings: Components that are read, too, but whose changes leave the answer.
        **options: Of `gradio.on`, for the triggers.

    Returns:
        The event, whose `then` runs something after it.
    """
    requests = Requests(answer, len(outputs), len(inputs))
    time = gr.Number(0, visible=False)
    shared = {"js": WITH_TIME, "concurrency_limit": None, "api_visibility": "private"}
    shared |= {"outputs": [*outputs, message]}
    read = [*inputs, *settings, time]
    event = gr.on(triggers, requests.ask, read, trigger_mode="multiple", **shared, **options)
    changes = [component.change for component in inputs]
    hidden = {"show_progress": "hidden", "trigger_mode": "always_last", "preprocess": False}
    gr.on(changes, requests.edit, [*inputs, time], **shared, **hidden)
    return event


def message():
    """Returns the component for a sentence on the answer."""
    return gr.Markdown(elem_id="message")


def button(text):
    """Returns the button that sends the request."""
    return gr.Button(text, variant="primary", elem_id="ask")


def missing(what, why):
    """Shows a sentence on a part that the page lacks."""
    if why:
        gr.Markdown(f"{what} {why}", elem_id="missing")


def offer(first, inputs):
    """Shows examples to choose from, if there are any."""
    if first:
        gr.Examples(first, inputs, label="Try", api_visibility="private")
