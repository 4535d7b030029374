"""Claims about scores of translations into what is written without spaces."""

import keras
import numpy as np
import pytest

from keras_transformers.training import (
    TranslationScores,
    bleu_tokenizer,
    score_translations,
    text_normalization,
)

CHINESE = ["我喜欢猫,也喜欢狗。", "请打开门！", "文件 README.md 不存在。"]
WRITTEN = {
    "13a": [
        ["eine Katze", "ein Hund"], ["Кошка спит на окне."], ["고양이가 창가에서 잔다."],
        ["قطة على النافذة"], ["बिल्ली खिड़की पर सोती है"], [""], ["12 345 !?"],
        ["The word 猫 means cat in Chinese and in Japanese too"],
    ],
    "zh": [CHINESE, ["在日本叫做カメラ的东西，我们每天都用它来拍摄各种各样美丽的照片。"]],
    "char": [["ฉันรักแมว และสุนัข"], ["ຂ້ອຍຮັກແມວ"], ["ខ្ញុំស្រលាញ់ឆ្មា"], ["ကျွန်တော်ကြောင်ကိုချစ်တယ်"]],
}  # fmt: skip


@pytest.mark.parametrize("expected", WRITTEN)
def test_the_tokenizer_is_that_of_what_references_are_written_in(expected):
    for references in WRITTEN[expected]:
        assert bleu_tokenizer(references) == expected


def test_japanese_is_split_into_words_where_there_is_mecab(monkeypatch):
    references = ["猫が窓辺で寝ている。", "カメラを持っていますか"]
    for found, expected in ((object(), "ja-mecab"), (None, "char")):
        monkeypatch.setattr("importlib.util.find_spec", lambda name, found=found: found)
        assert bleu_tokenizer(references) == expected


def test_scores_are_sacrebleus_with_that_tokenizer():
    from sacrebleu import corpus_bleu

    translations = ["我喜欢猫,也喜欢马。", "请关门！", "文件不存在。"]
    by_characters = corpus_bleu(translations, [CHINESE], tokenize="zh").score
    bleu, _, signature = score_translations(translations, CHINESE)
    assert bleu == by_characters > 20 and "tok:zh" in signature
    bleu, _, signature = score_translations(translations, CHINESE, "13a")
    assert bleu == corpus_bleu(translations, [CHINESE]).score == 0 and "tok:13a" in signature


def test_the_callback_says_and_takes_its_tokenizer():
    callback = TranslationScores(list, CHINESE, CHINESE)
    logs = {}
    callback.on_epoch_end(0, logs)
    assert callback.tokenize == "zh" and "tok:zh" in callback.signature
    assert logs["val_bleu"] == pytest.approx(100)
    assert TranslationScores(list, CHINESE, CHINESE, tokenize="char").tokenize == "char"
    with pytest.raises(ValueError, match="`tokenize` must be one of.*13a.*Received: 'words'"):
        TranslationScores(list, CHINESE, CHINESE, tokenize="words")


def test_what_lacks_for_a_tokenizer_is_said_before_training(monkeypatch):
    from sacrebleu.tokenizers import tokenizer_ja_mecab

    monkeypatch.setattr(tokenizer_ja_mecab, "MeCab", None)
    with pytest.raises(ImportError, match=r"'ja-mecab' cannot be used.*sacrebleu\[ja\]"):
        TranslationScores(list, CHINESE, CHINESE, tokenize="ja-mecab")


def test_the_best_is_found_by_chrf_where_bleu_is_nothing(tmp_path):
    """13a takes a line for a word; all its scores are 0, and the first would be the best."""
    answers = iter([["猫", "门", "文"], ["我喜欢猫", "请打开", "文件 README"], ["狗", "门", "文"]])
    scores = TranslationScores(lambda _: next(answers), CHINESE, CHINESE, tokenize="13a")
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse", jit_compile=False)
    best = tmp_path / "best.weights.h5"
    keep = keras.callbacks.ModelCheckpoint(
        best, monitor="val_rank", mode="max", save_best_only=True, save_weights_only=True
    )
    seen = []
    keeper = keras.callbacks.LambdaCallback(
        on_epoch_end=lambda epoch, logs: seen.append(model.get_weights())
    )
    x = np.ones((4, 1), "float32")
    history = model.fit(x, 9 * x, epochs=3, verbose=0, callbacks=[scores, keep, keeper]).history
    assert history["val_bleu"] == [0, 0, 0] and np.argmax(history["val_chrf"]) == 1
    model.load_weights(best)
    np.testing.assert_array_equal(model.get_weights()[0], seen[1][0])


@pytest.mark.parametrize(
    ("better", "worse"), [((30.1, 10), (30.0, 90)), ((1.0, 1), (0.9, 90)), ((0.2, 9), (0.9, 8))]
)
def test_bleu_decides_where_it_can(better, worse, monkeypatch):
    ranks = []
    for pair in (better, worse):
        callback = TranslationScores(list, ["a"], ["a"])
        monkeypatch.setattr(
            callback, "_score", lambda pair=pair: dict(zip(("bleu", "chrf"), pair, strict=True))
        )
        logs = {}
        callback.on_epoch_end(0, logs)
        ranks.append(logs["val_rank"])
    assert ranks[0] > ranks[1]


@pytest.mark.parametrize(
    ("sides", "expected"),
    [
        ((["a cat sat"], ["eine Katze"]), "nmt_nfkc"),
        ((["a cat sat"], ["Кошка", "Η γάτα"]), "nmt_nfkc"),
        ((["a cat sat on the mat"] * 9, ["我喜欢猫。"]), "none"),
        ((["می‌خواهم"], ["I want"]), "none"),
        ((["123", ""], ["a"]), "nmt_nfkc"),
    ],
)
def test_characters_are_kept_where_scripts_need_them(sides, expected):
    assert text_normalization(*sides) == expected


def test_groups_are_scored_by_themselves_and_the_mean_is_theirs():
    sources = ["a", "b", "c", "d"]
    references = ["a b c d e", "e f g h", "a b c d f", "e f g h"]
    translations = ["a b c d e", "e f g h", "a b c x f", "e f g x"]
    metrics = pytest.importorskip("sacrebleu.metrics")
    callback = TranslationScores(
        lambda _: translations, sources, references, groups=["x-y", "x-y", "x-z", "x-z"]
    )
    logs = {}
    callback.on_epoch_end(0, logs)
    for name, rows in (("x-y", slice(2)), ("x-z", slice(2, 4))):
        bleu = metrics.BLEU().corpus_score(translations[rows], [references[rows]]).score
        chrf = metrics.CHRF().corpus_score(translations[rows], [references[rows]]).score
        assert (logs[f"val_bleu_{name}"], logs[f"val_chrf_{name}"]) == (bleu, chrf)
    assert logs["val_bleu"] == (logs["val_bleu_x-y"] + logs["val_bleu_x-z"]) / 2
    assert logs["val_chrf"] == (logs["val_chrf_x-y"] + logs["val_chrf_x-z"]) / 2
    with pytest.raises(ValueError, match="`groups` must have a name for each sentence, 1"):
        TranslationScores(list, ["a"], ["a"], groups=[])


@pytest.mark.parametrize("columns", [60, 80, 100, 200])
def test_a_translation_is_shown_in_one_line_of_the_terminal(columns, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", str(columns))
    words = "a translation of many words "
    sources, references = [words * 7] * 3, [words] * 3
    translate = lambda texts: [words * 9] * 3  # noqa: E731
    callback = TranslationScores(translate, sources, references, samples=2)
    callback.on_epoch_end(0, {})
    lines = capsys.readouterr().out.splitlines()
    shown = [line for line in lines if words.split()[1] in line]
    assert shown and all(len(line) == min(columns, 120) for line in shown)
    assert all(line.endswith("…") for line in shown)
