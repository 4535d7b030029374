"""The calls and odd files of real users, once each, as a new user would make them: training.

Those of `tests/saving/test_changed_parts.py`, `tests/recipes/test_options.py` and
`tests/export/test_several_labels.py` are such calls already.
"""

import json
import random

import keras
import numpy as np
import pytest

import keras_transformers
from keras_transformers import models, training
from tests.recipes.command import PRINTED, run

LETTERS = "的一是不了人我在有他这为之大来以个中上们到说国和地也子时道出而要于就下得可你年生"


def write(folder, name, lines):
    (folder / name).write_text("\n".join(lines) + "\n", encoding="utf-8")
    return str(folder / name)


def test_a_probe_and_then_the_whole_model():
    """`freeze()`, train, `freeze(0)`, train on."""
    model = models.ViT.from_variant("Ti/4", num_classes=3, image_size=8, num_layers=2)
    model.build((None, 8, 8, 3))
    model.freeze()
    assert len(model.trainable_variables) == 2
    model.freeze(0)
    assert len(model.trainable_variables) > 30


def test_averages_of_a_model_that_accumulates():
    keras.utils.set_random_seed(1)
    rng = np.random.default_rng(1)
    x = rng.normal(size=(32, 3)).astype("float32")
    ends = []
    for batch, steps in ((8, None), (2, 4)):
        model = keras.Sequential(
            [keras.Input((3,)), keras.layers.Dense(1, kernel_initializer="ones")]
        )
        optimizer = training.AdamW(
            0.1, use_ema=True, ema_momentum=0.9, gradient_accumulation_steps=steps
        )
        model.compile(optimizer, "mse", jit_compile=False)
        model.fit(x, x[:, :1], batch_size=batch, epochs=2, shuffle=False, verbose=0)
        ends.append(model.get_weights()[0])
    np.testing.assert_allclose(*ends, atol=1e-5)


@pytest.mark.slow
def test_a_translator_into_chinese(tmp_path):
    draw = random.Random(2)
    lines = []
    for _ in range(300):
        positions = [draw.randrange(len(LETTERS)) for _ in range(draw.randrange(3, 9))]
        source = " ".join(f"w{position}" for position in positions)
        lines.append(f"{source}\t{''.join(LETTERS[position] for position in positions)}，对吗？")
    files = [
        part
        for name, of in (("train", lines), ("valid", lines[:20]), ("test", lines[20:40]))
        for part in (f"--{name}", write(tmp_path, f"{name}.tsv", of))
    ]
    options = ("--smoke", "--vocab-size", 200, "--epochs", 30)  # one epoch may give empty answers
    metrics = run("translation", tmp_path / "run", *options, *files)
    assert "normalization none" in PRINTED[tmp_path / "run"]
    about = json.loads((tmp_path / "run" / "report.json").read_text())
    assert about["tokenizer"] == "zh" and "tok:zh" in about["signatures"]["bleu"]
    assert metrics["valid_chrf"] > 0
    tokenizer = keras_transformers.load(tmp_path / "run").tokenizer
    assert tokenizer.detokenize(tokenizer.tokenize("我，对吗？")).numpy().decode() == "我，对吗？"


@pytest.mark.slow
def test_texts_with_several_labels_or_none(tmp_path):
    draw = random.Random(3)
    words = {"cat": "miaow", "dog": "woof", "cow": "moo"}
    lines = []
    for _ in range(300):
        present = [name for name in words if draw.random() < 0.4]
        said = [words[name] for name in present] + ["the", "farm"]
        lines.append(f"{' '.join(draw.sample(said, len(said)))}\t{', '.join(present)}")
    files = [
        part
        for name, of in (("train", lines), ("valid", lines[:40]), ("test", lines[40:80]))
        for part in (f"--{name}", write(tmp_path, f"{name}.tsv", of))
    ]
    several = ["--problem-type", "multi_label_classification"]
    metrics = run(
        "text_classification",
        tmp_path / "run",
        "--smoke",
        "--vocab-size",
        60,
        "--epochs",
        15,
        "--learning-rate",
        3e-3,
        *several,
        *files,
    )
    assert metrics["scratch_test_micro_f1"] > 0.8
    farm = keras_transformers.load(tmp_path / "run")
    answer = farm.predict("miaow the farm moo")
    assert sorted(answer["labels"]) == ["cat", "cow"] and farm.predict("the farm")["labels"] == []
