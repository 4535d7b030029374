"""Loading of predictors from folders: runs, published weights, saved predictors, SavedModels."""

import contextlib
import dataclasses
import functools
import pathlib
import tempfile
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2

from keras_transformers import models, pretrained, saving
from keras_transformers.core.types import StrPath
from keras_transformers.generation.search import Search
from keras_transformers.pretrained.files import CONFIG, read_json
from keras_transformers.pretrained.folder import read_model
from keras_transformers.tasks.fitting import Fitted
from keras_transformers.tasks.predictor import Predictor, check_process, predictor_for
from keras_transformers.tasks.predictor_folder import Held, Published, read_held
from keras_transformers.tasks.registry import all_tasks, predictor_of
from keras_transformers.tasks.rounds import changed_search
from keras_transformers.text.sentence_pieces import SentencePieceTokenizer
from keras_transformers.text.wordpiece import WordPieceTokenizer
from keras_transformers.vision.preprocessing import Preprocessing

ALIGNMENT = "alignment.keras"  # a head of guided alignment
MODEL = "model.keras"
SAVED = "saved_model"
PREDICTOR = "predictor.json"  # of a folder that `Predictor.save` has written
WEIGHTS = (".safetensors", ".bin")  # a pickle is refused when it is read
MOST_SHOWN = 8  # most names of files in a message


def load(
    folder: StrPath,
    signature: str = "serving_default",
    languages: tuple[str, str] | None = None,
    revision: str | None = None,
    new_tokens: int | None = None,
    search: Search | None = None,
    seed: int | None = None,
    n_best: int | None = None,
) -> Predictor:
    """Loads the predictor of a trained model, which takes text or images and gives plain Python.

    Args:
        folder: The folder of a run of `recipes`; a folder with published weights, as the Hugging
            Face hub lays it out; a folder that `Predictor.save` has written; a SavedModel of
            `keras_transformers.export`, or the folder of its versions, of which the newest is
            loaded. Or the name of a published model, "organization/model", see `pretrained.find`.
        signature: Program of a SavedModel that answers: "serving_default", or "xla", compiled, if
            there is one. Published models are always compiled.
        languages: For a published translator of many languages, its codes of the source's and the
            target's language: ("eng_Latn", "fra_Latn"). By default the languages in its files.
        revision: Branch, tag or commit of a name; by default "main".
        new_tokens: For published models that generate text, the most tokens that they generate. By
            default the number in the folder's generation settings. Without one it is 128 behind a
            prompt, and `min(2 n + 10, n + 50)` for a source of n tokens. Marian, mBART and M2M100
            only translate, so their `max_length` is not read, only `max_new_tokens`.
        search, seed, n_best: For models that generate text, published ones and those in a folder of
            `Predictor.save`, as `predict` of their predictors takes them. By default the settings
            in the folder; several sequences (`num_return_sequences`) are in the answers with
            `details=True`.

    Returns:
        A predictor, see `keras_transformers.predictors`: `predict` answers, `fit` learns, and
        `model`, `tokenizer` and `preprocessing` are its parts, if the folder has them.

    Raises:
        FileNotFoundError: If there is no such folder, and no published model of that name.
        ValueError: If the folder is of no such kind, the model gives no answer (a masked
            autoencoder), or there is no such signature or language.
        ImportError: If a SavedModel takes text and tensorflow-text is not installed.
        RuntimeError: If this process is a fork of one that has loaded a model before.

    Example:
    >>> import tempfile
    >>> import keras_transformers, numpy as np
    >>> from keras_transformers import export, models
    >>> model = models.ViT.from_variant("Ti/14", num_classes=2, image_size=28, num_layers=1)
    >>> model.build((None, 28, 28, 3))
    >>> path = export.image_classifier(model, tempfile.mkdtemp(), ["cat", "dog"])
    >>> classifier = keras_transformers.load(path)
    >>> classifier.kind, classifier.labels
    ('image_classifier', ['cat', 'dog'])
    >>> image = np.zeros((40, 30), "uint8")
    >>> sorted(classifier.predict(image)["probabilities"])
    ['cat', 'dog']
    """
    predictor, read = begin(
        folder, signature, languages, revision, new_tokens, search, seed, n_best
    )
    read()
    return predictor


def begin(
    folder: StrPath,
    signature: str = "serving_default",
    languages: tuple[str, str] | None = None,
    revision: str | None = None,
    new_tokens: int | None = None,
    search: Search | None = None,
    seed: int | None = None,
    n_best: int | None = None,
) -> tuple[Predictor, Callable[..., None]]:
    """Returns the predictor of a folder, and a function that reads the program of a SavedModel.

    Reading the program takes longest. A request waits until it is read. The function reads the
    signature that `predict` uses. With `whole=True` it reads the others as well; otherwise they are
    read when they are first used, for instance by `score`.

    Args:
        folder, signature, languages, revision, new_tokens, search, seed, n_best: As `load` takes
            them.

    Raises:
        FileNotFoundError, ValueError, ImportError, RuntimeError: As `load`; the function raises a
            ValueError if the SavedModel is damaged.

    Example:
    >>> import tempfile
    >>> import numpy as np
    >>> from keras_transformers import export, models
    >>> from keras_transformers.loading import begin
    >>> model = models.ViT(2, image_size=8, patch_size=4, hidden_dim=6, num_heads=2, num_layers=1)
    >>> model.build((None, 8, 8, 3))
    >>> folder = export.ImageClassifier(model, ["cat", "dog"]).save(tempfile.mkdtemp() + "/a")
    >>> predictor, read = begin(folder)
    >>> read()
    >>> predictor.predict(np.zeros((8, 8, 3), "uint8"))["label"] in ("cat", "dog")
    True
    """
    check_process("load")
    folder = pretrained.find(folder, revision)
    if (folder / PREDICTOR).is_file():
        predictor = saved_predictor(folder, new_tokens)
        return _replace_search(predictor, search, seed, n_best), _read_nothing
    exported = newest(folder)
    weights = any(path.suffix in WEIGHTS for path in folder.iterdir())
    if exported is None and weights and (folder / CONFIG).is_file():
        predictor = published_predictor(folder, languages, new_tokens)
        return _replace_search(predictor, search, seed, n_best), _read_nothing
    if languages is not None:
        raise ValueError(
            f"load: {folder} holds no published translator, so `languages` must be None. "
            f"Received: {languages}"
        )
    settings = {"new_tokens": new_tokens, "search": search, "seed": seed, "n_best": n_best}
    for name, value in settings.items():
        if value is not None:
            raise ValueError(
                f"load: {folder} holds a SavedModel, whose search and limit are fixed, so "
                f"`{name}` must be None. Received: {value}"
            )
    if exported is not None:
        return exported_predictor(exported, signature)
    exported = newest(folder / SAVED)
    if exported is not None:
        return _predictor_of_run(folder, exported, signature)
    raise ValueError(f"load: {folder} {_reason_to_refuse(folder)}")


def _read_nothing(whole: bool = False) -> None:
    """Does nothing, because all of a predictor has been read."""


def _replace_search(
    predictor: Predictor, search: Search | None, seed: int | None, n_best: int | None
) -> Predictor:
    """Returns a predictor, which generates by another search if one is given.

    Raises:
        ValueError: If it generates no text, or the search is impossible.
    """
    if search is None and seed is None and n_best is None:
        return predictor
    return replace_search(predictor, search, seed, n_best)


def _reason_to_refuse(folder: pathlib.Path) -> str:
    """Returns the end of a sentence about a folder that cannot be loaded."""
    names = sorted(path.name for path in folder.iterdir())
    if {CONFIG, "figures"} <= set(names) or {CONFIG, MODEL} <= set(names):
        return (
            f"is the folder of a run that has left no {SAVED}: it is not finished, or exports "
            "nothing."
        )
    more = ", ..." if len(names) > MOST_SHOWN else ""
    return (
        f"must be the folder of a run, with {SAVED}; have published weights, with {CONFIG} and "
        f"model.safetensors; or be a SavedModel, with saved_model.pb. It has: "
        f"{', '.join(names[:MOST_SHOWN]) or 'nothing'}{more}"
    )


def _predictor_of_run(
    folder: pathlib.Path, exported: pathlib.Path, signature: str
) -> tuple[Predictor, Callable[..., None]]:
    """Returns the predictor of a run's SavedModel, and the function that reads it.

    If the run has left its model, the predictor learns.
    """
    parts = _parts_of_run(folder)
    if "model" in parts:
        parts["fitting"] = lambda: fitting_of_run(folder, predictor)
    predictor, read = exported_predictor(exported, signature, parts, folder)
    return predictor, read


def _parts_of_run(folder: pathlib.Path) -> dict[str, Callable[[], Any]]:
    """Returns functions that read the files of a run beside its SavedModel."""
    parts: dict[str, Callable[[], Any]] = {}
    if (folder / MODEL).is_file():
        parts["model"] = functools.partial(saving.load_model, folder / MODEL)
    if (folder / ALIGNMENT).is_file():
        parts["alignment"] = functools.partial(saving.load_model, folder / ALIGNMENT)
    if (folder / "tokenizer.model").is_file():
        parts["tokenizer"] = functools.partial(
            SentencePieceTokenizer.load, folder / "tokenizer.model"
        )
    elif (folder / "vocab.txt").is_file():
        parts["tokenizer"] = functools.partial(_word_pieces, folder)
    for path in (folder / "published", folder):
        if "tokenizer" not in parts and (path / "tokenizer_config.json").is_file():
            parts["tokenizer"] = functools.partial(pretrained.load_tokenizer, path)
    if (folder / "preprocessing.json").is_file():
        parts["preprocessing"] = functools.partial(_preprocessing, folder)
    return parts


def _word_pieces(folder: pathlib.Path) -> WordPieceTokenizer:
    """Reads the WordPiece tokenizer of a run."""
    lower_case = read_json(folder, CONFIG).get("lower_case", True)
    return WordPieceTokenizer.load(folder / "vocab.txt", lower_case)


def _preprocessing(folder: pathlib.Path) -> Preprocessing:
    """Reads the preprocessing of a run; ValueError if the file is damaged."""
    try:
        return Preprocessing(**read_json(folder, "preprocessing.json"))
    except TypeError as error:
        raise ValueError(f"{folder / 'preprocessing.json'} is damaged: {error}") from None


def published_predictor(
    folder: pathlib.Path, languages: tuple[str, str] | None, new_tokens: int | None = None
) -> Predictor:
    """Returns the predictor of published weights.

    Args:
        folder: The folder with the weights.
        languages, new_tokens: As `load` takes them.

    Raises:
        ValueError: If the folder is broken, its model answers neither texts nor images, or no file
            says which languages it translates between.
    """
    model = read_model(folder)
    if languages is not None and not isinstance(model, models.Transformer):
        raise ValueError(
            f"load: {folder} holds a {type(model).__name__}, so `languages` must be None. "
            f"Received: {languages}"
        )
    published = Published(folder, model, languages, new_tokens)
    for fitting in _fittings().values():
        fitted = fitting.from_published(published)
        if fitted is not None:
            if new_tokens is not None:
                check_generates(folder, fitted.kind)
            return predictor_for(fitted, folder)
    raise ValueError(
        f"load: {folder} holds a {type(model).__name__}{_describe_head(model)}, which answers no "
        "text and no image; keras_transformers.pretrained.load gives the model."
    )


def _describe_head(model: Any) -> str:
    """Returns the words about a model's head in a message."""
    if not isinstance(model, models.LanguageModel | models.TextEncoder):
        return " without a head" if "num_classes" in model.get_config() else ""
    return " without a head" if model.head is None else f" with a {type(model.head).__name__}"


def saved_predictor(folder: pathlib.Path, new_tokens: int | None = None) -> Predictor:
    """Returns the predictor of a folder that `save` has written.

    Args:
        folder: The folder.
        new_tokens: As `load` takes it.

    Raises:
        ValueError: If the folder is damaged or of an unknown kind, or `new_tokens` is given and the
            model generates no text.
    """
    kind, held = read_held(folder)
    fittings = _fittings()
    if kind not in fittings:
        raise ValueError(
            f"load: {folder} is of the kind {kind!r}; it must be one of {', '.join(fittings)}."
        )
    if new_tokens is not None:
        check_generates(folder, kind)
        held = dataclasses.replace(held, options={**held.options, "new_tokens": new_tokens})
    return predictor_for(fittings[kind](held), folder)


def replace_search(
    predictor: Any, search: Search | None, seed: int | None, n_best: int | None
) -> Predictor:
    """Makes a predictor generate by another search, and returns it.

    Args:
        predictor: The predictor.
        search, seed, n_best: As `load` takes them.

    Raises:
        ValueError: If it generates no text, or the search is impossible.
    """
    check_generates(predictor.source, predictor.kind, "`search`, `seed` and `n_best`")
    fitted: Fitted = predictor.fitting_for("load")
    held = fitted.held
    old_search = held.options.get("search") or fitted.default_search
    new_search = changed_search("load", old_search, search, seed, n_best)
    options = {**held.options, "search": new_search}
    predictor.become(type(fitted)(dataclasses.replace(held, options=options)))
    changed: Predictor = predictor
    return changed


def check_generates(folder: Any, kind: str | None, names: str = "`new_tokens`") -> None:
    """Raises a ValueError if a kind generates no text, and so takes no such arguments."""
    fitting = _fittings().get(str(kind))
    if fitting is None or fitting.default_search is None:
        raise ValueError(
            f"load: {folder} is a predictor of the kind {kind!r}, which generates no text, so "
            f"{names} must be None."
        )


def fitting_of_run(folder: pathlib.Path, predictor: Any) -> Fitted:
    """Returns the model of a recipe's run as an object that learns.

    Args:
        folder: Folder of the run.
        predictor: The predictor of its SavedModel.

    Raises:
        ValueError: If models of its kind do not learn here.
    """
    fitting = _fittings().get(str(predictor.kind))
    if fitting is None:
        raise ValueError(
            f"{folder} is of the kind {predictor.kind!r}, which does not learn by `fit`; kinds "
            f"that do: {', '.join(_fittings())}."
        )
    options = fitting.options_of_run(folder, predictor, read_json(folder, CONFIG))
    tokenizer = getattr(predictor, "tokenizer", None)
    preprocessing = getattr(predictor, "preprocessing", None)
    held = Held(predictor.model, tokenizer, preprocessing, predictor.labels, options)
    return fitting(held)


def _fittings() -> dict[str, type[Fitted]]:
    """Returns the classes of trainable models by the kinds of their tasks."""
    return {kind: task.fitting for kind, task in all_tasks().items() if task.fitting}


PROGRAM = "saved_model.pb"
# Failures to read a signature alone: no right to make links, as on Windows, and a program without
# which TensorFlow cannot read the signature.
FAILURES = (OSError, NotImplementedError, ValueError)
ABOUT = pathlib.Path("assets.extra", "keras_transformers.json")


def newest(folder: pathlib.Path) -> pathlib.Path | None:
    """Returns a folder that is a SavedModel, or the newest version in it; None without one."""
    if (folder / PROGRAM).is_file():
        return folder
    folders = (path.parent for path in folder.glob(f"*/{PROGRAM}"))
    versions = [path for path in folders if path.name.isdecimal()]  # "00000123" is one, too
    return max(versions, key=lambda path: int(path.name), default=None)


def exported_predictor(
    folder: pathlib.Path,
    signature: str,
    parts: dict[str, Callable[[], Any]] | None = None,
    source: Any = None,
) -> tuple[Predictor, Callable[..., None]]:
    """Returns the predictor of a SavedModel, and the function `_Program.read`.

    A request that comes before the program is read reads it, or waits until it is read.

    Args:
        folder: Path of the SavedModel.
        signature: Name of the signature that answers.
        parts: Parts of the predictor, see `Predictor`.
        source: The name in messages; by default the folder.

    Raises:
        ValueError: If the SavedModel has no such signature, was not written by this library, or is
            damaged. The returned function raises it, too.
        ImportError: If it takes text and tensorflow-text is not installed.
    """
    signatures = _signatures(folder)
    if signature not in signatures:
        raise ValueError(
            f"load: `signature` must be one of those of {folder}: "
            f"{', '.join(signatures) or 'none'}. Received: {signature!r}"
        )
    inputs = set(signatures[signature].inputs)
    outputs = set(signatures[signature].outputs)
    kind, labels, languages, previous = _read_description(folder, inputs, outputs)
    names = _input_names(kind, inputs)
    if "image" not in names or "text" in names:
        _register_text_ops(folder)
    program = _Program(folder, [*signatures], signature, names)
    predictor = predictor_of(kind)(program, labels, parts, source or folder)
    predictor.languages = languages
    predictor.previous = previous
    predictor.loaded = program
    return predictor, program.read


class _Program(Mapping[str, Any]):
    """The signatures of a SavedModel, as functions by their names; each is read when it is used.

    The first one that is used is read alone, which takes a fraction of the time of the whole
    SavedModel. If another one is used, all are read, so that they share their variables.

    Args:
        folder: Path of the SavedModel.
        signatures: Names of all its signatures.
        signature: Name of the signature that `__call__` uses.
        names: Names of its inputs, in the order in which `__call__` takes them.
    """

    def __init__(
        self,
        folder: pathlib.Path,
        signatures: Sequence[str],
        signature: str,
        names: tuple[str, ...],
    ) -> None:
        self._folder = folder
        self._signature = signature
        self._names = names
        self._signatures = signatures
        self._lock = threading.Lock()  # for a request that comes while another thread reads
        self._loaded: Any = None

    def __call__(self, *inputs: Any) -> Any:
        return self[self._signature](**dict(zip(self._names, inputs, strict=True)))

    def __getitem__(self, name: str) -> Any:
        if name not in self._signatures:
            raise KeyError(name)
        loaded = self._loaded
        if loaded is None or name not in loaded.signatures:
            with self._lock:
                loaded = self._loaded
                if loaded is None:
                    loaded = self._loaded = _read_signature(self._folder, name)
                elif name not in loaded.signatures:
                    loaded = self._loaded = _read(self._folder, self._folder)

        def run(**inputs: Any) -> Any:
            return loaded.signatures[name](**inputs)  # a signature holds its variables weakly

        return run

    def __iter__(self) -> Iterator[str]:
        return iter(self._signatures)

    def __len__(self) -> int:
        return len(self._signatures)

    def read(self, whole: bool = False) -> None:
        """Reads the signature of `__call__`; with `whole`, all signatures."""
        self[self._signature]
        if whole:
            for name in self:
                self[name]


def _read(folder: pathlib.Path, source: pathlib.Path) -> Any:
    """Returns the SavedModel in a folder; errors name the folder that it comes from."""
    try:
        return tf.saved_model.load(str(folder))
    except (OSError, ValueError, KeyError, tf.errors.OpError) as error:
        lines = str(error).strip().splitlines() or [type(error).__name__]
        raise ValueError(
            f"load: the SavedModel in {source} is damaged, or files of it are missing: {lines[0]}"
        ) from error


def _read_signature(folder: pathlib.Path, name: str) -> Any:
    """Returns a SavedModel with one of its signatures, or with all if it cannot be cut.

    TensorFlow builds every function of a SavedModel anew in Python, whether it is used or not. So
    it gets a copy of the program that has only the functions that the signature needs.
    """
    program = _parse(folder)
    has_assets = any((folder / "assets").glob("*"))  # assets may be read later
    if not has_assets and _keep_signature(program.meta_graphs[0], name):
        with tempfile.TemporaryDirectory() as temporary, contextlib.suppress(*FAILURES):
            part = pathlib.Path(temporary)
            (part / "variables").symlink_to((folder / "variables").absolute())
            (part / PROGRAM).write_bytes(program.SerializeToString())
            return _read(part, folder)
    return _read(folder, folder)


def _keep_signature(graph: Any, name: str) -> bool:
    """Removes from a `MetaGraphDef` the functions that a signature does not need.

    Returns:
        True if the signature was found, and the others were removed.
    """
    nodes = graph.object_graph_def.nodes
    maps = [node for node in nodes if node.user_object.identifier == "signature_map"]
    children = [child for node in maps for child in node.children if child.local_name == name]
    if len(maps) != 1 or len(children) != 1:
        return False
    needed = _needed_functions(
        graph.graph_def.library, nodes[children[0].node_id].bare_concrete_function
    )
    del maps[0].children[:]
    maps[0].children.extend(children)
    for node in nodes:
        if node.WhichOneof("kind") == "function":
            kept_functions = [x for x in node.function.concrete_functions if x in needed]
            node.function.concrete_functions[:] = kept_functions
        elif not {
            node.bare_concrete_function.concrete_function_name,
            node.captured_tensor.concrete_function,
        } <= {"", *needed}:
            node.user_object.identifier = "_generic_user_object"  # nodes are known by position
    concrete = graph.object_graph_def.concrete_functions
    library = graph.graph_def.library
    for function_name in set(concrete) - needed:
        del concrete[function_name]
    _filter(library.function, lambda function: function.signature.name in needed)
    _filter(library.gradient, lambda gradient: gradient.function_name in needed)
    _filter(library.registered_gradients, lambda gradient: gradient.gradient_func in needed)
    return True


def _needed_functions(library: Any, signature: Any) -> set[str]:
    """Returns the names of the functions that the function of a signature calls, and its own."""
    functions = {function.signature.name: function for function in library.function}
    gradients = {
        gradient.registered_op_type: gradient.gradient_func
        for gradient in library.registered_gradients
    }
    needed: set[str] = set()
    waiting = [signature.concrete_function_name]
    while waiting:
        name = waiting.pop()
        if name in functions and name not in needed:
            needed.add(name)
            for node in functions[name].node_def:
                waiting.extend(_called_functions(node, gradients))
    return needed


def _called_functions(node: Any, gradients: Mapping[str, str]) -> Iterator[str]:
    """Yields the names of the functions that a node may call; some may be names of operations."""
    yield node.op
    for key, value in node.attr.items():
        yield value.func.name
        yield from (function.name for function in value.list.func)
        if key == "_gradient_op_type":
            yield gradients.get(value.s.decode(), "")


def _filter(messages: Any, is_kept: Callable[[Any], bool]) -> None:
    """Removes messages of a repeated field."""
    remaining = [message for message in messages if is_kept(message)]
    del messages[:]
    messages.extend(remaining)


def _parse(folder: pathlib.Path) -> Any:
    """Returns the `SavedModel` message of a folder.

    Raises:
        ValueError: If it is damaged.
    """
    program = saved_model_pb2.SavedModel()
    try:
        program.ParseFromString((folder / PROGRAM).read_bytes())
    except Exception as error:  # protobuf's DecodeError is in no public module
        raise ValueError(f"load: {folder / PROGRAM} is damaged: {error}") from None
    return program


def _signatures(folder: pathlib.Path) -> dict[str, Any]:
    """Returns name -> `SignatureDef` of a SavedModel, without those of TensorFlow itself."""
    program = _parse(folder)
    signatures = program.meta_graphs[0].signature_def if program.meta_graphs else {}
    return {name: signatures[name] for name in sorted(signatures) if not name.startswith("__")}


def _read_description(
    folder: pathlib.Path, inputs: set[str], outputs: set[str]
) -> tuple[str, list[str] | None, tuple[str, ...], int]:
    """Returns kind, labels, languages to choose from and number of previous sentences.

    The exporter has written them. For an older SavedModel, the names of inputs and outputs tell the
    kind.

    Raises:
        ValueError: If the kind is unknown.
    """
    if (folder / ABOUT).is_file():
        try:
            about = read_json(folder, ABOUT)
            kind, labels = about["kind"], about.get("labels")
            languages = tuple(map(str, about.get("target_languages", ())))
            previous = int(about.get("context", 0))
        except (ValueError, KeyError, TypeError, AttributeError):
            raise ValueError(f"load: {folder / ABOUT} is damaged: it must have `kind`.") from None
        is_known = isinstance(kind, str) and kind in all_tasks() and isinstance(labels, list | None)
        if is_known and inputs == {*_input_names(kind, inputs)}:
            return kind, labels, languages, previous
        raise ValueError(
            f"load: {folder / ABOUT}: `kind` must be one of {', '.join(all_tasks())} that "
            f"takes {', '.join(sorted(inputs))}. Received: {kind!r}"
        )
    kinds = [kind for kind, task in all_tasks().items() if task.output in outputs]
    if not kinds and {"label", "probability", "probabilities"} <= outputs:
        kinds = ["image_classifier" if "image" in inputs else "text_classifier"]
    if len(kinds) == 1 and inputs == {*_input_names(kinds[0])}:
        return kinds[0], None, (), 0
    raise ValueError(
        f"load: {folder} must be a SavedModel of keras_transformers.export. It makes "
        f"{', '.join(sorted(outputs))} of {', '.join(sorted(inputs))}"
    )


def _input_names(kind: str, inputs: Collection[str] = ()) -> tuple[str, ...]:
    """Returns the names of a kind's inputs, in the order in which its predictor passes them.

    The names in `may_take` are among them if they are in `inputs`.
    """
    predictor = predictor_of(kind)
    more = (name for name in predictor.may_take if name in inputs)
    return (str(predictor.takes), *predictor.also_takes, *more)


def _register_text_ops(folder: pathlib.Path) -> None:
    """Imports tensorflow-text, which registers the tokenizers' ops."""
    try:
        import tensorflow_text  # noqa: F401  registers the tokenizers' ops
    except ImportError as error:
        raise ImportError(f"load: {folder} takes text; install tensorflow-text ({error})") from None
