"""Claims about the notebooks: they keep small outputs, import what there is, and run."""

import ast
import importlib
import itertools
import json
import os
import pathlib
import re
import tomllib
import types

import keras
import pytest

ROOT = pathlib.Path(__file__).parent.parent
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}
ON_TENSORFLOW = keras.backend.backend() == "tensorflow"
PICTURE = re.compile(r"^ *(?:Image\(|plt\.show\()", re.M)  # a line that shows one
LARGEST = 140_000  # bytes of a notebook with its outputs
of_each = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)


def read(path):
    return json.loads(path.read_text(encoding="utf-8"))


def sources(path, kind):
    """Of the cells of a kind."""
    return ["".join(x["source"]) for x in read(path)["cells"] if x["cell_type"] == kind]


def trees(path):
    return [ast.parse(code, f"{path.name}: cell") for code in sources(path, "code")]


def imported(path):
    """`(name in the notebook, what it is)` of each import; ImportError if there is no such thing.

    The first cell is for machines without the package, with what Python alone has.
    """
    for node in itertools.chain.from_iterable(map(ast.walk, trees(path))):
        if isinstance(node, ast.Import):
            for alias in node.names:
                module = importlib.import_module(alias.name)
                yield alias.asname or alias.name, module
        elif isinstance(node, ast.ImportFrom):
            module = importlib.import_module(node.module)
            for alias in node.names:
                if not hasattr(module, alias.name):
                    importlib.import_module(f"{node.module}.{alias.name}")
                yield alias.asname or alias.name, getattr(module, alias.name)


def test_there_are_eight_in_order():
    assert [path.name[:2] for path in NOTEBOOKS] == [f"{number}_" for number in range(1, 9)]


@of_each
def test_files_have_one_form(path):
    """No count, no path of a machine; and a change of a line is a change of a line."""
    notebook = read(path)
    assert (
        path.read_text(encoding="utf-8")
        == json.dumps(notebook, indent=1, ensure_ascii=False) + "\n"
    )
    assert (notebook["nbformat"], notebook["nbformat_minor"]) == (4, 5)
    assert notebook["metadata"] == METADATA
    for number, cell in enumerate(notebook["cells"], 1):
        assert cell["id"] == f"cell-{number:02d}"
        assert cell["metadata"] == {}
        assert "".join(cell["source"]).splitlines(keepends=True) == cell["source"]
        if cell["cell_type"] == "code":
            assert cell["execution_count"] is None
            assert {output["output_type"] for output in cell["outputs"]} <= {
                "stream",
                "display_data",
            }
            printed = ["".join(output.get("text", [])) for output in cell["outputs"]]
            assert not re.search(r"[\x1b\b\r]|(?<!\w)/(?:tmp|home|root|work)/", "\n".join(printed))
    assert path.stat().st_size < LARGEST


@of_each
def test_stored_outputs_show_each_picture(path):
    cells = [cell for cell in read(path)["cells"] if cell["cell_type"] == "code"]
    for cell in cells:
        kinds = [kind for output in cell["outputs"] for kind in output.get("data", {})]
        drawn = [kind for kind in kinds if kind in ("image/png", "image/jpeg")]
        assert len(drawn) == len(PICTURE.findall("".join(cell["source"])))
    assert any(output["output_type"] == "stream" for cell in cells for output in cell["outputs"])


@of_each
def test_minutes_are_those_that_were_measured(path):
    results = json.loads((ROOT / "benchmarks" / "results" / "notebooks.json").read_text())
    minutes = results["notebooks"][path.stem]
    sentence = (
        f"Measured: {minutes['minutes']} minutes, {minutes['CPU minutes']} minutes of CPU time "
        f"({results['machine']})."
    )
    assert sentence in sources(path, "markdown")[0]


@of_each
def test_data_that_notebooks_read_come_with_the_project(path):
    names = re.findall(r'"([^"/]+\.(?:xz|gz|npz|jpg))"', "\n".join(sources(path, "code")))
    assert [name for name in names if not list((ROOT / "recipes" / "data").rglob(name))] == []


def test_a_terminal_shows_only_what_was_written_last():
    from benchmarks.notebooks import final_text

    bar = "\x1b[1m1/2\x1b[0m\x08\x08\x08\r\x1b[1m2/2\x1b[0m loss: 1\n"
    assert final_text(f"Epoch 1\n{bar}INFO: written to /tmp/x\nend") == "Epoch 1\n2/2 loss: 1\nend"


@of_each
def test_badges_and_clones_have_the_address_of_the_project(path):
    """While it has none, OWNER stands for whoever will own it."""
    source = PROJECT.get("urls", {}).get("Source", "https://github.com/OWNER/keras_transformers")
    colab = source.replace("https://github.com", "https://colab.research.google.com/github")
    assert f"({colab}/blob/main/notebooks/{path.name})" in sources(path, "markdown")[0]
    assert f'address = "{source}"\n' in sources(path, "code")[0]


@of_each
def test_notebooks_make_a_claim_and_say_what_to_see(path):
    code, prose = "\n".join(sources(path, "code")), "\n".join(sources(path, "markdown"))
    claims = len(re.findall(r"^ *(?:assert |np\.testing\.)", code, re.M))
    pictures = len(PICTURE.findall(code))
    assert claims >= 2 and pictures >= 1
    assert prose.count("**What to see.**") == pictures
    assert "\N{EM DASH}" not in prose + code


@pytest.mark.skipif(not ON_TENSORFLOW, reason="notebooks are about the TensorFlow backend")
@of_each
def test_code_compiles_and_what_it_imports_is_there(path):
    pytest.importorskip("IPython")
    found = dict(imported(path))
    nodes = [node for tree in trees(path) for node in ast.walk(tree)]
    names = [node for node in nodes if isinstance(node, ast.Name)]
    own = {node.id for node in names if isinstance(node.ctx, ast.Store)}
    for node in nodes:
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            module = None if node.value.id in own else found.get(node.value.id)
            if isinstance(module, types.ModuleType):
                assert hasattr(module, node.attr), f"{node.value.id}.{node.attr}"


@of_each
def test_pages_name_every_notebook(path):
    pages = ROOT / "docs" / "notebooks"
    assert f"(../../notebooks/{path.name})" in (pages / "index.md").read_text(encoding="utf-8")
    assert f"({path.stem}.md)" in (pages / "SUMMARY.md").read_text(encoding="utf-8")


@pytest.mark.slow
@pytest.mark.skipif(not ON_TENSORFLOW, reason="notebooks are about the TensorFlow backend")
@of_each
def test_notebooks_run_from_top_to_bottom(path, tmp_path, monkeypatch):
    import nbformat
    from nbclient import NotebookClient

    from benchmarks.notebooks import stored_outputs

    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]))
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    where = {"metadata": {"path": str(tmp_path)}}
    # A kernel is a process of its own; an error in a cell is raised here.
    NotebookClient(notebook, timeout=1800, kernel_name="python3", resources=where).execute()
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    drawn = [output for output in outputs if "image/png" in output.get("data", {})]
    assert len(drawn) == len(PICTURE.findall("\n".join(sources(path, "code"))))
    stored = [cell.get("outputs", []) != [] for cell in read(path)["cells"]]
    printed = [stored_outputs(cell.get("outputs", [])) != [] for cell in notebook.cells]
    assert printed == stored
