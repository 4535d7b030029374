"""Translators: their training, search, scores, figures, and alignment."""

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
from keras_transformers.fitting import calibrate_confidence
from keras_transformers.generation import Constraints, Greedy, Sampling, Shortlist, generate_all
from keras_transformers.inspection import attention_maps
from keras_transformers.predictors import TranslatorPredictor
from keras_transformers.tasks.translation import LENGTHS
from keras_transformers.tasks.translation_signatures import LanguageChoice
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

EFLOMAL = "eflomal-align"
CURVES = ("cross_entropy", "accuracy", "bleu", "chrf")


def make_translate(model, tokenizer, search, corpus=None):
    """Returns a function from sentences to translations, on the backend in use.

    Args:
        corpus: The corpus of the sentences, if it has several directions.
    """
    languages = getattr(corpus, "languages", None)
    if keras.backend.backend() == "tensorflow":
        translator = Translator(model, tokenizer, search)
        return lambda sentences: translator.translate(sentences, languages)

    def translate(sentences):
        model.jax_state_sync()
        source_tokenizer, target_tokenizer = both(tokenizer)
        sources = with_room(sentences, source_tokenizer, LENGTHS[-1] - (languages is not None))
        ids = [row.tolist() for row in source_tokenizer.tokenize(sources, end=True).numpy()]
        if languages is not None:
            pairs = zip(languages, ids, strict=True)
            ids = [[tokenizer.language_marks[language], *row] for language, row in pairs]
        marks = {"start_id": tokenizer.start_id, "end_id": tokenizer.end_id}
        search_with_marks = LanguageChoice("translation", tokenizer).without_marks(search)
        output = generate_all(model, ids, search_with_marks, LENGTHS, 64, verbose=0, **marks)
        return [text.decode() for text in target_tokenizer.detokenize(output["tokens"]).numpy()]

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


def learn_shortlist(config, folder, data, tokenizer):
    """Learns and writes the target pieces that each source piece may become; or returns None."""
    if config.decoding.shortlist is None:
        return None
    source_tokenizer, target_tokenizer = both(tokenizer)
    shortlist = Shortlist.learn(
        source_tokenizer.tokenize(without_context(data.train.sources)).to_list(),
        target_tokenizer.tokenize(data.train.targets).to_list(),
        source_tokenizer.vocab_size,
        target_tokenizer.vocab_size,
        config.decoding.shortlist,
    )
    shortlist.save(folder / "shortlist.npz")
    lengths = shortlist.splits[1:] - shortlist.splits[:-1]
    number = len(shortlist.frequent)
    print(f"Shortlist: {number} pieces, and {lengths.mean():.1f} for each of a source")
    return shortlist


def score(folder, data, translator, tokenize=None):
    """Translates the test set with the beam, scores the translations, and writes both.

    Several directions are scored one by one, and then have mean scores, too.

    Args:
        tokenize: sacreBLEU's tokenizer; None goes by the script of the references, as while
            training.

    Returns:
        A dict of metrics, and triples of source, reference and translation.
    """
    counts = count_words(data.train.targets) if data.shards is None else None
    reports, rows, directions = {}, [], []
    for name, corpus in getattr(data.test, "parts", {"": data.test}).items():
        language = (target_of(name),) if name else ()
        translations = translator.translate(corpus.sources, *language)
        references = corpus.targets
        own_tokenize = tokenize or bleu_tokenizer(references if name else data.valid.targets)
        sources = without_context(corpus.sources)
        report = report_translations(sources, references, translations, counts, own_tokenize)
        reports[name] = {"tokenizer": own_tokenize, **dataclasses.asdict(report)}
        triples = list(zip(sources, references, translations, strict=True))
        rows += triples
        directions += [name] * len(triples)
        for source, reference, translation in triples[:8]:
            print(one_line(source, "  "))
            print(one_line(reference, "    reference: "))
            print(one_line(translation, "    model:     "))
    header = ["source", "reference", "translation"]
    if "" in reports:
        folder.write_json("report.json", reports[""])
        folder.write_table("translations.tsv", header, rows)
        return _metrics(reports[""]["scores"], reports, rows), rows
    tokenizers = {report["tokenizer"] for report in reports.values()}
    common = tokenizers.pop() if len(tokenizers) == 1 else None
    folder.write_json("report.json", {"tokenizer": common, "directions": reports})
    table = [(*row, name) for row, name in zip(rows, directions, strict=True)]
    folder.write_table("translations.tsv", [*header, "direction"], table)
    return _metrics(_mean_scores(reports), reports, rows), rows


def calibrate(translator, valid):
    """Calibrates the confidence of a translator by validation pairs.

    With several directions nothing happens: the confidence of one says nothing about another.
    """
    if not translator.target_languages:
        calibrate_confidence(translator, valid.sources, valid.targets)


def _mean_scores(reports):
    """Returns the means of all scores, and BLEU and chrF of each direction."""
    scores = {direction: report["scores"] for direction, report in reports.items()}
    names = next(iter(scores.values()))
    means = {name: float(np.mean([values[name] for values in scores.values()])) for name in names}
    for direction, values in scores.items():
        means |= {f"{name}_{direction}": values[name] for name in ("bleu", "chrf")}
    return means


def _metrics(scores, reports, rows):
    """Returns the scores by their names, the number of pairs, and sacreBLEU's signatures."""
    signatures = {
        f"signature_{name}_{direction}".rstrip("_"): f"sacreBLEU {signature}"
        for direction, report in reports.items()
        for name, signature in report["signatures"].items()
    }
    named = {f"test_{name}": score for name, score in scores.items()}
    return {**named, "test_examples": len(rows), **signatures}


def tokenizer_of_first(tokenizer, corpus):
    """Returns the tokenizer of the first of several directions; or the tokenizer itself."""
    languages = targets_of(corpus)
    return tokenizer.towards(languages[0]) if languages else tokenizer


def show_use(folder, rows, tokenizer):
    """Prints the line that translates the example, see `RunFolder.show_use`."""
    target = getattr(tokenizer, "target", None)
    options = {} if target is None else {"target_language": target}
    folder.show_use(example(rows, tokenizer)[0], **options)


def error_panels(reports):
    """Returns the errors in translations as panels for `grouped_bars`.

    Args:
        reports: Dict of a name -> `report.json` of a run.
    """
    panels = {
        "chrF by words of the source": lambda report: {
            row["words"]: row["chrf"] for row in report["by_length"]
        },
        "reference words found, in %, by times seen in training": lambda report: {
            row["seen"]: 100 * row["found"] / row["words"] for row in report["by_frequency"]
        },
        "kept of what must come through, in %": lambda report: {
            kind: 100 * number / expected
            for kind, (number, expected) in report["placeables"].items()
        },
        "translations that are": lambda report: report["faults"],
    }
    return {
        title: {name: numbers(report) for name, report in reports.items()}
        for title, numbers in panels.items()
    }


def reports_by_direction(reports):
    """Returns a dict of name -> report of one direction, from a dict of name -> `report.json`."""
    parts_by_name = {}
    for name, report in reports.items():
        parts = report.get("directions", {"": report})
        parts_by_name |= {f"{name} {direction}".strip(): part for direction, part in parts.items()}
    return parts_by_name


def draw_errors(folder, path):
    """Draws the errors in the translations of a run."""
    report = json.loads((folder / "report.json").read_text(encoding="utf-8"))
    grouped_bars(error_panels(reports_by_direction({"run": report})), path)


def draw_attention(model, tokenizer, rows, match, title, path):
    """Draws the attention of each piece of a translation.

    Args:
        rows: The triples of `score`; one is drawn.
        match: A part of the path of the attention layer, see `alignment`.
        title: The title of the image.
        path: The path of the image.
    """
    source, translation = example(rows, tokenizer)
    weights = alignment(model, tokenizer, source, translation, match)
    attention_heat_map(*weights, path=path, title=title)


def alignment(model, tokenizer, source, translation, match):
    """Computes the attention of each piece of a translation.

    Returns:
        Weights of the last attention layer whose path contains `match`, the mean of its heads,
        `(pieces produced, pieces of the source)`; the pieces produced; and the pieces of the
        source. END is a piece on both sides.
    """
    source_tokenizer, target_tokenizer = both(tokenizer)
    ids = {
        "source": source_tokenizer.tokenize([source], end=True).to_tensor(),
        "target": target_tokenizer.tokenize([translation], start=True).to_tensor(),
    }
    *_, last = attention_maps(model, ids, match=match).values()
    queries = [*target_tokenizer.pieces(ids["target"][0])[1:], "</s>"]  # what each query produces
    return last[0].mean(axis=0), queries, source_tokenizer.pieces(ids["source"][0])


def example(rows, tokenizer):
    """Returns the first test sentence of 8 to 14 pieces, and its translation."""
    for source, _, translation in rows:
        if 8 <= len(tokenizer.tokenize(source)) <= 14 and translation:
            return source, translation
    return rows[0][0], rows[0][2]


def load_links(option, data):
    """Loads links of the words of each training pair.

    Args:
        option: A file of links in Pharaoh's format, a line for each training pair; "eflomal" to let
            its program find them; or None for no links.
        data: The `TranslationData`.

    Raises:
        ValueError: If the file or program is missing, the file has another number of lines or
            other content, or the data is a stream or has several directions.
    """
    if option is None:
        return None
    if data.shards is not None or isinstance(data.train, JoinedCorpus):
        raise ValueError(
            "--guided-alignment: links belong to the pairs of one file of one direction; a stream "
            "and several directions have none."
        )
    if option == "eflomal":
        forward, reverse = eflomal_links([data.train])
        pairs = zip(forward, reverse, strict=True)
        return [sorted(links & reverse_links) for links, reverse_links in pairs]
    path = pathlib.Path(option)
    if not path.is_file():
        raise ValueError(f'--guided-alignment: there is no file {path}; or give "eflomal".')
    lines = path.read_text(encoding="utf-8-sig").splitlines()
    if len(lines) != len(data.train):
        raise ValueError(
            f"--guided-alignment: {path} must have a line for each training pair that is kept, "
            f"{len(data.train)}. It has {len(lines)}."
        )
    return _parse_links(lines, path)


def _parse_links(lines, path):
    """Returns the links of each line; ValueError with the number of a wrong line."""
    links = []
    for number, line in enumerate(lines, 1):
        try:
            links.append(read_pharaoh(line))
        except ValueError as error:
            raise ValueError(f"--guided-alignment: {path}, line {number}: {error}") from None
    return links


def eflomal_links(corpora, program=EFLOMAL):
    """Finds links from source to target and the other way, sets for each pair of all corpora.

    The program is eflomal (Östling & Tiedemann 2016, https://doi.org/10.1515/pralin-2016-0013):
    `pip install eflomal`.

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
            messages = done.stderr.strip().splitlines() or ["it says nothing"]
            raise ValueError(f"{program} failed: {messages[-1]}")
        forward, reverse = (
            [set(read_pharaoh(line)) for line in paths[name].read_text().splitlines()]
            for name in ("f", "r")
        )
    return forward, reverse


def alignment_trainer(model, tokenizer, data, links):
    """Returns a function that trains an alignment head and writes it; None without links."""
    if links is None:
        return None

    def teach(path):
        corpus = data.train
        head = learn_alignment(model, tokenizer, corpus.sources, corpus.targets, links)
        head.save(path)

    return teach


class SeededTranslator(Translator):
    """A `Translator` that draws by a seed and the text alone.

    The random numbers of `Sampling(seed=...)` follow from the number of a row, which changes if a
    corpus is split in another way. Here they follow from the text. So a text has the same
    translation in every split, up to rounding, and a job that was killed continues as it began.
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
    """Returns the predictor of a translator with another search.

    The constraints of its own search stay.

    Args:
        predictor: The predictor of the translator.
        search: "greedy" or "sample".
        seed: The seed of sampling.
        signature: "xla" compiles; other signatures do not.

    Raises:
        ValueError: If the predictor is no translator, or has no model and tokenizer.
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
    new_search = {"greedy": Greedy, "sample": Sampling}[search](constraints=constraints)
    translator = SeededTranslator(*parts, new_search, seed=seed)
    made = TranslatorPredictor(translator if signature == "xla" else translator.portable)
    made.languages = translator.target_languages
    made._made["served"] = translator  # what streams
    return made
