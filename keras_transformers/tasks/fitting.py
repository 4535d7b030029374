"""The base of models that train, evaluate, adapt, save and export themselves."""

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
from keras_transformers.text.batching import boundaries_for, within
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
COMPILED_FROM = 300  # steps; with fewer, XLA takes longer to compile than it saves
LONGEST = 512  # ids of a labelled text, if its model and exporter read more


@dataclasses.dataclass(frozen=True)
class Asked:
    """The settings of a training; a number that is None follows from the number of examples.

    Args:
        columns: Names or positions of the columns, see `tables.read_rows`.
        epochs, learning_rate, batch_size: See `training.fine_tuning_numbers`.
        patience: Epochs without a lower validation loss before training stops.
        seed: Seed of the part that is held out, of the order and of dropout.
        callbacks: Further callbacks for `model.fit`.
        verbose: As `model.fit` takes it.

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
        held: The model with its tokenizer, preprocessing, labels and options.

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
        """Returns the object of `export` that answers with the current weights: a hook."""
        raise NotImplementedError

    def fit(self, *args: Any, **kwargs: Any) -> tuple["Fitted", dict[str, Any]]:
        """Trains on `data, valid, asked` with the options in `choices`: a hook.

        Returns:
            The trained model, of this kind or another, and the history.
        """
        raise NotImplementedError

    def evaluate(self, data: Any, columns: Chosen = None) -> dict[str, float]:
        """Returns the scores of the model on labelled data."""
        raise NotImplementedError

    def trained(
        self, data: Any, valid: Any, asked: Mapping[str, Any], options: Mapping[str, Any]
    ) -> tuple["Fitted", dict[str, Any]]:
        """Calls `fit` with the arguments of `Asked` in a dict, and checks the names of options.

        Weights in 16 bits are trained in float32, and then stored in 16 bits again: they are too
        coarse for the steps of an optimizer.

        Raises:
            TypeError: If there is no such option.
            ValueError: If the weights are quantised and there are no adapters to train.
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
        fitted: Fitted = self.quantized("float32") if is_coarse else self
        keras.utils.set_random_seed(request.seed)  # now, for heads and adapters are drawn too
        fitted, history = fitted.fit(data, valid, request, **options)
        return fitted.quantized(precision) if is_coarse else fitted, history

    def adapted(self, rank: int, options: Mapping[str, Any]) -> Self:
        """Returns the same model with a request for adapters, which the next `fit` makes.

        They are made then because `fit` may give the model a new head first.

        Raises:
            TypeError: If `training.add_lora` has no such option.
            ValueError: If a number is out of range, or the model has an adapter of that name, a
                merged one, or Keras's own.
        """
        check_options(self.held.model, {"rank": rank, **options})
        return type(self)(dataclasses.replace(self.held, adapter={"rank": rank, **options}))

    def quantized(self, mode: Any) -> Self:
        """Returns this model with its weights in another precision, see `in_precision`."""
        model = in_precision(self.held.model, mode)
        return type(self)(dataclasses.replace(self.held, model=model))

    def save(self, folder: StrPath) -> pathlib.Path:
        """Writes the model and its parts, see `write_held`."""
        return write_held(self.kind, self.held, folder)

    def export(self, path: StrPath, **options: Any) -> pathlib.Path:
        """Writes the exporter, see its `save`, with active adapters merged.

        The model itself keeps its adapters apart.

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
        """Exports with the adapter merged into these kernels, and restores their exact values."""
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

    def _refusal(self, name: str) -> str:
        """Returns the message of a function that this kind lacks."""
        return (
            f"{name}: a {self.kind} does not learn here. Its `model` is a Keras model: train it "
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
    names_in_use = sorted(adapters_of(model))
    name = options.get("name", "default")
    if name in names_in_use:
        raise ValueError(
            f"add_lora: `name` must be a new one; `fit` trains the adapters that there are. "
            f"Received: {name!r}, and the model has {names_in_use}"
        )
    refuse_merged(model, "add_lora")
    if any(getattr(layer, "lora_enabled", False) for layer in model._flatten_layers()):
        raise ValueError("add_lora: `model` must not have Keras's own LoRA (`enable_lora`).")


def attach_adapter(held: Held, has_new_head: bool) -> Held:
    """Adds the requested adapter to the model, and trains a new head beside it."""
    if held.adapter is None:
        return held
    options = dict(held.adapter)
    if has_new_head:
        train = options.get("train", ())
        trained = [train] if isinstance(train, str) else train
        options["train"] = (*trained, "head")
    add_lora(held.model, **options)
    return dataclasses.replace(held, adapter=None)


def replace_head(held: Held, head: Any, labels: Sequence[str] | None) -> Held:
    """Returns a copy of a model of texts with a new head, and adds the requested adapter.

    Args:
        held: The model, whose exporter keeps its lengths, but no other option.
        head: The new head.
        labels: Names of its classes.
    """
    model = held.model.transferred(head=head)
    options = {key: value for key, value in held.options.items() if key == "lengths"}
    held = dataclasses.replace(held, model=model, labels=labels, options=options)
    return attach_adapter(held, True)


def longest_text(held: Held) -> int:
    """Returns the most ids of a labelled text that are learned from; the rest is cut off."""
    positions = getattr(held.model, "most_positions", None) or LONGEST
    lengths = held.options.get("lengths") or (LONGEST,)
    return int(min(positions, lengths[-1]))


def bucket_texts(
    lengths: Array, batch_size: int, longest: int, limit: int
) -> tuple[tuple[int, ...], int]:
    """Returns the lengths that texts are padded to, and the tokens of a batch.

    Args:
        lengths: Lengths of the texts to train on.
        batch_size: Texts of an average batch.
        longest: Length of the longest text.
        limit: Most positions of a text.
    """
    boundaries, tokens = boundaries_for(lengths, batch_size)
    boundaries = within((*boundaries, longest), limit)
    return boundaries, max(tokens, boundaries[-1])


def train_model(
    model: Any, make: Any, valid: Any, numbers: FineTuning, asked: Asked, **compiled: Any
) -> dict[str, Any]:
    """Compiles a model, trains it, and goes back to the weights of its best epoch.

    The optimizer is AdamW. The learning rate warms up and decays to 0 over the epochs. Training
    stops if the validation loss has not become lower for `patience` epochs. Without a given rate,
    adapters learn at ten times the rate of all weights.

    Args:
        model: The model, built.
        make: Function from the number of an epoch to its dataset.
        valid: Dataset for validation.
        numbers: Numbers of the training.
        asked: Settings of the training.
        **compiled: Loss and metrics, for `model.compile`.

    Returns:
        The history.

    Raises:
        ValueError: If the loss became NaN or infinite in the first epoch; the model then has its
            earlier weights. In a later epoch, a warning says so, and the best weights stay.
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
    """Sets the random number generators of a model's layers to a seed."""
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
    """Reports a loss that is not finite, and restores the weights if the best epoch has one."""
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
    """Scores a classifier. Rows of classes that the model does not know count as errors.

    Args:
        probabilities: `(rows, known)`, for the first classes, which the model knows.
        labels: Integers `(rows,)`, positions in `classes`; or 0 and 1 `(rows, classes)` if a row
            can have several labels.
        classes: Names of the classes: first those that the model knows, then any others.

    Returns:
        Dict of numbers: `accuracy` and `macro_f1`, or the numbers of `training.score_labels`;
        `rows`; and `of_unknown_classes`, the rows whose class the model does not know.
    """
    num_known = probabilities.shape[1]
    probabilities = np.pad(probabilities, ((0, 0), (0, len(classes) - num_known)))
    if labels.ndim == 2:
        numbers = score_labels(probabilities, labels, classes).numbers()
        unknown = labels[:, num_known:].any(axis=1)
    else:
        scores = score_classes(probabilities, labels, classes)
        f1 = [row["f1"] for row in scores.table if row["images"]]
        numbers = {"accuracy": scores.top1, "macro_f1": float(np.mean(f1))}
        unknown = labels >= num_known
    return {**numbers, "rows": len(labels), "of_unknown_classes": int(unknown.sum())}


def split_parts(data: Any, valid: Any, verbose: Any) -> tuple[Any, Any]:
    """Returns the data for training and for validation, if `data` holds both.

    `data` then is a dict with `train` and `validation`, as `datasets` has them, or a folder with
    such folders or files, by any name in `splits.PARTS`. Without validation data, None stands for
    it: a part of the training data will be held out. A test set or another part is not used; unless
    `verbose` is 0, this is printed.

    Raises:
        ValueError: If two names stand for one part, or there are parts and none is `train`.
    """
    if isinstance(data, Mapping):
        where = name_of(data)
        parts = _parts_of_dict(data)
    elif isinstance(data, str | pathlib.PurePath) and pathlib.Path(data).is_dir():
        where = str(data)
        parts = _parts_of_folder(pathlib.Path(data))
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
    """Returns a dict of "train", "valid", "test" and other keys to their values."""
    rest = {str(key): value for key, value in data.items()}
    parts = find_parts(name_of(data), rest, "part")
    if parts and len(parts) == len(rest) and "train" not in parts:
        raise ValueError(f"{name_of(data)} has no part `train` beside {', '.join(rest)}")
    return {part: rest.pop(key) for part, key in parts.items()} | rest


def _parts_of_folder(path: pathlib.Path) -> dict[str, pathlib.Path]:
    """Returns a dict of "train", "valid", "test" and other names to paths; {} without parts."""
    folders = folders_in(path)
    if folders:
        parts = parts_of_folder(path)
        if not parts:
            return {}
        rest = {name: name for name in folders if name not in parts.values()}
        return {part: path / name for part, name in (parts | rest).items()}
    files = [file for file in sorted(path.iterdir()) if ending(file) in (".txt", *ENDINGS)]
    stems = [file.name.split(".")[0] for file in files]
    parts = find_parts(str(path), stems, "file")
    if "train" not in parts or len(parts) == 1:
        return {}
    return {part_of(stem) or stem: file for stem, file in zip(stems, files, strict=True)}


def hold_out_part(asked: Asked, train: Any, watched: Any, split: Callable[[Any, int], Any]) -> Any:
    """Returns the data for training and for validation, and prints how many were left out.

    Args:
        asked: Settings of the training.
        train: Data for training.
        watched: Data for validation; None holds a part of `train` out.
        split: Function of data and a seed that returns both parts.
    """
    if asked.verbose:
        print(train.summary())
    if watched is None:
        train, watched = split(train, asked.seed)
        if asked.verbose:
            print(f"{len(train):,} to learn from, {len(watched):,} held out to watch by")
    elif asked.verbose:
        print(watched.summary())
    return train, watched


def prepared(
    model: Any, optimizer: Any, jit_compile: bool, shape: Any = None, **options: Any
) -> Any:
    """Compiles a model, and builds it with its optimizer.

    Args:
        model: The Keras model.
        optimizer: A Keras optimizer.
        jit_compile: Whether XLA compiles the step.
        shape: Shape of its inputs, for a model that is not built.
        **options: Loss and metrics, for `model.compile`.

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
    """Calls `model.fit` with data whose order follows from the number of the epoch.

    Args:
        model: The model, compiled.
        make: Function from the number of an epoch to its dataset, see `streams.epochs`; or a
            stream of shards.
        steps: Batches of an epoch.
        epochs: Number of epochs, including those before `start`.
        callbacks: Callbacks for `model.fit`.
        start: Epoch and step to begin with.
        watch: Function that wraps the whole dataset.
        **options: Further arguments for `model.fit`.

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
        shuffle=False,  # the pipeline shuffles
        steps_per_epoch=steps,
        epochs=epochs,
        initial_epoch=start[0],
        callbacks=list(callbacks),
        **options,
    )
    losses_and_metrics: dict[str, Any] = history.history
    return losses_and_metrics


def uncompiled(model: Any) -> Any:
    """Removes the optimizer, loss and metrics of a model, which would be saved with it.

    Example:
    >>> import keras
    >>> from keras_transformers.tasks.fitting import uncompiled
    >>> model = keras.Sequential([keras.layers.Dense(1)])
    >>> model.compile("sgd", "mse")
    >>> uncompiled(model).optimizer is None
    True
    """
    model.compiled = False
    model.optimizer = None
    model.train_function = model.test_function = None
    return model


def counted(dataset: tf.data.Dataset) -> tf.data.Dataset:
    """Tells a dataset how many batches it has; otherwise Keras warns that it ran out of them.

    Example:
    >>> import tensorflow as tf
    >>> from keras_transformers.fitting import counted
    >>> int(counted(tf.data.Dataset.range(9).filter(lambda n: n > 6)).cardinality())
    2
    """
    return dataset.apply(tf.data.experimental.assert_cardinality(sum(1 for _ in dataset)))
