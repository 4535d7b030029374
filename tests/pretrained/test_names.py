"""Claims about names of published models: folders, the user's cache, and the hub; no network."""

import pathlib
import sys
import types

import pytest

import keras_transformers
from keras_transformers import models, pretrained
from keras_transformers.text import WordPieceTokenizer

COMMIT, OLDER = "0123456789abcdef" * 2 + "01234567", "f" * 40
WIDTHS = {"hidden_dim": 8, "num_heads": 2, "mlp_dim": 8, "num_layers": 1}
PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "cat"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A published folder, whole."""
    model = models.TextEncoder.from_variant(
        "base", len(PIECES), **WIDTHS, head="masked_language", max_length=16
    )
    model.build((None, None))
    path = pretrained.save(model, tmp_path_factory.mktemp("published"))
    return pretrained.save_tokenizer(WordPieceTokenizer(PIECES), path)


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """An empty cache, and no hub."""
    for name in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "XDG_CACHE_HOME", "TRANSFORMERS_OFFLINE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    return tmp_path / "hub"


def snapshot(cache, folder, commit=COMMIT, ref="main", leave=()):
    """Puts the files of a folder into the cache, as links, as `huggingface_hub` does."""
    model = cache / "models--made--up"
    there = model / "snapshots" / commit
    there.mkdir(parents=True)
    for path in folder.iterdir():
        if path.name not in leave:
            (there / path.name).symlink_to(path)
    if ref:
        (model / "refs" / ref).parent.mkdir(parents=True, exist_ok=True)
        (model / "refs" / ref).write_text(commit)
    return there


def test_a_model_in_the_cache_is_found_by_its_name(cache, folder):
    there = snapshot(cache, folder)
    assert pretrained.find("made/up") == there
    assert pretrained.find("made/up", revision=COMMIT) == there
    assert pretrained.load("made/up").count_params() == pretrained.load(folder).count_params()
    tokens = pretrained.load_tokenizer("made/up").tokenize(["the cat"]).to_list()
    assert tokens == pretrained.load_tokenizer(folder).tokenize(["the cat"]).to_list()
    assert keras_transformers.load("made/up").kind == "mask_filler"


def test_other_places_of_the_cache_are_known(cache, folder, monkeypatch, tmp_path):
    there = snapshot(tmp_path / "elsewhere", folder)
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "elsewhere"))
    assert pretrained.find("made/up") == there
    monkeypatch.delenv("HF_HUB_CACHE")
    monkeypatch.delenv("HF_HOME")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    there = snapshot(tmp_path / "xdg" / "huggingface" / "hub", folder)
    assert pretrained.find("made/up") == there


def test_a_revision_is_a_branch_a_tag_or_a_commit(cache, folder):
    new, old = snapshot(cache, folder), snapshot(cache, folder, OLDER, "refs/pr/7")
    assert pretrained.find("made/up") == new
    assert pretrained.find("made/up", revision="refs/pr/7") == old
    assert pretrained.find("made/up", revision=OLDER) == old
    with pytest.raises(FileNotFoundError, match=r"`hf download made/up --revision v2` where"):
        pretrained.find("made/up", revision="v2")
    for wrong in ("../main", "a b", ""):
        with pytest.raises(ValueError, match="`revision` must be a branch"):
            pretrained.find("made/up", revision=wrong)


def test_a_local_folder_comes_first_and_has_no_revision(cache, folder, monkeypatch, tmp_path):
    snapshot(cache, folder)
    local = tmp_path / "made" / "up"
    local.mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    assert pretrained.find("made/up") == pathlib.Path("made/up")
    with pytest.raises(ValueError, match="`revision` must be None for a folder"):
        pretrained.find("made/up", revision="main")


def test_a_snapshot_that_lacks_weights_is_not_taken_for_a_model(cache, folder):
    there = snapshot(cache, folder, leave=("model.safetensors",))
    assert pretrained.find("made/up", weights=False) == there
    with pytest.raises(
        FileNotFoundError, match="no such model in .*hub; run `hf download made/up`"
    ):
        pretrained.load("made/up")
    (there / "model.safetensors.index.json").write_text('{"weight_map": {"a": "1.safetensors"}}')
    with pytest.raises(FileNotFoundError, match="no such model"):
        pretrained.find("made/up")
    (there / "1.safetensors").write_bytes(b"")
    assert pretrained.find("made/up") == there


def test_a_damaged_cache_is_refused(cache, folder):
    snapshot(cache, folder)
    (cache / "models--made--up" / "refs" / "main").write_text("../../elsewhere")
    with pytest.raises(ValueError, match="main must hold a commit"):
        pretrained.find("made/up")


def test_without_the_hub_one_command_is_named(cache, monkeypatch):
    monkeypatch.delenv("HF_HUB_OFFLINE")
    with pytest.raises(FileNotFoundError, match=r'`pip install "keras_transformers\[hub\]"`'):
        keras_transformers.load("made/up")
    for name in ("/made/up", "made/up/more", "../made", "made/"):
        with pytest.raises(FileNotFoundError, match="there is no folder [^,]*$"):
            keras_transformers.load(name)


@pytest.mark.parametrize("name", ["run7", "model.keras", "gpt2.old", "bert", "runs/best"])
def test_what_may_be_a_mistyped_path_is_never_asked_of_the_hub(cache, monkeypatch, tmp_path, name):
    (tmp_path / "runs").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("HF_HUB_OFFLINE")

    def download(name, **options):
        raise AssertionError("asked")

    hub = types.SimpleNamespace(snapshot_download=download)
    monkeypatch.setitem(sys.modules, "huggingface_hub", hub)
    for load in (keras_transformers.load, pretrained.load, pretrained.load_tokenizer):
        with pytest.raises(FileNotFoundError, match=f"there is no folder {name}, .*no such model"):
            load(name)


def test_a_word_alone_is_found_in_the_cache(cache, folder):
    """However it came there."""
    snapshot(cache, folder)
    (cache / "models--made--up").rename(cache / "models--word")
    assert pretrained.find("word").parent.parent.name == "models--word"


@pytest.mark.parametrize("name", ["gpt2", "bert-base-uncased", "xlm-roberta-large", "t5-small"])
def test_the_oldest_names_have_no_organization(cache, folder, monkeypatch, name):
    monkeypatch.delenv("HF_HUB_OFFLINE")
    asked = []

    def download(name, **options):
        asked.append(name)
        return str(folder)

    hub = types.SimpleNamespace(snapshot_download=download)
    monkeypatch.setitem(sys.modules, "huggingface_hub", hub)
    assert pretrained.find(name) == folder and asked == [name]


def test_what_is_downloaded_cannot_be_executed(cache, folder, monkeypatch):
    asked = {}

    def download(name, **options):
        asked.update(options, name=name)
        return str(folder)

    monkeypatch.delenv("HF_HUB_OFFLINE")
    hub = types.SimpleNamespace(snapshot_download=download)
    monkeypatch.setitem(sys.modules, "huggingface_hub", hub)
    assert pretrained.find("made/up", revision="v1") == folder
    assert (asked["name"], asked["revision"]) == ("made/up", "v1")

    def wanted(name):
        path = pathlib.PurePosixPath(name)
        return any(path.match(each) for each in asked["allow_patterns"]) and not any(
            path.match(each) for each in asked["ignore_patterns"]
        )

    for name in ("model.safetensors", "model-00001-of-00002.safetensors", "tokenizer.json"):
        assert wanted(name), name
    for name in ("1_Pooling/config.json", "spiece.model", "source.spm", "merges.txt"):
        assert wanted(name), name
    for name in ("pytorch_model.bin", "modeling.py", "tf_model.h5", "a.pkl", "onnx/model.onnx"):
        assert not wanted(name), name
    pretrained.find("made/up", weights=False)
    assert not wanted("model.safetensors") and wanted("tokenizer.json")


def test_a_download_that_fails_costs_a_sentence(cache, monkeypatch):
    def download(name, **options):
        raise ConnectionError("no route to host\nand much more")

    monkeypatch.delenv("HF_HUB_OFFLINE")
    hub = types.SimpleNamespace(snapshot_download=download)
    monkeypatch.setitem(sys.modules, "huggingface_hub", hub)
    with pytest.raises(FileNotFoundError, match="no route to host.*run `hf download made/up`"):
        pretrained.find("made/up")
