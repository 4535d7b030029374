"""Claims about README and docs: code runs page by page, links hold, commands have their options.

A page begins with what its code asks for, in comments that nobody sees: `<!-- slow: why -->`, and
`<!-- needs: runs/translation runs/vit -->`, the folders of `PREPARED` that must be there. Another
file of tests that runs a page itself is named there, too: `<!-- run by tests/FILE -->`.
"""

import contextlib
import importlib
import io
import multiprocessing
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import traceback
import unicodedata

import keras
import pytest

from tests.test_examples import ON_TENSORFLOW, python_blocks

ROOT = pathlib.Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
# Imported once; the process of each page begins with them.
PRELOADED = ["tests.preloaded", "tests.test_pages"] if ON_TENSORFLOW else ["tests.test_pages"]


def name_of(page):
    return page.relative_to(ROOT).as_posix()


def read(page):
    return page.read_text(encoding="utf-8")


def prepare_translation(folder):
    from tests.recipes import tiny_folders

    tiny_folders.translator(folder)


def prepare_vit(folder):
    from tests.recipes import tiny_folders

    tiny_folders.image_classifier(folder)
    keras.utils.save_img(folder / "example.png", keras.ops.ones((20, 24, 3)) * 100, scale=False)


PREPARED = {"runs/translation": prepare_translation, "runs/vit": prepare_vit}


def run_page(page, text=None):
    """Runs the Python blocks of a page in order, in this folder; returns what they have named."""
    text = read(page) if text is None else text
    for needed in re.findall(r"^<!-- needs: ([^>]+) -->", text, re.MULTILINE):
        for name in needed.split():
            pathlib.Path(name).mkdir(parents=True)
            PREPARED[name](pathlib.Path(name))
    named = {"__name__": page.stem}
    for line, code in python_blocks(text):
        # A few steps are not worth the compiling; XLA is every layer's contract.
        code = code.replace("jit_compile=True", "jit_compile=False")
        # One length, to trace less.
        code = re.sub(r"source_lengths=\((\d+), \d+\)", r"source_lengths=(\1,)", code)
        # Empty lines in front, so that an error names the line of the page.
        exec(compile("\n" * line + code, page, "exec"), named)
    return named


def run_alone(function, page, folder):
    """Runs `function(page)` in `folder`, and leaves what it says beside it; of a new process."""
    os.chdir(folder)
    keras.utils.set_random_seed(1234)
    said = io.StringIO()
    try:
        with contextlib.redirect_stdout(said):
            function(page)
    except BaseException:
        (folder / "error.txt").write_text(traceback.format_exc(), encoding="utf-8")
        sys.exit(1)


def in_own_process(function, page, folder):
    """Runs `function(page)` in a process of its own, with whose end its memory is free again.

    Where there is a fork server it has imported what all of them need.
    """
    forked = "forkserver" in multiprocessing.get_all_start_methods()
    context = multiprocessing.get_context("forkserver" if forked else "spawn")
    if forked:
        context.set_forkserver_preload(PRELOADED)
    process = context.Process(target=run_alone, args=(function, page, folder))
    process.start()
    process.join()
    error = folder / "error.txt"
    assert process.exitcode == 0, error.read_text("utf-8") if error.exists() else process.exitcode


def with_code():
    """The pages with Python that is run, the slow ones marked so."""
    for page in PAGES:
        text = read(page)
        if any(python_blocks(text)) and not re.search(r"^<!-- run by tests/\S+ -->", text, re.M):
            slow = [pytest.mark.slow] if re.search(r"^<!-- slow: [^>]+ -->", text, re.M) else []
            yield pytest.param(page, id=name_of(page), marks=slow)


@pytest.mark.skipif(not ON_TENSORFLOW, reason="the pages are about the TensorFlow backend")
@pytest.mark.parametrize("page", with_code())
def test_python_blocks_of_a_page_run_in_order(page, tmp_path):
    in_own_process(run_page, page, tmp_path)


def blocks(page, language):
    """The blocks of a language, those that are not run included."""
    return re.findall(rf"^```{language}\n(.*?)^```", read(page), re.MULTILINE | re.DOTALL)


def lines_of_shell(page):
    """The words of each command on a page."""
    for block in blocks(page, "bash"):
        for line in block.replace("\\\n", " ").splitlines():
            for command in line.split(" && "):
                words = shlex.split(command, comments=True)
                while words and re.fullmatch(r"[A-Z_]+=\S*", words[0]):
                    words = words[1:]
                if words:
                    yield words


def commands_of_recipes(page):
    """Module and arguments of each command of a recipe on a page."""
    for words in lines_of_shell(page):
        if words[:2] == ["python", "-m"] and words[2].startswith("recipes."):
            yield words[2], words[3:]
        elif words[0] == "keras-transformers" and len(words) > 1:
            yield f"recipes.{words[1]}", words[2:]


@pytest.mark.skipif(not shutil.which("bash"), reason="needs bash")
@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_shell_commands_are_complete(page):
    for block in blocks(page, "bash"):
        result = subprocess.run(["bash", "-n"], input=block, capture_output=True, text=True)
        assert result.returncode == 0, block + result.stderr


@pytest.mark.skipif(not ON_TENSORFLOW, reason="recipes score and export on TensorFlow")
@pytest.mark.parametrize("page", [p for p in PAGES if any(commands_of_recipes(p))], ids=name_of)
def test_options_of_the_recipes_are_known(page):
    import tyro

    from recipes.lib.options import FLAT, join_repeated

    for module, arguments in commands_of_recipes(page):
        if not {"--help", "--help-all"} & {*arguments}:
            config = importlib.import_module(module).Config
            tyro.cli(config, args=join_repeated(arguments, config), config=FLAT)


def anchors(page):
    """Those that headings of a page have on the site."""
    text = re.sub(r"^```.*?^```", "", read(page), flags=re.MULTILINE | re.DOTALL)
    for heading in re.findall(r"^#+ (.+)$", text, re.MULTILINE):
        plain = unicodedata.normalize("NFKD", heading).encode("ascii", "ignore").decode()
        yield re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", plain).strip().lower())


def links(page):
    text = re.sub(r"^```.*?^```", "", read(page), flags=re.MULTILINE | re.DOTALL)
    return re.findall(r"\]\(([^)\s]+)\)", text)


def made_by_the_site(path):
    """Whether a page is made of a result, a notebook, a docstring or a file at the top."""
    made = path.resolve().relative_to(ROOT / "docs")
    if made.parts[:2] == ("benchmarks", "results"):
        return made.suffix == "" or (ROOT / made).with_suffix(".json").exists()
    if made.parts[0] == "notebooks":
        return (ROOT / made).with_suffix(".ipynb").exists()
    return made.parts[0] in ("reference", "changelog.md", "contributing.md")


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_lead_somewhere(page):
    for target in links(page):
        if not re.match(r"https?:|mailto:", target):
            path, _, anchor = target.partition("#")
            found = page.parent / path if path else page
            assert found.exists() or made_by_the_site(found), target
            assert not anchor or anchor in anchors(found), target
