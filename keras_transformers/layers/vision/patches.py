"""Images, signals and volumes cut into patches, and put together again."""

import math
from collections.abc import Sequence
from typing import Any

from keras import ops

from keras_transformers.annotations import Index, Tensor
from keras_transformers.assertions import at_most, divides, require, same

AXES = {1: "length", 2: "height, width", 3: "depth, height, width"}


def patchify(x: Tensor, patch_size: int | Sequence[int]) -> Tensor:
    """Cuts an image (a signal, a volume) into patches and lays each of them flat.

    `(H, W, C) -> (H W / P^2, P^2 C)`, patches row by row, and inside a patch row by row with the
    channels last (Dosovitskiy et al. 2021, https://arxiv.org/abs/2010.11929, section 3.1).

    Args:
        x: `(batch, length, c)`, `(batch, height, width, c)` or `(batch, depth, height, width, c)`.
        patch_size: Int, or one for each axis; must divide the axes.

    Returns:
        `(batch, patches, values)`, dtype of `x`.

    Raises:
        ValueError: If `x` is of another rank or the patches do not divide it.

    Example:
    >>> import numpy as np
    >>> from keras_transformers.layers import patchify
    >>> patches = patchify(np.arange(16).reshape(1, 4, 4, 1), 2)
    >>> [int(value) for value in patches[0, 0]]  # the upper left patch
    [0, 1, 4, 5]
    """
    return cut(x, patch_sizes(patch_size, len(x.shape) - 2, "patchify"), "patchify")


def cut(x: Tensor, sizes: Sequence[int], owner: str) -> Tensor:
    """`patchify` with an int for each axis, in the name of `owner`."""
    x = whole(x, sizes, owner)
    shape = ops.shape(x)
    grid = [extent // size for extent, size in zip(shape[1:-1], sizes, strict=True)]
    parts = [side for pair in zip(grid, sizes, strict=True) for side in pair]
    x = ops.reshape(x, (-1, *parts, shape[-1]))  # (batch, rows, P, columns, P, c)
    dims = len(sizes)
    order = (0, *range(1, 2 * dims, 2), *range(2, 2 * dims + 1, 2), 2 * dims + 1)
    return ops.reshape(ops.transpose(x, order), (-1, math.prod(grid), math.prod(sizes) * shape[-1]))


def whole(x: Tensor, sizes: Sequence[int], owner: str) -> Tensor:
    """`x`, if whole patches fill it: what is over would become part of another sample."""
    check_grid(owner, x.shape, sizes)
    extents = ops.shape(x)[1:]
    if None in extents:
        raise ValueError(
            f"{owner}: a symbolic input must have known extents and channels outside of a layer's "
            f"call. Received: shape {tuple(x.shape)}"
        )
    fits = [
        holds
        for extent, size in zip(extents[:-1], sizes, strict=True)
        for holds in (at_most(size, extent), divides(size, extent))
    ]
    return require(x, fits, _rule(owner, sizes))


def unpatchify(patches: Tensor, patch_size: int | Sequence[int], grid: Sequence[Index]) -> Tensor:
    """Puts flat patches back together; the inverse of `patchify`.

    Args:
        patches: `(batch, patches, values)`.
        patch_size: Int, or one for each axis.
        grid: Number of patches along each axis, for instance `(rows, columns)`.

    Returns:
        `(batch, *extents, c)`, dtype of `patches`.

    Raises:
        ValueError: If `grid` does not have as many patches, or `values` is no multiple of a
            patch's positions.

    Example:
    >>> import numpy as np
    >>> from keras_transformers.layers import patchify, unpatchify
    >>> x = np.arange(24).reshape(1, 4, 6, 1)
    >>> bool(np.all(unpatchify(patchify(x, 2), 2, (2, 3)) == x))
    True
    """
    grid = tuple(grid)
    sizes = patch_sizes(patch_size, len(grid), "unpatchify")
    pixels, values, shape = math.prod(sizes), patches.shape[-1], ops.shape(patches)
    rule = (
        f"unpatchify: `patches` must have shape (batch, {math.prod(grid)}, c * {pixels}) for "
        f"grid={grid} and patch_size={sizes}."
    )
    patches = require(patches, [len(shape) == 3 and values is not None], rule)
    fits = [divides(pixels, values), same(shape[1], math.prod(grid))]
    patches = require(patches, fits, rule)
    dims = len(grid)
    x = ops.reshape(patches, (-1, *grid, *sizes, values // pixels))
    order = [
        axis
        for pair in zip(range(1, dims + 1), range(dims + 1, 2 * dims + 1), strict=True)
        for axis in pair
    ]
    x = ops.transpose(x, (0, *order, 2 * dims + 1))  # (batch, rows, P, columns, P, c)
    extents = [number * size for number, size in zip(grid, sizes, strict=True)]
    return ops.reshape(x, (-1, *extents, values // pixels))


def patch_sizes(patch_size: int | Sequence[int], dims: int, owner: str) -> tuple[int, ...]:
    """`patch_size` as a tuple with an int for each of `dims` axes."""
    if dims not in AXES:
        raise ValueError(
            f"{owner}: the input must have 1, 2 or 3 axes between batch and channels. "
            f"Received: {dims}"
        )
    given: Any = patch_size
    sizes = tuple(given) if isinstance(given, (tuple, list)) else (given,) * dims
    if len(sizes) != dims or not all(isinstance(size, int) and size > 0 for size in sizes):
        raise ValueError(
            f"{owner}: `patch_size` must be a positive integer, or {dims} of them for "
            f"{AXES[dims]}. Received: {patch_size!r}"
        )
    return sizes


def check_grid(owner: str, shape: Any, sizes: Sequence[int]) -> None:
    """Raises ValueError unless whole patches fill the input, where its extents are known."""
    for extent, size in zip(shape[1:-1], sizes, strict=True):
        if isinstance(extent, int) and (extent < size or extent % size):
            problem = "smaller than a patch" if extent < size else "not a multiple of the patch"
            raise ValueError(f"{_rule(owner, sizes)} Received: shape {tuple(shape)}, {problem}")


def _rule(owner: str, sizes: Sequence[int]) -> str:
    return (
        f"{owner}: each of {AXES[len(sizes)]} must be a multiple of the patch size {sizes}; resize "
        "or pad the input."
    )
