"""Asks a trained model: of a run, a published folder, or a SavedModel.

    python -m recipes.predict runs/translation "Open the door" "Close the window"
    python -m recipes.predict runs/vit runs/vit/example.png
    python -m recipes.predict runs/translation --input lines.txt.gz --output translated
    python -m recipes.predict runs/text_classification --input 'mails/*.jsonl' --output classes
    python -m recipes.predict runs/vit --input images --output classes --workers 4

With texts or images on the command line, the answers are printed, a line each. With `--input`,
many rows are answered into the folder of `--output`: `predictions.txt` or `.jsonl`, one line a row
in the order of the input, and `bad_rows.tsv`. A run that was killed goes on where it was when the
same command is given again.
"""

import dataclasses
import itertools
import json
import pathlib
import time
import typing

import keras
import tyro

import keras_transformers
from keras_transformers.predictors import Refused

from .bad_input import ending_in_a_sentence, program
from .bulk import rows
from .bulk.answers import answered, loaded
from .bulk.shards import BAD_ROWS, LINE, Shards

# What a kill costs at most.
SHARD_ROWS = {"text": 1024, "image": 128, "question_and_context": 1024}


@dataclasses.dataclass(frozen=True)
class Config:
    """What is asked, and how."""

    folder: tyro.conf.Positional[str]  # of a run, with published weights, or a SavedModel
    raw: tyro.conf.Positional[tuple[str, ...]] = ()  # texts, or paths of images
    input: str | None = None  # a file, a pattern in quotes, or a folder: .txt, .tsv, .jsonl
    # (each also .gz), or images
    output: str | None = None  # folder for the answers to --input
    column: str = "1"  # of .tsv files: a number, or a name in the first line
    field: str | None = None  # of .jsonl files; by default "text" or "image"
    format: typing.Literal["txt", "jsonl"] | None = None  # txt of a translator, else jsonl
    target_language: str | None = None  # of a translator into several: "de"
    signature: str = "serving_default"  # or "xla", compiled, where there is one
    shard_rows: int | None = None  # rows that are answered and kept at a time; 1,024 texts
    workers: int = 0  # processes of Ray Data that answer; 0 is this one
    address: str | None = None  # of a Ray cluster that has them; else this machine
    worker_cpus: int | None = None  # cores of each; by default this machine's are shared out
    worker_gpus: float = 0.0


def ask(config):
    """Prints the answers to what stands on the command line."""
    predictor = loaded(config.folder, config.signature, config.target_language)
    for number, answer in enumerate(predictor.each(config.raw)):
        if isinstance(answer, Refused):
            raise ValueError(f"argument {number + 1} {answer.reason}")
        print(answer if isinstance(answer, str) else json.dumps(answer, ensure_ascii=False))


def ask_many(config):
    """Answers all rows of the input into the output folder; returns what was measured."""
    predictor = loaded(config.folder, config.signature, config.target_language)
    form = config.format or ("txt" if predictor.kind == "translator" else "jsonl")
    if form == "txt" and predictor.kind not in LINE:
        raise ValueError(f"--format must be jsonl for a {predictor.kind}. Received: txt")
    found = rows.find(config.input, predictor.takes, config.column, config.field)
    size = config.shard_rows or SHARD_ROWS[predictor.takes]
    shards = Shards(config.output, _about(config, found, size, form))
    if shards.finished:
        print(f"The predictions in {config.output} are finished.")
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
    _say(config, form, measured)
    return shards.finished


def _answers(config, predictor, shards):
    """Pairs of number and JSON lines of shards."""
    if not config.workers:
        return ((i, answered(predictor, part)) for i, part in shards)
    from .bulk import workers  # which needs Ray

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
    return {
        "model": [str(folder), model, config.signature, *told],
        "input": found.identity(),
        "shard size": size,
        "format": form,
    }


def _say(config, form, measured):
    bad, output = measured["bad_rows"], pathlib.Path(config.output)
    rate = measured["rows_of_this_process"] / measured["seconds"]
    told = f"{measured['rows']:,} rows"
    if measured["rows_of_this_process"] < measured["rows"]:
        told += f", {measured['rows_of_this_process']:,} of them now"
    print(f"{told}, in {measured['seconds']:,.1f} s: {rate:,.1f} rows a second.")
    if bad:
        print(f"{bad:,} bad rows, which have no answer, are in {output / BAD_ROWS}")
    print(f"The answers are in {output / f'predictions.{form}'}")


def run(config):
    """Answers what is given.

    Raises:
        ValueError: If both or neither of command line and files, or what cannot be.
    """
    if bool(config.raw) == bool(config.input):
        raise ValueError("Give texts or images to ask about, or --input, and not both.")
    if bool(config.input) != bool(config.output):
        raise ValueError("--input and --output go together.")
    if config.workers < 0 or (config.shard_rows or 1) < 1:
        raise ValueError("--workers must be 0 or more, and --shard-rows positive.")
    if config.address and not config.workers:
        raise ValueError("--address needs --workers: how many there shall be.")
    return ask_many(config) if config.input else ask(config)


def main():
    """Runs with the command line; bad input ends in one sentence."""
    called = program("predict")
    config = tyro.cli(Config, prog=called, description=__doc__)
    with ending_in_a_sentence(called, ImportError):
        keras_transformers.compile_cache()
        run(config)


if __name__ == "__main__":
    main()
