"""How a published model is meant to generate."""

import pathlib

from keras_transformers.generation import BeamSearch, Constraints, Greedy, Sampling
from keras_transformers.pretrained.files import read_json

SETTLED = {"num_beam_groups": 1, "diversity_penalty": 0.0, "repetition_penalty": 1.0}
SETTLED |= {"encoder_no_repeat_ngram_size": 0, "typical_p": 1.0}


def load_search(folder):
    """The search that a published folder asks for, to the token that of `transformers`' `generate`.

    Read from `generation_config.json`, or `config.json` where older folders have it.

    Args:
        folder: Path of the folder.

    Returns:
        `Greedy`, `BeamSearch` or `Sampling`.

    Raises:
        FileNotFoundError: If there is neither file.
        ValueError: If it asks for something that no search of ours does.

    Example:
    >>> import json, pathlib, tempfile
    >>> from keras_transformers import pretrained
    >>> folder = tempfile.mkdtemp()
    >>> asked = {"num_beams": 4, "bad_words_ids": [[58100]]}
    >>> _ = pathlib.Path(folder, "generation_config.json").write_text(json.dumps(asked))
    >>> pretrained.load_search(folder).beam_size
    4
    """
    folder = pathlib.Path(folder)
    there = [n for n in ("generation_config.json", "config.json") if (folder / n).is_file()]
    name = there[0] if there else "generation_config.json"
    asked = {key: value for key, value in read_json(folder, name).items() if value is not None}
    for key, value in SETTLED.items():
        if asked.get(key, value) != value:
            raise ValueError(f"{folder / name}: `{key}` must be {value}. Received: {asked[key]!r}")
    banned = asked.get("bad_words_ids", [])
    if any(len(ids) != 1 for ids in banned):
        raise ValueError(f"{folder / name}: `bad_words_ids` must be single ids. Received: {banned}")
    constraints = Constraints(
        min_length=asked.get("min_length", 0),
        no_repeat_ngram=asked.get("no_repeat_ngram_size", 0),
        banned=tuple(ids[0] for ids in banned),
    )
    beams = asked.get("num_beams", 1)
    if asked.get("do_sample", False) and beams == 1:
        top_p = asked.get("top_p", 1.0)
        return Sampling(
            temperature=asked.get("temperature", 1.0),
            top_k=asked.get("top_k", 50) or None,
            top_p=None if top_p == 1.0 else top_p,
            constraints=constraints,
        )
    if beams == 1:
        return Greedy(constraints)
    if asked.get("early_stopping", False) not in (True, False):
        raise ValueError(
            f"{folder / name}: `early_stopping` must be true or false. "
            f"Received: {asked['early_stopping']!r}"
        )
    return BeamSearch(
        beams,
        asked.get("length_penalty", 1.0),
        constraints=constraints,
        normalization="length",
        early_stopping=asked.get("early_stopping", False),
    )
