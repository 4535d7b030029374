"""Very many lines through `recipes.predict`, killed on the way: rows a second, and none lost.

    pip install -e '.[recipes]'
    python -m recipes.translation
    python -m benchmarks.predict runs/translation --rows 100000
    python -m benchmarks.predict runs/translation --rows 100000 --workers 2    # with .[recipes,ray]

The lines are the sentences of the recipe's data set, again and again. The command is killed
(SIGKILL) when a third and when two thirds of the shards are there, and given once more. Every
answer carries the number of its line, so that what is lost or doubled is seen; and it is compared
with what `keras_transformers.load(...).predict` says of the sentence.
"""

import argparse
import json
import pathlib
import re
import resource
import subprocess
import sys
import tempfile
import time

import keras_transformers
from benchmarks.alternating import ending
from benchmarks.report import heading, write
from recipes.data.translation import load

SHARD = 1024


def sentences(number):
    """So many lines, and the different ones among them."""
    data = load()
    different = list(dict.fromkeys(data.test.sources + data.valid.sources + data.train.sources))
    return [different[i % len(different)] for i in range(number)], different[:number]


def until(command, output, shards):
    """Seconds that a process of the command took, and what it printed.

    It is killed when so many shards are there; None lets it end.
    """
    started = time.perf_counter()
    errors = tempfile.TemporaryFile("w+")  # a pipe that nobody reads would fill up
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors)
    while shards is not None and process.poll() is None:
        if len(list(output.glob("shards/*.jsonl"))) >= shards:
            process.kill()
        time.sleep(0.1)
    printed, _ = process.communicate()
    seconds = time.perf_counter() - started
    killed = shards is not None
    if process.returncode != (-9 if killed else 0):
        errors.seek(0)
        raise SystemExit(ending("The command ended", process.returncode, errors.read()))
    return seconds, printed.decode()


def differing(folder, lines, different, path):
    """Numbers of rows lost or doubled, and of answers that are not those of the sentence alone."""
    found = [json.loads(line) for line in open(path, encoding="utf-8")]
    misplaced = sum(row["row"] != i for i, row in enumerate(found, 1))
    said = keras_transformers.load(folder).predict(different)
    said = dict(zip(different, said, strict=True))
    # In another batch sums are rounded otherwise, and a beam may fall to the other side.
    others = sum(row["translation"] != said[lines[row["row"] - 1]] for row in found)
    lost = len(lines) - len({row["row"] for row in found})
    doubled = len(found) - len({row["row"] for row in found})
    return {
        "rows_lost": lost,
        "rows_doubled": doubled,
        "rows_out_of_order": misplaced,
        "answers_unlike_those_alone": others,
    }


def main(folder, number, workers):
    """Measures, and writes `results/predict.json`."""
    lines, different = sentences(number)
    with tempfile.TemporaryDirectory() as position:
        source, output = pathlib.Path(position, "lines.txt"), pathlib.Path(position, "answers")
        source.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        command = [sys.executable, "-m", "recipes.predict", folder, "--input", str(source)]
        command += ["--output", str(output), "--format", "jsonl", "--shard-rows", str(SHARD)]
        command += ["--workers", str(workers)] if workers else []
        shards = -(-number // SHARD)
        told = [until(command, output, stop) for stop in (shards // 3, 2 * shards // 3, None)]
        rate = float(re.search(r"([\d,.]+) rows a second", told[-1][1])[1].replace(",", ""))
        seconds = [round(each, 1) for each, _ in told]
        result = {
            **heading("tensorflow", "tensorflow-text", *(["ray"] if workers else [])),
            "model": folder,
            "rows": number,
            "different_sentences": len(different),
            "workers": workers,
            "seconds_of_each_process": seconds,
            "rows_per_second_start_and_all": round(number / sum(seconds), 1),
            "rows_per_second_of_the_last_process": rate,
            "peak_mebibytes": resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss // 1024,
            **differing(folder, lines, different, output / "predictions.jsonl"),
        }
    write(f"predict_{workers}_workers" if workers else "predict", result)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", help="of a run of recipes.translation")
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--workers", type=int, default=0)
    chosen = parser.parse_args()
    main(chosen.folder, chosen.rows, chosen.workers)
