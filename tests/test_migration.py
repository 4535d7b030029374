"""Claims about docs/migrate: what is said to be equal to KerasHub and transformers is."""

import importlib.util
import re

import pytest

from keras_transformers.layers import EncoderBlock
from keras_transformers.layers.checks import ELSEWHERE, FOREIGN_NAMES, refuse_unknown
from tests import test_pages

PEERS = {"KerasHub": ["keras_hub"], "transformers": ["transformers", "torch"]}
NEEDS = re.compile(r"<!-- not run: needs (\w+); tests/test_migration.py runs it -->\n")
ARGUMENT_NAMES = test_pages.ROOT / "docs" / "migrate" / "argument_names.md"
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


def rows_of_table(title):
    """Returns the rows of the table under a heading of the page, by their first cell."""
    section = test_pages.read(ARGUMENT_NAMES).partition(f"## {title}\n")[2].partition("\n## ")[0]
    return dict(re.findall(r"^\| `(\w+)` \| (.+) \|$", section, re.MULTILINE))


def test_the_page_of_argument_names_has_the_tables_of_the_code():
    rows = rows_of_table("What other libraries call it")
    names = {ours: tuple(re.findall(r"`(\w+)`", cell)) for ours, cell in rows.items()}
    assert names == FOREIGN_NAMES
    assert rows_of_table("What a block takes instead") == ELSEWHERE


def test_an_error_says_what_an_argument_of_another_library_is_called_here():
    for ours, names in FOREIGN_NAMES.items():
        for name in names:
            with pytest.raises(ValueError, match=f"^Layer: `{name}` is called `{ours}` here"):
                refuse_unknown("Layer", name, 8)


def test_an_error_says_where_a_block_has_the_number():
    for name, advice in ELSEWHERE.items():
        with pytest.raises(ValueError, match=re.escape(advice)):
            EncoderBlock(num_heads=2, mlp_dim=8, **{name: 8})
