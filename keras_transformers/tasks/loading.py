"""From a folder to the predictor that answers: runs, published weights, saved predictors."""

import dataclasses
import functools
import pathlib
from collections.abc import Callable, Mapping
from typing import Any

from keras_transformers import models, pretrained, saving
from keras_transformers.core.types import StrPath
from keras_transformers.generation import BeamSearch, Sampling, Shortlist
from keras_transformers.generation.search import Search
from keras_transformers.pretrained.files import CONFIG, read_json
from keras_transformers.pretrained.folder import FAMILIES, read_model
from keras_transformers.pretrained.images import boxes_in
from keras_transformers.pretrained.search import load_new_tokens, load_stop_strings
from keras_transformers.tasks.fitting import Fitted
from keras_transformers.tasks.image_classification import ImageClassifierFitting
from keras_transformers.tasks.image_embedding import ImageEncoderFitting
from keras_transformers.tasks.mask_filling import MaskFillerFitting
from keras_transformers.tasks.object_detection import DetectorFitting
from keras_transformers.tasks.predictor import Predictor, check_process, predictor_parts
from keras_transformers.tasks.predictor_folder import SHORTLIST, Held, read_held
from keras_transformers.tasks.question_answering import QuestionAnswererFitting
from keras_transformers.tasks.registry import all_tasks, predictor_of
from keras_transformers.tasks.rounds import changed_search
from keras_transformers.tasks.saved_model import exported_predictor, newest
from keras_transformers.tasks.segmentation import SegmenterFitting
from keras_transformers.tasks.sentence_embedding import EncoderFitting
from keras_transformers.tasks.served import LENGTHS, lengths_within
from keras_transformers.tasks.tagging import TextTaggerFitting
from keras_transformers.tasks.text_classification import TextClassifierFitting, TextRegressorFitting
from keras_transformers.tasks.text_generation import DEFAULT_SEARCH, LanguageModelFitting
from keras_transformers.tasks.translation import TranslatorFitting
from keras_transformers.tasks.zero_shot import ZeroShotClassifierFitting
from keras_transformers.text.sentence_pieces import SentencePieceTokenizer
from keras_transformers.text.wordpiece import WordPieceTokenizer
from keras_transformers.vision.preprocessing import Preprocessing

ALIGNMENT = "alignment.keras"  # a head of guided alignment
MODEL, SAVED = "model.keras", "saved_model"
PREDICTOR = "predictor.json"  # of a folder that `Predictor.save` has written
WEIGHTS = (".safetensors", ".bin")  # a pickle is refused when it is read
MOST_SHOWN = 8  # names of files, in a message


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
    """The predictor of a trained model: it takes text or images, and gives plain Python.

    Args:
        folder: One of four: the folder of a run of `recipes`; one with published weights, as the
            Hugging Face hub lays it out; one that `Predictor.save` has written; a SavedModel of
            `keras_transformers.export`, or the folder of its versions, of which the newest is
            taken. Or the name of a published model, "organization/model", see `pretrained.find`.
        signature: Which of a SavedModel's programs answers: "serving_default", or "xla", compiled,
            where there is one. What is published is always compiled.
        languages: For a published translator of many languages, the codes of the source's and the
            target's, as it calls them: ("eng_Latn", "fra_Latn"). By default what its files say.
        revision: Branch, tag or commit of a name; by default "main".
        new_tokens: For published models that generate text: most tokens that they generate. By
            default what the folder's generation settings say; where they say nothing, 128 behind a
            prompt, and of a source of n tokens `min(2 n + 10, n + 50)`. The latter holds for
            Marian, mBART and M2M100 unless the settings have `max_new_tokens`, for they only
            translate: their `max_length` is not read.
        search, seed, n_best: For published models that generate text, and what `Predictor.save` has
            written of them: how, see `predict` of their predictors. By default as the folder says;
            several sequences (`num_return_sequences`) are in the answers with `details=True`.

    Returns:
        A predictor, see `keras_transformers.predictors`: `predict` answers, `fit` learns, and
        `model`, `tokenizer` and `preprocessing` are the parts, where the folder has them.

    Raises:
        FileNotFoundError: If there is no such folder, and no model of that name can be had.
        ValueError: If it is none of the four, the model gives no answer (a masked autoencoder), or
            there is no such signature or language.
        ImportError: If a SavedModel that takes text is to be loaded without tensorflow-text.
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
    made, read = begin(folder, signature, languages, revision, new_tokens, search, seed, n_best)
    read()
    return made


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

    Reading it takes longest. A request waits until it is read. The function reads the signature
    that `predict` uses. With `whole=True` it reads the others as well, which `score`, for instance,
    would read when it is first called.

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
        made = saved_predictor(folder, new_tokens)
        return _writing(made, search, seed, n_best), _nothing
    exported = newest(folder)
    weights = any(path.suffix in WEIGHTS for path in folder.iterdir())
    if exported is None and weights and (folder / CONFIG).is_file():
        made = published_predictor(folder, languages, new_tokens)
        return _writing(made, search, seed, n_best), _nothing
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
    if (found := newest(folder / SAVED)) is not None:
        return _of_run(folder, found, signature)
    raise ValueError(f"load: {folder} {_reason_to_refuse(folder)}")


def _nothing(whole: bool = False) -> None:
    """Reads nothing: all of it has been read."""


def _writing(
    made: Predictor, search: Search | None, seed: int | None, n_best: int | None
) -> Predictor:
    """The predictor with another search than the folder's, which `save` keeps.

    Raises:
        ValueError: If it generates no text, or the search is impossible.
    """
    if search is None and seed is None and n_best is None:
        return made
    return with_search(made, search, seed, n_best)


def _reason_to_refuse(folder: pathlib.Path) -> str:
    """The end of a sentence on a folder that cannot be loaded."""
    there = sorted(path.name for path in folder.iterdir())
    if {CONFIG, "figures"} <= set(there) or {CONFIG, MODEL} <= set(there):
        return (
            f"is the folder of a run that has left no {SAVED}: it is not finished, or exports "
            "nothing."
        )
    more = ", ..." if len(there) > MOST_SHOWN else ""
    return (
        f"must be the folder of a run, with {SAVED}; have published weights, with {CONFIG} and "
        f"model.safetensors; or be a SavedModel, with saved_model.pb. It has: "
        f"{', '.join(there[:MOST_SHOWN]) or 'nothing'}{more}"
    )


def _of_run(
    folder: pathlib.Path, exported: pathlib.Path, signature: str
) -> tuple[Predictor, Callable[..., None]]:
    """The predictor of a run's SavedModel, whose model learns if it is there, too; and `read`."""
    parts = _parts_of_run(folder)
    if "model" in parts:
        parts["fitting"] = lambda: fitting_of_run(folder, made)
    made, read = exported_predictor(exported, signature, parts, folder)
    return made, read


def _parts_of_run(folder: pathlib.Path) -> dict[str, Callable[[], Any]]:
    """Functions that read what a run has left beside its SavedModel."""
    parts = {}
    if (folder / MODEL).is_file():
        parts["model"] = lambda: saving.load_model(folder / MODEL)
    if (folder / ALIGNMENT).is_file():
        parts["alignment"] = lambda: saving.load_model(folder / ALIGNMENT)
    if (folder / "tokenizer.model").is_file():
        parts["tokenizer"] = lambda: _sentence_pieces(folder)
    elif (folder / "vocab.txt").is_file():
        parts["tokenizer"] = lambda: _word_pieces(folder)
    for path in (folder / "published", folder):
        if "tokenizer" not in parts and (path / "tokenizer_config.json").is_file():
            parts["tokenizer"] = functools.partial(pretrained.load_tokenizer, path)
    if (folder / "preprocessing.json").is_file():
        parts["preprocessing"] = lambda: _preprocessing(folder)
    return parts


def _sentence_pieces(folder: pathlib.Path) -> SentencePieceTokenizer:
    from keras_transformers.text import SentencePieceTokenizer

    return SentencePieceTokenizer.load(folder / "tokenizer.model")


def _word_pieces(folder: pathlib.Path) -> WordPieceTokenizer:
    from keras_transformers.text import WordPieceTokenizer

    lower_case = read_json(folder, CONFIG).get("lower_case", True)
    return WordPieceTokenizer.load(folder / "vocab.txt", lower_case)


def _preprocessing(folder: pathlib.Path) -> Preprocessing:
    from keras_transformers.vision import Preprocessing

    try:
        return Preprocessing(**read_json(folder, "preprocessing.json"))
    except TypeError as error:
        raise ValueError(f"{folder / 'preprocessing.json'} is damaged: {error}") from None


def published_predictor(
    folder: pathlib.Path, languages: tuple[str, str] | None, new_tokens: int | None = None
) -> Predictor:
    """The predictor of published weights, between two languages where there are many.

    Args:
        folder: With the weights.
        languages, new_tokens: As `load` takes them.

    Raises:
        ValueError: If the folder is broken, or its model gives no answer to text or images, or
            nobody says which languages it is to translate between.
    """
    model = read_model(folder)
    if languages is not None and not isinstance(model, models.Transformer):
        raise ValueError(
            f"load: {folder} holds a {type(model).__name__}, so `languages` must be None. "
            f"Received: {languages}"
        )
    fitted = fitting_of(folder, model, languages, new_tokens) or _answering(folder, model)
    served = fitted.served()
    if new_tokens is not None:
        check_generates(folder, served.kind)
    return predictor_of(served.kind)(served, served.labels, predictor_parts(fitted), folder)


def _answering(folder: pathlib.Path, model: Any) -> Fitted:
    """Returns what answers by a model that does not learn here.

    Raises:
        ValueError: If it answers no text and no image.
    """
    num_classes = model.get_config().get("num_classes")
    if isinstance(model, models.DETR | models.DeformableDETR) and num_classes:
        options = {"boxes_in": boxes_in(folder)}
        preprocessing = pretrained.load_preprocessing(folder)
        labels = pretrained.class_names(folder)
        return DetectorFitting(Held(model, None, preprocessing, labels, options))
    if isinstance(model, models.SegFormer) and num_classes:
        preprocessing = pretrained.load_preprocessing(folder)
        return SegmenterFitting(Held(model, None, preprocessing, pretrained.class_names(folder)))
    if isinstance(model, models.DualEncoder):
        tokenizer = pretrained.load_tokenizer(folder)
        held = Held(model, tokenizer, pretrained.load_preprocessing(folder))
        return ZeroShotClassifierFitting(held)
    if isinstance(getattr(model, "head", None), models.SpanHead):
        return QuestionAnswererFitting(Held(model, pretrained.load_tokenizer(folder)))
    raise ValueError(
        f"load: {folder} holds a {type(model).__name__}{_head(model)}, which answers no "
        "text and no image; keras_transformers.pretrained.load gives the model."
    )


def _head(model: Any) -> str:
    if not isinstance(model, models.LanguageModel | models.TextEncoder):
        return " without a head" if "num_classes" in model.get_config() else ""
    return " without a head" if model.head is None else f" with a {type(model.head).__name__}"


NEW_TOKENS = 128  # of a continuation
DEFAULT_SEARCHES: dict[str | None, Search] = {
    "translator": BeamSearch(),
    "text_generator": DEFAULT_SEARCH,
}
# Model types that generate other texts than translations too: the length of their outputs does not
# follow from the length of the source, so the generation settings limit it.
OF_ANY_LENGTH = ("bart", "mt5", "pegasus", "t5")


def saved_predictor(folder: pathlib.Path, new_tokens: int | None = None) -> Predictor:
    """The predictor of a folder that `save` has written.

    Args:
        folder: The folder.
        new_tokens: As `load` takes it.

    Raises:
        ValueError: If it is damaged, or of a kind that is not known, or generates no text and there
            are `new_tokens`.
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
    fitted = fittings[kind](held)
    served = fitted.served()
    return predictor_of(served.kind)(served, served.labels, predictor_parts(fitted), folder)


def with_search(
    made: Any, search: Search | None, seed: int | None, n_best: int | None
) -> Predictor:
    """A predictor that generates by another search.

    Args:
        made: The predictor.
        search, seed, n_best: As `load` takes them.

    Raises:
        ValueError: If it generates no text, or the search is impossible.
    """
    check_generates(made._source, made.kind, "`search`, `seed` and `n_best`")
    fitted = made._fitting("load")
    own = fitted.held.options.get("search") or DEFAULT_SEARCHES[made.kind]
    chosen = changed_search("load", own, search, seed, n_best)
    options = {**fitted.held.options, "search": chosen}
    made._become(type(fitted)(dataclasses.replace(fitted.held, options=options)))
    predictor: Predictor = made
    return predictor


def check_generates(folder: Any, kind: str | None, names: str = "`new_tokens`") -> None:
    """Raises ValueError unless what is of this kind takes what is named."""
    if kind not in DEFAULT_SEARCHES:
        raise ValueError(
            f"load: {folder} is a predictor of the kind {kind!r}, which generates no text, so "
            f"{names} must be None."
        )


def fitting_of(
    folder: pathlib.Path,
    model: Any,
    languages: tuple[str, str] | None,
    new_tokens: int | None = None,
) -> Fitted | None:
    """What learns with published weights; None where nothing does.

    Args:
        folder: With the weights.
        model: The model, read.
        languages, new_tokens: As `load` takes them.

    Raises:
        ValueError: If the folder is broken, or nobody says which languages a translator of many is
            to translate between.
    """
    if isinstance(model, models.Transformer):
        words = pretrained.load_tokenizer(folder, languages)
        search = _search_of_translator(folder, words, languages)
        if stop_strings := load_stop_strings(folder):
            raise ValueError(
                f"load: `stop_strings` in the generation settings of {folder} must be none, for it "
                f"holds a model with an encoder. Received: {stop_strings}"
            )
        if new_tokens is None:
            named = read_json(folder, CONFIG).get("model_type") not in OF_ANY_LENGTH
            new_tokens = load_new_tokens(folder, after_prompt=named)
            if new_tokens is not None:
                new_tokens = min(new_tokens, model.most_positions or new_tokens)
        options = {"search": search, **({} if new_tokens is None else {"new_tokens": new_tokens})}
        return TranslatorFitting(Held(model, words, options=options))
    if isinstance(model, models.MAE):
        model = model.encoder  # with which its paper goes on
    if isinstance(model, models.ViT | models.Swin | models.PVT):
        preprocessing = pretrained.load_preprocessing(folder)
        if not model.get_config().get("num_classes"):
            return ImageEncoderFitting(Held(model, preprocessing=preprocessing))
        names = pretrained.class_names(folder)
        return ImageClassifierFitting(Held(model, preprocessing=preprocessing, labels=names))
    if not isinstance(model, models.LanguageModel | models.TextEncoder):
        return None
    return _of_texts(folder, model, new_tokens)


def _of_texts(folder: pathlib.Path, model: Any, new_tokens: int | None) -> Fitted | None:
    head = type(model.head)
    generates = isinstance(model, models.LanguageModel) and model.head is None
    made: dict[type, type[Fitted]] = {
        type(None): LanguageModelFitting if generates else EncoderFitting,
        models.LanguageHead: LanguageModelFitting,
        models.MaskedLanguageHead: MaskFillerFitting,
        models.ClassificationHead: TextClassifierFitting,
        models.TaggingHead: TextTaggerFitting,
    }
    # ELECTRA's discriminator gives each token one number: whether it was exchanged.
    if head not in made or head is models.TaggingHead and model.head.num_classes == 1:
        return None
    held = Held(
        model, pretrained.load_tokenizer(folder), pooler_activation=_pooler_activation(folder)
    )
    options: dict[str, Any] = {}
    if made[head] is LanguageModelFitting:
        # Half the positions are left for the prompt, where there are few.
        if new_tokens is None:
            asked = load_new_tokens(folder, after_prompt=True) or NEW_TOKENS
            new_tokens = min(asked, (model.most_decodable or 2 * asked) // 2)
        options = {"search": pretrained.load_search(folder), "new_tokens": new_tokens}
        if stop_strings := load_stop_strings(folder):
            options["stop_strings"] = stop_strings
    elif made[head] is EncoderFitting:
        options = pretrained.load_pooling(folder)
        options["lengths"] = lengths_within(model, options.get("lengths", LENGTHS))
    elif head is models.ClassificationHead:
        if model.head.problem_type == "regression" and model.head.num_classes == 1:
            return TextRegressorFitting(held)
    if head in (models.ClassificationHead, models.TaggingHead):
        held = dataclasses.replace(held, labels=pretrained.class_names(folder))
    return made[head](dataclasses.replace(held, options=options))


def _pooler_activation(folder: pathlib.Path) -> str:
    """The activation before the classes of published classifiers of the model's type."""
    family = FAMILIES.get(str(read_json(folder, CONFIG).get("model_type")))
    fixed: Mapping[str, Any] = {} if family is None else family.configuration.fixed
    return str(fixed.get("pooler_activation", "tanh"))


def _search_of_translator(
    folder: pathlib.Path, words: Any, languages: tuple[str, str] | None
) -> Any:
    search = pretrained.load_search(folder)
    if getattr(words, "languages", None) is not None:
        boundaries = search.constraints.boundaries
        if languages is not None or boundaries.first is None and words.language_id is not None:
            return pretrained.load_search(folder, words.language_id)
        if boundaries.first is None:
            _check_start(folder, boundaries.start, words)
    return search


def _check_start(folder: pathlib.Path, start: int | None, words: Any) -> None:
    """ValueError unless decoding starts with the token of a language."""
    if start not in words.language_ids.values():
        raise ValueError(
            f"load: {folder} translates between many languages, and no file says which. Give "
            "`languages`, the codes of the source's and the target's, of "
            f"{', '.join(words.languages.tokens)}."
        )


def fitting_of_run(folder: pathlib.Path, made: Any) -> Fitted:
    """What learns with the model of a recipe's run.

    Args:
        folder: Of the run.
        made: Its predictor.

    Raises:
        ValueError: If models of its kind do not learn here.
    """
    fittings = _fittings()
    if made.kind not in fittings:
        raise ValueError(
            f"{folder} is of the kind {made.kind!r}, which does not learn by `fit`; kinds that do: "
            f"{', '.join(fittings)}."
        )
    numbers = read_json(folder, CONFIG)
    options: dict[str, Any] = {}
    if made.kind == "translator":
        if made.target_languages:
            raise ValueError(
                f"{folder} translates into {', '.join(made.target_languages)}, and `fit` learns "
                'one language. Go on from its parts, `model` and `tokenizer.towards("'
                f'{made.target_languages[0]}")`, by `encode_pairs` and Keras.'
            )
        names = ("beam_size", "length_penalty")
        options["search"] = BeamSearch(**{name: numbers[name] for name in names if name in numbers})
        if (folder / SHORTLIST).is_file():
            options["shortlist"] = Shortlist.load(folder / SHORTLIST)
    if made.kind == "text_generator" and "temperature" in numbers:
        search = Sampling(numbers["temperature"], top_p=numbers["top_p"])
        options = {"search": search, "new_tokens": numbers["new_tokens"]}
    if made.kind == "detector":
        options = _options_of_detector(folder)
    words, preprocessing = (getattr(made, name, None) for name in ("tokenizer", "preprocessing"))
    return fittings[made.kind](Held(made.model, words, preprocessing, made.labels, options))


def _options_of_detector(folder: pathlib.Path) -> dict[str, Any]:
    """Returns the threshold of a run's detector, and what its boxes are fractions of."""
    settings = read_json(folder, "preprocessing.json")
    options: dict[str, Any] = {"boxes_in": "image" if "fit" in settings else "frame"}  # of 0.2.0
    if (folder / "metrics.json").is_file():
        metrics = read_json(folder, "metrics.json")
        options["threshold"] = metrics.get("test_threshold", 0.5)
    return options


def _fittings() -> dict[str, type[Fitted]]:
    """Returns the classes of what learns, by the kinds of their tasks."""
    return {kind: task.fitting for kind, task in all_tasks().items() if task.fitting}
