"""A page to try a trained model, in the browser.

    python -m recipes.demo runs/translation
    python -m recipes.demo runs/vit --port 8000

The folder is that of a run, of published weights, or of a SavedModel: whatever
`keras_transformers.load` takes. What the page shows follows from the kind of model. It is served
to this machine alone and fetches nothing from others; `--host 0.0.0.0` lets others reach it.
"""

import dataclasses
import os

import tyro

from .command_line import command

# Before gradio is imported: it says nothing to anyone, and asks nobody for a newer version.
QUIET = {
    "GRADIO_ANALYTICS_ENABLED": "False",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "HF_HUB_OFFLINE": "1",
    "DO_NOT_TRACK": "1",
}


@dataclasses.dataclass(frozen=True)
class Config:
    """What the page is told."""

    folder: tyro.conf.Positional[str]  # of a run, of published weights, or a SavedModel
    port: int = 7860  # as of other such pages; any that is free
    host: str = "127.0.0.1"  # this machine alone


def serve(config):
    """Loads the folder and serves its page until `close()`; returns it, a `gradio.Blocks`.

    Raises:
        FileNotFoundError, ValueError, ImportError: If there is nothing to load, the port is taken,
            or something is not installed.
    """
    os.environ.update(QUIET)
    own = (os.environ.get("no_proxy"), "127.0.0.1", "localhost")  # no way around by a proxy
    os.environ["no_proxy"] = ",".join(filter(None, own))
    try:
        from gradio import Blocks  # noqa: F401  a folder of that name is no gradio
    except ImportError:
        raise ImportError("the page needs gradio: pip install 'keras_transformers[demo]'") from None
    import keras_transformers

    from .pages import layout

    keras_transformers.compile_cache()
    predictor = keras_transformers.load(config.folder)
    blocks = layout.page(predictor, config.folder)
    try:
        blocks.launch(server_name=config.host, server_port=config.port, **launching(layout))
    except OSError:
        raise ValueError(f"--port: {config.port} is taken; choose another.") from None
    print(f"The page is at {blocks.local_url} (to end: Control-C)", flush=True)
    return blocks


def launching(layout):
    """How gradio serves a page: for itself, without what it could fetch or offer."""
    return {
        "share": False,
        "ssr_mode": False,  # which needs node
        "pwa": False,
        "mcp_server": False,
        "enable_monitoring": False,
        "footer_links": [],
        "theme": layout.theme(),
        "css": layout.CSS,
        "prevent_thread_lock": True,
        "quiet": True,
    }


def main():
    """The command line; bad input ends in one sentence."""
    command("demo", Config, __doc__, lambda config: serve(config).block_thread())


if __name__ == "__main__":
    main()
