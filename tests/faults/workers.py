"""One of two hosts that train together is lost: the other must end, and both can go on."""

import random

from tests.distribution.processes import free_port
from tests.faults import kills
from tests.faults.runs import Run

PATIENCE = 300  # seconds until a host must have seen that the other is gone


class Hosts:
    """A recipe on two processes of this machine, one device each, that share every batch."""

    def __init__(self, recipe, output, *arguments):
        address = f"127.0.0.1:{free_port()}"
        self.each = [
            Run(
                recipe,
                output,
                *arguments,
                "--devices",
                "data=2",
                environment={
                    "KERAS_BACKEND": "jax",
                    "KERAS_DISTRIBUTION_JOB_ADDRESSES": address,
                    "KERAS_DISTRIBUTION_NUM_PROCESSES": "2",
                    "KERAS_DISTRIBUTION_PROCESS_ID": str(index),
                },
            )
            for index in range(2)
        ]

    def last(self, output, number):
        """As `kills.last`, of both."""
        found = kills.last(self.each[0], output, number)
        self.each[1].kill()
        return found


def run(folder, data, tries, seed):
    """Title -> tries and those in which both hosts ended and went on to the very weights."""
    rng = random.Random(seed)
    recipe, of, arguments, _ = kills.KINDS["vit"]
    arguments = [*arguments, *data[of]]
    epochs = int(arguments[arguments.index("--epochs") + 1])
    output = folder / "whole"
    whole = Hosts(recipe, output, *arguments)
    whole.each[0].wait_for_step(1, 2)
    steps = whole.each[0].steps_per_epoch()
    expected = whole.last(output, steps * epochs)
    tries, survived = max(1, tries // 4), 0
    for number in range(tries):
        output = folder / f"lost-{number}"
        begun = Hosts(recipe, output, *arguments)
        position = rng.randrange(4, steps * epochs)
        begun.each[0].wait_for_step(1 + position // steps, position % steps)
        lost = rng.randrange(2)
        begun.each[lost].kill()
        ended = begun.each[1 - lost].is_over(PATIENCE)
        if not ended:
            begun.each[1 - lost].kill()
        resumed = Hosts(recipe, output, *arguments, "--resume")
        same = expected is not None and resumed.last(output, steps * epochs) == expected
        print(f"host {lost} lost at {position}: the other ended: {ended}; same: {same}", flush=True)
        if not same:
            print(*(host.said[-3000:] for host in resumed.each), sep="\n")
        survived += ended and same
    return {"one of two hosts killed": (tries, survived)}
