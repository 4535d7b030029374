"""`--lora`: models that learn by an adapter, which is then merged and written for `peft`."""

import math

from keras_transformers import pretrained
from keras_transformers.precision import is_quantised
from keras_transformers.training import adapters_of, add_lora, merge, remove_lora

from .published import is_published


def adapt(config, model, new=()):
    """Gives a built model the adapter that `--lora` asks for; all else but `new` is frozen.

    Args:
        new: Parts of paths of weights that are new, and learn beside it.
    """
    rank = config.run.lora
    paths = add_lora(model, rank, targets=config.run.lora_targets, train=new)
    trained = sum(math.prod(weight.shape) for weight in model.trainable_variables)
    print(f"{len(paths)} layers have adapters of rank {rank}; {trained:,} numbers are trained")


def merge_adapter(config, folder, model, name=None):
    """Writes a model's adapter, if it has one, and adds it to the kernels.

    What follows is scored and exported: a model without adapters, be it in `model.keras`, too. It
    is not compiled, for its optimizer was of the adapter. Beside quantised kernels the adapter
    stays, for their rounding would lose it.
    """
    if not adapters_of(model):
        return
    started_from = config.model.pretrained
    if is_published(started_from):
        with folder.exporting("adapter" if name is None else f"adapter-{name}") as path:
            pretrained.save_adapter(model, path, base=started_from)
    if is_quantised(model):
        return
    merge(model)
    remove_lora(model)
    best = folder / "model.keras"
    if name is None and best.is_file():  # which has the adapter beside the kernels
        model.save(best)
