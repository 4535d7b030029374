"""`adapter_model.safetensors`: an adapter's tensors by the modules that they change."""

import dataclasses
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from keras_transformers.annotations import Array, StrPath
from keras_transformers.layers.low_rank_settings import LowRankSettings
from keras_transformers.pretrained.adapter_modules import Part
from keras_transformers.pretrained.adapter_settings import AdapterSettings, read_settings
from keras_transformers.pretrained.files import Tensors
from keras_transformers.pretrained.fused_adapters import ModuleAdapter

FILE = "adapter_model.safetensors"
PREFIX = "base_model.model."
OF_PRODUCTS = {"lora_a": "lora_A.weight", "lora_b": "lora_B.weight"}
OF_TABLES = {"lora_a": "lora_embedding_A", "lora_b": "lora_embedding_B"}
MAGNITUDE = {"magnitude": "lora_magnitude_vector"}
KINDS = {
    **{name: (key, False) for key, name in OF_PRODUCTS.items()},
    **{name: (key, True) for key, name in OF_TABLES.items()},
    "lora_magnitude_vector": ("magnitude", None),
    "lora_magnitude_vector.weight": ("magnitude", None),
}
KNOWN = re.compile(rf"(.+)\.({'|'.join(map(re.escape, KINDS))})")
OTHER = {"lora_a": "lora_b", "lora_b": "lora_a"}


@dataclasses.dataclass(frozen=True)
class PublishedAdapter:
    """A folder with an adapter.

    Args:
        settings: Its configuration.
        tensors: Its tensors.
        changed: Module -> "lora_a", "lora_b" or "magnitude" -> name of the tensor.
        tables: Modules whose rows are looked up.
        whole: Name inside the model -> name of the tensor, of weights that are not changes.
    """

    settings: AdapterSettings
    tensors: Tensors
    changed: dict[str, dict[str, str]]
    tables: set[str]
    whole: dict[str, str]

    def of(self, module: str, parts: Sequence[Part], reverse: bool = False) -> ModuleAdapter:
        """The adapter of a module.

        Args:
            module: Its name.
            parts: The layers of ours that it is.
            reverse: Whether the module multiplies with a table that is ours, transposed.

        Raises:
            ValueError: If a tensor is missing, or has another shape than the configuration says.
        """
        rank, alpha = self.settings.of(module)
        settings = LowRankSettings(
            rank, alpha, self.settings.dropout, self.settings.dora, self.settings.rank_stabilized
        )
        names = dict(self.changed[module])
        if reverse:
            names = {OTHER.get(key, key): name for key, name in names.items()}
        shapes = expected_shapes(parts, settings)
        if reverse:
            shapes = {key: shape[::-1] for key, shape in shapes.items()}
        if set(names) != set(shapes):
            raise ValueError(
                f"{self.tensors.folder / FILE}: of {module} there must be {', '.join(shapes)}. "
                f"Received: {', '.join(names)}"
            )
        for key, name in names.items():
            if self.tensors.shapes[name] != shapes[key]:
                raise ValueError(
                    f"{self.tensors.folder / FILE}: {name} must have shape {shapes[key]}, as the "
                    f"model and `r` have it. Received: {self.tensors.shapes[name]}"
                )
        found = {
            key: self.tensors.read(name).astype("float32", copy=False)
            for key, name in names.items()
        }
        found = {key: value.T for key, value in found.items()} if reverse else found
        return ModuleAdapter(settings, our_arrays(parts, found))


def read_adapter(folder: StrPath) -> PublishedAdapter:
    """The adapter in a folder.

    Raises:
        FileNotFoundError: If a file is missing.
        ValueError: If the adapter is of another kind than LoRA or DoRA, or a tensor is.
    """
    settings = read_settings(folder)
    tensors = Tensors(folder, FILE)
    changed: dict[str, dict[str, str]] = {}
    tables, whole = set(), {}
    for name in tensors.shapes:
        inside = name.removeprefix(PREFIX)
        match = KNOWN.fullmatch(inside)
        if inside == name or (".lora_" in inside and match is None):
            raise ValueError(
                f"{tensors.folder / FILE}: names must begin with {PREFIX!r}, and end with "
                f"{', '.join(KINDS)} where they are of changes. Received: {name:.200}"
            )
        if match is None:
            whole[inside] = name
            continue
        module, (key, table) = match[1], KINDS[match[2]]
        changed.setdefault(module, {})[key] = name
        if table:
            tables.add(module)
    return PublishedAdapter(settings, tensors, changed, tables, whole)


def _all(parts: Sequence[Part]) -> tuple[int, int]:
    """Numbers of inputs and outputs of a module."""
    return parts[0].shape[0], sum(part.shape[1] for part in parts)


def expected_shapes(parts: Sequence[Part], settings: LowRankSettings) -> dict[str, tuple[int, ...]]:
    """Shapes of the tensors of a module's adapter."""
    inputs, outputs = _all(parts)
    arrays = {
        "lora_a": np.broadcast_to(np.float32(0), (inputs, settings.rank)),
        "lora_b": np.broadcast_to(np.float32(0), (settings.rank, outputs)),
    }
    if settings.dora:
        arrays["magnitude"] = np.zeros(outputs, "float32")
    return {key: value.shape for key, value in their_arrays(parts[0], arrays).items()}


def their_arrays(part: Part, arrays: Mapping[str, Array]) -> dict[str, Array]:
    """`lora_a` `(inputs, rank)`, `lora_b` `(rank, outputs)` and magnitudes as they lie there."""
    found = {key: value.T for key, value in arrays.items()}
    if part.is_convolution:
        found["lora_a"] = part.layout.theirs(arrays["lora_a"])
        found["lora_b"] = found["lora_b"][:, :, None, None]
        if "magnitude" in found:
            found["magnitude"] = found["magnitude"].reshape(1, -1, 1, 1)
    return found


def our_arrays(parts: Sequence[Part], tensors: Mapping[str, Array]) -> dict[str, Array]:
    """The other way round."""
    (inputs, outputs), rank = _all(parts), len(tensors["lora_a"])
    first = parts[0]
    a = tensors["lora_a"]
    found = {
        "lora_a": first.layout.ours(a, (inputs, rank)) if first.is_convolution else a.T,
        "lora_b": tensors["lora_b"].reshape(outputs, rank).T,
    }
    if "magnitude" in tensors:
        found["magnitude"] = tensors["magnitude"].reshape(-1)
    return found


def named_tensors(module: str, part: Part, adapter: ModuleAdapter) -> dict[str, Any]:
    """The tensors of a module's adapter under their names."""
    kinds = (OF_TABLES if part.is_table else OF_PRODUCTS) | MAGNITUDE
    found = their_arrays(part, adapter.arrays)
    return {f"{PREFIX}{module}.{kinds[key]}": value for key, value in found.items()}
