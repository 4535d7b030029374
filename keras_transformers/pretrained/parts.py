"""What two parts differ in, of what a published configuration can say."""

from collections.abc import Sequence
from typing import Any

from keras_transformers.layers.parts import OWN_DTYPE, serialized

# What changes nothing that a model computes: names, precision, and how it was started or trained.
UNSAID = ("name", "dtype", OWN_DTYPE, "trainable", "seed", "dropout", "drop_path")
UNSAID += ("module", "registered_name")
UNSAID_ENDS = ("_initializer", "_regularizer", "_constraint")


def parts_of(block: Any) -> dict[str, Any]:
    """What makes a block, built or not, as configurations and numbers."""
    config = block.get_config()
    for name in ("mixer", "feed_forward"):
        config[name] = config[name] or serialized(getattr(block, name))
    kept = ("mixer", "feed_forward", "norm", "norm_first", "layer_scale")
    return {"class": type(block).__name__, **{name: config[name] for name in kept}}


def said(config: Any) -> Any:
    """A configuration without what changes nothing that is computed."""
    if not isinstance(config, dict):  # Keras makes lists of axes when it builds a norm
        return config[0] if isinstance(config, (list, tuple)) and len(config) == 1 else config
    return {
        key: said(value)
        for key, value in config.items()
        if key not in UNSAID and not key.endswith(UNSAID_ENDS)
    }


def refused(model: Any, received: Any, expected: str) -> ValueError:
    """What to raise of a model that cannot be written."""
    return ValueError(
        f"save: a {type(model).__name__} must be {expected}. Received: {str(received)[:200]}"
    )


def one_for_both(arguments: dict[str, Any], names: Sequence[str]) -> dict[str, Any]:
    """Arguments in which encoder and decoder have one value of each of the names.

    Raises:
        ValueError: If the decoder's, `decoder_NAME`, is another.
    """
    arguments = dict(arguments)
    for name in names:
        decoders = arguments.pop(f"decoder_{name}")
        if decoders != arguments[name]:
            raise ValueError(
                f"config.json: encoder and decoder must have one {name}. Received: "
                f"{arguments[name]} and {decoders}"
            )
    return arguments
