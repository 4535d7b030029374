"""The decoder block with a norm before and a norm behind each branch."""

from typing import Any, Unpack

import keras

from keras_transformers.annotations import Activation, Part, Tensor
from keras_transformers.layers.blocks.residual import DecoderBlock, in_dtype_of
from keras_transformers.layers.blocks.settings import BranchOptions
from keras_transformers.layers.errors import refuse


class DecoderParts(BranchOptions, total=False):
    """What `DecoderBlock` takes by name as well."""

    mixer: Part | None
    cross_attention: Part | None
    feed_forward: Part | None
    norm: Part | None
    causal: bool


@keras.saving.register_keras_serializable("keras_transformers")
class SandwichDecoderBlock(DecoderBlock):
    """A `DecoderBlock` that normalises what goes into each branch and what comes out of it.

    `X' = X + LN(MHA(LN(X)))`, `X'' = X' + LN(FFN(LN(X')))` ("Sandwich-LN", Ding et al. 2021,
    https://arxiv.org/abs/2105.13290, section 2.4; Gemma 2). A stack of such blocks needs one more
    norm at its end.

    Args:
        num_heads, mlp_dim, mixer, norm, ...: See `DecoderBlock`; `norm_first` is True.

    Call arguments, returns: see `DecoderBlock`.

    Raises:
        ValueError: As `DecoderBlock`, and if `norm_first` is False.

    Example:
    >>> import numpy as np
    >>> from keras_transformers.layers import SandwichDecoderBlock
    >>> block = SandwichDecoderBlock(num_heads=2, mlp_dim=32)
    >>> tuple(block(np.ones((3, 5, 8), "float32")).shape)
    (3, 5, 8)
    """

    def __init__(
        self,
        num_heads: int | None = None,
        mlp_dim: int | None = None,
        dropout: float = 0.0,
        activation: Activation | None = "relu",
        norm_first: bool = True,
        **kwargs: Unpack[DecoderParts],
    ) -> None:
        super().__init__(num_heads, mlp_dim, dropout, activation, norm_first, **kwargs)
        if not norm_first:
            refuse(self, "norm_first", "True, for there is a norm on either side", norm_first)

    def _build_branch(self, name: str, default: Any, *shapes: Any, **others: Any) -> None:
        super()._build_branch(name, default, *shapes, **others)
        output_norm = self.copied_norm(self, f"{name}_output_norm")
        output_norm.build(shapes[0])
        setattr(self, f"{name}_output_norm", output_norm)

    def _residual(
        self, x: Tensor, name: str, function: Any, *arguments: Any, **options: Any
    ) -> tuple[Tensor, Any]:
        """`x + LN(f(LN(x)))`, and what else `f` gives, or None."""
        padding, scale = options.get("padding"), getattr(self, f"{name}_scale")
        y = self._normed(x, f"{name}_norm", padding)
        y, other = self._applied(y, name, function, *arguments, **options)
        y = self._normed(y, f"{name}_output_norm", padding)
        y = y if scale is None else scale(y)
        y = self._drop(y) if options.get("training") else y
        return x + in_dtype_of(x, y), other
