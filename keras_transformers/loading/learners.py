"""Folders as what learns: published weights, what `save` has written, and the runs of recipes."""

import dataclasses
import pathlib
from collections.abc import Mapping
from typing import Any

from keras_transformers import models, pretrained
from keras_transformers.export.rounds import changed_search
from keras_transformers.export.served import LENGTHS, lengths_within
from keras_transformers.export.text_generator import DEFAULT_SEARCH
from keras_transformers.fitting import (
    FITTINGS,
    EncoderFitting,
    Fitted,
    Held,
    ImageClassifierFitting,
    ImageEncoderFitting,
    LanguageModelFitting,
    MaskFillerFitting,
    TextClassifierFitting,
    TextRegressorFitting,
    TextTaggerFitting,
    TranslatorFitting,
    read_held,
)
from keras_transformers.fitting.folder import SHORTLIST
from keras_transformers.generation import BeamSearch, Sampling, Shortlist
from keras_transformers.generation.search import Search
from keras_transformers.predictors import KINDS, Predictor
from keras_transformers.predictors.learning import parts_of
from keras_transformers.pretrained.files import CONFIG, read_json
from keras_transformers.pretrained.folder import FAMILIES
from keras_transformers.pretrained.search import load_new_tokens, load_stop_strings

NEW_TOKENS = 128  # of a continuation
DEFAULT_SEARCHES: dict[str | None, Search] = {
    "translator": BeamSearch(),
    "text_generator": DEFAULT_SEARCH,
}
# Model types that generate other texts than translations too: the length of their outputs does not
# follow from the length of the source, so the generation settings limit it.
OF_ANY_LENGTH = ("bart", "mt5", "pegasus", "t5")


def predictor(folder: pathlib.Path, new_tokens: int | None = None) -> Predictor:
    """The predictor of a folder that `save` has written.

    Args:
        folder: The folder.
        new_tokens: As `load` takes it.

    Raises:
        ValueError: If it is damaged, or of a kind that is not known, or generates no text and there
            are `new_tokens`.
    """
    kind, held = read_held(folder)
    if kind not in FITTINGS:
        raise ValueError(
            f"load: {folder} is of the kind {kind!r}; it must be one of {', '.join(FITTINGS)}."
        )
    if new_tokens is not None:
        check_generates(folder, kind)
        held = dataclasses.replace(held, options={**held.options, "new_tokens": new_tokens})
    fitted = FITTINGS[kind](held)
    served = fitted.served()
    return KINDS[served.kind](served, served.labels, parts_of(fitted), folder)


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
    if made.kind not in FITTINGS:
        raise ValueError(
            f"{folder} is of the kind {made.kind!r}, which does not learn by `fit`; kinds that do: "
            f"{', '.join(FITTINGS)}."
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
    return FITTINGS[made.kind](Held(made.model, words, preprocessing, made.labels, options))


def _options_of_detector(folder: pathlib.Path) -> dict[str, Any]:
    """Returns the threshold of a run's detector, and what its boxes are fractions of."""
    settings = read_json(folder, "preprocessing.json")
    options: dict[str, Any] = {"boxes_in": "image" if "fit" in settings else "frame"}  # of 0.2.0
    if (folder / "metrics.json").is_file():
        metrics = read_json(folder, "metrics.json")
        options["threshold"] = metrics.get("test_threshold", 0.5)
    return options
