"""One bit of the newest checkpoint flipped, or its files cut: the one before must be taken."""

import random
import shutil
import warnings

from keras_transformers.training.checkpoints import Checkpoints
from tests.faults import kills
from tests.faults.runs import Run, checkpoints, digest


def flipped(path, rng):
    """Flips a bit anywhere in a checkpoint's files, each bit as likely as any other."""
    files = sorted(path.iterdir())
    file = rng.choices(files, [file.stat().st_size for file in files])[0]
    position = rng.randrange(file.stat().st_size)
    with open(file, "r+b") as opened:
        opened.seek(position)
        byte = opened.read(1)[0] ^ 1 << rng.randrange(8)
        opened.seek(position)
        opened.write(bytes([byte]))
    return f"bit of byte {position} of {file.name}"


def cut(path, rng):
    """Cuts any of its files to any length."""
    file = rng.choice(sorted(path.iterdir()))
    length = rng.randrange(file.stat().st_size)
    with open(file, "r+b") as opened:
        opened.truncate(length)
    return f"{file.name} cut to {length}"


def is_passed_over(original, folder, harm, rng):
    """Whether a damaged newest checkpoint is found out and the older one read, bit by bit."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(original, folder)
    older, newest = sorted(folder.glob("step-*"))
    what = harm(newest, rng)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        state, _ = Checkpoints(folder).newest()
    right = state["total"] == int(older.name.removeprefix("step-")) and len(said) == 1
    right &= not newest.exists() and digest(older) == digest(original / older.name)
    if not right:
        print(f"  not found out: {what}")
    return right


def run(folder, data, tries, seed):
    """Title -> tries and those in which the damage was found and the older state taken."""
    rng = random.Random(seed)
    recipe, of, arguments, _ = kills.KINDS["translation"]
    arguments = [*arguments, *data[of]]
    expected, steps, epochs, _ = kills.whole(recipe, folder / "whole", arguments)
    output = folder / "translation"
    begun = Run(recipe, output, *arguments)
    begun.wait_for_step(2, 2)
    begun.kill()
    original = folder / "original"
    shutil.copytree(output / "checkpoints" / "training", original)
    for left in original.glob("unfinished-*"):
        shutil.rmtree(left)
    position = folder / "damaged"
    flips = [is_passed_over(original, position, flipped, rng) for _ in range(10 * tries)]
    cuts = [is_passed_over(original, position, cut, rng) for _ in range(5 * tries // 2)]
    # And once through the recipe: from the older state to the same weights in the end.
    flipped(checkpoints(output)[-1], rng)
    resumed = Run(recipe, output, *arguments, "--resume")
    ended = kills.last(resumed, output, steps * epochs)
    print(f"translation after damage: same: {ended == expected}", flush=True)
    return {
        "one bit flipped": (len(flips), sum(flips)),
        "a file cut short": (len(cuts), sum(cuts)),
        "one bit flipped, run resumed": (1, int(ended is not None and ended == expected)),
    }
