"""What is trained and decoded, and how many operations a training step takes."""

import dataclasses
import math
import statistics
import time


@dataclasses.dataclass(frozen=True)
class Case:
    """A network and a batch of it.

    Attributes:
        kind: "translation", "image" or "language".
        length: Positions of a row; the same on either side of a translation.
        vocab: Size of the vocabulary, or the number of classes.
        rows: Of a batch.
        image: Side of an image, in pixels; patches are of 16.
    """

    kind: str
    width: int
    heads: int
    mlp: int
    layers: int
    vocab: int
    length: int
    rows: int
    image: int = 0
    dropout: float = 0.0

    @property
    def tokens(self):
        """Positions of a batch, of both sides of a translation."""
        return self.rows * self.length * (2 if self.kind == "translation" else 1)


PATCH = 16
# GPT-2's 50,257 tokens are made up to a multiple of 128, as is usual: no product likes odd sizes.
CASES = {
    "Transformer big": Case("translation", 1024, 16, 4096, 6, 32000, 128, 128),
    "ViT-B/16": Case("image", 768, 12, 3072, 12, 1000, 197, 256, 224),
    "GPT-2 small, 2,048": Case("language", 768, 12, 3072, 12, 50304, 2048, 16),
    "GPT-2 small, 16,384": Case("language", 768, 12, 3072, 12, 50304, 16384, 2),
}
CASES["GPT-2 small, 2,048, dropout 0.1"] = dataclasses.replace(
    CASES["GPT-2 small, 2,048"], dropout=0.1
)
SMALL = {"width": 64, "heads": 2, "mlp": 128, "layers": 1, "vocab": 128, "rows": 2}
SMOKE = {
    name: dataclasses.replace(
        case,
        **SMALL,
        **({"image": 32, "length": 5} if case.image else {"length": max(case.length // 64, 16)}),
    )
    for name, case in CASES.items()
}
# Small enough to be computed in float32 beside it.
CHECKED = {
    name.partition(",")[0]: dataclasses.replace(case, width=128, mlp=256)
    for name, case in list(SMOKE.items())[:3]
}
# Sources of 32 tokens and 64 new ones, as in `benchmarks.decoding`: what, beams, rows.
SOURCE, NEW = 32, 64
SEARCHES = {"greedy, batch 1": (1, 1), "greedy, batch 32": (1, 32), "beam 4, batch 32": (4, 32)}
PRODUCT = 8192


def training_operations(case, whole_squares=False):
    """Operations of the products of one training step, counted from shapes.

    `6 N T + 12 P D`: each of N weights is multiplied with its T tokens once forward and twice
    backward, an addition and a multiplication each; and D numbers of each of P pairs of query and
    key, in two products forward and four backward. Of a causal attention the pairs that are seen
    are counted, half of the square. The patches' product has no gradient of its input. Tables that
    are only read, norms, softmax, activations, the optimizer and what a fused attention computes
    again are not counted.

    Args:
        case: A `Case`.
        whole_squares: Whether to count all pairs of a causal attention, as a program without a
            fused kernel computes them.
    """
    width, length, tokens = case.width, case.length, case.rows * case.length
    attention, network = 4 * width**2, 2 * width * case.mlp
    square = tokens * length
    causal = square if whole_squares else tokens * (length + 1) / 2
    if case.kind == "translation":
        encoder, decoder = attention + network, 2 * attention + network
        weights = tokens * (case.layers * (encoder + decoder) + width * case.vocab)
        pairs = case.layers * (2 * square + causal)
    elif case.kind == "image":
        patches = case.rows * (length - 1) * 3 * PATCH**2 * width
        head = case.rows * width * case.vocab
        weights = tokens * case.layers * (attention + network) + head + 2 / 3 * patches
        pairs = case.layers * square
    else:
        weights = tokens * (case.layers * (attention + network) + width * case.vocab)
        pairs = case.layers * causal
    return 6 * weights + 12 * pairs * width


def product_operations(size):
    """Of a product of two square matrices."""
    return 2 * size**3


def repeated(run, seconds, least=3, wait=lambda: None):
    """Seconds of one run: the median of turns of several runs each, and the spread.

    Runs may be asynchronous: a turn ends when `wait` returns.

    Args:
        run: What is timed.
        seconds: About how long all turns may take.
        least: Turns at least.
        wait: Waits for all that was started.
    """
    turn = _turn(run, 1, wait)  # a last one to warm up, which says how many fit
    number = max(1, math.floor(seconds / least / max(turn, 1e-6)))
    turns = [_turn(run, min(number, 50), wait) for _ in range(least)]
    return statistics.median(turns), min(turns), max(turns)


def _turn(run, number, wait):
    started = time.perf_counter()
    for _ in range(number):
        run()
    wait()
    return (time.perf_counter() - started) / number
