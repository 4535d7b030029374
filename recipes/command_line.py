"""The command line of what asks, makes or compares, but trains nothing: see `options` for that."""

import tyro

import keras_transformers

from .bad_input import ending_in_a_sentence, program, raise_at_interrupt


def command(name, kind, said, run, *errors, compiles=False):
    """Calls a function with the configuration of the command line; bad input ends in one sentence.

    Args:
        name: Of the recipe.
        kind: Its dataclass of options.
        said: What `--help` says above them.
        run: The function.
        *errors: Exceptions that say all, besides ValueError and FileNotFoundError.
        compiles: Whether programs that XLA compiles are kept for the next run.
    """
    called = program(name)
    config = tyro.cli(kind, prog=called, description=said)
    with ending_in_a_sentence(called, *errors):
        if compiles:
            keras_transformers.compile_cache()
        raise_at_interrupt()
        run(config)
