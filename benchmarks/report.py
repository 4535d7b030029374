"""Where the benchmarks write, and what stands above every result."""

import datetime
import importlib.metadata
import json
import os
import pathlib
import platform
import re

FOLDER = pathlib.Path(__file__).parent / "results"


def heading(*packages):
    """Date, machine and the versions of these packages, as a dict to put the figures into."""
    return {
        "date": datetime.date.today().isoformat(),
        "machine": f"{_processor()}, {os.cpu_count()} CPU cores",
        "versions": {name: importlib.metadata.version(name) for name in packages},
    }


def _processor():
    """Name of the processor and its widest vector instructions, where Linux tells."""
    try:
        lines = pathlib.Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    found = {name.strip(): value.strip() for name, _, value in (x.partition(":") for x in lines)}
    flags = found.get("flags", "").split()
    vectors = [flag for flag in ("avx2", "avx512f", "avx512_bf16", "amx_bf16") if flag in flags]
    return " ".join([found.get("model name", platform.machine()), *vectors])


def resident_mebibytes(field="VmHWM"):
    """What this process holds in memory, at its peak or now ("VmRSS"); a parent's peak apart."""
    status = pathlib.Path("/proc/self/status").read_text()
    return int(re.search(rf"{field}:\s+(\d+) kB", status)[1]) / 2**10


def holding():
    """MiB that this process holds; its peak starts anew."""
    pathlib.Path("/proc/self/clear_refs").write_text("5")
    return resident_mebibytes("VmRSS")


def table(rows, first="candidate"):
    """A Markdown table of a dict of names to dicts of figures."""
    columns = list(dict.fromkeys(column for row in rows.values() for column in row))
    lines = [[first, *(column.replace("_", " ") for column in columns)]]
    lines += [["---", *("---:" for _ in columns)]]
    lines += [
        [name, *(str(row.get(column, "")) for column in columns)] for name, row in rows.items()
    ]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def write(name, result, tables=None):
    """Prints a result and keeps it as `results/NAME.json`, and its tables as `results/NAME.md`."""
    text = json.dumps(result, indent=2)
    FOLDER.mkdir(exist_ok=True)
    (FOLDER / f"{name}.json").write_text(text + "\n")
    if tables is None:
        print(text)
        return
    versions = ", ".join(f"{package} {number}" for package, number in result["versions"].items())
    parts = [f"{result['date']}, {result['machine']}; {versions}."]
    parts += [f"## {title}\n\n{table(rows)}" for title, rows in tables.items()]
    (FOLDER / f"{name}.md").write_text(f"# {name}\n\n" + "\n\n".join(parts) + "\n")


def measured(name, part):
    """The `part` of what an earlier run has written of `results/NAME.json`; empty if none has."""
    kept = FOLDER / f"{name}.json"
    return json.loads(kept.read_text())[part] if kept.exists() else {}
