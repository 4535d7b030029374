"""How the translation recipes search, score and draw."""

import dataclasses
import json
import pathlib
import shutil
import subprocess
import tempfile

import keras
import numpy as np
import tensorflow as tf

from keras_transformers.alignment import learn_alignment, read_pharaoh
from keras_transformers.core.words import without_context
from keras_transformers.export import Translator
from keras_transformers.export.languages import LanguageChoice
from keras_transformers.export.translation import LENGTHS
from keras_transformers.fitting import calibrate_confidence
from keras_transformers.generation import Constraints, Greedy, Sampling, Shortlist, generate_all
from keras_transformers.inspection import attention_maps
from keras_transformers.predictors import TranslatorPredictor
from keras_transformers.text.tokenizers import with_room
from keras_transformers.training import (
    TranslationScores,
    bleu_tokenizer,
    count_words,
    report_translations,
)
from keras_transformers.visualization import attention_heat_map, grouped_bars

from ..data.joined_corpora import JoinedCorpus, target_of, targets_of
from ..data.translation import both
from . import training
from .progress import one_line

CURVES = ("cross_entropy", "accuracy", "bleu", "chrf")


def translation(model, tokenizer, search, corpus=None):
    """A function from sentences to translations, on the backend in use.

    Args:
        corpus: Whose sources they are, where the directions are several.
    """
    languages = getattr(corpus, "languages", None)
    if keras.backend.backend() == "tensorflow":
        translator = Translator(model, tokenizer, search)
        return lambda sentences: translator.translate(sentences, languages)

    def translate(sentences):
        model.jax_state_sync()
        of_source, of_target = both(tokenizer)
        sources = with_room(sentences, of_source, LENGTHS[-1] - (languages is not None))
        ids = [each.tolist() for each in of_source.tokenize(sources, end=True).numpy()]
        if languages is not None:
            pairs = zip(languages, ids, strict=True)
            ids = [[tokenizer.language_marks[language], *row] for language, row in pairs]
        marks = {"start_id": tokenizer.start_id, "end_id": tokenizer.end_id}
        chosen = LanguageChoice("translation", tokenizer).without_marks(search)
        found = generate_all(model, ids, chosen, LENGTHS, 64, verbose=0, **marks)
        return [text.decode() for text in of_target.detokenize(found["tokens"]).numpy()]

    return translate


def fit_translations(config, folder, model, batches, valid, scored, translate, callbacks=()):
    """Fits a translator with `training.fit_texts`, and keeps the epoch with the best BLEU.

    Args:
        scored: The corpus of validation pairs that are translated and scored.
        translate: A function from their sources to translations.
        callbacks: More callbacks.

    Returns:
        The history, and a dict of what was measured on the way.
    """
    scores = TranslationScores(
        translate,
        scored.sources,
        scored.targets,
        config.training.score_every,
        config.decoding.bleu_tokenizer,
        samples=3,
        groups=getattr(scored, "directions", None),
    )
    best = ("val_rank", "max", config.training.patience)
    sequences = ["source", "target"]
    history, share, rate = training.fit_texts(
        config, folder, model, batches, valid, sequences, best, [scores, *callbacks]
    )
    return history, {
        "valid_bleu": max(history["val_bleu"]),
        "valid_chrf": max(history["val_chrf"]),
        "valid_examples": len(scored),
        "real_token_share": share,
        "target_tokens_per_second": rate,
    }


def shortlist(config, folder, data, tokenizer):
    """Lists of the target pieces that each source piece may become, or None; `shortlist.npz`."""
    if config.decoding.shortlist is None:
        return None
    corpus, each = data.train, both(tokenizer)
    sides = zip(each, (without_context(corpus.sources), corpus.targets), strict=True)
    ids = [of.tokenize(texts).to_list() for of, texts in sides]
    made = Shortlist.learn(*ids, *(of.vocab_size for of in each), config.decoding.shortlist)
    made.save(folder / "shortlist.npz")
    lengths = made.splits[1:] - made.splits[:-1]
    print(f"Shortlist: {len(made.frequent)} pieces, and {lengths.mean():.1f} for each of a source")
    return made


def score(folder, data, translator, tokenize=None):
    """Translates the test set with the beam; returns the scores, and rows of what it did.

    Of several directions each is scored by itself, and the mean is that of them.

    Args:
        tokenize: sacreBLEU's tokenizer; None goes by the script of the references, as while
            training.
    """
    seen = count_words(data.train.targets) if data.shards is None else None
    reports, rows, directions = {}, [], []
    for name, corpus in getattr(data.test, "parts", {"": data.test}).items():
        language = (target_of(name),) if name else ()
        translations = translator.translate(corpus.sources, *language)
        references = corpus.targets
        chosen = tokenize or bleu_tokenizer(references if name else data.valid.targets)
        sources = without_context(corpus.sources)
        report = report_translations(sources, references, translations, seen, chosen)
        reports[name] = {"tokenizer": chosen, **dataclasses.asdict(report)}
        triples = list(zip(sources, references, translations, strict=True))
        rows, directions = rows + triples, directions + [name] * len(triples)
        for source, reference, translation in triples[:8]:
            print(one_line(source, "  "))
            print(one_line(reference, "    reference: "))
            print(one_line(translation, "    model:     "))
    header = ["source", "reference", "translation"]
    if "" in reports:
        folder.write_json("report.json", reports[""])
        folder.write_table("translations.tsv", header, rows)
        return _metrics(reports[""]["scores"], reports, rows), rows
    common = {report["tokenizer"] for report in reports.values()}
    common = common.pop() if len(common) == 1 else None
    folder.write_json("report.json", {"tokenizer": common, "directions": reports})
    table = [(*row, name) for row, name in zip(rows, directions, strict=True)]
    folder.write_table("translations.tsv", [*header, "direction"], table)
    return _metrics(_of_directions(reports), reports, rows), rows


def calibrate(translator, valid):
    """Makes a translator say how good its translations may be expected to be.

    Of several directions it does not: what one is sure of says nothing of another.
    """
    if not translator.target_languages:
        calibrate_confidence(translator, valid.sources, valid.targets)


def _of_directions(reports):
    """The means of all scores, and those of each direction."""
    scores = {direction: report["scores"] for direction, report in reports.items()}
    names = next(iter(scores.values()))
    means = {name: float(np.mean([of[name] for of in scores.values()])) for name in names}
    own = {f"{name}_{way}": of[name] for way, of in scores.items() for name in ("bleu", "chrf")}
    return means | own


def _metrics(scores, reports, rows):
    """The scores by their names, on how many pairs, and sacreBLEU's signatures."""
    signatures = {
        f"signature_{name}_{direction}".rstrip("_"): f"sacreBLEU {signature}"
        for direction, report in reports.items()
        for name, signature in report["signatures"].items()
    }
    named = {f"test_{name}": score for name, score in scores.items()}
    return {**named, "test_examples": len(rows), **signatures}


def of_first(tokenizer, corpus):
    """The tokenizer of the first of several directions; or as it is."""
    languages = targets_of(corpus)
    return tokenizer.towards(languages[0]) if languages else tokenizer


def show_use(folder, rows, tokenizer):
    """Prints the line that translates the example, see `RunFolder.show_use`."""
    target = getattr(tokenizer, "target", None)
    asked = {} if target is None else {"target_language": target}
    folder.show_use(example(rows, tokenizer)[0], **asked)


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


def by_direction(reports):
    """Dict of a name -> report of one direction, of such `report.json`s as there are."""
    found = {}
    for name, report in reports.items():
        parts = report.get("directions", {"": report})
        found |= {f"{name} {direction}".strip(): part for direction, part in parts.items()}
    return found


def draw_errors(folder, path):
    """Draws the report of a run."""
    report = json.loads((folder / "report.json").read_text(encoding="utf-8"))
    grouped_bars(panels_of_reports(by_direction({"run": report})), path)


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


EFLOMAL = "eflomal-align"


def links_for(asked, data):
    """Links of each training pair, or None where none are asked for.

    Args:
        asked: File of links in Pharaoh's format, a line for each pair that is kept; "eflomal", to
            let its program find them; or None.
        data: The `TranslationData`.

    Raises:
        ValueError: If there is no such file or program, the file has another number of lines or
            something else in it, or the data is a stream or of several directions.
    """
    if asked is None:
        return None
    if data.shards is not None or isinstance(data.train, JoinedCorpus):
        raise ValueError(
            "--guided-alignment: links belong to the pairs of one file of one direction; a stream "
            "and several directions have none."
        )
    if asked == "eflomal":
        forward, reverse = eflomal_links([data.train])
        return [sorted(one & other) for one, other in zip(forward, reverse, strict=True)]
    path = pathlib.Path(asked)
    if not path.is_file():
        raise ValueError(f'--guided-alignment: there is no file {path}; or give "eflomal".')
    lines = path.read_text(encoding="utf-8-sig").splitlines()
    if len(lines) != len(data.train):
        raise ValueError(
            f"--guided-alignment: {path} must have a line for each training pair that is kept, "
            f"{len(data.train)}. It has {len(lines)}."
        )
    return _read(lines, path)


def _read(lines, path):
    found = []
    for number, line in enumerate(lines, 1):
        try:
            found.append(read_pharaoh(line))
        except ValueError as error:
            raise ValueError(f"--guided-alignment: {path}, line {number}: {error}") from None
    return found


def eflomal_links(corpora, program=EFLOMAL):
    """Links from source to target and the other way, sets for each pair of all corpora.

    By eflomal (Östling & Tiedemann 2016, https://doi.org/10.1515/pralin-2016-0013): `pip install
    eflomal`.

    Raises:
        ValueError: If its program is not installed, or fails.
    """
    if shutil.which(program) is None:
        raise ValueError(f"There is no program {program}; `pip install eflomal` has it.")
    with tempfile.TemporaryDirectory() as folder:
        paths = {name: pathlib.Path(folder, name) for name in ("s", "t", "f", "r")}
        sources = [line for corpus in corpora for line in corpus.sources]
        targets = [line for corpus in corpora for line in corpus.targets]
        for name, side in (("s", sources), ("t", targets)):
            lines = [" ".join(line.split()) for line in side]
            paths[name].write_text("\n".join(lines) + "\n", encoding="utf-8")
        options = [part for name, path in paths.items() for part in (f"-{name}", str(path))]
        done = subprocess.run([program, *options], capture_output=True, text=True)
        if done.returncode:
            said = done.stderr.strip().splitlines() or ["it says nothing"]
            raise ValueError(f"{program} failed: {said[-1]}")
        forward, reverse = (
            [set(read_pharaoh(line)) for line in paths[name].read_text().splitlines()]
            for name in ("f", "r")
        )
    return forward, reverse


def teaching(model, tokenizer, data, links):
    """A function of the path at which to keep a head that has learned the links; or None."""
    if links is None:
        return None

    def teach(path):
        corpus = data.train
        head = learn_alignment(model, tokenizer, corpus.sources, corpus.targets, links)
        head.save(path)

    return teach


class SeededTranslator(Translator):
    """A `Translator` that draws by a seed and the text alone.

    The random numbers of `Sampling(seed=...)` follow from a row's number, which is another one if
    a corpus is shared out in other ways. Here they follow from the text. A text becomes the same
    wherever it stands, up to the rounding of what is computed, so that a job that was killed or is
    shared out goes on as it was begun.
    """

    def __init__(self, *arguments, seed):
        super().__init__(*arguments)
        self._seed = seed

    def drawn(self, ids, most, rows):
        """See `Translator.drawn`."""
        if not isinstance(self.search, Sampling):
            return super().drawn(ids, most, rows)
        texts = tf.strings.reduce_join(tf.strings.as_string(ids), axis=1, separator=" ")
        keys = tf.strings.to_hash_bucket_strong(texts, (1 << 31) - 1, [self._seed, 0])
        beams = self.search.beams
        return tf.map_fn(
            lambda key: tf.random.stateless_uniform([most, beams], [key, self._seed]),
            keys,
            fn_output_signature=tf.TensorSpec([None, beams], tf.float32),
        )


def change_search(predictor, search, seed, signature):
    """The predictor of a translator that chooses tokens in another way.

    What its own search must or must not choose stays so.

    Args:
        predictor: Of the translator.
        search: "greedy" or "sample".
        seed: Of what is drawn.
        signature: "xla" compiles; all else does not.

    Raises:
        ValueError: If it is no translator, or its model and tokenizer are not there.
    """
    if predictor.kind != "translator":
        raise ValueError(f"--search is of translators. Received: a {predictor.kind}")
    try:
        parts = predictor.model, predictor.tokenizer
    except AttributeError as error:
        raise ValueError(
            f"--search {search} needs the folder of a run, or one with published weights: {error}"
        ) from None
    constraints = Constraints() if predictor.search is None else predictor.search.constraints
    chosen = {"greedy": Greedy, "sample": Sampling}[search](constraints=constraints)
    translator = SeededTranslator(*parts, chosen, seed=seed)
    made = TranslatorPredictor(translator if signature == "xla" else translator.portable)
    vars(made)["languages"] = translator.target_languages
    made._made["served"] = translator  # what streams
    return made
