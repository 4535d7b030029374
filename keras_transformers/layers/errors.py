"""How layers refuse what does not fit."""


def refuse(layer, argument, expected, received):
    """Raises ValueError: names layer and argument, what was expected and what was received.

    Classes take it as a method, `_refuse = refuse`.
    """
    raise ValueError(
        f"{type(layer).__name__} '{layer.name}': `{argument}` must be {expected}. "
        f"Received: {received}"
    )
