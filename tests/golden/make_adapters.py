"""Makes adapters/: what peft computes with adapters whose tensors are made from their names.

    pip install torch==2.13.0 transformers peft
    python tests/golden/make_adapters.py

Written by torch 2.13.0, transformers 5.24.0 and peft 0.21.2. For each case: the
`adapter_config.json` and the names and shapes of the tensors that `save_pretrained` writes, and
the logits of the first rows. The base models are those of `make_pretrained.py`, and the inputs too.
"""

import json
import pathlib
import sys
import tempfile

import numpy as np
import peft
import torch
from safetensors.numpy import load_file, save_file

sys.path.insert(0, str(pathlib.Path(__file__).parents[2]))
from tests.golden.make_pretrained import RUN, published
from tests.pretrained.cases import CASES
from tests.pretrained.cases.adapters import ADAPTERS, adapter_tensors

HERE = pathlib.Path(__file__).parent
ROWS = 8


def adapted(base, settings, folder):
    """The adapter of these settings in `folder`, with tensors made from names; and the model."""
    peft.get_peft_model(base, peft.LoraConfig(**settings)).save_pretrained(folder)
    file = folder / "adapter_model.safetensors"
    stored = load_file(file)
    shapes = {name: list(value.shape) for name, value in stored.items() if "base_layer" not in name}
    save_file({**stored, **adapter_tensors(shapes)}, file, {"format": "pt"})
    return shapes


def main(only):
    for key in (key for key in ADAPTERS if key.startswith(only)):
        case = CASES[key]
        with tempfile.TemporaryDirectory() as temporary, torch.no_grad():
            folder = pathlib.Path(temporary)
            (folder / "base").mkdir()
            model, _, _ = published(case, folder / "base")
            shapes = adapted(model, ADAPTERS[key], folder / "adapter")
            base = type(model).from_pretrained(folder / "base", attn_implementation="eager")
            model = peft.PeftModel.from_pretrained(base, folder / "adapter").eval()
            found = RUN[case["run"]](model.base_model.model, {**case, "generates": False})
            config = json.loads((folder / "adapter" / "adapter_config.json").read_text())
            config["base_model_name_or_path"] = None  # a folder that is no more
        np.savez_compressed(
            HERE / "adapters" / f"{key}.npz",
            config=np.array(json.dumps(config)),
            shapes=np.array(json.dumps(shapes)),
            logits=found["logits"][:ROWS],
        )
        print(key, flush=True)


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "")
