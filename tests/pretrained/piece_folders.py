"""Folders of published tokenizers that SentencePiece cuts, with small models learnt here."""

import functools
import io
import json

import sentencepiece

from keras_transformers.pretrained.tokenizer_settings import M2M_100, MBART, MBART_50, NLLB
from recipes.data.translation import load as load_pairs

OF_GOOGLE = ("PegasusTokenizer", "T5Tokenizer")
OF_FAIRSEQ = ("MBartTokenizer", "MBart50Tokenizer", "NllbTokenizer", "M2M100Tokenizer")
CLASSES = (*OF_GOOGLE, *OF_FAIRSEQ)
CODES = dict(zip(OF_FAIRSEQ, (MBART, MBART_50, NLLB, M2M_100), strict=True))


@functools.cache
def spm(kind, **ids):
    """The bytes of a SentencePiece model of 300 pieces."""
    pairs, model = load_pairs("ui.en-de").train, io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(pairs.sources[:800] + pairs.targets[:800]),
        model_writer=model,
        vocab_size=300,
        model_type=kind,
        num_threads=1,
        minloglevel=2,
        **ids,
    )
    return model.getvalue()


def pieces_of(proto):
    model = sentencepiece.SentencePieceProcessor(model_proto=proto)
    return [model.id_to_piece(i) for i in range(model.get_piece_size())]


def write(folder, name, **settings):
    """The files of a tokenizer of a published class."""
    if name in OF_GOOGLE:
        file, proto = "spiece.model", spm("unigram", pad_id=0, eos_id=1, unk_id=2, bos_id=-1)
    else:
        file, proto = "sentencepiece.bpe.model", spm("bpe" if name[0] == "N" else "unigram")
    (folder / file).write_bytes(proto)
    if name == "M2M100Tokenizer":
        pieces = ["<s>", "<pad>", "</s>", "<unk>", *pieces_of(proto)[3:]]
        vocab = {piece: number for number, piece in enumerate(pieces)}
        (folder / "vocab.json").write_text(json.dumps(vocab))
    # Codes that hub folders list; `transformers` 5 knows them, or NLLB's numbers, by that alone.
    if name == "M2M100Tokenizer":
        settings.setdefault("additional_special_tokens", [f"__{code}__" for code in M2M_100])
    if name == "NllbTokenizer":
        marks = dict(enumerate(["<s>", "<pad>", "</s>", "<unk>"])) | dict(enumerate(NLLB, 301))
        settings["added_tokens_decoder"] = {
            number: {"content": content, "lstrip": content == "<mask>", "special": True}
            for number, content in (marks | {503: "<mask>"}).items()
        }
    found = {"tokenizer_class": name, **settings}
    (folder / "tokenizer_config.json").write_text(json.dumps(found))
    return folder
