"""Claims about what a command line chooses, and what is chosen for it."""

import dataclasses
import importlib
import json
import sys

import pytest

from recipes import command

# Recipes with presets: those of a smoke run, and those to go on from published weights.
RECIPES = ("text_classification", "vit", "swin", "mae")


def presets(name):
    """The recipe's configuration class and its presets."""
    recipe = importlib.import_module(f"recipes.{name}")
    shared = importlib.import_module("recipes.images")
    tuning = getattr(recipe, "TUNING", None)
    if name in ("vit", "swin"):
        tuning = {"image_size": 48, "learning_rate": 1e-4, "batch_size": 32, "erasing": 0.0}
    return recipe.Config, getattr(recipe, "SMOKE", shared.SMOKE), tuning


@pytest.fixture
def start(monkeypatch, tmp_path):
    """A function that gives the configuration that a run begins with."""
    monkeypatch.setattr(command, "keep_freed_memory", lambda: None)
    (tmp_path / "published").mkdir()
    (tmp_path / "published" / "config.json").write_text("{}")

    def begin(name, config):
        _, smoke, tuning = presets(name)
        return command.begin(config, smoke, tuning)[0]

    def start(name, *arguments, **given):
        kind, begun = presets(name)[0], []
        given.setdefault("output", str(tmp_path / "run"))
        if arguments:
            line = [f"recipes/{name}.py", "--output", given["output"], *map(str, arguments)]
            monkeypatch.setattr(sys, "argv", line)
            command.main(lambda config: begun.append(begin(name, config)), kind, "")
            return begun[0]
        return begin(name, kind(**given))

    return start


def as_options(name, value):
    """A value as a command line has it."""
    option = name.replace("_", "-")
    if isinstance(value, bool):
        return [f"--{option}" if value else f"--no-{option}"]
    return [f"--{option}", *(map(str, value) if isinstance(value, tuple) else [str(value)])]


@pytest.mark.parametrize("name", RECIPES)
def test_what_is_given_stays_be_it_the_default(name, start, tmp_path):
    kind, smoke, tuning = presets(name)
    chosen = [({"smoke": True}, smoke)]
    if tuning and any(field.name == "pretrained" for field in dataclasses.fields(kind)):
        chosen.append(({"pretrained": str(tmp_path / "published")}, tuning))
    for switch, preset in chosen:
        found = start(name, **switch)
        assert {each: getattr(found, each) for each in preset} == preset
        default = {each: getattr(kind, each) for each in preset}
        found = start(name, **switch, **default)
        assert {each: getattr(found, each) for each in preset} == default
        options = [each for pair in (switch | default).items() for each in as_options(*pair)]
        found = start(name, *options)
        assert {each: getattr(found, each) for each in preset} == default
        options = [each for pair in switch.items() for each in as_options(*pair)]
        found = start(name, *options)
        assert {each: getattr(found, each) for each in preset} == preset


@pytest.mark.parametrize("key", ["max_position_embeddings", "n_positions"])
def test_rows_are_no_longer_than_the_positions_of_published_weights(key, start, tmp_path):
    folder = tmp_path / "published"
    (folder / "config.json").write_text(json.dumps({"model_type": "bert", key: 64}))
    found = start("text_classification", "--pretrained", folder)
    assert (found.row_length, found.learning_rate) == (64, 5e-5)
    assert start("text_classification", pretrained=str(folder), row_length=32).row_length == 32
    with pytest.raises(ValueError, match="--row-length must be at most 64.*Received: 65"):
        start("text_classification", pretrained=str(folder), row_length=65)
