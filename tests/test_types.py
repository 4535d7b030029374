"""Claims about types: public signatures have them, and checkers find what contradicts them."""

import importlib
import inspect
import json
import pathlib
import re
import shutil
import subprocess
import sys

import keras
import pytest

from tests.test_examples import python_blocks

ROOT = pathlib.Path(__file__).parent.parent
TYPED = ROOT / "tests" / "typed"
PACKAGES = ["detection", "distribution", "generation", "inspection", "layers", "models"]
PACKAGES += ["precision", "saving", "training"]
if keras.backend.backend() == "tensorflow":
    PACKAGES += ["export", "loading", "predictors", "pretrained", "streams", "text", "vision"]
    PACKAGES += ["visualization"]
# What Keras's own signatures say is a str, and is not one only; what a library makes as it runs;
# and a library that one page of the docs asks for.
OF_OTHERS = re.compile(
    r'in function "(fit|compile|evaluate|predict)"|attribute of module "tensor|Import "optuna"'
)


def public_names(module):
    """Those in `__all__`, or what a module without it defines."""
    defined = (name for name, each in vars(module).items() if inspect.isroutine(each))
    return getattr(module, "__all__", None) or [each for each in defined if each[0] != "_"]


def signatures(owner, thing):
    """`(name, function)` of a public function, or of a class and its public methods."""
    if not inspect.isclass(thing):
        yield owner, thing
        return
    for kind in thing.__mro__:
        if not kind.__module__.startswith("keras_transformers"):
            continue
        for name, member in vars(kind).items():
            if name.startswith("_") and name not in ("__init__", "__call__"):
                continue
            member = member.fget if isinstance(member, property) else member
            member = getattr(member, "__func__", member)
            if inspect.isfunction(member):
                yield f"{owner}.{name}", member


def without_types(name, function):
    """Parameters, and "return", that nothing is said of."""
    signature = inspect.signature(function)
    parameters = list(signature.parameters.values())
    if "." in name and parameters and parameters[0].name in ("self", "cls"):
        parameters = parameters[1:]
    missing = [each.name for each in parameters if each.annotation is each.empty]
    return missing + ["return"] * (signature.return_annotation is signature.empty)


@pytest.mark.parametrize("package", PACKAGES)
def test_every_public_signature_says_its_types(package):
    module = importlib.import_module(f"keras_transformers.{package}")
    public = [(name, getattr(module, name)) for name in public_names(module)]
    public = [(name, each) for name, each in public if callable(each)]
    found = [pair for name, each in public for pair in signatures(name, each)]
    assert found
    missing = {name: without_types(name, function) for name, function in found}
    assert {name: each for name, each in missing.items() if each} == {}


def mypy(*files):
    """`(file name, line)` of each error that mypy finds in these files."""
    pytest.importorskip("mypy")
    command = [sys.executable, "-m", "mypy", "--no-error-summary", *map(str, files)]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert result.returncode in (0, 1), result.stdout + result.stderr
    errors = re.findall(r"^(.+?):(\d+): error: ", result.stdout, re.MULTILINE)
    return {(pathlib.Path(file).name, int(line)) for file, line in errors}


def pyright(folder):
    """The same of pyright, in the files of a folder, but for what others say of themselves."""
    if not shutil.which("node"):
        pytest.skip("pyright needs Node.js")
    pytest.importorskip("pyright")
    settings = {"include": ["."], "extraPaths": [str(ROOT)], "reportUnusedExpression": False}
    (folder / "pyrightconfig.json").write_text(json.dumps(settings), encoding="utf-8")
    command = [sys.executable, "-m", "pyright", "--outputjson", "--pythonpath", sys.executable]
    result = subprocess.run(
        [*command, "-p", str(folder)], cwd=folder, capture_output=True, text=True
    )
    if not result.stdout.startswith("{"):
        pytest.skip(f"pyright cannot be had here: {result.stderr[-200:]}")
    found = json.loads(result.stdout)["generalDiagnostics"]
    errors = [each for each in found if each["severity"] == "error"]
    return {
        (pathlib.Path(each["file"]).name, each["range"]["start"]["line"] + 1)
        for each in errors
        if not OF_OTHERS.search(each["message"])
    }


def mistakes():
    """File name and line of each mistake of the wrong script."""
    lines = (TYPED / "wrong.py").read_text(encoding="utf-8").splitlines()
    return {("wrong.py", i) for i, line in enumerate(lines, 1) if "# wrong: " in line}


def pages(folder):
    """The Python blocks of README and docs as files, each on the lines where it stands.

    Not those of `docs/concepts`, whose cells look into layers, at weights that one may not have.
    """
    files = []
    for page in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))):
        if page.parent.name == "concepts":
            continue
        lines = ["# mypy: allow-untyped-defs"]
        for line, code in python_blocks(page.read_text(encoding="utf-8")):
            lines += [""] * (line - len(lines)) + code.splitlines()
        name = "_".join(page.relative_to(ROOT).with_suffix("").parts)
        files.append(folder / f"{name.lower()}_page.py")
        files[-1].write_text("\n".join(lines) + "\n", encoding="utf-8")
    return files


def test_mypy_finds_every_mistake_of_a_script_and_nothing_in_a_right_one():
    assert len(mistakes()) > 30
    assert mypy(TYPED / "right.py", TYPED / "wrong.py") == mistakes()


@pytest.mark.slow
def test_pyright_finds_every_mistake_of_a_script_and_nothing_in_a_right_one(tmp_path):
    for script in TYPED.glob("*.py"):
        shutil.copy(script, tmp_path)
    assert pyright(tmp_path) == mistakes()


def test_mypy_finds_nothing_in_the_code_of_readme_and_docs(tmp_path):
    assert mypy(*pages(tmp_path)) == set()


@pytest.mark.slow
def test_pyright_finds_nothing_in_the_code_of_readme_and_docs(tmp_path):
    pages(tmp_path)
    assert pyright(tmp_path) == set()
