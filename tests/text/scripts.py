"""Texts in many scripts, and tokenizers of every kind that are learnt from them.

The sentence is the first article of the Universal Declaration of Human Rights.
"""

import json
import random

ARTICLE = [
    "All human beings are born free and equal in dignity and rights. They are endowed with reason "
    "and conscience and should act towards one another in a spirit of brotherhood.",
    "Alle Menschen sind frei und gleich an Würde und Rechten geboren. Sie sind mit Vernunft und "
    "Gewissen begabt und sollen einander im Geiste der Brüderlichkeit begegnen.",
    "Tất cả mọi người sinh ra đều được tự do và bình đẳng về nhân phẩm và quyền.",
    "Bütün insanlar hür, haysiyet ve haklar bakımından eşit doğarlar. İnsanlar akıl sahibidirler.",
    "Все люди рождаются свободными и равными в своем достоинстве и правах. Они наделены разумом.",
    "Όλοι οι άνθρωποι γεννιούνται ελεύθεροι και ίσοι στην αξιοπρέπεια και τα δικαιώματα.",
    "يولد جميع الناس أحرارًا متساوين في الكرامة والحقوق، وقد وهبوا عقلًا وضميرًا.",
    "כל בני האדם נולדו בני חורין ושווים בערכם ובזכויותיהם. כולם חוננו בתבונה ובמצפון.",
    "सभी मनुष्यों को गौरव और अधिकारों के मामले में जन्मजात स्वतन्त्रता और समानता प्राप्त है।",
    "সমস্ত মানুষ স্বাধীনভাবে সমান মর্যাদা এবং অধিকার নিয়ে জন্মগ্রহণ করে।",
    "மனிதப் பிறவியினர் சகலரும் சுதந்திரமாகவே பிறக்கின்றனர்; அவர்கள் மதிப்பிலும் சமமானவர்கள்.",
    "มนุษย์ทั้งหลายเกิดมามีอิสระและเสมอภาคกันในเกียรติศักดิ์และสิทธิ",
    "人人生而自由,在尊严和权利上一律平等。他们赋有理性和良心,并应以兄弟关系的精神相对待。",
    "すべての人間は、生まれながらにして自由であり、かつ、尊厳と権利とについて平等である。",
    "모든 인간은 태어날 때부터 자유로우며 그 존엄과 권리에 있어 동등하다.",
    "ყველა ადამიანი იბადება თავისუფალი და თანასწორი თავისი ღირსებითა და უფლებებით.",
    "Բոլոր մարդիկ ծնվում են ազատ ու հավասար՝ իրենց արժանապատվությամբ ու իրավունքներով։",
    "የሰው ልጅ ሁሉ ሲወለድ ነጻና በክብርና በመብትም እኩልነት ያለው ነው።",
]
ODD = [
    "",
    " ",
    "\n",
    "   a   b\tc\n\n d  ",
    "\r\n\r\n  x\n \n\ty !\n\n\n b  \n",
    "It's what they'll've DONE, I'D say: 'tis theirs' 'S \u017f's",
    "x\u00a0y\u2003z\u3000\u0085w\u200bv\u2028u\ufeff",
    "12 345,67 € ½ ² Ⅷ ٣ 1234567 ৪৫৬",
    "naïve café Übergröße ÇA İstanbul ΟΔΟΣ ΣΑΣ ﬁn ① Ⓐ e\u0301 A\u030a",
    "👩‍👩‍👧 🙂🙂 \U0001f1e9\U0001f1ea",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaa ababababababab!!!!!!!!!----====",
    "<mask> a<mask>b  <mask>  c [MASK]d <MASK> <mas <s></s>",
    "word words sword word's a_word_b word  word",
    "▁▁a ▁ b▁c",
    "unknown: \u2603 \u1e9e \U00016800 \x00\x01 \ufffd \U0010ffff",
    "don't you're <0x41> <0xE2> ##s [UNK] <unk>☃ ☃☃",
    "ab\u0001c\u0003 \u00ad x\u0300\u0301\u0302 नि क्षि",
]
TEXTS = ARTICLE + ODD


def fuzzed(number, seed=0):
    """Texts cut out of those above and joined anyhow, with characters of anywhere between."""
    draw = random.Random(seed)
    found = []
    for _ in range(number):
        parts = []
        for _ in range(draw.randint(1, 6)):
            text = draw.choice(TEXTS)
            begin = draw.randint(0, len(text))
            parts.append(text[begin : begin + draw.randint(0, 12)])
            if draw.random() < 0.3:
                parts.append(draw.choice(" \n\t\u00a0\u0301'<▁"))
        found.append("".join(parts))
    return found


BERT = {"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True}
BERT |= {"strip_accents": None, "lowercase": True}
LLAMA_3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
CASED = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]"
O200K = (
    CASED + r"*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|" + CASED
    + r"+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)  # fmt: skip
CLIP = (
    r"<\|startoftext\|>|<\|endoftext\|>|'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+"
)
LETTERS = {"type": "ByteLevel", "add_prefix_space": False, "use_regex": False, "trim_offsets": True}


def _split(pattern, behavior="Isolated", invert=False):
    return {"type": "Split", "pattern": {"Regex": pattern}, "behavior": behavior, "invert": invert}


def _sequence(name, *parts):
    return {"type": "Sequence", name: list(parts)}


def _template(start, end, numbers):
    def pieces(*names):
        return [
            {"Sequence": {"id": each, "type_id": 0}}
            if each in "AB"
            else {"SpecialToken": {"id": each, "type_id": 0}}
            for each in names
        ]

    return {
        "type": "TemplateProcessing",
        "single": pieces(start, "A", end),
        "pair": pieces(start, "A", end, "B", end),
        "special_tokens": {
            each: {"id": each, "ids": [number], "tokens": [each]}
            for each, number in ((start, numbers[start]), (end, numbers[end]))
        },
    }


def _metaspace(**settings):
    return {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", **settings}


SPACED = {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}
UNSPACED = {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}
STRIP = {"type": "Strip", "content": " ", "start": 1, "stop": 0}
LLAMA_DECODER = _sequence("decoders", UNSPACED, {"type": "ByteFallback"}, {"type": "Fuse"}, STRIP)
FALLBACK = {"byte_fallback": True, "fuse_unk": True, "unk_token": "<unk>"}
# Name -> (kind of model, its settings, normaliser, pre-tokenizer, decoder).
KINDS = {
    "bert": (
        "WordPiece",
        {},
        BERT,
        {"type": "BertPreTokenizer"},
        {"type": "WordPiece", "prefix": "##", "cleanup": True},
    ),
    "cased words": (
        "WordPiece",
        {"max_input_chars_per_word": 8},
        _sequence(
            "normalizers",
            {"type": "Replace", "pattern": {"String": "\x00"}, "content": " "},
            {"type": "NFKC"},
            {"type": "StripAccents"},
            {"type": "Lowercase"},
        ),
        _sequence(
            "pretokenizers",
            {"type": "Whitespace"},
            {"type": "Punctuation"},
            {"type": "Digits", "individual_digits": True},
        ),
        {"type": "WordPiece", "prefix": "##", "cleanup": False},
    ),
    "gpt2": ("BPE", {}, None, {**LETTERS, "add_prefix_space": True, "use_regex": True}, LETTERS),
    "llama 3": (
        "BPE",
        {"ignore_merges": True},
        None,
        _sequence("pretokenizers", _split(LLAMA_3), LETTERS),
        LETTERS,
    ),
    "qwen": (
        "BPE",
        {},
        {"type": "NFC"},
        _sequence("pretokenizers", _split(LLAMA_3.replace("{1,3}", "")), LETTERS),
        LETTERS,
    ),
    "o200k": ("BPE", {}, None, _sequence("pretokenizers", _split(O200K), LETTERS), LETTERS),
    "clip": (
        "BPE",
        {"end_of_word_suffix": "</w>"},
        _sequence(
            "normalizers",
            {"type": "NFC"},
            {"type": "Replace", "pattern": {"Regex": r"\s+"}, "content": " "},
            {"type": "Lowercase"},
        ),
        _sequence("pretokenizers", _split(CLIP, "Removed", True), LETTERS),
        None,
    ),
    "llama 2": (
        "BPE",
        FALLBACK,
        _sequence("normalizers", {"type": "Prepend", "prepend": "▁"}, SPACED),
        None,
        LLAMA_DECODER,
    ),
    "mistral": (
        "BPE",
        {**FALLBACK, "byte_fallback": False},
        None,
        _metaspace(prepend_scheme="first", split=False),
        LLAMA_DECODER,
    ),
    "gemma": (
        "BPE",
        {**FALLBACK, "fuse_unk": False},
        SPACED,
        _split(" ", "MergedWithPrevious"),
        _sequence("decoders", UNSPACED, {"type": "ByteFallback"}, {"type": "Fuse"}),
    ),
    "unigram": (
        "Unigram",
        {},
        _sequence("normalizers", {"type": "Nmt"}, {"type": "NFKC"}),
        _sequence("pretokenizers", {"type": "WhitespaceSplit"}, _metaspace()),
        _metaspace(),
    ),
    "bytes of unigram": (
        "Unigram",
        {"byte_fallback": True},
        {"type": "Strip", "strip_left": True, "strip_right": True},
        _metaspace(split=False),
        LLAMA_DECODER,
    ),
    "words": (
        "WordLevel",
        {},
        None,
        _sequence(
            "pretokenizers",
            {"type": "CharDelimiterSplit", "delimiter": "\n"},
            {"type": "WhitespaceSplit"},
            {"type": "Punctuation", "behavior": "MergedWithNext"},
        ),
        None,
    ),
}
SPECIAL = ["<unk>", "<s>", "</s>", "<mask>", "<pad>"]


# Some scripts are left out, so that much is unknown.
LEARNT_FROM = ARTICLE[:9] + ARTICLE[12:14] + ODD[3:]


def learnt(name, vocab_size=700, texts=LEARNT_FROM):
    """A tokenizer of a kind, learnt from texts, as the dict of its `tokenizer.json`."""
    import tokenizers
    from tokenizers import trainers

    kind, settings, normalizer, before, decoder = KINDS[name]
    of_bytes = "ByteLevel" in json.dumps(before)
    model = {"type": kind, "unk_token": "<unk>", "vocab": {"<unk>": 0}, "merges": [], **settings}
    if kind == "Unigram":
        model = {"type": kind, "unk_id": 0, "vocab": [["<unk>", 0.0]], "byte_fallback": False}
    if kind == "WordPiece":
        model = {"continuing_subword_prefix": "##", "max_input_chars_per_word": 100, **model}
    if of_bytes:
        del model["unk_token"]
    definition = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": []}
    # As by SentencePiece, whose pieces have spaces at their beginnings alone.
    of_words = {"normalizer": None, "pre_tokenizer": _metaspace()} if name == "llama 2" else {}
    splitting = {"normalizer": normalizer, "pre_tokenizer": before}
    definition |= {
        "model": model,
        "post_processor": None,
        "decoder": decoder,
        **splitting,
        **of_words,
    }
    tokenizer = tokenizers.Tokenizer.from_str(json.dumps(definition))
    special = SPECIAL + [f"<0x{byte:02X}>" for byte in range(256)] * ("byte" in str(settings))
    of = {"vocab_size": vocab_size, "special_tokens": special, "show_progress": False}
    if of_bytes:
        of["initial_alphabet"] = tokenizers.pre_tokenizers.ByteLevel.alphabet()
    if "end_of_word_suffix" in settings:
        of["end_of_word_suffix"] = "</w>"
    if kind == "WordPiece":
        of["continuing_subword_prefix"] = "##"
    if kind == "Unigram":
        of["unk_token"] = "<unk>"
    trainer = getattr(trainers, {"BPE": "Bpe"}.get(kind, kind) + "Trainer")(**of)
    tokenizer.train_from_iterator(texts, trainer)
    found = json.loads(tokenizer.to_str()) | splitting
    if kind == "Unigram":  # of a piece that is there twice, once
        found["model"]["vocab"] = list(
            {piece[0]: piece for piece in found["model"]["vocab"]}.values()
        )
    if "end_of_word_suffix" in settings:
        found["model"] = _with_ends(found["model"])
    found["model"] |= {key: value for key, value in settings.items() if key != "vocab"}
    return with_tokens(found)


def _with_ends(model):
    """A piece for every letter at a word's end, as CLIP's has."""
    from tokenizers.pre_tokenizers import ByteLevel

    for letter in ByteLevel.alphabet():
        model["vocab"].setdefault(f"{letter}</w>", len(model["vocab"]))
    return model


def _added(content, number, special=True, **flags):
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False} | flags
    return {"id": number, "content": content, "special": special, **flags}


def with_tokens(definition):
    """The definition with more added tokens, with each flag that there is, and a template."""
    vocab = definition["model"]["vocab"]
    vocab = {piece: i for i, (piece, _) in enumerate(vocab)} if isinstance(vocab, list) else vocab
    flags = [("word", {"single_word": True}), ("ÜBER", {"normalized": True})]
    flags += [("<sp>", {"lstrip": True, "rstrip": True}), ("don't", {"normalized": True})]
    numbers, size = dict(vocab), len(definition["model"]["vocab"])
    more = []
    for each, of in flags:
        more.append(_added(each, numbers.setdefault(each, size), False, **of))
        size += numbers[each] == size
    added = [_added(each, numbers[each]) for each in SPECIAL]
    added[3]["lstrip"] = True
    added = sorted(added + more, key=lambda token: token["id"])
    template = _template("<s>", "</s>", numbers)
    return {**definition, "added_tokens": added, "post_processor": template}
