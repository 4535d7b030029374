"""What stands in the place of KerasHub's tokenizers in its own tests."""

import os
import pathlib

import keras
import numpy as np
import tensorflow as tf

from keras_transformers import text
from keras_transformers.text.wordpiece import SPECIAL

FOLDER = pathlib.Path(os.environ["PEERS_BYTES"])  # of RoBERTa's vocabulary and merges


class Tokenizer:
    """One of our tokenizers, called as one of KerasHub's is.

    Args:
        config: What it was made with.
        ours: Our tokenizer.
        pieces: Their pieces in the order of their ids; None for those of ours.
        marks: Whether to put marks before and after a text.
    """

    def __init__(self, config, ours, pieces=None, marks=(False, False)):
        self.config, self.ours, self.marks = config, ours, marks
        self.names = self.names_of(ours)
        self.known = self.names if pieces is None else list(pieces)
        numbers = {piece: number for number, piece in enumerate(self.known)}
        self.numbers = np.array([numbers.get(name, -1) for name in self.names], "int32")

    def tokenize(self, strings):
        ids = self.ours.tokenize(strings, *self.marks)
        if self.config.get("dtype") == "string":
            return tf.gather(self.names, ids)
        ids = tf.gather(self.numbers, ids)
        length = self.config.get("sequence_length")
        return ids if length is None else ids.to_tensor(shape=(None, length))

    __call__ = tokenize

    def detokenize(self, ids):
        ids = ids if isinstance(ids, tf.RaggedTensor) else tf.ragged.constant(ids)
        return self.ours.detokenize(tf.gather(np.argsort(self.numbers)[-len(self.known) :], ids))

    def vocabulary_size(self):
        return len(self.known)

    def get_vocabulary(self):
        return self.known

    def id_to_token(self, number):
        beyond = number >= len(self.known)
        self.ours.pieces([number + beyond * len(self.names)])  # which refuses what is no id
        return self.known[number]

    def token_to_id(self, piece):
        return self.known.index(piece)

    def get_config(self):
        return self.config

    @classmethod
    def from_config(cls, config):
        return cls(**config)


def _check_options(options, lower_case=None, **always):
    """Refuses options that ours lack, but where they ask for what ours do always."""
    always |= {"split": True, "split_on_cjk": True, "strip_accents": lower_case}
    for name, value in options.items():
        if name not in ("dtype", "sequence_length") and always.get(name) != value:
            raise ValueError(f"There is no {name}={value!r}")


@keras.saving.register_keras_serializable("peers")
class WordPieceTokenizer(Tokenizer):
    def __init__(self, vocabulary=None, lowercase=False, special_tokens=(), **kwargs):
        config = {"vocabulary": vocabulary, "lowercase": lowercase, **kwargs}
        _check_options(kwargs, lowercase, special_tokens_in_strings=True)
        read = text.WordPieceTokenizer.read
        pieces = read(vocabulary) if isinstance(vocabulary, str) else vocabulary
        # What ours must have; not the unknown one, which theirs must have too.
        marks = [mark for mark in SPECIAL if mark not in pieces and mark != "[UNK]"]
        order = sorted([*marks, *pieces], key=lambda piece: piece != "[PAD]")
        super().__init__(config, text.WordPieceTokenizer(order, lowercase), pieces)

    @staticmethod
    def names_of(ours):
        return list(ours.vocab)


@keras.saving.register_keras_serializable("peers")
class BytePairTokenizer(Tokenizer):
    def __init__(self, vocabulary, merges, _allow_python_workflow=None, **kwargs):
        config = {"vocabulary": vocabulary, "merges": merges, **kwargs}
        _check_options(kwargs)
        if isinstance(vocabulary, str):
            vocabulary, merges = text.BytePairTokenizer.read(vocabulary, merges)
        super().__init__(
            config, text.BytePairTokenizer(vocabulary, merges, start="<s>", end="</s>")
        )

    @staticmethod
    def names_of(ours):
        return sorted(ours.vocab, key=ours.vocab.get)


@keras.saving.register_keras_serializable("peers")
class SentencePieceTokenizer(Tokenizer):
    """Theirs number their marks otherwise: a model for ours is made of theirs."""

    def __init__(
        self, proto=None, add_bos=False, add_eos=False, _allow_python_workflow=None, **kwargs
    ):
        config = {"proto": proto, "add_bos": add_bos, "add_eos": add_eos, **kwargs}
        proto = proto if isinstance(proto, bytes) else pathlib.Path(proto).read_bytes()
        ours, pieces = _renumbered(proto)
        super().__init__(config, ours, pieces, marks=(add_bos, add_eos))

    @staticmethod
    def names_of(ours):
        return ours.pieces(range(ours.vocab_size))


def _renumbered(proto):
    """Our tokenizer of a model with other numbers, and the pieces of that in their order."""
    from sentencepiece import sentencepiece_model_pb2

    model = sentencepiece_model_pb2.ModelProto.FromString(proto)
    pieces = {each.piece: each for each in model.pieces}
    names = list(pieces)
    pad = sentencepiece_model_pb2.ModelProto.SentencePiece(piece="<pad>", score=0, type=3)
    marks = ["<pad>", "<s>", "</s>", "<unk>"]
    order = {name: pieces.get(name, pad) for name in [*marks, *names]}
    del model.pieces[:]
    model.pieces.extend(order.values())
    numbers = zip(("pad_id", "bos_id", "eos_id", "unk_id"), range(4), strict=True)
    for name, number in numbers:
        setattr(model.trainer_spec, name, number)
    return text.SentencePieceTokenizer(model.SerializeToString()), names


def compute_sentence_piece_proto(data, vocabulary_size, proto_output_file=None, lowercase=False):
    files = isinstance(data, list)
    strings = [pathlib.Path(each).read_text() for each in data] if files else data
    normalization = "nmt_nfkc_cf" if lowercase else "nmt_nfkc"
    train = text.SentencePieceTokenizer.train
    proto = train(strings, vocabulary_size, normalization=normalization).proto
    if proto_output_file:
        pathlib.Path(proto_output_file).write_bytes(proto)
    return proto


def compute_word_piece_vocabulary(
    data, vocabulary_size, vocabulary_output_file=None, lowercase=False, **kwargs
):
    kwargs.pop("reserved_tokens", None)
    _check_options(kwargs, lowercase)
    strings = [pathlib.Path(each).read_text() for each in data] if isinstance(data, list) else data
    room = vocabulary_size + len(SPECIAL)
    vocab = text.WordPieceTokenizer.train(strings, room, lowercase).vocab
    return list(vocab[len(SPECIAL) :])
