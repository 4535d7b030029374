"""What models with decoder blocks share in decoding."""

from typing import Any

from keras import ops

from keras_transformers.annotations import Index
from keras_transformers.layers.composite import Composite


class CachedDecoding(Composite):
    """Decoding whose state has the `cache` of each block."""

    def grow_caches(self, state: dict[str, Any], beams: int, positions: Index) -> dict[str, Any]:
        """The state with as many positions more in its caches; only where nothing is compiled."""
        more = ((0, 0), (0, 0), (0, beams * positions), (0, 0))  # where positions are rows
        caches = [{k: ops.pad(x, more) for k, x in each.items()} for each in state["cache"]]
        return {**state, "cache": caches}

