"""How many devices share the rows of a batch, and how many share each matrix."""

import dataclasses

AXES = ("data", "model")


@dataclasses.dataclass(frozen=True)
class Devices:
    """A grid of devices.

    Args:
        data: Number of groups of devices, each of which takes a share of every batch.
        model: Number of devices in a group, each of which holds a share of every matrix.

    Raises:
        ValueError: If one of them is not a positive integer.

    Example:
    >>> from keras_transformers.distribution import Devices
    >>> Devices(data=4, model=2).count
    8
    """

    data: int = 1
    model: int = 1

    def __post_init__(self) -> None:
        for axis in AXES:
            size = getattr(self, axis)
            if not isinstance(size, int) or isinstance(size, bool) or size < 1:
                raise ValueError(
                    f"Devices: `{axis}` must be a positive integer. Received: {axis}={size!r}"
                )

    @property
    def count(self) -> int:
        """Number of devices in all."""
        return self.data * self.model

    def check_count(self, available: int) -> None:
        """Raises ValueError if there are fewer devices than these."""
        if self.count > available:
            raise ValueError(
                f"Devices: data={self.data} times model={self.model} takes {self.count} devices, "
                f"but there {'is' if available == 1 else 'are'} {available}."
            )


def parse(text: str | Devices, available: int | None = None) -> Devices:
    """Reads "data=4,model=2".

    Args:
        text: Axes with their sizes; one that is not named has size 1. `Devices` pass as they are.
        available: Number of devices there are, where that is known already; `distribute` asks for
            it itself.

    Returns:
        `Devices`.

    Raises:
        ValueError: If an axis is unknown, named twice or without a positive size, or there are
            fewer devices.

    Example:
    >>> from keras_transformers.distribution import parse
    >>> parse("data=4,model=2")
    Devices(data=4, model=2)
    """
    devices = text if isinstance(text, Devices) else _read(text)
    if available is not None:
        devices.check_count(available)
    return devices


def _read(text: str) -> Devices:
    sizes = {}
    for part in str(text).split(","):
        axis, equals, size = (piece.strip() for piece in part.partition("="))
        if axis not in AXES or not equals:
            raise ValueError(
                'parse: devices must be written like "data=8" or "data=4,model=2". '
                f"Received: {text!r}"
            )
        if axis in sizes:
            raise ValueError(f"parse: {axis!r} must be named once. Received: {text!r}")
        if not size.isascii() or not size.isdigit() or int(size) < 1:
            raise ValueError(
                f"parse: the size of {axis!r} must be a positive integer. Received: {text!r}"
            )
        sizes[axis] = int(size)
    return Devices(**sizes)
