"""Claims about SentencePieceTokenizer: ids, round trips, sampling, files, SavedModels, refusals."""

import subprocess
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from keras_transformers.text import SentencePieceTokenizer

LINES = [
    "the cat sat on the mat",
    "a dog sat on the log",
    "she sells sea shells on the sea shore",
    "the old cat chased the dog along the shore",
    "日本語 и кот",
] * 20
TEXT = "the cat sat on the log"


def trained(model_type="unigram", **options):
    return SentencePieceTokenizer.train(LINES, 36, model_type, **options)


TOKENIZERS = {model_type: trained(model_type) for model_type in ("unigram", "bpe")}


@pytest.fixture(params=sorted(TOKENIZERS))
def tokenizer(request):
    return TOKENIZERS[request.param]


def texts(strings):
    return [text.decode() for text in strings.numpy()]


def test_special_ids_are_0_1_2_3(tokenizer):
    ids = (tokenizer.pad_id, tokenizer.start_id, tokenizer.end_id, tokenizer.unknown_id)
    assert ids == (0, 1, 2, 3)
    assert tokenizer.vocab_size == 36
    assert tokenizer.tokenize(["", ""], start=True, end=True).to_list() == [[1, 2], [1, 2]]
    assert tokenizer.tokenize("☃").numpy()[-1] == 3


def test_text_of_any_script_survives_the_round_trip(tokenizer):
    lines = ["the cat sat", "", "日本語 и кот"]
    assert texts(tokenizer.detokenize(tokenizer.tokenize(lines, end=True))) == lines


@settings(max_examples=30, deadline=None)
@given(st.lists(st.text(alphabet="the casonmdlg", max_size=20), max_size=5))
def test_any_batch_survives_the_round_trip_but_for_spare_spaces(lines):
    ids = TOKENIZERS["unigram"].tokenize(lines, start=True, end=True)
    assert ids.dtype == tf.int32
    assert texts(TOKENIZERS["unigram"].detokenize(ids)) == [" ".join(x.split()) for x in lines]
    assert texts(TOKENIZERS["unigram"].detokenize(ids.to_tensor())) == texts(
        TOKENIZERS["unigram"].detokenize(ids)
    )


def test_one_string_gives_one_sequence(tokenizer):
    one = tokenizer.tokenize(TEXT, start=True, end=True)
    assert one.shape.rank == 1
    assert one.numpy().tolist() == tokenizer.tokenize([TEXT], start=True, end=True).to_list()[0]
    assert tokenizer.detokenize(one).numpy().decode() == TEXT


def test_nothing_after_the_first_end_is_read(tokenizer):
    cat, dog = (tokenizer.tokenize(word).numpy().tolist() for word in ("cat", "dog"))
    row = [1, *cat, 2, *dog, 2, 0]
    assert texts(tokenizer.detokenize([row])) == ["cat"]


def test_padding_anywhere_is_ignored(tokenizer):
    ids = tokenizer.tokenize(TEXT).numpy().tolist()
    assert texts(tokenizer.detokenize([[0, *ids[:3], 0, 0, *ids[3:], 0]])) == [TEXT]


def test_hypotheses_of_a_beam_keep_their_two_axes(tokenizer):
    ids = tokenizer.tokenize([TEXT, "a dog"]).to_tensor()
    beams = tf.stack([ids, ids[::-1], ids], axis=1)
    strings = tokenizer.detokenize(beams)
    assert strings.shape == (2, 3)
    assert texts(strings[:, 1]) == ["a dog", TEXT]


@pytest.mark.parametrize("shape", [(0, 5), (3, 0), (0, 0)])
def test_empty_batches_and_empty_rows_give_empty_strings(tokenizer, shape):
    assert texts(tokenizer.detokenize(tf.zeros(shape, tf.int32))) == [""] * shape[0]


def test_pieces_spell_the_sentence(tokenizer):
    pieces = tokenizer.pieces(tokenizer.tokenize(TEXT, end=True))
    assert pieces.pop() == "</s>"
    assert "".join(pieces).replace("▁", " ").strip() == TEXT


def test_training_twice_gives_the_same_vocabulary(tokenizer):
    model_type = next(name for name, known in TOKENIZERS.items() if known is tokenizer)
    assert trained(model_type).proto == tokenizer.proto


def test_byte_fallback_spells_unknown_characters():
    tokenizer = SentencePieceTokenizer.train(LINES, 292, byte_fallback=True)
    ids = tokenizer.tokenize("the ☃ sat")
    assert 3 not in ids.numpy()
    assert tokenizer.detokenize(ids).numpy().decode() == "the ☃ sat"


LOSSLESS = {
    kind: SentencePieceTokenizer.train(LINES, 290, kind, lossless=True)
    for kind in ("unigram", "bpe")
}
ANY_TEXT = st.text() | st.text("\u2581\x10\x101 \n\t\r\0<s>\u2585\u2047\ufeff\ufffdthe caté日")


@pytest.mark.parametrize("kind", sorted(LOSSLESS))
@settings(max_examples=100, deadline=None)
@given(lines=st.lists(ANY_TEXT, max_size=5))
def test_lossless_ids_give_back_any_text_to_the_byte(kind, lines):
    tokenizer = LOSSLESS[kind]
    ids = tokenizer.tokenize(lines, start=True, end=True)
    assert texts(tokenizer.detokenize(ids)) == lines
    assert not np.any(ids.flat_values == tokenizer.unknown_id)


def test_lossless_ids_of_a_text_in_parts_give_back_the_whole():
    tokenizer = LOSSLESS["unigram"]
    ids = [tokenizer.tokenize(part) for part in ("the cat\n\n  ", " sat", "on the mat", " ☃")]
    text = tokenizer.detokenize(tf.concat(ids, axis=0)).numpy().decode()
    assert text == "the cat\n\n   saton the mat ☃"


def test_lossless_newlines_are_ids_of_their_own_and_drawn_splits_read_the_same():
    tokenizer = LOSSLESS["unigram"]
    text = "the cat\n\n sat\n on \u2581 mats "
    assert tokenizer.pieces(tokenizer.tokenize(text)).count("\n") == 3
    drawn = [tokenizer.tokenize(text, sample=0.1) for _ in range(20)]
    assert len({tuple(ids.numpy()) for ids in drawn}) > 1
    assert {tokenizer.detokenize(ids).numpy().decode() for ids in drawn} == {text}


def test_lossless_training_reads_documents_by_the_line():
    document = SentencePieceTokenizer.train(["\n".join(LINES)], 290, lossless=True)
    assert document.proto == LOSSLESS["unigram"].proto


@pytest.mark.parametrize("lossless", [True, False])
def test_beginnings_of_words_are_marks_newlines_and_pieces_after_a_space(lossless):
    tokenizer = LOSSLESS["unigram"] if lossless else TOKENIZERS["unigram"]
    ids = tokenizer.tokenize("\n the cats", start=True, end=True)
    begins = tokenizer.starts_word
    assert begins.dtype == bool and begins.shape == (tokenizer.vocab_size,)
    for piece, start in zip(tokenizer.pieces(ids), begins[ids], strict=True):
        assert start == (piece in ("<s>", "</s>", "\n") or piece[0] == "▁")
    assert begins[:4].all() and not begins.all()


def test_sampling_in_tf_data_draws_anew_for_each_element_and_epoch(tokenizer):
    dataset = tf.data.Dataset.from_tensors(TEXT).repeat(12)
    dataset = dataset.map(lambda line: tokenizer.tokenize(line, end=True, sample=0.3))
    epochs = [[tuple(ids.numpy()) for ids in dataset] for _ in range(2)]
    assert len(set(epochs[0])) > 1
    assert epochs[0] != epochs[1]
    read = {tokenizer.detokenize(list(ids)).numpy().decode() for ids in epochs[0] + epochs[1]}
    assert read == {TEXT}


def test_without_sampling_every_call_gives_the_same_ids(tokenizer):
    assert len({tuple(tokenizer.tokenize(TEXT).numpy()) for _ in range(5)}) == 1


def test_a_seed_set_later_leaves_the_tokenizer_whole(tokenizer):
    before = tokenizer.tokenize([TEXT]).to_list()
    dataset = tf.data.Dataset.from_tensors([TEXT]).map(tokenizer.tokenize)
    keras.utils.set_random_seed(3)
    assert tokenizer.tokenize([TEXT]).to_list() == before
    assert [ids.to_list() for ids in dataset] == [before]


def test_a_saved_file_loads_as_the_same_tokenizer(tokenizer, tmp_path):
    tokenizer.save(tmp_path / "pieces.model")
    loaded = SentencePieceTokenizer.load(tmp_path / "pieces.model")
    assert loaded.tokenize(LINES).to_list() == tokenizer.tokenize(LINES).to_list()


def test_the_configuration_makes_the_same_tokenizer(tokenizer):
    config = keras.saving.serialize_keras_object(tokenizer)
    made = keras.saving.deserialize_keras_object(config)
    assert made.proto == tokenizer.proto


def test_a_saved_model_with_the_tokenizer_runs_in_another_process(tokenizer, tmp_path):
    class Reader(tf.Module):
        def __init__(self):
            super().__init__()
            self.tokenizer = tokenizer

        @tf.function(input_signature=[tf.TensorSpec([None], tf.string)])
        def __call__(self, lines):
            ids = self.tokenizer.tokenize(lines, start=True, end=True)
            return {"ids": ids.to_tensor(), "text": self.tokenizer.detokenize(ids)}

    reader = Reader()
    tokenizer.tokenize(TEXT, sample=0.5)  # leaves nothing behind that cannot be saved
    tf.saved_model.save(reader, str(tmp_path), signatures=reader.__call__)
    code = (
        "import sys, tensorflow as tf, tensorflow_text\n"
        "serve = tf.saved_model.load(sys.argv[1]).signatures['serving_default']\n"
        "out = serve(tf.constant([sys.argv[2], '']))\n"
        "print(out['ids'].numpy().tolist(), out['text'].numpy().tolist())"
    )
    command = [sys.executable, "-c", code, str(tmp_path), TEXT]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    ids = tokenizer.tokenize([TEXT, ""], start=True, end=True).to_tensor().numpy().tolist()
    assert printed.strip() == f"{ids} {[TEXT.encode(), b'']}"


@pytest.mark.parametrize("model_type", ["unigram", "bpe"])
def test_too_large_a_vocabulary_is_refused_with_the_largest_that_works(model_type):
    with pytest.raises(ValueError, match=r"use \d+ or fewer") as refusal:
        SentencePieceTokenizer.train(LINES, 5000, model_type)
    largest = int(str(refusal.value).split("use ")[1].split()[0])
    assert SentencePieceTokenizer.train(LINES, largest, model_type).vocab_size == largest


def test_too_small_a_vocabulary_is_refused_with_the_smallest_that_works():
    with pytest.raises(ValueError, match=r"at least \d+") as refusal:
        SentencePieceTokenizer.train(LINES, 9)
    smallest = int(str(refusal.value).split("at least ")[1].split(",")[0])
    assert SentencePieceTokenizer.train(LINES, smallest).vocab_size == smallest


@pytest.mark.parametrize("lines", [[], [""], ["  ", "\t"]])
def test_an_empty_corpus_is_refused(lines):
    with pytest.raises(ValueError, match="no text"):
        SentencePieceTokenizer.train(lines)


def test_an_unknown_kind_of_model_is_refused():
    with pytest.raises(ValueError, match="'unigram' or 'bpe'.*Received: 'words'"):
        SentencePieceTokenizer.train(LINES, 36, model_type="words")


def test_a_vocabulary_without_room_for_text_is_refused():
    with pytest.raises(ValueError, match="leaves no room"):
        SentencePieceTokenizer.train(LINES, 4)


def test_a_missing_file_and_a_file_of_another_kind_are_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match="there is no file"):
        SentencePieceTokenizer.load(tmp_path / "none.model")
    for content in (b"", b"hello world"):
        (tmp_path / "other.model").write_bytes(content)
        with pytest.raises(ValueError, match="not a SentencePiece model"):
            SentencePieceTokenizer.load(tmp_path / "other.model")


# What people write, that NFKC writes otherwise or drops.
WRITTEN = ["你好,世界!猫；狗：“门”…", "می‌خواهم", "½ Tasse…", "２０２６年"]


@pytest.mark.parametrize("model_type", ["unigram", "bpe"])
def test_without_normalization_a_vocabulary_gives_back_what_people_write(model_type):
    words = [f"{a}{b}" for a in "aeiou" for b in "bdfgklmnprst"]  # for enough pieces

    def again(normalization):
        made = SentencePieceTokenizer.train(
            WRITTEN * 20 + words * 3, 56, model_type=model_type, normalization=normalization
        )
        return [text.decode() for text in made.detokenize(made.tokenize(WRITTEN)).numpy()]

    import sentencepiece

    assert again("none") == WRITTEN
    for rule in ("nmt_nfkc", "nfkc", "nmt_nfkc_cf", "nfkc_cf"):
        normalizer = sentencepiece.SentencePieceNormalizer(
            rule_name=rule, add_dummy_prefix=False, escape_whitespaces=False
        )
        assert again(rule) == [normalizer.normalize(text) for text in WRITTEN] != WRITTEN


def test_an_unknown_normalization_is_refused():
    with pytest.raises(ValueError, match="`normalization` must be one of none, nmt_nfkc.*'x'"):
        SentencePieceTokenizer.train(WRITTEN, 60, normalization="x")
