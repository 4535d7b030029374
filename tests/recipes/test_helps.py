"""Claims about `--help`: options stand in groups, and each has its reason in a line."""

import importlib
import re
import warnings

import pytest
import tyro

from keras_transformers.__main__ import NAMES, RECIPES
from recipes.lib.options import FLAT

OF_TYRO = re.compile(r"\x1b\[[0-9;]*m|\((default|required|optional|repeatable)[^)]*\)")


def actions(name):
    """The options of a recipe as its command line has them, by group."""
    kind = importlib.import_module(f"recipes.{name}").Config
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of tyro, in favour of nothing public
        parser = tyro.extras.get_parser(kind, config=FLAT)
    return {group.title: group._group_actions for group in parser._action_groups}


@pytest.mark.parametrize("name", NAMES)
def test_every_option_has_a_reason(name):
    groups = actions(name)
    options = [option for group in groups.values() for option in group]
    bare = [o.dest for o in options if not OF_TYRO.sub("", str(o.help or "")).strip()]
    assert len(options) > 3 and bare == []
    if name in RECIPES:
        assert {"run options", "training options"} <= set(groups)
        assert [o.dest for o in groups["options"]] == ["help"], "none outside of a group"
