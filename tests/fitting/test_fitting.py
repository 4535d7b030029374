"""Claims about `fit` of predictors: what is learned, from what, and what is left of it."""

import dataclasses
import json

import keras
import numpy as np
import pytest
import tensorflow as tf

import keras_transformers
from keras_transformers import layers, models, pretrained, text, training, vision
from keras_transformers.data.splits import part_of
from keras_transformers.fitting import Asked, Held, TranslatorFitting
from keras_transformers.tasks.classes import Scale, problem_of, row_weights, targets_of
from keras_transformers.tasks.fitting import split_parts, train_model
from keras_transformers.text import encode_pairs
from keras_transformers.text.batching import boundaries_for, within
from keras_transformers.training import fine_tuning_numbers
from tests.loading.saved import save_shouter
from tests.loading.test_published import ANSWERING, PICTURE, WITHOUT_CLASSES, publish
from tests.pretrained import folders
from tests.slow import slow_except

WORDS = "the king and the queen to be or not".split()
TEXT = "the king and the queen"


def sentences(number, seed=0):
    random = np.random.default_rng(seed)
    return [" ".join(random.choice(WORDS, random.integers(2, 7))) for _ in range(number)]


def royal(texts):
    return ["royal" if "king" in each or "queen" in each else "plain" for each in texts]


def images(folder, each=10):
    """A folder of dark and light images."""
    random = np.random.default_rng(0)
    for name, least in (("dark", 0), ("light", 200)):
        (folder / name).mkdir(parents=True)
        for number in range(each):
            pixels = random.integers(least, least + 50, (18, 17, 3)).astype("uint8")
            tf.io.write_file(str(folder / name / f"{number}.png"), tf.io.encode_png(pixels))
    return folder


def loaded(kind, folder):
    folder.mkdir()
    return keras_transformers.load(publish(folder, *ANSWERING[kind]))


FAST = {"learning_rate": 1e-2, "batch_size": 8, "verbose": 0}


@pytest.mark.slow
def test_a_filler_of_masks_learns_classes_that_the_table_names(tmp_path):
    texts = sentences(40)
    rows = enumerate(zip(texts, royal(texts), strict=True))
    table = "\n".join(f"{sentence},{i},{label}" for i, (sentence, label) in rows)
    (tmp_path / "a.csv").write_text(f"Review,id,label\n{table}\n")
    with folders.eagerly():
        predictor = loaded("mask_filler", tmp_path / "bert")
        history = predictor.fit(tmp_path / "a.csv", epochs=3, class_weights="balanced", **FAST)
        assert (predictor.kind, predictor.labels) == ("text_classifier", ["plain", "royal"])
        assert len(history["val_loss"]) <= 3 and history["loss"][-1] < history["loss"][0]
        scores = predictor.evaluate(tmp_path / "a.csv")
        answers = predictor.predict(texts)
        predictor.save(tmp_path / "own")
        again = keras_transformers.load(tmp_path / "own")
        assert again.predict(texts) == answers and again.labels == predictor.labels
    right = [answer["label"] == label for answer, label in zip(answers, royal(texts), strict=True)]
    assert (scores["rows"], scores["accuracy"]) == (40, pytest.approx(np.mean(right)))
    assert not again.model.compiled
    known = predictor.model  # whose head stays, for the classes are its own
    assert (
        predictor.fitting_for("fit")
        ._prepare_head(
            targets_of([*zip(texts, royal(texts), strict=True)], None, None, None, predictor.labels)
        )
        .model
        is known
    )


def test_a_translator_learns_from_lines_with_tabs(tmp_path):
    texts = sentences(24)
    (tmp_path / "a.tsv").write_text("\n".join(f"{each}\t{each}" for each in texts))
    with folders.eagerly():
        predictor = loaded("translator", tmp_path / "marian")
        history = predictor.fit(tmp_path / "a.tsv", epochs=2, **FAST)
    assert history["loss"][1] < history["loss"][0] and history["val_loss"][0] > 0
    again = keras_transformers.load(predictor.save(tmp_path / "own"))
    assert again.kind == "translator"
    held, found = (each.fitting_for("fit").held for each in (predictor, again))
    assert found.options["search"] == held.options["search"]
    assert found.tokenizer.vocab == held.tokenizer.vocab
    for one, other in zip(held.model.weights, found.model.weights, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.slow
def test_a_classifier_of_images_learns_the_folders_of_a_folder(tmp_path):
    folder = images(tmp_path / "images")
    with folders.eagerly():
        predictor = loaded("image_classifier", tmp_path / "vit")
        predictor.fit(folder, epochs=2, **(FAST | {"learning_rate": 3e-3}))
        assert predictor.labels == ["dark", "light"]
        assert predictor.evaluate(folder)["accuracy"] > 0.9
        again = keras_transformers.load(predictor.save(tmp_path / "own"))
        assert again.predict(PICTURE) == predictor.predict(PICTURE)


def test_lists_of_0_and_1_are_learned_and_scored_as_labels(tmp_path):
    texts = sentences(40)
    hot = [[float(word in each.split()) for word in ("king", "queen", "not")] for each in texts]
    named = [[name for name, x in zip("012", row, strict=True) if x] for row in hot]
    with folders.eagerly():
        predictor = loaded("sentence_encoder", tmp_path / "a")
        predictor.fit((texts, hot), epochs=1, **FAST)
        assert (predictor.kind, predictor.labels) == ("text_classifier", ["0", "1", "2"])
        scores = predictor.evaluate((texts, hot))
        assert scores == predictor.evaluate((texts, named)) and scores["rows"] == 40
        assert scores["exact_match"] < 1


@pytest.mark.slow
def test_texts_with_lists_of_labels_with_numbers_and_with_none(tmp_path):
    texts = sentences(40)
    with folders.eagerly():
        several = loaded("sentence_encoder", tmp_path / "a")
        rows = [{"text": t, "labels": [w for w in ("king", "queen") if w in t]} for t in texts]
        several.fit(rows, epochs=1, **FAST)
        assert set(several.predict(TEXT)) >= {"labels", "probabilities"}
        assert several.evaluate(rows)["micro_f1"] > 0
        number = loaded("text_classifier", tmp_path / "b")
        pairs = [(t, 100.5 + len(t)) for t in texts]
        number.fit(pairs, epochs=6, **FAST)
        assert number.kind == "text_regressor" and 100 < number.predict(TEXT) < 150
        assert number.evaluate(pairs)["mean_absolute_error"] < np.std([len(t) for t in texts])
        again = keras_transformers.load(number.save(tmp_path / "own"))
        assert again.predict(TEXT) == number.predict(TEXT)
        masks = loaded("mask_filler", tmp_path / "c")
        before = masks.evaluate(texts)["perplexity"]
        masks.fit(texts, epochs=4, **FAST)
        assert masks.kind == "mask_filler" and masks.evaluate(texts)["perplexity"] < before


@pytest.mark.slow
def test_a_language_model_learns_one_text_or_classes(tmp_path):
    texts = sentences(200)
    (tmp_path / "a.txt").write_text("\n".join(texts))
    with folders.eagerly():
        predictor = loaded("text_generator", tmp_path / "gpt2")
        before = predictor.evaluate(texts)["perplexity"]
        predictor.fit(tmp_path / "a.txt", epochs=2, **FAST)
        assert predictor.evaluate(texts)["perplexity"] < before
        again = keras_transformers.load(predictor.save(tmp_path / "own"))
        assert again.kind == "text_generator"
        assert again.evaluate(texts) == predictor.evaluate(texts)
        again.fit((texts[:60], royal(texts[:60])), epochs=1, **FAST)
        assert again.kind == "text_classifier" and again.model.head.pooling == "last"


def test_what_a_saved_model_cannot_do_is_said(tmp_path):
    predictor = keras_transformers.load(save_shouter(tmp_path / "saved"))
    for name in ("fit", "evaluate"):
        with pytest.raises(ValueError, match=f"{name}: .* has no model that learns.*SavedModel"):
            getattr(predictor, name)([("a", "b")])
    with pytest.raises(ValueError, match="save: .* has no model that learns"):
        predictor.save(tmp_path / "b")


def test_options_that_a_kind_has_not_and_data_that_are_too_few_are_refused(tmp_path):
    predictor = loaded("text_classifier", tmp_path / "bert")
    with pytest.raises(TypeError, match="a text_classifier has no option label_smoothing; it has"):
        predictor.fit([("a", "b")], label_smoothing=0.1)
    with pytest.raises(ValueError, match="There is nothing to tell apart: all have one class"):
        predictor.fit([("a", "b"), ("b", "b")])
    with pytest.raises(ValueError, match="2 rows with 2 different .* are too few to hold some out"):
        predictor.fit([("a", "c"), ("b", "b")], verbose=0)
    with pytest.raises(ValueError, match="`epochs` must be positive. Received: 0"):
        predictor.fit([(f"a {i}", str(i % 2)) for i in range(20)], epochs=0, verbose=0)
    with pytest.raises(ValueError, match=r"`class_weights` must have no negative .* among 0, 1"):
        pairs = [(f"a {i}", str(i % 2)) for i in range(20)]
        predictor.fit(pairs, class_weights={"2": 1.0}, verbose=0)


def test_balanced_weights_are_those_of_scikit_learn():
    utils = pytest.importorskip("sklearn.utils.class_weight")
    names = ["a"] * 7 + ["b"] * 2 + ["c"]
    targets = targets_of([(f"t{i}", n) for i, n in enumerate(names)], None, None, None, None)
    expected = utils.compute_sample_weight("balanced", names)
    np.testing.assert_allclose(row_weights(targets, "balanced"), expected, rtol=1e-6)
    given = row_weights(targets, {"b": 3.0})
    assert given.tolist() == [1.0] * 7 + [3.0] * 2 + [1.0]


@pytest.mark.parametrize(
    ("labels", "problem"),
    [
        (["1", "0", "1"], "single_label_classification"),
        (["-1", "2.5"], "regression"),
        (["1e3", "x"], "single_label_classification"),
        (["nan", "1.5"], "single_label_classification"),
        (["a", ["b"]], "multi_label_classification"),
        ([], "single_label_classification"),
    ],
)
def test_labels_say_what_is_learned(labels, problem):
    assert problem_of(labels, None) == problem
    assert problem_of(labels, ",") == "multi_label_classification"


def test_known_classes_stay_only_where_they_cover_the_data():
    rows = [("a", "x"), ("b", "y"), ("c", "x")]
    assert targets_of(rows, None, None, None, ["z", "y", "x"]).values == [2, 1, 2]
    assert targets_of(rows, None, None, None, ["y", "z"]).classes == ["x", "y"]
    strict = targets_of([*rows, ("d", "x")], None, None, None, ["x", "w"], True)
    assert strict.corpus.left_out == {"of a class that is not in the training set": 1}


def test_numbers_are_learned_at_unit_scale_and_given_as_they_were():
    values = np.array([[3.0], [5.0], [13.0]])
    scale = Scale(float(values.mean()), float(values.std()))
    scaled = scale.scaled(values)
    assert abs(scaled.mean()) < 1e-9 and abs(scaled.std() - 1) < 1e-9
    dense = keras.layers.Dense(1)
    x = np.random.default_rng(0).normal(size=(3, 4)).astype("float32")
    before = np.asarray(dense(x))
    scale.fold_into(dense)
    np.testing.assert_allclose(np.asarray(dense(x)), before * scale.spread + scale.mean, rtol=1e-5)
    scale.take_out_of(dense)  # as the next `fit` does
    np.testing.assert_allclose(np.asarray(dense(x)), before, atol=1e-5)


@pytest.mark.slow
def test_a_translator_is_taught_what_its_search_will_start_with(tmp_path):
    model, words = folders.marian(tmp_path), pretrained.load_tokenizer(tmp_path)
    pairs = [("the king", "Der König"), ("not", "nicht")]
    fitting = TranslatorFitting(Held(model, words))
    corpus = text.PairCorpus.from_pairs("toy", pairs)
    found = fitting._encode_pairs(corpus)
    expected = encode_pairs(*zip(*pairs, strict=True), words, target_tokenizer=words.for_targets())
    for number, pair in enumerate(expected):
        for side in ("source", "target"):
            assert found[side][number].numpy().tolist() == pair[side].numpy().tolist()


def test_pairs_are_kept_as_far_as_the_model_has_positions(tmp_path):
    words = pretrained.load_tokenizer(folders.marian(tmp_path) and tmp_path)
    positions = layers.PositionEmbedding(700)
    source, target, longer = (" ".join(["not"] * number) for number in (600, 150, 800))
    corpus = text.PairCorpus.from_pairs("toy", [("not", target), (source, "not"), (longer, "not")])
    for given, kept in (("sinusoidal", 3), (positions, 2)):
        model = models.Transformer(words.vocab_size, **folders.WIDTHS, positions=given)
        fitting = TranslatorFitting(Held(model, words))
        if kept == 3:
            found = fitting._encode_pairs(corpus)
            assert found["target"][0].shape[0] > 512 < found["source"][1].shape[0]
        else:
            with pytest.warns(UserWarning, match="toy: 1 pairs of over 700 tokens on a side are"):
                found = fitting._encode_pairs(corpus)
            assert fitting.served().longest == 700  # what is learned is read, too
        assert found["source"].nrows() == found["target"].nrows() == kept


def test_every_length_has_a_boundary_and_batches_hold_as_many_as_asked():
    lengths = np.random.default_rng(0).integers(1, 70, 500)
    boundaries, tokens = boundaries_for(lengths, 32)
    assert boundaries[-1] >= lengths.max() and len(boundaries) <= 3
    assert all(each % 8 == 0 for each in boundaries)
    assert abs(tokens - 32 * lengths.mean()) <= 32
    assert boundaries_for([3], 1) == ((8,), 8) and within((8, 64), 50) == (8, 50)


@pytest.mark.slow
@pytest.mark.parametrize("name", WITHOUT_CLASSES)
def test_an_encoder_of_images_becomes_a_classifier(name, tmp_path):
    (tmp_path / "own").mkdir()
    published = publish(tmp_path / "own", WITHOUT_CLASSES[name], (None, 16, 16, 3))
    folder = images(tmp_path / "images")
    with folders.eagerly():
        predictor = keras_transformers.load(published)
        again = keras_transformers.load(predictor.save(tmp_path / "saved"))
        assert again.predict(PICTURE) == predictor.predict(PICTURE)
        again.quantize("int4")
        again.add_lora(2)
        for each in (predictor, again):
            history = each.fit(folder, epochs=3, **(FAST | {"learning_rate": 1e-2}))
            assert min(history["loss"][1:]) < history["loss"][0]
            assert (each.kind, each.labels) == ("image_classifier", ["dark", "light"])
        assert predictor.evaluate(folder)["accuracy"] > 0.9


@pytest.mark.slow
def test_images_come_from_tables_and_from_memory(tmp_path):
    folder = images(tmp_path / "images", 2)
    names = [f"images/{kind}/{i}.png" for kind in ("dark", "light") for i in range(2)]
    kinds = ["dark"] * 2 + ["light"] * 2
    (tmp_path / "a.csv").write_text(
        "image,label\n" + "\n".join(map(",".join, zip(names, kinds, strict=True)))
    )
    arrays = [tf.io.decode_png(tf.io.read_file(str(tmp_path / name))).numpy() for name in names]
    preprocessing = vision.Preprocessing(16)
    expected = vision.read_folder(folder).decoded(preprocessing)
    encoded = [{"bytes": (tmp_path / name).read_bytes(), "path": None} for name in names]
    for data in (
        tmp_path / "a.csv",
        (np.stack(arrays), kinds),
        [{"img": image, "label": kind} for image, kind in zip(encoded, kinds, strict=True)],
        [*zip((tmp_path / name for name in names), kinds, strict=True)],
    ):
        corpus = vision.read_images(data)
        assert (corpus.classes, corpus.labels.tolist()) == (["dark", "light"], [0, 0, 1, 1])
        np.testing.assert_array_equal(corpus.decoded(preprocessing).images, expected.images)
    bad = vision.read_images([(arrays[0], "dark"), (3.5, "dark"), (arrays[2], "light")])
    assert bad.left_out == {"that are no images": 1} and len(bad) == 2


def test_a_folder_that_is_damaged_is_refused_by_name(tmp_path):
    predictor = loaded("image_classifier", tmp_path / "vit")
    own = predictor.save(tmp_path / "own")
    about = json.loads((own / "predictor.json").read_text())
    (own / "predictor.json").write_text(json.dumps({**about, "kind": "oracle"}))
    with pytest.raises(ValueError, match="is of the kind 'oracle'; it must be one of"):
        keras_transformers.load(own)
    (own / "predictor.json").write_text("{}")
    with pytest.raises(ValueError, match="predictor.json is damaged"):
        keras_transformers.load(own)


def test_with_an_adapter_the_weights_stay_and_the_new_head_learns(tmp_path):
    texts = sentences(24)
    with folders.eagerly():
        predictor = loaded("sentence_encoder", tmp_path / "bert")
        before = {each.path: keras.ops.convert_to_numpy(each) for each in predictor.model.weights}
        predictor.add_lora(2)
        history = predictor.fit((texts, royal(texts)), epochs=1, **FAST)
    model = predictor.model
    assert len(history["loss"]) == 1 and training.adapters_of(model)["default"].rank == 2
    kept = [each for each in model.weights if each.path in before and "lora" not in each.path]
    assert len(kept) > 10
    for each in kept:
        np.testing.assert_array_equal(each, before[each.path])
    names = {each.path.split("/")[1] for each in model.trainable_variables}
    assert "head" in names and len(names) > 1


def test_fewer_bits_answer_nearly_the_same_and_are_saved(tmp_path):
    with folders.eagerly():
        predictor = loaded("text_classifier", tmp_path / "bert")
        before = predictor.predict(TEXT)["probability"]
        predictor.quantize()
        after = predictor.predict(TEXT)
        assert abs(after["probability"] - before) < 0.03 and after["probability"] != before
        again = keras_transformers.load(predictor.save(tmp_path / "own"))
        assert again.predict(TEXT) == after


@pytest.mark.slow
def test_a_translator_learns_from_a_pattern_of_files(tmp_path):
    texts = sentences(24)
    for number in range(3):
        rows = [json.dumps({"source": each, "target": each}) for each in texts[number::3]]
        (tmp_path / f"{number}.jsonl").write_text("\n".join(rows))
    with folders.eagerly():
        predictor = loaded("translator", tmp_path / "marian")
        assert predictor.fit(f"{tmp_path}/*.jsonl", epochs=1, **FAST)["val_loss"][0] > 0
        with pytest.raises(FileNotFoundError, match="No file fits"):
            predictor.fit(f"{tmp_path}/*.tsv")


PART_NAMES = [
    ("train", "test"),
    ("Training", "Testing"),
    ("Training", "Validation"),
    ("TRAIN", "dev", "Test"),
]


@pytest.mark.parametrize("names", PART_NAMES)
@pytest.mark.parametrize("holds", ["folders", "files", "dict"])
def test_parts_of_a_set_are_found_by_any_usual_name(names, holds, tmp_path, capsys):
    if holds == "dict":
        data = {name: [(name, "a")] for name in names}
        paths = data
    else:
        paths = {name: tmp_path / (name if holds == "folders" else f"{name}.txt") for name in names}
        for path in paths.values():
            path.mkdir() if holds == "folders" else path.write_text("a text")
        data = tmp_path
    roles = {part_of(name): paths[name] for name in names}
    train, watched = split_parts(data, None, "auto")
    assert (train, watched) == (roles["train"], roles.get("valid"))
    printed = capsys.readouterr().out
    assert ("not used: test" in printed) == ("test" in roles)
    assert ("held out" in printed) == ("test" in roles and "valid" not in roles)
    assert split_parts(data, "mine", 0) == (train, "mine")
    assert split_parts(train, watched, 0) == (train, watched)
    assert not capsys.readouterr().out


def test_parts_without_one_to_learn_from_are_refused_and_classes_are_no_parts(tmp_path):
    for name in ("val", "test"):
        (tmp_path / "a" / name).mkdir(parents=True)
    for data in (tmp_path / "a", {"val": [], "test": []}):
        with pytest.raises(ValueError, match="has no (folder|part) `train` beside"):
            split_parts(data, None, 0)
    for name in ("bus", "car", "train"):
        (tmp_path / "b" / name).mkdir(parents=True)
    for data in (tmp_path / "b", {"text": [], "label": []}, "a.csv", [("a", "b")]):
        assert split_parts(data, None, 0) == (data, None)


def test_a_classifier_of_images_never_learns_the_classes_train_and_test(tmp_path, capsys):
    images(tmp_path / "photos" / "Training")
    images(tmp_path / "photos" / "Testing")
    with folders.eagerly():
        predictor = loaded("image_classifier", tmp_path / "vit")
        predictor.fit(tmp_path / "photos", epochs=1, **(FAST | {"verbose": 2}))
    assert predictor.labels == ["dark", "light"]
    printed = capsys.readouterr().out
    assert "Training: 20 images of 2 classes" in printed
    assert "only `train` is learned from, and a share of it is held out to watch by" in printed


class PoisonFrom(keras.callbacks.Callback):
    """Makes a weight NaN in an epoch, as a step that is too large does."""

    def __init__(self, epoch):
        super().__init__()
        self.epoch = epoch

    def on_epoch_begin(self, epoch, logs=None):
        if epoch == self.epoch:
            weight = self.model.trainable_weights[0]
            weight.assign(weight * np.nan)


@pytest.mark.parametrize("epoch", [0, 2])
def test_a_loss_that_becomes_nan_ends_the_training_and_spares_the_weights(epoch):
    keras.utils.set_random_seed(1)
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
    start = model.get_weights()
    x = np.random.default_rng(0).normal(size=(8, 3)).astype("float32")
    data = tf.data.Dataset.from_tensor_slices((x, x.sum(1, keepdims=True))).batch(4)
    numbers = dataclasses.replace(fine_tuning_numbers(8, "text"), epochs=5, learning_rate=0.1)
    asked = Asked(callbacks=[PoisonFrom(epoch)], verbose=0, learning_rate=0.1)
    arguments = model, lambda _: data, data, numbers, asked
    if epoch == 0:
        message = "NaN or infinite in epoch 1, before anything was learned.*lower `learning_rate`"
        with pytest.raises(ValueError, match=message):
            train_model(*arguments, loss="mse")
        for one, other in zip(model.get_weights(), start, strict=True):
            np.testing.assert_array_equal(one, other)
    else:
        with pytest.warns(UserWarning, match="in epoch 3, and training ended. .* epoch 2. A lower"):
            history = train_model(*arguments, loss="mse")
        assert len(history["loss"]) == 3
        assert np.isfinite(np.asarray(model(x))).all()


class Stop(keras.callbacks.Callback):
    """Ends the training in the second epoch, as the user's Ctrl+C does."""

    def __init__(self, error):
        super().__init__()
        self.error = error

    def on_train_batch_end(self, batch, logs=None):
        if self.model.optimizer.iterations > 4:
            raise self.error


@pytest.mark.parametrize(
    "error", [KeyboardInterrupt(), pytest.param(ValueError("no number"), marks=pytest.mark.slow)]
)
def test_an_interrupted_training_of_numbers_leaves_them_in_their_units(error, tmp_path):
    texts = sentences(40)
    pairs = [(t, 400.5 + 10 * len(t)) for t in texts]
    with folders.eagerly():
        predictor = loaded("text_classifier", tmp_path / "bert")
        predictor.fit(pairs, epochs=2, **FAST)
        before = np.array(predictor.predict(texts))
        assert before.min() > 300
        with pytest.raises(type(error)):
            predictor.fit(
                pairs, epochs=3, callbacks=[Stop(error)], **{**FAST, "learning_rate": 1e-6}
            )
        np.testing.assert_allclose(predictor.predict(texts), before, rtol=1e-2)
        assert not predictor.model.compiled
        predictor.fit(pairs, epochs=2, **FAST)
        assert predictor.evaluate(pairs)["mean_absolute_error"] < 100


DRAWING = {
    f"{kind}-{rank}": (kind, rank)
    for kind in ("sentence_encoder", "image_classifier", "mask_filler")
    for rank in (0, 2)
}


@pytest.mark.parametrize("case", slow_except(DRAWING, "sentence_encoder-0"))
def test_the_same_seed_learns_the_same_from_the_same_folder(case, tmp_path):
    kind, rank = case
    texts = sentences(24)
    data = images(tmp_path / "pictures") if kind[0] == "i" else (texts, royal(texts))
    losses, weights = [], []
    with folders.eagerly():
        for number, seed in enumerate((3, 3, 4)):
            keras.utils.set_random_seed(number)
            if number == 0:
                loaded(kind, tmp_path / "0")
            predictor = keras_transformers.load(tmp_path / "0")
            if rank:
                predictor.add_lora(rank)
            losses.append(predictor.fit(data, seed=seed, epochs=1, **FAST)["loss"])
            weights.append(predictor.model.get_weights())
    assert losses[0] == losses[1] != losses[2]
    for one, other in zip(*weights[:2], strict=True):
        np.testing.assert_array_equal(one, other)
