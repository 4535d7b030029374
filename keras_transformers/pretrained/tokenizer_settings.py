"""Settings of published tokenizers: class, added tokens, languages, and numbers of pieces.

A setting that no tokenizer here has is refused by name.
"""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Callable, Mapping, Sequence, Set
from typing import TYPE_CHECKING, Any, TypeAlias

from keras_transformers.pretrained.files import CONFIG, read_json, write_json

if TYPE_CHECKING:
    from keras_transformers.text.cutting import AddedToken
    from keras_transformers.text.published_pieces import PieceTokenizer, SiglipTokenizer
    from keras_transformers.text.tokenizers import Languages


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
FAIRSEQ_DEFAULTS = {
    **DEFAULTS["RobertaTokenizer"],
    "mask_token": {"content": "<mask>", "lstrip": True},
}
DEFAULTS |= dict.fromkeys(("MBartTokenizer", "MBart50Tokenizer", "NllbTokenizer"), FAIRSEQ_DEFAULTS)
DEFAULTS["XLMRobertaTokenizer"] = FAIRSEQ_DEFAULTS
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


def in_order(found: Any, where: Any) -> list[str]:
    """The pieces of a JSON vocabulary in the order of their ids."""
    numbers = list(found.values())
    if not all(isinstance(number, int) for number in numbers) or sorted(numbers) != list(
        range(len(numbers))
    ):
        raise ValueError(f"{where} must number its pieces 0, 1, 2 ...")
    return sorted(found, key=found.get)


# Liu et al. 2020, https://arxiv.org/abs/2001.08210, and, behind them, Tang et al. 2020,
# https://arxiv.org/abs/2008.00401.
MBART = (
    "ar_AR cs_CZ de_DE en_XX es_XX et_EE fi_FI fr_XX gu_IN hi_IN it_IT ja_XX kk_KZ ko_KR lt_LT "
    "lv_LV my_MM ne_NP nl_XX ro_RO ru_RU si_LK tr_TR vi_VN zh_CN"
).split()
MBART_50 = [
    *MBART,
    *(
        "af_ZA az_AZ bn_IN fa_IR he_IL hr_HR id_ID ka_GE km_KH mk_MK ml_IN mn_MN mr_IN pl_PL ps_AF "
        "pt_XX sv_SE sw_KE ta_IN te_IN th_TH tl_XX uk_UA ur_PK xh_ZA gl_ES sl_SI"
    ).split(),
]
# Fan et al. 2021, https://arxiv.org/abs/2010.11125; of the year's news translation, Tran et al.
# 2021, https://arxiv.org/abs/2108.03265.
M2M_100 = (
    "af am ar ast az ba be bg bn br bs ca ceb cs cy da de el en es et fa ff fi fr fy ga gd gl "
    "gu ha he hi hr ht hu hy id ig ilo is it ja jv ka kk km kn ko lb lg ln lo lt lv mg mk ml mn "
    "mr ms my ne nl no ns oc or pa pl ps pt ro ru sd si sk sl so sq sr ss su sv sw ta th tl tn "
    "tr uk ur uz vi wo xh yi yo zh zu"
).split()
WMT_21 = "en ha is ja cs ru zh de".split()
# FLORES-200 (Costa-jussà et al. 2022, https://arxiv.org/abs/2207.04672).
NLLB = (
    "ace_Arab ace_Latn acm_Arab acq_Arab aeb_Arab afr_Latn ajp_Arab aka_Latn amh_Ethi apc_Arab "
    "arb_Arab ars_Arab ary_Arab arz_Arab asm_Beng ast_Latn awa_Deva ayr_Latn azb_Arab azj_Latn "
    "bak_Cyrl bam_Latn ban_Latn bel_Cyrl bem_Latn ben_Beng bho_Deva bjn_Arab bjn_Latn bod_Tibt "
    "bos_Latn bug_Latn bul_Cyrl cat_Latn ceb_Latn ces_Latn cjk_Latn ckb_Arab crh_Latn cym_Latn "
    "dan_Latn deu_Latn dik_Latn dyu_Latn dzo_Tibt ell_Grek eng_Latn epo_Latn est_Latn eus_Latn "
    "ewe_Latn fao_Latn pes_Arab fij_Latn fin_Latn fon_Latn fra_Latn fur_Latn fuv_Latn gla_Latn "
    "gle_Latn glg_Latn grn_Latn guj_Gujr hat_Latn hau_Latn heb_Hebr hin_Deva hne_Deva hrv_Latn "
    "hun_Latn hye_Armn ibo_Latn ilo_Latn ind_Latn isl_Latn ita_Latn jav_Latn jpn_Jpan kab_Latn "
    "kac_Latn kam_Latn kan_Knda kas_Arab kas_Deva kat_Geor knc_Arab knc_Latn kaz_Cyrl kbp_Latn "
    "kea_Latn khm_Khmr kik_Latn kin_Latn kir_Cyrl kmb_Latn kon_Latn kor_Hang kmr_Latn lao_Laoo "
    "lvs_Latn lij_Latn lim_Latn lin_Latn lit_Latn lmo_Latn ltg_Latn ltz_Latn lua_Latn lug_Latn "
    "luo_Latn lus_Latn mag_Deva mai_Deva mal_Mlym mar_Deva min_Latn mkd_Cyrl plt_Latn mlt_Latn "
    "mni_Beng khk_Cyrl mos_Latn mri_Latn zsm_Latn mya_Mymr nld_Latn nno_Latn nob_Latn npi_Deva "
    "nso_Latn nus_Latn nya_Latn oci_Latn gaz_Latn ory_Orya pag_Latn pan_Guru pap_Latn pol_Latn "
    "por_Latn prs_Arab pbt_Arab quy_Latn ron_Latn run_Latn rus_Cyrl sag_Latn san_Deva sat_Beng "
    "scn_Latn shn_Mymr sin_Sinh slk_Latn slv_Latn smo_Latn sna_Latn snd_Arab som_Latn sot_Latn "
    "spa_Latn als_Latn srd_Latn srp_Cyrl ssw_Latn sun_Latn swe_Latn swh_Latn szl_Latn tam_Taml "
    "tat_Cyrl tel_Telu tgk_Cyrl tgl_Latn tha_Thai tir_Ethi taq_Latn taq_Tfng tpi_Latn tsn_Latn "
    "tso_Latn tuk_Latn tum_Latn tur_Latn twi_Latn tzm_Tfng uig_Arab ukr_Cyrl umb_Latn urd_Arab "
    "uzn_Latn vec_Latn vie_Latn war_Latn wol_Latn xho_Latn ydd_Hebr yor_Latn yue_Hant zho_Hans "
    "zho_Hant zul_Latn"
).split()


OF_FAIRSEQ, OF_GOOGLE = "sentencepiece.bpe.model", "spiece.model"
NUMBERS = "vocab.json"  # of M2M-100
XLM_R = "XLMRobertaTokenizer"
FAIRSEQ = ("<s>", "<pad>", "</s>", "<unk>")
PEGASUS_OFFSET, EXTRA_IDS = 103, 100
CODES = {"m2m100": M2M_100, "wmt21": WMT_21}
# What a function of pieces and settings gives: the vocabulary, in the order of its ids.
Numbering: TypeAlias = Callable[[list[str], dict[str, Any]], list[str]]


@dataclasses.dataclass(frozen=True)
class Layout:
    """How a published class lays out its tokenizer.

    Args:
        file: Name of the SentencePiece model.
        first: The pieces that this begins with.
        vocab: Its `Numbering`.
        special: Function of the settings that gives the special tokens besides named ones.
        codes: Codes of its languages, or None.
        source: The language of the texts where nothing is said.
        behind: Whether a language's token stands behind END.
    """

    file: str
    first: tuple[str, ...]
    vocab: Numbering
    special: Callable[[dict[str, Any]], Sequence[str]]
    codes: Sequence[str] | None = None
    source: str = ""
    behind: bool = False

    def codes_in(self, settings: dict[str, Any]) -> Sequence[str] | None:
        """Codes of its languages by the settings."""
        return CODES[settings["language_codes"]] if "language_codes" in settings else self.codes


def _of_fairseq(codes: Sequence[str] = (), source: str = "", behind: bool = False) -> Layout:
    """One that numbers as fairseq does: its marks, the pieces, the languages, and the mask."""
    return Layout(
        OF_FAIRSEQ,
        ("<unk>", "<s>", "</s>"),
        lambda pieces, settings: [*FAIRSEQ, *pieces[3:], *codes, "<mask>"],
        lambda settings: codes,
        codes or None,
        source,
        behind,
    )


def _m2m_tokens(settings: dict[str, Any]) -> list[str]:
    return [f"__{code}__" for code in CODES[settings.get("language_codes", "m2m100")]]


def _unknown(settings: dict[str, Any]) -> list[str]:
    return ["<mask_1>", *(f"<unk_{i}>" for i in range(2, PEGASUS_OFFSET))]


def _extra(settings: dict[str, Any]) -> list[str]:
    """Marks of T5 for what is left out of a text, the last one first."""
    return [f"<extra_id_{i}>" for i in reversed(range(settings.get("extra_ids", EXTRA_IDS)))]


LAYOUTS = {
    "MBartTokenizer": _of_fairseq(MBART, "en_XX", behind=True),
    "MBart50Tokenizer": _of_fairseq(MBART_50, "en_XX"),
    "NllbTokenizer": _of_fairseq(NLLB, "eng_Latn"),
    XLM_R: _of_fairseq(),
    "M2M100Tokenizer": Layout(
        OF_FAIRSEQ,
        (),
        lambda pieces, settings: [*settings["vocab"], *_m2m_tokens(settings)],
        _m2m_tokens,
        M2M_100,
        "en",
    ),
    "PegasusTokenizer": Layout(
        OF_GOOGLE,
        ("<pad>", "</s>"),
        lambda pieces, settings: [
            "<pad>", "</s>", "<mask_1>", "<mask_2>", *_unknown(settings)[1:], *pieces[2:]
        ],
        _unknown,
    ),
    "T5Tokenizer": Layout(
        OF_GOOGLE,
        ("<pad>", "</s>", "<unk>"),
        lambda pieces, settings: [*pieces, *_extra(settings)],
        _extra,
    ),
}  # fmt: skip


def read_pieces(
    folder: pathlib.Path, there: set[str], settings: dict[str, Any], fast: Any, name: str | None,
    languages: tuple[str, str] | None,
) -> PieceTokenizer:  # fmt: skip
    """The tokenizer of a folder with a SentencePiece model.

    Args:
        folder: Its path.
        there: Names of its files.
        settings: What `read_settings` gives.
        fast: The content of `tokenizer.json`, empty where there is none.
        name: The published class, one of `LAYOUTS`.
        languages: Codes of the source's and the target's language, in place of the settings'.

    Raises:
        FileNotFoundError: If a file is missing.
        ValueError: If a file is broken, or there are no such languages.
    """
    from keras_transformers.text import (
        FairseqTokenizer,
        Languages,
        PieceTokenizer,
        SentencePieceTokenizer,
    )

    if name not in LAYOUTS:
        raise ValueError(
            f"{folder}: {SETTINGS} or config.json must name the class of the tokenizer, one of "
            f"{', '.join(LAYOUTS)}. Received: {name!r}"
        )
    layout = LAYOUTS[name]
    needed = {layout.file, NUMBERS} if name == "M2M100Tokenizer" else {layout.file}
    if not needed <= there:
        raise FileNotFoundError(
            f"{folder} must have {' and '.join(sorted(needed))}, for a {name}. "
            f"Received: {', '.join(sorted(there)) or 'none'}"
        )
    proto = SentencePieceTokenizer.read(folder / layout.file)
    pieces = _pieces(proto)
    if tuple(pieces[: len(layout.first)]) != layout.first:
        raise ValueError(
            f"{folder / layout.file}: the first pieces must be {', '.join(layout.first)}, for a "
            f"{name}. Received: {', '.join(pieces[: len(layout.first)])}"
        )
    if NUMBERS in needed:
        settings["vocab"] = in_order(read_json(folder, NUMBERS), folder / NUMBERS)
    try:
        asked = languages_of(name, settings, languages)
        vocab = layout.vocab(pieces, settings)
        numbers = {piece: number for number, piece in enumerate(vocab)}
        defaults, listing = defaults_of(name, SENTENCE_PIECES), _listing(layout, settings)
        tokens = added_tokens(folder, listing, defaults, numbers, fast.get("added_tokens"))
        if name == XLM_R:
            tokens.sort(key=lambda token: numbers.get(token.content, len(numbers)))
            return FairseqTokenizer(proto, [each for each in tokens if each.content not in FAIRSEQ])
        return PieceTokenizer(proto, vocab, tokens, Languages(**asked) if asked else None)
    except ValueError as error:
        raise ValueError(f"{folder}: {error}") from None


def _listing(layout: Layout, settings: dict[str, Any]) -> dict[str, Any]:
    """The settings with all special tokens in the one list that `added_tokens` reads."""
    settings, extra = dict(settings), [*layout.special(settings)]
    for name in ("extra_special_tokens", "additional_special_tokens"):
        more = settings.pop(name, None) or []
        extra += more.values() if isinstance(more, dict) else more
    unread = {"vocab", "mask_token_sent", "language_codes"}
    kept = {key: value for key, value in settings.items() if key not in unread}
    return {**kept, "extra_special_tokens": extra}


def languages_of(
    name: str | None, settings: dict[str, Any], languages: tuple[str, str] | None
) -> dict[str, Any] | None:
    """Arguments of `text.Languages` for a published class; None where it has none.

    Args:
        name, settings, languages: As for `read_pieces`.

    Raises:
        ValueError: If languages are asked for where there are none.
    """
    layout = LAYOUTS.get(name or "")
    codes = None if layout is None else layout.codes_in(settings)
    if layout is None or codes is None:
        if languages is not None:
            raise ValueError(
                f"`languages` must be None for such a tokenizer. Received: {languages}"
            )
        return None
    pattern = "__{}__" if layout is LAYOUTS["M2M100Tokenizer"] else "{}"
    source, target = languages or (settings.get("src_lang"), settings.get("tgt_lang"))
    return {
        "tokens": {code: pattern.format(code) for code in codes},
        "source": source or layout.source,
        "target": target,
        "behind": settings.get("legacy_behaviour", False) or layout.behind,
    }


def class_with_languages(languages: Languages) -> str:
    """The published class of a `tokenizer.json` that has such languages; ValueError if none."""
    for name, layout in LAYOUTS.items():
        either = name == "NllbTokenizer"  # its first version had the token behind END
        known = languages.tokens.keys() <= {*(layout.codes or ())}
        if name != "M2M100Tokenizer" and known and (either or layout.behind == languages.behind):
            return name
    raise ValueError(
        "save_tokenizer: the languages must be those of a published class, MBartTokenizer, "
        f"MBart50Tokenizer or NllbTokenizer. Received: {', '.join(languages.tokens)}"
    )


def said_of(name: str, languages: Languages) -> dict[str, Any]:
    """What `tokenizer_config.json` must say of the languages of a published class."""
    said: dict[str, Any] = {"src_lang": languages.source, "tgt_lang": languages.target}
    return said | ({"legacy_behaviour": languages.behind} if name == "NllbTokenizer" else {})


def _pieces(proto: bytes) -> list[str]:
    from keras_transformers.text.sentence_pieces import SentencePieces

    model = SentencePieces("load_tokenizer", proto)
    return model.names(range(model.size))


def write_pieces(tokenizer: PieceTokenizer, folder: pathlib.Path) -> dict[str, Any]:
    """Writes the files of a tokenizer; returns what `tokenizer_config.json` must say.

    Raises:
        ValueError: If no published class numbers its pieces so.
    """
    vocab, languages = list(tokenizer.get_config()["vocab"]), tokenizer.languages
    pieces = _pieces(tokenizer.proto)
    for name, layout in LAYOUTS.items():
        settings: dict[str, Any] = {"tokenizer_class": name}
        if name == "T5Tokenizer":
            settings["extra_ids"] = sum(piece.startswith("<extra_id_") for piece in vocab)
        if name == "M2M100Tokenizer":
            if languages is None or not vocab[-1].startswith("__"):
                continue
            if len(languages.tokens) == len(WMT_21):
                settings["language_codes"] = "wmt21"
            settings["vocab"] = vocab[: -len(languages.tokens)]
        if layout.vocab(pieces, settings) != vocab:
            continue
        if languages is not None:
            settings |= said_of(name, languages)
        numbered = settings.pop("vocab", None)
        if numbered is not None:
            write_json(folder, NUMBERS, {piece: i for i, piece in enumerate(numbered)})
        (folder / layout.file).write_bytes(tokenizer.proto)
        return settings
    raise ValueError(
        f"save_tokenizer: the vocabulary must be numbered as in one of {', '.join(LAYOUTS)}."
    )


def read_siglip(
    folder: pathlib.Path, there: set[str], settings: dict[str, Any], fast: Any, name: str | None
) -> SiglipTokenizer:
    """The tokenizer of `spiece.model`.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If it is broken.
    """
    from keras_transformers.text import SentencePieceTokenizer, SiglipTokenizer
    from keras_transformers.text.sentence_pieces import SentencePieces

    if OF_GOOGLE not in there:
        raise FileNotFoundError(
            f"{folder} must have {OF_GOOGLE}, for a tokenizer of {SIGLIP}. "
            f"Received: {', '.join(sorted(there)) or 'none'}"
        )
    proto = SentencePieceTokenizer.read(folder / OF_GOOGLE)
    model = SentencePieces("load_tokenizer", proto)
    pieces = model.names(range(model.size))
    defaults = defaults_of(name, SIGLIP)
    # A name alone stands for the default, which says more of it.
    said = {k: v for k, v in settings.items() if v != content_of(defaults.get(k))}
    numbers = {piece: number for number, piece in enumerate(pieces)}
    try:
        tokens = added_tokens(folder, said, defaults, numbers)
        return SiglipTokenizer(proto, pieces, tokens, settings.get("do_lower_case", True))
    except ValueError as error:
        raise ValueError(f"{folder}: {error}") from None


def write_siglip(tokenizer: SiglipTokenizer, folder: pathlib.Path) -> dict[str, Any]:
    """Writes `spiece.model`; what belongs into `tokenizer_config.json`, a dict."""
    (folder / OF_GOOGLE).write_bytes(tokenizer.proto)
    return {"tokenizer_class": "SiglipTokenizer", "do_lower_case": tokenizer.lower_case}
