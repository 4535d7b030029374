"""Tokenizers of `tokenizer.json`: are 100,000 lines cut the same both ways, and how fast.

    pip install -e '.[recipes,text]'
    python -m benchmarks.tokenizing --texts /usr/share/locale

The texts are the lines of whatever `.txt` files and `.mo` files (catalogues of translations, as
systems and packages have them in many languages) the folders have, each line once, in an order that
is drawn by a seed. How many lines each script has is printed. One tokenizer of each kind learns a
vocabulary of 8,000 from 20,000 other lines; the kinds are those of `tests/text/scripts.py`.

Compared are the ids of the package `tokenizers` and those of TensorFlow's ops in a graph, line by
line; what differs is shown. Timed are both, in batches of 1,000 lines, and ours in `tf.data`.
"""

import argparse
import gettext
import json
import pathlib
import random
import time
import unicodedata

import tensorflow as tf

from benchmarks.report import heading, table, write
from keras_transformers.text import FastTokenizer
from tests.text import scripts

BATCH, VOCAB, LEARNT_FROM, SHOWN = 1000, 8000, 20_000, 5


def lines_of(folders):
    """All different lines of the texts in folders, shuffled."""
    found = {}
    for folder in folders:
        for path in sorted(pathlib.Path(folder).rglob("*")):
            if path.suffix in (".mo", ".txt") and path.is_file():
                found |= dict.fromkeys(_lines(path))
    lines = sorted(found)
    random.Random(0).shuffle(lines)
    return lines


def _lines(path):
    try:
        if path.suffix == ".txt":
            texts = [path.read_text(encoding="utf-8")]
        else:
            with path.open("rb") as file:
                texts = gettext.GNUTranslations(file)._catalog.values()
    except (UnicodeDecodeError, OSError, ValueError, LookupError):
        return []
    return [line for text in texts for line in text.splitlines() if line.strip()]


def script_of(line):
    """The script of most letters, by their names."""
    letters = [unicodedata.name(c, "OTHER").split()[0] for c in line if c.isalpha()]
    return max(set(letters), key=letters.count) if letters else "none"


def counted(lines):
    counts = {}
    for line in lines:
        script = script_of(line)
        counts[script] = counts.get(script, 0) + 1
    return dict(sorted(counts.items(), key=lambda pair: -pair[1]))


def of_kind(name, lines, learn):
    definition = scripts.learnt(name, VOCAB, learn)
    ours = FastTokenizer(definition, start="<s>", end="</s>", padding="<pad>")
    ours.check_exportable()
    signature = [tf.TensorSpec([None], tf.string)]
    in_graph = tf.function(ours.tokenize, input_signature=signature)
    batches = [tf.constant(lines[i : i + BATCH]) for i in range(0, len(lines), BATCH)]
    figures = {}
    ids = {}
    for way, call in (("package", ours.tokenize), ("ops", in_graph)):
        call(batches[0])
        start = time.perf_counter()
        rows = [call(batch) for batch in batches]
        seconds = time.perf_counter() - start
        ids[way] = [row for batch in rows for row in batch.to_list()]
        tokens = sum(map(len, ids[way]))
        figures[f"{way}, tokens a second"] = f"{tokens / seconds:,.0f}"
    different = [i for i, pair in enumerate(zip(*ids.values(), strict=True)) if pair[0] != pair[1]]
    for i in different[:SHOWN]:
        print(name, repr(lines[i])[:200], flush=True)
    return {"different lines": len(different), "tokens": f"{tokens:,}", **figures}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--texts", nargs="+", required=True)
    parser.add_argument("--lines", type=int, default=100_000)
    parser.add_argument("--kinds", nargs="+", default=list(scripts.KINDS))
    asked = parser.parse_args()
    found = lines_of(asked.texts)
    lines, learn = found[: asked.lines], found[asked.lines :][:LEARNT_FROM] or found[:LEARNT_FROM]
    counts = counted(lines)
    print(json.dumps(counts), flush=True)
    rows = {}
    for name in asked.kinds:
        rows[name] = of_kind(name, lines, learn)
        print(table({name: rows[name]}), flush=True)
    what = f"{len(lines):,} lines, of {len([n for n in counts.values() if n >= 100])} scripts"
    packages = ("tensorflow", "tensorflow-text", "tokenizers")
    result = {**heading(*packages), "what": what, "scripts": counts, "rows": rows}
    write("tokenizing", result, {f"{what}, vocabularies of {VOCAB:,}": rows})


if __name__ == "__main__":
    main()
