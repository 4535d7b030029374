"""Tokenizers of translators between many languages: which there are, and the marks of each."""

import dataclasses
from collections.abc import Mapping
from typing import Self

from keras_transformers.text.templates import Marks


@dataclasses.dataclass(frozen=True)
class Languages:
    """The languages of a translator of many, and the two that are translated between.

    Each has a token, which stands in front of a text or behind its END.

    Args:
        tokens: Dict of code -> token of the vocabulary.
        source: Code of the language of the texts.
        target: Code of the language to translate to, or None where nobody has said it.
        behind: Whether the token stands behind END, as in mBART's first version.

    Raises:
        ValueError: If a code is not one of `tokens`.

    Example:
    >>> from keras_transformers.text import Languages
    >>> Languages({"en": "__en__", "fr": "__fr__"}, source="en", target="fr").source
    'en'
    """

    tokens: Mapping[str, str]
    source: str
    target: str | None = None
    behind: bool = False

    def __post_init__(self) -> None:
        for name in ("source", "target"):
            code = getattr(self, name)
            if code not in self.tokens and not (code is None and name == "target"):
                raise ValueError(
                    f"Languages: `{name}` must be one of {', '.join(self.tokens)}. "
                    f"Received: {code!r}"
                )


class Multilingual:
    """What tokenizers have in common that may have languages.

    A class must have the attributes `languages`, `language_ids` and `end_id`, and override
    `with_languages`.
    """

    languages: Languages | None
    language_ids: Mapping[str, int]  # code -> id of its token
    end_id: int

    def with_languages(self, languages: Languages) -> Self:
        """Hook: the same tokenizer with other languages."""
        raise NotImplementedError

    def for_targets(self) -> Self:
        """The tokenizer of the other language: what a model is trained to write.

        Raises:
            ValueError: If there are many languages, and nobody has said which; see `between`.
        """
        if self.languages is None:
            return self
        if self.languages.target is None:
            raise ValueError(
                f"{type(self).__name__}.for_targets: `languages` must have a `target`. "
                "Received: None"
            )
        return self.between(self.languages.target, None)

    def between(self, source: str, target: str | None) -> Self:
        """The tokenizer of a translator from one language to another, named by their codes.

        Raises:
            ValueError: If there is no such language, or there are none.
        """
        if self.languages is None:
            raise ValueError(f"{type(self).__name__}.between: this tokenizer has no languages.")
        changed = dataclasses.replace(self.languages, source=source, target=target)
        return self.with_languages(changed)

    @property
    def language_id(self) -> int | None:
        """Id of the token of the language to translate to; None where there is none."""
        if self.languages is None or self.languages.target is None:
            return None
        return self.language_ids[self.languages.target]

    def _language_start(self) -> int:
        """What decoding starts with: END, or the target's token where that stands behind END."""
        assert self.languages is not None
        if not self.languages.behind:
            return self.end_id
        return self.language_ids[self.languages.target or self.languages.source]

    def _language_marks(self) -> tuple[Marks, Marks]:
        """Ids before and behind a text in the source's language."""
        assert self.languages is not None
        language = self.language_ids[self.languages.source]
        if self.languages.behind:
            return (), (self.end_id, language)
        return (language,), (self.end_id,)
