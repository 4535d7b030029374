"""Fills the figures of README.md and docs/ in from `benchmarks/results`: nobody types one twice.

    python -m benchmarks.figures          # fills in
    python -m benchmarks.figures --check  # says what differs

A figure stands in a page between two comments, `<!--= NAME > key > key | FORMAT -->3.5<!--/-->`:
the file `results/NAME.json`, the keys that lead to the value (in lists the position, from 0) and a
format of Python's, such as `.1f`, `,` or `.0%`; without one the value as it is. Before a path may
stand `min of`, `max of`, `mean of`, `spread of` (mean ± standard deviation) or `count of`, if a `*`
in a key makes several values of it; and paths and numbers may be joined by ` / `, ` * ` and ` - `,
from left to right.

A whole table is made from a declaration: the path, a line for each row that is wanted (none: all
there are), and the table's head and pattern; `{}` is the name of a row, `{path | FORMAT}` a value
of it and `{?path}` one that may be missing. A path begins at the row, or, if it has `@` for the
row's key, at the table's path:

    <!--table decoding > searches
    greedy, batch 1 = greedy, 1
    | search, batch | ours |
    |---|---:|
    | {} | {keras_transformers > tokens_per_second | ,} |
    -->

    (what is filled in)

    <!--/table-->

README.md has no marker of a single figure, so that its text can be read as it is. A section of a
page in docs/ is copied into it, without its markers and with links that start from README:

    <!--copy docs/benchmarks/index.md > Speed beside peers-->

    (the text under that heading)

    <!--/copy-->

Markers in code are left alone. One at the start of a line is put at the end of the line before, or
refused: Markdown would take the whole line for HTML.
"""

import functools
import json
import operator
import os
import pathlib
import re
import statistics
import sys

ROOT = pathlib.Path(__file__).parent.parent
RESULTS = ROOT / "benchmarks" / "results"
CODE = re.compile(
    r"^([ \t]*)(```|~~~).*?^\1\2[ \t]*$|(`+)(?!`)(?:(?!\n\n).)+?(?<!`)\3(?!`)", re.M | re.S
)
MARKER = re.compile(r"<!--=(?P<what>(?:(?!-->).)*)-->(?P<value>(?:(?!<!--).)*)<!--/-->", re.S)
TABLE = re.compile(
    r"<!--table(?P<what>(?:(?!-->).)*)-->\n(?P<value>(?:(?!<!--).)*)<!--/table-->", re.S
)
COPY = re.compile(r"<!--copy (?P<what>(?:(?!-->).)*)-->\n(?P<value>.*?)<!--/copy-->", re.S)
COMMENT = re.compile(r"<!--.*?-->\n*", re.S)
LINK = re.compile(r"\]\((?!https?:|#)([^)\s]+)\)")
CELL = re.compile(r"\{(\??)([^{}]*)\}")
BROKEN = re.compile(r"^(?![|#>])(.*\S)[ \t]*\n[ \t]*(?=<!--=)", re.M)  # before a marker
BARE = re.compile(r"[ \t]*(?:(?:[-*+>]|\d+[.)])[ \t]+)*")
OPERATORS = {"/": operator.truediv, "*": operator.mul, "-": operator.sub}


class Spread(tuple):
    """Values of which a format shows the mean and the standard deviation."""

    def __format__(self, form):
        mean = format(statistics.fmean(self), form)
        return (
            f"{mean} ± {statistics.stdev(self):{form}}" if len(self) > 1 else f"{mean} (one seed)"
        )


AGGREGATES = {"min": min, "max": max, "mean": statistics.fmean, "spread": Spread, "count": len}


def pages(root=ROOT):
    """README.md, CHANGELOG.md and the pages of docs/ that are written by hand."""
    found = [root / "README.md", root / "CHANGELOG.md"]
    found += sorted((root / "docs").rglob("*.md"))
    made = root / "docs" / "benchmarks" / "results"
    return [page for page in found if page.exists() and made not in page.parents]


class Results:
    """The values of a folder of results, by their paths."""

    def __init__(self, folder=RESULTS):
        self._folder = folder
        self._read = functools.cache(self._load)

    def _load(self, name):
        path = self._folder / f"{name}.json"
        if not path.is_file():
            raise KeyError(f"there is no benchmarks/results/{name}.json")
        return json.loads(path.read_text(encoding="utf-8"))

    def node(self, path):
        """What stands at a path, `NAME > key > key`: a value, a dict or a list."""
        name, *keys = path.split(" > ")
        return self.inside(self._read(name), keys, path)

    def inside(self, node, keys, path):
        """What stands at these keys of a node, of one with a `*` the list of all that it means."""
        for position, key in enumerate(keys):
            known = (
                {str(at): each for at, each in enumerate(node)} if isinstance(node, list) else node
            )
            if not isinstance(known, dict):
                raise KeyError(f"{path!r} is at its end before {key!r}")
            pattern = re.escape(key).replace(r"\*", ".*")
            found = [known[each] for each in known if re.fullmatch(pattern, each)]
            if not found:
                raise KeyError(f"{path!r} has no {key!r}, only {str(list(known))[:200]}")
            if "*" in key:
                return [self.inside(one, keys[position + 1 :], path) for one in found]
            node = found[0]
        return node

    def value(self, expression, look_up=None):
        """The value of an expression of paths, aggregates, numbers and operators."""
        first, *rest = re.split(r"(?<![>|]) ([/*-]) (?!>)", expression)
        value = self._operand(first, look_up or self.node)
        for sign, operand in zip(rest[::2], rest[1::2], strict=True):
            value = OPERATORS[sign](value, self._operand(operand, look_up or self.node))
        if not isinstance(value, str | int | float | Spread):
            raise KeyError(f"{expression!r} is a {type(value).__name__}, not a value")
        return value

    def _operand(self, text, look_up):
        text = text.strip()
        if re.fullmatch(r"\d+(\.\d+)?", text):
            return float(text)
        aggregate = re.match(rf"({'|'.join(AGGREGATES)}) of ", text)
        if aggregate:
            return AGGREGATES[aggregate[1]](look_up(text[aggregate.end() :].strip()))
        return look_up(text)

    def formatted(self, what, look_up=None):
        """The text of `EXPRESSION | FORMAT`."""
        plain = re.sub(r"\s+", " ", what).replace("\\|", "|")
        expression, _, form = plain.rpartition(" | ") if " | " in plain else (plain, "", "")
        value = self.value(expression.strip(), look_up)
        try:
            return format(value, form.strip())
        except ValueError as error:
            raise KeyError(f"{what.strip()!r}: {error}") from None

    def table(self, what):
        """The rows of a table from its declaration."""
        head, *lines = [line.strip() for line in what.strip().splitlines()]
        start = next((i for i, line in enumerate(lines) if line.startswith("|")), len(lines))
        if len(lines) - start < 3:
            raise KeyError(f"table {head!r} needs a head, a line below it and a row")
        node = self.node(head)
        names = node if isinstance(node, dict) else map(str, range(len(node)))
        chosen = [line.partition(" = ") for line in lines[:start]] or [(name,) for name in names]
        table = lines[start : start + 2]
        for key, *label in chosen:
            name = (label and label[-1]) or key
            table += [self._row(line, node, key, name, head) for line in lines[start + 2 :]]
        return "\n".join(table)

    def _row(self, pattern, node, key, name, head):
        def look_up(path):
            within = path.replace("@", key) if "@" in path else f"{key} > {path}"
            return self.inside(node, within.split(" > "), f"{head} > {within}")

        def fill(cell):
            if not cell[2]:
                return name
            try:
                return self.formatted(cell[2], look_up).replace("|", "\\|").replace("<", "&lt;")
            except KeyError:
                if cell[1]:
                    return ""
                raise

        return CELL.sub(fill, pattern)


def filled(text, results, where="page"):
    """`(text, errors)`: a page with its figures as the results have them, and what is wrong."""
    errors = []

    def figure(match):
        row = text[_line(text, match.start()) :].lstrip().startswith("|")
        what = re.sub(r"\\?\|", r"\\|" if row else "|", match["what"])
        return f"<!--={what}-->{results.formatted(what)}<!--/-->"

    def table(match):
        return f"<!--table{match['what']}-->\n\n{results.table(match['what'])}\n\n<!--/table-->"

    def copy(match):
        return f"<!--copy {match['what']}-->\n\n{_section(match['what'], results)}\n\n<!--/copy-->"

    joined = (BROKEN, None, lambda match: f"{match[1]} ")
    steps = (joined, (TABLE, "<!--table", table), (MARKER, "<!--=", figure))
    for step in (*steps, (COPY, "<!--copy", copy)):
        text, complaints = _replaced(text, *step)
        errors += [f"{where}:{line}: {complaint}" for line, complaint in complaints]
    return text, errors


def _section(what, results):
    """The filled-in text under a heading of a page, for README: `PAGE > HEADING`."""
    name, _, heading = what.partition(" > ")
    page = ROOT / name
    if not page.is_file():
        raise KeyError(f"there is no page {name}")
    text, errors = filled(page.read_text(encoding="utf-8"), results, name)
    if errors:
        raise KeyError(errors[0])
    section = re.search(rf"^#+ {re.escape(heading)}\n(.*?)(?=^#+ |\Z)", text, re.M | re.S)
    if section is None:
        raise KeyError(f"{name} has no heading {heading!r}")
    plain = COMMENT.sub("", MARKER.sub(lambda match: match["value"], section[1])).strip()
    folder = pathlib.PurePosixPath(name).parent
    return LINK.sub(lambda link: f"]({os.path.normpath(folder / link[1])})", plain)


def _replaced(text, pattern, opening, make):
    """`(text, [(line, complaint)])` after each match of a pattern outside code was made anew."""
    code = [block.span() for block in CODE.finditer(text)]
    complaints, closed = [], set()

    def outside(position):
        return not any(start <= position < stop for start, stop in code)

    def say(position, message):
        complaints.append((text.count("\n", 0, position) + 1, message))

    def one(match):
        if not outside(match.start()):
            return match[0]
        closed.add(match.start())
        before = text[_line(text, match.start()) : match.start()]
        if opening == "<!--=" and BARE.fullmatch(before):
            say(match.start(), "a marker at the start of a line: put a word before it")
        try:
            return make(match)
        except (KeyError, ArithmeticError, ValueError, TypeError) as error:
            say(match.start(), error.args[0])
            return match[0]

    made = pattern.sub(one, text)
    for start in re.finditer(re.escape(opening), text) if opening else ():
        if outside(start.start()) and start.start() not in closed:
            say(start.start(), f"{opening} ... without the comment that closes it")
    return made, complaints


def _line(text, position):
    return text.rfind("\n", 0, position) + 1


def main(arguments):
    """Fills in, or checks; returns how many complaints there are."""
    results, complaints = Results(), []
    for page in pages():
        where, text = page.relative_to(ROOT).as_posix(), page.read_text(encoding="utf-8")
        made, errors = filled(text, results, where)
        complaints += errors
        if made == text:
            continue
        if "--check" in arguments:
            lines = zip(text.splitlines(), made.splitlines(), strict=False)
            differing = [i for i, (one, other) in enumerate(lines, 1) if one != other]
            complaints.append(f"{where}: lines {differing[:20]} differ from benchmarks/results")
        else:
            page.write_text(made, encoding="utf-8")
            print(f"{where}: filled in")
    print("\n".join(complaints), file=sys.stderr, end="\n" if complaints else "")
    return len(complaints)


if __name__ == "__main__":
    sys.exit(bool(main(sys.argv[1:])))
