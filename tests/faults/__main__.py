"""Breaks training runs in every way at hand, and counts what survives.

    pip install -e '.[test]'
    python -m tests.faults                    # all of it, about an hour
    python -m tests.faults --only kills disk  # some of it

A try is survived if the run ends as the same run without the fault would, or with a sentence that
says what is wrong and an older state that loads; anything else is lost. The full disk needs the
right to mount a tmpfs.
"""

import argparse
import importlib
import pathlib
import tempfile

from benchmarks.report import table
from tests.faults.runs import write_data

PARTS = ("kills", "damage", "disk", "numbers", "rows", "workers", "files", "mutations")


def main(only, tries, seed, folder):
    with tempfile.TemporaryDirectory(dir=folder) as work:
        work = pathlib.Path(work)
        data = write_data(work)
        found = {}
        for part in only or PARTS:
            (work / part).mkdir()
            module = importlib.import_module(f"tests.faults.{part}")
            found |= module.run(work / part, data, tries, seed)
            print(table(_rows(found), "fault"), flush=True)
    return int(any(count != survived for count, survived in found.values()))


def _rows(found):
    return {
        fault: {"tries": count, "survived": survived, "lost": count - survived}
        for fault, (count, survived) in found.items()
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="+", choices=PARTS)
    parser.add_argument("--tries", type=int, default=20, help="of each fault")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--folder", help="where the runs write; a temporary one without")
    raise SystemExit(main(**vars(parser.parse_args())))
