"""Asks a trained model: of a run, a published folder, or a SavedModel.

    python -m recipes.predict runs/translation "Open the door" "Close the window"
    python -m recipes.predict runs/language_model "Once" --stream
    python -m recipes.predict runs/vit runs/vit/example.png
    python -m recipes.predict runs/translation --input lines.txt.gz --output translated
    python -m recipes.predict runs/text_classification --input 'mails/*.jsonl' --output classes
    python -m recipes.predict runs/vit --input images --output classes --workers 4
    python -m recipes.predict runs/language_model "To be" --scores

With texts or images on the command line, the answers are printed, a line each; with `--stream`
while they are written. With `--input`, many rows are answered into the folder of `--output`:
`predictions.txt` or `.jsonl`, one line a row in the order of the input, and `bad_rows.tsv`. A run
that was killed goes on where it was when the same command is given again.
"""

import dataclasses
import itertools
import json
import pathlib
import typing

import tyro

from keras_transformers.predictors import Refused

from .lib import jobs, rows
from .lib.command_line import INTERRUPTED, run_command
from .lib.jobs import BAD_ROWS, LINE, load_predictor


@dataclasses.dataclass(frozen=True)
class Config(jobs.JobOptions):
    """The requests, and how they are answered."""

    raw: tyro.conf.Positional[tuple[str, ...]] = ()  # texts, or paths of images
    input: str | None = None  # a file, a pattern in quotes, or a folder: .txt, .tsv, .csv, .jsonl,
    # .json, .parquet (texts also .gz or .xz), or images
    output: str | None = None  # folder for the answers to --input
    stream: bool = False  # print what a text generator, or a translator without beams (--search
    # greedy), writes while it writes it
    format: typing.Literal["txt", "jsonl"] | None = None  # txt of a translator, else jsonl
    scores: bool = False  # of translators and text generators: log-probabilities, too, in jsonl

    @property
    def load_arguments(self):
        """The arguments of `load_predictor`."""
        return *super().load_arguments, self.scores


def ask(config):
    """Prints the answers to the requests of the command line."""
    predictor = load_predictor(*config.load_arguments)
    for number, answer in enumerate(predictor.each(config.raw)):
        if isinstance(answer, Refused):
            raise ValueError(f"argument {number + 1} {answer.reason}")
        print(answer if isinstance(answer, str) else json.dumps(answer, ensure_ascii=False))


def ask_streaming(config):
    """Prints the continuation of each text of the command line while it is written."""
    predictor = load_predictor(*config.load_arguments)
    if not hasattr(predictor, "stream"):
        raise ValueError(
            f"--stream is of text generators and translators. Received: a {predictor.kind}"
        )
    try:
        for text in config.raw:
            pieces = predictor.stream(text)
            for piece in itertools.chain([pieces.prompt], pieces):
                print(piece, end="", flush=True)
            print(flush=True)
    except KeyboardInterrupt:
        print(flush=True)
        raise SystemExit(INTERRUPTED) from None


def ask_many(config):
    """Answers all rows of the input into the output folder; returns measurements."""
    predictor = load_predictor(*config.load_arguments)
    is_line = predictor.kind == "translator" and not config.scores
    form = config.format or ("txt" if is_line else "jsonl")
    if form == "txt" and config.scores:
        raise ValueError("--format must be jsonl beside --scores. Received: txt")
    if form == "txt" and predictor.kind not in LINE:
        raise ValueError(f"--format must be jsonl for a {predictor.kind}. Received: txt")
    input_rows = rows.find(config.input, predictor.takes, config.column, config.field)
    measured = jobs.answer(config, predictor, input_rows, config.output, form)
    output = pathlib.Path(config.output)
    if bad := measured["bad_rows"]:
        print(f"{bad:,} bad rows, which have no answer, are in {output / BAD_ROWS}")
    print(f"The answers are in {output / f'predictions.{form}'}")
    return measured


def run(config):
    """Answers the command line or the input.

    Raises:
        ValueError: If both or neither of command line and files, or what cannot be.
    """
    if bool(config.raw) == bool(config.input):
        raise ValueError("Give texts or images to ask about, or --input, and not both.")
    if bool(config.input) != bool(config.output):
        raise ValueError("--input and --output go together.")
    if config.stream and config.input:
        raise ValueError("--stream is of texts on the command line, not of --input.")
    config.check()
    if config.stream:
        return ask_streaming(config)
    return ask_many(config) if config.input else ask(config)


def main():
    """Runs the command line."""
    run_command("predict", Config, __doc__, run, compiles=True)


if __name__ == "__main__":
    main()
