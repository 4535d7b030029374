"""Signals at random seconds: the run that goes on must end with the weights of one that was not.

A quarter of the signals comes while a run starts, the others while it trains, where SIGINT and
SIGTERM leave a checkpoint of the step that ran, and SIGKILL loses what followed the last.
"""

import random
import signal
import time

from tests.faults.runs import Run, checkpoints, digest

# Every option that draws or remembers something; no budget of minutes, after which nothing could
# be the same.
COMMON = ["--minutes", "None", "--checkpoint-steps", "3", "--checkpoint-minutes", "None"]
TEXT = [*COMMON, "--epochs", "3", "--score-every", "2", "--dropout", "0.1", "--warmup-steps", "9"]
IMAGE = [*COMMON, "--epochs", "4", "--dropout", "0.1", "--ema", "0.9", "--warmup-steps", "9"]
SMOKE = [*COMMON, "--smoke", "--epochs", "3"]
KINDS = {  # title -> recipe, its data, arguments, share of the tries
    "vit": ("vit", "images", IMAGE, 1.2),
    "vit, mixed_float16": ("vit", "images", [*IMAGE, "--precision", "mixed_float16"], 0.2),
    "language_model": ("language_model", None, [*SMOKE, "--dropout", "0.1"], 1.0),
    "detr": ("detr", None, [*SMOKE, "--steps-per-epoch", "8"], 1.0),
    "translation": ("translation", "texts", [*TEXT, "--join", "0.2"], 0.5),
    "recurrent_translation": ("recurrent_translation", "texts", TEXT, 0.1),
}
IN_A_ROW = 5  # kills from one beginning to the end
AT_START = 0.25  # share of the signals
STATUS = {signal.SIGKILL: -signal.SIGKILL, signal.SIGTERM: 143, signal.SIGINT: 130}


def whole(recipe, output, arguments):
    """A run without a fault: the digest of its last checkpoint, steps, epochs, and start.

    The start is the seconds until its first step has run.
    """
    began = time.monotonic()
    run = Run(recipe, output, *arguments)
    run.wait_for_step(1, 1)
    start = time.monotonic() - began
    run.wait_for_step(1, 2)
    steps = run.steps_per_epoch()
    epochs = int(arguments[arguments.index("--epochs") + 1])
    return last(run, output, steps * epochs), steps, epochs, start


def last(run, output, number):
    """Waits for the checkpoint after the last step; its digest, or None if the run failed."""
    path = output / "checkpoints" / "training" / f"step-{number:012d}"
    found = digest(path) if run.wait_for_file(path) else None
    run.kill()  # scoring and drawing do not change the weights
    return found


def chain(recipe, output, arguments, steps, epochs, start, kills, rng):
    """Ends a run and its successors at random.

    Returns:
        The last digest; epoch, step, signal and newest checkpoint of each; and what the last said.
    """
    positions = sorted(rng.sample(range(2, steps * epochs), kills))
    died = []
    for position in positions:
        how, begins = rng.choice(list(STATUS)), rng.random() < AT_START
        run = Run(recipe, output, *arguments, "--resume")
        if begins:
            run.read_for(rng.uniform(0, start))
        else:
            run.wait_for_step(1 + position // steps, position % steps)
            time.sleep(rng.uniform(0, 0.4))  # anywhere in a step, or as a checkpoint is written
        status = run.kill(how)
        kept = [path.name for path in checkpoints(output)]
        died.append((*run.step(), how.name, int(kept[-1].removeprefix("step-")) if kept else None))
        # Before its first line runs, or where nothing is to be kept, the system ends the process.
        allowed = {STATUS[how], -how} if begins else {STATUS[how]}
        advised = begins or how == signal.SIGKILL or "Continue with:" in run.said
        if status not in allowed or not advised:
            return None, [*died, status], run.said
    run = Run(recipe, output, *arguments, "--resume")
    return last(run, output, steps * epochs), died, run.said


def run(folder, data, tries, seed):
    """Title -> tries and those that ended with the very weights."""
    found = {}
    for title, (recipe, of, arguments, share) in KINDS.items():
        rng = random.Random(f"{seed} {title}")
        arguments = [*arguments, *data.get(of, ())]
        position = folder / title.replace(", ", "-")
        expected, steps, epochs, start = whole(recipe, position / "whole", arguments)
        left, number, same = max(1, round(tries * share)), 0, 0
        done = left
        while left:
            kills = min(IN_A_ROW, left)
            output = position / f"killed-{number}"
            ended, died, said = chain(recipe, output, arguments, steps, epochs, start, kills, rng)
            equal = expected is not None and ended == expected
            print(f"{title}: ended at {died} of {epochs} x {steps}; same: {equal}", flush=True)
            if not equal:
                print(said[-3000:])
            left, number, same = left - kills, number + 1, same + kills * equal
        found[f"SIGKILL, SIGTERM or SIGINT, {title}"] = (done, same)
    return found
