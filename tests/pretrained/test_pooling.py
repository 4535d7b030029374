"""Claims about sentence encoders: vectors are those of `sentence_transformers`."""

import json

import numpy as np
import pytest

import keras_transformers
from keras_transformers import export, pretrained
from tests.pretrained import folders

TEXTS = ["the king", "to be or not to be " * 9, "", "the queen and the king"]
START = "sentence_transformers.models."
NEWER = "sentence_transformers.sentence_transformer.modules."


def encoder(folder, modules, pooling=None, **settings):
    """A folder of a small BERT with these modules, and how it pools."""
    model = folders.bert(folder, head=None)
    model.build((None, None))
    pretrained.save(model, folder)
    listed = [
        {"idx": i, "name": str(i), "type": kind, "path": "" if i == 0 else f"{i}_{kind[-7:]}"}
        for i, kind in enumerate(modules)
    ]
    (folder / "modules.json").write_text(json.dumps(listed))
    for entry in listed[1:]:
        (folder / entry["path"]).mkdir()
        (folder / entry["path"] / "config.json").write_text("{}")
    if pooling is not None:
        (folder / listed[1]["path"] / "config.json").write_text(json.dumps(pooling))
    if settings:
        (folder / "sentence_bert_config.json").write_text(json.dumps(settings))
    return folder


OLD_CLS = {"word_embedding_dimension": 16, "pooling_mode_cls_token": True}
OLD_CLS |= {"pooling_mode_mean_tokens": False}
NEW_CLS = {"embedding_dimension": 16, "pooling_mode": "cls", "include_prompt": True}
MEAN = {"embedding_dimension": 16, "pooling_mode": "mean"}
CASES = {
    "cls": ([START + "Transformer", START + "Pooling"], OLD_CLS, {}),
    "normalized_cls": (
        [START + "Transformer", START + "Pooling", START + "Normalize"],
        NEW_CLS,
        {"max_seq_length": 32},
    ),
    "mean": ([NEWER + "Transformer", NEWER + "Pooling"], MEAN, {"max_seq_length": 12}),
}


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[] if "normal" in n else pytest.mark.slow) for n in CASES]
)
def test_vectors_are_pooled_as_the_modules_say(name, tmp_path):
    modules, pooling, settings = CASES[name]
    loaded = keras_transformers.load(encoder(tmp_path, modules, pooling, **settings))
    longest = settings.get("max_seq_length", 64)
    for text, found in zip(TEXTS, loaded.predict(TEXTS), strict=True):
        ids = loaded.tokenizer.tokenize([text], start=True, end=True).numpy()[0]
        ids = np.array([*ids[:-1][: longest - 1], ids[-1]])  # cut, it still ends with [SEP]
        vectors = np.asarray(loaded.model(ids[None]))[0]
        expected = vectors[0] if "cls" in name else vectors.mean(0)
        if "normalized" in name:
            expected = expected / np.linalg.norm(expected)
        np.testing.assert_allclose(found, expected, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_vectors_are_those_of_sentence_transformers(name, tmp_path):
    published = pytest.importorskip("sentence_transformers")
    modules, pooling, settings = CASES[name]
    folder = encoder(tmp_path, modules, pooling, **settings)
    expected = published.SentenceTransformer(str(folder), device="cpu").encode(TEXTS)
    found = keras_transformers.load(folder).predict(TEXTS)
    np.testing.assert_allclose(found, expected, atol=2e-5)


QUERY = "Represent this sentence for searching relevant passages: "
# Files beside the model as BGE, E5 and arctic-embed have them on the hub.
BGE_POOLING = {
    "word_embedding_dimension": 16,
    "pooling_mode_cls_token": True,
    "pooling_mode_mean_tokens": False,
    "pooling_mode_max_tokens": False,
    "pooling_mode_mean_sqrt_len_tokens": False,
}
E5_POOLING = {**BGE_POOLING, "pooling_mode_cls_token": False, "pooling_mode_mean_tokens": True}
ARCTIC_POOLING = {
    **BGE_POOLING,
    "pooling_mode_weightedmean_tokens": False,
    "pooling_mode_lasttoken": False,
    "include_prompt": True,
}
ARCTIC_PROMPTS = {
    "__version__": {"sentence_transformers": "2.7.0", "transformers": "4.39.3"},
    "prompts": {"query": QUERY},
    "default_prompt_name": None,
}
LAYOUTS = {
    "bge": (BGE_POOLING, {"max_seq_length": 64, "do_lower_case": True}, {"__version__": {}}),
    "e5": (E5_POOLING, {"max_seq_length": 64, "do_lower_case": False}, None),
    "arctic": (ARCTIC_POOLING, {"max_seq_length": 64, "do_lower_case": False}, ARCTIC_PROMPTS),
}


def published_layout(folder, name):
    """A folder in the layout of a published sentence encoder."""
    pooling, settings, prompts = LAYOUTS[name]
    modules = [START + each for each in ("Transformer", "Pooling", "Normalize")]
    encoder(folder, modules, pooling, **settings)
    if prompts is not None:
        (folder / "config_sentence_transformers.json").write_text(json.dumps(prompts))
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("name", LAYOUTS)
def test_published_layouts_give_the_published_vectors(name, tmp_path):
    published = pytest.importorskip("sentence_transformers")
    folder = published_layout(tmp_path, name)
    theirs = published.SentenceTransformer(str(folder), device="cpu")
    ours = keras_transformers.load(folder)
    np.testing.assert_allclose(ours.predict(TEXTS), theirs.encode(TEXTS), atol=2e-5)
    if name != "arctic":
        return
    asked = pretrained.load_pooling(folder, prompt="query")
    served = export.SentenceEncoder(ours.model, ours.tokenizer, **asked)
    expected = theirs.encode(TEXTS, prompt_name="query")
    np.testing.assert_allclose(served.encode(TEXTS), expected, atol=2e-5)


def test_texts_are_as_long_as_the_tokenizer_says_where_the_transformer_does_not(tmp_path):
    folder = encoder(tmp_path, *CASES["cls"][:2])
    path = folder / "tokenizer_config.json"
    settings = json.loads(path.read_text())
    for longest, lengths in ((48, (32, 48)), (1024, (32, 64, 128, 256, 512, 1024))):
        path.write_text(json.dumps({**settings, "model_max_length": longest}))
        assert pretrained.load_pooling(folder)["lengths"] == lengths
    path.write_text(json.dumps({**settings, "model_max_length": 10**30}))
    assert "lengths" not in pretrained.load_pooling(folder)


def test_a_prompt_is_read_by_its_name(tmp_path):
    folder = published_layout(tmp_path, "arctic")
    plain = {"pooling": "token", "normalize": True, "lengths": (32, 64)}
    assert pretrained.load_pooling(folder) == plain
    asked = pretrained.load_pooling(folder, prompt="query")
    assert asked == {**plain, "prompt": QUERY}
    assert pretrained.load_pooling(folder, prompt="document") == plain  # an empty one
    with pytest.raises(ValueError, match="`prompt` must be one of query, document. .*'passage'"):
        pretrained.load_pooling(folder, prompt="passage")
    loaded = keras_transformers.load(folder)
    served = export.SentenceEncoder(loaded.model, loaded.tokenizer, **asked)
    expected = loaded.predict([QUERY + "the king"])
    np.testing.assert_allclose(served.encode(["the king"]), expected, atol=1e-6)


def test_the_default_prompt_is_the_published_one(tmp_path):
    folder = published_layout(tmp_path, "arctic")
    path = folder / "config_sentence_transformers.json"
    path.write_text(json.dumps({**ARCTIC_PROMPTS, "default_prompt_name": "query"}))
    assert pretrained.load_pooling(folder)["prompt"] == QUERY
    with pytest.warns(UserWarning, match="normalize=True, prompt='Represent"):
        pretrained.load(folder)
    path.write_text(json.dumps({**ARCTIC_PROMPTS, "default_prompt_name": "none"}))
    with pytest.raises(ValueError, match="`default_prompt_name` must be one of .*'none'"):
        pretrained.load_pooling(folder)


def test_a_prompt_whose_tokens_are_not_pooled_is_refused(tmp_path):
    folder = published_layout(tmp_path, "arctic")
    listed = json.loads((folder / "modules.json").read_text())
    path = folder / listed[1]["path"] / "config.json"
    path.write_text(json.dumps({**ARCTIC_POOLING, "include_prompt": False}))
    assert "prompt" not in pretrained.load_pooling(folder)
    with pytest.raises(ValueError, match="`include_prompt` must be true. Received: false"):
        pretrained.load_pooling(folder, prompt="query")


@pytest.mark.parametrize(
    ("modules", "pooling", "settings", "message"),
    [
        (["Transformer", "Pooling", "Dense"], MEAN, {}, "must have the modules.*Dense"),
        (["Transformer", "Pooling", "Normalize", "Dense"], MEAN, {}, "Received.*Normalize, Dense"),
        (["Transformer"], None, {}, "must have the modules Transformer, Pooling"),
        (["Transformer", "Pooling"], {"pooling_mode": ["cls", "mean"]}, {}, "Received: cls, mean"),
        (["Transformer", "Pooling"], {"pooling_mode": "lasttoken"}, {}, "Received: lasttoken"),
        (["Transformer", "Pooling"], MEAN, {"max_seq_length": "12"}, "`max_seq_length` must be"),
        (["Transformer", "Pooling"], MEAN, {"query_length": 9}, "`query_length` must be None"),
        (["Transformer", "Pooling"], MEAN, {"transformer_task": "retrieval"}, "Received: 'retri"),
    ],
)
def test_other_modules_are_refused_by_name(modules, pooling, settings, message, tmp_path):
    folder = encoder(tmp_path, [START + each for each in modules], pooling, **settings)
    with pytest.raises(ValueError, match=message):
        keras_transformers.load(folder)
    with pytest.warns(UserWarning, match=message):
        assert pretrained.load(folder).built  # the model itself is whole


def test_modules_elsewhere_are_refused(tmp_path):
    folder = encoder(tmp_path, CASES["cls"][0], OLD_CLS)
    listed = json.loads((folder / "modules.json").read_text())
    for path, message in (("../secret", "must lie in the folder"), ("/etc", "must lie in")):
        listed[1]["path"] = path
        (folder / "modules.json").write_text(json.dumps(listed))
        with pytest.raises(ValueError, match=message):
            pretrained.load_pooling(folder)
    listed[1] |= {"type": "my.Pooling", "path": "1_Pooling"}
    (folder / "modules.json").write_text(json.dumps(listed))
    with pytest.raises(ValueError, match="must be of sentence_transformers"):
        pretrained.load_pooling(folder)


def test_who_exports_the_model_by_hand_is_told_how_its_vectors_are_meant(tmp_path):
    folder = encoder(tmp_path, CASES["cls"][0], OLD_CLS)
    asked = {"pooling": "token", "normalize": False}
    with pytest.warns(UserWarning, match="pooling='token', normalize=False"):
        model = pretrained.load(folder)
    assert pretrained.load_pooling(folder) == asked
    served = export.SentenceEncoder(model, pretrained.load_tokenizer(folder), **asked)
    ids = pretrained.load_tokenizer(folder).tokenize(TEXTS[:1], start=True, end=True).to_tensor()
    np.testing.assert_allclose(served.encode(TEXTS[:1]), model(ids)[:, 0], atol=1e-5)
