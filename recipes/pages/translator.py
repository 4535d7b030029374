"""A translator's page: the translation, others that the search found, and the alignment."""

import dataclasses
import pathlib
import tempfile

import numpy as np
import PIL.Image

from keras_transformers.generation import BeamSearch, generate_all
from keras_transformers.models import Transformer
from keras_transformers.pretrained import load_search
from keras_transformers.visualization import attention_heat_map

from ..data.translation import both
from ..translating import alignment
from .asking import text_of
from .examples import settings_of

LENGTHS = (16, 32, 64, 128)  # of sources in pieces; each is compiled when it is first met
MOST_DRAWN = 60  # pieces of either side; more cannot be read
READ_BY = {True: "cross_attention", False: "attention"}  # whether a model is a `Transformer`


def translate(predictor, text):
    """The dict of `translation`, `score`, `finished` and `truncated` of a text.

    Raises:
        ValueError: If there is no text.
    """
    return predictor.predict(text_of(text), details=True)


def search_of(folder, number):
    """The beam search that the folder's translations are made with, giving `number` of them."""
    settings = settings_of(folder)
    if "beam_size" in settings:  # a run
        found = BeamSearch(settings["beam_size"], settings["length_penalty"])
    else:
        try:
            found = load_search(folder)
        except (FileNotFoundError, ValueError):
            found = BeamSearch()
    if not isinstance(found, BeamSearch):
        found = BeamSearch(number, length_penalty=0.0, constraints=found.constraints)
    beams = max(found.beam_size, number)
    return dataclasses.replace(found, beam_size=beams, n_best=number)


def alternatives(predictor, text, search):
    """Pairs of score and translation, best first, as many as the search's `n_best`.

    Sentences that are the same but for how they are split into pieces are given once.
    """
    of_source, of_target = both(predictor.tokenizer)
    ids = of_source.tokenize([text]).numpy()[0].tolist()[: LENGTHS[-1] - 1]
    marks = {"start_id": of_source.start_id, "end_id": of_source.end_id}
    ids = [*ids, of_source.end_id]
    found = generate_all(predictor.model, [ids], search, LENGTHS, 1, verbose=0, **marks)
    tokens, scores = found["tokens"][0], found["scores"][0]
    if tokens.ndim == 1:  # `n_best` of one
        tokens, scores = tokens[None], scores[None]
    texts = [each.decode("utf-8", "replace") for each in of_target.detokenize(tokens).numpy()]
    ranked = {}
    for score, translation in zip(scores.tolist(), texts, strict=True):
        if score > float("-inf"):  # there may be fewer than `n_best`
            ranked.setdefault(translation, score)
    return [(score, translation) for translation, score in ranked.items()]


def alignment_picture(predictor, text, translation):
    """A heat map, pixels, of what each piece of the translation looks at; None if it is too large.

    Rows are the pieces of the translation, columns those of the text.
    """
    match = READ_BY[isinstance(predictor.model, Transformer)]
    weights, queries, keys = alignment(
        predictor.model, predictor.tokenizer, text, translation, match
    )
    if max(weights.shape) > MOST_DRAWN:
        return None
    with tempfile.TemporaryDirectory() as folder:
        path = attention_heat_map(weights, queries, keys, pathlib.Path(folder, "alignment.png"))
        return np.asarray(PIL.Image.open(path).convert("RGB"))
