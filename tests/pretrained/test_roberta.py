"""Claims about RoBERTa from text to answer: ids, vectors, classes and tokens are the published."""

import json
import pathlib
import re

import numpy as np
import pytest

import keras_transformers
from keras_transformers import export, models, pretrained
from keras_transformers.text import BytePairTokenizer
from tests.contract import assert_close
from tests.pretrained.test_tokenizer_files import GOLDEN, GPT2_TEXTS

hf = pytest.importorskip("transformers")
torch = pytest.importorskip("torch")
ROOT = pathlib.Path(__file__).parents[2]
MARKS = ("<s>", "<pad>", "</s>", "<unk>")
TEXTS = [*GPT2_TEXTS, "a <mask> b", "<s>a</s>", " cat cat"]
SIZES = {
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 24,
    "max_position_embeddings": 66,
    "type_vocab_size": 1,
    "layer_norm_eps": 1e-5,
    "initializer_range": 0.5,
    "num_labels": 3,
}
SHORT = ["a cat", "It's what they'll do", "the <mask> sat", "x"]


# The files that the family took; CONTRIBUTING.md, "Add a family", names them.
FILES = {"bert.py", "folder.py", "tokenizer_settings.py"}


@pytest.fixture(scope="module")
def vocabulary(tmp_path_factory):
    """The files of a RoBERTa tokenizer with the pieces of GPT-2's."""
    folder = tmp_path_factory.mktemp("roberta")
    pieces = sorted(json.loads(str(GOLDEN["gpt2/vocab.json"])).items(), key=lambda pair: pair[1])
    pieces = [*MARKS, *(piece for piece, _ in pieces if piece != "<|endoftext|>"), "<mask>"]
    vocab = {piece: number for number, piece in enumerate(pieces)}
    (folder / "vocab.json").write_text(json.dumps(vocab), encoding="utf-8")
    (folder / "merges.txt").write_text(str(GOLDEN["gpt2/merges.txt"]), encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def tokenizer(vocabulary):
    return hf.RobertaTokenizer.from_pretrained(vocabulary)


@pytest.fixture
def publish(vocabulary, tokenizer, tmp_path):
    """A function that writes a published model of a kind, with its tokenizer, and returns it."""

    def write(kind):
        torch.manual_seed(3)
        config = hf.RobertaConfig(vocab_size=len(tokenizer), **SIZES)
        model = getattr(hf, kind)(config).eval()
        model.save_pretrained(tmp_path)
        tokenizer.save_pretrained(tmp_path)
        return model

    return write


def test_no_other_file_knows_of_the_family_and_the_guide_names_these():
    knowing = re.compile(r"\bROBERTA|\"roberta|pretrained\.roberta|\bRoberta(Tokenizer|For|Model)")
    files = (ROOT / "keras_transformers").rglob("*.py")
    assert {path.name for path in files if knowing.search(path.read_text())} == FILES
    guide = (ROOT / "CONTRIBUTING.md").read_text()
    section = re.search(r"^## Add a family\n(.*?)^## ", guide, re.MULTILINE | re.DOTALL)[1]
    assert set(re.findall(r"`pretrained/(\w+\.py)`", section)) == FILES


def test_ids_are_the_published_ones(vocabulary, tokenizer, tmp_path):
    (tmp_path / "config.json").write_text('{"model_type": "roberta"}')
    for name in ("vocab.json", "merges.txt"):
        (tmp_path / name).write_bytes((vocabulary / name).read_bytes())
    ours = pretrained.load_tokenizer(tmp_path)
    assert isinstance(ours, BytePairTokenizer)
    assert (ours.start_id, ours.pad_id, ours.end_id) == (0, 1, 2)
    assert ours.mask_id == tokenizer.mask_token_id
    assert {*ours.special_ids} == {*tokenizer.all_special_ids}
    expected = tokenizer(TEXTS)["input_ids"]
    assert ours.tokenize(TEXTS, start=True, end=True).to_list() == expected
    assert ours.detokenize([[0, *expected[0][1:-1], 2, 1, 1]]).numpy()[0].decode() == TEXTS[0]
    again = BytePairTokenizer.from_config(ours.get_config())
    assert again.tokenize(TEXTS).to_list() == ours.tokenize(TEXTS).to_list()


def test_the_tokenizer_is_read_from_every_file_that_transformers_writes(publish, tmp_path):
    publish("RobertaModel")  # writes tokenizer.json
    ours = pretrained.load_tokenizer(tmp_path)
    folder = pretrained.save_tokenizer(ours, tmp_path / "ours")
    theirs = hf.AutoTokenizer.from_pretrained(folder)
    assert ours.tokenize(TEXTS, start=True, end=True).to_list() == theirs(TEXTS)["input_ids"]


def outputs(model, tokenizer):
    batch = tokenizer(SHORT, return_tensors="pt", padding=True)
    with torch.no_grad():
        return batch, model(**batch)[0]


def test_vectors_of_texts_are_the_published_ones(publish, tokenizer, tmp_path):
    batch, tokens = outputs(publish("RobertaModel"), tokenizer)
    real = batch["attention_mask"][..., None].float()
    expected = torch.nn.functional.normalize((tokens * real).sum(1) / real.sum(1), dim=-1)
    found = np.array(keras_transformers.load(tmp_path).predict(SHORT))
    assert_close(found, expected.numpy(), 1e-4)


def test_classes_of_texts_are_the_published_ones(publish, tokenizer, tmp_path):
    _, logits = outputs(publish("RobertaForSequenceClassification"), tokenizer)
    model, words = pretrained.load(tmp_path), pretrained.load_tokenizer(tmp_path)
    classifier = export.TextClassifier(model, words, ["a", "b", "c"], lengths=(8, 16))
    found = classifier.probabilities(SHORT)
    assert_close(found, torch.softmax(logits, -1).numpy(), 1e-4)


def test_hidden_tokens_are_the_published_ones(publish, tokenizer, tmp_path):
    batch, logits = outputs(publish("RobertaForMaskedLM"), tokenizer)
    logits[..., tokenizer.all_special_ids] = -torch.inf  # which a filler never chooses
    row, column = (batch["input_ids"] == tokenizer.mask_token_id).nonzero()[0].tolist()
    expected = SHORT[row].replace("<mask>", tokenizer.decode(logits[row, column].argmax()))
    model, words = pretrained.load(tmp_path), pretrained.load_tokenizer(tmp_path)
    assert export.MaskFiller(model, words, lengths=(16,)).fill([SHORT[row]]) == [expected]


def test_texts_are_as_long_as_the_table_has_rows_behind_padding(publish, tmp_path):
    publish("RobertaModel")
    model = pretrained.load(tmp_path)
    assert (model.most_positions, model.embedding.max_length) == (64, 66)
    with pytest.raises(ValueError, match="at most max_length=64 long.*65"):
        model(np.full((1, 65), 7))


def test_a_bert_is_not_written_as_a_roberta(tmp_path):
    model = models.TextEncoder.from_variant("tiny", 31)
    model.build((None, None))
    with pytest.raises(ValueError, match="roberta must have padding_id=1. Received: 0"):
        pretrained.save(model, tmp_path, family="roberta")
