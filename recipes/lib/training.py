"""The stages of every run: start, build, compile, fit, continue on TensorFlow, finish.

A recipe loads its data between the first two, and scores before the last. Configurations are those
of `recipes.lib.options`. Their group `training` has `learning_rate`, `weight_decay`,
`warmup_steps`, `epochs`, `decay` and optionally `minutes`.
"""

import contextlib
import os
import sys

import keras
import numpy as np
import tensorflow as tf

from keras_transformers import distribution, fitting
from keras_transformers.fitting import counted
from keras_transformers.layers import rematerialized_blocks
from keras_transformers.precision import is_quantised
from keras_transformers.shards import ShardStream
from keras_transformers.training import (
    BudgetedDecay,
    ExactResume,
    Throughput,
    keep_freed_memory,
    token_learning,
)
from keras_transformers.visualization import training_curves

from . import pace
from .batches import first_epoch, report_left_out
from .command_line import raise_at_interrupt
from .fine_tuning import add_adapter, merge_adapter, set_layer_depths
from .folder import Clock, RunFolder, still_learning
from .options import HOST_VARIABLES, identity, numbers
from .progress import Progress, announce

# Start.


def start_run(config):
    """Starts a run: checks its folder, prints what will happen, sets seeds and precision.

    Nothing in the folder changes before training, see `RunFolder.begin`.

    Returns:
        The `RunFolder`.
    """
    run = config.run
    folder = RunFolder(run.output, run.resume, run.overwrite, identity(config))
    write_options(config, folder)
    folder.recipe = type(config).__module__
    folder.longer = _longer_run(config.training)
    announce(config)
    keep_freed_memory()
    keras.utils.set_random_seed(run.seed)
    keras.config.set_dtype_policy(run.precision)
    return folder


def write_options(config, folder):
    """Writes the options of a run into its folder, for `--resume` and for readers."""
    folder.set_identity(identity(config))
    folder.write_json("config.json", numbers(config))
    folder.track(config.run.track, numbers(config))


def _longer_run(training):
    """Returns the options of a run three times as long; None if nothing limits the run."""
    if getattr(training, "minutes", None):
        return {"minutes": 3 * training.minutes}
    epochs = getattr(training, "epochs", None)
    return {"epochs": 3 * epochs} if epochs else None


# Build.


def model_scope(config):
    """Returns the scope in which models are made."""
    return rematerialized_blocks() if config.run.rematerialize else contextlib.nullcontext()


def build_for_machine(config, folder, build, batches):
    """Builds the model of a run, after a measurement if the recipe has smaller models.

    Args:
        config: A configuration with a table `FEW_STEPS`, see `pace`.
        folder: The `RunFolder`, before `begin`.
        build: A function from a configuration to its compiled model.
        batches: A function from the number of an epoch to its dataset; or a `ShardStream`, on which
            nothing is measured.

    Returns:
        The configuration with the chosen options, and the compiled model.
    """
    with model_scope(config):
        model = build(config)
    rows = [] if isinstance(batches, ShardStream) else pace.usable_rows(config)
    if not rows:
        return config, model
    step_seconds = pace.seconds_of_a_step(model, batches(0))
    chosen, folder.minutes_of_defaults = pace.choose_options(config, rows, step_seconds)
    if chosen == config:
        return config, model
    del model
    write_options(chosen, folder)
    start_next_model(chosen, chosen.run.seed)
    with model_scope(chosen):
        return chosen, build(chosen)


def start_next_model(config, seed):
    """Frees the last model of a run, which compiled programs would hold, before the next one."""
    devices = keras.distribution.distribution()
    keras.backend.clear_session()  # which forgets precision and devices too
    keras.config.set_dtype_policy(config.run.precision)
    if devices is not None:
        keras.distribution.set_distribution(devices)
    keras.utils.set_random_seed(seed)


# Compile.


def make_optimizer(config, kind, **options):
    """Returns an optimizer of a class, with the numbers of the run."""
    options = {
        "learning_rate": config.training.learning_rate,
        "weight_decay": config.training.weight_decay,
        **options,
    }
    return kind(gradient_accumulation_steps=config.run.accumulate, **options)


def compile_model(config, model, optimizer, shape=None, new=(), **options):
    """Compiles a model, and builds it with its optimizer; with `--lora` it gets an adapter first.

    Args:
        shape: The shape of its inputs, for a model that may not be built.
        new: Parts of paths of weights that are new, and learn beside an adapter.
        **options: Arguments of `model.compile`: loss and metrics.

    Raises:
        ValueError: If the weights are quantised, and there is no `--lora`.
    """
    # XLA compiles, but not where TensorFlow copies a model to several devices.
    is_alone = config.run.devices is None or keras.backend.backend() == "jax"
    if shape is not None and not model.built:
        model.build(shape)
    set_layer_depths(config, model, optimizer)
    if config.run.lora is not None:
        add_adapter(config, model, new)
    elif is_quantised(model):
        raise ValueError(
            f"--pretrained: {config.model.pretrained} has weights of few bits, which are not "
            "trained; with --lora, a rank, adapters are trained beside them."
        )
    return fitting.prepared(model, optimizer, is_alone, **options)


def token_loss_and_metrics(model, label_smoothing=0.0, r_drop=0.0):
    """Returns loss and metrics of a model that predicts tokens; padding has no weight."""
    return token_learning(getattr(model, "padding_id", 0), label_smoothing, model, r_drop)


# Fit.


def fit(config, folder, model, make, steps, callbacks=(), *, epochs=None, name=None, **options):
    """Fits a model by the schedule of the configuration; `--resume` goes on where it was killed.

    Args:
        config: The learning rate warms up to its peak, and decays to reach 0 after `epochs` or
            `minutes`, whichever end first.
        folder: The `RunFolder`.
        model: A compiled model.
        make: A function from the number of an epoch to its dataset, see `streams.epochs`; or a
            `ShardStream`.
        steps: The number of batches of an epoch; `--accumulate` of them make a step of the
            schedule.
        callbacks: More callbacks.
        epochs: The most epochs; None for those of the configuration.
        name: The name of the model, if one run fits several: `history.csv` is then not written.
        **options: Arguments of `model.fit`; and `watch`, a function that wraps the whole dataset.

    Returns:
        The history, a dict.
    """
    epochs = epochs or config.training.epochs
    folder.begin(model)
    schedule = _schedule(config, steps, epochs)
    resume = _checkpoints(config, folder, name)
    callbacks = [
        distribution.Guard(),
        schedule,
        *callbacks,
        *folder.callbacks(name),
        Clock(folder),
        Progress(schedule, pace.documented_steps(config)),
    ]
    try:
        history = fitting.fit_epochs(
            model, make, steps, epochs, resume.after(callbacks), resume.start, **options
        )
    except Exception:
        print()  # the message would stand behind the progress bar
        raise
    raise_at_interrupt()  # `ExactResume` has handled interrupts until now
    report_left_out(make)
    _check_loss(config, history)
    merge_adapter(config, folder, model, name)
    return history


def _schedule(config, steps, epochs):
    """Returns the learning-rate schedule of the configuration."""
    training = config.training
    return BudgetedDecay(
        training.learning_rate,
        training.warmup_steps,
        max(epochs * steps // (config.run.accumulate or 1), 1),
        getattr(training, "minutes", None),
        training.decay,
    )


def _checkpoints(config, folder, name):
    """Returns the callback that writes checkpoints, and reads one if the run is resumed."""
    return ExactResume(
        folder.shared / "checkpoints" / (name or "training"),
        config.run.checkpoint_minutes,
        config.run.checkpoint_steps,
        resume=config.run.resume,
        identity=folder.checkpoint_identity(),
    )


def _check_loss(config, history):
    """Raises a ValueError if the last loss is no finite number."""
    if not np.isfinite(history.get("loss", [0.0])[-1]):
        raise ValueError(
            f"The loss became NaN or infinite in epoch {len(history['loss'])}. Nothing is scored "
            "or exported. Try a lower --learning-rate than "
            f"{config.training.learning_rate:g}."
        )


def fit_texts(config, folder, model, batches, valid, sequences, best, callbacks=()):
    """Fits a model of texts, and goes back to the weights of the best epoch.

    Args:
        batches: A function from the number of an epoch to its dataset of `(inputs, labels)`, whose
            first epoch is read before training; or a `ShardStream` of them, of which an epoch is
            `steps_per_epoch` batches.
        valid: A dataset of the same for validation.
        sequences: Names of the inputs that are ids; tokens of the last are counted for the speed.
        best: Arguments of `RunFolder.keep_best`.
        callbacks: More callbacks, which run before the best epoch is looked for.

    Returns:
        The history, the share of positions that hold real tokens, and tokens a second.
    """
    from keras_transformers.text import real_token_share  # recipes for images do without

    folder.begin(model)
    epoch, steps = first_epoch(config, folder, batches)
    padding = getattr(model, "padding_id", 0)
    share = real_token_share(epoch, sequences, padding)
    print(f"{steps} batches an epoch; {share:.1%} of their positions hold real tokens")
    real = sum(np.sum(inputs[sequences[-1]].numpy() != padding) for inputs, _ in epoch)
    throughput = Throughput(int(real * steps / len(epoch)))
    callbacks = [throughput, *callbacks, *folder.keep_best(*best)]
    valid = counted(valid)
    history = fit(config, folder, model, batches, steps, callbacks, validation_data=valid)
    return history, share, float(np.median(throughput.rates))


def fit_tokens(config, folder, model, batches, valid):
    """Fits a model that predicts tokens with `fit_texts`; the validation loss tells the best epoch.

    Returns:
        The history, and a dict of what was measured on the way.
    """
    best = ("val_loss", "min", config.training.patience)
    history, share, rate = fit_texts(config, folder, model, batches, valid, ["ids"], best)
    return history, {
        "real_token_share": share,
        "tokens_per_second": rate,
        "valid_cross_entropy": min(history["val_cross_entropy"]),
    }


# Continue on TensorFlow.


def continue_on_tensorflow():
    """Replaces the process by one of the same command, on TensorFlow and one device.

    The new process resumes from the last checkpoint, scores and exports, because a SavedModel holds
    a program of TensorFlow. If TensorFlow has trained on one device, nothing happens.
    """
    if keras.backend.backend() != "jax" and not tf.distribute.has_strategy():
        return
    is_first = distribution.is_first_host()
    distribution.leave()
    if not is_first:
        raise SystemExit(0)
    print("Trained; TensorFlow scores and exports on one device.", flush=True)
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith(HOST_VARIABLES)
    }
    environment["KERAS_BACKEND"] = "tensorflow"
    # The options of Python itself stay.
    number = len(sys.argv) - 1
    options = sys.orig_argv[1 : -number or None]
    command = [sys.executable, *options, *_arguments_to_score(sys.argv[1:])]
    os.execve(sys.executable, command, environment)


def _arguments_to_score(arguments):
    """Returns arguments of the process that scores; the last value of an option counts."""
    return [*arguments, "--devices", "None", "--no-hosts", "--no-overwrite", "--resume"]


# Finish.


def finish(
    folder, metrics, *, model=None, history=None, curves=(), exports=None, figures=None, use=None
):
    """Writes the metrics first; then exports and draws, each of which may fail by itself.

    Args:
        folder: The `RunFolder`.
        metrics: Dict of numbers; parameters, epochs and seconds are added.
        model, history: The model that was trained, and its history.
        curves: Names of the curves of the history to draw, see `training_curves`.
        exports, figures: Dicts of name -> function of the path; None exports nothing.
        use: A function that shows how to use what was exported.

    Returns:
        The metrics.

    Raises:
        ValueError: If an export failed, when all else is done.
    """
    metrics |= {"parameters": model.count_params()} if model else {}
    metrics |= {"epochs": round(history["epochs"][-1], 2)} if history else {}
    folder.write_metrics(metrics | {"seconds_training_and_evaluation": folder.seconds()})
    for name, export in (exports or {}).items():
        if export is not None:
            with folder.exporting(name) as path:
                export(path)
    figures = figures or {}
    if curves:
        figures = {"training_curves": lambda path: training_curves(history, path, curves)} | figures
    for name, draw in figures.items():
        with folder.drawing(name) as path:
            draw(path)
    metrics = folder.end()
    if use:
        use()
    folder.show_next(still_learning(history))
    return metrics
