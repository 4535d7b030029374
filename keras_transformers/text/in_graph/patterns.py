"""Regular expressions of `tokenizer.json` (Oniguruma's) as RE2's."""

import re
from typing import Any

from keras_transformers.text.cutting import SPACES, escaped

# Alternatives among which a last space goes with what follows: none reaches over it.
BESIDE_LOOKAHEAD = {
    "'s", "'t", "'re", "'ve", "'m", "'ll", "'d", "(?i:'s|'t|'re|'ve|'m|'ll|'d)",
    "(?:'s|'t|'re|'ve|'m|'ll|'d)", r" ?\p{L}+", r" ?\p{N}+", r" ?[^\s\p{L}\p{N}]+",
    r"[^\r\n\p{L}\p{N}]?\p{L}+", r"\p{N}{1,3}", r"\p{N}", r" ?[^\s\p{L}\p{N}]+[\r\n]*",
    r" ?[^\s\p{L}\p{N}]+[\r\n/]*", r"\s*[\r\n]+", r"\s*[\r\n]", r"\s+",
}  # fmt: skip
CASED = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
for _ends in ("", "(?i:'s|'t|'re|'ve|'m|'ll|'d)?"):
    BESIDE_LOOKAHEAD |= {
        rf"[^\r\n\p{{L}}\p{{N}}]?{CASED[0]}*{CASED[1]}+{_ends}",
        rf"[^\r\n\p{{L}}\p{{N}}]?{CASED[0]}+{CASED[1]}*{_ends}",
    }
LOOKAHEAD = r"\s+(?!\S)"
PROPERTY = re.compile(r"\\[pP]\{(L|N|P|M|S|Z|Lu|Ll|Lt|Lm|Lo|Mn|Nd|Sc|Sm|Zs|Han)\}")
CODE_POINT = re.compile(r"\\(?:u([0-9a-fA-F]{4})|x\{([0-9a-fA-F]+)\}|x([0-9a-fA-F]{2}))")
CLASSES = {"s": SPACES, "d": r"\p{Nd}"}


class Inexpressible(ValueError):
    """A part of a tokenizer that TensorFlow's ops do not give exactly."""


def pattern_of(part: Any, owner: str) -> tuple[str, str | None]:
    """The pattern of RE2 for `{"String": ...}` or `{"Regex": ...}`.

    Returns:
        It, and what a string must be cut with beforehand, `(white space)(what goes on)`, or None.
    """
    if isinstance(part, str):
        return escaped(part), None
    if "String" in part:
        return escaped(part["String"]), None
    pattern = part["Regex"]
    parts = _alternatives(pattern)
    cut = None
    if LOOKAHEAD in parts:
        unknown = [each for each in parts if each not in BESIDE_LOOKAHEAD | {LOOKAHEAD}]
        if unknown or parts[-1] != r"\s+":
            raise Inexpressible(
                f"{owner}: RE2 looks at nothing ahead, and beside {LOOKAHEAD!r} knows nothing of "
                f"{unknown[0] if unknown else parts[-1]!r}"
            )
        newlines = any(each.startswith(r"\s*[\r\n]") for each in parts)
        last = SPACES.replace(r"\t-\r", r"\t\x0B\x0C") if newlines else SPACES
        cut = rf"([{SPACES}])([{last}][^{SPACES}])"
        parts = [each for each in parts if each != LOOKAHEAD]
    return "|".join(_translated(each, owner) for each in parts), cut


def _alternatives(pattern: str) -> list[str]:
    """The parts between bars that stand in no group and in no class."""
    parts, depth, inside, i = [""], 0, False, 0
    while i < len(pattern):
        each = pattern[i : i + 2] if pattern[i] == "\\" else pattern[i]
        inside = each == "[" or inside and each != "]"
        if not inside:
            depth += (each == "(") - (each == ")")
        if each == "|" and not depth and not inside:
            parts.append("")
        else:
            parts[-1] += each
        i += len(each)
    return parts


def _translated(pattern: str, owner: str) -> str:
    found, i = "", 0
    while i < len(pattern):
        part, i = _next(pattern, i, owner)
        found += part
    return found


def _next(pattern: str, i: int, owner: str) -> tuple[str, int]:
    """The counterpart of what stands at `i`, and where it ends."""
    c = pattern[i]
    if c == "\\":
        return _escape(pattern, i, owner, inside=False)
    if c == "[":
        return _class(pattern, i, owner)
    if c == "(":
        start = next((s for s in ("(?:", "(?i:") if pattern.startswith(s, i)), "(?:")
        if pattern.startswith("(?", i) and not pattern.startswith(start, i):
            raise _refused(owner, pattern[i : i + 4])
        return start, i + (len(start) if pattern.startswith("(?", i) else 1)
    if c in "?*}" and pattern[i + 1 : i + 2] == "+" or c == "+" == pattern[i + 1 : i + 2]:
        raise _refused(owner, pattern[i : i + 2])
    if c in "^$.":
        raise _refused(owner, c)
    return c, i + 1


def _class(pattern: str, i: int, owner: str) -> tuple[str, int]:
    begin, found, i = i, "[", i + 1
    if pattern.startswith("^", i):
        found, i = found + "^", i + 1
    while not pattern.startswith("]", i):
        if i >= len(pattern):
            raise Inexpressible(f"{owner}: {pattern[begin : begin + 20]!r} has no end")
        if pattern[i] == "[" or pattern.startswith("&&", i):
            raise _refused(owner, pattern[i : i + 2])
        if pattern[i] == "\\":
            part, i = _escape(pattern, i, owner, inside=True)
        else:
            part, i = pattern[i], i + 1
        found += part
    return found + "]", i + 1


def _escape(pattern: str, i: int, owner: str, inside: bool) -> tuple[str, int]:
    c = pattern[i + 1 : i + 2]
    if not c:
        raise Inexpressible(f"{owner}: a backslash with nothing behind it")
    if c in "pP":
        match = PROPERTY.match(pattern, i)
        if match is None:
            raise _refused(owner, pattern[i : i + 6])
        return match[0], match.end()
    if c in CLASSES:
        return CLASSES[c] if inside else f"[{CLASSES[c]}]", i + 2
    if c == "S" and not inside:
        return f"[^{SPACES}]", i + 2
    if c in "rnt" or not c.isalnum():
        return pattern[i : i + 2], i + 2
    match = CODE_POINT.match(pattern, i)
    if match is None:
        raise _refused(owner, pattern[i : i + 2])
    return rf"\x{{{match[1] or match[2] or match[3]}}}", match.end()


def _refused(owner: str, what: str) -> Inexpressible:
    return Inexpressible(f"{owner}: RE2 has no exact counterpart of {what!r}")
