"""A job: all rows of an input answered into a folder, from where it was when it was killed."""

import dataclasses
import itertools
import pathlib
import time
import typing

import keras
import tyro

from .answers import answered
from .shards import Shards

# What a kill costs at most.
SHARD_ROWS = {"text": 1024, "image": 128, "question_and_context": 1024}


@dataclasses.dataclass(frozen=True)
class Asking:
    """Who is asked, and how; of every command that answers many rows."""

    folder: tyro.conf.Positional[str]  # of a run, with published weights, or a SavedModel
    _: dataclasses.KW_ONLY
    column: str | None = None  # of tables: a number, or a name in the first line; else by its name
    # "text" or the like, or the first
    field: str | None = None  # of JSON lines, instead of --column; by default "text" or "image"
    target_language: str | None = None  # of a translator into several: "de"
    search: typing.Literal["own", "greedy", "sample"] = "own"  # as saved, mostly a beam; or another
    seed: int = 1  # of --search sample: the same text gets the same translation
    signature: str = "serving_default"  # or "xla", compiled, where there is one
    shard_rows: int | None = None  # rows that are answered and kept at a time; 1,024 texts
    workers: int = 0  # processes of Ray Data that answer; 0 is this one
    address: str | None = None  # of a Ray cluster that has them; else this machine
    worker_cpus: int | None = None  # cores of each; by default this machine's are shared out
    worker_gpus: float = 0.0  # of each; 0.5 lets two share one

    def check(self):
        """ValueError if numbers cannot be."""
        if self.workers < 0 or (self.shard_rows or 1) < 1:
            raise ValueError("--workers must be 0 or more, and --shard-rows positive.")
        if self.address and not self.workers:
            raise ValueError("--address needs --workers: how many there shall be.")

    @property
    def asked(self):
        """What `answers.loaded` takes."""
        return self.folder, self.signature, self.target_language, self.search, self.seed


def answer(config, predictor, found, output, form):
    """Answers all rows into a folder, see `Shards`; says how fast.

    Args:
        config: An `Asking`.
        predictor: The one that it asks for.
        found: The `Rows`.
        output: Path of the folder.
        form: "txt" or "jsonl".

    Returns:
        Dict of what was measured.
    """
    size = config.shard_rows or SHARD_ROWS[predictor.takes]
    shards = Shards(output, _about(config, found, size, form))
    if shards.finished:
        print(f"The predictions in {output} are finished.")
        return shards.finished
    total = sum(1 for _ in found)
    number = -(-total // size)
    missing = set(shards.missing(number))
    if len(missing) < number:
        print(f"Goes on: {number - len(missing):,} of {number:,} shards are there.", flush=True)
    started, done = time.perf_counter(), 0
    bar = keras.utils.Progbar(total, unit_name="row")
    bar.update(sum(_rows_of(i, size, total) for i in range(number) if i not in missing))
    for i, lines in _answers(config, predictor, _cut(found, size, missing)):
        shards.write(i, lines)
        done += _rows_of(i, size, total)
        bar.add(_rows_of(i, size, total))
    seconds = time.perf_counter() - started
    measured = shards.join(number, form, predictor.kind)
    measured |= {"rows_of_this_process": done, "seconds": seconds}
    shards.end(measured | {"rows_per_second": done / seconds})
    told = f"{measured['rows']:,} rows"
    if done < measured["rows"]:
        told += f", {done:,} of them now"
    print(f"{told}, in {seconds:,.1f} s: {done / seconds:,.1f} rows a second.")
    return shards.finished


def _answers(config, predictor, shards):
    """Pairs of number and JSON lines of shards."""
    if not config.workers:
        return ((i, answered(predictor, part)) for i, part in shards)
    from . import workers  # which needs Ray

    return workers.answers(shards, config)


def _cut(found, size, wanted):
    """Pairs of number and rows of the wanted shards."""
    found = iter(found)
    for i in itertools.count():
        if not (part := list(itertools.islice(found, size))):
            return
        if i in wanted:
            yield i, part


def _rows_of(i, size, total):
    return min(size, total - i * size)


def _about(config, found, size, form):
    """What must be the same for a run to go on."""
    folder = pathlib.Path(config.folder).resolve()
    files = sorted([*folder.rglob("saved_model.pb"), *folder.glob("*.safetensors")])
    model = [[str(path), path.stat().st_size, path.stat().st_mtime_ns] for path in files]
    told = [config.target_language] if config.target_language else []
    if config.search != "own":
        told += [config.search, config.seed]
    told += ["scores"] if getattr(config, "scores", False) else []  # of `predict` alone
    return {
        "model": [str(folder), model, config.signature, *told],
        "input": found.identity(),
        "shard size": size,
        "format": form,
    }
