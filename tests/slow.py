"""Products of many cases: a few representatives run always, the others with `-m slow`."""

import pytest


def slow_except(cases, *quick):
    """Returns the cases for `pytest.mark.parametrize`; all but the `quick` ones are slow.

    Args:
        cases: Iterable of names, or a dict from names to values, whose values are the parameters.
        quick: Names of the representatives. Each must be a name of `cases`.
    """
    values = cases if isinstance(cases, dict) else {name: name for name in cases}
    unknown = set(quick) - set(values)
    assert not unknown, f"no cases: {', '.join(map(str, unknown))}"
    return [
        pytest.param(value, id=str(name), marks=[] if name in quick else [pytest.mark.slow])
        for name, value in values.items()
    ]
