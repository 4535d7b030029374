"""Packages that only an extra installs, and what is said where one is missing.

`pip install keras_transformers` alone has layers, models, searches and training; what a recipe, a
format or a service needs besides comes with an extra, and is imported where it is used.
"""

import contextlib
from collections.abc import Iterator

# Module -> the extra that installs it.
EXTRAS = {
    **dict.fromkeys(("tyro", "yaml", "sacrebleu", "sklearn", "scipy", "pycocotools"), "recipes"),
    **dict.fromkeys(("matplotlib", "tensorflow_datasets", "tensorflow_text"), "recipes"),
    **dict.fromkeys(("tokenizers", "sentencepiece"), "text"),
    **dict.fromkeys(("sentencex", "markdown_it"), "documents"),
    **{"pyarrow": "parquet", "py3langid": "languages", "huggingface_hub": "hub"},
    **{"gradio": "demo", "ray": "ray", "wandb": "wandb", "mlflow": "mlflow"},
    **{"tensorflow_serving": "serving", "ai_edge_litert": "litert", "jax": "jax"},
    **{"onnx": "onnx", "onnxruntime": "onnx", "tf2onnx": "onnx"},
}


def advice(error: ImportError) -> str | None:
    """What installs the package that is missing; None if it is in no extra, or an error says it."""
    package = (error.name or "").split(".")[0]
    if not isinstance(error, ModuleNotFoundError) or package not in EXTRAS:
        return None
    return f"needs the package {package}: pip install 'keras_transformers[{EXTRAS[package]}]'"


@contextlib.contextmanager
def needed_by(owner: str) -> Iterator[None]:
    """A scope of imports; one that fails says who needs the package, and what installs it.

    Args:
        owner: Who needs it, as its users call it.

    Raises:
        ImportError: If a package of an extra is not installed.

    Example:
    >>> from keras_transformers.extras import needed_by
    >>> with needed_by("training.score_translations"):
    ...     import sacrebleu
    """
    try:
        yield
    except ModuleNotFoundError as error:
        said = advice(error)
        if said is None:
            raise
        raise ImportError(f"{owner} {said}") from None
