"""SavedModels that are made in no time, with the signatures of exported ones."""

import json

import tensorflow as tf


class Shouter(tf.Module):
    """A translator that writes in capitals.

    Args:
        work: Products of matrices that a request takes, for those who must be killed meanwhile.
    """

    def __init__(self, work=0):
        super().__init__()
        self._work = tf.constant(work)

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="text")])
    def __call__(self, text):
        x = tf.ones((256, 256))
        for _ in tf.range(self._work):
            x = tf.matmul(x, x) / 256
        rows = tf.shape(text)
        score = tf.fill(rows, x[0, 0])
        translation = tf.strings.upper(text, encoding="utf-8")
        return {"translation": translation, "score": score, "truncated": tf.zeros(rows, tf.bool)}


def save_shouter(path, work=0, about=None):
    """A SavedModel with the outputs of a translator."""
    shouter = Shouter(work)
    tf.saved_model.save(shouter, str(path), signatures={"serving_default": shouter.__call__})
    if about is not None:
        (path / "assets.extra").mkdir(exist_ok=True)
        text = about if isinstance(about, str) else json.dumps(about)
        (path / "assets.extra" / "keras_transformers.json").write_text(text)
    return path
