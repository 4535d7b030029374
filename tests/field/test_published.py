"""Published folders as people have them: fine-tuned, edited by hand, years old."""

import json
import pathlib

import numpy as np
import pytest

import keras_transformers
from keras_transformers import pretrained, text
from keras_transformers.core.words import byte_letters
from keras_transformers.export import Translator
from keras_transformers.generation import Boundaries, Constraints, Greedy
from keras_transformers.models import LanguageModel, TextEncoder, Transformer, ViT
from keras_transformers.vision import Preprocessing
from recipes.data import documents, images, translation

SMALL = {"hidden_dim": 8, "num_heads": 2, "mlp_dim": 8, "num_layers": 1}


def gpt2(folder):
    """A writer of bytes and one word, with the files that transformers reads."""
    pieces = [*byte_letters(), "at", "cat", "<|endoftext|>"]
    vocab = {piece: number for number, piece in enumerate(pieces)}
    tokenizer = text.BytePairTokenizer(vocab, [("a", "t"), ("c", "at")])
    model = LanguageModel.from_variant("small", len(pieces), **SMALL, max_length=16, padding_id=-1)
    model.build((None, None))
    pretrained.save_tokenizer(tokenizer, folder)
    return pretrained.save(model, folder)


def bert(folder, **settings):
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "cat", "sat"]
    (folder / "vocab.txt").write_text("\n".join(pieces) + "\n")
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    model = TextEncoder.from_variant("base", len(pieces), **SMALL, max_length=16, token_types=2)
    model.build((None, None))
    return pretrained.save(model, folder)


def vit(folder, classes):
    model = ViT(len(classes), 8, 4, **SMALL)
    model.build((None, 8, 8, 3))
    pretrained.save_preprocessing(Preprocessing(8, crop=False), folder)
    return pretrained.save(model, folder, classes=classes)


def change(folder, name, **more):
    path = folder / name
    path.write_text(json.dumps({**json.loads(path.read_text()), **more}))


def test_a_text_of_one_token_is_a_text(tmp_path):
    assert pretrained.load_tokenizer(gpt2(tmp_path)).tokenize(["cat"]).to_list() == [[257]]


def test_a_chat_token_that_was_added_is_one_token(tmp_path):
    folder = gpt2(tmp_path)
    (folder / "added_tokens.json").write_text(json.dumps({"<|user|>": 259}))
    ids = pretrained.load_tokenizer(folder).tokenize(["<|user|>cat"])
    assert ids.to_list() == [[259, 257]]


def test_the_tokenizer_of_japanese_is_not_taken_for_english(tmp_path):
    folder = bert(tmp_path, tokenizer_class="BertJapaneseTokenizer", word_tokenizer_type="mecab")
    with pytest.raises(ValueError, match="Received: 'BertJapaneseTokenizer'"):
        keras_transformers.load(folder)


def test_an_encoder_with_a_dense_layer_behind_is_refused_not_served_without_it(tmp_path):
    folder = bert(tmp_path)
    start = "sentence_transformers.models."
    modules = [
        {"type": f"{start}{name}", "path": path}
        for name, path in (("Transformer", ""), ("Pooling", "1_Pooling"), ("Dense", "2_Dense"))
    ]
    (folder / "modules.json").write_text(json.dumps(modules))
    with pytest.raises(ValueError, match="Received: Transformer, Pooling, Dense"):
        keras_transformers.load(folder)


def test_settings_of_gpt2_medium_load(tmp_path):
    change(folder := gpt2(tmp_path), "config.json", n_special=0, predict_special_tokens=True)
    assert pretrained.load(folder).built


def test_a_setting_left_at_its_default_is_written_as_the_number_that_it_is(tmp_path):
    """transformers refuses `null` for a number."""
    written = json.loads((bert(tmp_path) / "config.json").read_text())
    assert None not in written.values() and written["layer_norm_eps"] == 1e-12


def test_both_of_imagenets_cranes_are_there(tmp_path):
    names = ["crane", "maillot", "crane"]
    folder = vit(tmp_path, names)
    assert pretrained.class_names(folder) == names
    again = pretrained.save(pretrained.load(folder), tmp_path / "again", classes=names)
    assert pretrained.class_names(again) == names
    answer = keras_transformers.load(folder).predict(np.zeros((8, 8, 3), "uint8"))
    assert list(answer["probabilities"]) == ["crane (0)", "maillot", "crane (2)"]
    assert abs(sum(answer["probabilities"].values()) - 1) < 1e-5 and answer["label"] in names


@pytest.mark.parametrize("make", [gpt2, bert, lambda folder: vit(folder, ["cat", "dog"])])
def test_files_that_an_editor_put_a_byte_order_mark_into_are_read(make, tmp_path):
    """And one that ended the lines as Windows does."""
    folder = make(tmp_path)
    expected = _read(folder)
    for path in folder.iterdir():
        if path.suffix in (".json", ".txt"):
            lines = path.read_bytes().replace(b"\n", b"\r\n")
            path.write_bytes(b"\xef\xbb\xbf" + lines)
    assert _read(folder) == expected
    assert _read(str(folder)) == expected  # as a Path and as a str


def _read(folder):
    found = [pretrained.load(folder).count_params()]
    if pathlib.Path(folder, "preprocessor_config.json").is_file():
        return [*found, pretrained.load_preprocessing(folder), pretrained.class_names(folder)]
    return [*found, pretrained.load_tokenizer(folder).tokenize(["the cat sat"]).to_list()]


@pytest.mark.parametrize(
    "load", [images.load, translation.load, documents.load_documents, documents.load_labelled]
)
def test_a_path_where_there_is_none_is_a_sentence(load):
    with pytest.raises(ValueError, match="There is no data set 'no/where'"):
        load(pathlib.Path("no/where"))


def test_a_path_where_there_is_data_is_read(tmp_path):
    x, y = np.zeros((40, 8, 8, 3), "uint8"), np.arange(40) % 2
    x[:, 0, 0, 0] = np.arange(40)  # copies of one image would stay together
    names = np.array(["Kuh", "Bär"])
    names = np.array([name.encode() for name in names])
    np.savez(tmp_path / "a.npz", x_train=x, y_train=y, x_test=x, y_test=y, class_names=names)
    assert images.load(tmp_path / "a.npz").train.classes == ["Kuh", "Bär"]


def unigram(folder, name):
    """The `tokenizer.json` of a class that starts decoding with padding, and its settings."""
    hidden = ["<mask_2>", "<mask_1>"] if name == "PegasusTokenizer" else ["<extra_id_0>"]
    pieces = ["<pad>", "</s>", "<unk>", *hidden, "\u2581the", "\u2581cat", "\u2581", *"thecas"]
    space = {
        "type": "Metaspace",
        "replacement": "\u2581",
        "prepend_scheme": "always",
        "split": True,
    }
    end = [{"Sequence": {"id": "A", "type_id": 0}}, {"SpecialToken": {"id": "</s>", "type_id": 0}}]
    definition = {
        "version": "1.0",
        "added_tokens": [
            {"id": i, "content": piece, "special": True, "single_word": False, "lstrip": False}
            | {"rstrip": False, "normalized": False}
            for i, piece in enumerate(pieces[: 3 + len(hidden)])
        ],
        "normalizer": None,
        "pre_tokenizer": space,
        "decoder": space,
        "post_processor": {
            "type": "TemplateProcessing",
            "single": end,
            "pair": [end[0], {"Sequence": {"id": "B", "type_id": 0}}, end[1]],
            "special_tokens": {"</s>": {"id": "</s>", "ids": [1], "tokens": ["</s>"]}},
        },
        "model": {
            "type": "Unigram",
            "unk_id": 2,
            "vocab": [[piece, -float(i)] for i, piece in enumerate(pieces)],
            "byte_fallback": False,
        },
    }
    (folder / "tokenizer.json").write_text(json.dumps(definition))
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": name}))
    return len(pieces)


@pytest.mark.parametrize("name", ["T5Tokenizer", "PegasusTokenizer"])
def test_a_translator_with_tokenizer_json_alone_keeps_its_start(name, tmp_path):
    (tmp_path / "theirs").mkdir()
    unigram(tmp_path / "theirs", name)
    tokenizer = pretrained.load_tokenizer(tmp_path / "theirs")
    assert (tokenizer.start_id, tokenizer.end_id, tokenizer.pad_id) == (0, 1, 0)
    again = pretrained.load_tokenizer(pretrained.save_tokenizer(tokenizer, tmp_path / "ours"))
    assert (again.start_id, again.end_id, again.pad_id) == (0, 1, 0)
    assert again.tokenize(["the cat"]).to_list() == tokenizer.tokenize(["the cat"]).to_list()
    written = json.loads((tmp_path / "ours" / "tokenizer_config.json").read_text())
    assert written["tokenizer_class"] == name


def test_a_translator_without_a_start_is_refused_and_one_of_the_search_is_used(tmp_path):
    unigram(tmp_path, "T5Tokenizer")
    (tmp_path / "tokenizer_config.json").write_text(
        '{"tokenizer_class": "PreTrainedTokenizerFast"}'
    )
    tokenizer = pretrained.load_tokenizer(tmp_path)
    assert tokenizer.start_id is None
    sizes = {"hidden_dim": 8, "num_heads": 2, "mlp_dim": 8, "num_layers": 1}
    model = Transformer(tokenizer.vocab_size, **sizes)
    with pytest.raises(ValueError, match="Translator: the tokenizer must have a `start_id`, or"):
        Translator(model, tokenizer)
    search = Greedy(Constraints(boundaries=Boundaries(start=0)))
    assert Translator(model, tokenizer, search).target_marks == ((0,), (tokenizer.end_id,))
