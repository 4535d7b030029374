"""A SavedModel of `keras_transformers.export` as a predictor."""

import pathlib
import threading
from collections.abc import Callable, Collection
from typing import Any

import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2

from keras_transformers.predictors import KINDS, Predictor
from keras_transformers.pretrained.files import read_json

PROGRAM = "saved_model.pb"
ABOUT = pathlib.Path("assets.extra", "keras_transformers.json")
# An output that only this kind has, for SavedModels that do not say what they are.
KNOWN_BY = {
    "translation": "translator",
    "continuation": "text_generator",
    "candidates": "mask_filler",
    "embedding": "sentence_encoder",
    "value": "text_regressor",
    "boxes": "detector",
    "no_answer": "question_answerer",
    "map": "segmenter",
    "tags": "text_tagger",
}


def newest(folder: pathlib.Path) -> pathlib.Path | None:
    """The SavedModel that a folder is, or the newest of the versions in it; None without one."""
    if (folder / PROGRAM).is_file():
        return folder
    folders = (path.parent for path in folder.glob(f"*/{PROGRAM}"))
    versions = [path for path in folders if path.name.isdecimal()]  # "00000123" is one, too
    return max(versions, key=lambda path: int(path.name), default=None)


def predictor(
    folder: pathlib.Path,
    signature: str,
    parts: dict[str, Callable[[], Any]] | None = None,
    source: Any = None,
) -> tuple[Predictor, Callable[[], None]]:
    """Returns the predictor of a SavedModel, and a function that reads the program.

    A request that comes before the program is read reads it, or waits until it is read.

    Args:
        folder: Path of it.
        signature: Name of the signature that answers.
        parts: See `Predictor`.
        source: What is named in messages; by default the folder.

    Raises:
        ValueError: If it has no such signature, is none of ours, or is damaged; the function, too.
        ImportError: If it takes text and tensorflow-text is not installed.
    """
    inputs, outputs = _signature(folder, signature)
    kind, labels, languages, previous = _about(folder, inputs, outputs)
    made = KINDS[kind]
    names = _taken(kind, inputs)
    if "image" not in names or "text" in names:
        _register_text_ops(folder)
    program = _Program(folder, signature, names)
    served = made(program, labels, parts, source or folder)
    vars(served).update(languages=languages, previous=previous)

    def read() -> None:
        vars(served)["loaded"] = program.read()  # a signature holds its variables weakly

    return served, read


class _Program:
    """A signature of a SavedModel as a function, read once."""

    def __init__(self, folder: pathlib.Path, signature: str, names: tuple[str, ...]) -> None:
        self._folder, self._signature, self._names = folder, signature, names
        self._lock = threading.Lock()  # of a request that comes while another thread reads
        self._loaded: Any = None

    def __call__(self, *given: Any) -> Any:
        run = self.read().signatures[self._signature]
        return run(**dict(zip(self._names, given, strict=True)))

    def read(self) -> Any:
        with self._lock:
            if self._loaded is None:
                self._loaded = _read(self._folder)
            return self._loaded


def _read(folder: pathlib.Path) -> Any:
    try:
        return tf.saved_model.load(str(folder))
    except (OSError, ValueError, KeyError, tf.errors.OpError) as error:
        lines = str(error).strip().splitlines() or [type(error).__name__]
        raise ValueError(
            f"load: the SavedModel in {folder} is damaged, or files of it are missing: {lines[0]}"
        ) from error


def _signature(folder: pathlib.Path, name: str) -> tuple[set[str], set[str]]:
    """Names of the inputs and outputs of a signature, without loading what computes them."""
    program = saved_model_pb2.SavedModel()
    try:
        program.ParseFromString((folder / PROGRAM).read_bytes())
    except Exception as error:  # protobuf's DecodeError is in no public module
        raise ValueError(f"load: {folder / PROGRAM} is damaged: {error}") from None
    found = program.meta_graphs[0].signature_def if program.meta_graphs else {}
    if name not in found:
        named = [each for each in sorted(found) if not each.startswith("__")]
        raise ValueError(
            f"load: `signature` must be one of those of {folder}: {', '.join(named) or 'none'}. "
            f"Received: {name!r}"
        )
    return set(found[name].inputs), set(found[name].outputs)


def _about(
    folder: pathlib.Path, inputs: set[str], outputs: set[str]
) -> tuple[str, list[str] | None, tuple[str, ...], int]:
    """Kind, labels, languages to choose from and number of previous sentences; often none.

    From what the exporter has written, or from the names of what goes through.

    Raises:
        ValueError: If it is of no kind that there is.
    """
    if (folder / ABOUT).is_file():
        try:
            about = read_json(folder, ABOUT)
            kind, labels = about["kind"], about.get("labels")
            languages = tuple(map(str, about.get("target_languages", ())))
            previous = int(about.get("context", 0))
        except (ValueError, KeyError, TypeError, AttributeError):
            raise ValueError(f"load: {folder / ABOUT} is damaged: it must have `kind`.") from None
        known = isinstance(kind, str) and kind in KINDS and isinstance(labels, list | None)
        if known and inputs == {*_taken(kind, inputs)}:
            return kind, labels, languages, previous
        raise ValueError(
            f"load: {folder / ABOUT}: `kind` must be one of {', '.join(map(str, KINDS))} that "
            f"takes {', '.join(sorted(inputs))}. Received: {kind!r}"
        )
    kinds = [kind for name, kind in KNOWN_BY.items() if name in outputs]
    if not kinds and {"label", "probability", "probabilities"} <= outputs:
        kinds = ["image_classifier" if "image" in inputs else "text_classifier"]
    if len(kinds) == 1 and inputs == {*_taken(kinds[0])}:
        return kinds[0], None, (), 0
    raise ValueError(
        f"load: {folder} must be a SavedModel of keras_transformers.export. It makes "
        f"{', '.join(sorted(outputs))} of {', '.join(sorted(inputs))}"
    )


def _taken(kind: str, inputs: Collection[str] = ()) -> tuple[str, ...]:
    """Names of the inputs of a kind, in the order in which its predictor gives them.

    Those that it may take are among them where they are in `inputs`.
    """
    more = (name for name in KINDS[kind].may_take if name in inputs)
    return (str(KINDS[kind].takes), *KINDS[kind].also_takes, *more)


def _register_text_ops(folder: pathlib.Path) -> None:
    try:
        import tensorflow_text  # noqa: F401  registers the tokenizers' ops
    except ImportError as error:
        raise ImportError(f"load: {folder} takes text; install tensorflow-text ({error})") from None
