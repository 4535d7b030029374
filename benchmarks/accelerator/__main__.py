"""One command for an accelerator: training and decoding in bfloat16, beside compiled PyTorch.

    pip install torch keras jax[cuda13] numpy safetensors
    KERAS_BACKEND=jax python -m benchmarks.accelerator

Ends within eight minutes; what no time is left for is left out, and said. Needs no TensorFlow.
Every part runs in a process of its own, one after the other; the next one imports meanwhile. First
comes the rate of a large product, then checks (gradients in bfloat16 against float32's, fused
attention against plain), then times: `model.fit` with AdamW, float32 weights and bfloat16
computation, without dropout but for one row; batches lie on the device. PyTorch has the same sizes,
`torch.compile`, `scaled_dot_product_attention`, autocast and the fused AdamW, and its decoding
steps are CUDA graphs. Operations are counted from shapes (`cases.training_operations`), a causal
attention's by half. Where there is no accelerator, `--smoke` is what runs: everything, at sizes
that say nothing of speed.
"""

import argparse
import contextlib
import importlib.util
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time

from benchmarks.accelerator import cases
from benchmarks.report import heading, table, write

OURS, PEER = "keras_transformers", "PyTorch"
# Seconds that a part needs at least, to be begun, and has at most.
MINUTES, LEAST, MOST = 8, 25, 120
ENVIRONMENT = {
    "KERAS_BACKEND": "jax",
    "TF_CPP_MIN_LOG_LEVEL": "3",
    "XLA_PYTHON_CLIENT_MEM_FRACTION": "0.92",  # one process at a time has the device
}
SMOKE = {"JAX_DISABLE_MOST_OPTIMIZATIONS": "1"}  # compiles in half the time


def parts(smoke, only=""):
    """What is run, the most important first: a task, its name, and whose."""
    yield "products", "", OURS
    yield "checks", only, OURS
    yield "products", "", PEER
    asked = [
        ("train", "Transformer big"),
        ("train", "GPT-2 small, 2,048"),
        ("train", "ViT-B/16"),
        ("decode", "beam 4, batch 32"),
        ("train", "GPT-2 small, 16,384"),
        ("decode", "greedy, batch 32"),
        ("train", "GPT-2 small, 2,048, dropout 0.1"),
        ("decode", "greedy, batch 1"),
    ]
    # What differs in numbers alone the smoke test does once.
    alike = ("GPT-2 small, 16,384", "GPT-2 small, 2,048, dropout 0.1", "greedy, batch 1")
    for task, name in asked:
        if only in name and not (smoke and name in alike):
            yield task, name, OURS
            yield task, name, PEER


def figures(task, name, whose, smoke, seconds):
    """A part's figures, in its own process."""
    chosen = cases.SMOKE if smoke else cases.CASES
    if whose == OURS:
        from benchmarks.accelerator import ours as side

        compiled = {}
    else:
        from benchmarks.accelerator import pytorch as side

        if side.DEVICE == "cpu" and not smoke:
            return {"left_out": "PyTorch finds no GPU"}
        compiled = {"smoke": smoke}
    if task == "products":
        return side.products(256 if smoke else cases.PRODUCT, seconds)
    if task == "checks":
        return side.checks({each: case for each, case in cases.CHECKED.items() if name in each})
    if task == "decode":
        case = chosen["Transformer big"]
        return side.decode(case, cases.SEARCHES[name], seconds, **compiled)
    return side.train(chosen[name], seconds, **compiled)


class Part:
    """The command's side of a part: a process that imports at once, and begins when told."""

    def __init__(self, task, name, whose, smoke):
        self.task, self.name, self.whose = task, name, whose
        self.missing = whose == PEER and not importlib.util.find_spec("torch")
        if self.missing:
            return
        self._said = tempfile.TemporaryFile("w+")
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.accelerator", "--part", task, name, whose]
            + ["--smoke"] * smoke,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._said,
            text=True,
            env={**os.environ, **ENVIRONMENT, **(SMOKE if smoke else {})},
            start_new_session=True,  # what it starts itself ends with it
        )

    def run(self, seconds, limit):
        """Its figures, or a dict of `left_out` and why; ends within `limit` seconds."""
        if self.missing:
            return {"left_out": "PyTorch is not installed"}
        ending = threading.Timer(limit, self.end)
        ending.start()
        started = time.perf_counter()
        answer = ""
        try:
            self._process.stdin.write(f"{seconds}\n")
            self._process.stdin.flush()
            answer = self._process.stdout.readline()
        except BrokenPipeError:  # it ended while it imported
            pass
        finally:
            ending.cancel()
            self.end()
        try:
            return json.loads(answer)
        except json.JSONDecodeError:
            if time.perf_counter() - started >= limit:
                return {"left_out": f"not done in {limit:.0f} seconds"}
            self._said.seek(0)
            lines = self._said.read().splitlines()
            # JAX says something of its own behind the error.
            said = [line for line in lines if "Error" in line and "File" not in line] or lines
            return {"left_out": f"failed: {said[-1][:200] if said else 'nothing said'}"}

    def end(self):
        """Ends it and what it started, and waits until the device's memory is free again."""
        if not self.missing and self._process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()


def serve(task, name, whose, smoke):
    """A part's own process: imports, waits for its turn, says its figures."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print must not mix with them
    importlib.import_module(f"benchmarks.accelerator.{'ours' if whose == OURS else 'pytorch'}")
    seconds = float(sys.stdin.readline())
    answers.write(json.dumps(figures(task, name, whose, smoke, seconds)) + "\n")
    answers.flush()


def has_accelerator():
    """Whether JAX finds one; asked in a process of its own, which lets go of it."""
    code = "import jax; print(jax.local_devices()[0].platform)"
    asked = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    return asked.stdout.split()[-1:] not in ([], ["cpu"])


def run_all(smoke, minutes, only, began):
    """All parts by the clock; yields each with its figures."""
    end = began + 60 * minutes - 15  # to end what is left, and to write
    asked = list(parts(smoke, only))
    waiting = Part(*asked[0], smoke)
    for following in [*asked[1:], None]:
        part = waiting
        waiting = None if following is None else Part(*following, smoke)
        try:
            left = end - time.perf_counter()
            if left < (1 if smoke else LEAST):
                part.end()
                found = {"left_out": f"the {minutes:g} minutes were over"}
            else:
                found = part.run(0.2 if smoke else 5.0, min(left, MOST))
        except BaseException:
            for each in (part, waiting):
                if each is not None:
                    each.end()
            raise
        yield part, found


def row_of(part, found, rate, smoke):
    """A line of the table."""
    if "left_out" in found:
        return {"left out": found["left_out"]}
    row = {"milliseconds": f"{1e3 * found['seconds']:.2f}"}
    row["from, to"] = f"{1e3 * found['from']:.2f}, {1e3 * found['to']:.2f}"
    if part.task == "train":
        case = (cases.SMOKE if smoke else cases.CASES)[part.name]
        row["tokens a second"] = f"{case.tokens / found['seconds']:,.0f}"
        per_second = cases.training_operations(case) / found["seconds"]
        row["TFLOP/s"] = f"{per_second / 1e12:.1f}"
        row["share of the product"] = f"{per_second / rate:.2f}" if rate else "?"
        if "without_fit" in found:
            row["without fit"] = f"{1e3 * found['without_fit']:.2f}"
        row["loss"] = "{:.2f} to {:.2f}".format(*found["losses"])
        if found["peak_bytes"]:
            row["peak GB"] = f"{found['peak_bytes'] / 1e9:.1f}"
    else:
        rows = cases.SEARCHES[part.name][1]
        row["new tokens a second"] = f"{rows * cases.NEW / found['seconds']:,.0f}"
    row["seconds until first"] = f"{found['until_first']:.1f}"
    return row


def problems(results):
    """What is wrong, as sentences: checks, losses, sizes that differ from the peer's."""
    said = []
    for (task, name, whose), found in results.items():
        if task == "checks":
            said += [f"{each}: distance {far:.3f}" for each, far in found.get("wrong", {}).items()]
        if "losses" in found and not found["losses"][1] < found["losses"][0]:
            said.append(f"{name}, {whose}: the loss went from {found['losses']}")
        if "tokens" in found and found["tokens"] != cases.NEW:
            said.append(f"{name}, {whose}: {found['tokens']} tokens instead of {cases.NEW}")
        mine, theirs = (
            results.get((task, name, each), {}).get("parameters") for each in (OURS, PEER)
        )
        if whose == OURS and mine and theirs and abs(mine / theirs - 1) > 0.01:
            said.append(f"{name}: {mine:,} parameters, PyTorch's has {theirs:,}")
    return said


def report(results, smoke, only, began):
    rates = {whose: results.get(("products", "", whose), {}).get("rate") for whose in (OURS, PEER)}
    rate = max((each for each in rates.values() if each), default=None)
    tables = {"Training": {}, "Decoding": {}}
    for (task, name, whose), found in results.items():
        if task in ("train", "decode"):
            part = argparse.Namespace(task=task, name=name)
            title = "Training" if task == "train" else "Decoding"
            tables[title][f"{name}: {whose}"] = row_of(part, found, rate, smoke)
    versions = [name for name in ("jax", "keras", "torch") if importlib.util.find_spec(name)]
    checked = results[("checks", only, OURS)]
    said = problems(results)
    result = {
        **heading(*versions),
        "device": results[("products", "", OURS)].get("device", "none that answered"),
        "smoke": smoke,
        "minutes": round((time.perf_counter() - began) / 60, 1),
        "product_tflops": {who: round(each / 1e12, 2) for who, each in rates.items() if each},
        "checks": checked,
        "problems": said,
        "tables": tables,
        "results": [
            {"task": task, "name": name, "whose": whose, **found}
            for (task, name, whose), found in results.items()
        ],
    }
    print(
        f"\nDevice: {result['device']}; a product in bfloat16, TFLOP/s: {result['product_tflops']}"
    )
    print(f"Attention is fused for: {', '.join(checked.get('fused', [])) or 'none'}")
    for title, rows in tables.items():
        print(f"\n{title}\n\n{table(rows)}")
    print(f"\n{len(said)} problems{': ' * bool(said)}{'; '.join(said)}")
    if not smoke and not only:
        write("accelerator", result, tables)
    return said


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--smoke", action="store_true", help="tiny sizes, on any device")
    parser.add_argument("--minutes", type=float, default=MINUTES, help="never longer than that")
    parser.add_argument("--only", default="", help="rows, and checks, whose name has this in it")
    parser.add_argument("--part", nargs=3, help="used by the benchmark itself")
    asked = parser.parse_args()
    if asked.part:
        serve(*asked.part, asked.smoke)
        return
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # and parts end too, by `run_all`
    began = time.perf_counter()
    smoke = asked.smoke or not has_accelerator()
    if smoke and not asked.smoke:
        print("JAX finds no accelerator: this is the smoke test, whose times say nothing.")
    results = {}
    for part, found in run_all(smoke, asked.minutes, asked.only, began):
        results[part.task, part.name, part.whose] = found
        what = " ".join(filter(None, (part.task, part.name, part.whose)))
        done = found.get("left_out") or f"{found['seconds']:.4f} s" if "seconds" in found else found
        print(f"{time.perf_counter() - began:6.1f} s  {what}: {done}", flush=True)
    said = report(results, smoke, asked.only, began)
    wrong = [each for each in results.values() if each.get("left_out", "").startswith("failed")]
    sys.exit(1 if said or wrong else 0)


if __name__ == "__main__":
    main()
