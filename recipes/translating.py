"""How the translation recipes search, score and draw."""

import dataclasses
import json

import keras

from keras_transformers.export import Translator
from keras_transformers.generation import generate_all
from keras_transformers.inspection import attention_maps
from keras_transformers.training import bleu_tokenizer, count_words, report_translations
from keras_transformers.visualization import attention_heat_map, grouped_bars

from .data.translation import both

CURVES = ("loss", "cross_entropy", "accuracy", "bleu", "chrf")


def translation(model, tokenizer, search):
    """A function from sentences to translations, on the backend in use."""
    if keras.backend.backend() == "tensorflow":
        return Translator(model, tokenizer, search).translate

    def translate(sentences):
        model.jax_state_sync()
        of_source, of_target = both(tokenizer)
        ids = [each.tolist() for each in of_source.tokenize(sentences, end=True).numpy()]
        marks = {"start_id": tokenizer.start_id, "end_id": tokenizer.end_id}
        found = generate_all(model, ids, search, (16, 32, 64, 128), 64, verbose=0, **marks)
        return [text.decode() for text in of_target.detokenize(found["tokens"]).numpy()]

    return translate


def score(folder, data, translator, tokenize=None):
    """Translates the test set with the beam; returns the scores, and rows of what it did.

    Args:
        tokenize: sacreBLEU's tokenizer; None goes by the script of the references, as while
            training.
    """
    translations = translator.translate(data.test.sources)
    references = data.test.targets
    tokenize = tokenize or bleu_tokenizer(data.valid.targets)
    seen = count_words(data.train.targets) if data.shards is None else None
    report = report_translations(data.test.sources, references, translations, seen, tokenize)
    folder.write_json("report.json", {"tokenizer": tokenize, **dataclasses.asdict(report)})
    rows = list(zip(data.test.sources, references, translations, strict=True))
    folder.write_table("translations.tsv", ["source", "reference", "translation"], rows)
    for source, reference, translation in rows[:8]:
        print(f"  {source}\n    reference: {reference}\n    model:     {translation}")
    for signature in report.signatures.values():
        print(f"sacreBLEU {signature}")
    return {f"test_{name}": score for name, score in report.scores.items()}, rows


def panels_of_reports(reports):
    """What `grouped_bars` draws of reports: where translations are wrong.

    Args:
        reports: Dict of a name -> `report.json` of a run.
    """
    panels = {
        "chrF by words of the source": lambda of: {
            row["words"]: row["chrf"] for row in of["by_length"]
        },
        "reference words found, in %, by times seen in training": lambda of: {
            row["seen"]: 100 * row["found"] / row["words"] for row in of["by_frequency"]
        },
        "kept of what must come through, in %": lambda of: {
            kind: 100 * kept / expected for kind, (kept, expected) in of["placeables"].items()
        },
        "translations that are": lambda of: of["faults"],
    }
    return {
        title: {name: numbers(report) for name, report in reports.items()}
        for title, numbers in panels.items()
    }


def draw_errors(folder, path):
    """Draws the report of a run."""
    report = json.loads((folder / "report.json").read_text(encoding="utf-8"))
    grouped_bars(panels_of_reports({"run": report}), path)


def draw(model, tokenizer, rows, match, title, path):
    """Draws what each piece of a translation looks at.

    Args:
        rows: Those of `score`; one is drawn.
        match: In the path of the attention layer, see `alignment`.
        title: What stands above.
        path: Of the image.
    """
    source, translation = example(rows, tokenizer)
    weights = alignment(model, tokenizer, source, translation, match)
    attention_heat_map(*weights, path=path, title=title)


def alignment(model, tokenizer, source, translation, match):
    """What each piece of a translation looks at: weights, pieces produced, pieces of the source.

    The weights are those of the last attention layer whose path contains `match`, the mean of its
    heads, `(pieces produced, pieces of the source)`; END is a piece on both sides.
    """
    of_source, of_target = both(tokenizer)
    ids = {
        "source": of_source.tokenize([source], end=True).to_tensor(),
        "target": of_target.tokenize([translation], start=True).to_tensor(),
    }
    *_, last = attention_maps(model, ids, match=match).values()
    queries = [*of_target.pieces(ids["target"][0])[1:], "</s>"]  # what each query produces
    return last[0].mean(axis=0), queries, of_source.pieces(ids["source"][0])


def example(rows, tokenizer):
    """The first test sentence of 8 to 14 pieces, and its translation."""
    for source, _, translation in rows:
        if 8 <= len(tokenizer.tokenize(source)) <= 14 and translation:
            return source, translation
    return rows[0][0], rows[0][2]
