"""Tokenizers in `tokenizer.json`, the file of Hugging Face's fast tokenizers."""

from __future__ import annotations

import dataclasses
import json
import pathlib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from keras_transformers.pretrained.files import read_json, write_json
from keras_transformers.pretrained.tokenizer_settings import (
    CLASSES,
    END,
    FAST,
    NAMED,
    SENTENCE_PIECES,
    SETTINGS,
    SIGLIP,
    TOKENIZER,
    added_tokens,
    content_of,
    defaults_of,
)

# Of byte pairs: what puts marks before and after a text, or does nothing to its ids.
POST_PROCESSORS = (None, "ByteLevel", "TemplateProcessing", "RobertaProcessing")


def model_type(fast: Any) -> str | None:
    """The type of the model in `tokenizer.json`; older files do not say it."""
    model = fast.get("model") or {}
    if "type" in model:
        return model["type"]
    return "BPE" if "merges" in model else "WordPiece" if "vocab" in model else None


def is_berts(fast: Any) -> bool:
    """Whether `tokenizer.json` splits and cuts as `text.WordPieceTokenizer` does."""
    model = fast.get("model") or {}
    normalizer, before = (fast.get(name) or {} for name in ("normalizer", "pre_tokenizer"))
    lower = normalizer.get("lowercase", True)
    return (
        model_type(fast) == "WordPiece"
        and (normalizer.get("type"), before.get("type")) == ("BertNormalizer", "BertPreTokenizer")
        and normalizer.get("clean_text", True)
        and normalizer.get("handle_chinese_chars", True)
        and normalizer.get("strip_accents") in (None, lower)
        and (model.get("unk_token", "[UNK]"), model.get("continuing_subword_prefix", "##"))
        == ("[UNK]", "##")
        and (model.get("vocab") or {}).get("[PAD]") == 0
        and {"[UNK]", "[CLS]", "[SEP]", "[MASK]"} <= (model.get("vocab") or {}).keys()
    )


def is_gpt2s(fast: Any) -> bool:
    """Whether `tokenizer.json` splits and cuts as `text.BytePairTokenizer` does."""
    vocab = (fast.get("model") or {}).get("vocab")
    if model_type(fast) != "BPE" or not isinstance(vocab, dict):
        return False
    try:
        as_gpt2(pathlib.Path(), fast)
    except ValueError:
        return False
    return END in vocab or any(t["content"] == END for t in fast.get("added_tokens") or [])


def in_order(found: Any, where: Any) -> list[str]:
    """The pieces of a JSON vocabulary in the order of their ids."""
    numbers = list(found.values())
    if not all(isinstance(number, int) for number in numbers) or sorted(numbers) != list(
        range(len(numbers))
    ):
        raise ValueError(f"{where} must number its pieces 0, 1, 2 ...")
    return sorted(found, key=found.get)


def as_bert(
    folder: pathlib.Path, fast: Any, model: dict[str, Any], settings: dict[str, Any], generic: bool
) -> tuple[dict[str, Any], int]:
    """Settings and most characters of a word by `tokenizer.json`, if that splits as BERT does.

    The published classes of BERT's kind follow `tokenizer_config.json` and others this file; where
    the two do not agree, nobody can tell which was meant.
    """
    normalizer = fast.get("normalizer") or {}
    by_file = {
        "do_lower_case": normalizer.get("lowercase", True),
        "strip_accents": normalizer.get("strip_accents"),
    }
    longest = model.get("max_input_chars_per_word", 100)
    expected: dict[str, Any] = {
        "normalizer": (normalizer.get("type"), ("BertNormalizer",)),
        "normalizer.clean_text": (normalizer.get("clean_text", True), (True,)),
        "normalizer.handle_chinese_chars": (normalizer.get("handle_chinese_chars", True), (True,)),
        "pre_tokenizer": ((fast.get("pre_tokenizer") or {}).get("type"), ("BertPreTokenizer",)),
        "model.unk_token": (model.get("unk_token", "[UNK]"), ("[UNK]",)),
        "model.continuing_subword_prefix": (model.get("continuing_subword_prefix", "##"), ("##",)),
    }
    if not generic:
        lower = settings.get("do_lower_case", True)
        accents = settings.get("strip_accents")
        expected |= {
            "normalizer.lowercase": (by_file["do_lower_case"], (lower,)),
            "normalizer.strip_accents": (by_file["strip_accents"], (accents, lower)),
            "model.max_input_chars_per_word": (longest, (100,)),
        }
    _expect(folder, expected)
    return {**settings, **(by_file if generic else {})}, longest


def as_gpt2(folder: pathlib.Path, fast: Any) -> tuple[dict[str, int], list[tuple[str, str]]]:
    """Pieces and pairs of `tokenizer.json`, if that splits as GPT-2 does."""
    model = the_model(folder, fast, "BPE")
    before, after = fast.get("pre_tokenizer") or {}, fast.get("post_processor") or {}
    template = after.get("single") if after.get("type") == "TemplateProcessing" else None
    template = [part for part in template or [] if "Sequence" not in part]
    nothing = (None, "")
    _expect(
        folder,
        {
            "normalizer": (fast.get("normalizer"), (None,)),
            "pre_tokenizer": (before.get("type"), ("ByteLevel",)),
            "pre_tokenizer.use_regex": (before.get("use_regex", True), (True,)),
            "pre_tokenizer.add_prefix_space": (before.get("add_prefix_space", True), (False,)),
            "post_processor": (after.get("type"), POST_PROCESSORS),
            "post_processor.single": (template, ([],)),
            "model.dropout": (model.get("dropout"), (None, 0.0)),
            "model.continuing_subword_prefix": (model.get("continuing_subword_prefix"), nothing),
            "model.end_of_word_suffix": (model.get("end_of_word_suffix"), nothing),
            "model.byte_fallback": (model.get("byte_fallback", False), (False,)),
            "model.ignore_merges": (model.get("ignore_merges", False), (False,)),
        },
    )
    merges = model.get("merges", [])
    pairs: list[Any] = [tuple(p.split(" ") if isinstance(p, str) else p) for p in merges]
    return model["vocab"], pairs


def begins_with_blank(fast: Any) -> bool:
    """Whether `tokenizer.json` has byte pairs of texts before which a blank is put."""
    before = fast.get("pre_tokenizer") or {}
    return before.get("type") == "ByteLevel" and bool(before.get("add_prefix_space", True))


def the_model(folder: pathlib.Path, fast: Any, kind: str) -> dict[str, Any]:
    """The model of `tokenizer.json`; ValueError for another kind."""
    model = fast.get("model") or {}
    if model_type(fast) != kind or not isinstance(model.get("vocab"), dict):
        raise ValueError(
            f"{folder / TOKENIZER}: the model must be of type {kind}. "
            f"Received: {model_type(fast)!r}"
        )
    return model


def _expect(folder: pathlib.Path, expected: Any) -> None:
    """ValueError for a value in `tokenizer.json` that is none of those it may be."""
    for name, (value, values) in expected.items():
        if value not in values:
            raise ValueError(
                f"{folder / TOKENIZER}: `{name}` must be {values[0]!r}, as for the published "
                f"class. Received: {value!r}"
            )


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


if TYPE_CHECKING:
    from keras_transformers.text.published_pieces import PieceTokenizer
    from keras_transformers.text.tokenizers import Languages

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


if TYPE_CHECKING:
    from keras_transformers.text.published_pieces import SiglipTokenizer


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


if TYPE_CHECKING:
    from keras_transformers.text.fast import FastTokenizer

# Which tokens of `tokenizer_config.json` have a role of ours, the first that is there.
ROLES = {
    "start": ("bos_token", "cls_token"),
    "end": ("eos_token", "sep_token"),
    "padding": ("pad_token",),
    "mask": ("mask_token",),
}

# Classes without a token that a text begins with: decoding starts with padding.
START_WITH_PADDING = ("T5Tokenizer", "PegasusTokenizer")


def read_fast(
    folder: pathlib.Path, settings: dict[str, Any], fast: Any, name: str,
    languages: tuple[str, str] | None = None,
) -> FastTokenizer:  # fmt: skip
    """The tokenizer of `tokenizer.json`, as the class that follows this file alone reads it.

    Args:
        folder, settings, languages: As for `read_pieces`.
        fast: The content of the file.
        name: The published class; that of a translator of many languages says which there are.

    Raises:
        ValueError: If it is broken, or holds a part that no version of the file has, or there are
            no such languages.
    """
    from keras_transformers.text import FastTokenizer  # only who tokenizes needs TensorFlow

    try:
        definition, roles, numbers = _definition(folder, settings, fast, name)
        asked = languages_of(name, settings, languages)
        if asked is not None:  # those that a smaller vocabulary has left
            tokens = {code: token for code, token in asked["tokens"].items() if token in numbers}
            asked["tokens"] = tokens
        return FastTokenizer(definition, **roles, languages=asked)
    except (KeyError, TypeError, AttributeError, IndexError) as error:
        raise ValueError(f"{folder / TOKENIZER} is damaged: {error!r}") from None
    except ValueError as error:
        raise ValueError(f"{folder / TOKENIZER}: {error}") from None


def _definition(
    folder: pathlib.Path, settings: dict[str, Any], fast: Any, name: str
) -> tuple[dict[str, Any], dict[str, str | None], dict[str, int]]:
    vocab = fast["model"]["vocab"]
    numbers = (
        {piece: number for number, (piece, _) in enumerate(vocab)}
        if isinstance(vocab, list)
        else dict(vocab)
    )
    in_file = {entry["id"]: entry for entry in fast.get("added_tokens") or []}
    in_file |= {int(i): {**e, "id": int(i)} for i, e in _decoder(settings).items()}
    defaults = defaults_of(name, CLASSES.get(name, FAST))
    settings = {key: value for key, value in settings.items() if key != "added_tokens_decoder"}
    tokens = added_tokens(folder, settings, defaults, numbers, list(in_file.values()))
    for token in tokens:
        numbers.setdefault(token.content, len(numbers))
    added = [{"id": numbers[token.content], **dataclasses.asdict(token)} for token in tokens]
    definition = {**fast, "added_tokens": sorted(added, key=lambda token: token["id"])}
    named = {key: content_of(settings.get(key, defaults.get(key))) for key in NAMED}
    roles = {
        role: next((named[key] for key in keys if named[key] in numbers), None)
        for role, keys in ROLES.items()
    }
    if name in START_WITH_PADDING:
        roles["start"] = roles["padding"]
    elif not _begins(fast.get("post_processor")):
        roles["start"] = None  # named, but the published code puts it before no text
    return definition, roles, numbers


def _begins(post_processor: Any) -> bool:
    """Whether the file puts something before a text."""
    from keras_transformers.text.tokenizers import read_template

    return bool(read_template(post_processor).before)


def _decoder(settings: dict[str, Any]) -> dict[str, Any]:
    found = settings.get("added_tokens_decoder") or {}
    return {
        number: entry if isinstance(entry, dict) else {"content": entry}
        for number, entry in found.items()
    }


def write_fast(tokenizer: FastTokenizer, folder: pathlib.Path) -> dict[str, Any]:
    """Writes `tokenizer.json`; what belongs into `tokenizer_config.json`, a dict."""
    definition = json.loads(tokenizer.definition)
    write_json(folder, TOKENIZER, definition)
    settings: dict[str, Any] = {"tokenizer_class": "PreTrainedTokenizerFast"}
    if tokenizer.start is not None and tokenizer.start == tokenizer.padding:
        # Only the class says so. PEGASUS has a second token that stands for hidden sentences.
        is_pegasus = "<mask_2>" in json.dumps(definition, ensure_ascii=False)
        settings = {"tokenizer_class": START_WITH_PADDING[is_pegasus]}
    if tokenizer.languages is not None:
        name = class_with_languages(tokenizer.languages)
        settings = {"tokenizer_class": name, **said_of(name, tokenizer.languages)}
    tokens = (tokenizer.start, tokenizer.end, tokenizer.padding, tokenizer.mask)
    for keys, token in zip(ROLES.values(), tokens, strict=True):
        if token is not None:
            settings[keys[0]] = token
    return settings
