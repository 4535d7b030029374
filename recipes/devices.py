"""A recipe on several devices and hosts: JAX trains, and TensorFlow scores and exports."""

import contextlib
import os
import sys

import keras
import tensorflow as tf

from keras_transformers import distribution

OF_HOSTS = "KERAS_DISTRIBUTION_"  # the variables that Keras reads


@contextlib.contextmanager
def on_devices(devices, hosts=False):
    """What runs inside takes these devices, and those of the other hosts of the run.

    Args:
        devices: Text as "data=8", or None.
        hosts: Whether there are other hosts, which JAX finds by itself on a TPU pod and under
            Slurm; there are also if the environment names them, see `distribution.initialize`.

    Raises:
        ValueError: If there are fewer devices, or several hosts and no `devices`.
    """
    if hosts or any(name.startswith(OF_HOSTS) for name in os.environ):
        if devices is None:
            raise ValueError("--devices must say how the hosts' devices share the work.")
        distribution.initialize()
    with distribution.distribute(devices):
        yield


def continue_on_tensorflow():
    """Replaces the process by one of the same command, on TensorFlow and one device.

    It resumes from the last checkpoint, scores and exports, for a SavedModel holds TensorFlow's
    program. Where TensorFlow has trained on one device, nothing is to be done.
    """
    if keras.backend.backend() != "jax" and not tf.distribute.has_strategy():
        return
    first = distribution.is_first_host()
    distribution.leave()
    if not first:
        raise SystemExit(0)
    print("Trained; TensorFlow scores and exports on one device.", flush=True)
    environment = {n: value for n, value in os.environ.items() if not n.startswith(OF_HOSTS)}
    environment["KERAS_BACKEND"] = "tensorflow"
    # As Python was called, its own options too.
    own = len(sys.argv) - 1
    command = [sys.executable, *sys.orig_argv[1 : -own or None], *_arguments_to_score(sys.argv[1:])]
    os.execve(sys.executable, command, environment)


def _arguments_to_score(arguments):
    """Arguments of the process that scores; of an option that comes twice, the last is taken."""
    return [*arguments, "--devices", "None", "--no-hosts", "--no-overwrite", "--resume"]
