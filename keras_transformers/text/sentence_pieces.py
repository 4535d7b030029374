"""SentencePiece in `tf.data` and SavedModels: the tokenizer, its training, and its model file.

The package `sentencepiece` trains. tensorflow-text runs the model in the graph; without it,
`sentencepiece` does. Vocabularies of published models are in `published_pieces`.
"""

import base64
import functools
import io
import pathlib
import re
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, Self, TypeAlias

import keras
import numpy as np
import tensorflow as tf

from keras_transformers.core.imports import needed_by
from keras_transformers.core.types import Array, Strings, StrPath
from keras_transformers.text.tokenizers import (
    Context,
    GivenIds,
    Marks,
    check_ops,
    given_ids,
    given_row,
    given_texts,
    has_ops,
    in_marks,
    joined,
    package,
    ragged,
)

Normalization: TypeAlias = Literal["nmt_nfkc", "nfkc", "nmt_nfkc_cf", "nfkc_cf", "none"]
PAD_ID, START_ID, END_ID, UNKNOWN_ID = 0, 1, 2, 3
SPECIAL = 4  # ids that are no text
LOSSLESS = {
    "byte_fallback": True,
    "add_dummy_prefix": False,
    "remove_extra_whitespaces": False,
    "allow_whitespace_only_pieces": True,
    "user_defined_symbols": ["\n"],
}
MOST_MARKS = 1024  # the marks of languages and tags have ids below it
LANGUAGE = re.compile("<2([A-Za-z0-9_-]+)>")
TAG = re.compile("<[A-Za-z][A-Za-z0-9_-]*>")
NORMALIZATIONS = {"none": "identity"}
NORMALIZATIONS |= {name: name for name in ("nmt_nfkc", "nfkc", "nmt_nfkc_cf", "nfkc_cf")}
# SentencePiece writes U+2581 for a space. One in the text becomes U+0010 1, and U+0010 is doubled.
ESCAPES = (("2581", "10 31"), ("10", "10 10"))


@keras.saving.register_keras_serializable("keras_transformers")
class SentencePieceTokenizer(tf.Module):
    """Strings to subword ids and back, inside `tf.data` and SavedModels.

    Ids: 0 padding, 1 START, 2 END, 3 unknown, then the pieces. Make one with `train` or `load`
    (SentencePiece: Kudo & Richardson 2018, https://arxiv.org/abs/1808.06226).

    A vocabulary can have marks of languages, `<2de>`, for a translator into several: the mark of
    the language that is asked for stands before a source (Johnson et al. 2017,
    https://arxiv.org/abs/1611.04558). Text never becomes one, and `detokenize` leaves them out.

    Args:
        proto: The bytes of a SentencePiece model with the ids above.
        target: Code of the language whose mark stands before a source, of those that the model has
            marks of; None where each text is asked for in one of its own, or there are none.

    Attributes:
        language_marks: Dict of the code of each language -> id of its mark.
        context: `Context`, if there is a mark of previous sentences as `<context2>`; or None.
        tags: Dict of each other mark, as "<bt>" -> its id.

    Raises:
        ValueError: If the model numbers its special tokens otherwise, or has no mark of `target`.

    Example:
    >>> from keras_transformers.text import SentencePieceTokenizer
    >>> lines = ["the cat sat on the mat", "the dog sat on the log"] * 20
    >>> tokenizer = SentencePieceTokenizer.train(lines, vocab_size=20)
    >>> ids = tokenizer.tokenize(["the cat", ""], end=True)
    >>> [text.decode() for text in tokenizer.detokenize(ids).numpy()]
    ['the cat', '']
    """

    pad_id, start_id, end_id, unknown_id = PAD_ID, START_ID, END_ID, UNKNOWN_ID

    def __init__(self, proto: bytes, target: str | None = None, name: str | None = None) -> None:
        super().__init__(name=name)
        self.proto = bytes(proto)
        self._model = SentencePieces("SentencePieceTokenizer", self.proto)
        self.vocab_size = self._model.size
        piece_ids = self._model.numbers(["<pad>", "<s>", "</s>", "<unk>"])
        if piece_ids != [PAD_ID, START_ID, END_ID, UNKNOWN_ID]:
            raise ValueError(
                "SentencePieceTokenizer: the model must number <pad>, <s>, </s>, <unk> as 0, 1, 2, "
                f"3. Received: {piece_ids}. Train one with SentencePieceTokenizer.train."
            )
        first = UNKNOWN_ID + 1
        pieces = self._model.names(range(first, min(self.vocab_size, MOST_MARKS)))
        self.language_marks = marks_of_languages(pieces, first)
        self.tags = self._model.controls(TAG, pieces, first)
        self.context = Context.of_tags(self.tags)
        if target is not None and target not in self.language_marks:
            known = ", ".join(self.language_marks) or "none, the vocabulary has no marks"
            raise ValueError(
                f"SentencePieceTokenizer: `target` must be one of {known}. Received: {target!r}"
            )
        self.target = target

    @classmethod
    def train(
        cls,
        strings: Iterable[Any],
        vocab_size: int = 4000,
        model_type: Literal["unigram", "bpe"] = "unigram",
        character_coverage: float = 1.0,
        byte_fallback: bool = False,
        lossless: bool = False,
        normalization: Normalization = "nmt_nfkc",
        languages: Sequence[str] = (),
        tags: Sequence[str] = (),
    ) -> Self:
        """Learns a vocabulary.

        Args:
            strings: Iterable of str, one sentence each; for translation, both sides. Bytes or
                tensors, as a dataset has them, are read as UTF-8.
            vocab_size: Number of ids, special ones included.
            model_type: "unigram" (Kudo 2018, https://arxiv.org/abs/1804.10959) or "bpe".
            character_coverage: Share of characters that must be in the vocabulary; 0.9995 for
                languages with thousands of characters.
            byte_fallback: Whether characters outside the vocabulary become their UTF-8 bytes, for
                which 256 ids are set aside, instead of the one unknown id.
            lossless: Whether text is kept to the byte: no character is normalised, no space left
                out or added, each newline is an id of its own, and `byte_fallback` is on. Then
                `detokenize(tokenize(text)) == text` for any valid UTF-8 and nothing is unknown, so
                that a language model's bits per byte count every byte. Pieces are learnt from the
                lines of `strings`, which may be whole documents.
            normalization: What is done to characters before: "nmt_nfkc", SentencePiece's own
                ("…" becomes "...", full-width punctuation that of ASCII, and joiners of zero width
                are dropped), "nfkc", either with "_cf" behind it, which folds the case of letters
                too, or "none". Of no effect on a lossless one.
            languages: Codes of languages, each of which gets a mark: "de" gets `<2de>`.
            tags: Other marks, as "<bt>", that no text becomes either; see the attribute `tags`.

        Returns:
            A `SentencePieceTokenizer`; the same text and arguments always give the same one.

        Raises:
            ValueError: If `strings` are no texts, there is no text, or too little of it for
                `vocab_size`; or a language or tag is there twice, or none.
        """
        check_choices(model_type, normalization)
        strings = given_texts("SentencePieceTokenizer.train", strings)
        if lossless:
            strings = (line for text in strings for line in text.split("\n"))
        strings = [line for line in strings if line.strip()]
        if not strings:
            raise ValueError("SentencePieceTokenizer.train: `strings` has no text in it.")

        def options(folder: str) -> dict[str, Any]:
            if lossless:
                return LOSSLESS | escapes(folder)
            rule = NORMALIZATIONS[normalization]
            return {"byte_fallback": byte_fallback, "normalization_rule_name": rule}

        settings: dict[str, Any] = {"control_symbols": control_symbols(languages, tags)}
        settings |= {"model_type": model_type, "character_coverage": character_coverage}
        proto = trained(strings, vocab_size, settings, options)
        return cls(without_paths(proto) if lossless else proto)

    @classmethod
    def load(cls, path: StrPath) -> Self:
        """Reads a `.model` file of SentencePiece.

        Raises:
            FileNotFoundError: If there is no such file.
            ValueError: If it holds no SentencePiece model, or one that numbers its special tokens
                otherwise.
        """
        return cls(cls.read(path))

    @staticmethod
    def read(path: StrPath) -> bytes:
        """The bytes of a model of SentencePiece, whatever its numbers, after checking them.

        Raises:
            FileNotFoundError, ValueError: As `load`.
        """
        sentencepiece = package("SentencePieceTokenizer", "sentencepiece")
        path = pathlib.Path(path)
        if not path.is_file():
            raise FileNotFoundError(f"SentencePieceTokenizer.load: there is no file {path}")
        proto = path.read_bytes()
        try:
            if not proto:
                raise RuntimeError("empty")
            sentencepiece.SentencePieceProcessor(model_proto=proto)
        except RuntimeError:
            raise ValueError(
                f"SentencePieceTokenizer.load: {path} is not a SentencePiece model; give a file "
                "that `save` wrote."
            ) from None
        return proto

    def save(self, path: StrPath) -> None:
        """Writes a `.model` file of SentencePiece."""
        pathlib.Path(path).write_bytes(self.proto)

    def tokenize(
        self, strings: Strings, start: bool = False, end: bool = False, sample: float | None = None
    ) -> tf.RaggedTensor | tf.Tensor:
        """Splits strings into ids.

        Args:
            strings: String tensor, or list, `(batch,)`, or one string `()`.
            start: Whether to put START before.
            end: Whether to put END after, and the mark of the language `target` before.
            sample: Strength of subword regularisation, or None for the best split: for unigram
                models the inverse temperature alpha of a split sampled from all (0.1 is varied,
                1 close to the best; Kudo 2018, section 3.3), for bpe the dropout of merges. Drawn
                anew at each call, in `tf.data` for each element, and by no seed: `SubwordSampler`
                has one.

        Returns:
            int32 RaggedTensor `(batch, None)`, or a tensor `(length,)` for one string.
        """
        strings = tf.convert_to_tensor(strings, tf.string)
        cut, flat = functools.partial(self._model.ids, sample=sample), tf.reshape(strings, [-1])
        ids = cut(flat) if self.context is None else self.context.ids(cut, flat)
        before, after = self.source_marks if end else ((), ())
        ids = in_marks(ids, ((START_ID, *before) if start else before, after))
        return ids if strings.shape.rank else ids[0]

    def detokenize(self, ids: GivenIds) -> tf.Tensor:
        """Joins ids to strings; START, padding and marks vanish, as does all from END on.

        Args:
            ids: Integers `(..., length)`, dense, ragged `(batch, None)`, or lists of any lengths.

        Returns:
            String tensor of the shape of `ids` without its last axis.

        Raises:
            ValueError: If an id is not in the vocabulary (in a graph, when it runs,
                `tf.errors.InvalidArgumentError`).
        """
        ids = given_ids("SentencePieceTokenizer.detokenize", ids, self.vocab_size, PAD_ID)
        shape = tf.shape(ids)
        dense = tf.reshape(ids, [tf.reduce_prod(shape[:-1]), shape[-1]])
        ended = tf.cumsum(tf.cast(dense == END_ID, tf.int32), axis=1) > 0
        marks = [PAD_ID, START_ID, *self.language_marks.values()]
        real = ~ended & tf.gather(~np.isin(np.arange(self.vocab_size), marks), dense)
        strings = self._model.texts(tf.ragged.boolean_mask(dense, real))
        return tf.ensure_shape(tf.reshape(strings, shape[:-1]), ids.shape[:-1])

    def pieces(self, ids: GivenIds) -> list[str]:
        """The pieces of one sequence of ids, as a list of str (for the axes of an image).

        Raises:
            ValueError: If an id is not in the vocabulary.
        """
        ids = given_row("SentencePieceTokenizer.pieces", ids, self.vocab_size)
        return self._model.names(ids)

    @property
    def starts_word(self) -> Array:
        """Bool array `(vocab_size,)`: which ids begin a word.

        A piece with a space in front does, the marks 0 to 3 and a newline do; the rest go on with a
        word, punctuation and bytes among them.
        """
        pieces = self.pieces(range(self.vocab_size))
        starts = [piece.startswith("▁") or piece == "\n" for piece in pieces]
        return np.array(starts) | (np.arange(self.vocab_size) <= UNKNOWN_ID)

    @property
    def source_marks(self) -> tuple[Marks, Marks]:
        """Ids that stand before and behind a text that is translated."""
        return (() if self.target is None else (self.language_marks[self.target],)), (END_ID,)

    def towards(self, target: str | None) -> Self:
        """The same tokenizer for sources that are translated into a language, or into no one.

        Raises:
            ValueError: If the vocabulary has no mark of it.

        Example:
        >>> from keras_transformers.text import SentencePieceTokenizer
        >>> lines = ["the cat sat on the mat"] * 20
        >>> tokenizer = SentencePieceTokenizer.train(lines, 17, languages=("de", "es"))
        >>> ids = tokenizer.towards("es").tokenize("the cat", end=True)
        >>> tokenizer.pieces(ids)[0], tokenizer.detokenize(ids).numpy()
        ('<2es>', b'the cat')
        """
        return type(self)(self.proto, target)

    def for_targets(self) -> Self:
        """The tokenizer of what a model is trained to write: without a mark."""
        return self if self.target is None else self.towards(None)

    def check_exportable(self) -> None:
        """ImportError where it cannot become part of a SavedModel."""
        check_ops("SentencePieceTokenizer")

    def get_config(self) -> dict[str, Any]:
        return {"proto": base64.b64encode(self.proto).decode(), "target": self.target}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        return cls(base64.b64decode(config["proto"]), config.get("target"))


class SentencePieces:
    """Strings to pieces and back.

    Args:
        owner: Name of the class that uses it, for messages.
        proto: The bytes of the model.
    """

    def __init__(self, owner: str, proto: bytes) -> None:
        self._owner, self._proto = owner, proto

    def _op(self, dtype: Any = tf.int32, sample: float | None = None) -> Any:
        """Makes the tensorflow-text op, anew wherever it is used; None without that package.

        One made beforehand would hold a resource that dies when TensorFlow clears its caches, as
        `keras.utils.set_random_seed` makes it do. Inside a graph the model becomes a part of it.
        """
        try:
            import tensorflow_text as tf_text  # only who tokenizes needs it
        except ImportError:
            has_ops()  # warns if the package is installed and broken
            return None
        sampling = {} if sample is None else {"nbest_size": -1, "alpha": float(sample)}
        return tf_text.SentencepieceTokenizer(self._proto, out_type=dtype, **sampling)

    @functools.cached_property
    def _model(self) -> Any:
        """The model of the package."""
        sentencepiece = package(self._owner, "sentencepiece")
        return sentencepiece.SentencePieceProcessor(model_proto=self._proto)

    @property
    def size(self) -> int:
        """Number of pieces."""
        return int(self._op().vocab_size()) if has_ops() else self._model.get_piece_size()

    def numbers(self, pieces: Iterable[str]) -> list[int]:
        """Ids of pieces."""
        if has_ops():
            return self._op().string_to_id(tf.constant(list(pieces))).numpy().tolist()
        return [self._model.piece_to_id(piece) for piece in pieces]

    def names(self, ids: Iterable[int]) -> list[str]:
        """Pieces of ids."""
        if has_ops():
            found = self._op().id_to_string(tf.constant(list(ids), tf.int32))
            return [piece.decode() for piece in found.numpy()]
        return [self._model.id_to_piece(int(each)) for each in ids]

    def controls(
        self, pattern: re.Pattern[str], pieces: Sequence[str], first: int
    ) -> dict[str, int]:
        """Piece -> id of pieces that fit a pattern and that no text becomes; ids from `first`."""
        named = ((piece, n) for n, piece in enumerate(pieces, first) if pattern.fullmatch(piece))
        return {piece: number for piece, number in named if self._model.is_control(number)}

    def ids(self, strings: tf.Tensor, sample: float | None = None) -> tf.RaggedTensor:
        """Ids `(n, None)` of strings `(n,)`; `sample` as in `SentencePieceTokenizer.tokenize`."""
        op = self._op(sample=sample)
        if op is not None:
            return op.tokenize(strings)
        return ragged(lambda texts: self._cut(texts, int, sample), strings)

    def _cut(self, texts: list[str], out_type: type, sample: float | None) -> Any:
        sampling: dict[str, Any] = {}
        if sample is not None:
            sampling = {"enable_sampling": True, "nbest_size": -1, "alpha": float(sample)}
        return self._model.encode(texts, out_type=out_type, **sampling)

    def pieces(self, strings: tf.Tensor, sample: float | None = None) -> tf.RaggedTensor:
        """Pieces `(n, None)`, strings, of strings `(n,)`; unknown characters as they are."""
        op = self._op(tf.string, sample)
        if op is not None:
            return op.tokenize(strings)
        return ragged(lambda texts: self._cut(texts, str, sample), strings, tf.string)

    def texts(self, ids: tf.RaggedTensor) -> tf.Tensor:
        """Strings `(n,)` of ids `(n, None)`."""
        op = self._op()
        if op is not None:
            return op.detokenize(ids)
        return joined(lambda rows: [self._model.decode(row) for row in rows], ids)


def escapes(folder: StrPath) -> dict[str, str]:
    """Writes the two files of rules that SentencePiece escapes U+2581 by; their options."""
    files = {}
    for name, step in (("normalization_rule_tsv", 1), ("denormalization_rule_tsv", -1)):
        path = pathlib.Path(folder, name)
        path.write_text("".join("\t".join(rule[::step]) + "\n" for rule in ESCAPES))
        files[name] = str(path)
    return files


def without_paths(proto: bytes) -> bytes:
    """The model without the names of files that rules were read from, which differ each time."""
    with needed_by("SentencePieceTokenizer.train"):
        from sentencepiece import sentencepiece_model_pb2

    model = sentencepiece_model_pb2.ModelProto.FromString(proto)  # type: ignore[attr-defined]
    for rules in (model.normalizer_spec, model.denormalizer_spec):
        rules.ClearField("normalization_rule_tsv")
    return model.SerializeToString(deterministic=True)


def training_advice(message: str, vocab_size: int) -> str:
    """SentencePiece's refusal in a sentence that says what to do."""
    if limit := re.search(r"value <= (\d+)", message):
        return (
            f"SentencePieceTokenizer.train: vocab_size={vocab_size} is more than this text "
            f"supports; use {limit[1]} or fewer, or more text."
        )
    if vocab_size <= SPECIAL:
        return (
            f"SentencePieceTokenizer.train: vocab_size={vocab_size} leaves no room for text beside "
            "the four special ids; use at least a few hundred."
        )
    if "smaller than required_chars" in message:
        need = re.search(r"required_chars. *\d+ vs (\d+)", message)
        least = f" at least {need[1]}" if need else " a larger one"
        return (
            f"SentencePieceTokenizer.train: vocab_size={vocab_size} is less than the number of "
            f"different characters; use{least}, or character_coverage below 1."
        )
    return f"SentencePieceTokenizer.train failed: {message}"


def check_choices(model_type: str, normalization: str) -> None:
    """ValueError if one of the two is unknown."""
    if model_type not in ("unigram", "bpe"):
        raise ValueError(
            "SentencePieceTokenizer.train: `model_type` must be 'unigram' or 'bpe'. "
            f"Received: {model_type!r}"
        )
    if normalization not in NORMALIZATIONS:
        raise ValueError(
            "SentencePieceTokenizer.train: `normalization` must be one of "
            f"{', '.join(NORMALIZATIONS)}. Received: {normalization!r}"
        )


def control_symbols(codes: Sequence[str], tags: Sequence[str]) -> list[str]:
    """The marks of languages, and the tags; ValueError if one is there twice, or is none.

    They are control symbols, as START is: what people write never becomes one. Symbols that a text
    can hold would let it choose its language.
    """
    others = list(tags)
    wrong = isinstance(tags, str) or len(set(others)) < len(others)
    if wrong or not all(map(TAG.fullmatch, others)) or {"<pad>", "<s>", "<unk>"} & {*others}:
        raise ValueError(
            "SentencePieceTokenizer.train: `tags` must be a list of marks as '<bt>', a letter "
            f"first, each once, and no special token. Received: {tags!r}"
        )
    return [*_symbols_of_languages(codes), *others]


def _symbols_of_languages(codes: Sequence[str]) -> list[str]:
    symbols = [f"<2{code}>" for code in codes]
    wrong = [symbol for symbol in symbols if not LANGUAGE.fullmatch(symbol)]
    if isinstance(codes, str) or wrong or len(set(symbols)) < len(symbols):
        raise ValueError(
            "SentencePieceTokenizer.train: `languages` must be a list of codes of letters, digits, "
            f"_ and -, each once. Received: {codes!r}"
        )
    return symbols


def marks_of_languages(pieces: Iterable[str], first: int) -> dict[str, int]:
    """Code of a language -> id of its mark, of pieces whose ids begin with `first`."""
    found = ((LANGUAGE.fullmatch(piece), number) for number, piece in enumerate(pieces, first))
    return {match[1]: number for match, number in found if match}


def trained(
    strings: Iterable[Any],
    vocab_size: int,
    settings: Mapping[str, Any],
    options: Callable[[str], dict[str, Any]],
) -> bytes:
    """The proto of a SentencePiece model; `options` takes a folder for what must be in files."""
    with needed_by("SentencePieceTokenizer.train"):
        import sentencepiece

    model = io.BytesIO()
    try:
        with tempfile.TemporaryDirectory() as folder:
            sentencepiece.SentencePieceTrainer.train(
                sentence_iterator=iter(strings),
                model_writer=model,
                vocab_size=vocab_size,
                pad_id=PAD_ID,
                bos_id=START_ID,
                eos_id=END_ID,
                unk_id=UNKNOWN_ID,
                max_sentence_length=1 << 20,
                num_threads=1,  # more threads make the pieces depend on timing
                minloglevel=2,
                **settings,
                **options(folder),
            )
    except (RuntimeError, OSError) as error:
        raise ValueError(training_advice(str(error), vocab_size)) from None
    return model.getvalue()


NORMAL, CONTROL, BYTE, UNKNOWN = 1, 3, 6, 2  # types of pieces in the file
BPE = 2
SPECIAL_IDS = ("unk_id", "bos_id", "eos_id", "pad_id")


class SentencePieceModel:
    """The pieces of a model, and the model without some of them.

    Args:
        proto: The bytes of the file.

    Attributes:
        normal: Dict of piece -> score of those that were learnt; bytes, marks and symbols of the
            user's are none of them.
        extremes: Two of these, of the least and of the greatest score. An unknown character costs
            10 more than the least, and a symbol of the user's is worth the greatest, so that
            without them other pieces would be chosen beside those.
    """

    def __init__(self, proto: bytes) -> None:
        with needed_by("a model of SentencePiece"):
            from sentencepiece import sentencepiece_model_pb2

        self._model = sentencepiece_model_pb2.ModelProto.FromString(proto)  # type: ignore[attr-defined]
        pieces = self._model.pieces
        self.normal: dict[str, float] = {p.piece: p.score for p in pieces if p.type == NORMAL}
        ordered = sorted(self.normal, key=self.normal.__getitem__)
        self.extremes = {*ordered[:1], *ordered[-1:]}
        apart = (UNKNOWN, CONTROL, BYTE)  # symbols of the user's are merged as others are
        self._merged = {p.piece: -p.score for p in pieces if p.type not in apart}

    def steps(self, pieces: Iterable[str]) -> set[str]:
        """What stands between pieces and their characters where pairs are merged; else nothing."""
        if self._model.trainer_spec.model_type != BPE:
            return set()

        def rank(pair: tuple[str, str]) -> float | None:
            return self._merged.get(pair[0] + pair[1])

        made = (merge_steps(piece, rank) for piece in pieces if piece in self.normal)
        return set[str]().union(*made)

    def without(self, dropped: set[str]) -> bytes:
        """The file without those of `dropped` that were learnt; the others keep their order."""
        model = type(self._model)()
        model.CopyFrom(self._model)
        model.DiscardUnknownFields()  # samples of cut texts, which SentencePiece tests itself by
        kept = [
            (i, piece)
            for i, piece in enumerate(self._model.pieces)
            if piece.type != NORMAL or piece.piece not in dropped
        ]
        del model.pieces[:]
        model.pieces.extend(piece for _, piece in kept)
        numbers = {old: new for new, (old, _) in enumerate(kept)}
        spec = model.trainer_spec
        spec.vocab_size = len(kept)
        for name in SPECIAL_IDS:
            if getattr(spec, name) in numbers:
                setattr(spec, name, numbers[getattr(spec, name)])
        return bytes(model.SerializeToString(deterministic=True))


def merge_steps(piece: str, rank: Callable[[tuple[str, str]], float | None]) -> set[str]:
    """The pieces that are made while the symbols of one piece are merged.

    In a text, no pair across the ends of a piece was merged, so that inside it the merges are those
    of the piece alone, in the same order.

    Args:
        piece: Its symbols, a character each.
        rank: Function of a pair of symbols: None for one that is not merged, else a number; the
            smallest goes first, and of two that are equal the left one.

    Returns:
        Set of str, the piece itself among them if it is reached.

    Example:
    >>> from keras_transformers.text.sentence_pieces import merge_steps
    >>> sorted(merge_steps("cat", {("a", "t"): 0, ("c", "at"): 1, ("c", "a"): 2}.get))
    ['at', 'cat']
    """
    symbols, found = list(piece), set[str]()
    while True:
        ranked = [
            (number, i)
            for i, pair in enumerate(zip(symbols, symbols[1:], strict=False))
            if (number := rank(pair)) is not None
        ]
        if not ranked:
            return found
        _, i = min(ranked)
        symbols[i : i + 2] = [symbols[i] + symbols[i + 1]]
        found.add(symbols[i])
