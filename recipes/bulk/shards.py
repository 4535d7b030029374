"""A long job in a folder: shards that are written whole or not at all, and joined in the end."""

import csv
import json
import os
import pathlib
import shutil

from keras_transformers.predictors import Refused

from ..folder import locked

BAD_ROWS = "bad_rows.tsv"
SHOWN = 200  # characters of a bad row
# What of an answer is a line of text.
LINE = {
    "translator": "translation",
    "text_generator": "text",
    "mask_filler": "text",
    "text_classifier": "label",
    "image_classifier": "label",
    "array_classifier": "label",
}


class Shards:
    """The finished part of a job.

    A shard is a file of JSON lines, one a row. Whoever computes it, and however often, there is one
    file of its number, so that no row is lost and none doubled.

    Args:
        path: Folder; made if it is missing.
        about: What the job is, a dict that goes through JSON. Another in the same folder is
            refused.

    Raises:
        ValueError: If the folder holds another job, or another process is at work in it.
    """

    def __init__(self, path, about):
        self.path, self._parts = pathlib.Path(path), pathlib.Path(path, "shards")
        self._lock = locked(self.path)
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
        """Numbers of the shards, of `number` in all, that are not there yet."""
        return [i for i in range(number) if not self._of(i).is_file()]

    def write(self, number, lines):
        """Keeps the JSON lines of a shard, bytes."""
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
        text = {"encoding": "utf-8", "errors": "backslashreplace", "newline": ""}
        with open(parts[0], "wb") as answers, open(parts[1], "w", **text) as bad:
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
                    said = record.get(LINE[kind], "")
                    said = ", ".join(record["labels"]) if "labels" in record else said
                    line = " ".join(said.splitlines()).encode() + b"\n"
                answers.write(line)
        for part, path in zip(parts, paths, strict=True):
            part.replace(path)
        return counts

    def end(self, finished):
        """Says that the job is done, with what was measured, and removes the shards."""
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
    """All of it or nothing, whenever the process or the machine stops."""
    part = path.with_name(f"{path.name}.part")
    with open(part, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    part.replace(path)


def record(kind, row, answer):
    """A JSON line, bytes, for a `Row` and its answer, or a `Refused`."""
    told = {"row": row.number} | ({} if row.file is None else {"file": row.file})
    if isinstance(answer, Refused):
        shown = row.content if row.shown is None else row.shown
        if isinstance(shown, bytes):
            shown = shown.decode("utf-8", "backslashreplace")
        return _json_line(told | {"error": answer.reason, "content": str(shown)[:SHOWN]})
    return _json_line(told | ({"boxes": answer} if kind == "detector" else answer))


def _json_line(value):
    # A str may hold half a surrogate pair, which JSON can say and UTF-8 cannot.
    return json.dumps(value, ensure_ascii=False).encode("utf-8", "backslashreplace") + b"\n"


def _check_same(path, begun, now):
    for name in now:
        if begun.get(name) != now[name]:
            before, after = (str(each)[:SHOWN] for each in (begun.get(name), now[name]))
            raise ValueError(
                f"{path} holds predictions that were begun with another {name}; choose another "
                f"--output, or delete it. There: {before}. Received: {after}"
            )
