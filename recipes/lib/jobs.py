"""Jobs: all rows of an input, answered in shards that survive a kill, by one process or several."""

import contextlib
import csv
import dataclasses
import itertools
import json
import logging
import os
import pathlib
import pickle
import shutil
import time
import typing
import warnings

import keras
import tyro

import keras_transformers
from keras_transformers.predictors import Refused

from .folder import lock_folder

# Rows of a shard: the most that a kill costs.
SHARD_ROWS = {"text": 1024, "image": 128, "question_and_context": 1024}
BAD_ROWS = "bad_rows.tsv"
SHOWN = 200  # characters of a bad row
# The part of an answer that is a line of text.
LINE = {
    "translator": "translation",
    "text_generator": "text",
    "mask_filler": "text",
    "text_classifier": "label",
    "image_classifier": "label",
    "array_classifier": "label",
}
WINDOW = 1024  # shards that are with Ray at once: the memory that a long input takes
TRIES = 4  # of a shard whose worker is lost; more often than that, it is the shard's fault


@dataclasses.dataclass(frozen=True)
class JobOptions:
    """The options of every command that answers many rows: the model, and how it answers."""

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
        """Raises a ValueError if a number is out of its range."""
        if self.workers < 0 or (self.shard_rows or 1) < 1:
            raise ValueError("--workers must be 0 or more, and --shard-rows positive.")
        if self.address and not self.workers:
            raise ValueError("--address needs --workers: how many there shall be.")

    @property
    def load_arguments(self):
        """The arguments of `load_predictor`."""
        return self.folder, self.signature, self.target_language, self.search, self.seed


def answer(config, predictor, rows, output, form):
    """Answers all rows into a folder, see `Shards`; prints the speed.

    Args:
        config: The `JobOptions`.
        predictor: The predictor that the options name.
        rows: The `Rows`.
        output: Path of the folder.
        form: "txt" or "jsonl".

    Returns:
        A dict of measurements.
    """
    size = config.shard_rows or SHARD_ROWS[predictor.takes]
    shards = Shards(output, _describe_job(config, rows, size, form))
    if shards.finished:
        print(f"The predictions in {output} are finished.")
        return shards.finished
    total = sum(1 for _ in rows)
    number = -(-total // size)
    missing = set(shards.missing(number))
    if len(missing) < number:
        print(f"Goes on: {number - len(missing):,} of {number:,} shards are there.", flush=True)
    started, done = time.perf_counter(), 0
    bar = keras.utils.Progbar(total, unit_name="row")
    bar.update(sum(_count_rows(i, size, total) for i in range(number) if i not in missing))
    for i, lines in _answer_shards(config, predictor, _cut(rows, size, missing)):
        shards.write(i, lines)
        done += _count_rows(i, size, total)
        bar.add(_count_rows(i, size, total))
    seconds = time.perf_counter() - started
    measured = shards.join(number, form, predictor.kind)
    measured |= {"rows_of_this_process": done, "seconds": seconds}
    shards.end(measured | {"rows_per_second": done / seconds})
    text = f"{measured['rows']:,} rows"
    if done < measured["rows"]:
        text += f", {done:,} of them now"
    print(f"{text}, in {seconds:,.1f} s: {done / seconds:,.1f} rows a second.")
    return shards.finished


def _answer_shards(config, predictor, shards):
    """Yields pairs of number and JSON lines of shards."""
    if not config.workers:
        return ((i, answer_rows(predictor, part)) for i, part in shards)

    return answer_by_workers(shards, config)


def _cut(rows, size, missing):
    """Yields pairs of number and rows of the missing shards."""
    rows = iter(rows)
    for i in itertools.count():
        if not (part := list(itertools.islice(rows, size))):
            return
        if i in missing:
            yield i, part


def _count_rows(i, size, total):
    """Returns the number of rows of a shard."""
    return min(size, total - i * size)


def _describe_job(config, rows, size, form):
    """Returns a dict of what must stay the same when a job continues."""
    folder = pathlib.Path(config.folder).resolve()
    files = sorted([*folder.rglob("saved_model.pb"), *folder.glob("*.safetensors")])
    model = [[str(path), path.stat().st_size, path.stat().st_mtime_ns] for path in files]
    settings = [config.target_language] if config.target_language else []
    if config.search != "own":
        settings += [config.search, config.seed]
    settings += ["scores"] if getattr(config, "scores", False) else []  # of `predict` alone
    return {
        "model": [str(folder), model, config.signature, *settings],
        "input": rows.identity(),
        "shard size": size,
        "format": form,
    }


def load_predictor(folder, signature, target_language=None, search="own", seed=1, scores=False):
    """Loads the predictor of a folder, see `keras_transformers.load`.

    Args:
        folder, signature: Arguments of `keras_transformers.load`.
        target_language: Code of the language that a translator translates to.
        search: "own", or a search of `translating.change_search` for translators.
        seed: The seed of `--search sample`.
        scores: True if answers of translators and text generators have log-probabilities.

    Raises:
        ValueError: If the language is unknown or missing, the model has no such search, or it gives
            no log-probabilities.
    """
    predictor = keras_transformers.load(folder, signature)
    if search != "own":
        from .translating import change_search  # images do without its imports

        predictor = change_search(predictor, search, seed, signature)
    if scores:
        predictor = _with_scores(predictor, search)
    if predictor.kind == "translator":
        return predictor.towards(target_language)
    if target_language is not None:
        raise ValueError(f"--target-language is of translators. Received: a {predictor.kind}")
    return predictor


def _with_scores(predictor, search):
    """Returns the predictor whose answers have log-probabilities."""
    if predictor.kind not in ("translator", "text_generator"):
        raise ValueError(
            f"--scores is of translators and text generators. Received: a {predictor.kind}"
        )
    if search != "own":
        raise ValueError(f"--scores must be left out beside --search. Received: {search}")
    try:
        return predictor.telling()
    except AttributeError as error:  # of a SavedModel of an older version
        raise ValueError(f"--scores: {error}") from None


def load_translator(folder, *options):
    """Loads the predictor of a translator; ValueError if it is of another kind."""
    predictor = load_predictor(folder, *options)
    if predictor.kind != "translator":
        raise ValueError(f"{folder} must be a translator. Received: a {predictor.kind}")
    return predictor


def answer_rows(predictor, rows):
    """Returns JSON lines, bytes, with the answer to each `Row` of a list.

    Texts are one request, whose rows the exported program sorts by length itself.
    """
    good = [row.content for row in rows if not isinstance(row.content, Refused)]
    # A detector gives its sure answers only.
    answers = predictor.each(good, details=predictor.kind != "detector")
    lines = []
    for row in rows:
        answer = row.content if isinstance(row.content, Refused) else next(answers)
        lines.append(record(predictor.kind, row, answer))
    return b"".join(lines)


class Shards:
    """The finished shards of a job.

    A shard is a file of JSON lines, one for each row. Each shard has one file with its number,
    however often it is computed, so that no row is lost and none doubled.

    Args:
        path: Folder; made if it is missing.
        about: What the job is, a dict that goes through JSON. Another in the same folder is
            refused.

    Raises:
        ValueError: If the folder holds another job, or another process is at work in it.
    """

    def __init__(self, path, about):
        self.path, self._parts = pathlib.Path(path), pathlib.Path(path, "shards")
        self._lock = lock_folder(self.path)
        self._job = self.path / "job.json"
        about = json.loads(json.dumps(about))
        if self._job.is_file():
            begun = self._read_job()
            _check_same(path, begun["about"], about)
            answers = self.path / f"predictions.{about['format']}"
            # Answers that somebody has moved away are computed again.
            self.finished = begun["finished"] if answers.is_file() else None
        else:
            self.finished = None
            write_whole(self._job, json.dumps({"about": about, "finished": None}).encode())
        self._about = about
        self._parts.mkdir(exist_ok=True)
        if self.finished:
            shutil.rmtree(self._parts)

    def _read_job(self):
        try:
            begun = json.loads(self._job.read_text(encoding="utf-8"))
            if isinstance(begun["about"], dict) and isinstance(begun["finished"], dict | None):
                return begun
        except (ValueError, KeyError, TypeError):
            pass
        raise ValueError(
            f"{self._job} is damaged: it does not say which predictions are in {self.path}. "
            "Delete it, or choose another --output."
        )

    def missing(self, number):
        """Returns the numbers of the shards, of `number` in all, that are missing."""
        return [i for i in range(number) if not self._of(i).is_file()]

    def write(self, number, lines):
        """Writes the JSON lines of a shard, bytes."""
        write_whole(self._of(number), lines)

    def join(self, number, form, kind):
        """Writes `predictions` and the bad rows from all shards, in order, and ends the job.

        Args:
            number: Of shards.
            form: "jsonl", or "txt": a line of text for each row, empty for a bad one.
            kind: Of the predictor.

        Returns:
            Dict of `rows` and `bad_rows`.
        """
        counts = {"rows": 0, "bad_rows": 0}
        paths = [self.path / f"predictions.{form}", self.path / BAD_ROWS]
        parts = [path.with_name(f"{path.name}.part") for path in paths]
        options = {"encoding": "utf-8", "errors": "backslashreplace", "newline": ""}
        with open(parts[0], "wb") as answers, open(parts[1], "w", **options) as bad:
            table = csv.writer(bad, delimiter="\t")
            table.writerow(["row", "file", "reason", "content"])
            for line in self._lines(number):
                record = json.loads(line)
                counts["rows"] += 1
                if "error" in record:
                    counts["bad_rows"] += 1
                    content = record.pop("content")
                    table.writerow(
                        [record["row"], record.get("file", ""), record["error"], content]
                    )
                    line = _json_line(record)
                if form == "txt":
                    text = record.get(LINE[kind], "")
                    text = ", ".join(record["labels"]) if "labels" in record else text
                    line = " ".join(text.splitlines()).encode() + b"\n"
                answers.write(line)
        for part, path in zip(parts, paths, strict=True):
            part.replace(path)
        return counts

    def end(self, finished):
        """Marks the job as finished, with measurements, and removes the shards."""
        self.finished = finished
        about = {"about": self._about, "finished": finished}
        write_whole(self._job, json.dumps(about, indent=2).encode())
        shutil.rmtree(self._parts)

    def _of(self, number):
        return self._parts / f"{number:07}.jsonl"

    def _lines(self, number):
        for i in range(number):
            with open(self._of(i), "rb") as file:
                yield from file


def write_whole(path, content):
    """Writes a whole file or nothing, whenever the process or the machine stops."""
    part = path.with_name(f"{path.name}.part")
    with open(part, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    part.replace(path)


def record(kind, row, answer):
    """Returns a JSON line, bytes, for a `Row` and its answer, or a `Refused`."""
    entry = {"row": row.number} | ({} if row.file is None else {"file": row.file})
    if isinstance(answer, Refused):
        content = row.content if row.shown is None else row.shown
        if isinstance(content, bytes):
            content = content.decode("utf-8", "backslashreplace")
        return _json_line(entry | {"error": answer.reason, "content": str(content)[:SHOWN]})
    return _json_line(entry | ({"boxes": answer} if kind == "detector" else answer))


def _json_line(value):
    # A str may hold half a surrogate pair, which JSON can say and UTF-8 cannot.
    return json.dumps(value, ensure_ascii=False).encode("utf-8", "backslashreplace") + b"\n"


def _check_same(path, begun, now):
    """Raises a ValueError if a folder holds predictions of another job."""
    for name in now:
        if begun.get(name) != now[name]:
            before, after = (
                str(description)[:SHOWN] for description in (begun.get(name), now[name])
            )
            raise ValueError(
                f"{path} holds predictions that were begun with another {name}; choose another "
                f"--output, or delete it. There: {before}. Received: {after}"
            )


class Worker:
    """A model in a process of its own, which Ray Data calls with one shard at a time.

    Args:
        asked: Arguments of `loaded`, a tuple.
        threads: For TensorFlow.
    """

    def __init__(self, arguments, threads):
        import tensorflow as tf

        tf.config.threading.set_intra_op_parallelism_threads(threads)
        tf.config.threading.set_inter_op_parallelism_threads(1)

        self._predictor = load_predictor(*arguments)

    def __call__(self, batch):

        lines = [answer_rows(self._predictor, pickle.loads(rows)) for rows in batch["rows"]]
        return {"shard": batch["shard"], "lines": lines}


def answer_by_workers(shards, config):
    """Yields pairs of number and JSON lines of shards, in the order in which workers end them.

    Ray Data gives each shard to a worker that has the model, and gives it out again when the worker
    is lost. It only promises that every shard is answered at least once, in any order. So each
    answer becomes a file named by its shard at once: a second answer replaces the first, and rows
    are neither lost nor doubled.

    Args:
        shards: Iterable of pairs of number and list of `Row`s.
        config: The `JobOptions`.

    Raises:
        ValueError: If Ray is not installed, or workers are lost again and again.
    """
    ray = _ray()
    folder, *options = config.load_arguments
    arguments = str(pathlib.Path(folder).absolute()), *options  # a worker may be at work in another
    cpus = config.worker_cpus
    if cpus is None:  # cores of this machine are shared out; of a cluster's, each has one
        cpus = 1 if config.address else max((os.cpu_count() or 1) // config.workers, 1)
    with _cluster(ray, config, cpus):
        shards = iter(shards)
        while window := list(itertools.islice(shards, WINDOW)):
            items = [{"shard": number, "rows": pickle.dumps(rows)} for number, rows in window]
            dataset = ray.data.from_items(items, override_num_blocks=len(items)).map_batches(
                Worker,
                fn_constructor_args=(arguments, cpus),
                batch_size=1,
                compute=ray.data.ActorPoolStrategy(size=min(config.workers, len(items))),
                num_cpus=cpus,
                num_gpus=config.worker_gpus or None,
                max_restarts=-1,
                max_task_retries=TRIES,
            )
            try:
                for row in dataset.iter_rows():
                    yield int(row["shard"]), row["lines"]
            except ray.exceptions.RayError as error:
                why = str(error).strip().splitlines()[-1]
                raise ValueError(f"The workers cannot go on: {why}") from error


def _ray():
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nothing is reported to anyone
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    # Ray's core logs an error for every actor that may restart and has arguments, as Ray Data's
    # have. A lost worker raises an exception, which is reported.
    os.environ.setdefault("RAY_BACKEND_LOG_LEVEL", "fatal")
    try:
        import ray
        import ray.data
    except ImportError as error:
        raise ValueError(
            f"--workers needs Ray Data: pip install 'keras_transformers[ray]' ({error})."
        ) from None
    return ray


@contextlib.contextmanager
def _cluster(ray, config, cpus):
    """A scope with Ray, on this machine or as a client of a cluster, without progress bars."""
    quiet = {"log_to_driver": False, "logging_level": logging.ERROR}
    if config.address:
        ray.init(config.address, **quiet)
    else:
        ray.init(
            "local",
            num_cpus=cpus * config.workers,
            include_dashboard=False,
            object_store_memory=1 << 28,
            **quiet,
        )
    context = ray.data.DataContext.get_current()
    context.enable_progress_bars = False
    logging.getLogger("ray.data").setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            # What says how often a shard is tried; without it, one that ends every worker would be
            # tried for ever.
            warnings.filterwarnings("ignore", ".*ray_remote_args. is deprecated")
            yield
    finally:
        ray.shutdown()
