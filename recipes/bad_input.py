"""How every command line ends where its input is bad; quick to import, as it stands outside."""

import contextlib
import pathlib
import sys

COMMAND = "keras-transformers"  # of an installed package, before the name of a recipe


def program(name=None):
    """How this process was called: `keras-transformers NAME` or `python -m recipes.NAME`.

    Args:
        name: Of the recipe; None reads it from the arguments of the process.
    """
    called = sys.argv[0]
    if called.startswith(f"{COMMAND} "):
        return called
    return f"python -m {__package__}.{name or pathlib.Path(called).stem}"


@contextlib.contextmanager
def ending_in_a_sentence(program, *kinds):
    """A scope whose bad input ends the program in one sentence, without a traceback.

    Args:
        program: How it was called, which stands before the sentence.
        *kinds: Exceptions that say all, besides ValueError and FileNotFoundError.
    """
    name = program.removeprefix("python -m ")
    try:
        yield
    except (ValueError, FileNotFoundError, *kinds) as error:
        raise SystemExit(f"{name}: {error}") from None
    except OSError as error:
        raise SystemExit(f"{name}: {error.strerror or error}") from None
