"""Equations between `$..$` and `$$..$$` become MathML, which needs neither script nor font.

`pymdownx.arithmatex` finds them, so that code stays as it is.
"""

import html
import re

from latex2mathml.converter import convert
from mkdocs.plugins import get_plugin_logger

log = get_plugin_logger("equations")
FOUND = re.compile(r'<(span|div) class="arithmatex">\\(?:\((.*?)\\\)|\[(.*?)\\\])</\1>', re.DOTALL)


def mathml(latex, display):
    """The `<math>` element; refuses commands that would be shown as they are written."""
    if len(re.findall(r"(?<!\\){", latex)) != len(re.findall(r"(?<!\\)}", latex)):
        raise ValueError("its braces do not match")  # which latex2mathml lets pass
    converted = convert(latex, display=display)
    unknown = re.search(r"\\[a-zA-Z]+", html.unescape(converted))
    if unknown:
        raise ValueError(f"{unknown[0]} is not known")
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
