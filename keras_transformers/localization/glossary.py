"""Terms, and the phrases that must stand for them in a translation."""

import re
from collections.abc import Iterable, Mapping
from typing import Self

from keras_transformers.core.types import StrPath
from keras_transformers.core.words import words_of
from keras_transformers.data.table_files import read_bytes

_HANGUL = re.compile(r"[\uac00-\ud7a3]")
# Particles that Korean writes at the end of a noun.
_PARTICLES = (
    "을 를 이 가 은 는 의 에 에서 에게 한테 께 로 으로 와 과 랑 이랑 하고 도 만 까지 부터 처럼 "
)
_PARTICLES += "보다 나 이나 라도 이라도 마다 조차 밖에 들 들을 들이 들은 들의 입니다 이다"
PARTICLES = tuple(sorted(_PARTICLES.split(), key=len, reverse=True))


def _matches(term_word: str, word: str) -> bool:
    """True if a word of a term is a word of a sentence; small letters match large ones, too."""
    is_small = term_word == term_word.lower()
    return term_word == word or is_small and term_word.casefold() == word.casefold()


class Glossary:
    """Terms of a source language, and the phrases that must stand for them.

    A term is found where its words stand one behind the other, whatever white space is between
    them; never inside a word, to which vowel signs and other combining marks belong. In scripts
    without spaces between words (Chinese, Japanese, Thai) it is found anywhere, but inside no
    longer run of Katakana, and in Korean also before a particle ("네트워크를"). All forms of
    Unicode and of the apostrophe are alike. Small letters match large ones, too: "open" finds
    "Open". A word of the term with a large letter is found only as it is written. Of several terms
    that begin at one word the longest counts, and the search goes on behind it.

    Args:
        terms: Dict of term -> phrase, or an iterable of `(term, phrase)` and `(term, phrase,
            language)`, "de" or "en-de".

    Raises:
        ValueError: If a term or a phrase is empty, or one term has two phrases.

    Example:
    >>> from keras_transformers.localization import Glossary
    >>> glossary = Glossary({"network": "Netz", "network device": "Netzgerät", "Home": "Home"})
    >>> glossary.find("Network device at home, in the network.")
    ['Netzgerät', 'Netz']
    >>> Glossary([("yes", "ja", "de"), ("yes", "oui", "fr")]).towards("fr").find("Yes!")
    ['oui']
    """

    def __init__(self, terms: Mapping[str, str] | Iterable[tuple[str, ...]]) -> None:
        rows = terms.items() if isinstance(terms, Mapping) else terms
        self._terms: dict[tuple[str, tuple[str, ...]], str] = {}
        for row in rows:
            term, phrase, *language = (str(cell).strip() for cell in row)
            words = tuple(words_of(term))
            if not words or not phrase or len(language) > 1:
                raise ValueError(
                    "Glossary: a row must have a term, a phrase, and perhaps a language. "
                    f"Received: {tuple(row)}"
                )
            key = ("".join(language), words)
            if self._terms.setdefault(key, phrase) != phrase:
                raise ValueError(
                    f"Glossary: a term must have one phrase. Received for {term!r}: "
                    f"{self._terms[key]!r} and {phrase!r}"
                )
        self._by_words: dict[tuple[str, ...], list[tuple[tuple[str, ...], str]]] = {}
        for (_, words), phrase in self._terms.items():
            folded = tuple(word.casefold() for word in words)
            self._by_words.setdefault(folded, []).append((words, phrase))
        self._sizes = sorted({len(words) for words in self._by_words}, reverse=True)

    @classmethod
    def read(cls, path: StrPath) -> Self:
        """Reads a file of lines: a term, a tab, its phrase; perhaps a tab and a language.

        Raises:
            ValueError: If a line is something else, or the file is not UTF-8; with its number.
        """
        rows = []
        lines = read_bytes(path, "glossary").decode("utf-8-sig").splitlines()
        for number, line in enumerate(lines, 1):
            cells = [cell.strip() for cell in line.split("\t")]
            if not any(cells):
                continue
            if len(cells) not in (2, 3) or not all(cells):
                raise ValueError(
                    f"Glossary: line {number} of {path} must be a term, a tab and a phrase, "
                    f"perhaps a tab and a language. Received: {line[:60]!r}"
                )
            rows.append(tuple(cells))
        return cls(rows)

    def __len__(self) -> int:
        return len(self._terms)

    @property
    def languages(self) -> tuple[str, ...]:
        """Languages that the terms name."""
        return tuple(sorted({language for language, _ in self._terms if language}))

    def towards(self, language: str) -> "Glossary":
        """Returns the terms of one target language or direction, and those that name none."""
        terms = [
            (" ".join(words), phrase)
            for (direction, words), phrase in self._terms.items()
            if direction in ("", language) or direction.rpartition("-")[2] == language
        ]
        return Glossary(terms)

    def find(self, sentence: str) -> list[str]:
        """Returns the phrases that a translation must hold, in the order of the sentence's terms.

        Raises:
            ValueError: If the glossary names languages, see `towards`.
        """
        if self.languages:
            raise ValueError(
                "Glossary: say which of the languages is meant, as `glossary.towards"
                f"({self.languages[0]!r})`. There are: {', '.join(self.languages)}"
            )
        words = words_of(sentence)
        folded = [word.casefold() for word in words]
        phrases, at = [], 0
        while at < len(words):
            size, phrase = self._longest_term(words[at:], folded[at:])
            phrases += [] if phrase is None else [phrase]
            at += size
        return phrases

    def _longest_term(self, words: list[str], folded: list[str]) -> tuple[int, str | None]:
        """Returns the number of words of the longest term at their beginning, and its phrase."""
        for size in self._sizes:
            if size > len(words):
                continue
            for last in _word_stems(words[size - 1]):
                spelled = (*words[: size - 1], last)
                key = (*folded[: size - 1], last.casefold())
                for term, phrase in self._by_words.get(key, ()):
                    pairs = zip(term, spelled, strict=True)
                    if all(_matches(term_word, word) for term_word, word in pairs):
                        return size, phrase
        return 1, None


def _word_stems(word: str) -> list[str]:
    """Returns a word, and a Korean word also without each particle that it ends in."""
    if not _HANGUL.match(word):
        return [word]
    ends = [particle for particle in PARTICLES if word.endswith(particle)]
    return [word, *(word.removesuffix(end) for end in ends if len(word) > len(end))]
