"""Claims about translators' and XLM-R's folders that have tokenizer.json alone."""

import json
import shutil

import pytest
import tensorflow as tf

from keras_transformers import pretrained
from keras_transformers.pretrained.tokenizer_settings import NLLB
from keras_transformers.text import FastTokenizer, PieceTokenizer
from tests.pretrained.piece_folders import CODES, write
from tests.pretrained.test_piece_tokenizers import TEXTS, published
from tests.text import scripts

hf = pytest.importorskip("transformers")
NAMES = ("PegasusTokenizer", "T5Tokenizer", "XLMRobertaTokenizer", "MBartTokenizer")
NAMES += ("MBart50Tokenizer", "NllbTokenizer")
OF_LANGUAGES = NAMES[3:]
MADE = {}


@pytest.fixture
def folder_of(tmp_path_factory):
    """Function that gives the folder of a class as `transformers` writes it today."""

    def make(name):
        if name not in MADE:
            old = write(tmp_path_factory.mktemp("old"), name)
            MADE[name] = tmp_path_factory.mktemp("new")
            published(old).save_pretrained(MADE[name])
        assert {path.name for path in MADE[name].iterdir()} == {
            "tokenizer.json",
            "tokenizer_config.json",
        }
        return MADE[name]

    return make


def in_graph(tokenizer, **options):
    tokenizer.check_exportable()
    signature = [tf.TensorSpec([None], tf.string)]
    return tf.function(lambda texts: tokenizer.tokenize(texts, **options), signature)


def assert_same(ours, theirs, texts=TEXTS):
    expected = theirs(texts)["input_ids"]
    assert ours.tokenize(texts, **ours.framing).to_list() == expected
    before, after = ours.source_marks
    inside = ours.tokenize(texts).to_list()
    assert [[*before, *ids, *after] for ids in inside] == expected
    assert ours.vocab_size == len(theirs)


@pytest.mark.parametrize("name", NAMES)
def test_ids_are_the_published_ones_and_what_we_write_is_read(name, folder_of, tmp_path):
    ours, theirs = pretrained.load_tokenizer(folder_of(name)), published(folder_of(name))
    assert isinstance(ours, FastTokenizer)
    assert_same(ours, theirs)
    texts = ["Open the door.", "Größe übergeben"]
    ids = ours.tokenize(texts, end=True)
    assert [text.decode() for text in ours.detokenize(ids).numpy()] == texts
    folder = pretrained.save_tokenizer(ours, tmp_path)
    assert_same(ours, hf.AutoTokenizer.from_pretrained(folder))
    again = pretrained.load_tokenizer(folder)
    assert_same(again, theirs)
    assert (again.start_id, again.end_id, again.pad_id) == (ours.start_id, ours.end_id, ours.pad_id)
    twin = FastTokenizer.from_config(json.loads(json.dumps(ours.get_config())))
    assert_same(twin, theirs)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_ids_in_a_graph_are_the_published_ones(name, folder_of):
    languages = (CODES[name][3], CODES[name][-1]) if name in CODES else None
    ours = pretrained.load_tokenizer(folder_of(name), languages)
    codes = dict(zip(("src_lang", "tgt_lang"), languages or (), strict=False))
    theirs, texts = published(folder_of(name), **codes), [*scripts.TEXTS, *TEXTS]
    found = in_graph(ours, **ours.framing)(tf.constant(texts)).to_list()
    assert found == theirs(texts)["input_ids"]
    if languages:
        found = in_graph(ours.for_targets(), end=True)(tf.constant(texts)).to_list()
        assert found == theirs(text_target=texts)["input_ids"]


@pytest.mark.parametrize("name", OF_LANGUAGES)
def test_languages_have_their_marks_on_both_sides(name, folder_of, tmp_path):
    folder, codes = folder_of(name), CODES[name]
    source, target = codes[3], codes[-1]
    ours = pretrained.load_tokenizer(folder, (source, target))
    theirs = published(folder, src_lang=source, tgt_lang=target)
    assert_same(ours, theirs, TEXTS[:3])
    targets = ours.for_targets()
    expected = theirs(text_target=TEXTS[:3])["input_ids"]
    assert targets.tokenize(TEXTS[:3], end=True).to_list() == expected
    assert ours.language_id == theirs.convert_tokens_to_ids(target)
    start = targets.tokenize(TEXTS[:1], start=True).to_list()[0][0]
    assert start == (expected[0][-1] if ours.languages.behind else ours.end_id)
    again = pretrained.load_tokenizer(pretrained.save_tokenizer(ours, tmp_path))
    assert (again.languages, again.source_marks) == (ours.languages, ours.source_marks)
    pair = theirs(TEXTS[:1], text_pair=TEXTS[1:2])["input_ids"]
    assert ours.tokenize(TEXTS[:1], end=True, pair=TEXTS[1:2]).to_list() == pair


@pytest.mark.parametrize("name", NAMES)
def test_both_layouts_of_a_class_are_exchangeable(name, folder_of, tmp_path):
    ours = pretrained.load_tokenizer(folder_of(name))
    old = pretrained.load_tokenizer(write(tmp_path, name))
    assert isinstance(old, PieceTokenizer)
    for options in ({}, {"start": True}, {"end": True}, {"start": True, "end": True}):
        same = TEXTS[:3]
        assert ours.tokenize(same, **options).to_list() == old.tokenize(same, **options).to_list()
    roles = ["start_id", "end_id", "pad_id", "language_id", "vocab_size"]
    roles += ["source_marks"] * (name != "XLMRobertaTokenizer")  # which translates nothing
    for role in roles:
        assert getattr(ours, role) == getattr(old, role), role


def test_legacy_marks_and_a_vocabulary_with_fewer_languages_are_read(folder_of, tmp_path):
    folder = shutil.copytree(folder_of("NllbTokenizer"), tmp_path / "legacy")
    path = folder / "tokenizer_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"legacy_behaviour": True}))
    ours = pretrained.load_tokenizer(folder)
    assert_same(ours, published(folder))
    again = pretrained.load_tokenizer(pretrained.save_tokenizer(ours, tmp_path / "ours"))
    assert again.languages == ours.languages
    fewer = json.loads((folder / "tokenizer.json").read_text())
    fewer["added_tokens"] = [t for t in fewer["added_tokens"] if t["id"] < 301 + 60]
    (folder / "tokenizer.json").write_text(json.dumps(fewer))
    ours = pretrained.load_tokenizer(folder, ("eng_Latn", "fra_Latn"))
    assert (len(ours.languages.tokens), ours.language_id) == (60, 301 + NLLB.index("fra_Latn"))
    with pytest.raises(ValueError, match="`target` must be one of ace_Arab.*Received: 'zul_Latn'"):
        pretrained.load_tokenizer(folder, ("eng_Latn", "zul_Latn"))


def test_what_has_no_languages_or_is_of_no_published_class_is_refused(folder_of, tmp_path):
    with pytest.raises(ValueError, match="`languages` must be None for such a tokenizer"):
        pretrained.load_tokenizer(folder_of("T5Tokenizer"), ("en", "de"))
    config = pretrained.load_tokenizer(folder_of("T5Tokenizer")).get_config()
    languages = {"tokens": {"klingon": "</s>"}, "source": "klingon"}
    ours = FastTokenizer(**{**config, "languages": languages})
    with pytest.raises(ValueError, match="languages must be those of a pub.*Received: klingon"):
        pretrained.save_tokenizer(ours, tmp_path)
    with pytest.raises(ValueError, match=r"token of every language. Missing: \['__en__'\]"):
        languages = {"tokens": {"en": "__en__"}, "source": "en"}
        FastTokenizer(**{**config, "languages": languages})
    folder = shutil.copytree(folder_of("NllbTokenizer"), tmp_path / "m2m")
    (folder / "tokenizer_config.json").write_text('{"tokenizer_class": "M2M100Tokenizer"}')
    with pytest.raises(FileNotFoundError, match="must have sentencepiece.bpe.model and vocab.json"):
        pretrained.load_tokenizer(folder)
