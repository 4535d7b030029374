"""Training on a stream of shards instead of what is in memory."""

import dataclasses

from keras_transformers.shards import ShardStream

LOOKED_AT = 50  # batches of a stream that say how full rows are


def stream(config, folder, shards, encode, arrange, name="stream", seed=None, **options):
    """The `ShardStream` of a run: shuffled by its seed, with its journal in the folder.

    Args:
        config, folder: Of the run; without `--resume` a journal that lies there is removed.
        shards: The `Shards`, in any order.
        encode, arrange, **options: See `ShardStream`.
        name: Of the journal, where one run has several.
        seed: By default that of the run.
    """
    journal = folder / f"{name}.jsonl"
    if not config.run.resume:
        journal.unlink(missing_ok=True)  # of an earlier run
    shards = dataclasses.replace(shards, seed=config.run.seed if seed is None else seed)
    print(f"{shards.name}: a stream, of {config.training.steps_per_epoch} batches an epoch")
    return ShardStream(shards, encode, arrange, journal, **options)


def looked_at(config, make):
    """The batches of the first epoch, a list, and how many an epoch has.

    Of a `ShardStream` it is the first few, and what the configuration says.
    """
    if isinstance(make, ShardStream):
        steps = config.training.steps_per_epoch
        return list(make.batches().take(min(steps, LOOKED_AT))), steps
    epoch = list(make(0))
    return epoch, len(epoch)  # an epoch can be a batch longer or shorter than another


def report(make):
    """Says what a stream has left out."""
    if isinstance(make, ShardStream):
        print(make.summary())
