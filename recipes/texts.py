"""What the recipes for texts share: numbers, compilation and training."""

import dataclasses

import numpy as np
import tensorflow as tf

from keras_transformers.text import real_token_share
from keras_transformers.training import (
    BudgetedDecay,
    MaskedAccuracy,
    Muon,
    SmoothedCrossEntropy,
    Throughput,
    TokenCrossEntropy,
)

from .command import RunConfig


@dataclasses.dataclass(frozen=True)
class TextConfig(RunConfig):
    """The numbers of every run on texts."""

    train: str | None = None  # own texts instead of the data set
    valid: str | None = None
    test: str | None = None
    minutes: float | None = 10.0  # of training; the learning rate decays to reach 0 then
    epochs: int = 100  # at most, however quick the machine; without minutes the decay ends there
    batch_size: int = 4096  # places in a batch
    row_length: int = 256  # places in a row
    vocab_size: int = 4000
    variant: str = "mini"
    style: str = "modern"
    dropout: float = 0.1
    learning_rate: float = 5e-3  # the peak, for matrices and embeddings alike
    weight_decay: float = 0.05
    warmup_steps: int = 50
    patience: int = 3  # epochs without a better validation loss before training stops


def ragged(sequences):
    """A ragged tensor of sequences of ids, int32."""
    lengths = [len(sequence) for sequence in sequences]
    return tf.RaggedTensor.from_row_lengths(np.concatenate(sequences).astype("int32"), lengths)


def counted(dataset):
    """A dataset that knows how many batches it has, or Keras warns that it ran out of them."""
    number = sum(1 for _ in dataset)
    return dataset.apply(tf.data.experimental.assert_cardinality(number))


def token_model(config, model, optimizer=None):
    """Compiles a model that predicts tokens, and builds it with its optimizer."""
    padding = {"ignore_id": getattr(model, "padding_id", 0)}
    model.compile(
        optimizer or config.make_optimizer(Muon),
        SmoothedCrossEntropy(0.0, **padding),
        metrics=[MaskedAccuracy(**padding), TokenCrossEntropy(**padding)],
        jit_compile=config.jit_compile,
    )
    if not model.built:
        model.build((None, None))
    # Now, or Keras makes the optimizer's variables inside the first step and traces it again.
    model.optimizer.build(model.trainable_variables)
    return model


def fit(config, folder, model, batches, valid, sequences, best, callbacks=()):
    """Fits, and goes back to the weights of the best epoch.

    Args:
        batches: Function from the number of an epoch to its dataset of `(inputs, labels)`; the
            first is gone through beforehand.
        valid: The same, for validation, `counted`.
        sequences: Names of the inputs that are ids; tokens of the last are counted for the speed.
        best: Arguments of `RunFolder.keep_best`.
        callbacks: More of them, which run before the best epoch is looked for.

    Returns:
        The history, the share of places that hold real tokens, and tokens a second.
    """
    epoch = list(batches(0))
    padding = getattr(model, "padding_id", 0)
    share = real_token_share(epoch, sequences, padding)
    print(f"{len(epoch)} batches an epoch; {share:.1%} of their places hold real tokens")
    real = sum(np.sum(inputs[sequences[-1]].numpy() != padding) for inputs, _ in epoch)
    throughput = Throughput(int(real))
    decay = BudgetedDecay(
        config.learning_rate, config.warmup_steps, config.epochs * len(epoch), config.minutes
    )
    history = folder.fit(
        model,
        batches,
        len(epoch),  # an epoch can be a batch longer or shorter than another
        config.epochs,
        [
            decay,
            throughput,
            *callbacks,
            *folder.keep_best(*best),
            *folder.callbacks(),
        ],
        validation_data=valid,
    )
    return history, share, float(np.median(throughput.rates))


def fit_tokens(config, folder, model, batches, valid):
    """`fit` of a model that predicts tokens, by its validation loss.

    Returns:
        The history, and what was measured on the way.
    """
    best = ("val_loss", "min", config.patience)
    history, share, rate = fit(config, folder, model, batches, valid, ["ids"], best)
    return history, {
        "real_token_share": share,
        "tokens_per_second": rate,
        "epochs": len(history["loss"]),
        "valid_cross_entropy": min(history["val_cross_entropy"]),
    }
