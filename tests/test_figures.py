"""Claims about the figures of README.md and docs/: they are those of benchmarks/results."""

import ast
import json
import pathlib
import re
import shutil
import subprocess
import sys

import pytest

from benchmarks import figures, samples

ROOT = pathlib.Path(__file__).parent.parent
# What looks measured and is not, by page ("" is every page): a pattern, and why it is none.
EXCEPTIONS = {
    "": {
        r"\d+ GB (of )?(memory|RAM)|\(\d+ GB\)": "the size of a device",
        r"(Keras|TensorFlow|Python|KerasHub|PyTorch|JAX|timm|CTranslate2|Transformers) [\d.]+": (
            "a version"
        ),
        r"[Ss]ections? [\d.]+\d": "of a paper",
    },
    "docs/concepts/index.md": {r"\| (chapter, )?\d+\.\d+[:,]": "a section"},
    "docs/concepts/masks.md": {"0 times NaN": "arithmetic"},
    "docs/concepts/training.md": {r"\| 0\.[13] \|": "rates of dropout"},
    "docs/how_to/few_labels.md": {"0.75 times": "an option"},
    "docs/how_to/fine_tune.md": {"1 GiB": "a limit in the code"},
    "docs/how_to/litert_and_onnx.md": {"2 GiB": "a limit of the format"},
    "docs/how_to/scale.md": {"32 MiB": "a default", "40 %": "an assumption"},
    "docs/how_to/sentence_pairs.md": {"95 %": "a rule in the code", "10 times": "the same"},
    "docs/how_to/serve.md": {"10,000 times": "an option of the test"},
    "docs/how_to/texts.md": {"[81]0 %": "shares in the code"},
    "docs/how_to/translate_files.md": {"XLIFF 1.2": "a version"},
    "docs/start/install.md": {r"3\.1\d": "versions of Python"},
}

NUMBER = r"(?<![\w.,/-])\d[\d,]*(?:\.\d+)?(?:e-?\d+)?(?: ?± ?[\d.]+)?"
UNITS = (
    r"%|percent|(?:milli|micro)?seconds?|minutes?|hours?|ms|µs|s|[KMGT]i?B|(?:mega|giga)bytes"
    r"|times|x(?! [\d(])|BLEU|chrF\+*|TER|m?AP(?:50|75)?|perplexity|bits a byte|points?"
    r"|[GTM]?FLOPs?(?:/s)?"
    r"|(?:\w+ )?(?:tokens|images|pictures|sentences|texts|pairs|rows|steps)(?:/s| (?:a|per) second)"
)
METRICS = (
    r"BLEU|chrF\+*|TER|m?AP(?:50|75)?|top-[15]|accuracy|F1|perplexity|correlation|error rate"
    r"|calibration|bits a byte|loss"
)
MEASURED = re.compile(
    rf"{NUMBER}[ -]?(?:{UNITS})(?!\w)"
    rf"|(?:{METRICS})(?: (?:of|is|was|at|reaches|by))? (?=\d)[\d.,]+\d"
)
IN_A_TABLE = re.compile(r"(?<![\w.])\d[\d,]*\.\d+(?![\w.])")
COMMENT = re.compile(r"<!--.*?-->", re.S)
ADDRESS = re.compile(r"(?<=\])\([^)\s]*\)|https?://\S+|^\[[^\]]+\]: .*$", re.M)


def unmarked(text, exceptions=()):
    """`[(line, figure)]`: what looks measured and has no marker; `exceptions` are patterns."""

    def blank(match):
        return re.sub(r"[^\n]", " ", match[0])

    kept = (figures.CODE, figures.COPY, figures.TABLE, figures.MARKER, COMMENT, ADDRESS)
    for pattern in (*kept, *exceptions):
        text = re.sub(pattern, blank, text)
    found = []
    for number, line in enumerate(text.splitlines(), 1):
        patterns = [MEASURED, IN_A_TABLE] if line.lstrip().startswith("|") else [MEASURED]
        found += [(number, match[0]) for pattern in patterns for match in pattern.finditer(line)]
    return found


def written_by_hand():
    return {page.relative_to(ROOT).as_posix(): page.read_text("utf-8") for page in figures.pages()}


def test_filling_in_changes_nothing():
    """Every figure of the pages is what the results say, with no marker broken."""
    results = figures.Results()
    for name, page in written_by_hand().items():
        made, errors = figures.filled(page, results, name)
        assert not errors, errors
        assert made == page, f"{name}: run python -m benchmarks.figures"


def other(node):
    """The same result with every value another one."""
    if isinstance(node, dict):
        return {key: other(value) for key, value in node.items()}
    if isinstance(node, list):
        return [other(value) for value in node]
    if isinstance(node, bool | None):
        return node
    return node + "!" if isinstance(node, str) else node * 3 + 1000


def test_changed_results_change_every_figure(tmp_path):
    """No marker shows anything but a result: with all results changed, all of them change."""
    for file in figures.RESULTS.glob("*.json"):
        changed = other(json.loads(file.read_text("utf-8")))
        (tmp_path / file.name).write_text(json.dumps(changed), encoding="utf-8")
    results = figures.Results(tmp_path)
    for name, page in written_by_hand().items():
        made, _ = figures.filled(page, results)
        for before, after in zip(
            figures.MARKER.finditer(page), figures.MARKER.finditer(made), strict=True
        ):
            combined = re.search(r" of | [*/-] (?!>)", before["what"])
            assert combined or before["value"] != after["value"], f"{name}: {before['what']}"


def test_readme_has_whole_sections_and_no_marker_of_a_single_figure(tmp_path):
    page = written_by_hand()["README.md"]
    assert not figures.MARKER.search(page) and not figures.TABLE.search(page)
    sections = [match["value"] for match in figures.COPY.finditer(page)]
    assert len(sections) > 2
    assert not any("<!--" in section for section in sections)
    for file in figures.RESULTS.glob("*.json"):
        changed = other(json.loads(file.read_text("utf-8")))
        (tmp_path / file.name).write_text(json.dumps(changed), encoding="utf-8")
    made, errors = figures.filled(page, figures.Results(tmp_path))
    assert not errors
    after = [match["value"] for match in figures.COPY.finditer(made)]
    assert all(one != two for one, two in zip(sections, after, strict=True))


def test_a_copied_section_has_figures_without_markers_and_links_from_the_top(
    results, tmp_path, monkeypatch
):
    monkeypatch.setattr(figures, "ROOT", tmp_path)
    (tmp_path / "docs").mkdir()
    text = "# A\n\n## Speed\n\nSee [b](b.md), from <!--= one > date -->?<!--/-->.\n\n## C\n"
    (tmp_path / "docs" / "a.md").write_text(text, encoding="utf-8")
    page = "<!--copy docs/a.md > Speed-->\n<!--/copy-->\n"
    made, errors = figures.filled(page, results)
    assert not errors
    assert made.splitlines()[2] == "See [b](docs/b.md), from 2026-11-26."
    assert figures.filled(made, results) == (made, [])
    for what, error in (("docs/b.md > Speed", "no page"), ("docs/a.md > D", "no heading 'D'")):
        _, errors = figures.filled(f"<!--copy {what}-->\n<!--/copy-->\n", results)
        assert len(errors) == 1 and error in errors[0]


def test_one_changed_result_changes_the_page(tmp_path):
    """Of a page with two figures, changing the result of one changes that one."""
    folder = pathlib.Path(shutil.copytree(figures.RESULTS, tmp_path / "results"))
    page = "<!--= decoding > date -->-<!--/--> is before <!--= costs > date -->-<!--/-->"
    page, _ = figures.filled(page, figures.Results(folder))
    result = json.loads((folder / "costs.json").read_text("utf-8")) | {"date": "2036-01-01"}
    (folder / "costs.json").write_text(json.dumps(result), encoding="utf-8")
    made, _ = figures.filled(page, figures.Results(folder))
    assert made.endswith("-->2036-01-01<!--/-->")
    assert made[: made.index(" before")] == page[: page.index(" before")]


@pytest.fixture
def results(tmp_path):
    """A folder of one result."""
    speed = {"a": {"ours": 1234.5, "theirs": 617.25}, "b, 2": {"ours": 2.0, "theirs": 8.0}}
    result = {"date": "2026-11-26", "speed": speed, "seeds": [{"top": 0.5}, {"top": 0.75}]}
    (tmp_path / "one.json").write_text(json.dumps(result), encoding="utf-8")
    return figures.Results(tmp_path)


@pytest.mark.parametrize(
    ("what", "value"),
    [
        ("one > date", "2026-11-26"),
        ("one > speed > a > ours | ,.1f", "1,234.5"),
        ("one > speed > b, 2 > ours | .0f", "2"),
        ("one > seeds > 1 > top | .0%", "75%"),
        ("max of one > seeds > * > top", "0.75"),
        ("mean of one > seeds > * > top | .3f", "0.625"),
        ("spread of one > seeds > * > top | .2f", "0.62 ± 0.18"),
        ("spread of one > speed > b* > ours | .1f", "2.0 (one seed)"),
        ("count of one > seeds", "2"),
        ("one > speed > a > ours / one > speed > a > theirs | .2f", "2.00"),
        ("one > speed > a > theirs / 1000 * 2 | .3f", "1.234"),
    ],
)
def test_what_a_marker_may_say(results, what, value):
    """Keys, positions in lists, aggregates and sums; the same with a row's escaped bars."""
    page = f"It is <!--= {what} -->?<!--/-->.\n\n| a |\n|---|\n| <!--= {what} -->?<!--/--> |\n"
    made, errors = figures.filled(page, results)
    assert not errors
    assert made.count(f"-->{value}<!--/-->") == 2
    row = made.splitlines()[-1]
    assert row.count("|") - row.count("\\|") == 2  # a bar in a row would end its cell
    assert figures.filled(made, results) == (made, [])


def test_a_table_is_made_from_its_declaration(results):
    """Rows are all there are, or those that are named; a value may be missing where it says so."""
    page = """<!--table one > speed
b, 2 = b
| of | ours | ratio | more |
|---|---:|---:|---|
| {} | {ours | .1f} | {ours / theirs | .0%} | {?nothing} |
-->
<!--/table-->
"""
    made, errors = figures.filled(page, results)
    assert not errors
    assert (
        "-->\n\n| of | ours | ratio | more |\n|---|---:|---:|---|\n| b | 2.0 | 25% |  |\n\n" in made
    )
    assert figures.filled(made, results) == (made, [])
    across = page.replace("{?nothing}", "{@ > theirs | .0f}").replace("b, 2 = b\n", "")
    assert "| b, 2 | 2.0 | 25% | 8 |" in figures.filled(across, results)[0]
    every, _ = figures.filled(page.replace("b, 2 = b\n", ""), results)
    assert "| a | 1234.5 | 200% |  |\n| b, 2 | 2.0 |" in every


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("a\nb <!--= two > a -->1<!--/-->", "page.md:2: there is no benchmarks/results/two.json"),
        (
            "b <!--= one > speed > c -->1<!--/-->",
            "page.md:1: 'one > speed > c' has no 'c', only ['a'",
        ),
        ("b <!--= one > seeds > 7 -->1<!--/-->", "has no '7', only ['0', '1']"),
        ("b <!--= one > speed -->1<!--/-->", "'one > speed' is a dict, not a value"),
        ("b <!--= one > date | .1f -->1<!--/-->", "Unknown format code 'f'"),
        (
            "\n- <!--= one > date -->2026-11-26<!--/-->",
            "page.md:2: a marker at the start of a line",
        ),
        ("a\n\nb <!--= one > date -->1", "page.md:3: <!--= ... without the comment that closes it"),
        ("<!--table one > speed\n-->\n<!--/table-->", "needs a head, a line below it and a row"),
    ],
)
def test_what_is_wrong_is_said_with_page_line_and_path(results, text, error):
    made, errors = figures.filled(text, results, "page.md")
    assert made == text
    assert len(errors) == 1
    assert error in errors[0]


def test_a_marker_at_the_start_of_a_line_is_put_behind_the_line_before(results):
    page = "It is of\n  <!--= one > date -->2026-11-26<!--/--> and more.\n"
    joined = "It is of <!--= one > date -->2026-11-26<!--/--> and more.\n"
    assert figures.filled(page, results) == (joined, [])


def test_markers_in_code_are_left_alone(results):
    page = "`<!--= no > a -->1<!--/-->` and\n\n```\nb <!--= no > a -->1<!--/-->\n```\n"
    assert figures.filled(page, results) == (page, [])


def test_samples_stand_at_equal_distances_in_the_test_set(tmp_path):
    metrics = {
        "test_bleu": 8.0,
        "test_chrf": 9.0,
        "seconds_training_and_evaluation": 90,
        "epochs": 2,
    }
    (tmp_path / "metrics.json").write_text(json.dumps(metrics), encoding="utf-8")
    (tmp_path / "config.json").write_text('{"minutes": 30.0, "variant": "tiny"}', encoding="utf-8")
    rows = [f'a{i}\tb{i}\t"c{i}' for i in range(19)]
    text = "\n".join(["source\treference\ttranslation", *rows])
    (tmp_path / "translations.tsv").write_text(text, encoding="utf-8")
    result = samples.samples(tmp_path)
    assert (result["minutes"], result["sentences"]) == (1.5, 19)
    assert result["command"] == "python -m recipes.translation --minutes 30"
    assert [row["source"] for row in result["rows"]] == [f"a{i}" for i in range(0, 16, 2)]
    assert result["rows"][1] == {"source": "a2", "reference": "b2", "translation": '"c2'}


@pytest.mark.parametrize("name", sorted(set(written_by_hand()) - {"CHANGELOG.md"}))
def test_no_page_has_figures_without_markers(name):
    """Whatever looks measured stands in a marker, or is excepted with a reason."""
    exceptions = [*EXCEPTIONS[""], *EXCEPTIONS.get(name, ())]
    found = unmarked((ROOT / name).read_text("utf-8"), exceptions)
    assert not found, f"{name}: put these in markers (see benchmarks/figures.py): {found}"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("It reaches 39.3 BLEU in 10.9 minutes.", ["39.3 BLEU", "10.9 minutes"]),
        ("top-1 of 89.0 and a perplexity of 49.5", ["top-1 of 89.0", "perplexity of 49.5"]),
        (
            "takes 17 and 494 ms, 0.76 times that, 25 %, 25%",
            ["494 ms", "0.76 times", "25 %", "25%"],
        ),
        (
            "8,200 target tokens a second at 473 GFLOP/s",
            ["8,200 target tokens a second", "473 GFLOP/s"],
        ),
        ("2,346 MiB, 0.6 GB", ["2,346 MiB", "0.6 GB"]),
        ("| a | 1.5 | 3 |", ["1.5"]),
        ("an image of 224 pixels, 16 heads, 3+3 layers, chapter 3.5, seed 1, in ten minutes", []),
        ("`--minutes 10` and [5 s](http://a/5 s) at 64 x 64", ["5 s"]),
        ("```\n39.3 BLEU\n```\n<!-- 3 s --> <!--= a > b -->3<!--/--> s", []),
    ],
)
def test_what_looks_measured(text, found):
    assert [number for _, number in unmarked(text)] == found


def test_the_command_says_where_a_page_differs(tmp_path):
    """`--check` ends in an error and names page and line; filling in mends it."""
    for part in ("benchmarks/figures.py", "benchmarks/results/costs.json"):
        (tmp_path / part).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / part, tmp_path / part)
    (tmp_path / "README.md").write_text("a\nis <!--= costs > date -->1<!--/-->\n", "utf-8")

    def run(*options):
        command = [sys.executable, "-m", "benchmarks.figures", *options]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)

    checked = run("--check")
    assert checked.returncode == 1
    assert "README.md: lines [2] differ" in checked.stderr
    assert run().returncode == 0
    assert run("--check").returncode == 0


# Recipe -> what its description says it reaches: a pattern, and the results of its groups.
HEADLINES = {
    "translation": [
        (
            r"([\d.]+) BLEU and ([\d.]+) chrF in ([\d.]+) minutes",
            "recipes > translation > default > {}",
            ["bleu | .1f", "chrf | .1f", "minutes | .1f"],
        ),
        (
            r"; ([\d.]+) and ([\d.]+) with `--positions sinusoidal",
            "recipes > translation > sinusoidal > {}",
            ["bleu", "chrf"],
        ),
    ],
    "recurrent_translation": [
        (
            r"([\d.]+) BLEU and ([\d.]+) chrF on .* in ([\d.]+) minutes",
            "recipes > translation > recurrent > {}",
            ["bleu", "chrf", "minutes"],
        ),
        (
            r"Transformer has ([\d.]+) BLEU, and ([\d.]+) with",
            "recipes > translation > {}",
            ["default > bleu | .1f", "sinusoidal > bleu"],
        ),
    ],
    "vit": [
        (
            r"([\d.]+), ([\d.]+) and ([\d.]+) % top-1 in ([\d.]+) minutes",
            "recipes > images > vit > {}",
            ["top1 > 0", "top1 > 1", "top1 > 2", "minutes"],
        )
    ],
    "swin": [
        (
            r"([\d.]+) % top-1 in ([\d.]+) minutes",
            "recipes > images > swin > {}",
            ["top1", "minutes"],
        )
    ],
    "mae": [
        (
            r"([\d.]+) % top-1 fine-tuned, ([\d.]+) % by the probe, ([\d.]+) % from random",
            "recipes > masked_autoencoder > top1 > {} > mean",
            ["pre-trained, fine-tuned", "pre-trained, linear probe", "random weights"],
        )
    ],
    "picture_text": [
        (
            r"([\d.]+) % right, and ([\d.]+) % with other pictures, after (\d+) minutes",
            "recipes > images > picture_text > {}",
            ["accuracy", "accuracy_other_images", "minutes"],
        )
    ],
    "masked_language_model": [
        (
            r"([\d.]+) % of the hidden tokens .* perplexity ([\d.]+),",
            "recipes > texts > masked_language_model > {}",
            ["hidden_tokens_found_percent", "perplexity_per_token"],
        )
    ],
    "text_classification": [
        (
            r"([\d.]+) \+- ([\d.]+) % of the test .* ([\d.]+) \+- ([\d.]+) % from random",
            "recipes > texts > text_classification > starts > {}",
            [
                "pre-trained > accuracy > mean",
                "pre-trained > accuracy > deviation",
                "random weights > accuracy > mean",
                "random weights > accuracy > deviation",
            ],
        )
    ],
    "language_model": [
        (
            r"([\d.]+) bits a byte, perplexity ([\d,]+) a word",
            "language_modeling > candidates > ours > {}",
            ["bits_per_byte | .2f", "perplexity_per_word | ,.0f"],
        )
    ],
    "mixers": [
        (
            r"`mlp` classifies ([\d.]+) % .* `attention` ([\d.]+) %, `nothing` ([\d.]+) %",
            "mixers > rows > {} > images > mean",
            ["mlp", "attention", "nothing"],
        ),
        (
            r"plays\) ([\d.]+), ([\d.]+) and ([\d.]+) %",
            "mixers > rows > {} > passages > mean",
            ["mlp", "attention", "nothing"],
        ),
    ],
    "detr": [
        (
            r"AP50 ([\d.]+ \+- [\d.]+) on the held-out tiles, ([\d.]+ \+- [\d.]+) on other",
            "spread of detection > runs > recipes.detr > * > {} | .1f",
            ["held_out_ap50", "test_ap50"],
        )
    ],
}


@pytest.mark.parametrize("recipe", HEADLINES)
def test_a_recipe_describes_what_was_measured(recipe):
    """What the description of a recipe, so its --help, says it reaches is in the results."""
    module = ast.parse((ROOT / "recipes" / f"{recipe}.py").read_text("utf-8"))
    description = " ".join(ast.get_docstring(module).split())
    results = figures.Results()
    for pattern, path, values in HEADLINES[recipe]:
        found = re.search(pattern, description)
        assert found, f"recipes/{recipe}.py does not say {pattern!r}"
        said = [each.replace("+-", "±") for each in found.groups()]
        assert said == [results.formatted(path.format(each)) for each in values]
