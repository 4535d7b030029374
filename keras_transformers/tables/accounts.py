"""What was left out of what was read, in words."""

from collections.abc import Mapping


def account(**counts: Mapping[str, int]) -> str:
    """The end of a sentence about what was read, from dicts of reason -> number.

    Example:
    >>> from keras_transformers.tables import account
    >>> account(left_out={"blank": 2, "empty": 1}, repaired={})
    '; left out: 2 blank, 1 empty'
    """
    text = ""
    for what, reasons in counts.items():
        if any(reasons.values()):
            listed = ", ".join(f"{n:,} {reason}" for reason, n in reasons.items() if n)
            text += f"; {what.replace('_', ' ')}: {listed}"
    return text
