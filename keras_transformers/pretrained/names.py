"""Names of published models as folders: a local one, the Hugging Face cache, or a download."""

import os
import pathlib
import re

from keras_transformers.annotations import StrPath
from keras_transformers.pretrained.files import INDEX, read_json
from keras_transformers.pretrained.files import WEIGHTS as ALONE

NAME = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?")
# Names of the hub's first years, without an organization, of families that are known here. Another
# word alone is a folder's, mistyped or of another place: nobody is asked for it.
OLD_NAME = re.compile(
    r"gpt2(-medium|-large|-xl)?|distilgpt2|t5-(small|base|large|3b|11b)|distilroberta-base"
    r"|(bert|distilbert|roberta|xlm-roberta)-(base|large)(-\w+)*"
)
# A revision is a branch, a tag or a commit; a branch may have slashes in it.
REVISION = re.compile(r"(?!.*\.\.)[A-Za-z0-9][\w./-]*")
COMMIT = re.compile(r"[0-9a-f]{40}")
# What is read here: weights without code in them, and the files of settings and tokenizers.
WEIGHTS = ("model.safetensors", "model-*-of-*.safetensors")
SETTINGS = ("*.json", "*.txt", "*.model", "*.spm")
UNWANTED = ("onnx/*", "openvino/*", "coreml/*", "*.bin.index.json", "README.txt", "training_args*")
OFFLINE = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")


def find(name: StrPath, revision: str | None = None, weights: bool = True) -> pathlib.Path:
    """The folder of a published model, by its path or by its name on the Hugging Face hub.

    Looked for in this order: a local folder; the user's cache, as `huggingface_hub` lays it out
    (`HF_HUB_CACHE`, or `hub` in `HF_HOME`); the hub itself, if the package `huggingface_hub` is
    installed and the environment does not say `HF_HUB_OFFLINE`. Of the hub, safetensors and the
    files of settings and tokenizers are downloaded, nothing that could be executed.

    What may be a mistyped path is never asked of the hub: a word without an organization, but for
    the hub's oldest names ("gpt2", "bert-base-uncased"), and "runs/model" where there is a folder
    `runs`.

    Args:
        name: Path of a folder, or "organization/model".
        revision: Branch, tag or commit of a name; by default "main". Of no meaning to a folder,
            and refused there.
        weights: Whether a model is needed; of a tokenizer or settings alone no weights are fetched.

    Returns:
        Path of the folder.

    Raises:
        FileNotFoundError: If there is neither such a folder nor such a name; the message says which
            command fetches it.
        ValueError: If `revision` is given with a folder, or is none.

    Example:
    >>> import pathlib, tempfile
    >>> from keras_transformers import pretrained
    >>> folder = tempfile.mkdtemp()
    >>> pretrained.find(folder) == pathlib.Path(folder)
    True
    """
    path = pathlib.Path(name)
    if revision is not None and not REVISION.fullmatch(revision):
        raise ValueError(
            f"load: `revision` must be a branch, a tag or a commit. Received: {revision!r}"
        )
    if path.is_dir():
        if revision is not None:
            raise ValueError(
                f"load: `revision` must be None for a folder, which {name} is. "
                f"Received: {revision!r}"
            )
        return path
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise FileNotFoundError(f"load: there is no folder {name}.")
    return _cached(name, revision, weights) or _downloaded(name, revision, weights)


def _check_asked(name: str) -> None:
    """FileNotFoundError for what the hub is not asked for, because it may be a mistyped path."""
    organization, _, model = name.rpartition("/")
    if not organization and not OLD_NAME.fullmatch(model):
        raise FileNotFoundError(
            f"load: there is no folder {name}, and no such model in {cache_folder()}; a name on "
            'the hub is "organization/model".'
        )
    if organization and pathlib.Path(organization).is_dir():
        raise FileNotFoundError(
            f"load: there is no folder {name}, only {organization}, and no such model in "
            f"{cache_folder()}; `hf download {name}` fetches it if it is a name on the hub."
        )


def cache_folder() -> pathlib.Path:
    """Where `huggingface_hub` keeps what it has downloaded."""
    for variable in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"):
        if os.environ.get(variable):
            return pathlib.Path(os.path.expanduser(os.path.expandvars(os.environ[variable])))
    home = os.environ.get("HF_HOME")
    if not home:
        home = os.path.join(os.environ.get("XDG_CACHE_HOME") or "~/.cache", "huggingface")
    # Where there is no home directory, this names a folder that is not there.
    return pathlib.Path(os.path.expanduser(os.path.expandvars(home)), "hub")


def _cached(name: str, revision: str | None, weights: bool) -> pathlib.Path | None:
    """The snapshot of a revision in the cache, None where it is not there or lacks files."""
    folder = cache_folder() / f"models--{name.replace('/', '--')}"
    commit = revision or "main"
    reference = folder / "refs" / commit
    if not COMMIT.fullmatch(commit):
        if not reference.is_file():
            return None
        commit = reference.read_text(encoding="utf-8").strip()
        if not COMMIT.fullmatch(commit):
            raise ValueError(f"{reference} must hold a commit. Received: {commit[:50]!r}")
    snapshot = folder / "snapshots" / commit
    # Other programs leave snapshots of a file or two, and interrupted ones some shards.
    there = {path.name for path in snapshot.iterdir()} if snapshot.is_dir() else set()
    whole = "config.json" in there and (not weights or _shards(snapshot, there) <= there)
    return snapshot if whole else None


def _shards(snapshot: pathlib.Path, there: set[str]) -> set[str]:
    """Names of the files with weights."""
    if INDEX in there and ALONE not in there:
        return set(read_json(snapshot, INDEX).get("weight_map", {"": ALONE}).values())
    return {ALONE}


def _downloaded(name: str, revision: str | None, weights: bool) -> pathlib.Path:
    _check_asked(name)
    at = "" if revision is None else f" --revision {revision}"
    missing = f"load: there is no folder {name}, and no such model in {cache_folder()}"
    command = f"hf download {name}{at}"
    if any(os.environ.get(each, "").upper() in ("1", "ON", "YES", "TRUE") for each in OFFLINE):
        raise FileNotFoundError(f"{missing}; run `{command}` where there is a network.")
    try:
        from huggingface_hub import snapshot_download
    except ImportError:
        install = 'pip install "keras_transformers[hub]"'
        raise FileNotFoundError(
            f"{missing}; run `{install}` to have it downloaded from the hub."
        ) from None
    try:
        wanted = [*SETTINGS, *(WEIGHTS if weights else ())]
        folder = snapshot_download(
            name, revision=revision, allow_patterns=wanted, ignore_patterns=list(UNWANTED)
        )
    except Exception as error:  # whatever a network gives
        reason = f"{type(error).__name__}: {error}".strip().splitlines()[0]
        raise FileNotFoundError(
            f"{missing}, and it could not be downloaded ({reason}); run `{command}` where there is "
            "a network."
        ) from error
    return pathlib.Path(folder)
