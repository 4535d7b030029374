"""How every recipe trains and reports: it begins, compiles, fits and finishes.

Configurations are those of `recipes.lib.options`, with a group `training` that has `learning_rate`,
`weight_decay`, `warmup_steps`, `epochs`, `decay` and optionally `minutes`.
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
    AdamW,
    BudgetedDecay,
    ExactResume,
    Throughput,
    TranslationScores,
    classification_accuracy,
    classification_loss,
    keep_freed_memory,
    token_learning,
)
from keras_transformers.visualization import training_curves

from . import pace
from .batches import first_epoch, report_left_out
from .command_line import raise_at_interrupt
from .fine_tuning import adapt, merge_adapter, set_layer_depths, unfreezing_callbacks
from .folder import Clock, RunFolder, still_learning
from .options import OF_HOSTS, identity, numbers
from .progress import Progress, announce

HEADS = "(distillation_)?head"  # of classifiers of images


def start_run(config):
    """What every run begins with: memory, seeds, precision and its `RunFolder`, which it gives.

    Nothing in the folder changes before training, see `RunFolder.begin`.
    """
    run = config.run
    folder = RunFolder(run.output, run.resume, run.overwrite, identity(config))
    write_options(config, folder)
    folder.recipe = type(config).__module__
    name = "minutes" if getattr(config.training, "minutes", None) else "epochs"
    folder.longer = {name: 3 * of} if (of := getattr(config.training, name, None)) else None
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


def start_next_model(config, seed):
    """Before the next model of a run: frees the last one, which compiled programs would hold."""
    before = keras.distribution.distribution()
    keras.backend.clear_session()  # which forgets precision and devices too
    keras.config.set_dtype_policy(config.run.precision)
    if before is not None:
        keras.distribution.set_distribution(before)
    keras.utils.set_random_seed(seed)


def model_scope(config):
    """The scope in which models are made."""
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


def optimizer(config, kind, **options):
    """An optimizer with the numbers of the run."""
    rates = {name: getattr(config.training, name) for name in ("learning_rate", "weight_decay")}
    return kind(gradient_accumulation_steps=config.run.accumulate, **(rates | options))


def prepared(config, model, optimizer, shape=None, new=(), **options):
    """Compiles a model, and builds it with its optimizer; with `--lora` it has an adapter first.

    Args:
        shape: Of its inputs, if it may not be built.
        new: Parts of paths of weights that are new, and learn beside an adapter.
        **options: Of `model.compile`: loss and metrics.

    Raises:
        ValueError: If the weights are quantised, and there is no `--lora`.
    """
    # XLA compiles, but not where TensorFlow copies a model to several devices.
    alone = config.run.devices is None or keras.backend.backend() == "jax"
    if shape is not None and not model.built:
        model.build(shape)
    set_layer_depths(config, model, optimizer)
    if config.run.lora is not None:
        adapt(config, model, new)
    elif is_quantised(model):
        raise ValueError(
            f"--pretrained: {config.model.pretrained} has weights of few bits, which are not "
            "trained; with --lora, a rank, adapters are trained beside them."
        )
    return fitting.prepared(model, optimizer, alone, **options)


def of_tokens(model, label_smoothing=0.0, r_drop=0.0):
    """Loss and metrics of a model that predicts tokens; padding counts for nothing."""
    return token_learning(getattr(model, "padding_id", 0), label_smoothing, model, r_drop)


def classifier(config, model):
    """`prepared` for a model of labelled images, whose head is new."""
    of, kind = config.training, model.problem_type
    averaged = {"use_ema": of.ema is not None, "ema_momentum": of.ema or 0.99}
    adam = optimizer(config, AdamW, beta_2=0.98, global_clipnorm=of.clip_norm, **averaged)
    loss = classification_loss(kind, of.label_smoothing)
    metrics = [classification_accuracy(kind)]
    return prepared(config, model, adam, new=HEADS, loss=loss, metrics=metrics)


def fit(config, folder, model, make, steps, callbacks=(), *, epochs=None, name=None, **options):
    """`model.fit` by the schedule of the configuration; `--resume` goes on where it was killed.

    Args:
        config: The learning rate warms up to its peak, and decays to reach 0 after `epochs` or
            `minutes`, whichever end first.
        folder: The `RunFolder`.
        model: Compiled.
        make: Function from the number of an epoch to its dataset, see `streams.epochs`; or a
            `ShardStream`.
        steps: Batches of an epoch; `--accumulate` of them make a step of the schedule.
        callbacks: More of them.
        epochs: At most; None for those of the configuration.
        name: Of the model, where one run fits several: `history.csv` is then not written.
        **options: Of `model.fit`; and `watch`, a function that wraps the whole dataset.

    Returns:
        The history, a dict.
    """
    run, of = config.run, config.training
    epochs = epochs or of.epochs
    folder.begin(model)
    schedule = BudgetedDecay(
        of.learning_rate,
        of.warmup_steps,
        max(epochs * steps // (run.accumulate or 1), 1),
        getattr(of, "minutes", None),
        of.decay,
    )
    kept = folder.callbacks(name)
    resume = ExactResume(
        folder.shared / "checkpoints" / (name or "training"),
        run.checkpoint_minutes,
        run.checkpoint_steps,
        resume=run.resume,
        identity=folder.checkpoint_identity(),
    )
    every = [distribution.Guard(), schedule, *callbacks, *kept, Clock(folder)]
    every.append(Progress(schedule, pace.documented_steps(config)))
    try:
        history = fitting.fit_epochs(
            model, make, steps, epochs, resume.after(every), resume.start, **options
        )
    except Exception:
        print()  # or what is said of it would stand behind the progress bar
        raise
    raise_at_interrupt()  # `ExactResume` has seen to it until now
    report_left_out(make)
    if not np.isfinite(history.get("loss", [0.0])[-1]):
        raise ValueError(
            f"The loss became NaN or infinite in epoch {len(history['loss'])}. Nothing is scored "
            f"or exported. Try a lower --learning-rate than {of.learning_rate:g}."
        )
    merge_adapter(config, folder, model, name)
    return history


def fit_images(config, folder, model, batches, valid, number):
    """`fit` of a classifier of so many images.

    Returns:
        The history, and what was measured on the way.
    """
    from keras_transformers.vision import WaitingClock

    clock, size = WaitingClock(), min(config.training.batch_size, number)
    callbacks = [keras.callbacks.SwapEMAWeights()] if config.training.ema else []
    callbacks += unfreezing_callbacks(config, number // size)
    watched = {"watch": clock.watch, "validation_data": valid}
    history = fit(config, folder, model, batches, number // size, callbacks, **watched)
    seconds = history["seconds"]
    epoch = np.median(np.diff(seconds)) if len(seconds) > 1 else seconds[0]
    return history, {
        "share_of_time_waiting_for_data": float(clock.seconds.numpy()) / seconds[-1],
        "images_per_second": float(number // size * size / epoch),
    }


def fit_texts(config, folder, model, batches, valid, sequences, best, callbacks=()):
    """`fit` of a model of texts, back to the weights of the best epoch.

    Args:
        batches: Function from the number of an epoch to its dataset of `(inputs, labels)`; the
            first is gone through beforehand. Or a `ShardStream` of them, of which an epoch is
            `steps_per_epoch` batches.
        valid: The same, for validation.
        sequences: Names of the inputs that are ids; tokens of the last are counted for the speed.
        best: Arguments of `RunFolder.keep_best`.
        callbacks: More of them, which run before the best epoch is looked for.

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
    history = fit(
        config,
        folder,
        model,
        batches,
        steps,
        [throughput, *callbacks, *folder.keep_best(*best)],
        validation_data=counted(valid),
    )
    return history, share, float(np.median(throughput.rates))


def fit_tokens(config, folder, model, batches, valid):
    """`fit_texts` of a model that predicts tokens, by its validation loss.

    Returns:
        The history, and what was measured on the way.
    """
    best = ("val_loss", "min", config.training.patience)
    history, share, rate = fit_texts(config, folder, model, batches, valid, ["ids"], best)
    return history, {
        "real_token_share": share,
        "tokens_per_second": rate,
        "valid_cross_entropy": min(history["val_cross_entropy"]),
    }


def fit_translations(config, folder, model, batches, valid, scored, translate, callbacks=()):
    """Fits a translator with `fit_texts`, and keeps the epoch with the best validation BLEU.

    Args:
        scored: The corpus of validation pairs that are translated and scored.
        translate: A function from their sources to translations.
        callbacks: More of them.

    Returns:
        The history, and what was measured on the way.
    """
    of, sources, targets = config.training, scored.sources, scored.targets
    tokenize = config.decoding.bleu_tokenizer
    groups = getattr(scored, "directions", None)
    scores = TranslationScores(
        translate, sources, targets, of.score_every, tokenize, samples=3, groups=groups
    )
    best = ("val_rank", "max", of.patience)
    sequences = ["source", "target"]
    history, share, rate = fit_texts(
        config, folder, model, batches, valid, sequences, best, [scores, *callbacks]
    )
    return history, {
        "valid_bleu": max(history["val_bleu"]),
        "valid_chrf": max(history["val_chrf"]),
        "valid_examples": len(sources),
        "real_token_share": share,
        "target_tokens_per_second": rate,
    }


def continue_on_tensorflow():
    """Replaces the process by one of the same command, on TensorFlow and one device.

    It resumes from the last checkpoint, scores and exports, for a SavedModel holds TensorFlow's
    program. Where TensorFlow has trained on one device, nothing is to be done.
    """
    if keras.backend.backend() != "jax" and not tf.distribute.has_strategy():
        return
    first = distribution.is_first_host()
    distribution.leave()
    if not first:
        raise SystemExit(0)
    print("Trained; TensorFlow scores and exports on one device.", flush=True)
    environment = {n: value for n, value in os.environ.items() if not n.startswith(OF_HOSTS)}
    environment["KERAS_BACKEND"] = "tensorflow"
    # As Python was called, its own options too.
    own = len(sys.argv) - 1
    command = [sys.executable, *sys.orig_argv[1 : -own or None], *_arguments_to_score(sys.argv[1:])]
    os.execve(sys.executable, command, environment)


def _arguments_to_score(arguments):
    """Arguments of the process that scores; of an option that comes twice, the last is taken."""
    return [*arguments, "--devices", "None", "--no-hosts", "--no-overwrite", "--resume"]


def finish(
    folder, metrics, *, model=None, history=None, curves=(), exports=None, figures=None, use=None
):
    """Results first; then what is exported and drawn, of which each may fail by itself.

    Args:
        folder: The `RunFolder`.
        metrics: Dict of numbers; parameters, epochs and seconds come to them.
        model, history: Of what was trained.
        curves: Names of the curves of the history to draw, see `training_curves`.
        exports, figures: Dicts of name -> function of the path; None exports nothing.
        use: Optional function that shows how to use what was exported.

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
    if curves:
        figures = {
            "training_curves": lambda path: training_curves(history, path, curves),
            **(figures or {}),
        }
    for name, draw in (figures or {}).items():
        with folder.drawing(name) as path:
            draw(path)
    metrics = folder.end()
    if use:
        use()
    folder.show_next(still_learning(history))
    return metrics
