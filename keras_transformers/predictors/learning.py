"""How a predictor learns, is scored, and is written."""

from __future__ import annotations

import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

from keras_transformers.core.types import StrPath


class Learning:
    """What a predictor can do whose model is there: `fit`, `evaluate`, `save` and others.

    That is one of a published folder, of the folder of a run, or of one that `save` has written.

    Example:
    >>> from keras_transformers.predictors import Predictor
    >>> [name for name in ("fit", "evaluate", "quantize", "save", "export", "add_lora")
    ...  if not hasattr(Predictor, name)]
    []
    """

    _parts: Mapping[str, Callable[[], Any]]
    _made: dict[str, Any]
    _source: Any
    _run: Callable[..., Any]
    labels: Any

    def fit(
        self,
        data: Any,
        valid: Any = None,
        *,
        columns: Any = None,
        epochs: int | None = None,
        learning_rate: float | None = None,
        batch_size: int | None = None,
        seed: int = 0,
        callbacks: Sequence[Any] = (),
        verbose: Any = "auto",
        **options: Any,
    ) -> dict[str, list[float]]:
        """Trains the model on data; what it answers from then on, it has learned.

        A classifier whose classes are not those of the data gets a new head for these, as does an
        encoder of sentences or images, or a language model or a filler of masks whose data have
        labels; the predictor is then of another `kind`. Translators learn from pairs of source and
        target, language models and fillers of masks from texts, classifiers from texts or images
        and their labels. Where texts are lists of words, or a file is `.conll`, tags of words are
        learned.

        AdamW trains all weights. Peak of the learning rate, epochs and batch follow from the number
        of examples, see `training.fine_tuning_numbers`; after a warm-up the rate decays to 0.
        Training stops when the validation loss has not become lower for two epochs, and the weights
        of the best epoch stay.

        Args:
            data: Path of a `.tsv`, `.csv`, `.jsonl` or `.parquet` file, or a pattern of several, as
                "shards/*.jsonl", of at most 1 GiB together; of a folder of images by
                class; of a text file; a DataFrame, a Hugging Face dataset, a `tf.data.Dataset`, a
                dict of columns, a tuple of them, or an iterable of tuples or dicts. See
                `tables.read_rows` for which columns are taken. A dict or a folder with `train` and
                `validation`, or other usual names of these, has both parts; nothing is learned
                from its test set.
            valid: What to watch by, the same; None holds a part of `data` out: a tenth, from 50 to
                1,000 rows and at most a fifth, by the hashes of the texts or images, see
                `splits.held_out`.
            columns: Names, or positions from 0, of the two columns (or of the one).
            epochs, learning_rate, batch_size: Other numbers than by the rule.
            seed: Of what is held out, the order, and dropout.
            callbacks: More of Keras's callbacks.
            verbose: As of `model.fit`; 0 also says nothing of what was read.
            **options: Of classifiers `problem_type`, `label_separator`, `class_weights`, of images
                `augmentation`; of translators `label_smoothing`. For texts
                `problem_type="tagging"` says that blanks stand between words and between their
                tags, or that a file has a word and its tag in each row, see `text.read_tagged`.

        Returns:
            The history: a dict of lists with a number for each epoch.

        Raises:
            ValueError: If nothing in the data is usable, or there is no model that learns here.
            FileNotFoundError: If there is no such file.
            TypeError: If `data` is none of those, or there is no such option.
        """
        asked = {
            "columns": columns,
            "epochs": epochs,
            "learning_rate": learning_rate,
            "batch_size": batch_size,
            "seed": seed,
            "callbacks": tuple(callbacks),
            "verbose": verbose,
        }
        fitted, history = self._fitting("fit").trained(data, valid, asked, options)
        self._become(fitted)
        found: dict[str, list[float]] = history
        return found

    def evaluate(self, data: Any, *, columns: Any = None) -> dict[str, float]:
        """Scores on labelled data, as `fit` takes them.

        Returns:
            Dict of numbers: BLEU and chrF of translators; accuracy and macro F1 of classifiers, or
            F1s where there can be several labels; accuracy of words, and F1 of entities, of
            taggers; errors and correlation where a number is found; perplexity and accuracy per
            token of language models and fillers of masks. Of classifiers also `rows`;
            `of_unknown_classes`, the rows whose class the model does not know, which count as
            errors; and `left_out`, the rows that cannot be scored at all.
        """
        scores: dict[str, float] = self._fitting("evaluate").evaluate(data, columns)
        return scores

    def quantize(self, mode: str = "int8") -> Self:
        """Stores the weights of dense layers and tables in fewer bits.

        Those of "int8" and "int4" are not trained any more: `add_lora` beside it, before or after,
        and the next `fit` trains adapters and a new head alone (QLoRA). What has adapters is
        quantised no more, unless `training.merge` and `training.remove_lora` make it plain. `fit`
        trains weights of "bfloat16" and "float16" in float32, and stores them as before.

        Args:
            mode: One of those of `precision.in_precision`: "int8", ...

        Returns:
            Itself.

        Raises:
            ValueError: If there is no such mode, or the model is quantised or has adapters.
        """
        self._become(self._fitting("quantize").quantized(mode))
        return self

    def add_lora(self, rank: int = 8, **options: Any) -> Self:
        """Makes the next `fit` train low-rank adapters instead of all weights.

        They are made then, for a new head comes first, which is trained beside them; what is fitted
        after that trains the same ones, with the same classes. `save` keeps them apart, `export`
        merges them into the weights that it writes, unless these are quantised.

        Args:
            rank: Of the adapters.
            **options: Of `training.add_lora`: `alpha`, `dropout`, `targets` ...

        Returns:
            Itself.

        Raises:
            TypeError: If there is no such option.
            ValueError: If a number is out of range, or the model has an adapter of that name
                (`fit` goes on with it), a merged one, or Keras's own LoRA.
        """
        self._become(self._fitting("add_lora").adapted(rank, options))
        return self

    def save(self, folder: StrPath) -> pathlib.Path:
        """Writes all that `load` needs to give this predictor again, to go on learning, too.

        Args:
            folder: Path of the folder.

        Returns:
            The path.
        """
        path: pathlib.Path = self._fitting("save").save(folder)
        return path

    def export(self, folder: StrPath, **options: Any) -> pathlib.Path:
        """Writes what answers, for processes without this library: by default a SavedModel.

        Active adapters are merged into the kernels that are written. Beside quantised kernels they
        stay apart, and a warning says so.

        Args:
            folder: Path of the folder.
            **options: Of `save` of the exporter: `version`, `warmup`, and of most `format`,
                "saved_model", "litert" or "onnx".

        Returns:
            The folder of what was written.
        """
        path: pathlib.Path = self._fitting("export").export(folder, **options)
        return path

    def _fitting(self, asked: str) -> Any:
        """The object of `keras_transformers.fitting` behind this predictor."""
        if "fitting" not in self._parts:
            raise ValueError(
                f"{asked}: {self!r} has no model that learns. Load the folder of a run, published "
                "weights, or a folder that `save` has written; a SavedModel cannot change."
            )
        if "fitting" not in self._made:
            self._made["fitting"] = self._parts["fitting"]()
        return self._made["fitting"]

    def _become(self, fitted: Any) -> None:
        """Answers from now on with another model, and as one of its kind."""
        from keras_transformers.predictors import KINDS  # which are all made of this

        served = fitted.served()
        self.__class__ = KINDS[served.kind]
        self._run, self.labels = served, served.labels
        self._parts, self._made = parts_of(fitted), {}


def parts_of(fitted: Any) -> dict[str, Callable[[], Any]]:
    """The parts of a predictor, see there, of an object of `keras_transformers.fitting`."""
    held = fitted.held
    named = {"model": held.model, "tokenizer": held.tokenizer, "preprocessing": held.preprocessing}
    parts = {name: _giving(part) for name, part in named.items() if part is not None}
    return {**parts, "fitting": _giving(fitted)}


def _giving(part: Any) -> Callable[[], Any]:
    return lambda: part
