"""Claims about docs/start and docs/migrate: equality with KerasHub and transformers holds.

Blocks that need them, of the extra `benchmark`, run where they are installed; the others always do,
see `tests/test_pages.py`.
"""

import importlib.util
import pathlib
import re

import pytest

from tests.test_pages import in_own_process, name_of, run_page

ROOT = pathlib.Path(__file__).parent.parent
PAGES = [*ROOT.glob("docs/start/*.md"), *ROOT.glob("docs/migrate/*.md")]
PEERS = {"KerasHub": "keras_hub", "transformers": "transformers"}
NEEDS = re.compile(r"<!-- not run: needs (\w+); tests/test_migration.py runs it -->\n")


def run_with_peers(page):
    """Runs the blocks of a page in order, those that need peers too."""
    run_page(page, NEEDS.sub("\n", page.read_text(encoding="utf-8")))


def peers_of(page):
    return sorted(set(NEEDS.findall(page.read_text(encoding="utf-8"))))


@pytest.mark.slow
@pytest.mark.parametrize("page", sorted(filter(peers_of, PAGES)), ids=name_of)
def test_equality_with_peers_that_a_page_claims_holds(page, tmp_path):
    missing = [name for name in peers_of(page) if not importlib.util.find_spec(PEERS[name])]
    if missing:
        pytest.skip(f"needs {', '.join(missing)}, of the extra `benchmark`")
    in_own_process(run_with_peers, page, tmp_path)
