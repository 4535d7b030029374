"""Training on a stream of shards instead of what is in memory."""

import dataclasses

from keras_transformers.shards import ShardStream

LOOKED_AT = 50  # batches of a stream that say how full rows are


def stream(config, shards, encode, arrange, seed=None, **options):
    """The `ShardStream` of a run, shuffled by its seed.

    Args:
        config: Of the run.
        shards: The `Shards`, in any order.
        encode, arrange, **options: See `ShardStream`.
        seed: By default that of the run.
    """
    shards = dataclasses.replace(shards, seed=config.run.seed if seed is None else seed)
    print(f"{shards.name}: a stream, of {config.training.steps_per_epoch} batches an epoch")
    return ShardStream(shards, encode, arrange, **options)


def looked_at(config, folder, make, name="stream"):
    """The batches of the first epoch, a list, and how many an epoch has.

    Of a `ShardStream` it is the first few, and what the configuration says.

    Args:
        config, folder: Of a run that has begun. The folder has the journal of a stream.
        make: Function from the number of an epoch to its batches, or a `ShardStream`.
        name: Of the journal, where one run has several.
    """
    if isinstance(make, ShardStream):
        make.keep_journal(folder / f"{name}.jsonl")
        steps = config.training.steps_per_epoch
        return list(make.batches().take(min(steps, LOOKED_AT))), steps
    epoch = list(make(0))
    return epoch, len(epoch)  # an epoch can be a batch longer or shorter than another


def report(make):
    """Says what a stream has left out."""
    if isinstance(make, ShardStream):
        print(make.summary())
