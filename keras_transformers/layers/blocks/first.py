"""The first block of a stack whose input has been normalised already."""

from typing import Any

import keras

from keras_transformers.annotations import Shape
from keras_transformers.layers.blocks.residual import EncoderBlock
from keras_transformers.layers.errors import refuse


@keras.saving.register_keras_serializable("keras_transformers")
class FirstEncoderBlock(EncoderBlock):
    """An `EncoderBlock` without the norm of its first branch.

    `X' = X + MHA(X)`, `X'' = X' + FFN(LN(X'))`: where the embedding ends in a norm, another one
    would be the same twice (Warner et al. 2024, "ModernBERT", https://arxiv.org/abs/2412.13663,
    section 2.1.1).

    Args:
        num_heads, mlp_dim, mixer, norm, ...: See `EncoderBlock`.

    Call arguments, returns: see `EncoderBlock`.

    Raises:
        ValueError: As `EncoderBlock`, and if `norm_first` is False.

    Example: first of a pre-norm stack.
    >>> import keras, numpy as np
    >>> from keras_transformers.layers import EncoderBlock, FirstEncoderBlock
    >>> from keras_transformers.models import TextEmbedding, TextEncoder
    >>> embedding = TextEmbedding(31, 16, norm=keras.layers.LayerNormalization())
    >>> blocks = [kind(2, 32, norm_first=True) for kind in (FirstEncoderBlock, EncoderBlock)]
    >>> model = TextEncoder(num_layers=2, block=blocks, embedding=embedding)
    >>> tuple(model(np.array([[2, 5, 7, 3]])).shape)
    (1, 4, 16)
    """

    def build(self, x_shape: Shape) -> None:
        if not self.norm_first:
            refuse(self, "norm_first", "True: the norm that is left out stands before", False)
        super().build(x_shape)

    def _branch_norm(self, name: str) -> Any:
        if name == "mixer":
            return keras.layers.Identity(name="mixer_norm", dtype=self.dtype_policy)
        return super()._branch_norm(name)
