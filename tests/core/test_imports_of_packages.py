"""Claims about how TensorFlow is imported."""

import gc
import io
import os
import subprocess
import sys

import pytest

import keras_transformers
from keras_transformers.core import imports
from tests.recipes import tiny_folders
from tests.slow import slow_except


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
    assert imports.is_command(arguments) == ours


@pytest.mark.parametrize(
    ("arguments", "starts"),
    [
        (["python", "-m", "recipes.demo", "runs/vit"], True),
        (["python", "-m", "keras_transformers", "demo", "runs/vit"], True),
        (["/usr/bin/python", "/usr/bin/keras-transformers", "demo", "runs/vit"], True),
        (["/usr/bin/python", "/usr/bin/keras-transformers", "demo", "--help"], False),
        (["python", "-m", "recipes.predict", "demo"], False),
    ],
)
def test_only_the_start_of_a_page_is_said_before_imports(arguments, starts):
    assert imports.serves_page(arguments) == starts


def test_chatter_is_left_out_and_all_else_is_printed(monkeypatch, capfd):
    monkeypatch.setattr(sys, "orig_argv", ["python", "-m", "recipes.vit"])
    monkeypatch.setenv("TF_CPP_MIN_LOG_LEVEL", "3")
    with pytest.raises(ImportError), imports.importing():
        os.write(2, b"I0000 00:00:1 port.cc:153] oneDNN\nE0000 00:00:1 a.cc:1] broken\nmine\n")
        assert not gc.isenabled()
        raise ImportError
    assert gc.isenabled()
    assert capfd.readouterr().err == "E0000 00:00:1 a.cc:1] broken\nmine\n"


@pytest.mark.parametrize("level", slow_except(["0", "1", None], "1"))
def test_an_import_is_silent_unless_chatter_is_asked_for(level):
    environment = {name: x for name, x in os.environ.items() if name != "TF_CPP_MIN_LOG_LEVEL"}
    environment |= {} if level is None else {"TF_CPP_MIN_LOG_LEVEL": level}
    program = [sys.executable, "-c", "import keras_transformers"]
    said = subprocess.run(program, capture_output=True, text=True, env=environment)
    assert said.returncode == 0 and said.stdout == ""
    assert (said.stderr == "") == (level != "0")


WITHOUT = {
    # Environment -> what stands before the program, and a part of the one warning.
    "home": (
        """
import os, pwd
os.environ.pop("HOME", None), os.environ.pop("XDG_CACHE_HOME", None)
def unknown(number):
    raise KeyError(number)
pwd.getpwuid = unknown
""",
        "compile_cache: compiled programs are not kept: there is no home directory",
    ),
    "cache": (
        """
import os, tempfile
home = tempfile.mkdtemp()
os.environ["XDG_CACHE_HOME"] = home
os.makedirs(home + "/keras_transformers/compiled")
os.chmod(home + "/keras_transformers/compiled", 0o777)
real = os.getuid()
os.getuid = lambda: real + 1
""",
        "compile_cache: compiled programs are not kept: `folder` must be its user's alone",
    ),
    "temporary folder": (
        """
import os, tempfile
def refuse():
    raise FileNotFoundError(2, "No usable temporary directory found")
tempfile._get_default_tempdir = refuse
""",
        "keras_transformers: no folder for temporary files can be written to",
    ),
    "UTF-8": ("import sys; sys.stdout.reconfigure(encoding='ascii')", None),
}
PROGRAM = """
import sys, warnings
sys.orig_argv = ["python", "-m", "recipes.predict"]
warnings.simplefilter("ignore")
warnings.filterwarnings("always", module="__main__")
import keras_transformers
keras_transformers.compile_cache()
print("\\u2192", keras_transformers.load(sys.argv[1]).predict("the cat"))
"""


@pytest.mark.skipif(sys.platform == "win32", reason="what is taken away is of POSIX")
@pytest.mark.parametrize("name", slow_except(list(WITHOUT)))
def test_a_model_answers_without(name, tmp_path):
    begin, warning = WITHOUT[name]
    folder = tiny_folders.translator(tmp_path)
    environment = {**os.environ, "TF_XLA_FLAGS": "", "PYTHONIOENCODING": "utf-8"}
    environment["PYTHONPATH"] = os.pathsep.join(path or os.getcwd() for path in sys.path)
    done = subprocess.run(
        [sys.executable, "-c", begin + PROGRAM, str(folder)],
        capture_output=True,
        text=True,
        env=environment,
        cwd=tmp_path,  # where Keras writes its settings if there is no home
    )
    assert done.returncode == 0, done.stderr
    answer = keras_transformers.load(folder).predict("the cat")
    assert done.stdout.split(maxsplit=1)[1].strip() == answer
    warnings = [line for line in done.stderr.splitlines() if "Warning: " in line]
    assert len(warnings) == (warning is not None), done.stderr
    assert all(warning in line for line in warnings)


def test_no_temporary_folder_is_said_and_tensorflow_is_imported(monkeypatch):
    def refuse():
        raise FileNotFoundError("no folder")

    monkeypatch.setattr(imports.tempfile, "gettempdir", refuse)
    monkeypatch.setenv("TEST_TMPDIR", "")
    monkeypatch.delenv("TEST_TMPDIR")
    with pytest.warns(UserWarning, match="no folder for temporary files") as said:
        assert not imports.has_temporary_folder()
    assert len(said) == 1 and os.environ["TEST_TMPDIR"]


@pytest.mark.parametrize(("name", "kind"), [("recipes.vit", SystemExit), ("json", ImportError)])
def test_a_backend_that_is_not_installed_is_said_in_a_line(name, kind, monkeypatch, capfd):
    monkeypatch.setattr(sys, "orig_argv", ["python", "-m", name])
    monkeypatch.setenv("KERAS_BACKEND", "jax")
    monkeypatch.setenv("TF_CPP_MIN_LOG_LEVEL", "3")
    with pytest.raises(kind) as ended, imports.importing():
        raise ModuleNotFoundError("No module named 'jax'", name="jax")
    assert str(ended.value) == (
        "keras_transformers with KERAS_BACKEND=jax needs the package jax: "
        "pip install 'keras_transformers[jax]'"
    )


def test_characters_that_the_terminal_lacks_are_escaped(monkeypatch):
    file = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(file, "cp1252", errors="strict"))
    imports.print_every_character()
    print("Größe \u2192 5", flush=True)
    assert file.getvalue().decode("cp1252").splitlines() == ["Größe \\u2192 5"]
