"""WordPiece: BERT's splitting into words, the tokenizer, and the training of a vocabulary.

tensorflow-text runs it in the graph; without it, the package `tokenizers` does.
"""

import collections
import dataclasses
import io
import itertools
import pathlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Self

import keras
import numpy as np
import tensorflow as tf

from keras_transformers.core.imports import needed_by
from keras_transformers.core.types import Array, Strings, StrPath
from keras_transformers.text.cutting import (
    AddedToken,
    AddedTokens,
    numbered,
    read_added,
    valid,
    write_added,
)
from keras_transformers.text.tokenizers import (
    FromDefinition,
    GivenIds,
    check_ops,
    decomposed,
    given_ids,
    given_row,
    given_texts,
    has_ops,
)

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
# What a special token is among the words: a control character, which cleaned text cannot hold.
MARKS = {token: chr(1 + number) for number, token in enumerate(SPECIAL)}
SPACES = r"[\t\n\r\p{Z}]"
NOTHING = r"[\x00\x06-\x1F\x7F-\x9F\p{Cf}\p{Co}\x{FFFD}]"  # the marks, 01 to 05, stay
# 2B820 to 2B91F are missing, as in Hugging Face's, where a 2B820 was typed as 2B920.
IDEOGRAPHS = (
    r"\x{3400}-\x{4DBF}\x{4E00}-\x{9FFF}\x{F900}-\x{FAFF}\x{20000}-\x{2A6DF}"
    r"\x{2A700}-\x{2B81F}\x{2B920}-\x{2CEAF}\x{2F800}-\x{2FA1F}"
)
ALONE = r"([!-/:-@\[-`{-~\p{P}" + IDEOGRAPHS + "])"  # each a word of its own


def bert_words(strings: tf.Tensor, lower_case: bool) -> tf.RaggedTensor:
    """Splits strings into words at spaces, punctuation and ideographs.

    The rules of Devlin et al. 2018 (https://arxiv.org/abs/1810.04805), in the order in which
    Hugging Face's `BertTokenizer` applies them: control characters are left out, accents stripped
    before letters become lower case, and special tokens found before anything else.

    Args:
        strings: String tensor `(batch,)`, UTF-8; bytes that are none are left out.
        lower_case: Whether text becomes lower case and loses its accents.

    Returns:
        String RaggedTensor `(batch, None)`; a special token is its character of `MARKS`.
    """
    text = without_marks(strings)
    for token, mark in MARKS.items():
        text = tf.strings.regex_replace(text, rf"\[{token[1:-1]}\]", f" {mark} ")
    return split_words(normalized(text, lower_case))


def without_marks(strings: Strings) -> tf.Tensor:
    """The strings in valid UTF-8, without the characters that `MARKS` uses."""
    text = tf.strings.unicode_transcode(strings, "UTF-8", "UTF-8", errors="ignore")
    return tf.strings.regex_replace(text, r"[\x01-\x05]", "\x06")


def normalized(text: tf.Tensor, lower_case: bool, ideographs: bool = False) -> tf.Tensor:
    """Text without control characters and accents, in lower case where that is wanted.

    `ideographs` says whether spaces are put around them, as Hugging Face's normaliser does, before
    letters are decomposed; for whoever looks for a token in normalised text.
    """
    replace = tf.strings.regex_replace
    text = replace(replace(text, SPACES, " "), NOTHING, "")
    if ideographs:
        text = replace(text, f"([{IDEOGRAPHS}])", r" \1 ")
    if lower_case:
        text = replace(decomposed(text), r"\p{Mn}", "")
        # Letter by letter: `lower` would make a last sigma of one at a word's end.
        text = tf.strings.lower(replace(text, "Σ", "σ"), "utf-8")
    return text


def split_words(text: tf.Tensor) -> tf.RaggedTensor:
    """Splits normalised text at spaces, and cuts out punctuation and ideographs."""
    return tf.strings.split(tf.strings.regex_replace(text, ALONE, r" \1 "))


def bert_definition(
    vocab: Sequence[str], lower_case: bool, longest: int, added: Iterable[tuple[int, AddedToken]]
) -> dict[str, Any]:
    """What `tokenizer.json` would hold of a tokenizer of BERT's kind.

    Args:
        vocab: The pieces in the order of their ids.
        lower_case: Whether text becomes lower case and loses its accents.
        longest: Characters of the longest word that is cut.
        added: Pairs of id and added token.
    """
    tokens = {each: (vocab.index(each), AddedToken(each, special=True)) for each in SPECIAL}
    tokens |= {token.content: (number, token) for number, token in added}
    model: dict[str, Any] = {
        "type": "WordPiece",
        "unk_token": "[UNK]",
        "continuing_subword_prefix": "##",
    }
    model |= {"max_input_chars_per_word": longest}
    model |= {"vocab": {piece: number for number, piece in enumerate(vocab)}}
    normalizer = {"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True}
    normalizer |= {"strip_accents": None, "lowercase": lower_case}
    return {
        "added_tokens": [
            {"id": number, **dataclasses.asdict(token)}
            for number, token in sorted(tokens.values(), key=lambda pair: pair[0])
        ],
        "normalizer": normalizer,
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "model": model,
    }


@keras.saving.register_keras_serializable("keras_transformers")
class WordPieceTokenizer(tf.Module):
    """Strings to BERT's subword ids and back, inside `tf.data` and SavedModels.

    Text is cleaned of control characters, split at spaces, punctuation and ideographs, and each
    word is cut into the longest pieces of the vocabulary, from the left (Devlin et al. 2018,
    https://arxiv.org/abs/1810.04805; Song et al. 2021, https://arxiv.org/abs/2012.15524). The ids
    are those of Hugging Face's `BertTokenizer`, but for characters which Unicode took up or moved
    to another class after its version 8 of 2015: those follow TensorFlow's newer tables. Text is
    always split, and `##` and the names of the special tokens are BERT's.

    As of a `SentencePieceTokenizer`, `[CLS]` is `start_id` and `[SEP]` is `end_id`.

    Args:
        vocab: The pieces in the order of their ids, as in BERT's `vocab.txt`: `[PAD]` first,
            `[UNK]`, `[CLS]`, `[SEP]` and `[MASK]` anywhere; `##` marks what goes on with a word.
        lower_case: Whether text becomes lower case and loses its accents.
        max_word_length: Characters of the longest word that is cut; a longer one is `[UNK]`.
        added_tokens: `text.AddedToken`s, or dicts of their arguments: what is found in a text as it
            is written, beside the special tokens. Those that `vocab` lacks get the ids behind it.

    Raises:
        ValueError: If a special token is missing, `[PAD]` is not first, or a piece is empty or
            there twice.

    Example:
    >>> from keras_transformers.text import WordPieceTokenizer
    >>> vocab = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "cat", "##s", "sat"]
    >>> tokenizer = WordPieceTokenizer(vocab)
    >>> ids = tokenizer.tokenize(["The cats [MASK]", "sat"], start=True, end=True)
    >>> ids.to_list()
    [[2, 5, 6, 7, 4, 3], [2, 8, 3]]
    >>> [text.decode() for text in tokenizer.detokenize(ids).numpy()]
    ['the cats', 'sat']
    """

    pad_id = 0

    def __init__(
        self,
        vocab: Sequence[str],
        lower_case: bool = True,
        max_word_length: int = 100,
        added_tokens: Sequence[AddedToken | dict[str, Any]] = (),
        name: str | None = None,
    ) -> None:
        super().__init__(name=name)
        vocab = list(vocab)
        _check(vocab)
        self.lower_case, self.max_word_length = lower_case, max_word_length
        self.added_tokens, self._added = read_added("WordPieceTokenizer", added_tokens), None
        self._learnt = tuple(vocab)
        numbers = numbered({piece: i for i, piece in enumerate(vocab)}, self.added_tokens)
        if self.added_tokens and has_ops():
            given = [token.content for token in self.added_tokens]
            special = [AddedToken(each, special=True) for each in SPECIAL if each not in given]
            self._added = AddedTokens((*special, *self.added_tokens), numbers, self._normalized)
        self.vocab = tuple(numbers)
        self.added_ids = tuple(self.vocab.index(each.content) for each in self.added_tokens)
        self.vocab_size = len(self.vocab)
        numbers_of_marks = map(vocab.index, SPECIAL[1:])
        self.unknown_id, self.class_id, self.separator_id, self.mask_id = numbers_of_marks
        self.start_id, self.end_id = self.class_id, self.separator_id
        self._host = FromDefinition("WordPieceTokenizer", self._definition)
        if has_ops():
            import tensorflow_text as tf_text

            # With words split already, and no joining of ids; lengths in bytes of UTF-8.
            of = ([MARKS.get(piece, piece) for piece in vocab], 4 * max_word_length)
            try:
                model = tf_text.build_fast_wordpiece_model(*of, "##", MARKS["[UNK]"], True, False)
            except RuntimeError as error:  # of a piece that is too long, or nothing but "##"
                reason = str(error)[:200]
                raise ValueError(f"WordPieceTokenizer: `vocab` has a bad piece: {reason}") from None
            self._model = np.frombuffer(model, np.uint8)

    @classmethod
    def train(cls, strings: Iterable[Any], vocab_size: int = 8000, lower_case: bool = True) -> Self:
        """Learns a vocabulary: special tokens (ids 0 to 4), characters, then pieces by frequency.

        Pieces come from merging the most frequent pairs inside words (Sennrich et al. 2016,
        https://arxiv.org/abs/1508.07909), by `sentencepiece`. BERT's authors did not publish how
        they learnt theirs; Hugging Face's trainer merges pairs, too.

        Args:
            strings: Iterable of str; or of bytes or tensors, as a dataset has them, in UTF-8.
            vocab_size: Number of ids at most; text of few words gives fewer. The characters among
                them are the 1,000 most frequent.
            lower_case: As above.

        Returns:
            A `WordPieceTokenizer`; the same text and arguments always give the same one.

        Raises:
            ValueError: If `strings` are no texts, there is no text, or no room for its characters.
        """
        return cls(learn_vocabulary(strings, vocab_size, lower_case), lower_case)

    @classmethod
    def load(cls, path: StrPath, lower_case: bool = True) -> Self:
        """Reads BERT's `vocab.txt`: a piece a line, the first has id 0.

        Raises:
            FileNotFoundError: If there is no such file.
            ValueError: If it holds no such vocabulary.
        """
        pieces = cls.read(path)
        try:
            return cls(pieces, lower_case)
        except ValueError as error:
            raise _no_vocabulary(path, error) from None

    @staticmethod
    def read(path: StrPath) -> list[str]:
        """The lines of a `vocab.txt`.

        Raises:
            FileNotFoundError, ValueError: As `load`.
        """
        path = pathlib.Path(path)
        if not path.is_file():
            raise FileNotFoundError(f"WordPieceTokenizer.load: there is no file {path}")
        try:
            # Not `splitlines`, which also splits at characters that are pieces.
            return path.read_text(encoding="utf-8-sig").removesuffix("\n").split("\n")
        except ValueError as error:
            raise _no_vocabulary(path, error) from None

    def save(self, path: StrPath) -> None:
        """Writes BERT's `vocab.txt`; `lower_case` and added tokens are not in it."""
        lines = "".join(f"{piece}\n" for piece in self._learnt)
        pathlib.Path(path).write_text(lines, encoding="utf-8", newline="\n")

    def tokenize(
        self, strings: Strings, start: bool = False, end: bool = False, pair: Strings | None = None
    ) -> tf.RaggedTensor | tf.Tensor:
        """Splits strings into ids; a special or added token in the text becomes its id.

        Args:
            strings: String tensor, or list, `(batch,)`, or one string `()`.
            start, end: Whether to put `[CLS]` before and `[SEP]` after.
            pair: Optional second strings, as many: they follow after a `[SEP]`.

        Returns:
            int32 RaggedTensor `(batch, None)`, or a tensor `(length,)` for one string.
        """
        ids = self._ids(tf.convert_to_tensor(strings, tf.string))
        shape = [ids.nrows(), 1] if isinstance(ids, tf.RaggedTensor) else [1]
        parts = [ids]
        if pair is not None:
            second = self._ids(tf.convert_to_tensor(pair, tf.string))
            parts += [tf.fill(shape, self.separator_id), second]
        if start:
            parts.insert(0, tf.fill(shape, self.class_id))
        if end:
            parts.append(tf.fill(shape, self.separator_id))
        return tf.concat(parts, axis=-1)

    def _ids(self, strings: tf.Tensor) -> Any:
        """Ids of strings, without marks around them."""
        text = tf.reshape(strings, [-1])
        if not has_ops():
            ids = self._host.ids(valid(text, errors="ignore"))
        elif self._added is None:
            ids = self._ids_of_words(bert_words(text, self.lower_case))
        else:
            words = lambda text, first: self._ids_of_words(split_words(text))  # noqa: E731
            ids = self._added.ids(without_marks(text), words)
        return ids if strings.shape.rank else ids[0]

    def _definition(self) -> dict[str, Any]:
        added = [(self.vocab.index(token.content), token) for token in self.added_tokens]
        return bert_definition(self._learnt, self.lower_case, self.max_word_length, added)

    def check_exportable(self) -> None:
        """ImportError where it cannot become part of a SavedModel."""
        check_ops("WordPieceTokenizer")

    def _normalized(self, text: tf.Tensor) -> tf.Tensor:
        return normalized(text, self.lower_case, ideographs=True)

    def _ids_of_words(self, words: tf.RaggedTensor) -> tf.RaggedTensor:
        """Ids of ragged words `(batch, None)`, as ragged."""
        length = tf.strings.length(words.flat_values, unit="UTF8_CHAR")
        words = words.with_flat_values(
            tf.where(length > self.max_word_length, MARKS["[UNK]"], words.flat_values)
        )
        import tensorflow_text as tf_text  # only who tokenizes needs it

        # Made anew wherever it is used: a tensor made beforehand could not enter every graph.
        op = tf_text.FastWordpieceTokenizer(
            model_buffer=tf.constant(self._model), token_out_type=tf.int32
        )
        return op.tokenize(words).merge_dims(1, 2)

    def detokenize(self, ids: GivenIds) -> tf.Tensor:
        """Joins ids to strings, words apart; special tokens vanish, as does all from `[SEP]` on.

        Args:
            ids: Integers `(..., length)`, dense, ragged `(batch, None)`, or lists of any lengths.

        Returns:
            String tensor of the shape of `ids` without its last axis.

        Raises:
            ValueError: If an id is not in the vocabulary (in a graph, when it runs,
                `tf.errors.InvalidArgumentError`).
        """
        ids = given_ids("WordPieceTokenizer.detokenize", ids, self.vocab_size, self.pad_id)
        ended = tf.cumsum(tf.cast(ids == self.separator_id, tf.int32), axis=-1) > 0
        marks = {*MARKS, *(token.content for token in self.added_tokens if token.special)}
        special = tf.constant([piece in marks for piece in self.vocab])
        spaced = [piece[2:] if piece.startswith("##") else f" {piece}" for piece in self.vocab]
        pieces = tf.where(ended | tf.gather(special, ids), "", tf.gather(tf.constant(spaced), ids))
        return tf.strings.strip(tf.strings.reduce_join(pieces, axis=-1))

    def pieces(self, ids: GivenIds) -> list[str]:
        """The pieces of one sequence of ids, as a list of str (for the axes of an image).

        Raises:
            ValueError: If an id is not in the vocabulary.
        """
        ids = given_row("WordPieceTokenizer.pieces", ids, self.vocab_size)
        return [self.vocab[index] for index in ids]

    @property
    def special_ids(self) -> tuple[int, ...]:
        """Ids of `[PAD]`, `[UNK]`, `[CLS]`, `[SEP]` and `[MASK]`, a tuple."""
        return tuple(map(self.vocab.index, SPECIAL))

    @property
    def starts_word(self) -> Array:
        """Bool array `(vocab_size,)`: which ids begin a word; all but those with `##`."""
        return np.array([not piece.startswith("##") for piece in self.vocab])

    def get_config(self) -> dict[str, Any]:
        return {
            "vocab": list(self._learnt),
            "lower_case": self.lower_case,
            "max_word_length": self.max_word_length,
            "added_tokens": write_added(self.added_tokens),
        }

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        return cls(**config)


def _no_vocabulary(path: StrPath, error: Exception | str) -> ValueError:
    return ValueError(
        f"WordPieceTokenizer.load: {path} is not a WordPiece vocabulary; give a text file in UTF-8 "
        f"with a piece a line. {error}"
    )


def _check(vocab: Sequence[str]) -> None:
    """Refuses what is no vocabulary of BERT's kind."""
    missing = [token for token in SPECIAL if token not in vocab]
    if missing or vocab[0] != "[PAD]":
        raise ValueError(
            f"WordPieceTokenizer: `vocab` must have [PAD] at id 0, and {', '.join(SPECIAL[1:])}. "
            f"Missing: {missing}; id 0 is {vocab[0] if vocab else None!r}"
        )
    inside = collections.Counter(MARKS.get(piece, piece) for piece in vocab)
    wrong = [piece for piece, count in inside.items() if count > 1 or not piece]
    if wrong:
        raise ValueError(
            "WordPieceTokenizer: `vocab` must have no piece twice and no empty one. "
            f"Received: {wrong[:5]}"
        )


ALPHABET = 1000  # characters that are kept, those at a word's start and inside counted apart
CHUNK = 8192  # strings that are split at a time
RESERVED = {"\u2581", "\u2585"}  # a space and an unknown character, to SentencePiece


def learn_vocabulary(strings: Iterable[Any], vocab_size: int, lower_case: bool) -> list[str]:
    """Pieces in the order of their ids; see `WordPieceTokenizer.train`."""
    strings = given_texts("WordPieceTokenizer.train", strings)
    lines = list(_split(strings, lower_case))
    forms: collections.Counter[str] = collections.Counter()
    for word, count in collections.Counter(itertools.chain(*lines)).items():
        for form in _forms(word):
            forms[form] += count
    alphabet = sorted(forms, key=lambda form: (-forms[form], form))[:ALPHABET]
    if not alphabet:
        raise ValueError("WordPieceTokenizer.train: `strings` has no text in it.")
    least = len(SPECIAL) + len(alphabet)
    if vocab_size < least:
        raise ValueError(
            f"WordPieceTokenizer.train: vocab_size={vocab_size} is less than the number of "
            f"special tokens and characters; use at least {least}."
        )
    known = set(alphabet)
    lines = ([word for word in line if known.issuperset(_forms(word))] for line in lines)
    merged = _merged(lines, vocab_size + least)
    return list(dict.fromkeys([*SPECIAL, *alphabet, *merged]))[:vocab_size]


def _split(strings: Iterable[str], lower_case: bool) -> Iterator[list[str]]:
    """Lists of the words of each string."""
    strings, marks = iter(strings), set(MARKS.values())
    while chunk := list(itertools.islice(strings, CHUNK)):
        for line in bert_words(tf.constant(chunk, tf.string), lower_case).to_list():
            yield [word for word in map(bytes.decode, line) if word not in marks]


def _forms(word: str) -> list[str]:
    """Characters of a word as pieces: the first, then the others with `##`."""
    return [word[0], *(f"##{character}" for character in word[1:])]


def _merged(lines: Iterable[list[str]], count: int) -> list[str]:
    """Pieces of several characters that SentencePiece merges within the words of the lines."""
    with needed_by("WordPieceTokenizer.train"):
        import sentencepiece

    texts = (" ".join(word for word in line if RESERVED.isdisjoint(word)) for line in lines)
    texts = [text for text in texts if text]
    if not texts:
        return []
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(texts),
        model_writer=model,
        vocab_size=count,
        hard_vocab_limit=False,
        model_type="bpe",
        character_coverage=1.0,
        normalization_rule_name="identity",
        split_by_unicode_script=False,
        split_by_number=False,
        unk_id=0,
        bos_id=-1,
        eos_id=-1,
        max_sentence_length=1 << 30,
        num_threads=1,  # more threads make the pieces depend on timing
        minloglevel=2,
    )
    model = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())
    pieces = [model.id_to_piece(number) for number in range(1, len(model))]
    starts = [piece[1:] if piece[0] == "▁" else f"##{piece}" for piece in pieces]
    return [piece for piece in starts if len(piece.removeprefix("##")) > 1]
