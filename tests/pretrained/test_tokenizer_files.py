"""Claims about tokenizers of published folders, each beside the published one: `transformers`."""

import json
import pathlib

import numpy as np
import pytest

from keras_transformers import pretrained
from keras_transformers.text import BytePairTokenizer, FastTokenizer
from tests.text import scripts

tokenizers = pytest.importorskip("tokenizers")
hf = pytest.importorskip("transformers")
GOLDEN = np.load(pathlib.Path(__file__).parents[1] / "golden" / "published_tokenizers.npz")
PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "cat", "##s", "sat", "new", "##er"]
PIECES += ["n", "##e", "##w", "[", "]", "<", ">", "/", "s", "e", "1", "x", "covid", "unused", "你"]
PIECES += ["好", "!", "pad", "|", "im", "##_", "_", "start", "tok", "##en"]
BERT_TEXTS = [
    "The cats sat",
    "the [NEW]cat [NEW]",
    "[new] NEW newer",
    "  [NEW]  [MASK] the",
    "",
    "covid-19 COVID-19 covid",
    "你好 x你好x",
    "<e1>the cat</e1>",
    "[CLS] the [SEP]",
    "[NEW][NEW]",
    "the [NEWER] cat",
    "aCaT",
    "<|im_start|> the",
    # Of KerasHub's tests of its word pieces.
    "ah半推zz",
    "[UNK] THE [MASK] [CLS][SEP][PAD]",
    "the!!cat",
    "quirkily",
    "The",
    "The\u00e9 [N\u0301EW]",
]
GPT2_TEXTS = [
    "It's what they'll do",
    "a<|pad|>b  <|pad|>  c",
    "<|im_start|>user\nHi<|im_end|>\n",
    "  <sp>  x",
    "a <mask> b",
    "newword  newwords",
    "<|endoftext|>",
    "<|endoftext|> <|pad|>",
    "",
    "é<é>é",
    # Of KerasHub's tests of its byte pairs: white space of all kinds, and scripts without any.
    "\n\n\n  s",
    "  \n\n\ns",
    "\xa0 \xa0 \u3000 s",
    "素晴らしい！芭比Q啦～",
    "구글의 수상작",
    "\nairplane",
    "brown.",
    "black",
]


def write(folder, **files):
    """Files of a folder: `a_b` is a_b.json, of what is given."""
    for name, content in files.items():
        (folder / f"{name}.json").write_text(json.dumps(content), encoding="utf-8")


def bert(folder, **settings):
    (folder / "vocab.txt").write_text("\n".join(PIECES) + "\n", encoding="utf-8")
    write(folder, config={"model_type": "bert"})
    if settings:
        write(folder, tokenizer_config={"tokenizer_class": "BertTokenizer", **settings})
    return folder


def gpt2(folder, **settings):
    for name in ("vocab.json", "merges.txt"):
        (folder / name).write_text(str(GOLDEN[f"gpt2/{name}"]), encoding="utf-8")
    write(folder, config={"model_type": "gpt2"})
    if settings:
        write(folder, tokenizer_config={"tokenizer_class": "GPT2Tokenizer", **settings})
    return folder


def assert_same_ids(folder, texts, again=True):
    """Ours beside theirs, and, written by us, beside theirs once more."""
    mine, theirs = pretrained.load_tokenizer(folder), hf.AutoTokenizer.from_pretrained(folder)
    expected = theirs(texts, add_special_tokens=False)["input_ids"]
    for text, found, ids in zip(texts, mine.tokenize(texts).to_list(), expected, strict=True):
        assert found == ids, text
    assert mine.vocab_size == len(theirs)
    if again:
        twin = folder / "twin"
        pretrained.save_tokenizer(mine, twin)
        write(twin, config=json.loads((folder / "config.json").read_text()))
        assert_same_ids(twin, texts, again=False)
    same = type(mine).from_config(json.loads(json.dumps(mine.get_config())))
    assert same.tokenize(texts).to_list() == mine.tokenize(texts).to_list()
    return mine, theirs


def add(folder, *tokens, special=(), texts, **more):
    """Has the published code add tokens and write its files again."""
    theirs = hf.AutoTokenizer.from_pretrained(folder, **more)
    theirs.add_tokens(list(tokens))
    if special:
        theirs.add_special_tokens({"additional_special_tokens": list(special)})
    config = (folder / "config.json").read_text()
    saved = folder / "saved"
    theirs.save_pretrained(saved)
    (saved / "config.json").write_text(config)
    return assert_same_ids(saved, texts)


@pytest.mark.parametrize("lower", [True, False])
def test_tokens_added_to_berts_are_found(lower, tmp_path):
    folder = bert(tmp_path, do_lower_case=lower)
    add(
        folder,
        "[NEW]",
        "COVID-19",
        "你好",
        "aCaT",
        "cat",
        special=["<e1>", "</e1>", "[NEWER]"],
        texts=BERT_TEXTS,
    )


def test_tokens_added_to_gpt2s_are_found(tmp_path):
    space = hf.AddedToken("<sp>", lstrip=True, rstrip=True, special=False)
    mine, theirs = add(
        gpt2(tmp_path),
        "newword",
        space,
        special=["<|im_start|>", "<|im_end|>"],
        texts=GPT2_TEXTS,
        pad_token="<|pad|>",
        bos_token="<|im_start|>",
    )
    assert mine.tokenize(["a"], start=True).to_list()[0][0] == theirs.bos_token_id
    ids = mine.tokenize(GPT2_TEXTS[1:3])
    expected = [theirs.decode(row, skip_special_tokens=True) for row in ids.to_list()]
    assert [text.decode() for text in mine.detokenize(ids).numpy()] == expected


@pytest.mark.parametrize("make", [bert, gpt2])
def test_added_tokens_json_of_older_folders_is_read(make, tmp_path):
    folder = make(tmp_path)
    number = pretrained.load_tokenizer(folder).vocab_size
    tokens = ["[NEW]", "newword", "<|pad|>", "<sp>"]
    write(folder, added_tokens={token: number + i for i, token in enumerate(tokens)})
    write(folder, special_tokens_map={"additional_special_tokens": ["[NEW]", "<|pad|>"]})
    texts = BERT_TEXTS if make is bert else GPT2_TEXTS
    assert_same_ids(folder, texts + ["[new] NEWWORD newword [NEW]"])


def test_tokens_of_tokenizer_json_are_found(tmp_path):
    """As the `tokenizers` library writes it, with no class of transformers'."""
    from tokenizers import AddedToken, ByteLevelBPETokenizer

    fast = ByteLevelBPETokenizer(
        json.loads(str(GOLDEN["gpt2/vocab.json"])),
        [tuple(line.split()) for line in str(GOLDEN["gpt2/merges.txt"]).split("\n")[1:] if line],
    )
    fast.add_special_tokens(["<|endoftext|>", "<|pad|>"])
    fast.add_tokens([AddedToken("<sp>", lstrip=True), "newword"])
    fast.save(str(tmp_path / "tokenizer.json"))
    write(tmp_path, tokenizer_config={"tokenizer_class": "PreTrainedTokenizerFast"})
    write(tmp_path, config={"model_type": "gpt2"})
    mine, _ = assert_same_ids(tmp_path, GPT2_TEXTS, again=False)
    assert isinstance(mine, BytePairTokenizer)


def test_special_pieces_in_a_text_of_marians_are_found(tmp_path):
    for name in ("source.spm", "target.spm"):
        (tmp_path / name).write_bytes(GOLDEN[name].tobytes())
    vocab = json.loads(str(GOLDEN["vocab.json"]))
    write(tmp_path, vocab=vocab, config={"model_type": "marian"})
    texts = ["Open </s> the door", ">>fra<< Open<pad>", "<unk>", "</s", "a <new> b </s>"]
    assert_same_ids(tmp_path, texts)
    write(tmp_path, added_tokens={"<new>": len(vocab)})
    mine, theirs = assert_same_ids(tmp_path, texts)
    ids = mine.tokenize(texts)
    decoded = [theirs.decode(row, skip_special_tokens=True) for row in ids.to_list()[1:2]]
    assert [text.decode() for text in mine.detokenize(ids[1:2]).numpy()] == decoded


@pytest.mark.parametrize(
    ("make", "settings", "message"),
    [
        (bert, {"tokenizer_class": "BertJapaneseTokenizer"}, "`tokenizer_class` must be.*Japanese"),
        (gpt2, {"tokenizer_class": "FNetTokenizer"}, "`tokenizer_class` must be .*FNetTokenizer"),
        (gpt2, {"tokenizer_class": "FNetTokenizerFast"}, "`tokenizer_class` must be one of"),
        (bert, {"tokenizer_class": "GPT2Tokenizer"}, "must have vocab.json and merges.txt"),
        (bert, {"auto_map": {"AutoTokenizer": ["a.B", None]}}, "`auto_map` names code"),
        (bert, {"cls_token": "<s>"}, r"`cls_token` must be '\[CLS\]'. Received: '<s>'"),
        (bert, {"tokenize_chinese_chars": False}, "`tokenize_chinese_chars` must be True"),
        (bert, {"split_special_tokens": True}, "`split_special_tokens` must be False"),
        (gpt2, {"add_prefix_space": True}, "`add_prefix_space` must be False"),
        (gpt2, {"add_bos_token": True}, "`add_bos_token` must be False"),
        (
            bert,
            {"added_tokens_decoder": {"7": {"content": "[NEW]"}}},
            r"the added token '\[NEW\]' must have the id 36.*Received: 7",
        ),
    ],
)
def test_what_is_not_imitated_is_refused_by_name(make, settings, message, tmp_path):
    with pytest.raises((ValueError, FileNotFoundError), match=message):
        pretrained.load_tokenizer(make(tmp_path, **settings))


def test_a_model_of_another_type_without_a_tokenizer_class_is_refused(tmp_path):
    folder = gpt2(tmp_path)
    write(folder, config={"model_type": "fnet"})
    with pytest.raises(
        ValueError, match="must have tokenizer.json, a `tokenizer_class`.*model_type='fnet'"
    ):
        pretrained.load_tokenizer(folder)


@pytest.mark.parametrize(
    ("part", "change", "message"),
    [
        ("model", {"end_of_word_suffix": "</w>"}, "`model.end_of_word_suffix` must be None"),
        ("model", {"ignore_merges": True}, "`model.ignore_merges` must be False"),
        ("pre_tokenizer", {"add_prefix_space": True}, "add_prefix_space` must be False"),
        ("pre_tokenizer", {"type": "Metaspace"}, "`pre_tokenizer` must be 'ByteLevel'"),
    ],
)
def test_another_way_to_split_in_tokenizer_json_is_refused(part, change, message, tmp_path):
    hf.AutoTokenizer.from_pretrained(gpt2(tmp_path)).save_pretrained(tmp_path / "fast")
    path = tmp_path / "fast" / "tokenizer.json"
    found = json.loads(path.read_text(encoding="utf-8"))
    found[part] |= change
    path.write_text(json.dumps(found), encoding="utf-8")
    with pytest.raises(ValueError, match=message):
        pretrained.load_tokenizer(tmp_path / "fast")


@pytest.mark.parametrize("kind", ["llama 3", "llama 2", "unigram"])
def test_a_tokenizer_json_of_any_kind_is_read(kind, tmp_path):
    """With the tokens that the file beside it adds, and the marks that it asks for."""
    definition = json.dumps(scripts.learnt(kind))
    theirs = hf.PreTrainedTokenizerFast(
        tokenizer_object=tokenizers.Tokenizer.from_str(definition),
        bos_token="<s>",
        eos_token="<|eot|>",  # which the vocabulary lacks
        pad_token="<pad>",
    )
    theirs.add_tokens([hf.AddedToken("stark", single_word=True), "[NEW]"])
    theirs.save_pretrained(tmp_path)
    write(tmp_path, config={"model_type": "llama"})
    texts = [*scripts.TEXTS, "starkes stark, stark! [NEW]", "a<|eot|>b"]
    mine, theirs = assert_same_ids(tmp_path, texts)
    assert isinstance(mine, FastTokenizer)
    assert mine.tokenize(texts, **mine.framing).to_list() == theirs(texts)["input_ids"]
    ends = (theirs.bos_token_id, theirs.eos_token_id, theirs.pad_token_id)
    assert (mine.start_id, mine.end_id, mine.pad_id) == ends


def test_a_damaged_tokenizer_json_is_refused(tmp_path):
    definition = scripts.learnt("llama 2")
    write(tmp_path, config={"model_type": "llama"})
    for change in (
        {"model": {}},
        {"model": {"type": "BPE", "vocab": {"a": "b"}}},
        {"added_tokens": [{}]},
    ):
        write(tmp_path, tokenizer={**definition, **change})
        with pytest.raises(ValueError, match="tokenizer.json"):
            pretrained.load_tokenizer(tmp_path).tokenize(["a"])


def test_two_files_that_do_not_agree_on_lower_case_are_refused(tmp_path):
    hf.AutoTokenizer.from_pretrained(bert(tmp_path)).save_pretrained(tmp_path / "fast")
    write(tmp_path / "fast", tokenizer_config={"do_lower_case": False})
    with pytest.raises(ValueError, match="`normalizer.lowercase` must be False"):
        pretrained.load_tokenizer(tmp_path / "fast")
