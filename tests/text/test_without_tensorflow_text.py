"""Claims about a machine without tensorflow-text: ids, training and published folders all the same.

One process of its own is told that tensorflow-text is not installed.
"""

import json

import pytest

from keras_transformers import pretrained, text
from keras_transformers.text import tokenizers
from tests.pretrained.folders import bert, gpt2, marian
from tests.test_imports import run_without
from tests.text import scripts

pytest.importorskip("tokenizers")
pytest.importorskip("sentencepiece")

CODE = """
import json, pathlib, sys
import keras_transformers
import keras_transformers.text
import numpy as np, tensorflow as tf
from keras_transformers import export, models, pretrained, text

folder = pathlib.Path(sys.argv[1])
texts = json.loads((folder / "texts.json").read_text())
found = {}
for name in ("bert", "gpt2", "marian", "fast"):
    tokenizer = pretrained.load_tokenizer(folder / name)
    data = tf.data.Dataset.from_tensor_slices(texts).batch(4)
    data = data.map(lambda each: tokenizer.tokenize(each, end=True)).unbatch()
    found[name] = [row.numpy().tolist() for row in data]
    assert tokenizer.tokenize(texts, end=True).to_list() == found[name]
    strings = tokenizer.detokenize(tokenizer.tokenize(texts)).numpy()
    found[name + " back"] = [each.decode() for each in strings]
lines = ["the cat sat on the mat", "the dog sat on the log"] * 20
trained = text.SentencePieceTokenizer.train(lines, vocab_size=20)
found["trained"] = trained.tokenize(lines[:2], end=True).to_list()
trained.tokenize(lines[:2], sample=0.1)
pieces = text.WordPieceTokenizer.train(lines, 40)
found["pieces"] = pieces.tokenize(lines[:2]).to_list()

model = pretrained.load(folder / "bert")
model.compile("sgd", "mse")
ids = pretrained.load_tokenizer(folder / "bert").tokenize(texts[:2]).to_tensor()[:, :8]
before = np.array(model.trainable_weights[0])
model.fit(ids, np.zeros(model(ids).shape), epochs=1, verbose=0)
assert np.any(before != np.array(model.trainable_weights[0]))
filler = keras_transformers.load(folder / "bert")
found["filled"] = filler.predict("the [MASK] of the king")["text"]
pretrained.load_tokenizer(folder / "fast").check_exportable()
try:
    filler_of_bert = export.MaskFiller(model, pretrained.load_tokenizer(folder / "bert"))
    filler_of_bert.save(folder / "saved")
except ImportError as error:
    found["export"] = str(error)
print(json.dumps(found))
"""


@pytest.mark.slow
def test_all_but_exports_works_and_gives_the_same(tmp_path):
    for make in (bert, gpt2, marian):
        folder = tmp_path / make.__name__
        folder.mkdir()
        model = make(folder)
        model.build(
            (None, None) if make is not marian else {"source": (None, None), "target": (None, None)}
        )
        pretrained.save(model, folder)
    ours = text.FastTokenizer(scripts.learnt("llama 3"), start="<s>", end="</s>", padding="<pad>")
    pretrained.save_tokenizer(ours, tmp_path / "fast")
    texts = scripts.ARTICLE[:8]
    (tmp_path / "texts.json").write_text(json.dumps(texts))
    code = CODE.replace("sys.argv[1]", repr(str(tmp_path)))
    printed = run_without(["tensorflow_text"], code, TF_CPP_MIN_LOG_LEVEL="3")
    found = json.loads(printed.splitlines()[-1])
    for name in ("bert", "gpt2", "marian", "fast"):
        tokenizer = pretrained.load_tokenizer(tmp_path / name)
        assert found[name] == tokenizer.tokenize(texts, end=True).to_list(), name
        strings = tokenizer.detokenize(tokenizer.tokenize(texts)).numpy()
        assert found[name + " back"] == [each.decode() for each in strings]
    lines = ["the cat sat on the mat", "the dog sat on the log"] * 20
    trained = text.SentencePieceTokenizer.train(lines, vocab_size=20)
    assert found["trained"] == trained.tokenize(lines[:2], end=True).to_list()
    pieces = text.WordPieceTokenizer.train(lines, 40)
    assert found["pieces"] == pieces.tokenize(lines[:2]).to_list()
    assert isinstance(found["filled"], str)
    assert "pip install tensorflow-text" in found["export"]


@pytest.mark.parametrize("lower_case", [True, False])
def test_word_pieces_are_cut_the_same_both_ways(lower_case, monkeypatch):
    added = [text.AddedToken("Würde", normalized=True), text.AddedToken("born", single_word=True)]
    vocab = text.WordPieceTokenizer.train(scripts.LEARNT_FROM, 600, lower_case).vocab
    pieces = text.WordPieceTokenizer(vocab, lower_case, added_tokens=added)
    texts = [*scripts.TEXTS, *scripts.fuzzed(300)]
    by_ops = pieces.tokenize(texts, start=True, pair=texts).to_list()
    monkeypatch.setattr("keras_transformers.text.wordpiece.has_ops", lambda: False)
    assert pieces.tokenize(texts, start=True, pair=texts).to_list() == by_ops


@pytest.mark.parametrize(
    ("size", "options"), [(400, {}), (650, {"lossless": True}), (700, {"model_type": "bpe"})]
)
def test_sentence_pieces_are_cut_the_same_both_ways(size, options, monkeypatch):
    lines = [line.replace("\x00", "") for line in scripts.LEARNT_FROM]
    pieces = text.SentencePieceTokenizer.train(lines, size, **options)
    texts = [*scripts.ARTICLE, *scripts.fuzzed(100)]
    by_ops = pieces.tokenize(texts)
    strings = pieces.detokenize(by_ops).numpy().tolist()
    monkeypatch.setattr("keras_transformers.text.sentence_pieces.has_ops", lambda: False)
    assert pieces.tokenize(texts).to_list() == by_ops.to_list()
    assert pieces.detokenize(by_ops).numpy().tolist() == strings
    assert pieces.pieces(by_ops[0]) and pieces.tokenize("a").shape.rank == 1


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("raise ImportError('undefined symbol: icudt77_dat')", "undefined symbol: icudt77_dat"),
        ("import no_such_module_of_it", "No module named 'no_such_module_of_it'"),
    ],
)
def test_why_an_installed_package_fails_is_said(content, reason, tmp_path, monkeypatch):
    (tmp_path / "broken_package.py").write_text(content)
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.warns(UserWarning, match=f"broken_package is installed but .*: {reason}$"):
        assert not tokenizers.has_package("broken_package")


def test_a_package_that_is_not_installed_is_no_reason_for_a_warning(recwarn):
    assert not tokenizers.has_package("no_such_package")
    assert not recwarn.list
