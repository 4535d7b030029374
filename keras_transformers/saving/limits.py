"""A limit for what is made from a file's description: no more than the file holds weights for."""

import functools
import inspect
import math
import threading
from typing import Any, NoReturn, Self

import keras


class within:
    """A context in which models are made, but none that is much larger than its file.

    Every weight has values of its own in the file. So a weight that goes far beyond what the file
    holds comes of a false setting, and is refused before there is memory for it; and so is the
    layer that goes far beyond their number, before there was time for all.

    Args:
        values: Number of values in the file.
        layers: Number of entries in the file that stand for a layer, or None not to count layers.
        zeros: Whether weights begin with zeros, for each gets a value of the file: to draw them
            would take time, and memory beside them.

    Raises:
        ValueError: If the model has more than twice the values, or four times the layers; at the
            latest when the context is left, for Keras swallows errors of some models' `build`.
    """

    _one_at_a_time = threading.RLock()

    def __init__(self, values: int, layers: int | None = None, zeros: bool = False) -> None:
        # Twice as much, for a weight that is missing is an error with another message.
        self.values = 2 * values + 2**20
        self.zeros = zeros
        self.layers = math.inf if layers is None else 4 * layers + 1000
        self.refused: str | None = None
        self.thread = threading.get_ident()

    def __enter__(self) -> Self:
        self._one_at_a_time.acquire()
        layers: Any = keras.layers.Layer
        self.add_weight, self.init = layers.add_weight, layers.__init__

        @functools.wraps(self.add_weight)
        def add_weight(
            layer: keras.layers.Layer, shape: Any = None, *args: Any, **kwargs: Any
        ) -> Any:
            if threading.get_ident() == self.thread:
                self._take_values(layer, shape, kwargs.get("name"))
                if self.zeros and not args:
                    kwargs["initializer"] = "zeros"
            return self.add_weight(layer, shape, *args, **kwargs)

        @functools.wraps(self.init)
        def init(layer: Any, *args: Any, **kwargs: Any) -> None:
            if threading.get_ident() == self.thread:
                self._take_layer(layer)
            self.init(layer, *args, **kwargs)

        vars(init)["__signature__"] = inspect.signature(self.init)  # Keras looks at it
        layers.add_weight, layers.__init__ = add_weight, init
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        layers: Any = keras.layers.Layer
        layers.add_weight, layers.__init__ = self.add_weight, self.init
        self._one_at_a_time.release()
        if self.refused and (kind is None or issubclass(kind, Exception)):
            raise ValueError(self.refused) from None

    def _take_values(self, layer: keras.layers.Layer, shape: Any, name: str | None) -> None:
        self.values -= math.prod(shape or ())
        if self.values < 0:
            self._refuse(
                "it describes a model larger than the file of its weights. The first weight that "
                f"is too much: {name} of {layer.path}, of shape {tuple(shape)}."
            )

    def _take_layer(self, layer: keras.layers.Layer) -> None:
        self.layers -= 1
        if self.layers < 0:
            self._refuse(
                "it describes a model of far more layers than the file of its weights has. The "
                f"first that is too much: a {type(layer).__name__}."
            )

    def _refuse(self, why: str) -> NoReturn:
        self.refused = self.refused or why
        raise ValueError(self.refused)
