"""A whole `tokenizer.json` as ops: its models make ids of words, its decoders strings of ids."""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import tensorflow as tf

from keras_transformers.core.words import byte_letters
from keras_transformers.text.byte_pairs import Merging
from keras_transformers.text.cutting import (
    SEPARATOR,
    AddedToken,
    AddedTokens,
    Numbers,
    escaped,
    separated,
)
from keras_transformers.text.in_graph_splitting import (
    Inexpressible,
    cuts_punctuation,
    is_of_bytes,
    normalizer,
    splitter,
)

TOKEN_FLAGS = ("content", "normalized", "lstrip", "rstrip", "special", "single_word")


class Program:
    """Strings to ids and back in a graph.

    Args:
        definition: The content of `tokenizer.json`.
        names: The token of every id.
        special: Ids that vanish when ids are joined to strings.

    Raises:
        Inexpressible: If a part has no ops that give it exactly.
    """

    def __init__(
        self, definition: Mapping[str, Any], names: Sequence[str], special: Sequence[int]
    ) -> None:
        before = definition.get("pre_tokenizer")
        if before is not None and before.get("prepend_scheme") == "first":
            if definition.get("normalizer") is not None:
                raise Inexpressible("the pre-tokenizer Metaspace: behind a normaliser, first only")
        self._split = splitter(before)
        self._model = model(definition["model"], before)
        added = definition.get("added_tokens") or []
        tokens = [AddedToken(**{flag: token[flag] for flag in TOKEN_FLAGS}) for token in added]
        numbers = {token["content"]: token["id"] for token in added}
        self._added = AddedTokens(tokens, numbers, normalizer(definition.get("normalizer")))
        written = [self._added.written.get(name, name) for name in names]
        self._decoder = Decoder(definition.get("decoder"), written, special)

    def ids(self, strings: tf.Tensor) -> tf.RaggedTensor:
        """Ids of valid UTF-8 strings `(n,)`: an int32 RaggedTensor `(n, None)`."""
        return self._added.ids(strings, self._of_text)

    def _of_text(self, text: tf.Tensor, first: tf.Tensor) -> tf.RaggedTensor:
        return unique(self._split(text, first), self._model)

    def texts(self, ids: tf.RaggedTensor) -> tf.Tensor:
        """Strings `(n,)` of ragged ids `(n, None)`."""
        return self._decoder(ids)


Model: TypeAlias = Callable[[tf.Tensor], tf.RaggedTensor]  # words (n,) to ids (n, None)
SPACE = "▁"


def model(part: Mapping[str, Any], before: Any) -> Model:
    """The function of different words that a model is, behind a pre-tokenizer.

    Raises:
        Inexpressible: If no ops give it exactly.
    """
    kind, of_bytes = part.get("type"), is_of_bytes(before)
    if kind == "BPE":
        return BytePairs(part) if of_bytes else CharacterPairs(part)
    if of_bytes:
        raise Inexpressible(f"the model {kind}: its words are made of letters for bytes")
    if kind == "WordPiece":
        return _word_pieces(part, cuts_punctuation(before))
    if kind == "Unigram":
        return Unigram(part)
    if kind == "WordLevel":
        return _word_level(part)
    raise Inexpressible(f"the model {kind}: it is not known here")


def byte_fallback(vocab: Mapping[str, int], owner: str) -> Any:
    """Ids of the 256 bytes, `<0x00>` and so on, an int32 array.

    Raises:
        Inexpressible: If one is missing.
    """
    names = [f"<0x{byte:02X}>" for byte in range(256)]
    if any(name not in vocab for name in names):
        raise Inexpressible(f"the model {owner}: byte_fallback, and a byte has no piece")
    return np.array([vocab[name] for name in names], "int32")


def _word_level(part: Mapping[str, Any]) -> Model:
    vocab, unknown = part["vocab"], part.get("unk_token")
    if unknown not in vocab:
        raise Inexpressible("the model WordLevel: unk_token is not in the vocabulary")
    numbers = Numbers(vocab)
    return lambda words: tf.RaggedTensor.from_row_lengths(
        numbers(words, vocab[unknown]), tf.ones_like(words, tf.int64)
    )


def _word_pieces(part: Mapping[str, Any], cut: bool) -> Model:
    import tensorflow_text as tf_text  # only who tokenizes needs it

    vocab, prefix = part["vocab"], part.get("continuing_subword_prefix", "##")
    unknown, longest = part.get("unk_token", "[UNK]"), part.get("max_input_chars_per_word", 100)
    pieces = sorted(vocab, key=vocab.__getitem__)
    if any("\x00" in each for each in pieces):
        raise Inexpressible("the model WordPiece: a piece has a zero in it, which ends it there")
    if [vocab[each] for each in pieces] != list(range(len(pieces))) or unknown not in vocab:
        raise Inexpressible("the model WordPiece: ids are not 0, 1, 2 ..., or unk_token has none")
    if not cut or not re.fullmatch("[!-/:-@\\[-`{-~]+", prefix):
        raise Inexpressible(
            f"the model WordPiece: a word could begin with {prefix!r}, if the pre-tokenizer leaves "
            "punctuation in words"
        )
    # What no text must spell: the unknown piece, and the prefix alone.
    mark, never = "\x02\x03\x02", "\x02\x03\x03"
    pieces = [{unknown: mark, prefix: never}.get(each, each) for each in pieces]
    built = tf_text.build_fast_wordpiece_model(pieces, 4 * longest, prefix, mark, True, False)
    buffer = np.frombuffer(built, np.uint8)

    def ids(words: tf.Tensor) -> tf.RaggedTensor:
        long = tf.strings.length(words, unit="UTF8_CHAR") > longest
        op = tf_text.FastWordpieceTokenizer(
            model_buffer=tf.constant(buffer), token_out_type=tf.int32
        )
        found = op.tokenize(tf.where(long, mark, words)[:, None])
        return found.merge_dims(1, 2)

    return ids


class BytePairs:
    """Byte pairs whose first symbols are bytes, in the letters that stand for them.

    Args:
        part: The model of `tokenizer.json`.
    """

    def __init__(self, part: Mapping[str, Any]) -> None:
        vocab, suffix, pairs = _checked(part)
        letters = byte_letters()
        missing = [each for each in letters if each not in vocab or each + suffix not in vocab]
        if missing:
            raise Inexpressible(f"the model BPE: the letter {missing[0]!r} of a byte has no piece")
        self._bytes = np.array([vocab[each] for each in letters], "int32")
        self._last = np.array([vocab[each + suffix] for each in letters], "int32")
        self._merging = Merging(vocab, pairs) if pairs else None
        byte_of = {letter: byte for byte, letter in enumerate(letters)}
        self._known = None
        if part.get("ignore_merges"):
            self._known = Numbers(
                {
                    bytes(byte_of[letter] for letter in piece): number
                    for piece, number in vocab.items()
                    if set(piece) <= byte_of.keys()
                }
            )

    def __call__(self, words: tf.Tensor) -> tf.RaggedTensor:
        lengths = tf.strings.length(words)
        data = tf.cast(tf.io.decode_raw(tf.strings.reduce_join(words), tf.uint8), tf.int32)
        ids = tf.gather(tf.constant(self._bytes), data)
        word = tf.repeat(tf.range(tf.size(words, tf.int64)), lengths)
        ends = tf.concat([word[1:] != word[:-1], [True]], 0)[: tf.size(word)]
        ids = tf.where(ends, tf.gather(tf.constant(self._last), data), ids)
        merged = tf.RaggedTensor.from_value_rowids(ids, word, tf.size(words, tf.int64))
        if self._merging is not None:
            merged = self._merging.merge(ids, word, tf.size(words, tf.int64))
        return merged if self._known is None else _whole(self._known, words, merged)


def _whole(known: Numbers, words: tf.Tensor, merged: tf.RaggedTensor) -> tf.RaggedTensor:
    """The ids of words that are pieces themselves, whatever merging makes of the others."""
    numbers = known(words, -1)
    there = numbers >= 0
    alone = tf.RaggedTensor.from_row_lengths(
        tf.boolean_mask(numbers, there), tf.cast(there, tf.int64)
    )
    left = tf.repeat(~there, merged.row_lengths())
    return tf.concat([alone, tf.ragged.boolean_mask(merged, merged.with_values(left))], axis=1)


class CharacterPairs:
    """Byte pairs whose first symbols are characters; unknown ones may become their bytes.

    Args:
        part: The model of `tokenizer.json`.
    """

    def __init__(self, part: Mapping[str, Any]) -> None:
        vocab, suffix, pairs = _checked(part)
        if suffix:
            raise Inexpressible("the model BPE: end_of_word_suffix of words of characters")
        self._merging = Merging(vocab, pairs) if pairs else None
        self._numbers = Numbers(vocab)
        self._whole = bool(part.get("ignore_merges"))
        unknown = part.get("unk_token")
        self._unknown = None if unknown is None else vocab.get(unknown)
        self._fuse = bool(part.get("fuse_unk"))
        self._byte_ids = byte_fallback(vocab, "BPE") if part.get("byte_fallback") else None
        # What no merge makes may be cut: then words are short, and most are there many times.
        inside = re.compile(f"[^{SPACE}]{SPACE}")
        self._cut = SPACE in vocab and not any(inside.search(a + b) for a, b in pairs)
        self._cut &= not (self._whole and any(map(inside.search, vocab)))

    def __call__(self, words: tf.Tensor) -> tf.RaggedTensor:
        if not self._cut:
            return self._ids(words)
        border = rb"\1" + SEPARATOR + SPACE.encode()
        parts = separated(tf.strings.regex_replace(words, f"([^{SPACE}]){SPACE}", border))
        different, which = tf.unique(parts.values)
        return parts.with_values(tf.gather(self._ids(different), which)).merge_dims(1, 2)

    def _ids(self, words: tf.Tensor) -> tf.RaggedTensor:
        characters = tf.strings.unicode_split(words, "UTF-8")
        word, number = characters.value_rowids(), tf.size(words, tf.int64)
        ids, lengths = self._symbols(characters.values, word)
        word = tf.repeat(word, lengths)
        merged = tf.RaggedTensor.from_value_rowids(ids, word, number)
        if self._merging is not None:
            merged = self._merging.merge(ids, word, number)
        return _whole(self._numbers, words, merged) if self._whole else merged

    def _symbols(self, characters: tf.Tensor, word: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Ids of characters, and how many each has."""
        ids = self._numbers(characters, -1)
        known = ids >= 0
        if self._byte_ids is not None:
            return bytes_for_unknown(ids, characters, self._byte_ids)
        if self._unknown is None:
            return tf.boolean_mask(ids, known), tf.cast(known, tf.int64)
        kept = known
        if self._fuse:  # of unknown ones side by side, the first
            after = ~known[:-1] & (word[1:] == word[:-1])
            kept |= ~tf.concat([[False], after], 0)[: tf.size(word)]
        else:
            kept = tf.ones_like(known)
        ids = tf.boolean_mask(tf.where(known, ids, self._unknown), kept)
        return ids, tf.cast(kept, tf.int64)


def bytes_for_unknown(
    ids: tf.Tensor, strings: tf.Tensor, byte_ids: Any
) -> tuple[tf.Tensor, tf.Tensor]:
    """Ids `(n,)`, those below 0 replaced by those of their strings' bytes; how many each has."""
    known = ids >= 0
    lengths = tf.where(known, 1, tf.strings.length(strings))
    data = tf.io.decode_raw(tf.strings.reduce_join(tf.where(known, "\x00", strings)), tf.uint8)
    found = tf.gather(tf.constant(byte_ids), tf.cast(data, tf.int32))
    spread = tf.repeat(ids, lengths)
    return tf.where(spread >= 0, spread, found), tf.cast(lengths, tf.int64)


def _checked(part: Mapping[str, Any]) -> tuple[dict[str, int], str, list[tuple[str, str]]]:
    """Vocabulary, suffix and pairs of a model that has no parts without a counterpart."""
    if part.get("dropout"):
        raise Inexpressible("the model BPE: dropout")
    if part.get("continuing_subword_prefix"):
        raise Inexpressible("the model BPE: continuing_subword_prefix")
    pairs = [tuple(p.split(" ") if isinstance(p, str) else p) for p in part.get("merges", [])]
    return dict(part["vocab"]), part.get("end_of_word_suffix") or "", pairs


def unique(words: tf.RaggedTensor, ids_of: Model) -> tf.RaggedTensor:
    """Ids `(n, None)` of words `(n, None)`; every different word is cut once."""
    different, which = tf.unique(words.values)
    return words.with_values(tf.gather(ids_of(different), which)).merge_dims(1, 2)


UNKNOWN_PENALTY = 10.0  # of an unknown character, below the worst piece
HASH_FACTOR = np.uint64(0x9E3779B97F4A7C15)


class Unigram:
    """Cuts words into the pieces whose scores have the largest sum (Kudo 2018, section 3.2).

    Of cuts with one sum, that with the longest last piece is taken, as by `tokenizers`; sums are
    taken in its order and in float64, so that they are its sums. Every part of a word is looked up
    by a hash of its characters.

    Args:
        part: The model of `tokenizer.json`.
    """

    def __init__(self, part: Mapping[str, Any]) -> None:
        pieces = [piece for piece, _ in part["vocab"]]
        scores = np.array([score for _, score in part["vocab"]], "float64")
        numbers = {piece: number for number, piece in enumerate(pieces)}  # of two, the last
        unknown = part.get("unk_id")
        if unknown is None:
            raise Inexpressible("the model Unigram: without unk_id it fails at unknown characters")
        self._unknown, self._byte_ids = int(unknown), None
        if part.get("byte_fallback"):
            self._byte_ids = byte_fallback(numbers, "Unigram")
        numbers.pop("", None)
        ids = np.array(list(numbers.values()), "int32")
        hashes = np.array([_hash(piece) for piece in numbers], "uint64").astype("int64")
        order = hashes.argsort()
        self._hashes, self._ids = hashes[order], ids[order]
        if (self._hashes[1:] == self._hashes[:-1]).any():
            raise Inexpressible("the model Unigram: two pieces have one hash")
        self._scores = scores[self._ids]
        self._unknown_score = float(scores.min()) - UNKNOWN_PENALTY
        self._longest = max(map(len, numbers))

    def __call__(self, words: tf.Tensor) -> tf.RaggedTensor:
        """Ids of words, string `(n,)`: an int32 RaggedTensor `(n, None)`."""
        codes = tf.strings.unicode_decode(words, "UTF-8")
        starts, lengths = codes.row_splits[:-1], codes.row_lengths()
        ids, scores = self._lookups(codes)
        taken = _best(scores, starts, lengths, self._longest)
        first = _chosen(taken, starts, lengths)  # (characters,): length of the piece there, or 0
        number = tf.size(words, tf.int64)
        at = tf.where(first > 0)[:, 0]
        word = tf.gather(codes.value_rowids(), at)
        found = tf.gather_nd(ids, tf.stack([at, tf.gather(first, at) - 1], axis=1))
        found, word = self._with_unknown(found, word, codes, at)
        return tf.RaggedTensor.from_value_rowids(found, word, number)

    def _lookups(self, codes: tf.RaggedTensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Ids and scores `(characters, longest)` of what begins at each character; -inf: none."""
        flat, row = codes.values, codes.value_rowids()
        size = tf.size(flat)
        mixed = _mixed(tf.cast(flat, tf.uint64))
        padded = tf.concat([mixed, tf.zeros([self._longest], tf.uint64)], 0)
        rows = tf.concat([row, tf.fill([self._longest], tf.cast(-1, row.dtype))], 0)
        value, hashes, inside = tf.zeros_like(mixed), [], []
        for step in range(self._longest):
            value = value * HASH_FACTOR + padded[step : size + step]
            hashes.append(tf.bitcast(value, tf.int64))
            inside.append(rows[step : size + step] == row)
        keys = tf.stack(hashes, 1)
        found = tf.minimum(
            tf.searchsorted(self._hashes, tf.reshape(keys, [-1])), len(self._ids) - 1
        )
        known = tf.gather(tf.constant(self._hashes), found) == tf.reshape(keys, [-1])
        known &= tf.reshape(tf.stack(inside, 1), [-1])
        shape = tf.shape(keys)
        ids = tf.reshape(tf.gather(tf.constant(self._ids), found), shape)
        scores = tf.where(known, tf.gather(tf.constant(self._scores), found), -np.inf)
        scores, known = tf.reshape(scores, shape), tf.reshape(known, shape)
        # A character that is no piece by itself is unknown.
        lone = tf.concat([~known[:, :1], tf.zeros_like(known[:, 1:])], 1)
        return (
            tf.where(lone, self._unknown, ids),
            tf.where(lone, tf.constant(self._unknown_score, tf.float64), scores),
        )

    def _with_unknown(
        self, ids: tf.Tensor, word: tf.Tensor, codes: tf.RaggedTensor, at: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Of unknown pieces side by side one is left, or each becomes its bytes."""
        if self._byte_ids is not None:
            characters = tf.strings.unicode_encode(codes.values[:, None], "UTF-8")
            marked = tf.where(ids == self._unknown, -1, ids)
            ids, lengths = bytes_for_unknown(marked, tf.gather(characters, at), self._byte_ids)
            return ids, tf.repeat(word, lengths)
        again = (ids[1:] == self._unknown) & (ids[:-1] == self._unknown) & (word[1:] == word[:-1])
        kept = ~tf.concat([[False], again], 0)[: tf.size(ids)]
        return tf.boolean_mask(ids, kept), tf.boolean_mask(word, kept)


def _mixed(codes: Any) -> Any:
    """Numbers of 64 bits that look random, of code points: uint64 to uint64."""
    value = (codes + np.uint64(1)) * np.uint64(0xBF58476D1CE4E5B9)
    if tf.is_tensor(value):
        shifted = tf.bitwise.right_shift(value, tf.constant(29, tf.uint64))
        return tf.bitwise.bitwise_xor(value, shifted) * np.uint64(0x94D049BB133111EB)
    return (value ^ (value >> np.uint64(29))) * np.uint64(0x94D049BB133111EB)


def _hash(piece: str) -> Any:
    """As `_lookups` computes it, of one piece."""
    with np.errstate(over="ignore"):
        value = np.uint64(0)
        for each in _mixed(np.array([ord(c) for c in piece], "uint64")):
            value = value * HASH_FACTOR + each
    return value


def _best(scores: tf.Tensor, starts: tf.Tensor, lengths: tf.Tensor, longest: int) -> tf.Tensor:
    """Length of the last piece of the best cut up to each character, int64 `(characters,)`.

    Words are computed side by side, the longest first, so that short ones drop out.
    """
    order = tf.argsort(lengths, direction="DESCENDING", stable=True)
    starts, lengths = tf.gather(starts, order), tf.gather(lengths, order)
    count, most = tf.size(lengths), tf.reduce_max(tf.concat([tf.zeros([1], tf.int64), lengths], 0))
    ones = tf.range(longest, 0, -1, dtype=tf.int64)  # the longest piece first, which wins ties
    # The best sums up to the last `longest` characters, the oldest first.
    window = tf.concat(
        [
            tf.fill([count, longest - 1], tf.constant(-np.inf, tf.float64)),
            tf.zeros([count, 1], tf.float64),
        ],
        1,
    )
    taken = tf.zeros([tf.shape(scores, tf.int64)[0]], tf.int64)

    def step(
        end: tf.Tensor, window: tf.Tensor, taken: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        active = tf.reduce_sum(tf.cast(lengths >= end, tf.int32))
        begin = starts[:active, None] + end - ones[None]
        safe = tf.maximum(begin, starts[:active, None])
        pairs = tf.stack([safe, tf.broadcast_to(ones[None] - 1, tf.shape(safe))], 2)
        sums = tf.gather_nd(scores, pairs) + window[:active]
        sums = tf.where(begin >= starts[:active, None], sums, -np.inf)
        which = tf.argmax(sums, axis=1)
        best = tf.reduce_max(sums, axis=1)
        taken = tf.tensor_scatter_nd_update(
            taken, (starts[:active] + end - 1)[:, None], tf.gather(ones, which)
        )
        window = tf.concat([window[:active, 1:], best[:, None]], 1)
        return end + 1, tf.ensure_shape(window, [None, longest]), taken

    _, _, taken = tf.while_loop(
        lambda end, window, taken: end <= most,
        step,
        (tf.constant(1, tf.int64), window, taken),
        (tf.TensorShape([]), tf.TensorShape([None, longest]), tf.TensorShape([None])),
    )
    return taken


def _chosen(taken: tf.Tensor, starts: tf.Tensor, lengths: tf.Tensor) -> tf.Tensor:
    """Length of the piece that begins at each character, 0 where none does, from the ends on."""
    first = tf.zeros_like(taken)

    def step(end: tf.Tensor, starts: tf.Tensor, first: tf.Tensor) -> tuple[tf.Tensor, ...]:
        size = tf.gather(taken, end - 1)
        first = tf.tensor_scatter_nd_update(first, (end - size)[:, None], size)
        end = end - size
        left = end > starts
        return tf.boolean_mask(end, left), tf.boolean_mask(starts, left), first

    there = lengths > 0
    starts, lengths = tf.boolean_mask(starts, there), tf.boolean_mask(lengths, there)
    loose = (tf.TensorShape([None]),) * 3
    _, _, first = tf.while_loop(
        lambda end, starts, first: tf.size(end) > 0, step, (starts + lengths, starts, first), loose
    )
    return first


CLEANED = ((" .", "."), (" ?", "?"), (" !", "!"), (" ,", ","), (" ' ", "'"), (" n't", "n't"))
CLEANED += ((" 'm", "'m"), (" do not", " don't"), (" 's", "'s"), (" 've", "'ve"), (" 're", "'re"))
BYTE_TOKEN = re.compile(r"<0x([0-9A-F]{2})>")


class Decoder:
    """Strings of ids, as a decoder makes them of the tokens.

    A token becomes a string by itself, another one where it is the first; the strings are joined;
    what stands at the ends is taken away.

    Args:
        part: The decoder of `tokenizer.json`.
        tokens: The token of every id; "" where there is none.
        special: Ids that vanish.

    Raises:
        Inexpressible: If no ops give it exactly.
    """

    def __init__(self, part: Any, tokens: Sequence[str], special: Sequence[int]) -> None:
        self._first: list[Any] = list(tokens)
        self._later: list[Any] = list(tokens)
        self._between, self._fallback, self._fused = "", False, False
        self._strips: list[tuple[str, int, int]] = []
        if part is None:
            self._between = " "
        for step in _decoding_steps(part):
            self._take(step)
        hidden = set(special)
        self._visible = [
            number not in hidden and token != "" for number, token in enumerate(tokens)
        ]

    def _take(self, step: Any) -> None:
        kind = step["type"]
        if self._fallback and kind not in ("Fuse", "Strip"):
            raise Inexpressible(f"the decoder {kind}: behind ByteFallback")
        if self._fused and kind != "Strip":
            raise Inexpressible(f"the decoder {kind}: behind Fuse")
        if kind == "Replace":
            self._each(_replacing(step))
        elif kind == "Metaspace":
            space = step.get("replacement", "▁")
            never = step.get("prepend_scheme", "always") == "never"
            self._first = [
                each.replace(space, " " if never else "") for each in map(str, self._first)
            ]
            self._later = [each.replace(space, " ") for each in map(str, self._later)]
        elif kind == "WordPiece":
            prefix, cleans = step.get("prefix", "##"), step.get("cleanup", True)
            self._later = [
                each[len(prefix) :] if each.startswith(prefix) else f" {each}"
                for each in self._later
            ]
            if cleans:
                self._each(_cleaned)
        elif kind == "ByteLevel":
            self._each(_bytes_of_letters)
        elif kind == "ByteFallback":
            self._fallback = True
        elif kind == "Fuse":
            self._fused = True
        elif kind == "Strip" and self._fused:
            self._strips.append((step["content"], step["start"], step["stop"]))
        else:
            raise Inexpressible(f"the decoder {kind}: it is not known here")

    def _each(self, function: Callable[[str], Any]) -> None:
        self._first, self._later = (
            list(map(function, self._first)),
            list(map(function, self._later)),
        )

    def __call__(self, ids: tf.RaggedTensor) -> tf.Tensor:
        """Strings `(n,)`, valid UTF-8, of ragged ids `(n, None)`."""
        visible = tf.gather(tf.constant(self._visible), ids.values)
        ids = tf.ragged.boolean_mask(ids, ids.with_values(visible))
        row = ids.value_rowids()
        first = tf.concat([[True], row[1:] != row[:-1]], 0)[: tf.size(row)]
        pieces = tf.gather(tf.constant(self._later), ids.values)
        if self._first != self._later:
            pieces = tf.where(first, tf.gather(tf.constant(self._first), ids.values), pieces)
        if self._fallback:
            pieces = self._bytes(pieces, row)
        text = tf.strings.reduce_join(
            tf.RaggedTensor.from_value_rowids(pieces, row, ids.nrows()), 1, separator=self._between
        )
        text = tf.strings.unicode_transcode(text, "UTF-8", "UTF-8")
        for content, start, stop in self._strips:
            letter = escaped(content)
            text = tf.strings.regex_replace(text, f"^{letter}{{0,{start}}}", "")
            text = tf.strings.regex_replace(text, f"{letter}{{0,{stop}}}$", "")
        return text

    def _bytes(self, pieces: tf.Tensor, row: tf.Tensor) -> tf.Tensor:
        """Runs of `<0x..>` as the characters that they make, or one U+FFFD a byte where none."""
        of_byte = [
            bytes([int(m[1], 16)]) if (m := BYTE_TOKEN.fullmatch(s)) else b"" for s in self._names()
        ]
        names = sorted({n for n, b in zip(self._names(), of_byte, strict=True) if b})
        table = {name: bytes([int(name[3:5], 16)]) for name in names}
        equal = pieces[:, None] == tf.constant(names)[None]
        is_byte = tf.reduce_any(equal, 1)
        which = tf.argmax(tf.cast(equal, tf.int32), 1)
        data = tf.gather(tf.constant([table[name] for name in names]), which)
        goes_on = is_byte[1:] & is_byte[:-1] & (row[1:] == row[:-1])
        begins = ~tf.concat([[False], goes_on], 0)[: tf.size(row)]
        run = tf.cumsum(tf.cast(begins, tf.int32)) - 1
        count = tf.reduce_sum(tf.cast(begins, tf.int32))
        joined = tf.strings.unsorted_segment_join(data, run, count)
        good = tf.strings.unicode_transcode(joined, "UTF-8", "UTF-8") == joined
        whole = tf.gather(good, run)
        text = tf.where(begins, tf.gather(joined, run), "")
        text = tf.where(whole, text, "\ufffd")
        return tf.where(is_byte, text, pieces)

    def _names(self) -> list[str]:
        return list(map(str, self._later))


def _decoding_steps(part: Any) -> list[Any]:
    if part is None:
        return []
    if part.get("type") == "Sequence":
        return [step for each in part["decoders"] for step in _decoding_steps(each)]
    return [part]


def _replacing(step: Any) -> Callable[[str], str]:
    if "String" not in step["pattern"]:
        raise Inexpressible("the decoder Replace: of a pattern")
    return lambda token: token.replace(step["pattern"]["String"], step["content"])


def _cleaned(token: str) -> str:
    for before, after in CLEANED:
        token = token.replace(before, after)
    return token


def _bytes_of_letters(token: str) -> bytes:
    byte_of = {letter: byte for byte, letter in enumerate(byte_letters())}
    if all(letter in byte_of for letter in token):
        return bytes(byte_of[letter] for letter in token)
    return token.encode("utf-8")
