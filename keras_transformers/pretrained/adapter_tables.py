"""Adapters of tables of tokens, which often are several modules in `transformers`.

There the input of an encoder, that of a decoder and the output are modules of their own with the
same table, each with an adapter or none; here they are one layer with one.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from keras_transformers.annotations import Array
from keras_transformers.pretrained.adapter_modules import Part
from keras_transformers.pretrained.adapter_tensors import (
    FILE,
    OF_PRODUCTS,
    PREFIX,
    PublishedAdapter,
    named_tensors,
)
from keras_transformers.pretrained.family import Family
from keras_transformers.pretrained.fused_adapters import ModuleAdapter

WRITERS = ("translation", "language_model", "masked_language", "summarization", "text_to_text")
INPUT = "embed_tokens"


def _modules_of(part: Part, family: Family, architecture: str) -> tuple[list[str], list[str]]:
    """The modules that look rows of a table up, and those that make logits with it."""
    first, *others = part.names
    inputs = [name for name in part.names if name.endswith(INPUT)] or [first]
    writes = architecture in {family.tasks.get(task) for task in WRITERS}
    tied = writes and getattr(part.layer, "tie_weights", False)
    return inputs, [name for name in others if name not in inputs] if tied else []


def our_tables(
    published: PublishedAdapter, parts: Sequence[Part], family: Family, architecture: str
) -> list[tuple[Any, ModuleAdapter]]:
    """Tables and their adapters.

    Raises:
        ValueError: If modules of a table have different adapters, or some have none.
    """
    found = []
    for part in (part for part in parts if part.is_table):
        present = [name for name in part.names if name in published.changed]
        if not present:
            continue
        inputs, outputs = _modules_of(part, family, architecture)
        if outputs and published.settings.dora:
            raise _refused_dora("load_adapter", part)
        adapters = [
            published.of(name, [part], reverse=name not in published.tables) for name in present
        ]
        lacking = [name for name in (*inputs, *outputs) if name not in present]
        if lacking or not all(_same(each, adapters[0]) for each in adapters):
            raise ValueError(
                f"{published.tensors.folder / FILE}: one table is {', '.join((*inputs, *outputs))} "
                "here, so all must have the same adapter, or none. Received: different ones, or "
                f"only {', '.join(present)}"
            )
        found.append((part.layer, adapters[0]))
    return found


def _same(one: ModuleAdapter, other: ModuleAdapter) -> bool:
    alike = one.settings.scale == other.settings.scale and one.arrays.keys() == other.arrays.keys()
    return alike and all(np.array_equal(one.arrays[key], other.arrays[key]) for key in one.arrays)


def table_tensors(
    part: Part, adapter: ModuleAdapter, family: Family, architecture: str
) -> dict[str, dict[str, Array]]:
    """Module -> its tensors, of every module of a table."""
    inputs, outputs = _modules_of(part, family, architecture)
    if outputs and adapter.settings.dora:
        raise _refused_dora("save_adapter", part)
    found = {module: named_tensors(module, part, adapter) for module in inputs}
    for module in outputs:
        found[module] = {
            f"{PREFIX}{module}.{OF_PRODUCTS['lora_a']}": adapter.arrays["lora_b"],
            f"{PREFIX}{module}.{OF_PRODUCTS['lora_b']}": adapter.arrays["lora_a"],
        }
    return found


def _refused_dora(caller: str, part: Part) -> ValueError:
    return ValueError(
        f"{caller}: a table that makes logits, too, has no DoRA that is the same here and in "
        f"`peft`. Received: an adapter of {part.layer.path}"
    )
