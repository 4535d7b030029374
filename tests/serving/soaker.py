"""Asks a SavedModel for long, in a process that has TensorFlow and nothing of ours.

    python soaker.py [--seconds S] [--threads T] [--requests N] FOLDER

The folder is one of `loader.py`. Threads ask requests of mixed sizes and compare each answer with
what the request got alone; then one after the other asks N requests, and the memory after each
tenth is looked at. Prints a line of JSON.
"""

import argparse
import json
import pathlib
import re
import threading
import time

import loader  # beside it
import numpy as np
import tensorflow as tf

SIZES = (1, 2, 3, 5, 8)  # rows of the requests


def megabytes():
    """What this process holds in memory."""
    status = pathlib.Path("/proc/self/status").read_text()
    return int(re.search(r"VmRSS:\s+(\d+) kB", status)[1]) / 2**10


def equal(one, other):
    """Whether two answers are, text to the byte and numbers within 1e-5."""
    for name in one:
        x, y = one[name].numpy(), other[name].numpy()
        close = np.allclose(x, y, rtol=1e-5, atol=1e-5) if x.dtype.kind == "f" else (x == y).all()
        if x.shape != y.shape or not close:
            return False
    return True


class Client:
    """Asks a signature mixed requests.

    Args:
        folder: With `model/` and `requests.json`.
    """

    def __init__(self, folder):
        self._loaded = tf.saved_model.load(str(folder / "model"))
        self._serve = self._loaded.signatures["serving_default"]
        (self._input,) = self._serve.structured_input_signature[1]
        items = json.loads((folder / "requests.json").read_text())[0]
        items = [each.encode("latin-1") for each in items]
        self.requests = [
            tf.constant([items[(start + i) % len(items)] for i in range(size)])
            for start in range(0, len(items), 3)
            for size in SIZES
        ]

    def ask(self, number):
        return self._serve(**{self._input: self.requests[number % len(self.requests)]})


def together(client, seconds, threads):
    """Counts of requests and of other answers than alone, and of threads that do not end."""
    alone = [client.ask(number) for number in range(len(client.requests))]
    until = time.monotonic() + seconds
    asked, wrong = [0] * threads, [0] * threads

    def work(thread):
        rng = np.random.default_rng(thread)
        while time.monotonic() < until:
            number = int(rng.integers(len(alone)))
            try:
                same = equal(alone[number], client.ask(number))
            except Exception as error:  # counted, and shown
                print(f"{type(error).__name__}: {str(error)[:300]}", flush=True)
                same = False
            asked[thread] += 1
            wrong[thread] += not same

    workers = [threading.Thread(target=work, args=(i,), daemon=True) for i in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(max(0.0, until - time.monotonic()) + 120)
    stuck = sum(worker.is_alive() for worker in workers)
    return {"asked": sum(asked), "wrong": sum(wrong), "stuck": stuck, "least": min(asked)}


def one_by_one(client, count):
    """Megabytes after each tenth of so many requests."""
    found = []
    for number in range(count):
        client.ask(number)
        if (number + 1) % (count // 10) == 0:
            found.append(round(megabytes(), 1))
    return found


def main(folder, seconds, threads, requests):
    loader.disable_xla()
    client = Client(folder)
    memory = one_by_one(client, requests)
    found = {"megabytes": memory, "growth": round(memory[-1] / memory[0] - 1, 4)}
    before = megabytes()
    found |= together(client, seconds, threads)
    found["megabytes_threads"] = [round(before, 1), round(megabytes(), 1)]
    print(json.dumps(found), flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--threads", type=int, default=16)
    parser.add_argument("--requests", type=int, default=10_000)
    main(**vars(parser.parse_args()))
