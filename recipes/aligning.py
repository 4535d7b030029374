"""Guided alignment in the translation recipe: links of words, and a head that learns them."""

import pathlib
import shutil
import subprocess
import tempfile

from keras_transformers.alignment import learn_alignment, read_pharaoh

from .data.directions import JoinedCorpus

EFLOMAL = "eflomal-align"


def links_for(asked, data):
    """Links of each training pair, or None where none are asked for.

    Args:
        asked: File of links in Pharaoh's format, a line for each pair that is kept; "eflomal", to
            let its program find them; or None.
        data: The `TranslationData`.

    Raises:
        ValueError: If there is no such file or program, the file has another number of lines or
            something else in it, or the data is a stream or of several directions.
    """
    if asked is None:
        return None
    if data.shards is not None or isinstance(data.train, JoinedCorpus):
        raise ValueError(
            "--guided-alignment: links belong to the pairs of one file of one direction; a stream "
            "and several directions have none."
        )
    if asked == "eflomal":
        forward, reverse = eflomal_links([data.train])
        return [sorted(one & other) for one, other in zip(forward, reverse, strict=True)]
    path = pathlib.Path(asked)
    if not path.is_file():
        raise ValueError(f'--guided-alignment: there is no file {path}; or give "eflomal".')
    lines = path.read_text(encoding="utf-8-sig").splitlines()
    if len(lines) != len(data.train):
        raise ValueError(
            f"--guided-alignment: {path} must have a line for each training pair that is kept, "
            f"{len(data.train)}. It has {len(lines)}."
        )
    return _read(lines, path)


def _read(lines, path):
    found = []
    for number, line in enumerate(lines, 1):
        try:
            found.append(read_pharaoh(line))
        except ValueError as error:
            raise ValueError(f"--guided-alignment: {path}, line {number}: {error}") from None
    return found


def eflomal_links(corpora, program=EFLOMAL):
    """Links from source to target and the other way, sets for each pair of all corpora.

    By eflomal (Östling & Tiedemann 2016, https://doi.org/10.1515/pralin-2016-0013): `pip install
    eflomal`.

    Raises:
        ValueError: If its program is not installed, or fails.
    """
    if shutil.which(program) is None:
        raise ValueError(f"There is no program {program}; `pip install eflomal` has it.")
    with tempfile.TemporaryDirectory() as folder:
        paths = {name: pathlib.Path(folder, name) for name in ("s", "t", "f", "r")}
        for name, side in (("s", "sources"), ("t", "targets")):
            lines = [" ".join(line.split()) for each in corpora for line in getattr(each, side)]
            paths[name].write_text("\n".join(lines) + "\n", encoding="utf-8")
        options = [part for name, path in paths.items() for part in (f"-{name}", str(path))]
        done = subprocess.run([program, *options], capture_output=True, text=True)
        if done.returncode:
            said = done.stderr.strip().splitlines() or ["it says nothing"]
            raise ValueError(f"{program} failed: {said[-1]}")
        forward, reverse = (
            [set(read_pharaoh(line)) for line in paths[name].read_text().splitlines()]
            for name in ("f", "r")
        )
    return forward, reverse


def teaching(model, tokenizer, data, links):
    """A function of the path at which to keep a head that has learned the links; or None."""
    if links is None:
        return None

    def teach(path):
        corpus = data.train
        head = learn_alignment(model, tokenizer, corpus.sources, corpus.targets, links)
        head.save(path)

    return teach
