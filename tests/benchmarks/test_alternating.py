"""Claims about the processes of a benchmark: who is in them, and what they say when they end."""

import ast
import pathlib
import sys

import pytest

from benchmarks import alternating, marian

FOLDER = pathlib.Path(alternating.__file__).parent
PEERS = {"torch", "timm", "ctranslate2"}
OURS = {"tensorflow", "keras", "keras_transformers", "recipes", "keras_hub", "tensorflow_text"}
# Learns from the recipe's own pipeline of images, which is TensorFlow's.
TOGETHER = {("detection", "peer"), ("detection", "peer_model"), ("detection", "predicted_by")}


def functions(module):
    """Function -> what it imports, and the names that it calls."""
    tree, found = ast.parse((FOLDER / f"{module}.py").read_text()), {}
    for node in tree.body:
        if isinstance(node, ast.FunctionDef):
            inside = list(ast.walk(node))
            imported = {n.module.split(".")[0] for n in inside if isinstance(n, ast.ImportFrom)}
            imported |= {
                a.name.split(".")[0] for n in inside if isinstance(n, ast.Import) for a in n.names
            }
            called = {
                n.func.id
                for n in inside
                if isinstance(n, ast.Call) and isinstance(n.func, ast.Name)
            }
            found[node.name] = imported, called
    return found


def all_imports(found, name, seen=frozenset()):
    imported, called = found[name]
    for other in called & found.keys() - seen - {name}:
        imported = imported | all_imports(found, other, seen | {name})
    return imported


@pytest.mark.parametrize("module", sorted(path.stem for path in FOLDER.glob("*.py")))
def test_no_peer_shares_a_process_with_tensorflow(module):
    found = functions(module)
    for name, (imported, _) in found.items():
        if imported & PEERS and (module, name) not in TOGETHER:
            assert not all_imports(found, name) & OURS, name


def test_what_is_shared_imports_no_tensorflow():
    code = "import sys; from benchmarks import alternating, marian; print('keras' in sys.modules)"
    assert alternating.ran([sys.executable, "-c", code]).strip() == "False"


def test_what_a_candidate_said_last_is_told_and_how_it_ended():
    code = "import ctypes, sys; print('here', file=sys.stderr, flush=True); ctypes.string_at(0)"
    with pytest.raises(RuntimeError, match="(?s)SIGSEGV.*said last:.*here.*Segmentation fault"):
        alternating.ran([*alternating.PYTHON, "-c", code])
    with pytest.raises(RuntimeError, match="(?s)with code 3. What .*last:\n.nothing"):
        alternating.ran([sys.executable, "-c", "raise SystemExit(3)"])


def test_what_is_computed_apart_is_the_same():
    table = alternating.apart(marian.sinusoidal, 7, 6)
    assert table.tolist() == marian.sinusoidal(7, 6).tolist()
