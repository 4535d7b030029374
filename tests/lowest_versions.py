"""Prints the lowest versions that pyproject.toml allows, as constraints for pip.

python -m tests.lowest_versions lowest.txt
python -m pip install -c lowest.txt '.[recipes,documents,languages]'
"""

import pathlib
import re
import sys
import tomllib

PROJECT = pathlib.Path(__file__).parent.parent / "pyproject.toml"


def lowest_versions():
    """Returns a dict of distribution -> its lower bound, of all dependencies and extras.

    Where extras differ, the highest of their bounds holds for all of them.
    """
    project = tomllib.loads(PROJECT.read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    requirements = sum(extras.values(), project["dependencies"])
    lowest = {}
    for requirement in requirements:
        name, version = re.match(r"([\w-]+)(?:\[[\w,]+\])?(?:>=([\d.]+))?", requirement).groups()
        if version and numbers(version) > numbers(lowest.get(name, "0")):
            lowest[name] = version
    return lowest


def numbers(version):
    return [int(part) for part in version.split(".")]


if __name__ == "__main__":
    lines = [f"{name}=={version}\n" for name, version in sorted(lowest_versions().items())]
    pathlib.Path(sys.argv[1]).write_text("".join(lines), encoding="utf-8")
