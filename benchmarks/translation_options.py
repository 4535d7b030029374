"""What options of training are worth to a translator, at steps that cost the same.

    python -m benchmarks.translation_options prepare FOLDER [NAME=TRAIN,VALID,TEST ...]
    KERAS_BACKEND=jax python -m benchmarks.translation_options run FOLDER [PART OF A NAME]

The first command needs TensorFlow and leaves text and vocabularies in FOLDER; the second needs
none, and an accelerator with its own processor cores, for all models of one group are trained at
once. Three runs on two CPU cores would take an hour for each row.

A group is one graph, of which the members differ by seed, learning rate and splits of the text. The
steps are as many as ten minutes (ui.en-de) or forty (Multi30k) of two cores with AVX-512 make of
the first row, and fewer where a step costs more there. Text is split into pieces by SentencePiece,
which draws by a seed of its own; loss, optimizer, model, search and scores are the library's.
"""

import json
import math
import pathlib
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import numpy as np

UNKNOWN, START, END = 3, 1, 2
ROW, CHUNK, BLOCK = 64, 8192, 50  # positions of a row; pairs packed together; steps of a call
BEST = 9.0  # in the place of a strength of sampling: the best split
LAST = {"last": BEST}  # best splits in the last three tenths
SEEDS = [{"seed": seed} for seed in (1, 2, 3)]
UI = {"data": "ui.en-de", "vocab": 2500, "steps": 5000, "epochs": 14, "rows": 16, "rate": 5e-3,
      "dropout": 0.0, "r_drop": 0.0, "positions": "sinusoidal", "variant": "mini",
      "penalty": 1.5, "members": SEEDS}  # fmt: skip
CAPTIONS = {**UI, "data": "multi30k", "vocab": 4000, "steps": 11000, "epochs": 30, "rows": 32,
            "rate": 6e-3, "dropout": 0.15, "penalty": 1.0, "members": SEEDS[:2]}  # fmt: skip
GROUPS = {
    "ui: no dropout": UI,
    "ui: dropout 0.1": {**UI, "dropout": 0.1},
    "ui: dropout 0.1, batches of 2,048": {
        **UI, "dropout": 0.1, "rows": 32, "rate": 6e-3, "steps": 3000
    },
    "ui: dropout 0.1, R-Drop 1": {**UI, "dropout": 0.1, "r_drop": 1.0},
    "ui: dropout 0.1, R-Drop 1, batches of 2,048": {
        **UI, "dropout": 0.1, "r_drop": 1.0, "rows": 32, "steps": 3000
    },
    "ui: wider (small)": {**UI, "variant": "small", "steps": 3200},
    "ui: best splits at the end": {**UI, "members": [each | LAST for each in SEEDS]},
    "ui: vocabulary of 4,000": {**UI, "vocab": 4000, "steps": 4700},
    "ui: relative positions": {**UI, "positions": "relative", "steps": 4700},
    "ui: relative positions, best splits at the end": {
        **UI, "positions": "relative", "steps": 4700, "members": [each | LAST for each in SEEDS]
    },
    "multi30k: dropout 0.15": CAPTIONS,
    "multi30k: dropout 0.3": {**CAPTIONS, "dropout": 0.3},
    "multi30k: dropout 0.3, R-Drop 1": {**CAPTIONS, "dropout": 0.3, "r_drop": 1.0},
    "multi30k: dropout 0.3, R-Drop 1, vocabulary of 8,000": {
        **CAPTIONS, "dropout": 0.3, "r_drop": 1.0, "vocab": 8000, "steps": 9000
    },
}  # fmt: skip


def prepare(folder, *own):
    """Text and vocabularies of all groups, in a folder; without files of one's own, of ui.en-de."""
    from recipes.data.translation import load, train_tokenizer

    files = dict(each.split("=") for each in own)
    folder.mkdir(parents=True, exist_ok=True)
    for name in {group["data"] for group in GROUPS.values()} & {"ui.en-de", *files}:
        data = load(name, *(files[name].split(",") if name in files else (None,) * 3))
        corpora = {"train": data.train, "valid": data.valid, "test": data.test}
        text = {part: [corpus.sources, corpus.targets] for part, corpus in corpora.items()}
        (folder / f"{name}.json").write_text(json.dumps(text))
        for size in {group["vocab"] for group in GROUPS.values() if group["data"] == name}:
            train_tokenizer(data, size).save(folder / f"{name}-{size}.model")


def split(model, side, strength, seed):
    """Ids of sentences."""
    import sentencepiece

    sentencepiece.set_random_generator_seed(seed)
    processor = sentencepiece.SentencePieceProcessor(model_file=str(model))
    drawn = {"enable_sampling": True, "alpha": strength, "nbest_size": -1}
    return processor.encode(side, out_type=int, **({} if strength == BEST else drawn))


def rows_of(model, sources, targets, strength, seed, lengths):
    """An epoch of packed rows: source, target, their segments, labels."""
    source = [[*ids, END] for ids in split(model, sources, strength, 2 * seed)]
    target = [[START, *ids, END] for ids in split(model, targets, strength, 2 * seed + 1)]
    rng, packed = np.random.default_rng(seed), []
    order = rng.permutation(len(source))
    for start in range(0, len(order), CHUNK):
        rows = _first_fit(source, target, order[start : start + CHUNK], lengths)
        packed += [rows[i] for i in rng.permutation(len(rows))]
    arrays = [np.zeros((len(packed), lengths[side]), np.int16) for side in (0, 1, 0, 1, 1)]
    for number, pairs in enumerate(packed):
        at = [0, 0]
        for segment, pair in enumerate(pairs, 1):
            first, second = source[pair], target[pair]
            mine = slice(at[0], at[0] + len(first)), slice(at[1], at[1] + len(second) - 1)
            contents = first, second[:-1], segment, segment, second[1:]
            for array, side, content in zip(arrays, (0, 1, 0, 1, 1), contents, strict=True):
                array[number, mine[side]] = content
            at = [mine[0].stop, mine[1].stop]
    return arrays


def _first_fit(source, target, pairs, lengths):
    """Rows of numbers of pairs, largest first, each in the first row with room for both sides."""
    sizes = {pair: (len(source[pair]), len(target[pair]) - 1) for pair in pairs}
    fitting = [pair for pair in pairs if all(map(int.__le__, sizes[pair], lengths))]
    fitting.sort(key=lambda pair: -max(np.divide(sizes[pair], lengths)))
    rows, free = [], []
    for pair in fitting:
        for number in free:
            room = rows[number][0]
            if all(map(int.__ge__, room, sizes[pair])):
                break
        else:
            number, room = len(rows), list(lengths)
            rows.append((room, []))
            free.append(number)
        rows[number][1].append(pair)
        room[:] = np.subtract(room, sizes[pair]).tolist()
        if min(room) < 2:
            free.remove(number)
    return [pairs for _, pairs in rows]


def pools(group, folder, text):
    """Arrays `(strengths, rows, length)` of all epochs, and the strengths."""
    model = folder / f"{group['data']}-{group['vocab']}.model"
    sides = text["train"]
    totals = [sum(map(len, split(model, side, BEST, 0))) + len(side) for side in sides]
    lengths = tuple(min(ROW, 8 * math.ceil(ROW * each / max(totals) / 8)) for each in totals)
    strengths = sorted({m.get(k, 0.5) for m in group["members"] for k in ("first", "last")})
    asked = [(each, epoch) for each in strengths for epoch in range(group["epochs"])]
    with ProcessPoolExecutor(4, mp_context=get_context("spawn")) as executor:
        found = [executor.submit(rows_of, model, *sides, each, n, lengths) for each, n in asked]
        found = [future.result() for future in found]
    by_strength = [
        [np.concatenate(part) for part in zip(*found[i : i + group["epochs"]], strict=True)]
        for i in range(0, len(found), group["epochs"])
    ]
    rows = min(len(parts[0]) for parts in by_strength) // group["rows"] * group["rows"]
    return [
        np.stack([part[:rows] for part in parts]) for parts in zip(*by_strength, strict=True)
    ], (strengths)


def first_values(group, vocab_size):
    """A model; and its trainable and other values of each member, `(members, ...)`."""
    import keras

    from keras_transformers.models import Transformer

    kinds = []
    for member in group["members"]:
        keras.utils.set_random_seed(member["seed"])
        sizes = {"dropout": group["dropout"], "positions": group["positions"]}
        model = Transformer.from_variant(group["variant"], vocab_size, norm_first=True, **sizes)
        model.build({"source": (None, None), "target": (None, None)})
        kinds.append((model.trainable_variables, model.non_trainable_variables))
    return model, [
        [np.stack([np.array(each) for each in of]) for of in zip(*kind, strict=True)]
        for kind in zip(*kinds, strict=True)
    ]


def step_of(group, model, optimizer):
    """Function of weights, other state and optimizer's state, a number, a batch and a rate."""
    import jax
    import jax.numpy as jnp

    from keras_transformers.training import token_learning

    loss = token_learning(0, 0.1, r_drop=group["r_drop"])["loss"]
    paths = [variable.path for variable in optimizer.variables]
    rate_at = next(i for i, path in enumerate(paths) if path.endswith("learning_rate"))

    def loss_of(weights, state, batch):
        batch = {name: jnp.repeat(ids, passes(group), axis=0) for name, ids in batch.items()}
        labels = batch.pop("labels")
        logits, state = model.stateless_call(weights, state, batch, training=True)
        return loss(labels, logits), state

    def step(carry, batch, rate):
        weights, state, moments = carry
        (value, state), gradients = jax.value_and_grad(loss_of, has_aux=True)(weights, state, batch)
        moments = [rate if i == rate_at else each for i, each in enumerate(moments)]
        weights, moments = optimizer.stateless_apply(moments, gradients, weights)
        return (weights, state, moments), value

    return step


def passes(group):
    return 2 if group["r_drop"] else 1


def train(group, arrays, strengths, vocab_size):
    """The model, and the values of its weights for each member, `(members, ...)`."""
    import jax
    import jax.numpy as jnp

    from keras_transformers.training import Muon

    members, steps, rows = group["members"], group["steps"], group["rows"] // passes(group)
    model, values = first_values(group, vocab_size)
    optimizer = Muon(learning_rate=1.0, weight_decay=0.05)
    optimizer.build(model.trainable_variables)
    moments = [np.stack([np.array(each)] * len(members)) for each in optimizer.variables]
    step = step_of(group, model, optimizer)
    names = ("source", "target", "source_segments", "target_segments", "labels")
    pool = dict(zip(names, map(jnp.asarray, arrays), strict=True))
    used = pool["labels"].shape[1] // rows * rows

    def block(carry, own, begin, pool):
        def next_step(carry, number):
            which = jnp.where(number < 0.7 * steps, own["first"], own["last"])
            begins = (which, number * rows % used, 0)
            batch = {
                name: jax.lax.dynamic_slice(ids, begins, (1, rows, ids.shape[2]))[0].astype(int)
                for name, ids in pool.items()
            }
            rate = own["rate"] * jnp.minimum((number + 1) / 100, 1 - number / steps)
            return step(carry, batch, rate)

        return jax.lax.scan(next_step, carry, begin + jnp.arange(BLOCK))

    own = {"rate": [member.get("rate", group["rate"]) for member in members]}
    for name in ("first", "last"):
        own[name] = [strengths.index(member.get(name, 0.5)) for member in members]
    own = {name: jnp.array(each) for name, each in own.items()}
    together = jax.jit(jax.vmap(block, in_axes=(0, 0, None, None)), donate_argnums=0)
    carry = jax.tree.map(jnp.asarray, (*values, moments))
    for begin in range(0, steps, BLOCK):
        carry, values = together(carry, own, begin, pool)
        if begin % (20 * BLOCK) == 0:
            print(f"  step {begin}: {np.round(np.mean(values, axis=1), 3).tolist()}", flush=True)
    return model, [np.array(value) for value in carry[0]]


def scores(group, model, values, vocabulary, text):
    """BLEU and chrF of validation and test set, by member."""
    import sacrebleu
    import sentencepiece

    from keras_transformers.generation import BeamSearch, generate_all

    processor = sentencepiece.SentencePieceProcessor(model_file=str(vocabulary))
    found = []
    for number in range(len(group["members"])):
        for variable, value in zip(model.trainable_variables, values, strict=True):
            variable.assign(value[number])
        of_member = {}
        for part in ("valid", "test"):
            sources, references = text[part]
            ids = [[*each, END] for each in processor.encode(sources, out_type=int)]
            search = BeamSearch(4, group["penalty"])
            tokens = generate_all(model, ids, search, batch_size=256, verbose=0)["tokens"]
            made = [processor.decode([int(i) for i in row if i > UNKNOWN]) for row in tokens]
            for name, corpus in (("BLEU", sacrebleu.corpus_bleu), ("chrF", sacrebleu.corpus_chrf)):
                of_member[f"{part} {name}"] = round(corpus(made, [references]).score, 2)
        found.append(of_member)
    return found


def run(folder, part=""):
    """Trains and scores the groups whose name has `part`, and writes what came of all so far."""
    import jax

    from benchmarks.report import FOLDER, heading, measured, write

    results = measured("translation_options", "results")
    for name, group in GROUPS.items():
        if part not in name or not (folder / f"{group['data']}.json").exists():
            continue
        print(name, flush=True)
        begin, text = time.monotonic(), json.loads((folder / f"{group['data']}.json").read_text())
        vocabulary = folder / f"{group['data']}-{group['vocab']}.model"
        arrays, strengths = pools(group, folder, text)
        model, values = train(group, arrays, strengths, group["vocab"])
        found = scores(group, model, values, vocabulary, text)
        results[name] = {key: [each[key] for each in found] for key in found[0]}
        print(results[name], f"{time.monotonic() - begin:.0f} s", flush=True)
        device = {"accelerator": jax.devices()[0].device_kind}
        rows = {
            name: {key: ", ".join(map(str, each)) for key, each in of.items()}
            for name, of in results.items()
        }
        result = heading("jax", "keras", "sacrebleu") | device | {"results": results}
        write("translation_options", result, {"by seed": rows})
    print(FOLDER / "translation_options.md")


if __name__ == "__main__":
    {"prepare": prepare, "run": run}[sys.argv[1]](pathlib.Path(sys.argv[2]), *sys.argv[3:])
