"""Fills the tables of sizes in docs/models in: parameters are counted, nobody types them.

    python -m benchmarks.model_sizes          # fills in
    python -m benchmarks.model_sizes --check  # says which page differs

A model is built without values for its weights, so that the largest costs no memory. What is
trained is counted; statistics of frozen norms are not.
"""

import importlib
import math
import pathlib
import re
import sys

import keras

from keras_transformers import models
from keras_transformers.pretrained.folder import FAMILIES

PAGES = pathlib.Path(__file__).parent.parent / "docs" / "models"
BLOCK = re.compile(r"(<!--sizes-->\n).*?(<!--/sizes-->)", re.S)
FAMILY_BLOCK = re.compile(r"(<!--families-->\n).*?(<!--/families-->)", re.S)
IDS = (None, None)
PAIR = {"source": IDS, "target": IDS}
# Page -> class; module of its VARIANTS; what stands behind a variant's name; arguments of
# `from_variant`; what it is built with.
MODELS = {
    "transformer": ("Transformer", "transformer", "", (37000,), PAIR),
    "language_model": ("LanguageModel", "language_model", "", (50257,), IDS),
    "text_encoder": ("TextEncoder", "text_encoder", "", (30522,), IDS),
    "vit": ("ViT", "vit", "/16", (1000,), (None, 224, 224, 3)),
    "swin": ("Swin", "swin", "", (1000,), (None, 224, 224, 3)),
    "pvt": ("PVT", "pvt", "", (1000,), (None, 224, 224, 3)),
    "mvit": ("MViT", "mvit", "", (1000,), (None, 224, 224, 3)),
    "mae": ("MAE", "vit", "/16", (224,), (None, 224, 224, 3)),
    "detr": ("DETR", "detr", "", (91,), (None, 224, 224, 3)),
    "deformable_detr": ("DeformableDETR", "deformable_detr", "", (91,), (None, 224, 224, 3)),
    "resnet": ("ResNet", "resnet", "", (1000,), (None, 224, 224, 3)),
}
SHOWN = ("backbone", "hidden_dim", "hidden_dims", "num_heads", "mlp_dim", "num_layers")
SHOWN += ("num_encoder_layers", "num_decoder_layers", "num_queries")


def variants(page):
    """Name -> published numbers of a page's model."""
    module = importlib.import_module(f"keras_transformers.models.{MODELS[page][1]}")
    return module.VARIANTS


def parameters(page, name):
    """How many numbers a variant learns."""
    title, _, behind, given, shape = MODELS[page]
    with keras.StatelessScope(initialize_variables=False):
        model = getattr(models, title).from_variant(f"{name}{behind}", *given)
        if not model.built:
            model.build(shape)
        return sum(math.prod(weight.shape) for weight in model.trainable_weights)


def shown(value):
    """A number, or one for each stage."""
    return ", ".join(map(str, value)) if isinstance(value, (tuple, list)) else str(value)


def table(page):
    """The table of a page: a row for each variant."""
    found = variants(page)
    columns = [key for key in SHOWN if any(key in numbers for numbers in found.values())]
    lines = [f"| name | {' | '.join(f'`{key}`' for key in columns)} | parameters |"]
    lines.append(f"|---|{'---|' * len(columns)}---:|")
    for name, numbers in found.items():
        cells = [shown(numbers[key]) if key in numbers else "" for key in columns]
        row = [f'"{name}{MODELS[page][2]}"', *cells, f"{parameters(page, name):,}"]
        lines.append(f"| {' | '.join(row)} |")
    return "\n".join(lines) + "\n"


def families(title):
    """The families of published weights that become a class of ours, as a list."""
    lines = []
    for name, family in sorted(FAMILIES.items()):
        if title in {each.__name__ for each in (family.model, *family.others)}:
            classes = ", ".join(f"`{each}`" for each in family.architectures)
            lines.append(f"- `{name}`: {classes}\n")
    return "".join(lines)


def filled(path):
    """A page as it should be."""
    text = path.read_text(encoding="utf-8")
    if path.stem in MODELS:
        text = BLOCK.sub(lambda found: found[1] + table(path.stem) + found[2], text)
    if FAMILY_BLOCK.search(text):
        title = re.search(r"^# (\w+)", text)[1]
        text = FAMILY_BLOCK.sub(lambda found: found[1] + families(title) + found[2], text)
    return text


def main():
    """Fills in, or says what differs."""
    differing = []
    for path in sorted(PAGES.glob("*.md")):
        text = filled(path)
        if text != path.read_text(encoding="utf-8"):
            differing.append(path.name)
            if "--check" not in sys.argv:
                path.write_text(text, encoding="utf-8")
    print(", ".join(differing) or "Every page is as it should be.")
    if "--check" in sys.argv and differing:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
