"""Claims about classifiers of several labels, or of a single logit, from weights to answers."""

import json

import keras
import numpy as np
import pytest
import tensorflow as tf

import keras_transformers
from keras_transformers import export, pretrained
from keras_transformers.models import Swin, TextEncoder, ViT
from keras_transformers.text import WordPieceTokenizer
from tests.contract import to_numpy

SEVERAL, SINGLE = "multi_label_classification", "single_label_classification"
WORDS = WordPieceTokenizer.train(["the king and the queen, to be or not to be"], 60)
TEXTS = ["the king", "to be or not to be", ""]
PIXELS = np.random.default_rng(2).integers(0, 256, (3, 8, 8, 3)).astype("uint8")
NAMES = ["cat", "dog", "rose"]


def sigmoid(x):
    return 1 / (1 + np.exp(-np.asarray(x, "float64")))


def spread(model, shape):
    """The model, built, with weights that give logits far from 0 and from each other."""
    keras.utils.set_random_seed(3)
    model.build(shape)
    for weight in model.weights:
        weight.assign(weight + 0.3 * keras.random.normal(weight.shape, seed=len(weight.path)))
    return model


def of_text(classes, problem_type=None):
    sizes = {"hidden_dim": 16, "num_heads": 2, "mlp_dim": 32, "num_layers": 1, "max_length": 32}
    head = {"head": "classification", "num_classes": classes, "problem_type": problem_type}
    return spread(TextEncoder.from_variant("base", WORDS.vocab_size, **sizes, **head), (None, None))


def of_images(classes, problem_type=None):
    sizes = {"hidden_dim": 16, "num_heads": 2, "mlp_dim": 32, "num_layers": 1}
    return spread(ViT(classes, 8, 4, problem_type=problem_type, **sizes), (None, 8, 8, 3))


def served(kind, model, names, **options):
    """The exported object, what it is asked, and the logits of that."""
    if kind == "text":
        made = export.TextClassifier(model, WORDS, names, lengths=(16,), **options)
        ids = [[2, *each, 3] for each in WORDS.tokenize(TEXTS).to_list()]
        return made, TEXTS, np.concatenate([to_numpy(model(np.array([row]))) for row in ids])
    made = export.ImageClassifier(model, names, **options)
    return made, PIXELS, to_numpy(model(made.preprocessing.normalize(PIXELS)))


MAKE = {"text": of_text, "image": of_images}


@pytest.mark.parametrize("kind", MAKE)
def test_each_of_several_labels_has_a_probability_of_its_own(kind, tmp_path):
    made, asked, logits = served(kind, MAKE[kind](3, SEVERAL), NAMES)
    made.save(tmp_path / "saved")
    expected = sigmoid(logits)
    assert 0 < (expected >= 0.5).mean() < 1
    for predictor in (made, keras_transformers.load(tmp_path / "saved")):
        for answer, row in zip(predictor.predict(asked), expected, strict=True):
            np.testing.assert_allclose(list(answer["probabilities"].values()), row, atol=1e-4)
            assert list(answer["probabilities"]) == NAMES
            assert answer["labels"] == [n for n, p in zip(NAMES, row, strict=True) if p >= 0.5]
            assert answer["label"] == NAMES[row.argmax()]
            assert answer["probability"] == pytest.approx(row.max(), abs=1e-4)


@pytest.mark.parametrize("kind", MAKE)
@pytest.mark.parametrize("names", [["spam"], ["ham", "spam"]], ids=len)
def test_a_single_logit_is_no_certainty(kind, names):
    made, asked, logits = served(kind, MAKE[kind](1), names)
    for answer, p in zip(made.predict(asked), sigmoid(logits)[:, 0], strict=True):
        assert answer["probabilities"]["spam"] == pytest.approx(p, abs=1e-4)
        if len(names) == 2:
            assert answer["probabilities"]["ham"] == pytest.approx(1 - p, abs=1e-4)
            assert answer["label"] == names[int(p >= 0.5)] and "labels" not in answer
        else:
            assert answer["labels"] == (names if p >= 0.5 else [])


@pytest.mark.parametrize("kind", MAKE)
def test_any_model_can_be_said_to_have_several_labels(kind):
    model = MAKE[kind](3)
    made, asked, logits = served(kind, model, NAMES, problem_type=SEVERAL)
    found = [list(answer["probabilities"].values()) for answer in made.predict(asked)]
    np.testing.assert_allclose(found, sigmoid(logits), atol=1e-4)
    made, asked, _ = served(kind, model, NAMES)
    assert all("labels" not in answer for answer in made.predict(asked))


@pytest.mark.parametrize("kind", MAKE)
@pytest.mark.parametrize(
    ("classes", "problem_type", "names", "message"),
    [
        (1, "regression", ["stars"], "`problem_type` must be.*Received: 'regression'"),
        (3, None, ["cat", "dog"], "a name for each of the model's 3 logits. Received: 2"),
        (1, SEVERAL, ["cat", "dog"], "a name for each of the model's 1 logits. Received: 2"),
    ],
)
def test_what_tells_no_such_classes_is_refused(kind, classes, problem_type, names, message):
    with pytest.raises(ValueError, match=message):
        served(kind, MAKE[kind](classes, problem_type), names)


@pytest.mark.parametrize("kind", MAKE)
def test_a_model_checks_what_its_logits_are_for(kind):
    with pytest.raises(ValueError, match="`problem_type` must be one of.*Received: 'several'"):
        MAKE[kind](3, "several")
    with pytest.raises(ValueError, match="`num_classes` must be over 1.*num_classes=1"):
        MAKE[kind](1, SINGLE)
    model = MAKE[kind](3, SEVERAL)
    assert model.transferred(num_classes=2).problem_type == SEVERAL
    assert type(model).from_config(model.get_config()).problem_type == SEVERAL


@pytest.mark.parametrize("format", ["litert", "onnx"])
@pytest.mark.parametrize("kind", MAKE)
def test_files_of_tensors_tell_which_labels_are_present(kind, format, tmp_path):
    runtime = {"litert": "ai_edge_litert", "onnx": "onnxruntime"}[format]
    pytest.importorskip(runtime)
    model = MAKE[kind](3, SEVERAL)
    if kind == "text":
        export.text_classifier(model, WORDS, tmp_path, NAMES, (16,), format=format)
    else:
        export.image_classifier(model, tmp_path, NAMES, format=format)
    about = json.loads((tmp_path / "preprocessing.json").read_text())
    assert about["outputs"] == ["label", "present", "probabilities", "probability"]


STAGES = {"image_size": 8, "patch_size": 2, "hidden_dim": 4, "num_layers": (1, 1, 1, 1)}
STAGES |= {"num_heads": (1, 1, 2, 2)}
PUBLISHED = {
    "bert": lambda: of_text(3, SEVERAL),
    "vit": lambda: of_images(3, SEVERAL),
    "deit": lambda: spread(
        ViT.from_variant("B/16", 3, distillation="token", problem_type=SEVERAL, image_size=8,
                         patch_size=4, hidden_dim=16, num_heads=2, mlp_dim=32, num_layers=1),
        (None, 8, 8, 3)
    ),
    "swin": lambda: spread(
        Swin.from_variant("T", 3, **STAGES, window_size=1, mask_padding=False,
                          problem_type=SEVERAL), (None, 8, 8, 3)
    ),
    "swinv2": lambda: spread(
        Swin.from_variant("T", 3, **{**STAGES, "image_size": 16}, window_size=1,
                          mask_padding=False, version=2, problem_type=SEVERAL), (None, 16, 16, 3)
    ),
}  # fmt: skip


@pytest.mark.parametrize("family", PUBLISHED)
def test_published_weights_say_that_there_are_several(family, tmp_path):
    model = PUBLISHED[family]()
    folder = pretrained.save(model, tmp_path, NAMES, family)
    config = json.loads((folder / "config.json").read_text())
    assert config["problem_type"] == SEVERAL
    assert pretrained.load(folder).problem_type == SEVERAL
    del config["problem_type"]
    (folder / "config.json").write_text(json.dumps(config))
    assert pretrained.load(folder).problem_type is None
    (folder / "config.json").write_text(json.dumps({**config, "problem_type": "several"}))
    with pytest.raises(ValueError, match="`problem_type` must be one of.*Received: 'several'"):
        pretrained.load(folder)


@pytest.mark.parametrize("names", [NAMES, ["spam"]], ids=len)
def test_published_weights_answer_as_in_transformers(names, tmp_path):
    """Its pipelines take a sigmoid for several labels and for a single one."""
    hf = pytest.importorskip("transformers")
    torch = pytest.importorskip("torch")
    model = of_text(len(names), SEVERAL if len(names) > 1 else None)
    folder = pretrained.save(model, tmp_path, names)
    pretrained.save_tokenizer(WORDS, folder)
    theirs = hf.BertForSequenceClassification.from_pretrained(folder).eval()
    assert theirs.config.problem_type == model.problem_type
    pipeline = hf.pipeline(
        "text-classification",
        model=theirs,
        tokenizer=hf.BertTokenizer.from_pretrained(folder),
        top_k=None,
        device="cpu",
    )
    with torch.no_grad():
        expected = pipeline(TEXTS)
    for answer, rows in zip(keras_transformers.load(folder).predict(TEXTS), expected, strict=True):
        scores = {row["label"]: row["score"] for row in rows}
        assert answer["probabilities"] == pytest.approx(scores, abs=1e-4)


def test_requests_in_a_graph_have_what_is_present():
    made = export.TextClassifier(of_text(3, SEVERAL), WORDS, NAMES, lengths=(16,))
    found = made.portable(tf.constant(TEXTS))
    np.testing.assert_array_equal(found["present"], found["probabilities"].numpy() >= 0.5)
    assert made.portable(tf.constant([], tf.string))["present"].shape == (0, 3)
