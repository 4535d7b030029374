"""Claims about the table of published models in docs: it is the list of the code."""

import json
import pathlib
import re

from benchmarks.families import families
from benchmarks.report import FOLDER
from keras_transformers import pretrained
from keras_transformers.pretrained.folder import FAMILIES

PAGE = pathlib.Path(__file__).parents[2] / "docs" / "models" / "published.md"


def rows():
    """Of each row, what `model_type`s it has and what they become."""
    table = PAGE.read_text(encoding="utf-8").split("| `model_type` |")[1].split("\n\n")[0]
    for line in table.splitlines()[2:]:
        _, kinds, model, *_ = line.split("|")
        yield re.findall(r"`(\w[\w-]*)`", kinds), re.search(r"`models\.(\w+)`", model)[1]


def test_the_table_has_every_family_and_the_class_it_becomes():
    listed = {kind: model for kinds, model in rows() for kind in kinds}
    assert listed == {name: family.model.__name__ for name, family in FAMILIES.items()}


def test_the_counts_of_the_model_zoo_are_those_of_the_golden_files():
    stored = json.loads((FOLDER / "families.json").read_text(encoding="utf-8"))["families"]
    assert stored == families(), "run python -m benchmarks.families"


def test_the_docstring_of_load_has_every_family():
    said = re.sub(r"[^a-z0-9]", "", pretrained.load.__doc__.lower())
    others = {
        "xlm-roberta": "xlmr",
        "m2m_100": "m2m100",
        "qwen2": "qwen2and3",
        "qwen3": "qwen2and3",
    }
    others |= {"vit_mae": "maskedautoencoders", "dinov2_with_registers": "dinov2"}
    for name in FAMILIES:
        assert re.sub(r"[^a-z0-9]", "", others.get(name, name)) in said, name
