"""Claims about the site: it builds in silence, is complete, and asks for nothing outside."""

import collections
import html.parser
import importlib.util
import os
import pathlib
import re
import subprocess
import sys
import urllib.parse

import pytest

pytestmark = pytest.mark.slow  # the whole site is built
pytest.importorskip("mkdocs")
pytest.importorskip("material")
pytest.importorskip("mkdocstrings")
pytest.importorskip("latex2mathml")

ROOT = pathlib.Path(__file__).parent.parent
SOURCE = re.compile(r'<details class="mkdocstrings-source">.*?</details>', re.DOTALL)
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
            if re.fullmatch("h[23]", tag) and "doc-heading" in given.get("class", ""):
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
