"""Claims about docstrings: every example runs, and every public name has one."""

import doctest
import importlib
import pathlib
import re

import keras
import pytest

from tests.memory import release_graphs

ROOT = pathlib.Path(__file__).parent.parent
ON_TENSORFLOW = keras.backend.backend() == "tensorflow"
ON_EVERY_BACKEND = (
    "layers",
    "models",
    "generation",
    "detection",
    "training",
    "inspection",
    "precision",
    "saving",
    "distribution",
)
DOCUMENTED = ["layers", "models", "generation", "detection", "training", "saving", "distribution"]
DOCUMENTED += (
    ["text", "vision", "pretrained", "export", "predictors", "alignment"] if ON_TENSORFLOW else []
)
DOCUMENTED += ["loading", "fitting", "shards", "tables"] if ON_TENSORFLOW else []


# Each of these exports or trains a model for its example, and has tests of its own. The examples of
# `export.translation`, `export.images` and `export.text_classifier` run always.
SLOW_EXAMPLES = {
    f"keras_transformers.{module}"
    for module in (
        "export.detector",
        "export.functions",
        "export.functions_of_images",
        "export.mask_filler",
        "export.segmenter",
        "export.question_answerer",
        "export.text_generator",
        "export.zero_shot",
        "fitting.confidence",
        "generation.speculative",
        "models.mae",
        "export.text_tagger",
        "export.translation",
        "generation.generate",
        "training.adapters",
        "training.linear_cross_entropy",
    )
}


def modules_with_examples():
    """Yields the names of the modules whose examples this backend can run, as parameters."""
    for path in sorted((ROOT / "keras_transformers").rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        if ON_TENSORFLOW or parts[1] in ON_EVERY_BACKEND:
            if ">>>" in path.read_text(encoding="utf-8"):
                name = ".".join(parts).removesuffix(".__init__")
                marks = [pytest.mark.slow] if name in SLOW_EXAMPLES else []
                yield pytest.param(name, marks=marks)


def python_blocks(text):
    """`(line, code)` of each Python block of a Markdown text, but those marked "not run"."""
    for block in re.finditer(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
        before = text[: block.start()]
        if not re.search(r"<!-- not run: [^>]+ -->\s*\Z", before):
            yield before.count("\n") + 1, block[1]


@pytest.fixture
def empty_folder(tmp_path, monkeypatch):
    """Examples write here, and leave the precision of later tests alone."""
    monkeypatch.chdir(tmp_path)
    policy = keras.config.dtype_policy()
    yield tmp_path
    keras.config.set_dtype_policy(policy)
    release_graphs()


@pytest.mark.parametrize("module", modules_with_examples())
def test_examples_of_docstrings_give_what_they_show(module, empty_folder):
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    runner = doctest.DocTestRunner(verbose=False, optionflags=flags)  # not as sys.argv has -v
    failures = []
    for example in doctest.DocTestFinder().find(importlib.import_module(module)):
        runner.run(example, out=failures.append)
    assert not failures, "".join(failures)


@pytest.mark.parametrize("package", DOCUMENTED)
def test_every_public_name_has_an_example(package):
    module = importlib.import_module(f"keras_transformers.{package}")
    public = [name for name in module.__all__ if callable(getattr(module, name))]
    texts = {name: getattr(module, name).__doc__ or "" for name in public}
    assert [name for name, text in texts.items() if not re.search(r"^ *Example", text, re.M)] == []


def test_blocks_marked_as_not_run_are_left_out():
    texts = ["<!-- not run: trains for an hour -->\n", "", "<!-- a remark -->\n\n"]
    markdown = "".join(f"text\n{text}```python\n{i} / 0\n```\n" for i, text in enumerate(texts))
    assert [code for _, code in python_blocks(markdown)] == ["1 / 0\n", "2 / 0\n"]
    lines = markdown.splitlines()
    assert all(lines[line - 1] == "```python" for line, _ in python_blocks(markdown))
