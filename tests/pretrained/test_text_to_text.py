"""Claims about models from sequence to sequence from text to text, beside `transformers`."""

import json

import numpy as np
import pytest
import tensorflow as tf
from safetensors.numpy import save_file

import keras_transformers
from keras_transformers import export, pretrained
from keras_transformers.generation import generate
from keras_transformers.pretrained.folder import FAMILIES
from keras_transformers.tasks import translation
from tests.pretrained.folders import bert, eagerly
from tests.pretrained.piece_folders import write
from tests.pretrained.test_bad_folders import edit, tensors
from tests.pretrained.test_tokenizer_files import GOLDEN
from tests.serving.reachable import MUST_COMPILE, reached, read

hf = pytest.importorskip("transformers")
torch = pytest.importorskip("torch")
TEXTS = ["Open the door.", "It is what they do", "Größe"]
OF_BART = {
    "d_model": 16,
    "encoder_layers": 1,
    "decoder_layers": 1,
    "encoder_attention_heads": 2,
    "decoder_attention_heads": 2,
    "encoder_ffn_dim": 24,
    "decoder_ffn_dim": 24,
    "init_std": 0.5,
}
OF_T5 = {"d_model": 16, "d_kv": 8, "d_ff": 24, "num_layers": 1, "num_heads": 2}
OF_T5 |= {"initializer_factor": 4.0, "decoder_start_token_id": 0}
# Family -> class of its tokenizer, beginning of its classes' names, languages, settings.
KINDS = {
    "t5": ("T5Tokenizer", "T5", None, OF_T5),
    "mt5": ("T5Tokenizer", "MT5", None, OF_T5),
    "bart": ("BartTokenizer", "Bart", None, OF_BART),
    "mbart": ("MBart50Tokenizer", "MBart", ("de_DE", "fr_XX"), OF_BART),
    "m2m_100": ("M2M100Tokenizer", "M2M100", ("de", "fr"), OF_BART),
    "nllb": ("NllbTokenizer", "M2M100", ("deu_Latn", "fra_Latn"), OF_BART),
    "pegasus": ("PegasusTokenizer", "Pegasus", None, OF_BART),
}
# As `transformers` writes them today, with tokenizer.json in place of SentencePiece's model.
KINDS |= {f"{kind} today": KINDS[kind] for kind in ("t5", "mbart", "nllb", "pegasus")}
OFTEN = ("t5", "mbart")
TRIED = [pytest.param(each, marks=() if each in OFTEN else pytest.mark.slow) for each in KINDS]


def bart_files(folder):
    pieces = sorted(json.loads(str(GOLDEN["gpt2/vocab.json"])).items(), key=lambda pair: pair[1])
    pieces = ["<s>", "<pad>", "</s>", "<unk>", *(piece for piece, _ in pieces[1:]), "<mask>"]
    vocab = {piece: number for number, piece in enumerate(pieces)}
    (folder / "vocab.json").write_text(json.dumps(vocab), encoding="utf-8")
    (folder / "merges.txt").write_text(str(GOLDEN["gpt2/merges.txt"]), encoding="utf-8")
    (folder / "tokenizer_config.json").write_text('{"tokenizer_class": "BartTokenizer"}')


def publish(kind, folder):
    """A model and tokenizer of transformers, and the folder that it is read from."""
    name, start, languages, sizes = KINDS[kind]
    if kind == "bart":
        bart_files(folder)
    else:
        write(folder, name)
    codes = {} if languages is None else dict(zip(("src_lang", "tgt_lang"), languages, strict=True))
    tokenizer = getattr(hf, name).from_pretrained(folder, **codes)
    if kind.endswith("today"):
        for path in folder.iterdir():
            path.unlink()
        tokenizer.save_pretrained(folder)
    torch.manual_seed(3)
    config = getattr(hf, f"{start}Config")(
        vocab_size=len(tokenizer),
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        decoder_start_token_id=sizes.get("decoder_start_token_id", tokenizer.eos_token_id),
        **{k: v for k, v in sizes.items() if k != "decoder_start_token_id"},
    )
    model = getattr(hf, f"{start}ForConditionalGeneration")(config).eval()
    model.generation_config.update(
        num_beams=2,
        forced_eos_token_id=tokenizer.eos_token_id,
        bad_words_ids=[[tokenizer.pad_token_id]],  # ours never chooses padding
    )
    model.save_pretrained(folder)
    return model, tokenizer


def theirs_of(model, tokenizer, languages):
    """Tokens and texts of transformers for each of the texts."""
    first = {}
    if languages is not None:
        token = f"__{languages[1]}__" if len(languages[1]) == 2 else languages[1]
        first = {"forced_bos_token_id": tokenizer.convert_tokens_to_ids(token)}
    found = []
    for text in TEXTS:
        batch = tokenizer(text, return_tensors="pt")
        most = 2 * batch["input_ids"].shape[1] + 10
        with torch.no_grad():
            tokens = model.generate(**batch, max_new_tokens=most, **first)[0]
        decoded = tokenizer.decode(tokens, skip_special_tokens=True)
        found.append((tokens[1:].tolist(), " ".join(decoded.split())))
    return found


def ours_of(kind, folder):
    """Model, tokenizer and translator of a published folder."""
    words = pretrained.load_tokenizer(folder, KINDS[kind][2])
    search = pretrained.load_search(folder, getattr(words, "language_id", None))
    model = pretrained.load(folder)
    return model, words, search, export.Translator(model, words, search, source_lengths=(16,))


@pytest.mark.parametrize("kind", TRIED)
def test_texts_become_the_published_texts(kind, tmp_path):
    expected = theirs_of(*publish(kind, tmp_path), KINDS[kind][2])
    assert len({text for _, text in expected}) > 1
    *_, translator = ours_of(kind, tmp_path)
    with eagerly():
        served = translator.portable(tf.constant(TEXTS))["translation"].numpy()
    assert [" ".join(text.decode().split()) for text in served] == [text for _, text in expected]


LIMITS = {
    "longer": {"max_length": 61, "min_length": 12},
    "shorter": {"max_new_tokens": 3},
    "asked": {},
}


@pytest.mark.parametrize("kind", ["t5", "bart", "pegasus", "mt5"])
@pytest.mark.parametrize("name", LIMITS)
def test_an_output_is_as_long_as_its_folder_or_the_user_says(kind, name, tmp_path):
    """Not as long as follows from its source, as that of a translation."""
    model, tokenizer = publish(kind, tmp_path)
    model.generation_config.update(**LIMITS[name])
    model.save_pretrained(tmp_path)
    asked = {"new_tokens": 45} if name == "asked" else {}
    expected = []
    for text in TEXTS:
        with torch.no_grad():
            batch, most = tokenizer(text, return_tensors="pt"), asked.get("new_tokens")
            tokens = model.generate(**batch, **({"max_new_tokens": most} if most else {}))[0]
        expected.append(" ".join(tokenizer.decode(tokens, skip_special_tokens=True).split()))
    loaded = keras_transformers.load(tmp_path, **asked)
    with eagerly():
        found = loaded.predict(TEXTS)
    assert [" ".join(text.split()) for text in found] == expected
    loaded.save(tmp_path / "saved")
    again = keras_transformers.load(tmp_path / "saved", **asked)
    with eagerly():
        assert again.predict(TEXTS) == found


def test_what_generates_no_text_has_no_limit_on_tokens(tmp_path):
    model = bert(tmp_path)
    model.build((None, None))
    pretrained.save(model, tmp_path)
    with pytest.raises(ValueError, match="generates no text, so `new_tokens` must be None"):
        keras_transformers.load(tmp_path, new_tokens=5)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_a_saved_model_gives_without_xla_what_generate_gives(kind, tmp_path):
    ((expected, text), *_) = theirs_of(*publish(kind, tmp_path), KINDS[kind][2])
    model, words, search, translator = ours_of(kind, tmp_path)
    before, after = words.source_marks
    source = np.array([[*before, *words.tokenize(TEXTS[0]).numpy(), *after]])
    most = 2 * source.shape[1] + 10
    found = generate(model, source, search=search, max_length=most)["tokens"][0]
    assert found[: len(expected)].tolist() == expected
    path = translator.save(tmp_path / "served")
    names = reached(read(path), "serving_default")
    assert len(names) > 50 and MUST_COMPILE not in names
    assert not [each for each in names if each.startswith("Xla")]
    served = tf.saved_model.load(str(path)).signatures["serving_default"]
    answer = served(text=tf.constant(TEXTS[:1]))["translation"].numpy()[0].decode()
    assert " ".join(answer.split()) == text


def test_the_one_door_asks_for_the_languages_that_no_file_says(tmp_path, monkeypatch):
    publish("nllb", tmp_path)
    made = []

    def translator(model, words, search):
        made.append((words, search.constraints.boundaries))
        raise InterruptedError  # nothing need be compiled

    monkeypatch.setattr(translation, "Translator", translator)
    with pytest.raises(
        ValueError, match="many languages, and no file says which. Give `languages`"
    ):
        keras_transformers.load(tmp_path)
    with pytest.raises(InterruptedError):
        keras_transformers.load(tmp_path, languages=("deu_Latn", "fra_Latn"))
    path = tmp_path / "generation_config.json"
    asked = json.loads(path.read_text())
    path.write_text(json.dumps({**asked, "forced_bos_token_id": 7}))
    with pytest.raises(InterruptedError):
        keras_transformers.load(tmp_path)
    (words, first), (_, second) = made
    assert (words.languages.source, first.first) == ("deu_Latn", words.language_id)
    assert (first.start, second.first) == (words.end_id, 7)


def test_languages_are_refused_where_nothing_is_translated(tmp_path):
    with pytest.raises(ValueError, match="no published translator, so `languages` must be None"):
        keras_transformers.load(tmp_path, languages=("en", "de"))


@pytest.mark.parametrize(
    ("config", "scaled"),
    [
        ({}, True),
        ({"tie_word_embeddings": True}, True),
        ({"tie_word_embeddings": False}, False),  # version 1.1 on the hub
        ({"tie_word_embeddings": True, "scale_decoder_outputs": False}, False),  # and of v5
    ],
)
def test_whether_t5s_logits_are_scaled_is_read_as_transformers_reads_it(config, scaled):
    read = FAMILIES["t5"].configuration.read
    assert read(config, "here")["scale_logits"] is scaled
    assert hf.T5Config(**config).scale_decoder_outputs is scaled
    assert FAMILIES["mt5"].configuration.read({}, "here")["scale_logits"] is False


@pytest.mark.parametrize("network", ["relu", "gated-gelu", "gated-silu", "gelu", "gelu_new"])
def test_t5s_networks_are_read_and_written(network):
    configuration = FAMILIES["t5"].configuration
    found = configuration.read({"feed_forward_proj": network}, "here")
    assert configuration.write(found)["feed_forward_proj"] == network
    config = hf.T5Config(feed_forward_proj=network)
    assert found["network"][0] == config.is_gated_act
    with pytest.raises(ValueError, match="as network a gated network with gelu_tanh, not 'gelu'"):
        configuration.write({**found, "network": (True, "gelu")})


@pytest.fixture
def t5(tmp_path):
    """The folder of a small T5 with two tables."""
    config = {"vocab_size": 11, "d_model": 6, "d_kv": 5, "d_ff": 7, "num_layers": 1, "num_heads": 3}
    config |= {"relative_attention_num_buckets": 8, "relative_attention_max_distance": 6}
    arguments = FAMILIES["t5"].configuration.read(config, "here")
    return pretrained.save(FAMILIES["t5"].build({**arguments, "tied": False}), tmp_path / "t5")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"d_model": 10**9}, "d_model=1000000000, the tensor shared.weight must have shape"),
        ({"num_layers": 5000}, "num_layers=5000 must be the number of layers"),
        ({"num_decoder_layers": 3}, "num_decoder_layers=3 must be the number of layers"),
        ({"num_heads": 5}, "num_heads=5, the tensor encoder.block.0.*attention_bias.weight must"),
        ({"d_kv": 10**8}, "a model larger than the file of its weights"),
        ({"feed_forward_proj": 3}, "`feed_forward_proj` must be one of gelu.*Received: 3"),
        ({"is_decoder": True}, "`is_decoder` must be False for models of type t5"),
    ],
)
def test_a_configuration_that_does_not_fit_a_t5_is_refused_by_name(t5, changes, message):
    edit(t5, **changes)
    with pytest.raises(ValueError, match=message):
        pretrained.load(t5)


def test_a_file_without_a_table_for_logits_has_one_for_both(t5):
    assert len(pretrained.load(t5).weights) == len(tensors(t5))
    found = tensors(t5)
    head = found.pop("lm_head.weight")
    save_file(found, t5 / "model.safetensors")
    assert len(pretrained.load(t5).weights) == len(found)
    save_file({**found, "lm_head.weight": head[:-1]}, t5 / "model.safetensors")
    with pytest.raises(ValueError, match=r"lm_head.weight must have shape \(11, 6\)"):
        pretrained.load(t5)


def test_a_t5_of_other_parts_is_not_written_as_one(t5):
    model = pretrained.load(t5)
    with pytest.raises(ValueError, match="models of type mt5 must have scale_logits=False"):
        pretrained.save(model, t5, family="mt5")
    with pytest.raises(ValueError, match="must have source_embedding.scale=False. Received: True"):
        model.target_embedding.scale = True
        pretrained.save(model, t5, family="t5")
    with pytest.raises(ValueError, match="with `first_position`. Received: RelativePositionBias"):
        pretrained.save(model, t5, family="bart")
