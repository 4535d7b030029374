"""keras_transformers: transformers in Keras 3, from layer to served model.

Sub-packages: `layers`, `models`, `generation`, `training`, `distribution`, `inspection`,
`precision`, `saving`; and, imported when first used, `text`, `localization`, `vision`, `streams`,
`shards`, `alignment`, `export`, `predictors` and `pretrained`, which need TensorFlow, and
`visualization`, which needs matplotlib. `load` makes of a folder the object that answers;
`compile_cache` keeps compiled programs for the next process.
"""

import importlib
from typing import TYPE_CHECKING

from keras_transformers.core.imports import importing

with importing():
    from keras_transformers import (
        caching,
        distribution,
        generation,
        inspection,
        layers,
        models,
        precision,
        saving,
        training,
    )
    from keras_transformers.core.caching import compile_cache

if TYPE_CHECKING:
    from keras_transformers import (
        alignment,
        export,
        localization,
        predictors,
        pretrained,
        shards,
        streams,
        text,
        vision,
        visualization,
    )
    from keras_transformers.tasks.loading import load

__version__ = "0.2.0"
__all__ = [
    "alignment",
    "caching",
    "compile_cache",
    "distribution",
    "export",
    "generation",
    "inspection",
    "layers",
    "load",
    "localization",
    "models",
    "precision",
    "predictors",
    "pretrained",
    "saving",
    "shards",
    "streams",
    "text",
    "training",
    "vision",
    "visualization",
]


if not TYPE_CHECKING:  # a checker has them from above, and finds other names

    def __getattr__(name: str) -> object:
        if name == "load":
            return importlib.import_module("keras_transformers.tasks.loading").load
        if name in __all__:
            return importlib.import_module(f"keras_transformers.{name}")
        raise AttributeError(f"module 'keras_transformers' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
