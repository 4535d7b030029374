"""A head beside a translator that says which pieces of the source a piece stands for."""

from typing import Any, Unpack

import keras
from keras import ops

from keras_transformers.annotations import LayerOptions, Shape, Tensor
from keras_transformers.layers import padding_mask
from keras_transformers.layers.composite import Composite
from keras_transformers.models.settings import ModelSettings, check_sizes, keeps_settings
from keras_transformers.models.without_logits import hidden_states

HIDDEN = -1e9  # score of a padded position


@keras.saving.register_keras_serializable("keras_transformers")
class AlignmentHead(ModelSettings, Composite, keras.Model):
    """An attention from a translation to its source, taught what stands for what.

    One head, `(W_q [y_t, y_t+1])^T (W_k x_s) / sqrt(d)`: queries are made of the decoder's states
    where a piece is produced and where it is read, keys of the encoder's states. It stands beside a
    translator that does not change, as the alignment layer of Zenkel et al. 2019
    (https://arxiv.org/abs/1901.11359), and learns from links as the head that Garg et al. 2019
    (https://arxiv.org/abs/1909.02074) supervise; see `alignment.learn_alignment`.

    Args:
        key_dim: Width of a query and a key (d).

    Call arguments:
        inputs: Dict of `states` `(batch, target_length, hidden_dim)`, the decoder's, `context`
            `(batch, source_length, hidden_dim)`, the encoder's, and `mask`, bool
            `(batch, source_length)`, True where there is no padding.

    Returns:
        Scores, float32 `(batch, target_length, source_length)`, whose softmax says what the piece
        that each query produces stands for.

    Raises:
        ValueError: If `key_dim` is not positive.

    Example:
    >>> import numpy as np
    >>> from keras_transformers.models import AlignmentHead, Transformer
    >>> model = Transformer(vocab_size=31, hidden_dim=16, num_heads=2, mlp_dim=32, num_layers=1)
    >>> ids = np.array([[1, 5, 7, 2, 0]])
    >>> tuple(AlignmentHead(8).scores(model, {"source": ids, "target": ids[:, :3]}).shape)
    (1, 3, 5)
    """

    @keeps_settings()
    def __init__(self, key_dim: int = 128, **kwargs: Unpack[LayerOptions]) -> None:
        super().__init__(**kwargs)
        check_sizes("AlignmentHead", {"key_dim": key_dim}, ("key_dim",))
        self.key_dim = key_dim
        self.query_dense = keras.layers.Dense(key_dim, dtype=self.dtype_policy)
        self.key_dense = keras.layers.Dense(key_dim, dtype=self.dtype_policy)

    def build(self, input_shape: dict[str, Shape]) -> None:
        states, context = input_shape["states"], input_shape["context"]
        self.query_dense.build((*states[:-1], 2 * states[-1]))
        self.key_dense.build(context)

    def call(self, inputs: dict[str, Tensor], training: bool | None = None) -> Tensor:
        states = inputs["states"]
        # Where a piece is read is the next position; behind the last there is none.
        read = ops.pad(states[:, 1:], ((0, 0), (0, 1), (0, 0)))
        query = self.query_dense(ops.concatenate([states, read], axis=-1))
        key = self.key_dense(inputs["context"])
        scores = ops.cast(ops.einsum("btd,bsd->bts", query, key), "float32") / self.key_dim**0.5
        return ops.where(inputs["mask"][:, None], scores, HIDDEN)

    def compute_output_shape(self, input_shape: dict[str, Shape]) -> Shape:
        return (*input_shape["states"][:2], input_shape["context"][1])

    def scores(self, translator: Any, ids: dict[str, Tensor]) -> Tensor:
        """Scores for a translator's `source` and `target` ids; no gradient reaches its weights."""
        with hidden_states():
            states = translator(ids, training=False)
        context = translator.encode(ids["source"], training=False)
        inputs = {
            "states": ops.stop_gradient(states),
            "context": ops.stop_gradient(context),
            "mask": padding_mask(ids["source"], translator.padding_id),
        }
        return self(inputs)
