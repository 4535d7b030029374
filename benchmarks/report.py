"""Where the benchmarks write, and what stands above every result."""

import datetime
import importlib.metadata
import json
import os
import pathlib
import platform


def heading(*packages):
    """Date, machine and the versions of these packages, as a dict to put the figures into."""
    return {
        "date": datetime.date.today().isoformat(),
        "machine": f"{platform.processor() or platform.machine()}, {os.cpu_count()} CPU cores",
        "versions": {name: importlib.metadata.version(name) for name in packages},
    }


def write(name, result):
    """Prints a result and keeps it as `results/NAME.json`."""
    text = json.dumps(result, indent=2)
    print(text)
    folder = pathlib.Path(__file__).parent / "results"
    folder.mkdir(exist_ok=True)
    (folder / f"{name}.json").write_text(text + "\n")
