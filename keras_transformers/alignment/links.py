"""Which words of a translation stand for which words of its source, by cross-attention."""

from collections.abc import Sequence
from typing import Any, Literal

import keras
import numpy as np

from keras_transformers.alignment.pairs import Marks, Pairs
from keras_transformers.alignment.pharaoh import Links
from keras_transformers.annotations import Array, Tokenizer
from keras_transformers.inspection import attention_maps
from keras_transformers.models import AlignmentHead

ROWS = 64  # pairs that are looked at together
BLOCK = "cross_attention"


def align_words(
    model: keras.Model,
    tokenizer: Tokenizer,
    sources: Sequence[str],
    targets: Sequence[str],
    layer: int | None = None,
    heads: Sequence[int] | None = None,
    at: Literal["input", "output"] = "output",
    learned: AlignmentHead | None = None,
    target_marks: Marks | None = None,
) -> list[Links]:
    """Links the words of translations to those words of their sources that are attended to most.

    Words are what white space divides. The weights of one decoder block's cross-attention are
    averaged over heads (Garg et al. 2019, https://arxiv.org/abs/1909.02074, section 3); of the
    pieces of a source word the one that is attended to most counts, those of a target word are
    added up. Each target word is linked to the source word with the most, or to none where END and
    other marks have more. A piece's query is the one that produces it, or the one that reads it, a
    position later (Chen et al. 2020, https://arxiv.org/abs/2004.14837, section 3.1). What suits a
    model can be measured alone, by `training.alignment_error_rate`: the defaults are what suits the
    model of `recipes.translation`, which has three blocks.

    With a `learned` head, of `learn_alignment`, its weights are taken in place of a block's; they
    are far better links.

    Args:
        model: A `models.Transformer`, or another with `decoder_blocks` and source and target ids.
        tokenizer: Its tokenizer; of several languages one `towards` the targets'.
        sources, targets: Lists of str of one length.
        layer: Number of the decoder block, from 0; by default the last.
        heads: Numbers of the heads that are averaged; by default all.
        at: "output", the query that produces a piece; "input", the one that reads it.
        learned: A head that has learned links with this model; it decides in place of `layer`,
            `heads` and `at`, which must then have their defaults.
        target_marks: Ids before and behind each target, as the model knows them; by default the
            tokenizer's START and END.

    Returns:
        For each pair the links `(source word, target word)`, from 0, by target word.

    Raises:
        ValueError: If the lists differ in length, there is no such layer or head, one is given
            beside a `learned` head, or the tokenizer cuts a text so that its pieces cannot be told
            apart by words.

    Example:
    >>> from keras_transformers.alignment import align_words, pharaoh
    >>> from keras_transformers.models import Transformer
    >>> from keras_transformers.text import SentencePieceTokenizer
    >>> tokenizer = SentencePieceTokenizer.train(["a cat sat on a mat"] * 9, vocab_size=14)
    >>> model = Transformer(14, hidden_dim=8, num_heads=2, mlp_dim=16, num_layers=1)
    >>> (links,) = align_words(model, tokenizer, ["a"], ["a"])
    >>> pharaoh(links) in ("0-0", "")
    True
    """
    pairs = Pairs("align_words", tokenizer, sources, targets, target_marks)
    if at not in ("input", "output"):
        raise ValueError(f'align_words: `at` must be "input" or "output". Received: {at!r}')
    if learned is None:
        match = f"{_block(model, layer).name}/{BLOCK}"
    elif (layer, heads, at) != (None, None, "output"):
        raise ValueError(
            "align_words: `layer`, `heads` and `at` must have their defaults beside a `learned` "
            f"head. Received: {layer}, {heads}, {at!r}"
        )
    found: list[Links] = [[] for _ in sources]
    order = np.argsort(pairs.lengths, kind="stable")
    for start in range(0, len(order), ROWS):
        rows = order[start : start + ROWS]
        ids = pairs.ids(rows, model.padding_id)
        if learned is None:
            (weights,) = attention_maps(model, ids, match).values()
            weights = _averaged(weights, heads)
        else:
            weights = keras.ops.convert_to_numpy(keras.ops.softmax(learned.scores(model, ids)))
        for row, each in zip(rows, weights, strict=True):
            found[row] = pairs.links(row, each, at)
    return found


def _block(model: Any, layer: int | None) -> Any:
    blocks = getattr(model, "decoder_blocks", None)
    if not blocks:
        raise ValueError(
            "align_words: `model` must have decoder blocks with cross-attention. "
            f"Received: {type(model).__name__}"
        )
    chosen = len(blocks) - 1 if layer is None else layer
    if not 0 <= chosen < len(blocks):
        raise ValueError(
            f"align_words: `layer` must be from 0 to {len(blocks) - 1}. Received: {layer}"
        )
    return blocks[chosen]


def _averaged(weights: Array, heads: Sequence[int] | None) -> Array:
    """The mean over heads of `(batch, heads, queries, keys)`."""
    number = weights.shape[1]
    if heads is not None and (not heads or not all(0 <= head < number for head in heads)):
        raise ValueError(
            f"align_words: `heads` must be some of 0 to {number - 1}. Received: {heads}"
        )
    return weights[:, slice(None) if heads is None else list(heads)].mean(axis=1)
