"""What the files beside a published vocabulary say of its tokenizer: kind, settings, added tokens.

What these say and no tokenizer here does is refused by name.
"""

from __future__ import annotations

import pathlib
from collections.abc import Mapping, Set
from typing import TYPE_CHECKING, Any

from keras_transformers.pretrained.files import CONFIG, read_json

if TYPE_CHECKING:
    from keras_transformers.text.cutting import AddedToken

TOKENIZER, SETTINGS = "tokenizer.json", "tokenizer_config.json"
WORD_PIECES, BYTE_PAIRS, MARIAN = "word pieces", "byte pairs", "marian"
SENTENCE_PIECES, SIGLIP = "sentence pieces", "sentence pieces of SigLIP"
FAST = "whatever tokenizer.json says"
# Classes of Hugging Face's that cut text as BERT's does, or GPT-2's; all may end in "Fast".
CLASSES = dict.fromkeys(
    ("BertTokenizer", "DistilBertTokenizer", "ElectraTokenizer", "MobileBertTokenizer")
    + ("ConvBertTokenizer", "SqueezeBertTokenizer"),
    WORD_PIECES,
)
CLASSES |= {"GPT2Tokenizer": BYTE_PAIRS, "MarianTokenizer": MARIAN}
CLASSES |= {"RobertaTokenizer": BYTE_PAIRS, "BartTokenizer": BYTE_PAIRS}
CLASSES |= {"CLIPTokenizer": FAST, "SiglipTokenizer": SIGLIP}
CLASSES |= dict.fromkeys(
    ("MBartTokenizer", "MBart50Tokenizer", "NllbTokenizer", "M2M100Tokenizer")
    + ("PegasusTokenizer", "T5Tokenizer", "XLMRobertaTokenizer"),
    SENTENCE_PIECES,
)
# Those that are whatever tokenizer.json says.
GENERIC = ("PreTrainedTokenizer", "TokenizersBackend")
MODEL_TYPES = dict.fromkeys(("bert", "distilbert", "electra", "mobilebert"), "BertTokenizer")
MODEL_TYPES |= {"gpt2": "GPT2Tokenizer", "marian": "MarianTokenizer"}
MODEL_TYPES |= {"roberta": "RobertaTokenizer", "xlm-roberta": "XLMRobertaTokenizer"}
MODEL_TYPES |= {"bart": "BartTokenizer", "mbart": "MBartTokenizer", "m2m_100": "M2M100Tokenizer"}
MODEL_TYPES |= {"pegasus": "PegasusTokenizer", "t5": "T5Tokenizer", "mt5": "T5Tokenizer"}
MODEL_TYPES |= {"clip": "CLIPTokenizer", "siglip": "SiglipTokenizer"}
NAMED = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")
END = "<|endoftext|>"
# Of each kind, and of classes that differ, the names of special tokens where nothing is said.
DEFAULTS: dict[str, dict[str, Any]] = {
    WORD_PIECES: {
        "unk_token": "[UNK]",
        "sep_token": "[SEP]",
        "pad_token": "[PAD]",
        "cls_token": "[CLS]",
        "mask_token": "[MASK]",
    },
    BYTE_PAIRS: {"bos_token": END, "eos_token": END, "unk_token": END},
    "RobertaTokenizer": {
        "bos_token": "<s>",
        "eos_token": "</s>",
        "unk_token": "<unk>",
        "sep_token": "</s>",
        "pad_token": "<pad>",
        "cls_token": "<s>",
        "mask_token": "<mask>",
    },
    MARIAN: {"unk_token": "<unk>", "eos_token": "</s>", "pad_token": "<pad>"},
    SENTENCE_PIECES: {"unk_token": "<unk>", "eos_token": "</s>", "pad_token": "<pad>"},
    SIGLIP: {"unk_token": "<unk>", "eos_token": "</s>", "pad_token": "</s>"},
    FAST: {},
}
DEFAULTS["BartTokenizer"] = DEFAULTS["RobertaTokenizer"]
DEFAULTS["PegasusTokenizer"] = {**DEFAULTS[SENTENCE_PIECES], "mask_token": "<mask_2>"}
OF_FAIRSEQ = {**DEFAULTS["RobertaTokenizer"], "mask_token": {"content": "<mask>", "lstrip": True}}
DEFAULTS |= dict.fromkeys(("MBartTokenizer", "MBart50Tokenizer", "NllbTokenizer"), OF_FAIRSEQ)
DEFAULTS["XLMRobertaTokenizer"] = OF_FAIRSEQ
DEFAULTS["M2M100Tokenizer"] = {**DEFAULTS[SENTENCE_PIECES], "bos_token": "<s>"}
DEFAULTS["CLIPTokenizer"] = dict.fromkeys(("eos_token", "unk_token", "pad_token"), END)
DEFAULTS["CLIPTokenizer"] |= {"bos_token": "<|startoftext|>"}
DEFAULTS["SiglipTokenizer"] = {
    name: {"content": content, "lstrip": True, "rstrip": True, "special": True}
    for name, content in DEFAULTS[SIGLIP].items()
}
# Settings with other values than these give other ids.
SETTLED: dict[str, dict[str, Any]] = {
    WORD_PIECES: {
        "do_basic_tokenize": (True,),
        "tokenize_chinese_chars": (True,),
        "never_split": (None, []),
    },
    BYTE_PAIRS: {"add_prefix_space": (False, None), "add_bos_token": (False, None)}
    | {"add_eos_token": (False, None)},
    MARIAN: {"sp_model_kwargs": (None, {})},
    SENTENCE_PIECES: {
        "sp_model_kwargs": (None, {}),
        "language_codes": ("m2m100", "wmt21"),
        "offset": (103,),
        "mask_token_sent": ("<mask_1>",),
        "add_prefix_space": (True, None),
    },
    SIGLIP: {"sp_model_kwargs": (None, {}), "legacy": (True, None)},
    FAST: {},
}


def defaults_of(name: str | None, kind: str) -> dict[str, Any]:
    """Names, or entries, of the special tokens of a published class where nothing is said."""
    return {} if name in GENERIC else DEFAULTS.get(name or "", DEFAULTS[kind])


def class_with(kind: str, special: Set[str]) -> str:
    """The published class of a kind that has just these special tokens, or the most of them."""
    names = [name for name, its_kind in CLASSES.items() if its_kind == kind]
    return max(names, key=lambda name: len(special & defaults_of(name, kind).keys()))


def read_settings(folder: pathlib.Path) -> dict[str, Any]:
    """The dict of `tokenizer_config.json`, and of `special_tokens_map.json` in older folders."""
    settings = read_json(folder, SETTINGS) if (folder / SETTINGS).is_file() else {}
    if "additional_special_tokens" in settings and not settings.get("extra_special_tokens"):
        settings["extra_special_tokens"] = settings.pop("additional_special_tokens")
    if "added_tokens_decoder" not in settings and (folder / "special_tokens_map.json").is_file():
        settings = settings | read_json(folder, "special_tokens_map.json")
    return settings


def class_of(folder: pathlib.Path, settings: dict[str, Any]) -> str | None:
    """The name of the published class, None where no file names it or what it is for.

    Raises:
        ValueError: If there is no such tokenizer here.
    """
    config = read_json(folder, CONFIG) if (folder / CONFIG).is_file() else {}
    if settings.get("auto_map"):
        raise ValueError(
            f"{folder / SETTINGS}: `auto_map` names code of the folder, which is never run."
        )
    for where, said in ((SETTINGS, settings), (CONFIG, config)):
        name = said.get("tokenizer_class")
        if name is None:
            continue
        known = isinstance(name, str) and name.removesuffix("Fast") in (*CLASSES, *GENERIC)
        if known or isinstance(name, str) and (folder / TOKENIZER).is_file():
            return name.removesuffix("Fast")
        raise ValueError(
            f"{folder / where}: without {TOKENIZER}, `tokenizer_class` must be one of "
            f"{', '.join(CLASSES)} or PreTrainedTokenizerFast. Received: {name!r}"
        )
    kind = config.get("model_type")
    if kind is not None and kind not in MODEL_TYPES:
        if (folder / TOKENIZER).is_file():
            return None
        raise ValueError(
            f"{folder}: a tokenizer must have {TOKENIZER}, a `tokenizer_class` in {SETTINGS}, or "
            f"be of a model of type {', '.join(MODEL_TYPES)}. Received: model_type={kind!r}"
        )
    return None if kind is None else MODEL_TYPES[kind]


def check_settings(
    folder: pathlib.Path, settings: dict[str, Any], kind: str, name: str | None
) -> None:
    """ValueError for a setting of `tokenizer_config.json` with which no ids here are the same."""
    settled: dict[str, Any] = {"split_special_tokens": (False, None), **SETTLED[kind]}
    for name, values in settled.items():
        if settings.get(name, values[0]) not in values:
            raise ValueError(
                f"{folder / SETTINGS}: `{name}` must be {values[0]}. Received: {settings[name]!r}"
            )
    if kind in (BYTE_PAIRS, FAST):  # which nobody needs to find its own by
        return
    for role, default in DEFAULTS.get(name or "", DEFAULTS[kind]).items():
        value, default = content_of(settings.get(role) or default), content_of(default)
        if value != default:
            raise ValueError(
                f"{folder / SETTINGS}: `{role}` must be {default!r}. Received: {value!r}"
            )


def lower_case(folder: pathlib.Path, settings: dict[str, Any]) -> bool:
    """Whether text becomes lower case; ValueError if accents do not follow it."""
    lower = settings.get("do_lower_case", True)
    accents = settings.get("strip_accents")
    if accents not in (None, lower):
        raise ValueError(
            f"{folder / SETTINGS}: `strip_accents` must be None. Received: {accents!r}"
        )
    return lower


def added_tokens(
    folder: pathlib.Path,
    settings: dict[str, Any],
    defaults: Mapping[str, Any],
    vocab: Mapping[str, int],
    in_tokenizer: list[dict[str, Any]] | None = None,
) -> list[AddedToken]:
    """The tokens that are found in a text as they are written, in the order of their ids.

    Args:
        folder: Path of the folder.
        settings: What `read_settings` gives.
        defaults: What `defaults_of` gives.
        vocab: Dict of piece -> id, without what was added.
        in_tokenizer: `added_tokens` of `tokenizer.json`, where there is one.

    Returns:
        A list of `text.AddedToken`.

    Raises:
        ValueError: If one must be a word of its own, or has an id that the published code would
            not give it.
    """
    listed = _listed(folder, settings, in_tokenizer)
    named = [settings.get(name, defaults.get(name)) for name in NAMED]
    more = [
        value
        for name, value in settings.items()
        if name.endswith("_token") and name not in NAMED and not isinstance(value, bool)
    ]
    extra = settings.get("extra_special_tokens")
    # Of special_tokens_map.json alone: these are known too late to be looked for as they are.
    late = settings.get("additional_special_tokens", []) if extra is None else []
    extra = list(extra.values()) if isinstance(extra, dict) else list(extra or [])
    raw = {content_of(each) for each in (*named, *extra) if each is not None}
    extra += late
    special = raw | {content_of(each) for each in (*more, *extra)}
    tokens: dict[str, AddedToken] = {}
    numbers = dict(vocab)
    for number, entry in [*sorted(listed.items()), *((None, e) for e in (*named, *more, *extra))]:
        if entry is None or content_of(entry) in tokens:
            continue
        token = _token(folder, entry, special, special if number is None else raw)
        tokens[token.content] = token
        given = numbers.setdefault(token.content, len(numbers))
        if number not in (None, given):
            raise ValueError(
                f"{folder}: the added token {token.content!r} must have the id {given}, by the "
                f"vocabulary and the tokens added before. Received: {number}"
            )
    return list(tokens.values())


def _listed(
    folder: pathlib.Path, settings: dict[str, Any], in_tokenizer: list[dict[str, Any]] | None
) -> dict[int, Any]:
    """Dict of id -> entry of added tokens, from the file that the published code would read."""
    found: dict[Any, Any] = {}
    if "added_tokens_decoder" in settings:
        found |= settings["added_tokens_decoder"]
    else:
        if (folder / "added_tokens.json").is_file():
            found |= {i: text for text, i in read_json(folder, "added_tokens.json").items()}
        found |= {entry["id"]: entry for entry in in_tokenizer or []}
    try:
        return {int(number): entry for number, entry in found.items()}
    except (TypeError, ValueError):
        raise ValueError(f"{folder}: added tokens must have integers as ids.") from None


def content_of(entry: Any) -> Any:
    """How a token is written, whether a str or a dict stands for it."""
    return entry.get("content") if isinstance(entry, dict) else entry


def _token(folder: pathlib.Path, entry: Any, special: set[Any], raw: set[Any]) -> AddedToken:
    from keras_transformers.text import AddedToken  # only who tokenizes needs TensorFlow

    content = content_of(entry)
    if not isinstance(content, str):
        raise ValueError(f"{folder}: an added token must have a text. Received: {entry!r}")
    named = content in special
    if not isinstance(entry, dict):
        return AddedToken(content, normalized=content not in raw, special=named)
    is_special = bool(entry.get("special", False)) or named
    return AddedToken(
        content,
        normalized=bool(entry.get("normalized", not is_special)),
        lstrip=bool(entry.get("lstrip", False)),
        rstrip=bool(entry.get("rstrip", False)),
        special=is_special,
        single_word=bool(entry.get("single_word", False)),
    )


def write_added(tokenizer: Any) -> dict[str, Any]:
    """`added_tokens_decoder` of `tokenizer_config.json` for one of our tokenizers."""
    return {
        str(number): {
            "content": token.content,
            "lstrip": token.lstrip,
            "normalized": token.normalized,
            "rstrip": token.rstrip,
            "single_word": token.single_word,
            "special": token.special,
        }
        for number, token in zip(tokenizer.added_ids, tokenizer.added_tokens, strict=True)
    }
