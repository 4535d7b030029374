"""Mutated files of every kind that the package reads: each ends in an answer or in a sentence.

    python -m tests.faults --only mutations --tries 1000     # 20,000 files, about an hour

A mutation changes bits, bytes, numbers or lengths of a good file, cuts it, or repeats, removes or
exchanges parts of it. Files are read in a process that has imported the package, one after the
other; a file that takes more than `SECONDS` of CPU or `BYTES`, raises anything but what a command
line shows as a sentence, or ends the process, is a fault, and stays in the folder `faults`.
"""

import contextlib
import io
import json
import os
import pathlib
import random
import re
import select
import shutil
import subprocess
import sys
import time
import warnings

from tests.faults.runs import ROOT

SECONDS, BYTES = 5, 1 << 30
PATIENCE = 60  # seconds of wall time for a file, after which a process is killed
START = 600  # the same for its imports
ALLOWED = (ValueError, OSError)  # which `recipes.lib.command_line` turns into a sentence
SHARES = {"images": 6, "tokenizers": 4, "tables": 4, "documents": 3, "checkpoints": 3}
NUMBER = re.compile(rb"-?\d+(?:\.\d+)?")
NUMBERS = (b"-1", b"0", b"1e999", b"NaN", b"50000000", b"4294967296", b"9" * 40, b"0.5", b"null")
WORDS = (0, 1, 0x7F, 0x80, 0xFF, 0x7FFF, 0xFFFF, 0x7FFFFFFF, 0xFFFFFFFF)


def mutated(content, rng):
    """A changed copy of bytes; one to four changes."""
    content = bytearray(content)
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        rng.choice(CHANGES)(content, rng)
    return bytes(content)


def _flip(content, rng):
    for _ in range(rng.choice((1, 1, 8))):
        if content:
            content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)


def _write_word(content, rng):
    size = rng.choice((1, 2, 4, 8))
    value = (rng.choice(WORDS) & (1 << 8 * size) - 1).to_bytes(size, rng.choice(("big", "little")))
    start = rng.randrange(min(len(content), rng.choice((64, 1 << 30))) + 1)
    content[start : start + size] = value


def _change_number(content, rng):
    found = list(NUMBER.finditer(content[: 1 << 16]))
    if found:
        start, end = rng.choice(found).span()
        content[start:end] = rng.choice(NUMBERS)


def _span(content, rng):
    start = rng.randrange(len(content) + 1)
    return start, min(len(content), start + rng.choice((1, 4, 30, 1000)))


def _cut(content, rng):
    del content[rng.randrange(len(content) + 1) :]


def _remove(content, rng):
    start, end = _span(content, rng)
    del content[start:end]


def _repeat(content, rng):
    start, end = _span(content, rng)
    part, most = content[start:end], rng.choice((1, 10, 3000))
    content[start:start] = part * min(most, (1 << 17) // max(len(part), 1))


def _exchange(content, rng):
    (a, b), (c, _) = _span(content, rng), _span(content, rng)
    content[a:b] = content[c : c + b - a]


def _insert(content, rng):
    start = rng.randrange(len(content) + 1)
    content[start:start] = rng.choice(
        (rng.randbytes(8), b'"', b"<", b"[" * 2000, b"{", b"\xff" * 500, b"\x00" * 500, b"\n", b"&")
    )


CHANGES = (_flip, _write_word, _change_number, _cut, _remove, _repeat, _exchange, _insert)


class Images:
    """Files of pictures, which a classifier answers."""

    def __init__(self, folder):
        import numpy as np
        from PIL import Image

        import keras_transformers
        from keras_transformers import pretrained
        from tests.pretrained import folders

        rng = np.random.default_rng(0)
        waves = np.add.outer(np.arange(60) * 2, np.arange(90))[..., None] + [0, 40, 80]
        picture = Image.fromarray((waves + rng.integers(0, 20, waves.shape)).astype("uint8"))
        exif = Image.Exif()
        exif[0x0112] = 6
        forms = {
            "a.jpg": {"exif": exif},
            "progressive.jpg": {"progressive": True},
            "a.png": {},
            "a.bmp": {},
            "a.gif": {},
            "a.webp": {},
            "a.tif": {},
            "packed.tif": {"compression": "tiff_lzw"},
        }
        for name, options in forms.items():
            picture.save(folder / name, **options)
        picture.quantize(30).save(folder / "palette.png")
        np.save(folder / "a.npy", np.asarray(picture))
        published = folder.parent / "vit"
        published.mkdir(exist_ok=True)
        model = folders.vit(published)
        model.build((None, 16, 16, 3))
        pretrained.save(model, published)
        self._predictor = keras_transformers.load(published)

    def read(self, path):
        self._predictor.predict(path)


class Tokenizers:
    """Folders of tokenizers, of which one file is changed."""

    def __init__(self, folder):
        from keras_transformers import pretrained, text
        from tests.pretrained import folders, piece_folders

        for name in ("marian", "gpt2", "bert", "clip", "t5", "m2m", "fast", "own"):
            (folder / name).mkdir()
        for make in (folders.marian, folders.gpt2, folders.bert):
            make(folder / make.__name__)
        piece_folders.write(folder / "t5", "T5Tokenizer")
        piece_folders.write(folder / "m2m", "M2M100Tokenizer")
        folders.clip_pieces(folder / "clip")
        words = text.WordPieceTokenizer.train(["to be or not to be", "that is the question"], 60)
        pretrained.save_tokenizer(words, folder / "own")
        _write_fast_tokenizer(folder / "fast")

    def read(self, path):
        from keras_transformers import pretrained

        tokenizer = pretrained.load_tokenizer(path.parent)
        tokenizer.detokenize(tokenizer.tokenize(["To be, or not to be", ""]))


def _write_fast_tokenizer(folder):
    import tokenizers
    from tokenizers import decoders, models, pre_tokenizers, trainers

    fast = tokenizers.Tokenizer(models.BPE(unk_token="<unk>"))
    fast.pre_tokenizer = pre_tokenizers.ByteLevel()
    fast.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=300, special_tokens=["<unk>", "<s>", "</s>"])
    fast.train_from_iterator(["to be or not to be", "that is the question"] * 9, trainer)
    fast.save(str(folder / "tokenizer.json"))
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "</s>"}
    settings |= {"unk_token": "<unk>", "bos_token": "<s>"}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))


class Tables:
    """Tables of pairs, boxes, tags and arrays."""

    def __init__(self, folder):
        import csv
        import gzip
        import lzma

        import numpy as np
        import pyarrow
        import pyarrow.parquet
        from PIL import Image

        pairs = [(f"Open file {i}", f'Datei "{i}" öffnen, bitte') for i in range(200)]
        lines = "".join("\t".join(pair) + "\n" for pair in pairs).encode()
        (folder / "a.tsv").write_bytes(lines)
        (folder / "a.tsv.gz").write_bytes(gzip.compress(lines))
        (folder / "a.tsv.xz").write_bytes(lzma.compress(lines))
        with open(folder / "a.csv", "w", encoding="utf-8", newline="") as file:
            csv.writer(file).writerows([("source", "target"), *pairs])
        rows = [{"source": source, "target": target} for source, target in pairs]
        (folder / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        (folder / "a.json").write_text(json.dumps(rows))
        table = pyarrow.Table.from_pylist(rows)
        pyarrow.parquet.write_table(table, folder / "a.parquet")
        with pyarrow.OSFile(str(folder / "a.arrow"), "wb") as sink:
            with pyarrow.ipc.new_file(sink, table.schema) as writer:
                writer.write_table(table)
        _write_examples(folder / "a.tfrecord", rows)
        (folder / "a.conll").write_text("Angela\tB-PER\nMerkel\tI-PER\n\nHi\tO\n" * 20)
        (folder / "glossary.tsv.terms").write_text("file\tDatei\nopen\töffnen\tde\n")
        images = [{"id": i, "file_name": "of_boxes.png", "height": 9, "width": 8} for i in range(3)]
        boxes = [
            {"id": i, "image_id": i % 3, "category_id": 1, "bbox": [1, 1, 4.5, 3]} for i in range(9)
        ]
        coco = {"images": images, "annotations": boxes, "categories": [{"id": 1, "name": "cat"}]}
        (folder / "boxes.coco").write_text(json.dumps(coco))
        Image.new("RGB", (8, 9)).save(folder / "of_boxes.png")
        pixels = np.zeros((6, 5, 5), "uint8")
        arrays = {"x_train": pixels, "y_train": np.arange(6), "x_test": pixels}
        np.savez(folder / "a.npz", y_test=np.arange(6), **arrays)
        np.savez_compressed(folder / "packed.npz", y_test=np.arange(6), **arrays)

    def read(self, path):
        from keras_transformers import tables
        from keras_transformers.localization import Glossary
        from keras_transformers.text.texts import read_conll
        from keras_transformers.vision.boxes import read_coco
        from recipes.data.images import read_npz

        if path.suffix == ".npz":
            read_npz(path, "own")
        elif path.suffix == ".conll":
            read_conll(path)
        elif path.suffix == ".terms":
            Glossary.read(path)
        elif path.suffix == ".coco":
            read_coco(path)
        else:
            tables.read_table(path, tables.PAIRS, "source TAB target")


def _write_examples(path, rows):
    import tensorflow as tf

    def feature(text):
        return tf.train.Feature(bytes_list=tf.train.BytesList(value=[text.encode()]))

    with tf.io.TFRecordWriter(str(path)) as writer:
        for row in rows[:50]:
            features = {name: feature(text) for name, text in row.items()}
            example = tf.train.Example(features=tf.train.Features(feature=features))
            writer.write(example.SerializeToString())


class Documents:
    """Documents whose text is translated, and written again."""

    def __init__(self, folder):
        from tests.localization import samples

        for name, content in samples.SAMPLES.items():
            (folder / name).write_bytes(content)

    def read(self, path):
        from keras_transformers.localization import FileTranslator, read_file
        from tests.localization import samples

        file = read_file(path)
        translator = FileTranslator(samples.shout, samples.split)
        file.rebuilt(translator.translate([file])[0])


class Checkpoints:
    """Models, weights, published folders, adapters, and the checkpoints of a run."""

    def __init__(self, folder):
        import keras
        import numpy as np

        import keras_transformers
        from keras_transformers import models, pretrained, saving
        from keras_transformers.training import add_lora
        from keras_transformers.training.checkpoints import Checkpoints as Kept
        from tests.recipes import tiny_folders
        from tests.saving.hostile import victim

        self._victim = victim()
        self._victim.compile("adam", "mse")
        self._victim.save(folder / "a.keras")
        saving.save_weights(self._victim, folder / "a.weights.h5")
        saving.save_weights(self._victim, folder / "a.safetensors")
        sizes = {"hidden_dim": 12, "num_heads": 3, "mlp_dim": 20, "num_layers": 1}

        def gpt2():
            return models.LanguageModel.from_variant("small", 31, **sizes, padding_id=-1)

        model = gpt2()
        model.build((None, None))
        pretrained.save(model, folder / "published")
        self._adapted = gpt2
        add_lora(model, 2)
        pretrained.save_adapter(model, folder / "adapter")
        kept = Kept(folder / "kept", keep=2)
        for number in (3, 6):
            kept.write(number, {"kernel": np.ones((20, 3), "float32")}, {"total": number})
        (folder / "run").mkdir()
        tiny_folders.image_classifier(folder / "run")
        keras_transformers.load(folder / "run").save(folder / "predictor")
        keras.backend.clear_session()

    def read(self, path):
        import keras_transformers
        from keras_transformers import pretrained, saving
        from keras_transformers.training.checkpoints import Checkpoints as Kept

        if path.parent.name == "published":
            pretrained.load(path.parent)
        elif path.parent.name in ("run", "predictor"):
            keras_transformers.load(path.parent).model  # noqa: B018  which is read then
        elif path.parent.name == "adapter":
            model = self._adapted()
            model.build((None, None))
            pretrained.load_adapter(model, path.parent)
        elif "step-" in path.parent.name:
            Kept(path.parent.parent).newest()
        elif path.suffix == ".keras":
            saving.load_model(path)
        else:
            saving.load_weights(self._victim, path)


KINDS = {
    "images": Images,
    "tokenizers": Tokenizers,
    "tables": Tables,
    "documents": Documents,
    "checkpoints": Checkpoints,
}


def read_some(kind, folder, seed, start, count):
    """Reads mutated files in this process, and prints a line of JSON before and after each."""
    folder, start, count = pathlib.Path(folder), int(start), int(count)
    originals = folder / "originals"
    shutil.rmtree(originals, ignore_errors=True)
    originals.mkdir(parents=True)
    reader = KINDS[kind](originals)
    files = sorted(path for path in originals.rglob("*") if path.is_file())
    # A SavedModel is a program, which nobody reads without trust; and one image is there for boxes.
    files = [path for path in files if not {"saved_model", "of_boxes.png"} & {*path.parts}]
    out, sys.stdout = sys.stdout, io.StringIO()
    warnings.simplefilter("ignore")
    for path in files:  # what is imported and compiled once is not the cost of a file
        reader.read(_copy(originals, folder / "read", path))
    for number in range(start, start + count):
        rng = random.Random(f"{seed} {kind} {number}")
        path = rng.choice(files)
        copy = _copy(originals, folder / "read", path)
        copy.write_bytes(mutated(copy.read_bytes(), rng))
        name = str(path.relative_to(originals))
        opened = {"number": number, "file": name}
        print(json.dumps(opened), file=out, flush=True)
        pathlib.Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
        before, began = _memory("VmRSS"), time.process_time()
        end, what = ended(reader, copy)
        row = {"seconds": time.process_time() - began, "bytes": _memory("VmHWM") - before}
        row |= {"ended": end, "what": what}
        if _is_fault(row):
            _keep(folder, opened)
        print(json.dumps(row), file=out, flush=True)


def ended(reader, path):
    """How the reading of a file ended, and what it said."""
    try:
        reader.read(path)
    except ALLOWED as error:
        said = str(error)
        return "sentence" if said and len(said.splitlines()) == 1 else "several lines", said[:3000]
    except BaseException as error:  # a panic of a library in Rust is no Exception
        return "error", f"{type(error).__name__}: {error}"[:3000]
    return "answer", ""


def _copy(originals, folder, path):
    """Copies what is read together with a file; the copy of the file."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(originals, folder)
    return folder / path.relative_to(originals)


def _memory(name):
    status = pathlib.Path("/proc/self/status").read_text()
    return int(status.split(f"{name}:")[1].split()[0]) << 10


def _lines(process):
    """Lines of a process; None if it takes too long for the next."""
    seconds = START
    while True:
        ready, _, _ = select.select([process.stdout], [], [], seconds)
        seconds = PATIENCE
        line = process.stdout.readline() if ready else None
        yield line
        if not line:
            return


def tried(kind, folder, seed, count):
    """Reads so many mutated files of a kind; counts of how they ended, and the faults."""
    counts, faults, number, opened = {}, [], 0, {}
    while number < count:
        arguments = map(str, (kind, folder, seed, number, count - number))
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.faults.mutations", *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            bufsize=1,
            cwd=ROOT,
            env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "OMP_NUM_THREADS": "1"},
        )
        began, opened = number, {}
        for line in _lines(process):
            if not line:
                break
            with contextlib.suppress(json.JSONDecodeError):
                row = json.loads(line)
                if "number" in row:
                    opened = row
                    continue
                row, number, opened = {**opened, **row}, opened["number"] + 1, {}
                counts[row["ended"]] = counts.get(row["ended"], 0) + 1
                if _is_fault(row):
                    faults.append(row)
                    print(json.dumps(row)[:500], flush=True)
        process.kill()
        process.wait()
        if opened:  # the process ended, or hung, in this file
            _keep(folder, opened)
            faults.append({**opened, "ended": f"process: {process.returncode}"})
            print(faults[-1], flush=True)
            counts["process"] = counts.get("process", 0) + 1
            number = opened["number"] + 1
        elif number == began and number < count:
            raise RuntimeError(f"The reader of {kind} does not start: run read_some by hand.")
    return counts, faults


def _is_fault(row):
    slow = row["seconds"] > SECONDS or row["bytes"] > BYTES
    return slow or row["ended"] not in ("answer", "sentence")


def _keep(folder, row):
    """Keeps the file that was read last."""
    kept = folder / "faults" / f"{row['number']}-{pathlib.Path(row['file']).name}"
    kept.parent.mkdir(exist_ok=True)
    with contextlib.suppress(OSError):
        shutil.copy(folder / "read" / row["file"], kept)


def run(folder, data, tries, seed):
    """Title -> files and those that ended in an answer or a sentence, in time and memory."""
    found = {}
    for kind, share in SHARES.items():
        (folder / kind).mkdir()
        counts, faults = tried(kind, folder / kind, seed, share * tries)
        print(f"{kind}: {counts}; faults: {len(faults)}", flush=True)
        found[f"mutated {kind}"] = (share * tries, share * tries - len(faults))
    return found


if __name__ == "__main__":
    read_some(*sys.argv[1:])
