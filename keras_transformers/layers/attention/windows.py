"""Self-attention inside the windows of a grid, and how grids are cut into windows."""

import math
from collections.abc import Sequence
from typing import Any, Unpack

import keras
from keras import ops

from keras_transformers.core.backend import divides, require, same
from keras_transformers.core.types import Index, Tensor
from keras_transformers.layers.attention.multi_head import AttentionOptions, SelfAttention
from keras_transformers.layers.attention.scores import ScaledCosineScore
from keras_transformers.layers.checks import named
from keras_transformers.layers.patches import cut, patch_sizes, unpatchify
from keras_transformers.layers.positions.biases import GridRelativeBias, LogGridBias


def partition_windows(x: Tensor, window_size: int | Sequence[int]) -> Tensor:
    """Cuts a grid of tokens into windows that do not overlap (Liu et al. 2021, section 3.2).

    Source: https://arxiv.org/abs/2103.14030.

    Args:
        x: `(batch, rows, columns, hidden_dim)`.
        window_size: Side of a window in tokens, or `(rows, columns)`; must divide the grid.

    Returns:
        `(batch * windows, tokens, hidden_dim)`: the windows of the first image row by row, then
        those of the second.

    Raises:
        ValueError: If `x` is not of rank 4 or the windows do not divide it.

    Example:
    >>> import numpy as np
    >>> from keras_transformers.layers import partition_windows
    >>> windows = partition_windows(np.arange(16).reshape(1, 4, 4, 1), 2)
    >>> [int(token) for token in windows[0, :, 0]]  # the upper left window
    [0, 1, 4, 5]
    """
    if len(x.shape) != 4:
        raise ValueError(
            "partition_windows: `x` must have shape (batch, rows, columns, hidden_dim). "
            f"Received: shape {tuple(x.shape)}"
        )
    sizes = patch_sizes(window_size, 2, "partition_windows")
    windows = cut(x, sizes, "partition_windows")
    return ops.reshape(windows, (-1, math.prod(sizes), x.shape[-1]))


def merge_windows(
    windows: Tensor, window_size: int | Sequence[int], grid: Sequence[Index]
) -> Tensor:
    """Puts windows back together; the inverse of `partition_windows`.

    Args:
        windows: `(batch * windows, tokens, hidden_dim)`.
        window_size: As for `partition_windows`.
        grid: `(rows, columns)` of tokens.

    Returns:
        `(batch, rows, columns, hidden_dim)`.

    Raises:
        ValueError: If the windows do not fill the grid, or have another number of tokens.

    Example:
    >>> import numpy as np
    >>> from keras_transformers.layers import merge_windows, partition_windows
    >>> x = np.arange(24).reshape(1, 4, 6, 1)
    >>> bool(np.all(merge_windows(partition_windows(x, 2), 2, (4, 6)) == x))
    True
    """
    sizes = patch_sizes(window_size, len(grid), "merge_windows")
    numbers = [extent // size for extent, size in zip(grid, sizes, strict=True)]
    tokens, number = math.prod(sizes), math.prod(numbers)
    fits = [divides(size, extent) for extent, size in zip(grid, sizes, strict=True)]
    count, length = ops.shape(windows)[:2]
    rule = (
        f"merge_windows: `windows` must have shape (batch * windows, {tokens}, hidden_dim) and "
        f"`window_size` {sizes} divide the grid."
    )
    windows = require(windows, [*fits, same(length, tokens)], rule)
    rule = "merge_windows: `windows` must be as many as fill the grid, or a multiple of that."
    windows = require(windows, [divides(number, count)], rule)
    patches = ops.reshape(windows, (-1, number, tokens * windows.shape[-1]))
    return unpatchify(patches, sizes, numbers)


def rolled(x: Tensor, shift: Sequence[Index]) -> Tensor:
    """A map moved to the upper left; what leaves on one side comes in on the other.

    As `keras.ops.roll(x, [-step for step in shift], (1, 2))`, in operations that every runtime of
    exported models has.

    Args:
        x: `(batch, rows, columns, hidden_dim)`.
        shift: `(rows, columns)`, integers or scalar tensors; negative ones move it back.

    Returns:
        Same shape.

    Example:
    >>> import numpy as np
    >>> from keras_transformers.layers.attention.windows import rolled
    >>> np.array(rolled(np.arange(4).reshape(1, 2, 2, 1), (0, 1)))[0, :, :, 0].tolist()
    [[1, 0], [3, 2]]
    """
    rows, columns = shift
    if not (isinstance(rows, int) and rows == 0):
        x = ops.concatenate([x[:, rows:], x[:, :rows]], axis=1)
    if not (isinstance(columns, int) and columns == 0):
        x = ops.concatenate([x[:, :, columns:], x[:, :, :columns]], axis=2)
    return x


def shifted_window_mask(
    grid: Sequence[Index],
    window_size: int | Sequence[int],
    shift: Index | Sequence[Index] = 0,
    real: Sequence[Index] | None = None,
) -> Tensor:
    """Which tokens of a window may attend to which, where the grid was shifted or padded.

    Token `(i, j)` of the shifted grid is `(i + s, j + s)` of the image, modulo its extent. So
    windows at the lower and the right border hold pieces from opposite sides of the image; only
    tokens of the same piece see each other (Liu et al. 2021, https://arxiv.org/abs/2103.14030,
    figure 4). Nobody sees padding.

    Args:
        grid: `(rows, columns)` of tokens, of which the windows are divisors.
        window_size: Side of a window, or `(rows, columns)`.
        shift: By how many tokens the grid was shifted to the upper left; an int or `(rows,
            columns)`.
        real: `(rows, columns)` without the padding at the lower and the right border; by default
            all.

    Returns:
        Bool `(windows, tokens, tokens)`; True = attend.

    Example: of four tokens, shifted by one, the last window holds the last and the first.
    >>> from keras import ops
    >>> from keras_transformers.layers import shifted_window_mask
    >>> mask = shifted_window_mask((1, 4), (1, 2), (0, 1))
    >>> ops.convert_to_numpy(mask).astype(int).tolist()
    [[[1, 1], [1, 1]], [[1, 0], [0, 1]]]
    """
    shifts: Any = (shift, shift) if isinstance(shift, int) else shift
    real = grid if real is None else real
    pieces, there = [], []
    for extent, step, seen in zip(grid, shifts, real, strict=True):
        positions = ops.arange(extent, dtype="int32") + step
        pieces.append(ops.cast(positions >= extent, "int32"))  # came round from the other side
        there.append(positions % extent < seen)
    piece = 2 * pieces[0][:, None] + pieces[1][None, :]
    piece = partition_windows(piece[None, :, :, None], window_size)[..., 0]
    there = ops.logical_and(there[0][:, None], there[1][None, :])
    there = partition_windows(ops.cast(there, "int32")[None, :, :, None], window_size)[..., 0]
    return ops.logical_and(piece[:, :, None] == piece[:, None, :], (there != 0)[:, None, :])


@keras.saving.register_keras_serializable("keras_transformers")
class WindowAttention(SelfAttention):
    """Self-attention of the tokens of a window, with a bias for each offset of two of them.

    `softmax(Q K^T / sqrt(d) + B) V` (Liu et al. 2021, https://arxiv.org/abs/2103.14030, eq. 4), `B`
    from a `GridRelativeBias`. With `cosine`, `softmax(cos(Q, K) / tau + B) V`, the temperature
    learned and `B` from a small network of the offset's logarithm (`ScaledCosineScore`,
    `LogGridBias`; Liu et al. 2022, https://arxiv.org/abs/2111.09883, eq. 2 and 3). A key's bias
    would not change the scores of the first and has no part in the second; only the first has one.

    Args:
        num_heads: Number of heads; must divide the width of `x`.
        window_size: Side of a window in tokens, or `(rows, columns)`.
        cosine: Whether scores are cosines.
        pretrained_window_size: With `cosine`, the window by which offsets are measured, where it is
            not `window_size`: that of the training before.
        key_dim, dropout, use_bias, ...: See `MultiHeadAttention`; `score` and `position` are set.

    Call arguments:
        x: `(batch * windows, tokens, hidden_dim)`, as from `partition_windows`.
        attention_mask: Optional bool `(windows, tokens, tokens)`; True = attend.
        return_attention_scores: Whether to return the attention weights too.
        training: Whether dropout acts.

    Returns:
        Same shape as `x`, and the weights `(batch * windows, heads, tokens, tokens)` on request.

    Raises:
        ValueError: As `MultiHeadAttention`, and if `x` has not the tokens of a window.

    Example:
    >>> import numpy as np
    >>> from keras_transformers.layers import WindowAttention
    >>> tuple(WindowAttention(num_heads=2, window_size=3)(np.ones((8, 9, 4), "float32")).shape)
    (8, 9, 4)
    """

    takes_mask = False

    def __init__(
        self,
        num_heads: int,
        window_size: int | Sequence[int],
        cosine: bool = False,
        pretrained_window_size: int | Sequence[int] | None = None,
        **kwargs: Unpack[AttentionOptions],
    ) -> None:
        window = patch_sizes(window_size, 2, "WindowAttention")
        if cosine:
            kwargs["score"] = ScaledCosineScore()
            kwargs["position"] = LogGridBias(window, pretrained_window_size)
            if kwargs.get("use_bias", True) is True:
                kwargs["use_bias"] = ("query", "value", "output")
        else:
            kwargs["position"] = GridRelativeBias(window)
        super().__init__(num_heads, **kwargs)
        self.window_size = window
        self.cosine = cosine
        self.pretrained_window_size = pretrained_window_size

    def call(
        self,
        x: Tensor,
        attention_mask: Tensor | None = None,
        return_attention_scores: bool = False,
        training: bool | None = None,
    ) -> Any:
        (count, length), tokens = ops.shape(x)[:2], math.prod(self.window_size)
        rule = f"{named(self, 'x')} must be of shape (batch * windows, {tokens}, hidden_dim)"
        x = require(x, [same(length, tokens)], f"{rule}.")
        if attention_mask is not None:
            windows = ops.shape(attention_mask)[0]
            x = require(x, [divides(windows, count)], f"{rule} for {windows} windows.")
            attention_mask = ops.tile(attention_mask, (count // windows, 1, 1))
        return super().call(
            x,
            attention_mask=attention_mask,
            return_attention_scores=return_attention_scores,
            training=training,
        )

    def get_config(self) -> dict[str, Any]:
        config = super().get_config()
        del config["score"], config["position"]
        return {
            **config,
            "window_size": list(self.window_size),
            "cosine": self.cosine,
            "pretrained_window_size": self.pretrained_window_size,
        }
