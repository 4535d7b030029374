"""Equations between `$..$` and `$$..$$` become MathML, in the math font of `docs/assets`.

`pymdownx.arithmatex` finds them, so that code stays as it is.
"""

import html
import re

from latex2mathml.converter import convert
from mkdocs.plugins import get_plugin_logger

log = get_plugin_logger("equations")
FOUND = re.compile(r'<(span|div) class="arithmatex">\\(?:\((.*?)\\\)|\[(.*?)\\\])</\1>', re.DOTALL)
FUNCTION = "<mi>(?:arccos|arcsin|arctan|cosh|cos|exp|ln|log|sinh|sin|tanh|tan)</mi>"
SPACE = '<mspace width="0.17em" />'
SPACING = [  # as LaTeX sets it: a pattern in the MathML of latex2mathml, and what replaces it
    # A bar without \left or \right is as high as a letter, and stands close to what it encloses.
    (
        r'<mo(?! stretchy="true")[^>]*>(&#x02016;|&#x0007C;)</mo>',
        r'<mo stretchy="false" lspace="0" rspace="0">\1</mo>',
    ),
    (r"<mo>&#x0221E;</mo>", "<mi>&#x0221E;</mi>"),  # infinity is no operator
    (r"<mi>&#x0007E;</mi>", "<mo>&#x0223C;</mo>"),  # but "is distributed as" is one
    # A minus after a bracket, a comma or a relation, or at the start, is a sign.
    (
        r"(<mrow>|<mtd>|<mo[^>]*>(?:[(,=\[]|&#x0(?:0028|002C|003C|003D|003E|005B|2208|2260);)</mo>)"
        r"<mo>&#x02212;</mo>",
        r'\1<mo form="prefix" lspace="0" rspace="0">&#x02212;</mo>',
    ),
    # The name of a function has a small space on each side where a factor stands.
    (rf"(</(?:mi|mn|msub|msup|msubsup|mfrac)>)({FUNCTION})", rf"\1{SPACE}\2"),
    (rf"(?<!<msub>)(?<!<msup>)({FUNCTION})(?=<m(?:i|n|sub|sup|over|frac|sqrt)\b)", rf"\1{SPACE}"),
]


def mathml(latex, display):
    """The `<math>` element; refuses commands that would be shown as they are written."""
    if len(re.findall(r"(?<!\\){", latex)) != len(re.findall(r"(?<!\\)}", latex)):
        raise ValueError("its braces do not match")  # which latex2mathml lets pass
    converted = convert(latex, display=display)
    unknown = re.search(r"\\[a-zA-Z]+", html.unescape(converted))
    if unknown:
        raise ValueError(f"{unknown[0]} is not known")
    for pattern, replacement in SPACING:
        converted = re.sub(pattern, replacement, converted)
    return converted


def on_page_content(content, page, **_):
    def converted(match):
        block, inline = match[1] == "div", match[2]
        latex = html.unescape(match[3] if inline is None else inline).strip()
        try:
            if block:
                return f'<div class="equation">{mathml(latex, "block")}</div>'
            return mathml(latex, "inline")
        except Exception as error:
            log.warning(f"{page.file.src_uri}: ${latex}$: {error!r}")
            return match[0]

    return FOUND.sub(converted, content)
