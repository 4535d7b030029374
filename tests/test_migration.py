"""Claims about the pages of docs/start and docs/migrate: every block of code runs.

Blocks that need KerasHub or transformers, of the extra `benchmark`, run where these are installed.
"""

import importlib.util
import os
import pathlib
import re
import subprocess
import sys

import keras
import pytest

from tests.test_examples import python_blocks

ROOT = pathlib.Path(__file__).parent.parent
PAGES = sorted(f"{path.relative_to(ROOT)}" for path in ROOT.glob("docs/start/*.md"))
PAGES += sorted(f"{path.relative_to(ROOT)}" for path in ROOT.glob("docs/migrate/*.md"))
PEERS = {"KerasHub": "keras_hub", "transformers": "transformers"}
NEEDS = re.compile(r"<!-- not run: needs (\w+); tests/test_migration.py runs it -->\n")


def run(page, *peers):
    """Runs the blocks of a page in order, those that need these peers too."""
    text = (ROOT / page).read_text(encoding="utf-8")
    text = NEEDS.sub(lambda found: "\n" if found[1] in peers else found[0], text)
    namespace = {"__name__": page}
    for line, code in python_blocks(text):
        exec(compile("\n" * line + code, ROOT / page, "exec"), namespace)


def in_own_process(folder, page, *peers):
    """With its end the memory of XLA's programs is free again."""
    code = f"from tests import conftest, test_migration as t; t.run({page!r}, *{peers!r})"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", code]
    result = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr[-3000:]


def peers_of(page):
    return sorted(set(NEEDS.findall((ROOT / page).read_text(encoding="utf-8"))))


@pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="pages are about TensorFlow")
@pytest.mark.parametrize("page", PAGES)
def test_blocks_of_a_page_run_in_order(page, tmp_path):
    in_own_process(tmp_path, page)


@pytest.mark.slow
@pytest.mark.parametrize("page", [page for page in PAGES if peers_of(page)])
def test_equality_with_peers_that_a_page_claims_holds(page, tmp_path):
    missing = [name for name in peers_of(page) if not importlib.util.find_spec(PEERS[name])]
    if missing:
        pytest.skip(f"needs {', '.join(missing)}, of the extra `benchmark`")
    in_own_process(tmp_path, page, *peers_of(page))
