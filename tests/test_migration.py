"""Claims about docs/migrate: what is said to be equal to KerasHub and transformers is."""

import importlib.util
import re

import pytest

from tests import test_pages

PEERS = {"KerasHub": ["keras_hub"], "transformers": ["transformers", "torch"]}
NEEDS = re.compile(r"<!-- not run: needs (\w+); tests/test_migration.py runs it -->\n")
PAGES = [page for page in test_pages.PAGES if NEEDS.search(test_pages.read(page))]


def run_page_with_peers(page):
    test_pages.run_page(page, NEEDS.sub("", test_pages.read(page)))


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES, ids=test_pages.name_of)
def test_equality_with_peers_that_a_page_claims_holds(page, tmp_path):
    for peer in NEEDS.findall(test_pages.read(page)):
        for module in PEERS[peer]:
            if not importlib.util.find_spec(module):
                pytest.skip(f"needs {module}, of the extra `benchmark`")
    test_pages.in_own_process(run_page_with_peers, page, tmp_path)


def test_pages_have_blocks_with_peers():
    assert {page.name for page in PAGES} == {"keras_hub.md", "hugging_face.md"}
