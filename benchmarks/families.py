"""Counts what the tests compare of each family of published weights, for the page on the model zoo.

    python -m benchmarks.families
    python -m benchmarks.figures

Reads the golden files of `tests/golden`, which hold what the published code computed.
"""

import json
import pathlib

import numpy as np

from benchmarks.report import FOLDER, heading
from keras_transformers.pretrained.folder import FAMILIES

GOLDEN = pathlib.Path(__file__).parent.parent / "tests" / "golden"


def families():
    """Model type -> row of counts, for every family."""
    rows = {name: _row(family.model.__name__) for name, family in FAMILIES.items()}
    adapted = {path.stem for path in (GOLDEN / "adapters").glob("*.npz")}
    for path in sorted((GOLDEN / "pretrained").glob("*.npz")):
        with np.load(path) as golden:
            config = json.loads(str(golden["config"]))
            row = rows[config["model_type"]]
            row["class_names"] = sorted({*row["class_names"], *config["architectures"]})
            row["classes"] = len(row["class_names"])
            row["models"] += 1
            row["losses"] += "loss" in golden
            row["tokens"] += "beam" in golden
            row["adapters"] += path.stem in adapted
    for path in (GOLDEN / "pretrained" / "large").glob("*.npz"):
        with np.load(path) as golden:
            rows[json.loads(str(golden["config"]))["model_type"]]["published_size"] = "yes"
    return rows


def _row(model):
    counts = dict.fromkeys(("classes", "models", "losses", "tokens", "adapters"), 0)
    return {"model": model, "class_names": [], **counts, "published_size": ""}


if __name__ == "__main__":
    result = {**heading("keras", "tensorflow", "torch", "transformers"), "families": families()}
    text = json.dumps(result, indent=2, ensure_ascii=False)
    (FOLDER / "families.json").write_text(f"{text}\n", encoding="utf-8")
