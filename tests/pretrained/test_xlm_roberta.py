"""Claims about XLM-R from text to answer: fairseq's ids, and vectors, are the published."""

import io
import json
import pathlib

import pytest
import sentencepiece
import tensorflow as tf

from keras_transformers import export, pretrained
from keras_transformers.text import FairseqTokenizer
from tests.contract import assert_close

hf = pytest.importorskip("transformers")
torch = pytest.importorskip("torch")
LINES = (
    "The quick brown fox jumps over the lazy dog, twice.",
    "Zwölf Boxkämpfer jagen Viktor quer über den großen Sylter Deich.",
    "Voix ambiguë d'un cœur qui au zéphyr préfère les jattes de kiwis.",
    "Съешь же ещё этих мягких французских булок, да выпей чаю.",
    "いろはにほへと ちりぬるを わかよたれそ つねならむ",
    "ऋषियों को सताने वाले दुष्ट राक्षसों के राजा रावण",
    "نص حكيم له سر قاطع وذو شأن عظيم مكتوب على ثوب أخضر",
)
TEXTS = [
    *LINES,
    *(f"<mask> {line[:20]}<mask>" for line in LINES[:3]),
    "the fox <mask> the dog",
    "a<s>b</s><pad> <unk>",
    "",
    "  two  spaces\tand\n\na line ",
    "Ⅷ ½ ﬁ ｆｕｌｌ ﷺ ™",
    "unknown: 漢字 ☃☃ ☃ 🙂🙂",
    "▁the dog▁",
    "zero\u200bwidth soft\u00adhyphen no\u00a0break",
    "e\u0301 n\u0303 ñ é",
]
SIZES = {
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 24,
    "max_position_embeddings": 66,
    "type_vocab_size": 1,
    "layer_norm_eps": 1e-5,
    "initializer_range": 0.5,
}


@pytest.fixture(scope="module")
def vocabulary(tmp_path_factory):
    """A folder as XLM-R's is on the hub, but for tokenizer.json and weights."""
    folder, file = tmp_path_factory.mktemp("xlm-r"), io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(LINES * 3), model_writer=file, vocab_size=160, minloglevel=2
    )
    (folder / "sentencepiece.bpe.model").write_bytes(file.getvalue())
    (folder / "config.json").write_text('{"model_type": "xlm-roberta"}')
    (folder / "tokenizer_config.json").write_text('{"model_max_length": 512}')
    return folder


@pytest.fixture(scope="module")
def theirs(vocabulary):
    return hf.AutoTokenizer.from_pretrained(vocabulary)


def test_ids_are_the_published_ones(vocabulary, theirs):
    ours = pretrained.load_tokenizer(vocabulary)
    assert isinstance(ours, FairseqTokenizer)
    assert (ours.start_id, ours.pad_id, ours.end_id, ours.unknown_id) == (0, 1, 2, 3)
    assert (ours.mask_id, ours.vocab_size) == (theirs.mask_token_id, len(theirs))
    assert {*ours.special_ids} == {*theirs.all_special_ids}
    assert ours.pieces(range(ours.vocab_size)) == theirs.convert_ids_to_tokens(range(len(theirs)))
    expected = theirs(TEXTS)["input_ids"]
    for text, one, other in zip(
        TEXTS, ours.tokenize(TEXTS, start=True, end=True).to_list(), expected, strict=True
    ):
        assert one == other, text


def test_ids_become_the_published_text(vocabulary, theirs):
    ours = pretrained.load_tokenizer(vocabulary)
    rows = [theirs(text)["input_ids"][1:-1] for text in LINES]
    expected = [theirs.decode(row) for row in rows]
    found = [text.decode() for text in ours.detokenize([[0, *row, 2, 1] for row in rows]).numpy()]
    assert found == expected
    assert ours.starts_word.tolist()[:4] == [True] * 4
    assert ours.starts_word[rows[0][0]]


def test_an_added_token_has_the_published_id(vocabulary, tmp_path):
    for path in vocabulary.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    (tmp_path / "tokenizer_config.json").write_text(
        json.dumps({"additional_special_tokens": ["[NEW]"]})
    )
    ours = pretrained.load_tokenizer(tmp_path)
    theirs = hf.AutoTokenizer.from_pretrained(tmp_path)
    texts = ["the [NEW] fox", "[NEW]<mask>"]
    assert ours.tokenize(texts, start=True, end=True).to_list() == theirs(texts)["input_ids"]


def test_the_tokenizer_is_written_and_configured_anew(vocabulary, tmp_path):
    ours = pretrained.load_tokenizer(vocabulary)
    theirs = hf.AutoTokenizer.from_pretrained(pretrained.save_tokenizer(ours, tmp_path))
    expected = theirs(TEXTS)["input_ids"]
    again = FairseqTokenizer.from_config(json.loads(json.dumps(ours.get_config())))
    for tokenizer in (again, pretrained.load_tokenizer(tmp_path)):
        assert tokenizer.tokenize(TEXTS, start=True, end=True).to_list() == expected
    graph = tf.function(lambda text: again.tokenize(text, end=True))
    assert graph(tf.constant(LINES[0])).numpy().tolist() == expected[0][1:]


@pytest.mark.parametrize("numbers", [{"pad_id": 3}, {"bos_id": 2, "eos_id": 1}])
def test_a_model_with_other_first_pieces_is_refused(numbers, tmp_path):
    (tmp_path / "config.json").write_text('{"model_type": "xlm-roberta"}')
    file, options = io.BytesIO(), {"vocab_size": 160, "minloglevel": 2, **numbers}
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(LINES), model_writer=file, **options
    )
    (tmp_path / "sentencepiece.bpe.model").write_bytes(file.getvalue())
    with pytest.raises(ValueError, match=r"first pieces .*must be <unk>, <s>, </s>"):
        pretrained.load_tokenizer(tmp_path)


@pytest.fixture(scope="module")
def folder(vocabulary, theirs, tmp_path_factory):
    """A published model that restores tokens, with its tokenizer."""
    folder = tmp_path_factory.mktemp("model")
    torch.manual_seed(3)
    config = hf.XLMRobertaConfig(vocab_size=len(theirs), **SIZES)
    hf.XLMRobertaForMaskedLM(config).save_pretrained(folder)
    for name in ("sentencepiece.bpe.model", "tokenizer_config.json"):
        pathlib.Path(folder, name).write_bytes((vocabulary / name).read_bytes())
    return folder


def test_vectors_of_texts_are_the_published_ones(folder, theirs):
    batch = theirs(TEXTS[:4], return_tensors="pt", padding=True)
    with torch.no_grad():
        tokens = hf.XLMRobertaModel.from_pretrained(folder).eval()(**batch)[0]
    real = batch["attention_mask"][..., None].float()
    expected = torch.nn.functional.normalize((tokens * real).sum(1) / real.sum(1), dim=-1)
    model, words = pretrained.load(folder, task="features"), pretrained.load_tokenizer(folder)
    found = export.SentenceEncoder(model, words, lengths=(64,)).encode(TEXTS[:4])
    assert_close(found, expected.numpy(), 1e-4)


def test_hidden_tokens_are_the_published_ones(folder, theirs):
    text = "the fox <mask> the dog"
    batch = theirs(text, return_tensors="pt")
    with torch.no_grad():
        logits = hf.XLMRobertaForMaskedLM.from_pretrained(folder).eval()(**batch).logits[0]
    logits[..., theirs.all_special_ids] = -torch.inf  # which a filler never chooses
    (position,) = (batch["input_ids"][0] == theirs.mask_token_id).nonzero()[0].tolist()
    ids = batch["input_ids"][0].clone()
    ids[position] = logits[position].argmax()
    model, words = pretrained.load(folder), pretrained.load_tokenizer(folder)
    found = export.MaskFiller(model, words, lengths=(32,)).fill([text])
    assert found == [words.detokenize([ids.tolist()]).numpy()[0].decode()]
