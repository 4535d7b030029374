"""Claims about tokenizers of `tokenizer.json`: the package's ids, in the graph too, and back."""

import base64
import json
import pathlib
import random
import unicodedata

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from keras_transformers import export, models
from keras_transformers.text import FastTokenizer
from keras_transformers.text.in_graph_splitting import normalizer
from tests.slow import slow_except
from tests.text import scripts

tokenizers = pytest.importorskip("tokenizers")
LETTERS = st.characters(exclude_categories=["Cs", "Cn"])
PARTS = st.one_of(
    st.sampled_from(scripts.TEXTS), st.text(LETTERS, max_size=8), st.sampled_from(scripts.SPECIAL)
)
ROLES = {"start": "<s>", "end": "</s>", "padding": "<pad>", "mask": "<mask>"}
MADE = {}


def made(name):
    """Ours, theirs, and ours in a graph, of a kind; each is made once."""
    if name not in MADE:
        definition = scripts.learnt(name)
        ours = FastTokenizer(definition, **ROLES)
        theirs = tokenizers.Tokenizer.from_str(json.dumps(definition))
        ours.check_exportable()
        signature = [tf.TensorSpec([None], tf.string)]
        in_graph = tf.function(ours.tokenize, input_signature=signature)
        ragged = [tf.RaggedTensorSpec([None, None], tf.int32, row_splits_dtype=tf.int64)]
        back = tf.function(ours.detokenize, input_signature=ragged)
        MADE[name] = ours, theirs, in_graph, back
    return MADE[name]


def assert_same(name, texts):
    ours, theirs, in_graph, back = made(name)
    expected = [each.ids for each in theirs.encode_batch(texts, add_special_tokens=False)]
    assert ours.tokenize(texts).to_list() == expected
    found = in_graph(tf.constant(texts, tf.string, shape=[len(texts)])).to_list()
    for text, ids, others in zip(texts, found, expected, strict=True):
        assert ids == others, text
    visible = [[i for i in row if i != ours.end_id] for row in expected]
    strings = [text.decode() for text in back(_ragged(visible)).numpy()]
    assert strings == theirs.decode_batch(visible)
    assert [text.decode() for text in ours.detokenize(_ragged(visible)).numpy()] == strings


def _ragged(rows):
    return tf.RaggedTensor.from_row_lengths(
        np.array([i for row in rows for i in row], "int32"), [len(row) for row in rows]
    )


@pytest.mark.parametrize(
    "name", slow_except(["bert", "llama 3", "llama 2", "unigram"], "llama 3", "unigram")
)
def test_ids_are_the_packages_both_ways_in_eighteen_languages(name):
    assert_same(name, scripts.TEXTS + scripts.fuzzed(30))


@pytest.mark.slow
@pytest.mark.parametrize("name", scripts.KINDS)
def test_ids_of_every_kind_are_the_packages_both_ways(name):
    assert_same(name, scripts.TEXTS + scripts.fuzzed(1000))


@settings(max_examples=10, deadline=None)
@given(texts=st.lists(st.lists(PARTS, max_size=4).map("".join), min_size=1, max_size=6))
def test_both_ways_agree_on_any_text(texts):
    assert_same("llama 3", texts)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["bert", "cased words", "llama 2", "unigram", "bytes of unigram"])
@settings(max_examples=100, deadline=None)
@given(texts=st.lists(st.lists(PARTS, max_size=4).map("".join), min_size=1, max_size=6))
def test_both_ways_of_other_kinds_agree_on_any_text(name, texts):
    assert_same(name, texts)


def test_sentencepieces_table_of_characters_is_applied_as_by_the_package():
    """To one cluster of characters after another, and to a short one as a whole."""
    from sentencepiece import sentencepiece_model_pb2

    golden = np.load(pathlib.Path(__file__).parents[1] / "golden" / "published_tokenizers.npz")
    proto = sentencepiece_model_pb2.ModelProto.FromString(golden["source.spm"].tobytes())
    table = proto.normalizer_spec.precompiled_charsmap
    part = {"type": "Precompiled", "precompiled_charsmap": base64.b64encode(table).decode()}
    theirs = tokenizers.normalizers.Precompiled(table)
    ours = normalizer(part)
    marks = "\u0301\u0308\u0323\u200d\u200c\u3099\u0e33\u093f\u1038\r\n\u0600\u200b\ufb01\u2122"
    draw = random.Random(0)
    # What Unicode had no character for is new to one of both.
    codes = [*range(0x20, 0x3000), *range(0xF900, 0x10000)]
    codes = [chr(each) for each in codes if unicodedata.category(chr(each)) != "Cn"]
    letters = "".join(draw.choices(codes, k=999))
    texts = [*scripts.TEXTS, *scripts.fuzzed(100), letters]
    texts += ["".join(draw.choices("aeoé ﬁｶ" + marks, k=9)) for _ in range(500)]
    found = [text.decode() for text in ours(tf.constant(texts)).numpy()]
    assert found == [theirs.normalize_str(text) for text in texts]


def test_marks_and_truncation_are_the_files():
    definition = scripts.learnt("gpt2")
    texts, pairs = scripts.ARTICLE[:4], ["", "a", *scripts.ARTICLE[4:6]]
    for direction in ("Right", "Left"):
        for strategy in ("LongestFirst", "OnlyFirst"):
            cut = {"max_length": 61, "strategy": strategy, "stride": 0, "direction": direction}
            theirs = tokenizers.Tokenizer.from_str(json.dumps({**definition, "truncation": cut}))
            ours = FastTokenizer({**definition, "truncation": cut}, **ROLES)
            asked = {"start": True, "end": True, "truncate": True}
            found = ours.tokenize(texts, **asked).to_list()
            assert found == [each.ids for each in theirs.encode_batch(texts)]
            if strategy == "LongestFirst":
                both = list(zip(texts, pairs, strict=True))
                found = ours.tokenize(texts, pair=pairs, **asked).to_list()
                assert found == [each.ids for each in theirs.encode_batch(both)]
    assert ours.tokenize(texts).to_list() == [
        each.ids for each in made("gpt2")[1].encode_batch(texts, add_special_tokens=False)
    ]
    one = ours.tokenize(texts[0], start=True, end=True)
    assert one.shape.rank == 1 and (one[0], one[-1]) == (ours.start_id, ours.end_id)


def test_texts_end_at_end_and_broken_utf8_is_replaced():
    ours, theirs, in_graph, _ = made("llama 2")
    texts = tf.constant([b"caf\xc3\xa9 \xff\xfe", b"\xe6\x97 x"])
    ids = ours.tokenize(texts)
    assert in_graph(texts).to_list() == ids.to_list()
    assert ids.to_list()[0] == theirs.encode("café \ufffd\ufffd", add_special_tokens=False).ids
    row = [*theirs.encode("a cat").ids, ours.end_id, 7, ours.pad_id]
    assert ours.detokenize([row]).numpy()[0].decode() == "a cat"
    with pytest.raises(ValueError, match=r"`ids` must be from 0 to \d+, the vocabulary's"):
        ours.detokenize([[ours.vocab_size]])
    assert ours.pieces(theirs.encode("a", add_special_tokens=False).ids) == ["▁a"]


def test_what_ops_do_not_give_is_done_by_the_package_and_refused_for_export():
    definition = scripts.learnt("gpt2")
    split = {"type": "UnicodeScripts"}
    ours = FastTokenizer({**definition, "pre_tokenizer": split}, **ROLES)
    with pytest.raises(ValueError, match="not give exactly the pre-tokenizer UnicodeScripts: it"):
        ours.check_exportable()
    model = models.TextEncoder.from_variant("tiny", ours.vocab_size, head="masked_language")
    filler = export.MaskFiller(model, ours, lengths=(16,))
    assert isinstance(filler.predict("a <mask> of")["text"], str)
    with pytest.raises(ValueError, match="UnicodeScripts"):
        filler.save("nowhere")
    texts = scripts.ARTICLE[:3]
    data = tf.data.Dataset.from_tensor_slices(texts).batch(2).map(ours.tokenize).unbatch()
    assert [row.numpy().tolist() for row in data] == ours.tokenize(texts).to_list()


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"normalizer": {"type": "ByteLevel"}}, "normaliser ByteLevel: its letters for bytes"),
        ({"pre_tokenizer": scripts._split(r"\w+(?=a)")}, r"no exact counterpart of '\\\\w'"),
        ({"pre_tokenizer": scripts._split(r"a(?=b)")}, r"no exact counterpart of '\(\?=b'"),
        ({"pre_tokenizer": scripts._split(r"\s+(?!\S)|x|\s+")}, "knows nothing of 'x'"),
        ({"decoder": {"type": "CTC"}}, "the decoder CTC: it is not known here"),
    ],
)
def test_a_part_without_ops_is_named_with_the_reason(change, reason):
    definition = {**scripts.learnt("gpt2"), **change}
    if "decoder" not in change:
        definition["pre_tokenizer"] = scripts._sequence(
            "pretokenizers", *filter(None, [change.get("pre_tokenizer")]), scripts.LETTERS
        )
    with pytest.raises(ValueError, match=reason):
        FastTokenizer(definition, **ROLES).check_exportable()


def test_a_configuration_makes_the_same_tokenizer():
    ours, _, _, _ = made("llama 3")
    twin = FastTokenizer.from_config(json.loads(json.dumps(ours.get_config())))
    assert twin.tokenize(scripts.TEXTS).to_list() == ours.tokenize(scripts.TEXTS).to_list()
    assert (twin.start_id, twin.end_id, twin.pad_id, twin.mask_id) == (1, 2, 4, 3)
    assert set(twin.special_ids) == {0, 1, 2, 3, 4}


@pytest.mark.parametrize(
    ("definition", "message"),
    [
        ("{", "FastTokenizer: JSONDecodeError"),
        ({}, "FastTokenizer: KeyError: 'model'"),
        ({"model": {"vocab": {"a": -1}}}, "the vocabulary must map tokens to ids"),
        ({"model": {"vocab": {"a": 0}}, "post_processor": {"type": "X"}}, "the post-processor X"),
    ],
)
def test_what_is_no_tokenizer_is_refused(definition, message):
    with pytest.raises(ValueError, match=message):
        FastTokenizer(definition)
    with pytest.raises(ValueError, match="`start` must be a token of the vocabulary"):
        FastTokenizer({"model": {"vocab": {"a": 0}}}, start="b")


def test_it_is_saved_and_runs_without_this_project(tmp_path):
    ours, theirs, _, _ = made("llama 2")
    module = tf.Module()
    signature = [tf.TensorSpec([None], tf.string)]
    module.ids = tf.function(lambda text: ours.tokenize(text).to_tensor(-1), signature)
    tf.saved_model.save(module, str(tmp_path))
    found = tf.saved_model.load(str(tmp_path)).ids(tf.constant(scripts.ARTICLE)).numpy()
    expected = [each.ids for each in theirs.encode_batch(scripts.ARTICLE, add_special_tokens=False)]
    assert [row[row >= 0].tolist() for row in found] == expected
    graph = module.ids.get_concrete_function().graph
    operations = {op.type for op in graph.get_operations()}
    assert not [each for each in operations if "PyFunc" in each]


def test_ids_far_beyond_the_number_of_tokens_are_refused():
    """A table of all ids took 25 s and 460 MiB."""
    vocab = {"a": 0, "?": 1, "b": 50_000_000}
    with pytest.raises(ValueError, match="3 tokens must have ids below 65542.*Received: 50000000"):
        FastTokenizer({"model": {"type": "WordLevel", "vocab": vocab, "unk_token": "?"}})
    vocab["b"] = 65_541
    tokenizer = FastTokenizer({"model": {"type": "WordLevel", "vocab": vocab, "unk_token": "?"}})
    assert tokenizer.vocab_size == 65_542


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "JSONDecodeError"),
        ("[", "JSONDecodeError"),
        ("[]", "must be a JSON object. Received: a list"),
        ("[" * 100_000, "RecursionError"),
        ('{"model":', "JSONDecodeError"),
        ('{"model": {"vocab": {"a": 0}}, "added_tokens": [{"id": 0, "content": "a"}]}', "special"),
        ('{"model": {"vocab": {"a": 0}}, "added_tokens": ["a"]}', "TypeError"),
        ('{"model": {"vocab": [[]]}}', "ValueError"),
    ],
)
def test_content_that_is_no_object_or_is_cut_is_refused(content, message):
    with pytest.raises(ValueError, match=message):
        FastTokenizer(content)


def with_pattern(pattern):
    model = {"type": "WordLevel", "vocab": {"a": 0, "?": 1}, "unk_token": "?"}
    split = {"type": "Split", "pattern": {"Regex": pattern}}
    split |= {"behavior": "Isolated", "invert": False}
    return FastTokenizer({"model": model, "pre_tokenizer": split})


def test_a_pattern_at_which_the_package_panics_is_a_value_error():
    with pytest.raises(ValueError, match="FastTokenizer: `tokenizers` panics: .*retry-limit"):
        with_pattern("(a+)+$").tokenize(["a" * 40 + "!"])


@pytest.mark.parametrize("pattern", ["[", "[^", "[a-", "\\", "a\\", "[\\", "|[", "(?", "\\p{"])
def test_a_pattern_that_is_cut_is_refused(pattern):
    with pytest.raises(ValueError, match="do not give exactly"):
        with_pattern(pattern).check_exportable()
    with pytest.raises(ValueError, match="FastTokenizer: `tokenizers` cannot read it|counterpart"):
        with_pattern(pattern).tokenize(["a"])
