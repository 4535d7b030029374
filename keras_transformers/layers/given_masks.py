"""Masks as callers give them: which are taken, and what their axes are."""

from keras_transformers.layers.errors import named, refuse
from keras_transformers.layers.masks import as_mask, combine_masks


def given_padding(layer, x, **masks):
    """Padding masks as one bool mask, after checking that each fits; None where all are None.

    Args:
        layer: Whose arguments they are.
        x: The tensor that they are of, `(batch, length, hidden_dim)`.
        **masks: `(batch, length)`, as many axes as `x` has without its last, by the names that
            `layer` gives them.
    """
    known = []
    for name, mask in masks.items():
        if mask is not None:
            mask = as_mask(mask, named(layer, name))
            if not _fits(mask.shape, x.shape[:-1]):
                axes = "(batch, length)" if len(x.shape) == 3 else "like `x` without its last axis"
                expected = f"of shape {axes}, {tuple(x.shape[:-1])}"
                refuse(layer, name, expected, f"shape {tuple(mask.shape)}")
            known.append(mask)
    return combine_masks(*known)


def given_pairs(layer, name, given, full, is_mask=True):
    """A mask or bias of pairs of tokens with an axis for the heads; None of None.

    Of two axes, `(queries, keys)` is meant. Where they could as well be `(batch, keys)`, a padding
    mask in the wrong argument, it is refused: both readings run, and one is wrong.

    Args:
        layer: Whose argument it is.
        name: What that calls it.
        given: `(queries, keys)`, `(batch, queries, keys)` or `(batch, heads, queries, keys)`; axes
            may be 1.
        full: What the last is.
        is_mask: Whether it is a mask, and not numbers to add.
    """
    if given is None:
        return None
    if is_mask:
        given = as_mask(given, named(layer, name))
    rank = len(given.shape)
    expected = {2: full[2:], 3: (full[0], *full[2:]), 4: full}.get(rank)
    if expected is None or not _fits(given.shape, expected):
        shape = "(queries, keys), (batch, queries, keys) or (batch, heads, queries, keys)"
        hint = ""
        if rank == 2 and _fits(given.shape, (full[0], full[3])):
            hint = "; a mask (batch, keys) has its query axis left out: `mask[:, None]`"
        refuse(layer, name, f"of shape {shape} = {full}{hint}", f"shape {tuple(given.shape)}")
    if rank == 2 and _may_be_rows(given.shape[0], full[0]):
        expected = (
            "of three axes where two could be (queries, keys) or (batch, keys): `mask[None]` for "
            "the first, `mask[:, None]` for the second"
        )
        refuse(layer, name, expected, f"shape {tuple(given.shape)}, batch {full[0]}")
    return given[:, None] if rank == 3 else given


def _fits(shape, expected):
    """Whether a shape broadcasts to the expected one, as far as both are known."""
    return len(shape) == len(expected) and all(
        None in (have, want) or have in (1, want)
        for have, want in zip(shape, expected, strict=True)
    )


def _may_be_rows(size, batch):
    """Whether an axis may be the batch; of size 1 both readings say the same."""
    return size != 1 and size == batch


def hidden_from_all(mask):
    """Bool `(batch or 1, 1, keys, 1)` of a mask that says the same for all queries and heads.

    None of any other; `mask` is from `given_pairs`.
    """
    if mask is None or any(size != 1 for size in mask.shape[-3:-1]):
        return None
    return mask[None, :, :, None] if len(mask.shape) == 2 else mask[:, 0, :, :, None]
