"""Sentences with a tag for each word, and with everything that is left out counted."""

import collections
import dataclasses
import pathlib
from collections.abc import Iterable, Sequence
from typing import Any, Self

import numpy as np

from keras_transformers.entities import OUTSIDE
from keras_transformers.splits import held_out
from keras_transformers.tables import Chosen, Column, account, ending, holds_lists, read_rows
from keras_transformers.text.conll import ENDINGS as CONLL
from keras_transformers.text.conll import is_conll, read_conll

WORDS = Column(("tokens", "words", "text", "sentence"), "labels")
TAGS = Column(("tags", "ner_tags", "labels", "label"), "labels")


@dataclasses.dataclass(frozen=True)
class TaggedCorpus:
    """Sentences, a tag for each of their words, and an account of what was left out.

    Args:
        name: Where they come from, for messages.
        words: A list of str for each sentence.
        tags: The same, of as many.
        left_out: Dict of reason -> number of sentences left out.
        noted: The same of what was kept.

    Example:
    >>> from keras_transformers.text import TaggedCorpus
    >>> corpus = TaggedCorpus("toy", [["Angela", "smiles"]], [["B-PER", "O"]])
    >>> corpus.summary(), corpus.classes()
    ('toy: 1 sentences of 2 words, 2 tags', ['O', 'B-PER'])
    """

    name: str
    words: list[list[str]]
    tags: list[list[str]]
    left_out: dict[str, int] = dataclasses.field(default_factory=dict)
    noted: dict[str, int] = dataclasses.field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.words)

    def classes(self) -> list[str]:
        """The tags that occur, sorted, "O" first."""
        found = {tag for sentence in self.tags for tag in sentence}
        if all(tag.isdecimal() for tag in found):
            return sorted(found, key=int)
        return sorted(found, key=lambda tag: (tag != OUTSIDE, tag))

    def summary(self) -> str:
        """One line: how much there is, what was left out, and what is worth a look."""
        words = sum(map(len, self.words))
        line = (
            f"{self.name}: {len(self):,} sentences of {words:,} words, {len(self.classes())} tags"
        )
        return line + account(left_out=self.left_out, kept_but_worth_knowing=self.noted)

    def select(self, positions: Iterable[int]) -> Self:
        """The sentences at these positions, as a corpus."""
        chosen = list(positions)
        words, tags = ([each[i] for i in chosen] for each in (self.words, self.tags))
        return dataclasses.replace(self, words=words, tags=tags)

    def split(self, seed: int = 0) -> tuple[Self, Self]:
        """Two corpora: what is learned from, and what `splits.held_out` chooses by the words."""
        chosen = held_out([" ".join(words) for words in self.words], seed)
        first, second = (
            dataclasses.replace(self.select(np.flatnonzero(part)), left_out={}, noted={})
            for part in (~chosen, chosen)
        )
        return first, second

    def within(self, classes: Sequence[str]) -> Self:
        """The sentences whose tags are all among these; the others are left out, and counted."""
        known = set(classes)
        there = [i for i, tags in enumerate(self.tags) if known.issuperset(tags)]
        left_out = collections.Counter(self.left_out)
        left_out["with a tag that is not in the training set"] += len(self) - len(there)
        return dataclasses.replace(self.select(there), left_out=dict(+left_out)).checked()

    def checked(self) -> Self:
        """The corpus itself; ValueError if there is nothing in it."""
        if not self.words:
            raise ValueError(
                f"{self.summary()}. There is nothing to learn from: each row must hold words and "
                "as many tags, or a word and its tag with a blank line between sentences."
            )
        return self


def read_tagged(data: Any, columns: Chosen = None) -> TaggedCorpus:
    r"""Reads sentences with a tag for each word.

    Args:
        data: The path of a file with a word and its tag in each row, see `conll.read_conll`: a
            `.conll`, `.conllu` or `.txt` file, or a `.tsv` file of that kind. Or a table, see
            `tables.read_rows`, with columns `tokens` and `tags` (or `ner_tags`, `labels`): lists of
            str, or texts in which blanks stand between words and between tags. Numbers for tags are
            known by their names where a Hugging Face dataset has such.
        columns: Names, or positions from 0, of words and tags, where they have others.

    Returns:
        A `TaggedCorpus`. Rows that are empty, or whose words and tags are not as many, are left out
        and counted.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If it cannot be read as such, or holds no usable sentence.
        TypeError: If `data` is no table.

    Example:
    >>> from keras_transformers.text import read_tagged
    >>> whole, broken = (["Hi", "Bo"], ["O", "B-PER"]), (["Hi"], [])
    >>> read_tagged([whole, broken]).summary()
    'the list: 1 sentences of 2 words, 2 tags; left out: 1 with other numbers of words and tags'
    """
    noted: dict[str, int] = {}
    if isinstance(data, str | pathlib.PurePath) and is_conll(data):
        name = pathlib.Path(data).name
        pairs, left_out, noted = read_conll(data, columns)
    else:
        rows = read_rows(data, (WORDS, TAGS), "words TAB tags", columns)
        name, left_out = rows.name, rows.left_out
        pairs = [(_parts(words), _parts(tags)) for _, (words, tags) in rows.kept]
    kept = []
    for words, tags in pairs:
        if not words and not tags:
            left_out["empty"] += 1
        elif len(words) != len(tags):
            left_out["with other numbers of words and tags"] += 1
        elif not all(tag.strip() for tag in tags):
            left_out["with an empty tag"] += 1
        else:
            kept.append((words, [tag.strip() for tag in tags]))
    both = [words for words, _ in kept], [tags for _, tags in kept]
    return TaggedCorpus(name, *both, left_out=dict(+left_out), noted=noted).checked()


def holds_tags(data: Any, columns: Chosen = None) -> bool:
    """Whether what is to be learned is a tag for each word: a `.conll` file, or lists of words.

    Example:
    >>> from keras_transformers.text.tagged import holds_tags
    >>> tagged = [{"tokens": ["a"], "tags": ["O"]}]
    >>> [holds_tags(data) for data in (tagged, [{"text": "a", "label": "b"}], "a.conll")]
    [True, False, True]
    """
    if isinstance(data, str | pathlib.PurePath) and ending(data) in CONLL:
        return True
    return holds_lists(data, WORDS, columns)


def _parts(cell: str | list[str]) -> list[str]:
    return cell.split() if isinstance(cell, str) else cell
