"""What kind of device programs run on."""

import keras


def on_accelerator() -> bool:
    """Whether there is a device that is no CPU, on TensorFlow and JAX."""
    return not all("cpu" in str(each).lower() for each in keras.distribution.list_devices())
