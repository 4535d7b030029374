"""A disk that fills up while a run writes: it must end with a sentence, its last state whole."""

import random
import subprocess
import warnings

from keras_transformers.training.checkpoints import Checkpoints
from tests.faults import kills
from tests.faults.runs import Run, checkpoints


class SmallDisk:
    """A tmpfs of so many bytes, while the context lasts."""

    def __init__(self, folder, size):
        self.folder, self.size = folder, size

    def _mount(self, options):
        command = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(self.folder)]
        subprocess.run(command, check=True, capture_output=True)

    def __enter__(self):
        self.folder.mkdir(exist_ok=True)
        self._mount(f"size={self.size}")
        return self

    def grow(self):
        """Makes room, as whoever looks after the machine would."""
        self._mount("remount,size=1g")

    def __exit__(self, *_):
        subprocess.run(["umount", str(self.folder)], check=True)


def run(folder, data, tries, seed):
    """Title -> tries and those that ended with a sentence and a state that loads."""
    rng = random.Random(seed)
    recipe, of, arguments, _ = kills.KINDS["vit"]
    arguments = [*arguments, *data[of]]
    arguments[arguments.index("--epochs") + 1] = "2"  # of one Keras does not say its number
    try:
        with SmallDisk(folder / "trial", 2**20):
            pass
    except (OSError, subprocess.CalledProcessError) as error:
        print(f"full disk: not tried, a tmpfs cannot be mounted here ({error})")
        return {}
    expected, steps, epochs, _ = kills.whole(recipe, folder / "whole", arguments)
    # Room for a first checkpoint, but not for three, as there are while the third is written.
    one = sum(file.stat().st_size for file in checkpoints(folder / "whole")[-1].iterdir())
    ended, resumed = [], []
    for number in range(tries):
        size = rng.randrange(13 * one // 10, 29 * one // 10)
        with SmallDisk(folder / f"disk-{number}", size) as disk:
            output = disk.folder / "run"
            begun = Run(recipe, output, *arguments)
            status = begun.end()
            sentence = begun.said.strip().splitlines()[-1]
            print(f"full disk of {disk.size:,} bytes: {status}, {sentence}", flush=True)
            ended.append(
                status == 1
                and sentence.startswith(f"recipes.{recipe}: The disk is full")
                and "Traceback" not in begun.said
                and _loads(output)
            )
            if number % 5 == 0 and checkpoints(output):
                disk.grow()
                again = Run(recipe, output, *arguments, "--resume")
                resumed.append(kills.last(again, output, steps * epochs) == expected)
    return {
        "disk full while a checkpoint is written": (len(ended), sum(ended)),
        "the same, with room again, resumed": (len(resumed), sum(resumed)),
    }


def _loads(output):
    """Whether the last state before the disk was full is there and whole."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return Checkpoints(output / "checkpoints" / "training").newest() is not None
