"""What all pages share, with gradio: requests and what is said of them."""

import functools
import traceback

import gradio as gr

WRONG = "Something went wrong with this request; the terminal says what."


def answered(answer, number):
    """A handler of `number` outputs and a message, from a function that may refuse or fail.

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


def connect(answer, inputs, outputs, message, triggers, **options):
    """Runs a generator function at any of the triggers; one request at a time."""
    gr.on(
        triggers,
        answered(answer, len(outputs)),
        inputs,
        [*outputs, message],
        concurrency_id="model",
        concurrency_limit=1,
        api_visibility="private",
        **options,
    )


def message():
    """Where a sentence on the answer stands."""
    return gr.Markdown(elem_id="message")


def button(text):
    """What sends the request."""
    return gr.Button(text, variant="primary", elem_id="ask")


def missing(what, why):
    """Says what is not on the page."""
    if why:
        gr.Markdown(f"{what} {why}", elem_id="missing")


def offer(first, inputs):
    """Examples to choose from, if there are any."""
    if first:
        gr.Examples(first, inputs, label="Try", api_visibility="private")
