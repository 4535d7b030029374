"""Claims about which id is the first of a word, beside fast tokenizers of `transformers`."""

import io
import json
import pathlib

import numpy as np
import pytest
import sentencepiece
import tensorflow as tf

import keras_transformers
from keras_transformers import pretrained
from keras_transformers.text import (
    FastTokenizer,
    SentencePieceTokenizer,
    WordAligner,
    WordPieceTokenizer,
)
from tests.pretrained import folders

hf = pytest.importorskip("transformers")
tokenizers = pytest.importorskip("tokenizers")
GOLDEN = np.load(pathlib.Path(__file__).parents[1] / "golden" / "published_tokenizers.npz")
LINES = [
    "The cat's mat in the U.S. costs $5,000.00",
    "Überall naïve Boxkämpfer, twice!",
    "東京 (Tokyo)",
]
SENTENCES = [
    ["The", "cat", "'s", "mat", ",", "don't", "U.S.", "$5,000.00", "!"],
    ["Überall", "naïve", "東京都", "(", "Tokyo", ")", "☃☃", "x" * 120],
    ["cat", "", "cat", "\u200b", "e\u0301", "-DOCSTART-", "co-operate"],
    [],
    ["cat"] * 40,
]


def bert(folder):
    ours = WordPieceTokenizer.train(LINES * 3, 120)
    pretrained.save_tokenizer(ours, folder)
    return ours, hf.BertTokenizerFast.from_pretrained(folder)


def roberta_files(folder):
    pieces = sorted(json.loads(str(GOLDEN["gpt2/vocab.json"])).items(), key=lambda pair: pair[1])
    pieces = [piece for piece, _ in pieces if piece != "<|endoftext|>"]
    pieces = ["<s>", "<pad>", "</s>", "<unk>", *pieces, "<mask>"]
    vocab = {piece: number for number, piece in enumerate(pieces)}
    (folder / "vocab.json").write_text(json.dumps(vocab), encoding="utf-8")
    (folder / "merges.txt").write_text(str(GOLDEN["gpt2/merges.txt"]), encoding="utf-8")
    (folder / "config.json").write_text('{"model_type": "roberta"}')
    (folder / "tokenizer_config.json").write_text('{"tokenizer_class": "RobertaTokenizer"}')
    return folder


def roberta(folder):
    theirs = hf.RobertaTokenizerFast.from_pretrained(roberta_files(folder), add_prefix_space=True)
    return pretrained.load_tokenizer(folder), theirs


def roberta_fast(folder):
    """With tokenizer.json alone, whose first word has no blank of its own."""
    hf.RobertaTokenizerFast.from_pretrained(roberta_files(folder)).save_pretrained(folder / "new")
    theirs = hf.RobertaTokenizerFast.from_pretrained(folder, add_prefix_space=True)
    return pretrained.load_tokenizer(folder / "new"), theirs


def roberta_fast_with_blank(folder):
    _, theirs = roberta(folder)
    theirs.save_pretrained(folder / "new")
    return pretrained.load_tokenizer(folder / "new"), theirs


def xlm_roberta(folder):
    file = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(LINES * 9), model_writer=file, vocab_size=46, minloglevel=2
    )
    (folder / "sentencepiece.bpe.model").write_bytes(file.getvalue())
    (folder / "config.json").write_text('{"model_type": "xlm-roberta"}')
    (folder / "tokenizer_config.json").write_text('{"tokenizer_class": "XLMRobertaTokenizer"}')
    return pretrained.load_tokenizer(folder), hf.AutoTokenizer.from_pretrained(folder)


def xlm_roberta_fast(folder):
    _, theirs = xlm_roberta(folder)
    theirs.save_pretrained(folder / "new")
    return pretrained.load_tokenizer(folder / "new"), theirs


def llama(folder):
    """Pieces of pairs behind "▁", which is put before each text, whatever that begins with."""
    letters = sorted({letter for line in LINES for letter in line if letter != " "})
    pieces = ["<unk>", "<s>", "</s>", "▁", *letters, "▁c", "at", "▁cat"]
    merges = ["▁ c", "a t", "▁c at"]
    model = {"type": "BPE", "unk_token": "<unk>", "fuse_unk": True, "byte_fallback": False}
    model |= {"vocab": {piece: i for i, piece in enumerate(pieces)}, "merges": merges}
    steps = [{"type": "Prepend", "prepend": "▁"}]
    steps += [{"type": "Replace", "pattern": {"String": " "}, "content": "▁"}]
    whole = {"added_tokens": [], "normalizer": {"type": "Sequence", "normalizers": steps}}
    whole |= {"model": model}
    inside = tokenizers.Tokenizer.from_str(json.dumps(whole))
    return FastTokenizer(whole), hf.PreTrainedTokenizerFast(tokenizer_object=inside)


MADE = {each.__name__: each for each in (bert, roberta, roberta_fast, roberta_fast_with_blank,
                                         xlm_roberta, xlm_roberta_fast, llama)}  # fmt: skip


@pytest.mark.parametrize("name", MADE)
@pytest.mark.parametrize("in_graph", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_ids_and_first_pieces_are_those_of_the_package(name, in_graph, tmp_path):
    ours, theirs = MADE[name](tmp_path)
    aligner = WordAligner(ours, 24)
    align = tf.function(aligner) if in_graph else aligner
    found = align(tf.ragged.constant(SENTENCES, tf.string, ragged_rank=1))
    expected = theirs(SENTENCES, is_split_into_words=True, truncation=True, max_length=24)
    assert found.ids.to_list() == expected["input_ids"]
    whole = theirs(SENTENCES, is_split_into_words=True)
    for i, words in enumerate(SENTENCES):
        of_word = expected.word_ids(i)
        firsts = [of_word.index(n) if n in of_word else -1 for n in range(len(words))]
        assert found.firsts[i].numpy().tolist() == firsts
        pieces = [whole.word_ids(i).count(n) for n in range(len(words))]
        assert found.pieces[i].numpy().tolist() == pieces
    assert -1 in found.firsts[4].numpy()  # which is cut


@pytest.mark.parametrize("kind", ["Bert", "Roberta"])
def test_a_published_tagger_gives_words_the_published_tags(kind, tmp_path):
    torch = pytest.importorskip("torch")
    _, tokenizer = {"Bert": bert, "Roberta": roberta}[kind](tmp_path)
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    sizes |= {"intermediate_size": 24, "max_position_embeddings": 300, "initializer_range": 0.9}
    names = dict(enumerate(["O", "B-PER", "I-PER", "B-LOC", "I-LOC"]))
    torch.manual_seed(2)
    config = getattr(hf, f"{kind}Config")(vocab_size=len(tokenizer), id2label=names, **sizes)
    model = getattr(hf, f"{kind}ForTokenClassification")(config).eval()
    model.save_pretrained(tmp_path / "published")
    tokenizer.save_pretrained(tmp_path / "published")
    predictor = keras_transformers.load(tmp_path / "published")
    assert (predictor.kind, predictor.labels) == ("text_tagger", [*names.values()])
    words = SENTENCES[:3]
    encoded = tokenizer(words, is_split_into_words=True, padding=True, return_tensors="pt")
    with torch.no_grad():
        numbers = model(**encoded).logits.argmax(-1).numpy()
    expected = []
    for i, sentence in enumerate(words):
        of_word = encoded.word_ids(i)
        first = [of_word.index(n) if n in of_word else None for n in range(len(sentence))]
        expected.append(["" if at is None else names[numbers[i, at]] for at in first])
    with folders.eagerly():
        found = predictor.fitting_for("evaluate").served().tags(words)
    assert found == expected and len({tag for tags in found for tag in tags}) > 3


def test_pieces_of_our_own_sentencepiece_are_those_of_each_word():
    tokenizer = SentencePieceTokenizer.train(LINES * 9, vocab_size=46)
    found = WordAligner(tokenizer, 512)(tf.ragged.constant(SENTENCES, tf.string, ragged_rank=1))
    for words, ids, firsts in zip(SENTENCES, *(each.to_list() for each in found[:2]), strict=True):
        parts = [tokenizer.tokenize([word]).to_list()[0] for word in words]
        assert ids == [tokenizer.start_id, *sum(parts, []), tokenizer.end_id]
        plain = " ".join(word for word in words if word.strip("\u200b"))
        assert ids[1:-1] == tokenizer.tokenize([plain]).to_list()[0]
        for part, first in zip(parts, firsts, strict=True):
            assert first == -1 if not part else ids[first : first + len(part)] == part


def test_a_length_without_room_is_refused():
    tokenizer = WordPieceTokenizer.train(LINES * 3, 120)
    with pytest.raises(ValueError, match=r"WordAligner: `longest` must leave room.*Received: 2"):
        WordAligner(tokenizer, 2)
