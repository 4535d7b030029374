"""What a step on many devices should take and hold, by the formulas of docs/how_to/scale.md.

    python -m benchmarks.plan

Everything here is computed, nothing measured; `benchmarks.scaling` holds the formulas against the
programs that XLA compiles. A model is split over `data` groups of `model` devices each.
"""

import dataclasses

from benchmarks.report import table


@dataclasses.dataclass(frozen=True)
class Machine:
    """What the makers publish of one device, in SI units."""

    flops: float  # of bfloat16 products, a second
    memory: float  # bytes
    near: float  # bytes a second one way to devices of the same host or slice
    far: float  # and to those of other hosts
    together: int  # devices that are near to each other


MACHINES = {
    # https://cloud.google.com/tpu/docs/v4: 2400 Gb/s over six links, one way.
    "TPU v4": Machine(275e12, 32e9, 300e9, 300e9, 4096),
    # https://cloud.google.com/tpu/docs/v5e: 400 GB/s both ways.
    "TPU v5e": Machine(197e12, 16e9, 200e9, 200e9, 256),
    # https://www.nvidia.com/en-us/data-center/h100/: SXM, NVLink 900 GB/s both ways; in a DGX H100
    # one adapter of 400 Gb/s a GPU.
    "H100": Machine(989e12, 80e9, 450e9, 50e9, 8),
}


@dataclasses.dataclass(frozen=True)
class Stack:
    """Sizes of a stack of blocks with self-attention, `cross` of them with cross-attention."""

    width: int
    mlp: int
    blocks: int
    length: int
    vocab: int = 0  # of a table that is shared between input and output
    cross: int = 0
    other: int = 0  # parameters of tables and heads that are not split

    @property
    def matrices(self):
        """Parameters of the blocks' matrices, which the devices of a group share."""
        attention = 4 * self.width**2
        return self.blocks * (attention + 2 * self.width * self.mlp) + self.cross * attention

    @property
    def parameters(self):
        """Of the whole model, but for biases and norms."""
        return self.matrices + self.vocab * self.width + self.other

    def flops(self, rows):
        """Of a training step: 2 forwards and 4 backwards for each parameter and token."""
        tokens = rows * self.length
        products = self.matrices + self.vocab * self.width
        attention = 2 * (self.blocks + self.cross) * self.length * self.width
        return 6 * tokens * (products + attention)


MODELS = {
    # Vaswani et al. 2017, table 3, 37,000 tokens; rows of 256 positions on either side, each
    # of which passes the six blocks of its side.
    "Transformer base": Stack(512, 2048, 12, 256, 37_000, cross=6),
    "Transformer big": Stack(1024, 4096, 12, 256, 37_000, cross=6),
    # Dosovitskiy et al. 2021, table 1: 196 patches and a token at 224 pixels.
    "ViT-L/16": Stack(1024, 4096, 24, 197, other=(768 + 197 + 1000) * 1024),
}


def reduced(size, number):
    """Bytes that each device sends to sum `size` bytes over `number` of them, on a ring."""
    return 2 * (number - 1) / number * size


def gradient_bytes(model, data, split, width=4):
    """Bytes a device sends for the gradients of a step."""
    return reduced(width * held(model, split), data)


def activation_bytes(model, rows, data, split, width=2):
    """Bytes a device sends for activations: 4 sums a block, 2 forwards and 2 backwards."""
    sums = 4 * model.blocks + 2 * model.cross
    return sums * reduced(width * rows / data * model.length * model.width, split)


def held(model, split):
    """Parameters on each device."""
    return (model.matrices + model.vocab * model.width) / split + model.other


def memory(model, rows, data, split, width=2):
    """Bytes on each device: float32 weights, gradients and Adam's two moments; activations.

    Without rematerialisation a block keeps about 34 bytes a token and unit of width in bfloat16
    (Korthikanti et al. 2022, https://arxiv.org/abs/2205.05198, section 4), of which 10 on every
    device of a group; fused attention keeps no scores. Then the logits, in float32, twice.
    """
    tokens = rows / data * model.length
    kept = tokens * model.width * model.blocks * (10 + 24 / split) * width / 2
    return 16 * held(model, split) + kept + 8 * tokens * model.vocab / split


def step(model, machine, rows, data, split, efficiency=0.4):
    """Seconds of a step and of its parts, none of them overlapping: an upper bound.

    Args:
        efficiency: Share of the published speed that the products reach.
    """
    number = data * split
    compute = model.flops(rows) / (number * efficiency * machine.flops)
    # The ring of a group's first devices, of its second ones and so on each leave a host by a share
    # of its adapters, and pass from device to device inside it.
    ways = machine.far * max(machine.together / split, 1)
    slow = machine.near if number <= machine.together else min(machine.near, ways)
    gradients = gradient_bytes(model, data, split) / slow
    activations = activation_bytes(model, rows, data, split) / machine.near
    return {
        "compute": compute,
        "gradients": gradients,
        "activations": activations,
        "step": compute + gradients + activations,
    }


def rows_of(name, grids, rows):
    """The table of one model: a line for each machine and grid."""
    model, lines = MODELS[name], {}
    for kind, data, split in grids:
        machine = MACHINES[kind]
        seconds = step(model, machine, rows, data, split)
        lines[f"{kind}, data={data}" + (f",model={split}" if split > 1 else "")] = {
            **{f"{part}_ms": f"{1e3 * each:.2f}" for part, each in seconds.items()},
            "scaling": f"{seconds['compute'] / seconds['step']:.0%}",
            "GB_a_device": f"{memory(model, rows, data, split) / 1e9:.1f}",
        }
    return lines


GRIDS = [
    ("TPU v4", 64, 1),
    ("TPU v4", 32, 2),
    ("TPU v5e", 256, 1),
    ("TPU v5e", 64, 4),
    ("H100", 8, 1),
    ("H100", 256, 1),
    ("H100", 64, 4),
    ("H100", 32, 8),
]
ROWS = 4096


if __name__ == "__main__":
    for name, model in MODELS.items():
        millions = model.parameters / 1e6
        print(f"### {name}, {millions:.0f} M parameters, {ROWS} rows of {model.length}\n")
        print(table(rows_of(name, GRIDS, ROWS), "machine and grid") + "\n")
