"""Every export asked for long: by many threads at once, and 10,000 times."""

import json
import pathlib
import subprocess
import sys

SOAKER = pathlib.Path(__file__).with_name("soaker.py")
MOST_GROWTH = 0.05  # of memory, from the first tenth of the requests to the last


def row(folder, seconds, threads, requests, python=sys.executable):
    """What `soaker.py` finds in a process of its own, as a row of the table."""
    numbers = {"seconds": seconds, "threads": threads, "requests": requests}
    options = [str(each) for name, value in numbers.items() for each in (f"--{name}", value)]
    done = subprocess.run(
        [python, str(SOAKER), *options, str(folder)], capture_output=True, text=True, cwd=folder
    )
    if done.returncode:
        return {"passed": "no", "error": done.stderr.strip().splitlines()[-1][:200]}
    found = json.loads(done.stdout.splitlines()[-1])
    passed = not found["wrong"] and not found["stuck"] and found["growth"] <= MOST_GROWTH
    first, last = found["megabytes"][0], found["megabytes"][-1]
    return {
        "passed": "yes" if passed else "no",
        "MB_after_a_tenth": first,
        "MB_after_all": last,
        "growth_%": round(100 * found["growth"], 1),
        "asked_by_threads": found["asked"],
        "other_answers": found["wrong"],
        "stuck": found["stuck"],
        "MB_after_threads": found["megabytes_threads"][1],
    }
