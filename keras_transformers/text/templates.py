"""What is put around texts, and where they are cut: post-processors of `tokenizer.json`."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import tensorflow as tf

Marks = tuple[int, ...]
STRATEGIES = ("LongestFirst", "OnlyFirst", "OnlySecond")


@dataclasses.dataclass(frozen=True)
class Template:
    """Ids before, between and after one text or a pair.

    Args:
        before, after: Of one text.
        pair: Before the first, between the two, and after the second.
    """

    before: Marks = ()
    after: Marks = ()
    pair: tuple[Marks, Marks, Marks] = ((), (), ())


def read_template(part: Any) -> Template:
    """The template that a post-processor is.

    Raises:
        ValueError: If it is another thing.
    """
    kind = None if part is None else part.get("type")
    if kind in (None, "ByteLevel"):
        return Template()
    if kind == "Sequence":
        found = [read_template(each) for each in part["processors"]]
        marked = [each for each in found if each != Template()]
        if len(marked) > 1:
            raise ValueError("the post-processor Sequence: only one may put marks around a text")
        return marked[0] if marked else Template()
    if kind in ("BertProcessing", "RobertaProcessing"):
        end, start = (int(part[name][1]) for name in ("sep", "cls"))
        between = (end,) if kind == "BertProcessing" else (end, end)
        return Template((start,), (end,), ((start,), between, (end,)))
    if kind == "TemplateProcessing":
        return _of_pieces(part)
    raise ValueError(f"the post-processor {kind}: it is not known here")


def _of_pieces(part: Mapping[str, Any]) -> Template:
    special = part.get("special_tokens") or {}
    found: dict[str, list[Marks]] = {}
    for name, texts in (("single", "A"), ("pair", "AB")):
        marks: list[list[int]] = [[]]
        order = ""
        for piece in part[name]:
            if "Sequence" in piece:
                order += piece["Sequence"]["id"]
                marks.append([])
            else:
                marks[-1] += special[piece["SpecialToken"]["id"]]["ids"]
        if order != texts:
            raise ValueError(
                f"the post-processor TemplateProcessing: `{name}` must have each text once, in "
                f"order. Received: {order}"
            )
        found[name] = [tuple(each) for each in marks]
    before, after = found["single"]
    first, between, last = found["pair"]
    return Template(before, after, (first, between, last))


@dataclasses.dataclass(frozen=True)
class Truncation:
    """Where long texts are cut.

    Args:
        max_length: Most ids, marks among them.
        strategy: Of a pair, "LongestFirst", "OnlyFirst" or "OnlySecond".
        left: Whether the beginning is cut off, not the end.
    """

    max_length: int
    strategy: str = "LongestFirst"
    left: bool = False

    def __call__(self, ids: tf.RaggedTensor, marks: int) -> tf.RaggedTensor:
        """Ragged ids, cut so that they and so many marks fit."""
        most = max(self.max_length - marks, 0)
        return self._cut(ids, tf.fill([ids.nrows()], tf.cast(most, tf.int64)))

    def of_pair(
        self, one: tf.RaggedTensor, other: tf.RaggedTensor, marks: int
    ) -> tuple[tf.RaggedTensor, tf.RaggedTensor]:
        """Both texts of pairs, cut so that they and so many marks fit."""
        most = tf.cast(max(self.max_length - marks, 0), tf.int64)
        first, second = one.row_lengths(), other.row_lengths()
        over = tf.maximum(first + second - most, 0)
        if self.strategy == "OnlyFirst":
            first = tf.maximum(first - over, 0)
        elif self.strategy == "OnlySecond":
            second = tf.maximum(second - over, 0)
        else:
            first, second = _longest_first(first, second, most, over)
        return self._cut(one, first), self._cut(other, second)

    def _cut(self, ids: tf.RaggedTensor, lengths: tf.Tensor) -> tf.RaggedTensor:
        position = tf.range(tf.size(ids.values, tf.int64)) - tf.gather(
            ids.row_splits, ids.value_rowids()
        )
        kept = tf.minimum(lengths, ids.row_lengths())
        row = ids.value_rowids()
        if self.left:
            inside = position >= tf.gather(ids.row_lengths() - kept, row)
        else:
            inside = position < tf.gather(kept, row)
        return tf.ragged.boolean_mask(ids, ids.with_values(inside))


def _longest_first(
    first: tf.Tensor, second: tf.Tensor, most: tf.Tensor, over: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """Lengths of the two texts of pairs, of which the longer is cut until both are equal."""
    shorter = tf.minimum(first, second)
    # The longer takes what the shorter leaves; if that is less than the shorter has, half each.
    rest = tf.maximum(most - shorter, 0)
    halves = rest < shorter
    low, high = tf.where(halves, most // 2, shorter), tf.where(halves, most - most // 2, rest)
    swapped = first > second
    one, other = tf.where(swapped, high, low), tf.where(swapped, low, high)
    return tf.where(over > 0, one, first), tf.where(over > 0, other, second)


def read_truncation(part: Any) -> Truncation | None:
    """The truncation that a file asks for; ValueError if it is another thing."""
    if part is None:
        return None
    strategy = part.get("strategy", "LongestFirst")
    if strategy not in STRATEGIES:
        raise ValueError(
            f"truncation: `strategy` must be one of {STRATEGIES}. Received: {strategy}"
        )
    return Truncation(int(part["max_length"]), strategy, part.get("direction") == "Left")
