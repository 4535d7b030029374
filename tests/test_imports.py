"""Claims about who imports whom, and about what must be installed for what."""

import ast
import importlib.util
import os
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parent.parent
PACKAGES = ("keras_transformers", "recipes", "benchmarks", "tests")

# The folders of `layers`, from the lowest: a module imports from its own and from those below it.
LAYER_FOLDERS = ("positions", "attention", "blocks")
# Modules that keep public paths of version 0.2, and what each re-exports of a later part.
PUBLIC_PATHS = {
    "keras_transformers.text": "keras_transformers.localization.glossary",
    "keras_transformers.text.cleaning": "keras_transformers.localization",
    "keras_transformers.text.files": "keras_transformers.localization",
}
# What each part of keras_transformers may import of it, besides itself and `core`. The parts stand
# in the order of the design: each imports only parts above it.
MAY_IMPORT = {
    "core": [],
    "data": [],
    "saving": [],
    "layers": [],
    "generation": ["data", "layers.masks"],
    "detection": ["layers.masks"],
    "training": [
        "data.labels",
        "layers.masks",
        "layers.adapters",
        "layers.base",  # which layers save the adapters in them, and what a block is
        "layers.low_rank",
    ],
    "localization": ["data"],
    "text": ["data"],
    "vision": ["data", "layers.masks"],
    "models": ["layers", "detection"],
    "pretrained": [
        "layers",
        "models",
        "detection",
        "text",
        "vision",
        "generation",
        "saving",
        "training.adapters",
    ],
    "inspection": [],
    "alignment": ["inspection", "text", "models"],
    "visualization": [],
    "distribution": ["layers", "models"],
    "precision": ["layers", "saving"],
    "tasks": [
        "data",
        "saving",
        "layers",
        "generation",
        "detection",
        "training",
        "localization.glossary",
        "text",
        "vision",
        "models",
        "pretrained",
        "alignment",
        "precision",
    ],
    # Public names of tasks.
    "export": ["tasks"],
    "predictors": ["tasks"],
    "fitting": ["tasks"],
    "loading": ["tasks"],
    "__main__": [],
    # Public paths of version 0.2.
    "annotations": [],
    "caching": [],
    "streams": ["data"],
    "shards": ["data"],
    "tables": ["data"],
}
ON_EVERY_BACKEND = tuple(
    f"keras_transformers.{part}"
    for part in (
        "layers",
        "models",
        "generation",
        "detection",
        "training",
        "inspection",
        "precision",
        "saving",
        "data.labels",
    )
)
OF_ONE_BACKEND = ("tensorflow", "tensorflow_text", "tensorflow_datasets", "jax", "torch")
IN_RECIPES_EXTRA = (
    "tensorflow_text",
    "tensorflow_datasets",
    "sentencepiece",
    "tokenizers",
    "huggingface_hub",
    "sacrebleu",
    "sklearn",
    "pycocotools",
    "matplotlib",
    "tyro",
)
SHARED_BY_RECIPES = ("recipes.data", "recipes.lib")

# One step of training on plain arrays; tests run it in an interpreter without TensorFlow.
TRAIN_A_STEP = """
import keras
import numpy as np

from keras_transformers import generation, layers, models, training

model = models.Transformer(31, hidden_dim=14, num_heads=2, mlp_dim=23, num_layers=1)
model.compile("adam", training.SmoothedCrossEntropy(), metrics=[training.MaskedAccuracy()])
ids = np.random.default_rng(0).integers(1, 31, (3, 5))
before = model({"source": ids, "target": ids})
history = model.fit({"source": ids, "target": ids}, ids, epochs=1, verbose=0).history
assert np.isfinite(history["loss"][0])
assert np.any(np.array(model({"source": ids, "target": ids})) != np.array(before))
print(keras.backend.backend(), sys.modules["tensorflow"])
"""


def module_name(path):
    """ROOT/a/b.py -> "a.b", ROOT/a/__init__.py -> "a"."""
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def within(name, *packages):
    """Whether a module is one of the packages or inside one of them."""
    return any(name == package or name.startswith(f"{package}.") for package in packages)


FILES = {module_name(f): f for package in PACKAGES for f in sorted((ROOT / package).rglob("*.py"))}
LIBRARY = [name for name in FILES if within(name, "keras_transformers")]
PARTS = sorted({name.split(".")[1] for name in LIBRARY if "." in name})
LAYERS = [
    name
    for name in LIBRARY
    if within(name, "keras_transformers.layers") and FILES[name].stem != "__init__"
]
PORTABLE = [name for name in LIBRARY if within(name, *ON_EVERY_BACKEND)]
RECIPES = [name for name in FILES if within(name, "recipes")]


def imports(module):
    """Full names of what a module imports, at the top or inside a function.

    `from a import b` counts as "a.b" where that is a module, else as "a".
    """
    path = FILES[module]
    package = module.split(".") if path.name == "__init__.py" else module.split(".")[:-1]
    names = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) + 1 - node.level] if node.level else []
            base = ".".join([*above, node.module] if node.module else above)
            for full in (f"{base}.{alias.name}" for alias in node.names):
                names.add(full if full in FILES or full == "keras.src" else base)
    return names


def run_without(blocked, code, **environment):
    """Runs code where the blocked packages cannot be imported; returns what it printed."""
    block = f"import sys\nsys.modules.update(dict.fromkeys({list(blocked)}))\n"
    result = subprocess.run(
        [sys.executable, "-c", block + code],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, **environment},
    )
    assert result.returncode == 0, result.stderr
    return result.stdout


@pytest.mark.parametrize("module", FILES)
def test_keras_src_is_private(module):
    assert not [name for name in imports(module) if within(name, "keras.src")]


@pytest.mark.parametrize("part", PARTS)
def test_part_has_a_position_in_the_order(part):
    assert part in MAY_IMPORT, f"say in MAY_IMPORT what {part} may import"


def test_parts_import_only_parts_above_them():
    order = list(MAY_IMPORT)
    for part, allowed in MAY_IMPORT.items():
        above = order[: order.index(part)]
        assert [name for name in allowed if name.split(".")[0] not in above] == [], part


@pytest.mark.parametrize("module", [name for name in LIBRARY if "." in name])
def test_imports_between_parts_run_one_way(module):
    part = module.split(".")[1]
    allowed = [f"keras_transformers.{name}" for name in [part, "core", *MAY_IMPORT[part]]]
    ours = [name for name in imports(module) if within(name, *PACKAGES)]
    ours = [name for name in ours if name != PUBLIC_PATHS.get(module)]
    assert [name for name in ours if not within(name, *allowed)] == []


@pytest.mark.parametrize("module", LIBRARY)
def test_library_knows_neither_recipes_nor_benchmarks_nor_tests(module):
    assert not [name for name in imports(module) if within(name, *PACKAGES[1:])]


@pytest.mark.parametrize("module", LAYERS)
def test_imports_between_layers_run_one_way(module):
    def folder(name):
        return LAYER_FOLDERS.index(name.split(".")[2])

    for name in imports(module):
        if within(name, "keras_transformers.layers"):
            assert name in LAYERS, f"import from the module, not from {name}"
            if name.count(".") == module.count(".") == 3:
                assert folder(name) <= folder(module)


def test_modules_import_one_another_without_cycles():
    modules = {name for name in LIBRARY if FILES[name].stem != "__init__"}
    waiting = {module: (imports(module) & modules) - {module} for module in modules}
    while free := [module for module, needs in waiting.items() if not needs & waiting.keys()]:
        for module in free:
            del waiting[module]
    assert not waiting


@pytest.mark.parametrize("module", PORTABLE)
def test_backend_is_reached_through_keras_only(module):
    assert not [name for name in imports(module) if within(name, *OF_ONE_BACKEND)]


@pytest.mark.parametrize("module", RECIPES)
def test_recipes_never_import_one_another(module):
    others = [name for name in imports(module) if within(name, "recipes") and name != module]
    assert [name for name in others if not within(name, *SHARED_BY_RECIPES)] == []


def test_package_imports_without_what_only_recipes_need():
    code = "import keras_transformers\nprint(keras_transformers.__version__)"
    assert run_without(IN_RECIPES_EXTRA, code).strip()


@pytest.mark.skipif(not importlib.util.find_spec("jax"), reason="needs jax")
def test_model_trains_on_jax_without_tensorflow():
    printed = run_without(["tensorflow", *IN_RECIPES_EXTRA], TRAIN_A_STEP, KERAS_BACKEND="jax")
    assert printed.split() == ["jax", "None"]
