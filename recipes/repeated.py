"""An option that is given several times, each time with one of its values."""

import dataclasses
import typing


def gathered(arguments, kind):
    """A command line on which `--train a --train b` has become `--train a b`.

    Only of options that take one str or several: of others that come twice, the last is taken.

    Args:
        arguments: List of str.
        kind: The dataclass of a recipe.
    """
    for name in several_of(kind):
        option = f"--{name.replace('_', '-')}"
        parts = [[]]  # what stands before the first option, then each with its values
        for argument in arguments:
            parts += [[]] if argument.startswith("--") else []
            parts[-1].append(argument)
        own = [part for part in parts if part and part[0].partition("=")[0] == option]
        if len(own) > 1:
            values = [value for part in own for value in _values(part)]
            others = [part for part in parts if part not in own]
            arguments = [argument for part in others for argument in part] + [option, *values]
    return arguments


def _values(part):
    """The values of `["--train", "a", "b"]` or `["--train=a"]`."""
    _, equals, first = part[0].partition("=")
    return [first, *part[1:]] if equals else part[1:]


def several_of(kind):
    """Names of the options that take one str or several, a list."""
    groups = filter(dataclasses.is_dataclass, typing.get_type_hints(kind).values())
    hints = (hint for group in groups for hint in typing.get_type_hints(group).items())
    return [name for name, hint in hints if {str, tuple[str, ...]} <= {*typing.get_args(hint)}]
