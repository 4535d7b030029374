"""Claims about the site: it builds in silence, is complete, and asks for nothing outside."""

import collections
import html.parser
import importlib.util
import os
import pathlib
import re
import shutil
import subprocess
import sys
import time
import urllib.parse

import pytest

pytestmark = pytest.mark.slow  # the whole site is built
pytest.importorskip("mkdocs")
pytest.importorskip("material")
pytest.importorskip("mkdocstrings")
pytest.importorskip("latex2mathml")

ROOT = pathlib.Path(__file__).parent.parent
SOURCE = re.compile(r'<details class="mkdocstrings-source">.*?</details>', re.DOTALL)
QUESTIONS = {  # words of a reader: pages, of which one must be among the first three results
    "fine-tune": ["how_to/fine_tune"],
    "csv": ["how_to/fine_tune", "how_to/texts"],
    "mixed precision": ["how_to/memory"],
    "custom dataset": ["how_to/fine_tune"],
    "load pretrained": ["models/published"],
    "save model": ["how_to/export"],
    "export onnx": ["how_to/litert_and_onnx"],
    "tensorflow serving": ["how_to/serve"],
    "beam search": ["concepts/decoding", "how_to/decode"],
    "lora": ["how_to/adapters"],
    "resume training": ["how_to/resume"],
    "attention mask": ["concepts/masks"],
    "learning rate": ["concepts/training"],
    "multiple gpus": ["how_to/devices"],
    "tokenizer": ["how_to/tokenizers"],
    "image classification": ["how_to/pictures"],
    "object detection": ["how_to/boxes"],
    "positional encoding": ["concepts/positions"],
    "install": ["start/install"],
    "hugging face": ["migrate/hugging_face"],
    "out of memory": ["how_to/memory"],
    "demo": ["how_to/demo"],
    "tensorboard": ["how_to/watch_and_search"],
    "hyperparameter search": ["how_to/watch_and_search"],
    "text classification": ["how_to/texts"],
    "named entity recognition": ["how_to/texts"],
    "translate docx": ["how_to/translate_files"],
    "bleu": ["how_to/evaluate"],
    "knowledge distillation": ["how_to/distill"],
    "EncoderBlock": ["reference/layers/EncoderBlock"],
}
ASK = """
const box = document.querySelector(".md-search__input");
box.value = arguments[0];
box.dispatchEvent(new KeyboardEvent("keyup", {bubbles: true}));
"""
ANSWERS = """
return [...document.querySelectorAll(".md-search-result__item > .md-search-result__link")]
    .map(link => link.href);
"""
HEIGHTS = """
return [...document.querySelectorAll(arguments[0])].map(element => {
    const sides = [element, ...element.children].map(child => child.getBoundingClientRect());
    return sides.map(side => [side.top, side.bottom]);
});
"""
FONTS = """<?xml version="1.0"?>
<fontconfig><dir>{folder}/fonts</dir><cachedir>{folder}/cache</cachedir></fontconfig>
"""
LOADED = {"script": "src", "img": "src", "iframe": "src", "source": "src", "video": "src"}


class Page(html.parser.HTMLParser):
    """What a page names: ids, headings of the reference, links, and what a browser fetches."""

    def __init__(self, path):
        super().__init__()
        self.ids, self.documented, self.links, self.loaded = set(), [], [], []
        self.feed(SOURCE.sub("", path.read_text(encoding="utf-8")))

    def handle_starttag(self, tag, attributes):
        given = dict(attributes)
        if "id" in given:
            self.ids.add(given["id"])
            if re.fullmatch("h[1-3]", tag) and "doc-heading" in given.get("class", ""):
                self.documented.append(given["id"])
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        if tag in LOADED and LOADED[tag] in given:
            self.loaded.append(given[LOADED[tag]])
        if tag == "link" and "href" in given:
            self.loaded.append(given["href"])


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The built site's folder; neither TensorFlow nor Keras can be imported while it is built."""
    folder = tmp_path_factory.mktemp("site")
    for name in ("tensorflow", "keras"):
        (folder / f"{name}.py").write_text("raise ImportError('the sources are read')")
    quiet = {"NO_MKDOCS_2_WARNING": "1", "DISABLE_MKDOCS_2_WARNING": "true"}
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "-d", folder / "out"]
    built = subprocess.run(
        command,
        cwd=ROOT,
        env={**os.environ, **quiet, "PYTHONPATH": str(folder)},
        capture_output=True,
        text=True,
    )
    assert built.stdout + built.stderr == "" and built.returncode == 0
    return folder / "out"


@pytest.fixture(scope="module")
def pages(site):
    return {path: Page(path) for path in sorted(site.rglob("*.html"))}


@pytest.fixture(scope="module")
def hooks():
    """The modules in docs/hooks, by name."""

    def loaded(path):
        spec = importlib.util.spec_from_file_location(f"hook_{path.stem}", path)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

    return {path.stem: loaded(path) for path in (ROOT / "docs" / "hooks").glob("*.py")}


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    """A browser on a machine whose only font is one of text."""
    pytest.importorskip("selenium")
    matplotlib = pytest.importorskip("matplotlib")
    from tests.recipes import chromium

    if not (chromium.BROWSER and chromium.DRIVER):
        pytest.skip("chromium and chromium-driver (of Debian) are missing")
    folder = tmp_path_factory.mktemp("fonts")
    (folder / "fonts").mkdir()
    text_font = pathlib.Path(matplotlib.get_data_path()) / "fonts" / "ttf" / "DejaVuSans.ttf"
    shutil.copy(text_font, folder / "fonts")
    (folder / "fonts.conf").write_text(FONTS.format(folder=folder))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FONTCONFIG_FILE", str(folder / "fonts.conf"))
        started = chromium.start()
    yield started
    started.quit()


def settled(read, seconds=20):
    """What `read` gives as soon as it gives something twice in a row; its last answer otherwise."""
    before = None
    for _ in range(4 * seconds):
        now = read()
        if now and now == before:
            return now
        before = now
        time.sleep(0.25)
    return before


def test_readers_find_the_page_among_the_first_three(site, browser):
    browser.get((site / "index.html").as_uri())
    browser.execute_script("document.querySelector('[data-md-toggle=search]').click()")
    missed = {}
    for question, pages in QUESTIONS.items():
        browser.execute_script(ASK, "")
        settled(lambda: [] if browser.execute_script(ANSWERS) else ["empty"])
        browser.execute_script(ASK, question)
        links = settled(lambda: browser.execute_script(ANSWERS))
        found = [link.removeprefix(f"{site.as_uri()}/").partition(".html")[0] for link in links]
        first = list(dict.fromkeys(found))[:3]
        if not set(pages) & set(first):
            missed[question] = first
    assert missed == {}


def test_equations_need_no_font_of_the_system(site, browser):
    fonts = "return [...document.fonts].filter(font => font.status == 'loaded').map(f => f.family)"
    browser.get((site / "concepts" / "attention.html").as_uri())
    assert settled(lambda: browser.execute_script(fonts)) == ["STIX Two Math"]
    fraction = ".equation mrow:has(> mo[stretchy=true]):has(> mfrac)"
    _, opening, inside, closing = browser.execute_script(HEIGHTS, fraction)[0]
    for bracket in (opening, closing):  # as high as the fraction between them
        assert bracket[0] <= inside[0] + 3 and bracket[1] >= inside[1] - 3
    browser.get((site / "concepts" / "detr.html").as_uri())
    settled(lambda: browser.execute_script(fonts))
    sums = browser.execute_script(HEIGHTS, ".equation munderover")
    assert sums
    for _, sign, below, above in sums:
        assert above[1] <= sign[0] + 1 and sign[1] <= below[0] + 1


def test_the_font_has_its_licence():
    assert "SIL OPEN FONT LICENSE" in (ROOT / "docs/assets/stix-two-math.LICENSE").read_text()
    assert "docs/assets/stix-two-math.LICENSE" in (ROOT / "NOTICE").read_text()


def test_the_table_of_equations_is_linked_to_the_sources(site, pages):
    text = (site / "concepts" / "index.html").read_text(encoding="utf-8")
    rows = re.findall(r"<tr>\s*<td>.*?</tr>", text, re.DOTALL)
    assert len(rows) > 80
    for row in rows:
        *_, symbols, files = re.findall(r"<td>(.*?)</td>", row, re.DOTALL)
        for cell in (symbols, files):
            assert (
                cell.count("<code>")
                == len(re.findall(r'<a href="../source/[^"]*"><code>', cell))
                > 0
            )


def test_a_model_runs_the_code_that_the_table_names():
    """The rows of the Transformer's paper about the forward pass, against a call of the model."""
    import numpy as np

    from keras_transformers.models import Transformer

    table = (ROOT / "docs" / "concepts" / "index.md").read_text(encoding="utf-8")
    table = table.partition("## Vaswani")[2].partition("\n## ")[0].partition("| table 1,")[0]
    named = set()
    for row in re.findall(r"^\| .*\| .*\| (.*) \| (.*\.py`) \|$", table, re.MULTILINE):
        named |= set(re.findall(r"`([\w.]+)`", row[0]))
    model = Transformer.from_variant("tiny", 50, num_layers=1)
    inputs = {"source": np.array([[3, 4, 5, 0]]), "target": np.array([[2, 6, 7]])}
    model(inputs)
    run = set()

    def enter(frame, event, _):
        if event == "call":
            run.add(frame.f_code.co_qualname)

    sys.setprofile(enter)
    try:
        model(inputs)
    finally:
        sys.setprofile(None)
    assert named - run - {name.rpartition(".")[0] for name in run} == set()


def test_every_public_name_stands_in_the_reference_once(pages, hooks):
    found = collections.Counter(name for page in pages.values() for name in page.documented)
    expected = set()
    for package in hooks["reference"].PAGES:
        module = importlib.import_module(f"keras_transformers.{package}")
        names = getattr(module, "__all__", None) or [
            name
            for name, value in vars(module).items()
            if not name.startswith("_") and getattr(value, "__module__", "") == module.__name__
        ]
        expected |= {f"{module.__name__}.{name}" for name in names}
    documented = {
        name
        for name in found
        if name.rpartition(".")[0] in {m.rpartition(".")[0] for m in expected}
    }
    assert documented == expected
    assert [name for name in expected if found[name] != 1] == []
    assert max(len(expected & set(page.documented)) for page in pages.values()) == 1  # on a page


def test_lists_of_pages_are_no_pages(site):
    assert list(site.rglob("SUMMARY*")) == []


def test_every_package_with_public_names_has_a_page(hooks):
    packages = {
        ".".join(path.relative_to(ROOT / "keras_transformers").parent.parts)
        for path in (ROOT / "keras_transformers").rglob("__init__.py")
        if "\n__all__" in path.read_text(encoding="utf-8")
    }
    assert packages - {""} <= hooks["reference"].PAGES.keys()


def test_links_lead_to_something_on_the_site(site, pages):
    broken = []
    for path, page in pages.items():
        if path.name == "404.html":
            continue  # its links begin at the root of a server
        for link in page.links:
            url = urllib.parse.urlsplit(link)
            if url.scheme or url.netloc:
                continue
            target = (path.parent / urllib.parse.unquote(url.path)).resolve() if url.path else path
            if target.is_dir():
                target /= "index.html"
            anchor = urllib.parse.unquote(url.fragment)
            there = target in pages and (not anchor or anchor in pages[target].ids)
            if not (there or target.exists() and target not in pages):
                broken.append(f"{path.relative_to(site)}: {link}")
    assert broken == []


def test_no_page_asks_for_anything_outside(site, pages):
    outside = [
        f"{path.relative_to(site)}: {address}"
        for path, page in pages.items()
        for address in page.loaded
        if re.match(r"(https?:)?//", address)
    ]
    styles = [
        f"{path.relative_to(site)}: {address}"
        for path in site.rglob("*.css")
        for address in re.findall(r"url\([\"']?(https?://[^)]*)|@import[^;]*//", path.read_text())
    ]
    assert outside + styles == []


def converted(hooks, text):
    import markdown

    page = type("Page", (), {"file": type("File", (), {"src_uri": "page.md"})})
    extensions = ["pymdownx.arithmatex", "pymdownx.superfences"]
    options = {"pymdownx.arithmatex": {"generic": True}}
    content = markdown.markdown(text, extensions=extensions, extension_configs=options)
    return hooks["equations"].on_page_content(content, page=page)


@pytest.mark.parametrize(
    ("latex", "expected"),
    [
        (r"m \exp(s)", r"<mi>m</mi><mspace[^>]*><mi>exp</mi><mo"),
        (r"\log p", r"<mi>log</mi><mspace[^>]*><mi>p</mi>"),
        (r"x = -\infty", r'<mo form="prefix"[^>]*>&#x02212;</mo><mi>&#x0221E;</mi>'),
        (r"|h| - |a|", r'<mi>h</mi><mo stretchy="false" lspace="0" rspace="0">&#x0007C;'),
        (r"\left| \frac{x}{y} \right|", r'<mo stretchy="true"[^>]*>&#x0007C;'),
        (r"u \sim U", "<mo>&#x0223C;</mo>"),
    ],
)
def test_equations_are_spaced_as_in_a_paper(hooks, latex, expected):
    assert re.search(expected, hooks["equations"].mathml(latex, "inline"))


def test_equations_become_mathml(hooks):
    inline = converted(hooks, r"A score $\frac{q k^\top}{\sqrt{d_k}}$ of two.")
    assert re.search(r'<math[^>]*display="inline".*<mfrac>.*<msqrt>', inline)
    block = converted(hooks, "Before.\n\n$$\nx_i = \\sum_j a_{ij} v_j\n$$\n\nAfter.")
    assert re.search(r'<math[^>]*display="block"', block)


@pytest.mark.parametrize(
    "text", ["`$x$ or $$x$$`", "```\n$x$\n\n$$\nx\n$$\n```", "    $x$", "5 $ and 6 $ or $ 7"]
)
def test_code_and_prices_are_no_equations(hooks, text):
    found = converted(hooks, text)
    assert "<math" not in found and found.count("$") == text.count("$")


@pytest.mark.parametrize("latex", [r"\unheardof{x}", r"\frac{1", r"\begin{pmatrix} 1"])
def test_bad_equations_are_told(hooks, latex, caplog):
    converted(hooks, f"${latex}$")
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "page.md" in caplog.text and latex in caplog.text


def test_rooms_of_the_map_stand_above_what_they_import(hooks):
    imports = {room: below for room, (_, below) in hooks["house"].rooms(ROOT).items()}
    floors = hooks["house"].floors(imports)
    height = {room: number for number, floor in enumerate(floors) for room in floor}
    assert height.keys() == imports.keys()
    assert all(height[low] < height[room] for room, below in imports.items() for low in below)
    assert height["layers"] < height["models"] < height["export"] < height["loading"]
    with pytest.raises(ValueError, match="'a', 'b'"):
        hooks["house"].floors({"a": {"b"}, "b": {"a"}, "c": set()})


def test_each_result_has_a_page_with_its_command(site):
    for result in (ROOT / "benchmarks" / "results").glob("*.json"):
        text = (site / "benchmarks" / "results" / f"{result.stem}.html").read_text(encoding="utf-8")
        assert "<table>" in text, result
    text = (site / "benchmarks" / "results" / "decoding.html").read_text(encoding="utf-8")
    assert "python -m benchmarks.decoding" in re.sub("<[^>]*>", "", text)
