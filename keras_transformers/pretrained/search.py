"""Search settings of published folders, and every key of `GenerationConfig`."""

import pathlib
import warnings
from typing import Any, NamedTuple

from keras_transformers.core.types import StrPath
from keras_transformers.generation import BeamSearch, Boundaries, Constraints, Greedy, Sampling
from keras_transformers.generation.search import Search
from keras_transformers.pretrained.files import CONFIG, find, read_json

IMITATED = "is imitated"


class Only(NamedTuple):
    """A key that no search of ours imitates.

    Args:
        values: Those that change nothing, besides null; others are refused.
        mode: "sampling", "greedy" or "beams" where the key is read there alone.
    """

    values: tuple[Any, ...] = ()
    mode: str | None = None


CACHES = ("dynamic", "static", "offloaded", "offloaded_static", "sliding_window", "hybrid")
CACHES += ("hybrid_chunked", "offloaded_hybrid", "offloaded_hybrid_chunked", "paged")
COST = "changes the cost, not the tokens"
SPECULATION = "of speculation, which gives the same tokens, or draws from the same distribution"
LIMIT = "is what a caller asks for: `max_length` of `generate`, `new_tokens` of `TextGenerator`"
RESULTS = "is about what else is returned"
RECORD = "is a record of how the file came about"

KEYS = {
    # which search
    "num_beams": IMITATED,
    "do_sample": IMITATED,
    "early_stopping": IMITATED,
    "length_penalty": IMITATED,
    "num_return_sequences": IMITATED,
    "temperature": IMITATED,
    "top_k": IMITATED,
    "top_p": IMITATED,
    "min_p": IMITATED,
    "top_h": Only(mode="sampling"),
    "typical_p": Only((1.0,), "sampling"),
    "epsilon_cutoff": Only((0.0,), "sampling"),
    "eta_cutoff": Only((0.0,), "sampling"),
    "penalty_alpha": Only((0.0,), "greedy"),
    "num_beam_groups": Only((1,), "beams"),
    "diversity_penalty": "is read with `num_beam_groups` alone",
    "dola_layers": Only(),
    # which tokens
    "min_length": IMITATED,
    "min_new_tokens": IMITATED,
    "no_repeat_ngram_size": IMITATED,
    "bad_words_ids": IMITATED,
    "suppress_tokens": IMITATED,
    "begin_suppress_tokens": IMITATED,
    "forced_bos_token_id": IMITATED,
    "forced_eos_token_id": IMITATED,
    "eos_token_id": IMITATED,
    "renormalize_logits": IMITATED,
    "repetition_penalty": IMITATED,
    "encoder_repetition_penalty": Only((1.0,)),
    "encoder_no_repeat_ngram_size": Only((0,)),
    "exponential_decay_length_penalty": Only(),
    "sequence_bias": Only(),
    "constraints": Only(),
    "force_words_ids": Only(),
    "guidance_scale": Only((1.0,)),
    "watermarking_config": Only(),
    "token_healing": Only((False,)),
    "remove_invalid_values": "concerns NaN and infinity, which sound weights do not give",
    # how long
    "max_length": LIMIT,
    "max_new_tokens": LIMIT,
    "max_time": Only(),
    "stop_strings": "is read by `load`: `stop_strings` of `TextGenerator`",
    # ids
    "pad_token_id": "stands behind END, where ours has `padding_id`, which is never chosen",
    "bos_token_id": "is the tokenizer's `start_id`",
    "decoder_start_token_id": IMITATED,
    # speculation
    "use_mtp": SPECULATION,
    "prompt_lookup_num_tokens": SPECULATION,
    "max_matching_ngram_size": SPECULATION,
    "num_assistant_tokens": SPECULATION,
    "num_assistant_tokens_schedule": SPECULATION,
    "assistant_confidence_threshold": SPECULATION,
    "assistant_early_exit": SPECULATION,
    "assistant_lookbehind": SPECULATION,
    "target_lookbehind": SPECULATION,
    "speculation_type": SPECULATION,
    "assistant_ensemble_weight": Only(),
    "is_assistant": Only((False,)),
    # cost
    "use_cache": COST,
    "cache_implementation": Only(CACHES),  # not "quantized", which rounds
    "cache_config": 'is read with the "quantized" cache alone',
    "max_cache_len": COST,
    "prefill_chunk_size": COST,
    "low_memory": COST,
    "compile_config": COST,
    "disable_compile": COST,
    "continuous_batching_config": COST,
    # results
    "output_attentions": RESULTS,
    "output_hidden_states": RESULTS,
    "output_scores": RESULTS,
    "output_logits": RESULTS,
    "return_dict_in_generate": RESULTS,
    "_from_model_config": RECORD,
    "_original_object_hash": RECORD,
    "_commit_hash": RECORD,
    "transformers_version": RECORD,
}


GENERATION = "generation_config.json"
BEGINS = {"bart": 0, "mbart": 0, "m2m_100": 0}  # `bos_token_id` where a configuration lacks it


def load_search(folder: StrPath, language_id: int | None = None) -> Search:
    """The search that a published folder asks for, to the token that of `transformers`' `generate`.

    Read from `generation_config.json`, or `config.json` where older folders have it. Limits on the
    length are not the search's: `generate` takes `max_length`, which counts no START; where
    `transformers` counts one, give it one less.

    Args:
        folder: Path of the folder, or its name on the hub.
        language_id: For translators of many languages, the token that a translation begins with,
            `language_id` of a `text.PieceTokenizer`; by default the folder's `forced_bos_token_id`.

    Returns:
        `Greedy`, `BeamSearch` or `Sampling`. Its `Constraints` start sequences with the folder's
        `decoder_start_token_id`, and end them with its `eos_token_id`, one or several, whatever
        `start_id` and `end_id` are asked of it.

    Raises:
        FileNotFoundError: If there is neither file.
        ValueError: If it asks for something that no search of ours does.

    Warns:
        UserWarning: If `generation_config.json` has a key that `transformers` 5 does not know.

    Example:
    >>> import json, pathlib, tempfile
    >>> from keras_transformers import pretrained
    >>> folder = tempfile.mkdtemp()
    >>> asked = {"num_beams": 4, "bad_words_ids": [[58100]]}
    >>> _ = pathlib.Path(folder, "generation_config.json").write_text(json.dumps(asked))
    >>> pretrained.load_search(folder).beam_size
    4
    """
    asked = _asked(find(folder, weights=False))
    asked.refuse_what_is_not_imitated()
    constraints, copies = (
        _constraints(asked, language_id),
        asked.number("num_return_sequences", 1, 1),
    )
    if asked.mode == "sampling":
        top_p = asked.number("top_p", 1.0)
        return Sampling(
            temperature=asked.number("temperature", 1.0),
            top_k=asked.number("top_k", 50) or None,
            top_p=None if top_p >= 1.0 else top_p,
            min_p=asked.get("min_p"),
            num_samples=copies,
            constraints=constraints,
        )
    if asked.mode == "beams":
        return BeamSearch(
            asked.get("num_beams"),
            asked.number("length_penalty", 1.0),
            n_best=copies,
            constraints=constraints,
            normalization="length",
            early_stopping=asked.get("early_stopping", False),
        )
    if copies > 1:
        raise asked.error("num_return_sequences", "1 without `num_beams` or `do_sample`")
    return Greedy(constraints)


def load_new_tokens(folder: StrPath, after_prompt: bool = False) -> int | None:
    """Most tokens, END included, that a published folder lets its model generate.

    `max_new_tokens` of the file that `load_search` reads; or `max_length`, which counts START.

    Args:
        folder: Path of the folder.
        after_prompt: Whether what is generated goes on with a prompt, whose tokens `max_length`
            counts, so that it says nothing.

    Returns:
        The number; None if the file says none.

    Raises:
        FileNotFoundError: If there is neither file.
        ValueError: If it is no positive integer.
    """
    asked = _asked(pathlib.Path(folder))
    if asked.get("max_new_tokens") is not None:
        return int(asked.number("max_new_tokens", 0, 1))
    if after_prompt or asked.get("max_length") is None:
        return None
    return int(asked.number("max_length", 0, 2)) - 1


def load_stop_strings(folder: StrPath) -> tuple[str, ...]:
    """Strings at which texts end, besides END, by the settings of a published folder.

    Raises:
        FileNotFoundError: If there is neither file that `load_search` reads.
        ValueError: If they are no strings, or one is empty.
    """
    asked = _asked(pathlib.Path(folder))
    strings = asked.get("stop_strings", [])
    strings = [strings] if isinstance(strings, str) else strings
    if not isinstance(strings, list) or not all(isinstance(x, str) and x for x in strings):
        raise asked.error("stop_strings", "a string or a list of strings, none empty")
    return tuple(strings)


def _asked(folder: pathlib.Path) -> "_GenerationConfig":
    """What the file of generation settings asks for, `config.json` where older folders have it."""
    there = [name for name in (GENERATION, CONFIG) if (folder / name).is_file()]
    name = there[0] if there else GENERATION
    found = {key: value for key, value in read_json(folder, name).items() if value is not None}
    return _GenerationConfig(folder / name, found)


class _GenerationConfig:
    """What a file asks for; what is null is not asked."""

    def __init__(self, path: pathlib.Path, found: dict[str, Any]) -> None:
        self.path, self.found = path, found
        self.mode = "beams" if self.number("num_beams", 1, 1) > 1 else "greedy"
        if self.get("do_sample", False):
            if self.mode == "beams":
                raise self.error("num_beams", "1 with `do_sample`: no search of ours samples beams")
            self.mode = "sampling"

    def get(self, key: str, default: Any = None) -> Any:
        return self.found.get(key, default)

    def error(self, key: str, expected: str) -> ValueError:
        return ValueError(f"{self.path}: `{key}` must be {expected}. Received: {self.get(key)!r}")

    def number(self, key: str, default: Any, least: float = float("-inf")) -> Any:
        value = self.get(key, default)
        integer = isinstance(default, int)
        if not isinstance(value, int if integer else int | float) or value < least:
            kind = "an integer" if integer else "a number"
            raise self.error(key, kind if least < 0 else f"{kind} of at least {least}")
        return value

    def ids(self, key: str) -> tuple[int, ...]:
        """An id or a list of ids, as a tuple."""
        value = self.get(key, [])
        value = value if isinstance(value, list) else [value]
        if not all(isinstance(token, int) for token in value):
            raise self.error(key, "an id or a list of ids")
        return tuple(value)

    def id(self, key: str) -> int | None:
        """One id, or None."""
        found = self.ids(key)
        if len(found) > 1:
            raise self.error(key, "one id")
        return found[0] if found else None

    def first_token(self) -> int | None:
        """The token that is forced first, or None.

        The configuration of older BARTs says `force_bos_token_to_be_generated` instead of its id.
        """
        if self.path.name == CONFIG and self.get("force_bos_token_to_be_generated", False):
            begin = self.get("bos_token_id", BEGINS.get(self.get("model_type")))
            if begin is not None:
                return int(begin)
        return self.id("forced_bos_token_id")

    def refuse_what_is_not_imitated(self) -> None:
        for key in self.found:
            rule = KEYS.get(key)
            if rule is None and self.path.name == GENERATION:
                warnings.warn(
                    f"{self.path}: `{key}` is no setting of transformers 5 and is not read.",
                    stacklevel=3,
                )
            if not isinstance(rule, Only) or rule.mode not in (None, self.mode):
                continue
            if self.get(key) not in rule.values:
                expected = " or ".join(repr(value) for value in (*rule.values, None))
                raise self.error(key, f"{expected}, for no search of ours does otherwise")


def _constraints(asked: _GenerationConfig, language_id: int | None) -> Constraints:
    ends = asked.ids("eos_token_id")
    words = asked.get("bad_words_ids", [])
    if not all(isinstance(word, list) and word for word in words):
        raise asked.error("bad_words_ids", "a list of lists of ids")
    words = [tuple(word) for word in words if len(word) > 1 or word[0] not in ends]
    # Negative ids are no tokens.
    banned, first = (
        tuple(token for token in asked.ids(key) if token >= 0)
        for key in ("suppress_tokens", "begin_suppress_tokens")
    )
    last = asked.id("forced_eos_token_id")
    begin = asked.first_token() if language_id is None else language_id
    if {begin, last} & set(banned):
        raise asked.error("suppress_tokens", "none of the forced tokens")
    fewest = asked.number("min_new_tokens", 0, 0)
    penalty = float(asked.number("repetition_penalty", 1.0))
    if penalty <= 0:
        raise asked.error("repetition_penalty", "a positive number")
    return Constraints(
        min_length=0 if fewest else asked.number("min_length", 0, 0),
        min_new=fewest,
        no_repeat_ngram=asked.number("no_repeat_ngram_size", 0, 0),
        banned=(*banned, *words),
        boundaries=Boundaries(ends, begin, last, first, start=asked.id("decoder_start_token_id")),
        renormalize=bool(asked.get("renormalize_logits", False)),
        repetition_penalty=penalty,
    )
