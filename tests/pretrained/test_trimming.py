"""Claims about models with a part of their vocabulary."""

import json
import pathlib

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_transformers import export, layers, models, pretrained
from keras_transformers.generation import (
    BeamSearch,
    Boundaries,
    Constraints,
    Greedy,
    Sampling,
    generate,
)
from keras_transformers.text import SentencePieceTokenizer
from keras_transformers.training import add_lora
from recipes.data.translation import load as load_pairs
from tests.pretrained.folders import WIDTHS, bert, gpt2, marian
from tests.pretrained.piece_folders import write

hf, torch = pytest.importorskip("transformers"), pytest.importorskip("torch")
PAIRS = load_pairs("ui.en-de").train
SHORT = [pair for pair in zip(PAIRS.sources, PAIRS.targets, strict=True) if len(pair[0]) < 20][:7]
TEXTS, TARGETS = [list(side) for side in zip(*SHORT, strict=True)]
# Folder of the tokenizer -> what the model beside it is saved as.
FAMILIES = {"MBartTokenizer": "mbart", "NllbTokenizer": "m2m_100", "M2M100Tokenizer": "m2m_100"}


def randomised(model, seed=7):
    """Weights with biases that are not zero, so that a row in the wrong place is seen."""
    rng = np.random.default_rng(seed)
    for weight in model.weights:
        value = rng.normal(size=weight.shape) * 0.3 + keras.ops.convert_to_numpy(weight)
        weight.assign(value.astype("float32"))
    return model


def published_translator(folder, name):
    """A tiny model of a published class, as `pretrained.load` makes it, and its tokenizer."""
    languages = {"MBartTokenizer": ("en_XX", "de_DE"), "NllbTokenizer": ("eng_Latn", "deu_Latn")}
    tokenizer = pretrained.load_tokenizer(write(folder, name), languages.get(name, ("en", "de")))
    config = {
        "vocab_size": tokenizer.vocab_size + 2,  # rows that are no token's, as published ones have
        "d_model": 12, "encoder_layers": 1, "decoder_layers": 1, "encoder_attention_heads": 3,
        "decoder_attention_heads": 3, "encoder_ffn_dim": 20, "decoder_ffn_dim": 20,
        "max_position_embeddings": 256, "pad_token_id": 1, "eos_token_id": 2, "bos_token_id": 0,
    }  # fmt: skip
    torch.manual_seed(1)
    kind = {"mbart": "MBart", "m2m_100": "M2M100"}[FAMILIES[name]]
    model = getattr(hf, f"{kind}ForConditionalGeneration")(getattr(hf, f"{kind}Config")(**config))
    model.save_pretrained(folder)
    return randomised(pretrained.load(folder)), tokenizer


def translator(name, folder):
    """A tiny translator and its tokenizer, by name."""
    if name in FAMILIES:
        return published_translator(folder, name)
    if name == "marian":
        model = marian(folder)
        tokenizer = pretrained.load_tokenizer(folder)
    else:
        tokenizer = SentencePieceTokenizer.train(PAIRS.sources[:500] + PAIRS.targets[:500], 300)
        tables = {"recurrent": {"target_vocab_size": 300}}.get(name, {})
        kind = models.RecurrentTranslator if name == "recurrent" else models.Transformer
        numbers = {"hidden_dim": 16} if name == "recurrent" else WIDTHS
        if name == "apart":
            table = layers.TokenEmbedding(300, 16, tie_weights=False, logits_bias=True)
            numbers = {**WIDTHS, "embedding": (layers.TokenEmbedding(300, 16), table)}
            del numbers["hidden_dim"]
        else:
            numbers = {**numbers, "vocab_size": 300}
        model = kind(**numbers, **tables)
    model.build({"source": (None, None), "target": (None, None)})
    return randomised(model), tokenizer


def ids_of(tokenizer, texts, padding, **options):
    return tokenizer.tokenize(texts, **options).to_tensor(padding).numpy()


@pytest.mark.parametrize("name", [*FAMILIES, "marian", "tied", "apart", "recurrent"])
def test_logits_of_kept_ids_are_the_same_to_the_bit(name, tmp_path):
    model, tokenizer = translator(name, tmp_path)
    trimmed = pretrained.trim_vocabulary(model, tokenizer, TEXTS, TARGETS)
    logits = []
    for each, words in ((model, tokenizer), (trimmed.model, trimmed.tokenizer)):
        source = ids_of(words, TEXTS, each.padding_id, end=True)
        other = words.for_targets() if hasattr(words, "for_targets") else words
        target = ids_of(other, TARGETS, each.padding_id, start=True)
        logits.append(np.array(each({"source": source, "target": target})))
    assert trimmed.model.count_params() < model.count_params()
    assert logits[1].shape[-1] == len(trimmed.kept) == trimmed.tokenizer.vocab_size
    np.testing.assert_array_equal(logits[1], logits[0][..., trimmed.kept])


@pytest.mark.parametrize(
    ("name", "search"),
    [
        ("marian", Greedy()),
        pytest.param("marian", BeamSearch(3), marks=pytest.mark.slow),
        pytest.param("MBartTokenizer", Greedy(), marks=pytest.mark.slow),
    ],
)
def test_translations_of_kept_pieces_are_the_same(name, search, tmp_path):
    """Where the old model may write kept pieces alone, both write the same.

    Beams compare log-probabilities of different beginnings, and what the gone pieces had of each
    differs. So the old model's are those among the kept pieces, too.
    """
    model, tokenizer = translator(name, tmp_path)
    trimmed = pretrained.trim_vocabulary(model, tokenizer, TEXTS, TARGETS)
    kept = {*trimmed.kept.tolist(), model.padding_id}
    rows = model.target_embedding.vocab_size
    gone = tuple(each for each in range(rows) if each not in kept)
    boundaries = Boundaries(first=tokenizer.language_id, last=tokenizer.end_id)
    limits = Constraints(
        banned=(*gone, tokenizer.unknown_id), boundaries=boundaries, renormalize=True
    )
    asked = type(search)(**{**vars(search), "constraints": limits})
    found = []
    both = ((model, tokenizer, asked), (trimmed.model, trimmed.tokenizer, trimmed.search(asked)))
    for each, words, how in both:
        source = ids_of(words, TEXTS, each.padding_id, end=True)
        start = {"start_id": words.start_id, "end_id": words.end_id}
        result = generate(each, source, search=how, max_length=6, **start)
        tokens = np.array(result["tokens"])
        lengths = np.array(result["lengths"])
        found.append((tokens, lengths))
        assert how.constraints.boundaries.last == words.end_id
    assert len(trimmed.search(asked).constraints.banned) == 1
    np.testing.assert_array_equal(found[0][1], found[1][1])
    for old, new, length in zip(found[0][0], found[1][0], found[0][1], strict=True):
        row = old.reshape(-1)[: int(np.ravel(length)[0])]
        again = new.reshape(-1)[: len(row)]
        assert trimmed.kept[again].tolist() == row.tolist()


@pytest.mark.parametrize("name", ["MBartTokenizer", "NllbTokenizer", "marian"])
def test_transformers_reads_what_is_saved(name, tmp_path):
    model, tokenizer = translator(name, tmp_path)
    trimmed = pretrained.trim_vocabulary(model, tokenizer, TEXTS, TARGETS)
    folder = tmp_path / "trimmed"
    pretrained.save(trimmed.model, folder, family=FAMILIES.get(name, "marian"))
    pretrained.save_tokenizer(trimmed.tokenizer, folder)
    theirs = hf.AutoModelForSeq2SeqLM.from_pretrained(folder)
    words = hf.AutoTokenizer.from_pretrained(folder)
    given = words(TEXTS, return_tensors="pt", padding=True)
    source = ids_of(trimmed.tokenizer, TEXTS, trimmed.model.padding_id, end=True)
    np.testing.assert_array_equal(given["input_ids"].numpy(), source)
    target = source[:, :4]
    with torch.no_grad():
        expected = theirs(**given, decoder_input_ids=torch.tensor(target)).logits.numpy()
    ours = np.array(trimmed.model({"source": source, "target": target}))
    np.testing.assert_allclose(ours, expected, atol=1e-4)
    again, cut = pretrained.load(folder), pretrained.load_tokenizer(folder)
    assert cut.tokenize(TEXTS).to_list() == trimmed.tokenizer.tokenize(TEXTS).to_list()
    np.testing.assert_array_equal(np.array(again({"source": source, "target": target})), ours)


@pytest.mark.parametrize("name", ["gpt2", "bert"])
def test_models_of_one_text_lose_rows_too(name, tmp_path):
    model = gpt2(tmp_path) if name == "gpt2" else bert(tmp_path)
    model.build((None, None))
    randomised(model)
    tokenizer = pretrained.load_tokenizer(tmp_path)
    texts = ["the king and", "to be or not"]
    trimmed = pretrained.trim_vocabulary(model, tokenizer, texts)
    logits = [
        np.array(each(ids_of(words, texts, max(each.padding_id, 0))))
        for each, words in ((model, tokenizer), (trimmed.model, trimmed.tokenizer))
    ]
    assert logits[1].shape[-1] == len(trimmed.kept) < logits[0].shape[-1]
    np.testing.assert_array_equal(logits[1], logits[0][..., trimmed.kept])


def test_the_trimmed_one_is_fitted_and_saved(tmp_path):
    model, tokenizer = translator("marian", tmp_path)
    trimmed = pretrained.trim_vocabulary(model, tokenizer, TEXTS, TARGETS)
    small, words = trimmed.model, trimmed.tokenizer
    source = ids_of(words, TEXTS, small.padding_id, end=True)
    target = ids_of(words.for_targets(), TARGETS, small.padding_id, start=True, end=True)
    small.compile("sgd", "sparse_categorical_crossentropy")
    history = small.fit(
        {"source": source, "target": target[:, :-1]}, target[:, 1:], epochs=1, verbose=0
    )
    assert np.isfinite(history.history["loss"]).all()
    config = type(words).from_config(json.loads(json.dumps(words.get_config())))
    assert config.tokenize(TEXTS).to_list() == words.tokenize(TEXTS).to_list()
    path = pathlib.Path(tmp_path, "small.keras")
    small.save(path)
    again = keras.models.load_model(path)
    inputs = {"source": source, "target": target}
    np.testing.assert_array_equal(np.array(again(inputs)), np.array(small(inputs)))


@pytest.mark.slow
def test_the_trimmed_one_is_exported(tmp_path):
    model, tokenizer = translator("marian", tmp_path)
    trimmed = pretrained.trim_vocabulary(model, tokenizer, TEXTS, TARGETS)
    path = export.translator(
        trimmed.model, trimmed.tokenizer, tmp_path / "served", Greedy(), source_lengths=(8,)
    )
    served = tf.saved_model.load(path).signatures["serving_default"]
    own = export.Translator(trimmed.model, trimmed.tokenizer, Greedy(), source_lengths=(8,))
    found = [text.decode() for text in served(tf.constant(TEXTS))["translation"].numpy()]
    assert found == own.translate(TEXTS)


def test_searches_are_renumbered():
    trimmed = pretrained.TrimmedModel(None, None, np.array([0, 2, 3, 7, 9]))
    bounds = Boundaries(ends=(2, 9), first=7, last=9, banned_first=(3, 5), start=0)
    limits = Constraints(banned=(5, 3, (2, 7), (2, 5)), required=(7,), boundaries=bounds)
    for kind in (Greedy, BeamSearch, Sampling):
        found = trimmed.search(kind(constraints=limits)).constraints
        assert (found.banned, found.required) == ((2, (1, 3)), (3,))
        assert found.boundaries == Boundaries((1, 4), 3, 4, (2,), 0)
    with pytest.raises(ValueError, match="must be Greedy, BeamSearch or Sampling. Received: str"):
        trimmed.search("greedy")
    for wrong, name in (
        (Constraints(required=(5,)), "required"),
        (Constraints(boundaries=Boundaries(first=8)), "first"),
        (Constraints(boundaries=Boundaries(ends=(8,))), "ends"),
    ):
        with pytest.raises(ValueError, match=f"`{name}` must be among the ids that are kept"):
            trimmed.search(Greedy(wrong))


def test_models_that_cannot_be_trimmed_are_refused_by_name():
    tokenizer = SentencePieceTokenizer.train(PAIRS.sources[:500], 200)
    shape = {"source": (None, None), "target": (None, None)}

    def refused(model, message):
        with pytest.raises(ValueError, match=f"`model` must .*{message}"):
            pretrained.trim_vocabulary(model, tokenizer, TEXTS)

    model = models.Transformer(200, **WIDTHS)
    refused(model, "be built. Received: one without weights")
    few = models.Transformer(199, **WIDTHS)
    few.build(shape)
    refused(few, "row for each of the 200 ids of `tokenizer`. Received: 199")
    model.build(shape)
    add_lora(model, 2)
    refused(model, "have no adapters")
    model = models.Transformer(200, **WIDTHS)
    model.build(shape)
    model.quantize("int8")
    refused(model, "quantise the trimmed one. Received: a quantised one")
    refused(models.ViT(4, **WIDTHS, image_size=16, patch_size=4), "Received: ViT")
