"""Names of the classes that a published model tells apart."""

from typing import Any

from keras_transformers.annotations import StrPath
from keras_transformers.pretrained.files import CONFIG, read_json
from keras_transformers.pretrained.names import find

MOST_CLASSES = 1 << 20


def class_names(folder: StrPath) -> list[str]:
    """Names of the classes of a published model, a list in the order of its logits.

    Args:
        folder: Path of the folder.

    Raises:
        FileNotFoundError: If there is no `config.json`.
        ValueError: If it does not name classes.

    Example:
    >>> import tempfile
    >>> from keras_transformers import models, pretrained
    >>> model = models.ViT.from_variant("Ti/16", 2, image_size=32, num_layers=1)
    >>> model.build((None, 32, 32, 3))
    >>> pretrained.class_names(pretrained.save(model, tempfile.mkdtemp(), classes=["cat", "dog"]))
    ['cat', 'dog']
    """
    folder = find(folder, weights=False)
    return classes_of(read_json(folder, CONFIG), f"{folder / CONFIG}")


def classes_of(config: dict[str, Any], where: Any) -> list[str]:
    """Names of the classes of a configuration; `where` is its file, for messages."""
    named = config.get("id2label")
    if named is None:
        number = config.get("num_labels", 2)
        if not isinstance(number, int) or not 0 < number <= MOST_CLASSES:
            raise ValueError(
                f"{where}: `num_labels` must be from 1 to {MOST_CLASSES}. Received: {number!r}"
            )
        return [f"LABEL_{i}" for i in range(number)]
    try:
        return [str(named[str(i)]) for i in range(len(named))]
    except (KeyError, TypeError):
        raise ValueError(
            f"{where}: `id2label` must map '0', '1', ... to names. Received: {str(named)[:100]}"
        ) from None
