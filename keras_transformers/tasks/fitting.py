"""The base of what a predictor does with its model: train, evaluate, adapt, save and export."""

import dataclasses
import pathlib
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Literal, Self

import keras
import numpy as np
import tensorflow as tf

from keras_transformers.core.types import Array, StrPath
from keras_transformers.data import streams
from keras_transformers.data.splits import find_parts, part_of
from keras_transformers.data.streams import ShardStream
from keras_transformers.data.table_files import ENDINGS, Chosen, ending
from keras_transformers.data.tables import name_of
from keras_transformers.precision import in_precision, is_quantised
from keras_transformers.tasks.predictor_folder import Held, Published, write_held
from keras_transformers.training import (
    AdamW,
    BudgetedDecay,
    FineTuning,
    adapters_of,
    add_lora,
    fine_tuning_numbers,
    merge,
    score_classes,
    score_labels,
    unmerge,
)
from keras_transformers.training.adapters import (
    adapted_layers,
    checked_settings,
    is_merged,
    refuse_merged,
)
from keras_transformers.vision.reading import folders_in, parts_of_folder

WEIGHT_DECAY = 0.01  # of matrices and embeddings, as BERT was tuned
CLIP_NORM = 1.0
# Adapters learn best at ten times the rate of full fine-tuning (Schulman et al. 2025, "LoRA without
# regret").
LORA_RATE = 10
SIXTEEN_BITS = ("float16", "bfloat16")
COMPILED_FROM = 300  # steps; XLA takes longer to compile than fewer would gain


@dataclasses.dataclass(frozen=True)
class Asked:
    """What is asked of a training; what is None follows from the number of examples.

    Args:
        columns: Names or positions of the columns, see `tables.read_rows`.
        epochs, learning_rate, batch_size: See `training.fine_tuning_numbers`.
        patience: Epochs without a lower validation loss before training stops.
        seed: Of what is held out, of the order and of dropout.
        callbacks: More of them, for `model.fit`.
        verbose: As of `model.fit`.

    Example:
    >>> from keras_transformers.fitting import Asked
    >>> Asked(epochs=2).numbers(3000, "text").epochs
    2
    """

    columns: Chosen = None
    epochs: int | None = None
    learning_rate: float | None = None
    batch_size: int | None = None
    patience: int = 2
    seed: int = 0
    callbacks: Sequence[keras.callbacks.Callback] = ()
    verbose: Any = "auto"

    def numbers(self, examples: int, kind: Literal["text", "image"]) -> FineTuning:
        """Returns the given numbers, and the others by the rule for so many examples.

        Raises:
            ValueError: If a number is not positive.
        """
        numbers: dict[str, Any] = {
            "epochs": self.epochs,
            "learning_rate": self.learning_rate,
            "batch_size": self.batch_size,
        }
        numbers = {name: number for name, number in numbers.items() if number is not None}
        for name, number in numbers.items():
            if number <= 0:
                raise ValueError(f"fit: `{name}` must be positive. Received: {number}")
        return dataclasses.replace(fine_tuning_numbers(examples, kind), **numbers)


class Fitted:
    """A model of one kind that answers, learns and is written; the base of all kinds.

    A subclass has `kind`, `exporter`, `fit` and `evaluate`.

    Args:
        held: The model, and what stands around it.

    Attributes:
        held: As given.
        kind: One of `predictors.KINDS`.

    Example:
    >>> from keras_transformers.fitting import FITTINGS, TextClassifierFitting
    >>> FITTINGS["text_classifier"] is TextClassifierFitting
    True
    """

    kind: ClassVar[str]
    choices: ClassVar[tuple[str, ...]] = ()  # options of `fit`
    default_search: ClassVar[Any] = None  # of tasks that generate text

    def __init__(self, held: Held) -> None:
        self.held = held

    @classmethod
    def from_published(cls, published: Published) -> "Fitted | None":
        """Returns the published model as one of this task, or None if it is of another: a hook.

        Raises:
            ValueError: If the folder is broken, or leaves something open that `load` must be told.
        """
        return None

    @classmethod
    def options_of_run(
        cls, folder: pathlib.Path, predictor: Any, numbers: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Returns the exporter's options for the model of a recipe's run: a hook.

        Args:
            folder: Folder of the run.
            predictor: The predictor of its SavedModel.
            numbers: The options of the run.

        Raises:
            ValueError: If the model does not learn here.
        """
        return {}

    def served(self) -> Any:
        """The object of `export` that answers with the weights of the moment: a hook."""
        raise NotImplementedError

    def fit(self, *args: Any, **kwargs: Any) -> tuple["Fitted", dict[str, Any]]:
        """Trains on `data, valid, asked` by the kind's `choices`: a hook.

        Gives what answers from then on, itself or of another kind, and the history.
        """
        raise NotImplementedError

    def evaluate(self, data: Any, columns: Chosen = None) -> dict[str, float]:
        """Scores of the model on labelled data."""
        raise NotImplementedError

    def trained(
        self, data: Any, valid: Any, asked: Mapping[str, Any], options: Mapping[str, Any]
    ) -> tuple["Fitted", dict[str, Any]]:
        """`fit`, with the arguments of `Asked` in a dict, and options that are checked by name.

        Raises:
            TypeError: If there is no such option.
            ValueError: If the weights are quantised and there are no adapters to train.

        Weights in 16 bits are trained in float32, and then stored in 16 bits again: they are too
        coarse for the steps of an optimizer.
        """
        if unknown := sorted(set(options) - set(self.choices)):
            raise TypeError(
                f"fit: a {self.kind} has no option {', '.join(unknown)}; it has "
                f"{', '.join(self.choices) or 'none'}."
            )
        model = self.held.model
        if self.held.adapter is None and is_quantised(model) and not adapters_of(model):
            raise ValueError(
                "fit: weights of few bits stay as they are; `add_lora` first, and adapters "
                f"learn beside them. Received: a quantised {type(model).__name__} without adapters"
            )
        request = Asked(**asked)
        precision = model.dtype_policy.variable_dtype
        is_coarse = precision in SIXTEEN_BITS
        trained = self.quantized("float32") if is_coarse else self
        keras.utils.set_random_seed(request.seed)  # now, for heads and adapters are drawn too
        fitted, history = trained.fit(data, valid, request, **options)
        return fitted.quantized(precision) if is_coarse else fitted, history

    def adapted(self, rank: int, options: Mapping[str, Any]) -> Self:
        """Itself, of which the next `fit` trains adapters; a new head needs to be there first.

        Raises:
            TypeError: If `training.add_lora` has no such option.
            ValueError: If a number is out of range, or the model has adapters that stand in the
                way: one of that name, a merged one, or Keras's own.
        """
        check_options(self.held.model, {"rank": rank, **options})
        return type(self)(dataclasses.replace(self.held, adapter={"rank": rank, **options}))

    def quantized(self, mode: Any) -> Self:
        """The same with the weights in fewer bits."""
        model = in_precision(self.held.model, mode)
        return type(self)(dataclasses.replace(self.held, model=model))

    def save(self, folder: StrPath) -> pathlib.Path:
        """Writes what is held, see `write_held`."""
        return write_held(self.kind, self.held, folder)

    def export(self, path: StrPath, **options: Any) -> pathlib.Path:
        """Writes what answers, see `save` of the exporter, with active adapters merged.

        The model itself keeps them apart.

        Warns:
            UserWarning: If the kernels are quantised, so that the adapter is not merged.
        """
        model = self.held.model
        layers = [layer for layer in adapted_layers(model).values() if layer.adapter.acting]
        kernels = [layer.kernel_variable() for layer in layers]
        if any(kernel is None for kernel in kernels):
            warnings.warn(
                "export: the adapter is not merged, because its change would be lost in the "
                "rounding of quantised kernels. It is exported, and computed with every call.",
                stacklevel=3,
            )
        elif kernels and not is_merged(model):
            return self._export_merged(path, kernels, options)
        return pathlib.Path(self.served().save(path, **options))

    def _export_merged(
        self, path: StrPath, kernels: Sequence[Any], options: Mapping[str, Any]
    ) -> pathlib.Path:
        """Exports with the adapter in these kernels, which have the same bits afterwards."""
        model = self.held.model
        values = [np.array(keras.ops.convert_to_numpy(kernel)) for kernel in kernels]
        merge(model)
        try:
            return pathlib.Path(self.served().save(path, **options))
        finally:
            unmerge(model)
            for kernel, value in zip(kernels, values, strict=True):
                kernel.assign(value)


class Answering(Fitted):
    """The base of kinds that answer, are quantised, saved and exported, and do not learn here.

    Example:
    >>> from keras_transformers.fitting import FITTINGS, Answering
    >>> sorted(kind for kind, fitting in FITTINGS.items() if issubclass(fitting, Answering))
    ['detector', 'question_answerer', 'segmenter', 'zero_shot_classifier']
    """

    def fit(self, *args: Any, **kwargs: Any) -> tuple[Fitted, dict[str, Any]]:
        raise ValueError(self._refusal("fit"))

    def evaluate(self, data: Any, columns: Chosen = None) -> dict[str, float]:
        raise ValueError(self._refusal("evaluate"))

    def trained(
        self, data: Any, valid: Any, asked: Mapping[str, Any], options: Mapping[str, Any]
    ) -> tuple[Fitted, dict[str, Any]]:
        raise ValueError(self._refusal("fit"))

    def adapted(self, rank: int, options: Mapping[str, Any]) -> Self:
        raise ValueError(self._refusal("add_lora"))

    def _refusal(self, asked: str) -> str:
        return (
            f"{asked}: a {self.kind} does not learn here. Its `model` is a Keras model: train it "
            "by `compile` and `fit` of its own; `save` and `export` of the predictor then write "
            "what it has learned."
        )


def check_options(model: Any, options: Mapping[str, Any]) -> None:
    """Raises TypeError or ValueError if `training.add_lora` could not take the options later."""
    numbers = ("rank", "alpha", "dropout", "dora", "rslora")
    names = (*numbers, "targets", "train", "name")
    if unknown := sorted(set(options) - set(names)):
        raise TypeError(
            f"add_lora: there is no option {', '.join(unknown)}. Expected: {', '.join(names)}"
        )
    checked_settings(**{key: options[key] for key in numbers if key in options})
    known, name = sorted(adapters_of(model)), options.get("name", "default")
    if name in known:
        raise ValueError(
            f"add_lora: `name` must be a new one; `fit` trains the adapters that there are. "
            f"Received: {name!r}, and the model has {known}"
        )
    refuse_merged(model, "add_lora")
    if any(getattr(layer, "lora_enabled", False) for layer in model._flatten_layers()):
        raise ValueError("add_lora: `model` must not have Keras's own LoRA (`enable_lora`).")


def with_adapter(held: Held, has_new_head: bool) -> Held:
    """What is held, its model with the adapter that is asked for; a new head is trained beside."""
    if held.adapter is None:
        return held
    options = dict(held.adapter)
    if has_new_head:
        train = options.get("train", ())
        options["train"] = (*([train] if isinstance(train, str) else train), "head")
    add_lora(held.model, **options)
    return dataclasses.replace(held, adapter=None)


def learned(
    model: Any, make: Any, valid: Any, numbers: FineTuning, asked: Asked, **compiled: Any
) -> dict[str, Any]:
    """Compiles a model, trains it, and goes back to the weights of its best epoch.

    AdamW; the learning rate warms up and decays to 0 over the epochs; training stops when the loss
    of the validation set has not become lower for some epochs. Adapters learn at ten times the rate
    that all weights would, if none was given.

    Args:
        model: Built.
        make: Function from the number of an epoch to its dataset.
        valid: Dataset to watch by.
        numbers, asked: See there.
        **compiled: Of `model.compile`: loss and metrics.

    Returns:
        The history.

    Raises:
        ValueError: If the loss became NaN or infinite in the first epoch; the weights are then
            those that the model had. In a later epoch, a warning says so, and the best weights
            stay.
    """
    keras.utils.set_random_seed(asked.seed)
    _reseed_dropout(model, asked.seed)
    start_weights = model.get_weights()
    steps = sum(1 for _ in make(0))
    total = steps * numbers.epochs
    if adapters_of(model) and asked.learning_rate is None:
        numbers = dataclasses.replace(numbers, learning_rate=LORA_RATE * numbers.learning_rate)
    adam = AdamW(numbers.learning_rate, weight_decay=WEIGHT_DECAY, global_clipnorm=CLIP_NORM)
    prepared(model, adam, jit_compile=total >= COMPILED_FROM, **compiled)
    schedule = BudgetedDecay(numbers.learning_rate, min(numbers.warmup_steps, total // 2), total)
    best = keras.callbacks.EarlyStopping(
        "val_loss", patience=asked.patience, restore_best_weights=True
    )
    try:
        history = fit_epochs(
            model,
            make,
            steps,
            numbers.epochs,
            [schedule, *asked.callbacks, best, keras.callbacks.TerminateOnNaN()],
            validation_data=counted(valid),
            verbose=asked.verbose,
        )
    finally:
        uncompiled(model)
    _check_finite(model, start_weights, history, best.best_epoch, numbers)
    return history


def _reseed_dropout(model: Any, seed: int) -> None:
    """Starts the random numbers of a model's layers at the seed, not where it was made."""
    draw = np.random.default_rng(seed)
    for layer in model._flatten_layers():
        generator = getattr(layer, "seed_generator", None)
        if isinstance(generator, keras.random.SeedGenerator):
            generator.state.assign(np.array([draw.integers(2**31), 0], "uint32"))


def _check_finite(
    model: Any,
    start_weights: list[Array],
    history: Mapping[str, Sequence[float]],
    best_epoch: int,
    numbers: FineTuning,
) -> None:
    """Reports a loss that is not finite; the weights of an epoch with one do not stay."""
    is_finite = np.isfinite(history["loss"]) & np.isfinite(history["val_loss"])
    if is_finite.all():
        return
    advice = (
        f"A lower `learning_rate` than {numbers.learning_rate:g} may help, or a look at extreme "
        "values in the data."
    )
    epoch = int(np.argmin(is_finite)) + 1
    if not is_finite[best_epoch]:
        model.set_weights(start_weights)
        raise ValueError(
            f"fit: the loss became NaN or infinite in epoch {epoch}, before anything was learned. "
            f"The weights are those from before. {advice}"
        )
    warnings.warn(
        f"fit: the loss became NaN or infinite in epoch {epoch}, and training ended. The weights "
        f"are those of epoch {best_epoch + 1}. {advice}",
        stacklevel=2,
    )


def class_scores(probabilities: Array, labels: Array, classes: Sequence[str]) -> dict[str, float]:
    """Scores a classifier, also on rows of classes that it does not know: these are errors.

    Args:
        probabilities: `(rows, known)`, of the first of the classes, which the model knows.
        labels: Integers `(rows,)`, positions in `classes`; or 0 and 1 `(rows, classes)` where a row
            can have several labels.
        classes: Names of the classes: those that the model knows, then any others.

    Returns:
        Dict of numbers: `accuracy` and `macro_f1`, or the numbers of `training.score_labels`; and
        `rows`, of which `of_unknown_classes` have a class that the model does not know.
    """
    known = probabilities.shape[1]
    probabilities = np.pad(probabilities, ((0, 0), (0, len(classes) - known)))
    if labels.ndim == 2:
        numbers = score_labels(probabilities, labels, classes).numbers()
        unknown = labels[:, known:].any(axis=1)
    else:
        scores = score_classes(probabilities, labels, classes)
        f1 = [row["f1"] for row in scores.table if row["images"]]
        numbers = {"accuracy": scores.top1, "macro_f1": float(np.mean(f1))}
        unknown = labels >= known
    return {**numbers, "rows": len(labels), "of_unknown_classes": int(unknown.sum())}


def split_parts(data: Any, valid: Any, verbose: Any) -> tuple[Any, Any]:
    """What is learned from and what is watched by, where one thing has both.

    That is a dict with `train` and `validation`, as `datasets` has them, or a folder with such
    folders or files, by any name in `splits.PARTS`. None: to be held out of what is learned from.
    Nothing is learned from a test set or another part; unless `verbose` is 0, this is printed.

    Raises:
        ValueError: If two names stand for one part, or all are parts and none is to learn from.
    """
    if isinstance(data, Mapping):
        where, parts = name_of(data), _parts_of_dict(data)
    elif isinstance(data, str | pathlib.PurePath) and pathlib.Path(data).is_dir():
        where, parts = str(data), _parts_of_folder(pathlib.Path(data))
    else:
        return data, valid
    if "train" not in parts:
        return data, valid
    train = parts.pop("train")
    if valid is None:
        valid = parts.pop("valid", None)
    if parts and verbose:
        watched = "" if valid is not None else ", and a share of it is held out to watch by"
        print(f"{where}: only `train` is learned from{watched}; not used: {', '.join(parts)}")
    return train, valid


def _parts_of_dict(data: Mapping[Any, Any]) -> dict[str, Any]:
    """Dict of "train", "valid", "test" and other keys to what they hold."""
    rest = {str(key): value for key, value in data.items()}
    parts = find_parts(name_of(data), rest, "part")
    if parts and len(parts) == len(rest) and "train" not in parts:
        raise ValueError(f"{name_of(data)} has no part `train` beside {', '.join(rest)}")
    return {part: rest.pop(key) for part, key in parts.items()} | rest


def _parts_of_folder(path: pathlib.Path) -> dict[str, pathlib.Path]:
    """Dict of "train", "valid", "test" and other names to folders, or files; {} without parts."""
    folders = folders_in(path)
    if folders:
        parts = parts_of_folder(path)
        others = [name for name in folders if name not in parts.values()]
        names = parts | {name: name for name in others}
        return {part: path / name for part, name in names.items()} if parts else {}
    files = [file for file in sorted(path.iterdir()) if ending(file) in (".txt", *ENDINGS)]
    stems = [file.name.split(".")[0] for file in files]
    parts = find_parts(str(path), stems, "file")
    if "train" not in parts or len(parts) == 1:
        return {}
    return {part_of(stem) or stem: file for stem, file in zip(stems, files, strict=True)}


def in_two(asked: Asked, whole: Any, watched: Any, split: Callable[[Any, int], Any]) -> Any:
    """What is learned from and what is watched by, which is held out where it is None.

    Prints what was read and what was left out.
    """
    if asked.verbose:
        print(whole.summary())
    if watched is None:
        whole, watched = split(whole, asked.seed)
        if asked.verbose:
            print(f"{len(whole):,} to learn from, {len(watched):,} held out to watch by")
    elif asked.verbose:
        print(watched.summary())
    return whole, watched


def prepared(
    model: Any, optimizer: Any, jit_compile: bool, shape: Any = None, **options: Any
) -> Any:
    """Compiles a model, and builds it with its optimizer.

    Args:
        model: The Keras model.
        optimizer: A Keras optimizer.
        jit_compile: Whether XLA compiles the step.
        shape: Of its inputs, if it may not be built.
        **options: Of `model.compile`: loss and metrics.

    Returns:
        The model.

    Example:
    >>> import keras
    >>> from keras_transformers.fitting import prepared
    >>> model = keras.Sequential([keras.layers.Dense(1)])
    >>> prepared(model, "sgd", False, (None, 3), loss="mse").optimizer.built
    True
    """
    model.compile(optimizer, jit_compile=jit_compile, **options)
    if shape is not None and not model.built:
        model.build(shape)
    # Now, or Keras makes the optimizer's variables inside the first step and traces it again.
    model.optimizer.build(model.trainable_variables)
    return model


def fit_epochs(
    model: Any,
    make: Callable[[Any], tf.data.Dataset] | ShardStream,
    steps: int,
    epochs: int,
    callbacks: Sequence[keras.callbacks.Callback] = (),
    start: tuple[int, int] = (0, 0),
    watch: Callable[[tf.data.Dataset], tf.data.Dataset] = lambda dataset: dataset,
    **options: Any,
) -> dict[str, Any]:
    """`model.fit` on data whose order follows from the number of the epoch.

    Args:
        model: Compiled.
        make: Function from the number of an epoch to its dataset, see `streams.epochs`; or a
            stream of shards.
        steps: Batches of an epoch.
        epochs: How many, those before `start` included.
        callbacks: For `model.fit`.
        start: Epoch and step to begin with.
        watch: Function that wraps the whole dataset.
        **options: Of `model.fit`.

    Returns:
        The history, a dict.

    Example:
    >>> import keras, tensorflow as tf
    >>> from keras_transformers.fitting import fit_epochs
    >>> model = keras.Sequential([keras.layers.Dense(1)])
    >>> model.compile("sgd", "mse")
    >>> make = lambda epoch: tf.data.Dataset.from_tensors((tf.ones((4, 2)), tf.ones((4, 1))))
    >>> len(fit_epochs(model, make, steps=1, epochs=2, verbose=0)["loss"])
    2
    """
    if isinstance(make, ShardStream):
        data = make.batches(start[0] * steps + start[1])
    else:
        data = streams.epochs(make, steps, start)
    history = model.fit(
        watch(data),
        shuffle=False,  # the pipeline does that
        steps_per_epoch=steps,
        epochs=epochs,
        initial_epoch=start[0],
        callbacks=list(callbacks),
        **options,
    )
    found: dict[str, Any] = history.history
    return found


def uncompiled(model: Any) -> Any:
    """The model without optimizer, loss and metrics, whose state would be kept and saved with it.

    Example:
    >>> import keras
    >>> from keras_transformers.tasks.fitting import uncompiled
    >>> model = keras.Sequential([keras.layers.Dense(1)])
    >>> model.compile("sgd", "mse")
    >>> uncompiled(model).optimizer is None
    True
    """
    model.compiled, model.optimizer = False, None
    model.train_function = model.test_function = None
    return model


def counted(dataset: tf.data.Dataset) -> tf.data.Dataset:
    """A dataset that knows how many batches it has, or Keras warns that it ran out of them.

    Example:
    >>> import tensorflow as tf
    >>> from keras_transformers.fitting import counted
    >>> int(counted(tf.data.Dataset.range(9).filter(lambda n: n > 6)).cardinality())
    2
    """
    return dataset.apply(tf.data.experimental.assert_cardinality(sum(1 for _ in dataset)))
