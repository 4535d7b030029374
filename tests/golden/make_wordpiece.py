"""Makes wordpiece.json.gz: lines of text, and the ids that transformers' BertTokenizer gives them.

    pip install transformers
    python tests/golden/make_wordpiece.py

Written by transformers 5.23.0 with tokenizers 0.23.3. The 960 real lines are of the texts that
come with the recipes; the others hold what those lack.
"""

import gzip
import json
import lzma
import pathlib
import tempfile

import tokenizers
import transformers

DATA = pathlib.Path(__file__).parents[2] / "recipes/data"
LONG = "x" * 99
OWN = [
    "日本語のテキストです。東京タワーへ行きました。",
    "カタカナ、ひらがな、漢字が混ざったﾊﾝｶｸ文字",
    "中文没有空格，所以每个字都是一个词。",
    "繁體字與简体字：龍龙 麵面 𠮷野家 㐀㐁 豈更車",
    "한국어 문장도 있습니다. 띄어쓰기가 있어요!",
    "한국어 자모 ㄱㄴㄷ 각",
    "مرحبا بالعالم، كيف حالك؟ ١٢٣",
    "السَّلَامُ عَلَيْكُمْ",
    "שָׁלוֹם עולם־טוב",
    "नमस्ते दुनिया। क्या हाल है?",
    "ภาษาไทยไม่มีช่องว่าง สวัสดี",
    "Здравствуй, мир! Ёлка и йод",
    "Οδυσσεύς ΟΔΥΣΣΕΥΣ Σίσυφος ΣΑΣ ΐ ΰ",
    "İstanbul ISTANBUL ıĞŞ",
    "Straße STRASSE ẞ ﬁn ﬀ Ǆ ǅ ŉ",
    "Tiếng Việt có nhiều dấu: ộ ế ữ ằ",
    "ŁÓDŹ łódź Øre đ ħ ŧ æ Æ œ Œ Å Å",
    "😀 smile😂😂 ☃ snow☃man ❤️ ❤",
    "family 👨‍👩‍👧‍👦 wave 👋🏽 thumbs👍🏿up 🇪🇸🇩🇪 🏳️‍🌈",
    "e\u0301 cafe\u0301 café CAFÉ n\u0303 a\u0308\u0301 q\u0323\u0307",
    "\u0301leading mark, a \u0301 alone",
    "no-break\u00a0space, narrow\u202fspace, ideographic\u3000space, thin\u2009space",
    "zero\u200bwidth joi\u200dner non\u200cjoiner so\u00adft \ufeffmark word\u2060joiner",
    "line\u2028separator para\u2029graph next\u0085line",
    "bell\u0007 back\u0008space esc\u001b[0m nul\u0000l del\u007f \u0001\u0002\u0003\u0004\u0005",
    "tab\tnew\nline\r\nreturn\rform\u000cfeed vertical\u000btab fs\u001cgs\u001d",
    "replacement \ufffd charac\ufffdter private \ue000 u\uf8ffse",
    "right\u200fto\u202eleft\u202c marks",
    LONG + "y " + LONG + "yz " + "é" * 100 + " " + "e\u0301" * 101 + " " + "д" * 100,
    "日" * 120 + " " + "a-" * 120,
    "don't can’t “quoted” ‘single’ «guillemets» – — … ¿qué? ¡ay!",
    "a+b=c $5 £6 €7 ¥8 5% 3° x² ½ №1 ©®™ ^_` ~ | <tag> {x} [y] \\n",
    "http://example.com/a_b?c=d&e=f#g user@example.com C++ C# #hashtag ##x ## #",
    "1,234.56 1e-5 0x1F ３４５ Ⅷ ⑨ ٣",
    "[MASK] is [MASK]. un[MASK]able [mask] [Mask] [ MASK ] [MASK",
    "[CLS] one [SEP] two [SEP][SEP] [PAD][PAD] [UNK] [[UNK]] [UNK",
    "[MA\u200bSK] [MA\u0001SK] [MASK]\u0301 [unused1] é[SEP]é",
    "ＦＵＬＬＷＩＤＴＨ ｆｕｌｌ！？ ①②③ ㍿ ㈱",
    "math 𝐀𝐁𝐂 𝒳 ∀x∈ℝ: x≤∞ ∑∫√ ← → ⇒ ■ ● ★",
    "ʼapostrophe ʻokina ˈstress ː ~tilde ´acute `grave ¨ ¸",
    "  leading and   many    spaces  ",
    "",
    " ",
]
PAIRS = 40  # lines that are also read as the first of two


def real_lines():
    """Lines with umlauts, with accents and of plain English, 320 of each."""
    for name in ("ui.en-de", "bible.en-es"):
        path = next((DATA / name).glob("valid.tsv.*"))
        unpack = {".gz": gzip.decompress, ".xz": lzma.decompress}[path.suffix]
        lines = unpack(path.read_bytes()).decode().split("\n")
        yield from (line.split("\t")[1] for line in lines[:320])
    plays = gzip.decompress((DATA / "shakespeare.txt.gz").read_bytes()).decode().split("\n")
    yield from [line.rstrip("\r") for line in plays if line.strip()][9000:9320]


def main():
    lines = [*OWN, *real_lines()]
    golden = {"lines": lines, "pairs": PAIRS}
    for name, lower_case in (("uncased", True), ("cased", False)):
        learner = tokenizers.BertWordPieceTokenizer(lowercase=lower_case)
        learner.train_from_iterator(lines, vocab_size=2500, min_frequency=1, show_progress=False)
        with tempfile.TemporaryDirectory() as folder:
            learner.save_model(folder)
            path = pathlib.Path(folder, "vocab.txt")
            vocab = path.read_text(encoding="utf-8").removesuffix("\n").split("\n")
            # Characters that none can spell, so that some words are unknown.
            vocab = [piece for piece in vocab if piece not in ("##q", "語", "##😂", "☃", "Z", "z")]
            path.write_text("".join(f"{piece}\n" for piece in vocab), encoding="utf-8")
            bert = transformers.BertTokenizer.from_pretrained(folder, do_lower_case=lower_case)
        assert bert.backend_tokenizer.normalizer.lowercase == lower_case
        assert bert.get_vocab() == {piece: number for number, piece in enumerate(vocab)}
        golden[name] = {
            "vocab": vocab,
            "ids": bert(lines)["input_ids"],
            "pairs": bert(lines[:PAIRS], lines[-PAIRS:])["input_ids"],
        }
    content = json.dumps(golden, ensure_ascii=False, separators=(",", ":")).encode()
    path = pathlib.Path(__file__).with_name("wordpiece.json.gz")
    path.write_bytes(gzip.compress(content, mtime=0))


if __name__ == "__main__":
    main()
