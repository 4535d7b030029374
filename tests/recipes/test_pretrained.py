"""Claims about `--pretrained` with a published folder: a run goes on from it, and publishes."""

import json
import pathlib

import keras
import numpy as np
import pytest

from keras_transformers import models, pretrained, text, vision
from tests.recipes.command import command, run

GOLDEN = np.load(pathlib.Path(__file__).parents[1] / "golden" / "published_tokenizers.npz")
WIDTHS = {"hidden_dim": 16, "num_heads": 2, "mlp_dim": 32, "num_layers": 1}
PICTURES = {**WIDTHS, "image_size": 16, "patch_size": 4}


def marian(folder):
    for name in ("source.spm", "target.spm"):
        (folder / name).write_bytes(GOLDEN[name].tobytes())
    (folder / "vocab.json").write_text(str(GOLDEN["vocab.json"]))
    tokenizer = pretrained.load_tokenizer(folder)
    return models.Transformer(
        tokenizer.vocab_size, **WIDTHS, positions="halves", norm_epsilon=1e-5, logits_bias=True,
        padding_id=tokenizer.pad_id,
    )


def gpt2(folder):
    for name in ("vocab.json", "merges.txt"):
        (folder / name).write_text(str(GOLDEN[f"gpt2/{name}"]), encoding="utf-8")
    size = pretrained.load_tokenizer(folder).vocab_size
    return models.LanguageModel(size, **WIDTHS, max_length=80, padding_id=-1)


def bert(folder):
    words = text.WordPieceTokenizer.train(["the king and the queen, to be or not to be"], 60)
    pretrained.save_tokenizer(words, folder)
    return models.TextEncoder(words.vocab_size, **WIDTHS, head="masked_language", max_length=64)


def vit(folder):
    pretrained.save_preprocessing(vision.Preprocessing(16, crop=False), folder)
    return models.ViT(4, **PICTURES)


def swin(folder):
    pretrained.save_preprocessing(vision.Preprocessing(16, crop=False), folder)
    return models.Swin(
        4, 16, 2, 4, (1, 1, 1, 1), (1, 1, 2, 2), window_size=2, mask_padding=False
    )


def detr(folder):
    pretrained.save_preprocessing(vision.Preprocessing(64), folder, detection=True)
    backbone = models.ResNet(None, 64, 8, (1, 1, 1, 1), bottleneck=False, norm="frozen")
    widths = {name: WIDTHS[name] for name in ("hidden_dim", "num_heads", "mlp_dim")}
    layers = {"num_encoder_layers": 1, "num_decoder_layers": 1}
    return models.DETR(4, backbone, **widths, **layers)


MADE = {
    "translation": (marian, {"source": (None, None), "target": (None, None)}),
    "language_model": (gpt2, (None, None)),
    "text_classification": (bert, (None, None)),
    "vit": (vit, (None, 16, 16, 3)),
    "swin": (swin, (None, 16, 16, 3)),
    "detr": (detr, (None, 64, 64, 3)),
}
OFTEN = "text_classification"
TRIED = [
    pytest.param(name, marks=() if name == OFTEN else pytest.mark.slow) for name in MADE
]


@pytest.mark.parametrize("recipe", TRIED)
def test_a_run_goes_on_from_published_weights_and_publishes(recipe, tmp_path):
    make, shape = MADE[recipe]
    (tmp_path / "theirs").mkdir()
    model = make(tmp_path / "theirs")
    model.build(shape)
    folder = pretrained.save(model, tmp_path / "theirs")
    output = tmp_path / "run"
    run(recipe, output, "--smoke", "--pretrained", folder)
    tuned, published = keras.models.load_model(output / "model.keras"), output / "published"
    again = pretrained.load(published)
    assert [w.shape for w in again.weights] == [w.shape for w in tuned.weights]
    for one, other in zip(again.weights, tuned.weights, strict=True):
        np.testing.assert_array_equal(one, other)
    assert (output / "saved_model" / "saved_model.pb").is_file()
    theirs, ours = (set(path.name for path in place.iterdir()) for place in (folder, published))
    assert theirs <= ours | {"target.spm"}  # with its tokenizer, or how it wants its pictures
    kept = json.loads((folder / "config.json").read_text())["model_type"]
    assert json.loads((published / "config.json").read_text())["model_type"] == kept


def test_a_folder_of_neither_kind_is_refused(tmp_path):
    result = command("text_classification", tmp_path / "x", "--smoke", "--pretrained", tmp_path)
    assert result.returncode != 0 and "Traceback" not in result.stderr
    assert str(tmp_path) in result.stderr
