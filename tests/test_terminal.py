"""Claims about how TensorFlow is imported."""

import gc
import os
import sys

import pytest

from keras_transformers import terminal


@pytest.mark.parametrize(
    ("arguments", "ours"),
    [
        (["python", "-m", "recipes.translation", "--smoke"], True),
        (["python", "-X", "dev", "-m", "keras_transformers", "vit"], True),
        (["/usr/bin/python", "/usr/bin/keras-transformers", "vit"], True),
        (["python", "train.py", "-m", "other"], False),
        (["python", "-m", "pytest", "recipes"], False),
        (["python"], False),
    ],
)
def test_only_our_commands_are_quiet(arguments, ours):
    assert terminal.is_command(arguments) == ours


def test_chatter_is_left_out_and_all_else_is_printed(monkeypatch, capfd):
    monkeypatch.setattr(sys, "orig_argv", ["python", "-m", "recipes.vit"])
    monkeypatch.setenv("TF_CPP_MIN_LOG_LEVEL", "3")
    with pytest.raises(ImportError), terminal.importing():
        os.write(2, b"I0000 00:00:1 port.cc:153] oneDNN\nE0000 00:00:1 a.cc:1] broken\nmine\n")
        assert not gc.isenabled()
        raise ImportError
    assert gc.isenabled()
    assert capfd.readouterr().err == "E0000 00:00:1 a.cc:1] broken\nmine\n"
