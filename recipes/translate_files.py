"""Translates whole files, and leaves all of them that is no text as it is.

    python -m recipes.translate_files runs/translation README.md --output translated
    python -m recipes.translate_files runs/translation "site/**/*.html" de.po --output translated

Of plain text (.txt), Markdown (.md), HTML (.html, .htm, .xhtml), messages of programs (.po, .pot),
XLIFF 1.2 and 2 (.xlf, .xliff), subtitles (.srt) and documents (.docx) the texts are translated,
sentence by sentence, all files at once; code, links, tags, comments and white space stay, byte for
byte. Messages of PO and XLIFF files that have a translation are left alone unless `--all` is given.
`report.json` beside the files says how many sentences there were and what was left as it is, and
why.

Markup inside a sentence is kept in one of three ways, see
`keras_transformers.localization.FileTranslator`: as tags that the model carries over, around the
translation of the words that it surrounds, or by translating what stands between it for itself. The
last reads worse and never breaks a file. It needs `pip install 'keras_transformers[documents]'`.

A model that was trained with `--context` reads the sentences before each in its file.

Measured: of 296 Markdown and 696 HTML files (documentation of Rust, Node.js and Python packages) a
translator that says what it was told makes the very same bytes, and one that loses all markup
breaks none; 42 of 6,759 Markdown texts then stay as they are. Four PO files of Django (of German,
Russian and Arabic; 1,360 texts), emptied and translated into German by a small model, take 17 s on
two busy cores and compile with `msgfmt --check`. Of 144 sentences with markup or placeholders that
model carried none over as tags: 3 had it put around the same words, 141 were translated in pieces.
"""

import collections
import dataclasses
import glob
import json
import os
import pathlib
import time

import tyro

from keras_transformers.localization import FileTranslator, SentenceSplitter, read_file
from keras_transformers.predictors import Refused

from .lib.command_line import run_command
from .lib.jobs import load_translator, write_whole

REPORT = "report.json"


@dataclasses.dataclass(frozen=True)
class Config:
    """The files to translate, and the translator."""

    folder: tyro.conf.Positional[str]  # of a run, with published weights, or a SavedModel
    files: tyro.conf.Positional[tuple[str, ...]]  # or patterns in quotes
    output: str = "runs/translated"  # folder; files keep their names, and folders they share
    language: str = "en"  # of the files; it says where their sentences end
    target_language: str | None = None  # of a translator into several: "de"
    all: bool = False  # also what has a translation, in PO and XLIFF files
    overwrite: bool = False  # files that are there
    signature: str = "serving_default"  # or "xla", compiled, where there is one
    batch_size: int | None = None  # sentences of a request; 1,024
    context: int | None = None  # previous sentences that are read before each; as many as trained


def find(config):
    """Returns pairs of a file to read and the file to write.

    Raises:
        ValueError: If there are no files, or one would be written over.
    """
    paths_read = []
    for pattern in config.files:
        exact = pathlib.Path(pattern)
        paths = [exact] if exact.exists() else map(pathlib.Path, glob.glob(pattern, recursive=True))
        if not (paths := sorted(path for path in paths if path.is_file())):
            raise ValueError(f"{pattern}: there is no such file.")
        paths_read += [path for path in paths if path not in paths_read]
    if not paths_read:
        raise ValueError("Give files to translate, or patterns in quotes.")
    shared = os.path.commonpath([path.absolute().parent for path in paths_read])
    output = pathlib.Path(config.output)
    pairs = [(path, output / path.absolute().relative_to(shared)) for path in paths_read]
    read = {path.resolve() for path in paths_read}
    for _, path in [*pairs, (None, output / REPORT)]:
        if path.resolve() in read:
            raise ValueError(f"{path} would be written over; choose another --output.")
        if path.exists() and path.name != REPORT and not config.overwrite:
            raise ValueError(f"{path} is there already; choose another --output, or --overwrite.")
    return pairs


def asker(config):
    """Returns a function that translates a list of texts, and the number of context sentences.

    The function returns None for a text that is cut or refused.
    """
    predictor = load_translator(config.folder, config.signature, config.target_language)
    context = predictor.context if config.context is None else config.context
    if not 0 <= context <= predictor.context:
        trained = f"up to {predictor.context}" if predictor.context else "no"
        raise ValueError(
            f"--context: {config.folder} was trained with {trained} previous sentences. "
            f"Received: {context}"
        )

    def ask(texts):
        print(f"Translates {len(texts):,} texts.", flush=True)
        answers = predictor.each(texts, config.batch_size, details=True)
        return [
            None if isinstance(answer, Refused) or answer["truncated"] else answer["translation"]
            for answer in answers
        ]

    return ask, context


def run(config):
    """Translates the files; returns a dict of counts.

    Raises:
        ValueError: If a file is damaged or of another kind, would be written over, or the model is
            no translator. Nothing is written then.
    """
    pairs = find(config)
    split = SentenceSplitter(config.language)
    files = [read_file(path, config.all) for path, _ in pairs]
    started = time.perf_counter()
    ask, context = asker(config)
    translator = FileTranslator(ask, split, context)
    translated = translator.translate(files)
    contents = [file.rebuilt(new) for file, new in zip(files, translated, strict=True)]
    seconds = time.perf_counter() - started
    for (_, path), content in zip(pairs, contents, strict=True):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, content)
    report = {
        "files": len(files),
        **translator.counts,
        "texts left as they are": dict(
            sum((file.left_out for file in files), collections.Counter())
        ),
        "seconds": seconds,
        "by file": {
            str(path): {"segments": len(file.segments), "left as they are": dict(+file.left_out)}
            for (path, _), file in zip(pairs, files, strict=True)
        },
    }
    text = json.dumps(report, indent=2, ensure_ascii=False)
    write_whole(pathlib.Path(config.output, REPORT), text.encode())
    _say(config, report)
    return report


def _say(config, report):
    print(
        f"{report['files']:,} files, {report['segments']:,} texts, {report['sentences']:,} "
        f"sentences in {report['seconds']:,.1f} s."
    )
    for name, number in report.items():
        if name.startswith("sentences ") and number:
            print(f"  {number:,} {name}")
    for why, number in report["texts left as they are"].items():
        print(f"  {number:,} texts left as they are: {why}")
    print(f"The files are in {config.output}, and a report of each in {REPORT}.")


def main():
    """Runs the command line."""
    run_command("translate_files", Config, __doc__, run, compiles=True)


if __name__ == "__main__":
    main()
