"""Imports: TensorFlow without messages on the terminal, and optional packages with advice.

`pip install keras_transformers` alone has layers, models, searches and training. A recipe, a format
or a service may need further packages. An extra installs them, and they are imported where they are
used. `needed_by` says which extra is missing.

`importing` surrounds the imports of this package. It stops the search for garbage, and hides what
TensorFlow prints while it is imported.
"""

import contextlib
import gc
import itertools
import os
import pathlib
import re
import sys
import tempfile
import warnings
from collections.abc import Iterator

COMMANDS = ("keras-transformers", "keras_transformers", "recipes")
# What TensorFlow says while it is imported, whatever level it is asked for.
CHATTER = re.compile(
    rb"WARNING: All log messages before absl::|[IW]\d{4} \d\d:|To enable the following instructions"
)


@contextlib.contextmanager
def importing() -> Iterator[None]:
    """A scope for imports, which keeps TensorFlow's chatter off the terminal.

    Errors come as exceptions, and TensorFlow's fatal ones are still printed. The environment
    variable TF_CPP_MIN_LOG_LEVEL=0 lets all of it through. What was imported is left out when a
    program of ours looks for garbage: every walk over it takes 0.3 seconds.

    Raises:
        ImportError: If the package of the backend that KERAS_BACKEND names is in an extra that is
            not installed; a program of ours ends with the same line.
    """
    # Importing makes a million objects and no garbage; to look for it takes a quarter of the time.
    collects = gc.isenabled()
    gc.disable()
    ours, has_folder = is_command(sys.orig_argv), has_temporary_folder()
    try:
        if ours:
            print_every_character()
            if serves_page(sys.orig_argv):
                print("The page is starting ...", flush=True)
            os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
        with _quietly() if has_folder else _without_matplotlib():
            yield
        if ours:
            gc.freeze()
    except ModuleNotFoundError as error:
        said = advice(error)
        if said is None:
            raise
        said = f"keras_transformers with KERAS_BACKEND={os.environ.get('KERAS_BACKEND')} {said}"
        raise (SystemExit if ours else ImportError)(said) from None
    finally:
        if collects:
            gc.enable()


def _quietly() -> contextlib.AbstractContextManager[None]:
    """A scope without chatter, unless it is asked for."""
    asked = os.environ.get("TF_CPP_MIN_LOG_LEVEL") == "0"
    return contextlib.nullcontext() if asked else _without_chatter()


def has_temporary_folder() -> bool:
    """Whether temporary files can be written; warns if not, and lets TensorFlow be imported."""
    try:
        tempfile.gettempdir()
    except OSError:
        # TensorFlow imports absl's tests, which look for a folder of theirs.
        os.environ.setdefault("TEST_TMPDIR", os.devnull)
        warnings.warn(
            "keras_transformers: no folder for temporary files can be written to, so saving, "
            "exporting and training of vocabularies fail. TMPDIR names another one.",
            stacklevel=5,
        )
        return False
    return True


def print_every_character() -> None:
    """Lets standard output print, as escapes, characters that its encoding does not have."""
    reconfigure = getattr(sys.stdout, "reconfigure", None)
    if reconfigure is not None and sys.stdout.errors == "strict":
        reconfigure(errors="backslashreplace")


def is_command(arguments: list[str]) -> bool:
    """Whether Python was called for one of our commands."""
    module = arguments[arguments.index("-m") + 1 :][:1] if "-m" in arguments else []
    names = [*module, *(pathlib.PurePath(each).stem for each in arguments[:2])]
    return any(name.split(".")[0] in COMMANDS for name in names)


def serves_page(arguments: list[str]) -> bool:
    """Returns whether Python was called to serve the page of a model, and not for its options."""
    names = [pathlib.PurePath(each).name for each in arguments]
    calls = [(command, "demo") for command in COMMANDS[:2]] + [("-m", "recipes.demo")]
    called = any(pair in calls for pair in itertools.pairwise(names))
    return called and not {"-h", "--help"} & set(arguments)


@contextlib.contextmanager
def _without_matplotlib() -> Iterator[None]:
    """Hides matplotlib from Keras; it fails if it can write neither here nor at home."""
    hides = "matplotlib" not in sys.modules
    if hides:
        sys.modules["matplotlib"] = None  # type: ignore[assignment]
    try:
        yield
    finally:
        if hides:
            del sys.modules["matplotlib"]


@contextlib.contextmanager
def _without_chatter() -> Iterator[None]:
    """A scope whose standard error is printed when it ends, that of C++ too, without chatter."""
    try:
        sys.stderr.flush()
        kept = os.dup(2)
    except (AttributeError, OSError):  # there is none
        yield
        return
    with tempfile.TemporaryFile() as said:
        os.dup2(said.fileno(), 2)
        try:
            yield
        finally:
            sys.stderr.flush()
            os.dup2(kept, 2)
            os.close(kept)
            said.seek(0)
            lines = [line for line in said if not CHATTER.match(line)]
            if lines:
                os.write(2, b"".join(lines))


# Module -> the extra that installs it.
EXTRAS = {
    **dict.fromkeys(("tyro", "yaml", "sacrebleu", "sklearn", "scipy", "pycocotools"), "recipes"),
    **dict.fromkeys(("matplotlib", "tensorflow_datasets", "tensorflow_text"), "recipes"),
    **dict.fromkeys(("tokenizers", "sentencepiece"), "text"),
    **dict.fromkeys(("sentencex", "markdown_it"), "documents"),
    **{"pyarrow": "parquet", "py3langid": "languages", "huggingface_hub": "hub"},
    **{"gradio": "demo", "ray": "ray", "wandb": "wandb", "mlflow": "mlflow"},
    **{"tensorflow_serving": "serving", "ai_edge_litert": "litert", "jax": "jax"},
    **{"onnx": "onnx", "onnxruntime": "onnx", "tf2onnx": "onnx"},
}


def advice(error: ImportError) -> str | None:
    """What installs the package that is missing; None if it is in no extra, or an error says it."""
    package = (error.name or "").split(".")[0]
    if not isinstance(error, ModuleNotFoundError) or package not in EXTRAS:
        return None
    return f"needs the package {package}: pip install 'keras_transformers[{EXTRAS[package]}]'"


@contextlib.contextmanager
def needed_by(owner: str) -> Iterator[None]:
    """A scope of imports; one that fails says who needs the package, and what installs it.

    Args:
        owner: Who needs it, as its users call it.

    Raises:
        ImportError: If a package of an extra is not installed.

    Example:
    >>> from keras_transformers.core.imports import needed_by
    >>> with needed_by("training.score_translations"):
    ...     import sacrebleu
    """
    try:
        yield
    except ModuleNotFoundError as error:
        said = advice(error)
        if said is None:
            raise
        raise ImportError(f"{owner} {said}") from None
