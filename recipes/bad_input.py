"""How every command line ends where its input is bad; quick to import, as it stands outside."""

import contextlib
import os
import pathlib
import signal
import sys

INTERRUPTED = 130  # the status by which shells know a program that Ctrl-C has ended
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
        *kinds: Exceptions that say all, besides ValueError, FileNotFoundError, and the ImportError
            of a package that an extra installs.
    """
    name = program.removeprefix("python -m ")
    try:
        yield
    except ImportError as error:
        said = _of_extras(error)
        if said is None:
            raise
        raise SystemExit(f"{name}: {said}") from None
    except (ValueError, FileNotFoundError, *kinds) as error:
        raise SystemExit(f"{name}: {error}") from None
    except OSError as error:
        raise SystemExit(f"{name}: {_system_message(error)}") from None
    except KeyboardInterrupt:
        print(f"\n{name}: stopped", file=sys.stderr, flush=True)
        raise SystemExit(INTERRUPTED) from None


def _system_message(error):
    """What the system says of a file, with its name; of other errors, what they say."""
    if error.strerror is None:
        return str(error)
    names = [str(name) for name in (error.filename, error.filename2) if name is not None]
    return f"{' and '.join(names)}: {error.strerror}" if names else error.strerror


def end_at_interrupt():
    """From now on, Ctrl-C ends the process at once, with a word and without a traceback.

    It is for the start, which leaves nothing unfinished behind. Imports and tracing take long, and
    an exception that is raised within them can be lost.
    """
    terminal = os.dup(2)  # which TensorFlow's import is kept from writing to

    def end(kind, frame):
        os.write(terminal, b"\nStopped.\n")
        os._exit(INTERRUPTED)

    signal.signal(signal.SIGINT, end)


def look_first():
    """Answers what can be answered before TensorFlow is imported: see `first_look`."""
    from .first_look import look

    if sys.argv[0] == "-m":
        names = [word for word in sys.orig_argv if word.startswith(f"{__package__}.")]
        name = names[0].removeprefix(f"{__package__}.") if names else ""
    else:
        name = sys.argv[0].partition(" ")[2].replace("-", "_")
    path = pathlib.Path(__file__).with_name(f"{name}.py")
    if name and path.is_file():
        look(path, sys.argv[1:])


def raise_at_interrupt():
    """From now on, Ctrl-C raises a KeyboardInterrupt, and the next one ends the process at once.

    Does nothing unless `end_at_interrupt` was called.
    """
    end = signal.getsignal(signal.SIGINT)
    if getattr(end, "__module__", None) != __name__:
        return

    def interrupt(kind, frame):
        signal.signal(signal.SIGINT, end)
        raise KeyboardInterrupt

    signal.signal(signal.SIGINT, interrupt)


def _of_extras(error):
    """What to install; None of an error that is a fault of the code."""
    from keras_transformers.core.imports import advice  # which imports TensorFlow

    return advice(error) or (str(error) if error.name is None else None)


def name_missing_extras():
    """From now on, a program that ends for want of an extra says so in a line.

    Modules of recipes import packages of extras, as every Python module does, before anything of
    theirs runs.
    """
    otherwise = sys.excepthook

    def hook(kind, error, traceback):
        said = _of_extras(error) if isinstance(error, ImportError) else None
        if said is None:
            otherwise(kind, error, traceback)
        else:
            print(f"{program().removeprefix('python -m ')}: {said}", file=sys.stderr)

    sys.excepthook = hook
