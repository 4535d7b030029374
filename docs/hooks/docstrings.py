"""Docstrings as the reference shows them: our sections, with types from the signatures.

An extension of griffe, which mkdocstrings reads the sources with; nothing is imported. "Call
arguments" takes its types from `call`, "Returns" of a layer from what `call` gives.
"""

import re
import textwrap

import griffe
from griffe import DocstringSectionKind as Kind

TITLED = re.compile(
    r"^(Args|Call arguments(?:, returns(?:, raises)?)?|Attributes|Returns|Yields|Raises|Warns|"
    r"Example):(?: (.*))?\n?",
    re.MULTILINE,
)
SHOWN = {"Args": "Arguments"}


class Docstrings(griffe.Extension):
    """Gives every docstring of a package its sections, once all of it is read."""

    def on_package(self, *, pkg: griffe.Module, **_: object) -> None:
        _read(pkg)


def _read(thing: griffe.Object) -> None:
    for member in thing.members.values():
        if not member.is_alias:
            _read(member)
    if thing.docstring:
        vars(thing.docstring)["parsed"] = list(sections(thing))  # what `parsed` would cache


def sections(thing: griffe.Object):
    """The docstring's text, and each titled section with the types that the signatures give."""
    text, *rest = TITLED.split(thing.docstring.value)
    yield griffe.DocstringSectionText(text.strip())
    for title, inline, body in zip(rest[::3], rest[1::3], rest[2::3], strict=True):
        if title == "Example":
            yield _example(inline or "", textwrap.dedent(body).strip())
        elif inline:
            yield griffe.DocstringSectionText(f"**{title}:** {inline}\n{body}".strip())
        else:
            yield _titled(thing, title, textwrap.dedent(body).strip())


def _example(inline: str, body: str) -> griffe.DocstringSectionExamples:
    prose, prompt, code = body.partition(">>>")
    if not prompt and not inline:  # a command that is shown alone
        prose, code = "", body
    parts = [(Kind.text, f"{inline}\n{prose}".strip()), (Kind.examples, prompt + code)]
    return griffe.DocstringSectionExamples([part for part in parts if part[1]], title="Example:")


def _titled(thing: griffe.Object, title: str, body: str) -> griffe.DocstringSection:
    function = _called(thing) if title in ("Call arguments", "Returns", "Yields") else thing
    gives = getattr(function, "returns", None)
    shown = f"{SHOWN.get(title, title)}:"
    if title == "Returns":
        return griffe.DocstringSectionReturns(
            [griffe.DocstringReturn("", description=body, annotation=gives)], title=shown
        )
    if title == "Yields":
        return griffe.DocstringSectionYields(
            [griffe.DocstringYield("", description=body, annotation=gives)], title=shown
        )
    named = [item.partition(": ") for item in re.split(r"\n(?=\S)", body)]
    if title in ("Raises", "Warns"):
        element, section = {
            "Raises": (griffe.DocstringRaise, griffe.DocstringSectionRaises),
            "Warns": (griffe.DocstringWarn, griffe.DocstringSectionWarns),
        }[title]
        return section(
            [element(annotation=name, description=_plain(text)) for name, _, text in named],
            title=shown,
        )
    if title == "Attributes":
        return griffe.DocstringSectionAttributes(
            [
                griffe.DocstringAttribute(
                    name, description=_plain(text), annotation=_attribute(thing, name)
                )
                for name, _, text in named
            ],
            title=shown,
        )
    return griffe.DocstringSectionParameters(
        [_parameter(function, name, _plain(text)) for name, _, text in named], title=shown
    )


def _plain(text: str) -> str:
    first, _, rest = text.partition("\n")
    return f"{first}\n{textwrap.dedent(rest)}".strip()


def _called(thing: griffe.Object) -> griffe.Object | None:
    """A layer's `call`, its own or inherited; a function is what is called."""
    if not thing.is_class:
        return thing
    try:
        return thing.all_members.get("call")
    except griffe.AliasResolutionError:
        return None


def _attribute(thing: griffe.Object, name: str):
    member = thing.members.get(name) if thing.is_class else None
    if member is None or member.is_alias:
        return None
    return getattr(member, "annotation", None) or getattr(member, "returns", None)


def _parameter(function: griffe.Object | None, names: str, text: str) -> griffe.DocstringParameter:
    """One argument, or several that are described together ("a, b: ..."), with the first's type."""
    first = names.split(",")[0].lstrip("*")
    try:
        signature = getattr(function, "parameters", None) or {}
        known = next((each for each in signature if each.name == first), None)
    except griffe.AliasResolutionError:
        known = None
    return griffe.DocstringParameter(
        names,
        description=text,
        annotation=known and known.annotation,
        value=known and known.default,
    )
