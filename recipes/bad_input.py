"""How every command line ends where its input is bad; quick to import, as it stands outside."""

import contextlib


@contextlib.contextmanager
def ending_in_a_sentence(name, *kinds):
    """A scope whose bad input ends the program in one sentence, without a traceback.

    Args:
        name: Of the program, before the sentence.
        *kinds: Exceptions that say all, besides ValueError and FileNotFoundError.
    """
    try:
        yield
    except (ValueError, FileNotFoundError, *kinds) as error:
        raise SystemExit(f"{name}: {error}") from None
    except OSError as error:
        raise SystemExit(f"{name}: {error.strerror or error}") from None
