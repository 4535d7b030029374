"""How TensorFlow is imported: without looking for garbage, and by our commands without a word."""

import contextlib
import gc
import os
import pathlib
import re
import sys
import tempfile
from collections.abc import Iterator

COMMANDS = ("keras-transformers", "keras_transformers", "recipes")
# What TensorFlow says while it is imported, whatever level it is asked for.
CHATTER = re.compile(
    rb"WARNING: All log messages before absl::|[IW]\d{4} \d\d:|To enable the following instructions"
)


@contextlib.contextmanager
def importing() -> Iterator[None]:
    """A scope for imports; that of a program of ours keeps TensorFlow's chatter off the terminal.

    Errors come as exceptions, and TensorFlow's fatal ones are still printed. What was imported is
    left out when such a program looks for garbage: every walk over it takes 0.3 seconds.
    """
    # Importing makes a million objects and no garbage; to look for it takes a quarter of the time.
    collects = gc.isenabled()
    gc.disable()
    try:
        if is_command(sys.orig_argv):
            os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
            with _without_chatter():
                yield
            gc.freeze()
        else:
            yield
    finally:
        if collects:
            gc.enable()


def is_command(arguments: list[str]) -> bool:
    """Whether Python was called for one of our commands."""
    module = arguments[arguments.index("-m") + 1 :][:1] if "-m" in arguments else []
    names = [*module, *(pathlib.PurePath(each).stem for each in arguments[:2])]
    return any(name.split(".")[0] in COMMANDS for name in names)


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
