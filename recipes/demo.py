"""A page to try a trained model, in the browser.

    python -m recipes.demo runs/translation
    python -m recipes.demo runs/vit --port 8000

The folder is that of a run, of published weights, or of a SavedModel: whatever
`keras_transformers.load` takes. What the page shows follows from the kind of model. It is served
to this machine alone and fetches nothing from others; `--host 0.0.0.0` lets others reach it.
"""

import dataclasses
import errno
import importlib.util
import os
import socket
import threading

import tyro

from .lib.command_line import run_command

# Before gradio is imported: it says nothing to anyone, and asks nobody for a newer version.
QUIET = {
    "GRADIO_ANALYTICS_ENABLED": "False",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "HF_HUB_OFFLINE": "1",
    "DO_NOT_TRACK": "1",
}


@dataclasses.dataclass(frozen=True)
class Config:
    """The model of the page, and its address."""

    folder: tyro.conf.Positional[str]  # of a run, of published weights, or a SavedModel
    port: int = 7860  # as of other such pages; any that is free
    host: str = "127.0.0.1"  # this machine alone


def serve(config):
    """Serves the page of a folder until `close()`; returns it, a `gradio.Blocks`.

    The page can be opened before the model is loaded, which takes longest. It says so, and a
    request waits.

    Raises:
        FileNotFoundError, ValueError, ImportError: If there is nothing to load, the port is taken,
            or something is not installed.
    """
    os.environ.update(QUIET)
    hosts = (os.environ.get("no_proxy"), "127.0.0.1", "localhost")  # no way around by a proxy
    os.environ["no_proxy"] = ",".join(filter(None, hosts))
    spec = importlib.util.find_spec("gradio")
    if spec is None or spec.origin is None:  # a folder of that name is no gradio
        raise ImportError("the page needs gradio: pip install 'keras_transformers[demo]'")
    check_free(config)
    import keras_transformers
    from keras_transformers.loading import begin

    keras_transformers.compile_cache()
    predictor, read = begin(config.folder)
    from .lib.pages import layout  # gradio, when the folder has been found good

    blocks = layout.page(predictor, config.folder, read)
    try:
        blocks.launch(server_name=config.host, server_port=config.port, **launching(layout))
    except OSError:
        raise port_error(config) from None
    print(f"The page is at {blocks.local_url}; the model is loading ...", flush=True)
    try:
        read()
    except BaseException:
        blocks.close(verbose=False)
        raise
    print("The model is loaded (to end: Control-C)", flush=True)
    # Alternatives and scores come from other signatures, which are not waited for.
    threading.Thread(target=read, kwargs={"whole": True}, daemon=True).start()
    return blocks


def check_free(config):
    """Checks the port before anything is loaded.

    Raises:
        ValueError: If it is taken.
    """
    family = socket.AF_INET6 if ":" in config.host else socket.AF_INET
    with socket.socket(family) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((config.host, config.port))
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                raise port_error(config) from None


def port_error(config):
    """Returns the error for a port that is taken."""
    return ValueError(f"--port: {config.port} is taken; choose another.")


def launching(layout):
    """Returns options of gradio's `launch`: it fetches and offers nothing."""
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
    """Runs the command line."""
    run_command("demo", Config, __doc__, lambda config: serve(config).block_thread())


if __name__ == "__main__":
    main()
