"""Claims about docs/models: a card for every model, whose sizes are those of the code."""

import pathlib
import re
import sys

import pytest

from benchmarks import model_sizes
from keras_transformers.pretrained.folder import FAMILIES

ROOT = pathlib.Path(__file__).parent.parent
CARDS = [
    path for path in sorted(model_sizes.PAGES.glob("*.md"))
    if path.stem not in ("index", "published", "zoo", "SUMMARY")
]  # fmt: skip
PARTS = ["Sizes", "What was checked", "Recipe and results", "Limits", "Licence of the data"]
# What the fast test makes; the slow one makes all.
SOME = [(page, next(iter(model_sizes.variants(page)))) for page in model_sizes.MODELS]
SOME += [("vit", "B"), ("text_encoder", "base"), ("transformer", "base")]


def row(page, name):
    """The cells of a variant in the table of its card."""
    text = (model_sizes.PAGES / f"{page}.md").read_text(encoding="utf-8")
    behind = model_sizes.MODELS[page][2]
    (line,) = (line for line in text.splitlines() if line.startswith(f'| "{name}{behind}" |'))
    return [cell.strip() for cell in line.strip("|").split("|")]


@pytest.mark.parametrize(("page", "name"), SOME)
def test_parameters_are_those_of_the_model(page, name):
    assert row(page, name)[-1] == f"{model_sizes.parameters(page, name):,}"


@pytest.mark.parametrize("page", model_sizes.MODELS)
def test_every_variant_has_its_numbers(page):
    for name, numbers in model_sizes.variants(page).items():
        shown = {model_sizes.shown(numbers[key]) for key in model_sizes.SHOWN if key in numbers}
        assert shown <= set(row(page, name))


def test_published_sizes_are_the_papers():
    """Of GPT-2 124 M, of ViT 86 and 304 M, of Swin 28 and 197 M."""
    found = {("language_model", "small"): 124.4, ("vit", "B"): 86.6, ("vit", "L"): 304.3}
    found |= {("swin", "T"): 28.3, ("swin", "L"): 196.5}
    for (page, name), millions in found.items():
        assert round(int(row(page, name)[-1].replace(",", "")) / 1e6, 1) == millions


@pytest.mark.parametrize("card", CARDS, ids=lambda path: path.stem)
def test_a_card_says_what_one_asks_of_a_model(card):
    text = card.read_text(encoding="utf-8")
    assert re.findall(r"^## (.+)$", text, re.MULTILINE) == PARTS
    assert "**Paper.**" in text and "```python\n" in text
    named = re.findall(r"`((?:tests|benchmarks|recipes)/[\w./]+)`", text)
    named += re.findall(r"`(test_\w+\.py)`", text)
    tests = {path.name for path in (ROOT / "tests").rglob("*.py")}
    assert [name for name in named if not (ROOT / name).exists() and name not in tests] == []
    for name in re.findall(r"python -m recipes\.(\w+)", text):
        assert (ROOT / "recipes" / f"{name}.py").is_file()


def test_every_family_is_on_the_card_of_what_it_becomes():
    for name, family in FAMILIES.items():
        cards = [p for p in CARDS if f"\n- `{name}`: " in p.read_text(encoding="utf-8")]
        titles = {p.read_text(encoding="utf-8").splitlines()[0][2:] for p in cards}
        assert titles == {each.__name__ for each in (family.model, *family.others)}, name


def test_every_card_is_listed():
    for listing in ("SUMMARY.md", "index.md"):
        text = (model_sizes.PAGES / listing).read_text(encoding="utf-8")
        assert [card.name for card in CARDS if f"({card.name})" not in text] == []


@pytest.mark.slow
def test_the_script_would_change_nothing(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["model_sizes", "--check"])
    model_sizes.main()
