"""Fine-tuning by depth: slower below, or block after block, see docs/how_to/few_labels.md."""

from keras_transformers.training import GradualUnfreezing, block_depths


def check(config):
    """ValueError if `layer_decay` or `unfreeze_every` cannot be what is given."""
    decay, every = _numbers(config)
    if not 0 < decay <= 1 or (every is not None and every <= 0):
        raise ValueError(
            "--layer-decay must be in (0, 1], and --unfreeze-every positive. "
            f"Received: {decay}, {every}"
        )
    if (decay != 1 or every is not None) and config.model.pretrained is None:
        raise ValueError(
            "--layer-decay and --unfreeze-every need --pretrained: random weights must all learn."
        )
    if every is not None and config.run.lora is not None:
        raise ValueError("--unfreeze-every is for the weights that --lora leaves frozen; give one.")


def tell_optimizer(config, model, optimizer):
    """Tells an optimizer that is not built what `layer_decay` and `unfreeze_every` need."""
    check(config)
    decay, every = _numbers(config)
    if decay != 1 or every is not None:
        optimizer.depths, optimizer.layer_decay = block_depths(model), decay


def callbacks(config, steps):
    """The callbacks for `unfreeze_every`, with so many batches an epoch."""
    _, every = _numbers(config)
    if every is None:
        return []
    return [GradualUnfreezing(max(round(every * steps / (config.run.accumulate or 1)), 1))]


def _numbers(config):
    of = config.training
    return getattr(of, "layer_decay", 1.0), getattr(of, "unfreeze_every", None)
