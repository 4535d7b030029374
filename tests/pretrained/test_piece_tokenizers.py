"""Claims about tokenizers of translators that SentencePiece cuts, beside the published ones."""

import json

import pytest
import sentencepiece

from keras_transformers import pretrained
from keras_transformers.text import MarianTokenizer, PieceTokenizer
from tests.pretrained.piece_folders import CLASSES, CODES, OF_FAIRSEQ, pieces_of, write
from tests.pretrained.test_tokenizer_files import GOLDEN

hf = pytest.importorskip("transformers")
TEXTS = [
    "Open the door.",
    "It's what they'll've done",
    "Größe übergeben",
    "unknown: ☃☃ Ж 日本語",
    "",
    "tab\tand\nlines",
    "a <mask> b",
    "a<extra_id_3>b <extra_id_99> c",
    "<s>en_XX a",
    "a<mask_2> b<unk_7>",
    "__fr__ a",
    "fra_Latn a",
]
# What `transformers` 5 leaves out of what SentencePiece does, and so of what models have learnt:
# mBART's normalisation, and spaces at the end.
OTHERS = ["½ … ﬁ", "a ", " a  b "]


def published(folder, **languages):
    name = json.loads((folder / "tokenizer_config.json").read_text())["tokenizer_class"]
    return getattr(hf, name).from_pretrained(folder, **languages)


def assert_same(ours, theirs):
    expected = theirs(TEXTS)["input_ids"]
    for text, found, ids in zip(
        TEXTS, ours.tokenize(TEXTS, end=True).to_list(), expected, strict=True
    ):
        assert found == ids, text
    assert ours.vocab_size == len(theirs)


@pytest.mark.parametrize("name", CLASSES)
def test_ids_are_the_published_ones_and_what_we_write_is_read(name, tmp_path):
    folder = write(tmp_path, name)
    ours, theirs = pretrained.load_tokenizer(folder), published(folder)
    assert_same(ours, theirs)
    texts = ["Open the door.", "Größe übergeben"]
    ids = ours.tokenize(texts, start=True, end=True)[:, 1:]
    expected = [theirs.decode(row, skip_special_tokens=True) for row in ids.to_list()]
    assert [text.decode() for text in ours.detokenize(ids).numpy()] == expected == texts
    assert_same(ours, published(pretrained.save_tokenizer(ours, tmp_path / "ours")))
    same = PieceTokenizer.from_config(json.loads(json.dumps(ours.get_config())))
    assert same.tokenize(TEXTS, end=True).to_list() == ours.tokenize(TEXTS, end=True).to_list()


@pytest.mark.parametrize("name", CLASSES)
def test_pieces_are_those_of_sentencepiece_where_transformers_has_others(name, tmp_path):
    ours = pretrained.load_tokenizer(write(tmp_path, name))
    model = sentencepiece.SentencePieceProcessor(model_proto=ours.proto)
    known = {*pieces_of(ours.proto)}
    for text, ids in zip(OTHERS, ours.tokenize(OTHERS).to_list(), strict=True):
        expected = [each if each in known else "<unk>" for each in model.encode(text, out_type=str)]
        assert ours.pieces(ids) == expected


@pytest.mark.parametrize("name", OF_FAIRSEQ)
def test_languages_have_their_marks_on_both_sides(name, tmp_path):
    folder, codes = write(tmp_path, name), CODES[name]
    source, target = codes[3], codes[-1]
    ours = pretrained.load_tokenizer(folder, (source, target))
    theirs = published(folder, src_lang=source, tgt_lang=target)
    before, after = ours.source_marks
    text = TEXTS[:2]
    inside = ours.tokenize(text).to_list()
    assert [[*before, *ids, *after] for ids in inside] == theirs(text)["input_ids"]
    expected = theirs(text_target=text)["input_ids"]
    targets = ours.for_targets()
    assert targets.tokenize(text, end=True).to_list() == expected
    token = ours.languages.tokens[target]
    assert ours.language_id == theirs.convert_tokens_to_ids(token)
    start = targets.tokenize(text, start=True).to_list()[0][0]
    assert start == (expected[0][-1] if ours.languages.behind else ours.end_id)
    again = pretrained.load_tokenizer(pretrained.save_tokenizer(ours, tmp_path / "ours"))
    assert (again.languages, again.source_marks) == (ours.languages, ours.source_marks)
    with pytest.raises(ValueError, match="`languages` must have a `target`. Received: None"):
        targets.for_targets()
    with pytest.raises(ValueError, match="`target` must be one of .*Received: 'klingon'"):
        pretrained.load_tokenizer(folder, (source, "klingon"))


def test_settings_that_change_ids_are_read(tmp_path):
    ours = pretrained.load_tokenizer(write(tmp_path, "NllbTokenizer", legacy_behaviour=True))
    assert ours.source_marks == ((), (ours.end_id, ours.vocab.index("eng_Latn")))
    assert_same(ours, published(tmp_path))
    few = pretrained.load_tokenizer(write(tmp_path, "T5Tokenizer", extra_ids=0))  # mT5's
    assert few.vocab_size == 300
    codes = {"language_codes": "wmt21", "additional_special_tokens": []}
    ours = pretrained.load_tokenizer(write(tmp_path, "M2M100Tokenizer", **codes))
    assert (ours.vocab[-1], ours.vocab_size) == ("__de__", 301 + 8)
    again = pretrained.load_tokenizer(pretrained.save_tokenizer(ours, tmp_path / "ours"))
    assert again.vocab == ours.vocab


@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [
        ("PegasusTokenizer", {"offset": 0}, "`offset` must be 103. Received: 0"),
        ("M2M100Tokenizer", {"language_codes": "all"}, "`language_codes` must be m2m100"),
        ("MBartTokenizer", {"src_lang": "eng"}, "`source` must be one of ar_AR.*'eng'"),
        ("T5Tokenizer", {"eos_token": "<end>"}, "`eos_token` must be '</s>'"),
    ],
)
def test_what_is_not_imitated_is_refused_by_name(name, settings, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        pretrained.load_tokenizer(write(tmp_path, name, **settings))


def test_files_that_are_missing_or_of_another_class_are_refused(tmp_path):
    folder = write(tmp_path, "M2M100Tokenizer")
    (folder / "vocab.json").unlink()
    with pytest.raises(FileNotFoundError, match="must have sentencepiece.bpe.model and vocab.json"):
        pretrained.load_tokenizer(folder)
    (folder / "tokenizer_config.json").write_text("{}")
    with pytest.raises(ValueError, match="must name the class of the tokenizer, one of MBart"):
        pretrained.load_tokenizer(folder)
    proto = (folder / "sentencepiece.bpe.model").read_bytes()
    (write(tmp_path, "T5Tokenizer") / "spiece.model").write_bytes(proto)
    with pytest.raises(ValueError, match="first pieces must be <pad>, </s>, <unk>, for a T5Tok"):
        pretrained.load_tokenizer(folder)
    (folder / "spiece.model").write_bytes(b"none")
    with pytest.raises(ValueError, match="is not a SentencePiece model"):
        pretrained.load_tokenizer(folder)


def test_languages_are_refused_where_there_are_none(tmp_path):
    folder = write(tmp_path, "T5Tokenizer")
    with pytest.raises(ValueError, match="`languages` must be None"):
        pretrained.load_tokenizer(folder, ("en", "de"))
    ours = pretrained.load_tokenizer(folder)
    assert (ours.language_id, ours.start_id) == (None, ours.pad_id)
    with pytest.raises(ValueError, match="this tokenizer has no languages"):
        ours.between("en", "de")
    other = MarianTokenizer(ours.proto, [*ours.vocab[:200], "other"])
    assert pretrained.save_tokenizer(other, tmp_path / "marian")
    other = PieceTokenizer(ours.proto, [*ours.vocab[:200], "other"])
    with pytest.raises(ValueError, match="must be numbered as in one of MBartTokenizer"):
        pretrained.save_tokenizer(other, tmp_path / "other")
    with pytest.raises(ValueError, match="token of every language.*Missing: .'__en__'"):
        languages = {"tokens": {"en": "__en__"}, "source": "en"}
        PieceTokenizer(ours.proto, ours.vocab, languages=languages)


def test_barts_ids_are_the_published_ones(tmp_path):
    pieces = sorted(json.loads(str(GOLDEN["gpt2/vocab.json"])).items(), key=lambda pair: pair[1])
    pieces = [piece for piece, _ in pieces if piece != "<|endoftext|>"]
    marks = ["<s>", "<pad>", "</s>", "<unk>"]
    vocab = {piece: number for number, piece in enumerate([*marks, *pieces, "<mask>"])}
    (tmp_path / "vocab.json").write_text(json.dumps(vocab), encoding="utf-8")
    (tmp_path / "merges.txt").write_text(str(GOLDEN["gpt2/merges.txt"]), encoding="utf-8")
    (tmp_path / "config.json").write_text('{"model_type": "bart"}')
    ours, theirs = pretrained.load_tokenizer(tmp_path), hf.BartTokenizer.from_pretrained(tmp_path)
    assert_same_with_start(ours, theirs)
    folder = pretrained.save_tokenizer(ours, tmp_path / "ours")
    assert_same_with_start(ours, hf.AutoTokenizer.from_pretrained(folder))
    assert ours.source_marks == ((0,), (2,))


def assert_same_with_start(ours, theirs):
    found = ours.tokenize(TEXTS, start=True, end=True).to_list()
    assert found == theirs(TEXTS)["input_ids"]
