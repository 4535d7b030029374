"""Claims about what a command line chooses, what is chosen for it, and files of options."""

import dataclasses
import importlib
import json
import sys

import pytest

from keras_transformers.__main__ import RECIPES
from recipes.lib import options
from recipes.lib.options import changed, configure, join_repeated, numbers
from recipes.lib.progress import announce

PUBLISHED_SIDE = 48  # pixels, of the published folder of the tests


def kind(name):
    """The dataclass of a recipe."""
    return importlib.import_module(f"recipes.{name}").Config


@pytest.fixture
def published(tmp_path):
    """A folder of published weights, as far as its numbers go."""
    folder = tmp_path / "published"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    size = {"height": PUBLISHED_SIDE, "width": PUBLISHED_SIDE}
    (folder / "preprocessor_config.json").write_text(json.dumps({"size": size}))
    return folder


@pytest.fixture
def start(monkeypatch, tmp_path):
    """A function that gives the configuration that a command line makes, which has then begun."""

    def start(name, *arguments):
        begun = []
        line = [f"{name}.py", "--output", str(tmp_path / "run"), *map(str, arguments)]
        monkeypatch.setattr(sys, "argv", line)
        options.main(begun.append, kind(name), "")
        written = tmp_path / "run" / "config.json"
        written.parent.mkdir(exist_ok=True)
        if not written.is_file():
            written.write_text(json.dumps(numbers(begun[0])))
        return begun[0]

    return start


def as_options(name, value):
    """A number as a command line has it."""
    option = name.replace("_", "-")
    if isinstance(value, bool):
        return [f"--{option}" if value else f"--no-{option}"]
    return [f"--{option}", *(map(str, value) if isinstance(value, tuple) else [str(value)])]


@pytest.mark.parametrize("name", RECIPES)
def test_no_two_groups_of_a_recipe_have_a_number_of_the_same_name(name):
    config = kind(name)()
    groups = [vars(getattr(config, field.name)) for field in dataclasses.fields(config)]
    assert sum(map(len, groups)) == len(numbers(config)) + 1  # `user_options` is no option


@pytest.mark.parametrize("name", RECIPES)
def test_a_run_says_at_once_what_it_will_do_and_for_how_long_at_most(name, capsys):
    config = kind(name)()
    announce(config)
    said, of = capsys.readouterr().out, config.training
    assert said.startswith(f"{config.run.output}: reads the data, trains")
    for unit in ("minutes", "epochs"):
        if getattr(of, unit, None):
            assert f"{getattr(of, unit):g} {unit}" in said


@pytest.mark.parametrize("name", RECIPES)
def test_what_is_given_stays_be_it_the_default(name, published, tmp_path, start):
    recipe, switches = kind(name), [("SMOKE", {"smoke": True})]
    if "pretrained" in numbers(recipe()):
        switches.append(("PUBLISHED", {"pretrained": str(published)}))
    for presets, switch in switches:
        preset = getattr(recipe, presets)
        preset = {
            each: PUBLISHED_SIDE if callable(value) else value for each, value in preset.items()
        }
        default = {each: numbers(recipe())[each] for each in preset}
        assert preset and preset != default
        output = {"output": str(tmp_path / "other")}
        for given, expected in (({}, preset), (default, default)):
            found = numbers(configure(recipe, **output, **switch, **given))
            assert {each: found[each] for each in preset} == expected
        line = [each for pair in (switch | default).items() for each in as_options(*pair)]
        found = numbers(start(name, *line))
        assert {each: found[each] for each in preset} == default


@pytest.mark.parametrize("name", RECIPES)
def test_every_recipe_takes_adapters_where_weights_are_worth_keeping(name, published, start):
    recipe = kind(name)
    with pytest.raises(SystemExit, match="--lora needs weights.*--pretrained"):
        start(name, "--lora", 4)
    if "pretrained" not in numbers(recipe()):
        return
    options = {"pretrained": str(published)}
    rate = configure(recipe, **options).training.learning_rate
    found = configure(recipe, lora=4, **options)
    assert (found.run.lora, found.training.learning_rate) == (4, 10 * rate)
    found = start(name, f"--pretrained={published}", "--lora=4", "--lora-targets", "query", "value")
    assert (found.run.lora_targets, found.training.learning_rate) == (("query", "value"), 10 * rate)
    assert configure(recipe, lora=4, learning_rate=rate, **options).training.learning_rate == rate
    with pytest.raises(ValueError, match="--lora must be .* 1 or more. Received: 0"):
        configure(recipe, lora=0, **options)
    if "freeze" in numbers(recipe()):
        with pytest.raises(ValueError, match="--freeze and --lora"):
            configure(recipe, lora=4, freeze=True, **options)


@pytest.mark.parametrize("key", ["max_position_embeddings", "n_positions"])
def test_rows_are_no_longer_than_the_positions_of_published_weights(key, published):
    config, folder = kind("translation"), str(published)
    (published / "config.json").write_text(json.dumps({"model_type": "bert", key: 48}))
    found = configure(config, pretrained=folder)
    assert (found.data.row_length, found.training.learning_rate) == (48, 1e-4)
    assert configure(config, pretrained=folder, row_length=32).data.row_length == 32
    with pytest.raises(ValueError, match="--row-length must be at most 48.*Received: 65"):
        configure(config, pretrained=folder, row_length=65)


def test_a_run_goes_on_with_its_numbers_and_refuses_others_be_they_the_default(start, tmp_path):
    default = numbers(kind("translation")())
    first = start("translation", "--smoke", "--epochs", 3, "--learning-rate", 0.25)
    assert (first.training.epochs, first.training.learning_rate) == (3, 0.25)
    assert first.data.vocab_size == 600
    for again in (["--resume"], ["--resume", "--smoke"], ["--resume", "--epochs=3"]):
        assert changed(start("translation", *again), resume=False) == first
    for option in ("learning-rate", "vocab-size"):
        with pytest.raises(SystemExit, match=f"begun with --{option} .*Received: --{option}"):
            start("translation", "--resume", f"--{option}", default[option.replace("-", "_")])
    begun = {"output": str(tmp_path / "run"), "resume": True}
    with pytest.raises(ValueError, match="begun with --learning-rate 0.25. Received.*0.006"):
        configure(kind("translation"), **begun, learning_rate=default["learning_rate"])
    found = start("translation", "--resume", "--checkpoint-steps", 7, "--devices", "data=1")
    assert (found.run.checkpoint_steps, found.run.devices) == (7, "data=1")


@pytest.mark.parametrize("name", RECIPES)
def test_what_a_run_has_written_can_be_given_back(name, start, tmp_path):
    first = start(name, "--smoke", "--learning-rate", 1e-5, "--weight-decay=1e-09")
    written = tmp_path / "given.json"
    (tmp_path / "run" / "config.json").rename(written)
    again = start(name, "--config", written)
    assert changed(again, config=None) == first
    assert changed(configure(kind(name), config=str(written)), config=None) == first


def test_a_file_of_options_is_outdone_by_the_command_line_and_outdoes_presets(start, tmp_path):
    file = tmp_path / "options.yaml"
    file.write_text("smoke: true\ntraining:\n  learning-rate: 1e-3\n  epochs: 7\nminutes: null\n")
    found = start("translation", "--epochs", 4, "--config", file).training
    assert (found.learning_rate, found.epochs, found.minutes) == (1e-3, 4, None)
    assert found.batch_size == 512  # of a smoke run
    file.write_text("buckets: [5, 9]\nsmoke: true\n")
    assert start("recurrent_translation", f"--config={file}").data.buckets == (5, 9)


@pytest.mark.parametrize(
    ("text", "advice"),
    [
        ("epoch: 3", "has epoch, which is no option of this recipe"),
        ("epochs 3", "must hold options, as `epochs: 3`"),
        ("epochs: [", "is neither YAML nor JSON"),
        ("epochs: [3]", "has a wrong epochs"),
        ("buckets: [a]", "has a wrong buckets"),
        ("dropout: {a: 1}", "has a wrong dropout"),
        (None, "there is no file"),
    ],
)
def test_a_wrong_file_of_options_is_refused_in_a_sentence(text, advice, start, tmp_path):
    file = tmp_path / "options.yaml"
    if text:
        file.write_text(text)
    with pytest.raises(SystemExit) as refused:
        start("recurrent_translation", "--config", file)
    assert str(refused.value).startswith("recipes.recurrent_translation: --config: ")
    assert advice in str(refused.value)


def test_a_number_of_the_wrong_kind_in_a_file_is_named(start, tmp_path, capsys):
    (tmp_path / "options.yaml").write_text("epochs: many")
    with pytest.raises(SystemExit):
        start("translation", "--config", tmp_path / "options.yaml")
    assert "--epochs" in capsys.readouterr().err


def test_a_name_that_no_group_has_is_no_number():
    with pytest.raises(TypeError, match="no epoch"):
        configure(kind("translation"), epoch=3)


def test_an_option_of_one_or_several_can_be_repeated():
    given = ["--train", "a", "--epochs", "3", "--train=b", "c", "--smoke", "--epochs", "4"]
    assert join_repeated(given, kind("translation")) == [
        *("--epochs", "3", "--smoke", "--epochs", "4", "--train", "a", "b", "c")
    ]
    assert join_repeated(given[:4], kind("translation")) == given[:4]


def test_a_file_has_a_list_for_an_option_of_one_or_several(tmp_path):
    (tmp_path / "a.yaml").write_text("train: [en-de=a.tsv, en-es=b.tsv]\n")
    found = configure(kind("translation"), config=str(tmp_path / "a.yaml"))
    assert found.data.train == ("en-de=a.tsv", "en-es=b.tsv")
