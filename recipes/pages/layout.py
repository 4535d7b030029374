"""The page of a predictor, laid out with gradio."""

import importlib

import gradio as gr

from . import PAGES
from .asking import described, loading

CSS = """
#message p, #missing p, .caption p { opacity: 0.8; margin: 0; }
#alternatives .cell-wrap, #boxes .cell-wrap, #answer, #candidates { font-family: var(--font); }
"""
KEPT = 3600  # seconds that uploads and drawn pictures are kept


def page(predictor, folder, read=None):
    """The page of a predictor: what is asked on the left, the answer on the right.

    On every page `#input` takes the request, `#ask` sends it, `#answer` shows what came of it, and
    `#message` says in a sentence why there is no answer, or what to know about it.

    Args:
        predictor: As `keras_transformers.load` gives it.
        folder: What it was loaded from.
        read: Function that returns when the model is loaded; by default it is.

    Returns:
        A `gradio.Blocks`.

    Raises:
        ValueError: If there is no page for such a predictor: arrays cannot be uploaded, and classes
            not be given.
    """
    if predictor.kind not in PAGES:
        raise ValueError(f"there is no page for a {predictor.kind}; use predict.")
    file = importlib.import_module(f".{PAGES[predictor.kind]}", __package__)
    title = predictor.kind.replace("_", " ").capitalize()
    with gr.Blocks(title=title, analytics_enabled=False, delete_cache=(KEPT, KEPT)) as blocks:
        gr.Markdown(f"# {title}")
        about = gr.Markdown(loading(folder), elem_id="about")
        getattr(file, predictor.kind)(predictor, folder)

        def describe():
            if read is not None:
                read()
            return described(predictor, folder)

        blocks.load(
            describe,
            None,
            about,
            show_progress="hidden",
            concurrency_limit=None,
            api_visibility="private",
        )
    return blocks


def theme():
    """The theme, with the fonts that the browser has: none is fetched."""
    return gr.themes.Default(
        font=["system-ui", "sans-serif"], font_mono=["ui-monospace", "monospace"]
    )
