"""Drops sentence pairs that a translator should not learn from, and says how many and why.

    python -m recipes.clean_pairs pairs.tsv --output runs/cleaned/pairs.tsv
    python -m recipes.clean_pairs a.tsv.gz "shards/*.parquet" --dropped runs/cleaned/dropped.tsv
    python -m recipes.clean_pairs crawled.tsv --near-duplicates --repair --scripts latin han
    python -m recipes.clean_pairs crawled.tsv --languages en de  # with py3langid installed

Pairs are read and written one after the other, twice, as the ratio of lengths follows from the
corpus (`--length-scale` gives it, and saves half the time). In memory is a hash of each pair that
stays, 11 to 16 bytes for each kind of duplicates. `report.json` and `report.md` beside the output
have the reasons, with numbers and examples. The filters are in `keras_transformers.localization`;
what they know of noise is cited there.

Measured: of the 32,957 pairs of ui.en-de it drops 4 by its defaults, two of them rightly (a quote
and a digit that are missing), two not ("6 p.m." for "18 Uhr"; "e.g." and an address); of the 30,803
of bible.en-es the 98 that are there twice and nothing else. Near duplicates are 1,386 and 39
("Level 3" beside "Level 2"), which are good pairs; `--languages` drops 0 and 3 more (verses of
names). Of noise that was put in it finds 99 and 100 % of untranslated sentences of five words or
more, 51 and 50 % of targets cut to a third, but 28 and 8 % of sentences beside another's
translation: no rule sees what a text means. A million pairs take 101 s of two busy cores and 14
bytes of memory each. What a model gains from all this has not been measured.
"""

import contextlib
import dataclasses
import json
import time
from typing import Literal

import tyro

from keras_transformers import localization
from keras_transformers.tables import account

from .data.pair_files import PairFiles, Writer
from .lib.command_line import option_name, run_command

SAME = ("tag", "placeholder", "address")
SPACES = "pairs have a space for a tab or a line end inside a text"


@dataclasses.dataclass(frozen=True)
class Config:
    """The files to read and write, and the limits; 0 switches a limit off."""

    files: tyro.conf.Positional[tuple[str, ...]]  # source TAB target; .csv, .jsonl, .parquet, .gz
    output: str = "runs/clean_pairs/pairs.tsv"  # or .jsonl, .parquet: what stays
    dropped: str | None = None  # file for what does not, with its reason, file and line
    columns: tuple[str, ...] = ()  # of source and target: their names, or numbers from 1
    repair: bool = False  # undo damage to the encoding that can be undone, before all else
    min_words: int = 1  # 3 in Bicleaner's rules, for crawled text; a user interface has single ones
    min_characters: int = 1  # of each side; more for languages without spaces
    max_words: int = 100  # as in OpusFilter; 50 to 100 with Moses
    max_characters: int = 1024  # as in Bicleaner's rules; alone counts where words have no spaces
    length_ratio: float = 3.0  # times what the other side calls for; 9 in Moses, 3 in OpusFilter
    length_scale: float | None = None  # target characters for one of the source; None learns it
    letters: float = 0.5  # least share, numbers and markup not counted; as in Bicleaner's rules
    copy_words: int = 5  # of a target that equals its source; names and terms are shorter
    duplicates: tuple[Literal["pair", "source", "target"], ...] = ("pair",)  # what is there once
    near_duplicates: bool = False  # nor pairs that differ in digits, case, punctuation alone
    scripts: tuple[str, ...] = ()  # of source and target: latin han+kana
    script_share: float = 0.5  # least, of letters; names in Latin letters stand everywhere
    languages: tuple[str, ...] = ()  # of source and target: en de; needs py3langid
    same: tuple[Literal["tag", "placeholder", "address", "entity"], ...] = SAME  # on both sides
    numbers: float = 0.5  # least share in common; OpusFilter's default
    brackets: bool = True  # one left open on one side alone; and straight quotes
    examples: int = 3  # of each reason, in the report


def filters_of(config):
    """Returns the filters of the options, in their order.

    Raises:
        ValueError: If an option is out of its range.
    """
    _check(config)
    ratio = localization.LengthRatio(config.length_ratio or 1, scale=config.length_scale)
    candidates = [
        (True, localization.Empty()),
        (True, localization.Encoding()),
        (True, localization.TooShort(config.min_words, config.min_characters)),
        (True, localization.TooLong(config.max_words or 10**9, config.max_characters or 10**9)),
        (config.letters, localization.FewLetters(config.letters)),
        (config.copy_words, localization.Copies(config.copy_words)),
        *((True, localization.Placeables(kind)) for kind in config.same),
        (config.numbers, localization.Placeables("number", config.numbers, alone=4)),
        (config.brackets, localization.Brackets()),
        (config.brackets, localization.Quotes()),
    ]
    if config.scripts:
        candidates.append((True, localization.Scripts(*config.scripts, share=config.script_share)))
    if config.languages:
        candidates.append((True, localization.LanguageMatch(*config.languages)))
    candidates += [(True, localization.Duplicates(side)) for side in config.duplicates]
    candidates.append((config.near_duplicates, localization.Duplicates(near=True)))
    candidates.append((config.length_ratio, ratio))
    return [pair_filter for is_used, pair_filter in candidates if is_used]


def _check(config):
    """Raises a ValueError if an option is out of its range."""
    options = dataclasses.asdict(config)
    for name in ("scripts", "languages"):
        if len(options[name]) not in (0, 2):
            raise ValueError(
                f"{option_name(name)} takes two, of source and target. "
                f"Received: {' '.join(options[name])}"
            )
    for name in ("letters", "numbers", "script_share"):
        if not 0 <= options[name] <= 1:
            raise ValueError(
                f"{option_name(name)} is a share, from 0 to 1. Received: {options[name]}"
            )
    numbers = ("min_words", "min_characters", "max_words", "max_characters", "copy_words")
    for name in (*numbers, "examples"):
        if options[name] < 0:
            raise ValueError(f"{option_name(name)} must be 0 or more. Received: {options[name]}")


def run(config):
    """Reads pairs, filters them and writes them; returns the `CleaningReport`.

    Raises:
        ValueError: If an option is out of its range, a file is no table, or none stays.
    """
    if not config.files:
        raise ValueError("Give files of sentence pairs, or patterns in quotes.")
    started = time.perf_counter()
    pairs = PairFiles(config.files, config.columns)
    writer = Writer(config.output, ("source", "target"))
    names = ("source", "target", "reason", "file", "line")
    dropped = Writer(config.dropped, names, head=True) if config.dropped else None
    reports = [writer.path.with_name(f"report.{kind}") for kind in ("json", "md")]
    _check_apart(pairs.files, [writer.path, *reports, *([dropped.path] if dropped else [])])
    cleaner = localization.PairCleaner(filters_of(config), config.repair, config.examples)
    if cleaner.unfitted:
        print("First pass: the ratio of lengths. Second pass: cleaning.", flush=True)
        cleaner = cleaner.fitted(pairs)
    with writer, dropped or contextlib.nullcontext():
        for pair in cleaner.clean(pairs):
            if pair.reason is None:
                writer.add((pair.source, pair.target))
            elif dropped:
                path, line = pairs.at
                dropped.add((*pair, str(path), str(line)))
        if not cleaner.report.kept:
            reasons = account(dropped=cleaner.report.dropped)
            raise ValueError(f"No pair stays of {cleaner.report.read:,} rows{reasons}.")
    report = cleaner.report
    report.noted[SPACES] += writer.spaces
    scales = [
        pair_filter.scale
        for pair_filter in cleaner.filters
        if isinstance(pair_filter, localization.LengthRatio)
    ]
    measured = {"length_scale": scales[0] if scales else None}
    measured["seconds"] = time.perf_counter() - started
    record = {"options": dataclasses.asdict(config), **report.as_dict(), **measured}
    text = report.markdown()
    reports[0].write_text(json.dumps(record, indent=2, ensure_ascii=False), encoding="utf-8")
    reports[1].write_text(f"# {writer.path.name}\n\n{text}", encoding="utf-8")
    print(text)
    print(
        f"{report.read / measured['seconds']:,.0f} rows a second. What stays is in {writer.path}."
    )
    return report


def _check_apart(read, written):
    """Raises a ValueError if a file would be written over an input, or twice."""
    paths = [path.resolve() for path in written]
    for path in {*paths}:
        if path in {path_read.resolve() for path_read in read} or paths.count(path) > 1:
            raise ValueError(f"{path} would be written over; choose another --output or --dropped.")


def main():
    """Runs the command line."""
    run_command("clean_pairs", Config, __doc__, run)


if __name__ == "__main__":
    main()
