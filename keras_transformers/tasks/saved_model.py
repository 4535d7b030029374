"""A SavedModel of `keras_transformers.export` as a predictor."""

import contextlib
import pathlib
import tempfile
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2

from keras_transformers.pretrained.files import read_json
from keras_transformers.tasks.predictor import Predictor
from keras_transformers.tasks.registry import all_tasks, predictor_of

PROGRAM = "saved_model.pb"
# Failures to read a signature alone: no right to make links, as on Windows, and a program of which
# TensorFlow needs more.
FAILURES = (OSError, NotImplementedError, ValueError)
ABOUT = pathlib.Path("assets.extra", "keras_transformers.json")


def newest(folder: pathlib.Path) -> pathlib.Path | None:
    """The SavedModel that a folder is, or the newest of the versions in it; None without one."""
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
        folder: Path of it.
        signature: Name of the signature that answers.
        parts: See `Predictor`.
        source: What is named in messages; by default the folder.

    Raises:
        ValueError: If it has no such signature, is none of ours, or is damaged; the function, too.
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
    kind, labels, languages, previous = _about(folder, inputs, outputs)
    made = predictor_of(kind)
    names = _taken(kind, inputs)
    if "image" not in names or "text" in names:
        _register_text_ops(folder)
    program = _Program(folder, [*signatures], signature, names)
    served = made(program, labels, parts, source or folder)
    vars(served).update(languages=languages, previous=previous, loaded=program)
    return served, program.read


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
        self._folder, self._signature, self._names = folder, signature, names
        self._signatures = signatures
        self._lock = threading.Lock()  # of a request that comes while another thread reads
        self._loaded: Any = None

    def __call__(self, *given: Any) -> Any:
        return self[self._signature](**dict(zip(self._names, given, strict=True)))

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
            return loaded.signatures[name](**inputs)  # which holds its variables weakly

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
    it is given a copy of the program that has only the functions that the signature needs.
    """
    program = _parse(folder)
    has_assets = any((folder / "assets").glob("*"))  # which may be read later
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
    concrete, library = graph.object_graph_def.concrete_functions, graph.graph_def.library
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
    kept = [message for message in messages if is_kept(message)]
    del messages[:]
    messages.extend(kept)


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
    found = program.meta_graphs[0].signature_def if program.meta_graphs else {}
    return {name: found[name] for name in sorted(found) if not name.startswith("__")}


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
        known = isinstance(kind, str) and kind in all_tasks() and isinstance(labels, list | None)
        if known and inputs == {*_taken(kind, inputs)}:
            return kind, labels, languages, previous
        raise ValueError(
            f"load: {folder / ABOUT}: `kind` must be one of {', '.join(all_tasks())} that "
            f"takes {', '.join(sorted(inputs))}. Received: {kind!r}"
        )
    kinds = [kind for kind, task in all_tasks().items() if task.output in outputs]
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
    predictor = predictor_of(kind)
    more = (name for name in predictor.may_take if name in inputs)
    return (str(predictor.takes), *predictor.also_takes, *more)


def _register_text_ops(folder: pathlib.Path) -> None:
    try:
        import tensorflow_text  # noqa: F401  registers the tokenizers' ops
    except ImportError as error:
        raise ImportError(f"load: {folder} takes text; install tensorflow-text ({error})") from None
