"""Claims about `recipes.back_translate`: whose text is which side, what is dropped or resumes."""

import csv
import gzip
import json
import sys

import keras
import numpy as np
import pytest
import scipy.stats
import tensorflow as tf

import keras_transformers
from keras_transformers.generation import BeamSearch, Boundaries, Constraints, Sampling
from keras_transformers.models import Transformer
from keras_transformers.predictors import TranslatorPredictor
from keras_transformers.text import SentencePieceTokenizer, read_pairs
from recipes import back_translate
from recipes.lib import jobs, translating
from tests.loading.saved import save_shouter
from tests.recipes.tiny_folders import SENTENCES

GOOD = ["Öffnen", "a dog saw it", "the dog\tsat"]
BAD = ["a dog saw it", "", "ALL OF IT IS THE SAME"]
COUNTS = {"duplicate": 1, "empty side": 1, "copy": 1, "no text": 1}


@pytest.fixture(scope="module")
def shouter(tmp_path_factory):
    """A translator that writes in capitals."""
    return str(save_shouter(tmp_path_factory.mktemp("shouter")))


@pytest.fixture(scope="module")
def untrained():
    """The predictor of a run whose model nobody has trained."""
    keras.utils.set_random_seed(3)
    tokenizer = SentencePieceTokenizer.train(SENTENCES * 9, vocab_size=23)
    model = Transformer(23, hidden_dim=8, num_heads=2, mlp_dim=16, num_layers=1)
    model.build({"source": (None, None), "target": (None, None)})
    embeddings = model.weights[0].numpy()
    embeddings[tokenizer.end_id] = 0  # a sentence does not end before it has begun
    model.weights[0].assign(embeddings)
    parts = {"model": lambda: model, "tokenizer": lambda: tokenizer}
    return TranslatorPredictor(lambda text: {}, parts=parts)


@pytest.fixture
def lines(tmp_path):
    path = tmp_path / "lines.txt.gz"
    text = "".join(f"{line}\n" for line in [*GOOD, *BAD])
    path.write_bytes(gzip.compress(text.encode() + b"\xff\n"))
    return str(path)


def run(folder, *lines, output, **options):
    return back_translate.run(
        back_translate.Config(folder, lines=lines, output=str(output), **options)
    )


def pairs(path):
    corpus = read_pairs(path)
    return list(zip(corpus.sources, corpus.targets, strict=True))


@pytest.mark.parametrize("ending", ["tsv.gz", "jsonl"])
def test_lines_are_targets_behind_tagged_sources(ending, shouter, lines, tmp_path):
    path = tmp_path / "out" / f"extra.{ending}"
    report = run(shouter, lines, output=path)
    kept = [line.replace("\t", " ") if ending == "tsv.gz" else line for line in GOOD]
    assert pairs(path) == [(f"<bt> {line.upper()}", line) for line in kept]
    assert {reason: n for reason, n in report.dropped.items() if n} == COUNTS
    assert (report.read, report.kept) == (7, 3)
    told = json.loads((tmp_path / "out" / f"extra.{ending}.report.json").read_text())
    assert told["kept"] == 3 and told["rows"] == 7 and told["bad_rows"] == 1
    assert len(list((tmp_path / "out").iterdir())) == 2


def test_distilled_pairs_have_the_lines_for_sources_and_no_tag(shouter, lines, tmp_path):
    run(shouter, lines, output=tmp_path / "a.tsv", distill=True)
    kept = [line.replace("\t", " ") for line in GOOD]
    assert pairs(tmp_path / "a.tsv") == [(line, line.upper()) for line in kept]
    run(shouter, lines, output=tmp_path / "b.tsv", tag=False)
    assert pairs(tmp_path / "b.tsv") == [(line.upper(), line) for line in kept]


@pytest.mark.parametrize("name", ["mono.csv", "mono.tsv", "mono.jsonl", "mono.json"])
def test_tables_are_read_by_their_column_and_without_quotes(name, shouter, tmp_path):
    rows = [{"id": "1", "text": 'a "cat", he said'}, {"id": "2", "text": "a dog saw it"}]
    if "json" in name:
        text = "\n".join(map(json.dumps, rows)) if name.endswith("l") else json.dumps(rows)
        (tmp_path / name).write_text(text)
    else:
        with open(tmp_path / name, "w", newline="", encoding="utf-8") as file:
            table = csv.DictWriter(file, ["id", "text"], delimiter=",\t"[name.endswith("tsv")])
            table.writeheader()
            table.writerows(rows)
    run(shouter, str(tmp_path / name), output=tmp_path / "out.tsv", tag=False)
    expected = [(row["text"].upper(), row["text"]) for row in rows]
    assert pairs(tmp_path / "out.tsv") == expected


def test_pairs_of_unlike_lengths_and_cut_lines_are_counted(shouter, tmp_path, monkeypatch):
    path = tmp_path / "lines.txt"
    path.write_text("".join(f"aline-of-no-great-length-at-all-{'x' * i}\n" for i in range(9)))
    answered = jobs.answer_rows

    def change(predictor, part):
        rows = [json.loads(line) for line in answered(predictor, part).splitlines()]
        rows[3]["translation"] = "A"
        rows[8]["truncated"] = True
        return "".join(json.dumps(row) + "\n" for row in rows).encode()

    monkeypatch.setattr(jobs, "answer_rows", change)
    report = run(shouter, str(path), output=tmp_path / "out.tsv")
    assert report.dropped["length ratio"] == 1
    assert report.dropped["longer than the translator reads"] == 1
    assert report.kept == len(pairs(tmp_path / "out.tsv")) == 7


def test_what_was_translated_before_a_kill_is_not_translated_again(shouter, tmp_path, monkeypatch):
    paths = [tmp_path / f"{name}.txt" for name in "ba"]
    for path in paths:
        path.write_text("".join(f"{path.stem} {i}\n" for i in range(10)))
    answered, sizes = jobs.answer_rows, []

    def fail(predictor, part):
        sizes.append(len(part))
        if len(sizes) == 3:
            raise KeyboardInterrupt
        return answered(predictor, part)

    monkeypatch.setattr(jobs, "answer_rows", fail)
    given = [str(path) for path in paths]
    with pytest.raises(KeyboardInterrupt):
        run(shouter, *given, output=tmp_path / "out.tsv", shard_rows=4)
    assert not (tmp_path / "out.tsv").exists()
    with pytest.raises(ValueError, match="begun with another"):
        run(shouter, *given, output=tmp_path / "out.tsv", shard_rows=5)
    run(shouter, *given, output=tmp_path / "out.tsv", shard_rows=4)
    assert sizes == [4, 4, 4, 4, 4, 4]
    expected = [f"{name} {i}" for name in "ba" for i in range(10)]
    assert [target for _, target in pairs(tmp_path / "out.tsv")] == expected


@pytest.mark.slow
def test_the_model_of_a_run_is_searched_greedily(untrained):
    """Against a loop over the whole model, without a cache."""
    text, tokenizer = SENTENCES[1], untrained.tokenizer
    found = translating.change_search(untrained, "greedy", 1, "serving_default").predict(text)
    source = tokenizer.tokenize([text], end=True).to_tensor()
    most = 2 * source.shape[1] + 10
    ids = [tokenizer.start_id]
    while len(ids) < most and ids[-1] != tokenizer.end_id:
        logits = np.array(untrained.model({"source": source, "target": np.array([ids])}))[0, -1]
        logits[tokenizer.pad_id] = -np.inf
        ids.append(int(logits.argmax()))
    assert found == tokenizer.detokenize(ids).numpy().decode() != ""


def test_what_its_own_search_must_not_choose_stays_so(untrained):
    banned = Constraints(banned=(7,), boundaries=Boundaries(start=5))

    class Own:
        search = BeamSearch(constraints=banned)
        target_languages = ()

    of_folder = TranslatorPredictor(Own(), parts=untrained._parts)
    found = translating.change_search(of_folder, "sample", 1, "xla")
    assert isinstance(found.search, Sampling) and found.search.constraints == banned


def drawn(predictor, seed, ids, most):
    parts = predictor.model, predictor.tokenizer, Sampling()
    translator = translating.SeededTranslator(*parts, seed=seed)
    return translator.drawn(
        tf.RaggedTensor.from_tensor(ids), tf.constant(most), tf.range(len(ids))
    ).numpy()


def test_a_text_is_drawn_alike_wherever_it_stands_and_others_by_numbers_of_their_own(untrained):
    ids = np.random.default_rng(1).integers(4, 23, (600, 5))
    found, order = drawn(untrained, 3, ids, 4), np.arange(600)[::-7]
    assert found.shape == (600, 4, 1)
    np.testing.assert_array_equal(drawn(untrained, 3, ids[order], 9)[:, :4], found[order])
    assert (drawn(untrained, 4, ids, 4) != found).mean() > 0.99
    different = found[np.unique(ids, axis=0, return_index=True)[1], :, 0]
    assert len(np.unique(different[:, 0])) > 0.99 * len(different)
    for position in range(4):
        assert scipy.stats.kstest(different[:, position], "uniform").pvalue > 1e-3
    assert abs(np.corrcoef(different.T) - np.eye(4)).max() < 0.2


@pytest.mark.slow
def test_samples_follow_from_the_seed_whatever_the_shards(untrained, tmp_path, monkeypatch):
    monkeypatch.setattr(keras_transformers, "load", lambda *_: untrained)
    path = tmp_path / "lines.txt"
    path.write_text("".join(f"{text}\n" for text in SENTENCES))
    asked = {"one": {"shard_rows": 6}, "two": {"shard_rows": 2}, "other": {"seed": 2}}
    found = {}
    for name, options in asked.items():
        output = tmp_path / name / "out.tsv"
        run("a run", str(path), output=output, search="sample", length_ratio=1e6, **options)
        found[name] = pairs(output)
    assert found["one"] == found["two"] != found["other"]
    assert [target for _, target in found["one"]] == SENTENCES


@pytest.mark.parametrize(
    ("options", "advice"),
    [
        ({"lines": ()}, "Give files of lines"),
        ({"lines": ("nowhere.txt",)}, "there is no file nowhere.txt"),
        ({"search": "sample"}, "--search sample needs the folder of a run, .*no model"),
        ({"output": "pairs.csv"}, "must end in .tsv"),
        ({"address": "auto"}, "--address needs --workers"),
        ({"length_ratio": 0.5}, "`limit` must be 1 or more"),
        ({"copy_words": 0}, "No pair stays of 1 lines; dropped: 1 copy"),
    ],
)
def test_what_cannot_be_is_refused_in_a_sentence(options, advice, shouter, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "lines.txt").write_text("A\n")
    options = {"lines": ("lines.txt",), **options}
    with pytest.raises((ValueError, FileNotFoundError), match=advice):
        back_translate.run(back_translate.Config(shouter, **options))
    assert not (tmp_path / "runs" / "back_translate" / "pairs.tsv.gz").exists()


def test_the_command_line_says_what_is_wrong(shouter, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["back_translate", shouter, "nowhere.txt"])
    with pytest.raises(SystemExit, match="back_translate: there is no file nowhere.txt"):
        back_translate.main()
