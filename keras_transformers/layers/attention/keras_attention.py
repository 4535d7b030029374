"""What the configuration of Keras's attention means here."""

from typing import Any

# What Keras's layer can do and ours cannot, and the values of those arguments that ask for nothing.
NOT_HERE = {
    "attention_axes": (None, 1, [1], (1,)),
    "sliding_window": (None,),
    "flash_attention": (None, False),
    "use_gate": (None, False),
}


def our_arguments(cls: type, config: dict[str, Any]) -> dict[str, Any]:
    """The configuration of a `keras.layers.MultiHeadAttention` without what asks for nothing.

    Raises:
        ValueError: If it asks for something that an attention of `cls` cannot do.
    """
    config = dict(config)
    keras_s = "attention_axes" in config
    # There a regulariser of what each projection gives, here of what the layer gives.
    unknown = {**NOT_HERE, "activity_regularizer": (None,)} if keras_s else NOT_HERE
    for name, harmless in unknown.items():
        value = config.pop(name, None)
        if value not in harmless:
            raise ValueError(
                f"{cls.__name__}.from_config: `{name}` must be {harmless[0]}. Received: {value!r}"
            )
    return config
