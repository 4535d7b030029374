"""What a translator says of its translations, and how far that can be relied on.

    pip install -e '.[recipes]'
    pip install eflomal        # links of words to compare with; or --aligner PATH/eflomal-align
    python -m recipes.translation
    python -m recipes.translation --reverse --output runs/reverse  # it may be left out
    python -m benchmarks.translation_inspection --run runs/translation --backward runs/reverse

With the default data of the recipe, of which validation decides and test is measured:
- confidence: calibrated on the validation set, against the sentence chrF of the test set;
- quality: the correlation of scores without a reference with sentence chrF, those of a model of the
  other direction among them;
- alignment: the error rate of links by each decoder block, and by a head that has learned those of
  the training pairs, against eflomal's (Östling & Tiedemann
  2016), which learns from all pairs of the data: links that it finds both ways are sure, those that
  it finds one way possible. Nobody has linked this data by hand.
"""

import argparse
import pathlib
import shutil
import time

import keras
import numpy as np
from scipy.stats import pearsonr, spearmanr

from benchmarks.report import heading, write
from keras_transformers import saving
from keras_transformers.alignment import align_words, learn_alignment
from keras_transformers.export import Translator
from keras_transformers.fitting import calibrate_confidence
from keras_transformers.generation import BeamSearch
from keras_transformers.predictors import QualityEstimator, TranslatorPredictor
from keras_transformers.tasks.translation_quality import mean_log_probability
from keras_transformers.text import SentencePieceTokenizer
from keras_transformers.training import alignment_error_rate, sentence_chrf
from recipes.data.translation import load
from recipes.lib.translating import EFLOMAL, eflomal_links
from recipes.translation import Config

GROUPS = 10  # of test sentences, as many in each, by confidence


def main(run, backward, aligner):
    config = Config()
    data = load(config.data.dataset)
    model, tokenizer, translator = translator_of(run, config.decoding)
    back = backward and translator_of(backward, config.decoding)[2]
    curve = calibrate_confidence(translator, data.valid.sources, data.valid.targets)
    rows = TranslatorPredictor(translator).predict(data.test.sources, scores=True, confidence=True)
    chrf = sentence_chrf([row["translation"] for row in rows], data.test.targets)
    tables = {
        "confidence and sentence chrF, test set": by_confidence(rows, chrf),
        "correlation with sentence chrF, test set": correlations(
            translator, back, data.test, rows, chrf
        ),
    }
    if shutil.which(aligner):
        tables |= alignments(model, tokenizer, data, aligner)
    else:
        print(f"No {aligner}: links of words are not measured. `pip install eflomal` has it.")
    heads = heading("tensorflow", "keras", "sacrebleu", "scipy")
    about = {**heads, "calibrated_on": curve.rows, "rows": tables}
    write("translation_inspection", about, tables)


def translator_of(run, decoding):
    tokenizer = SentencePieceTokenizer.load(run / "tokenizer.model")
    model = saving.load_model(run / "model.keras", compile=False)
    search = BeamSearch(decoding.beam_size, decoding.length_penalty)
    return model, tokenizer, Translator(model, tokenizer, search)


def by_confidence(rows, chrf):
    """Mean confidence and mean chrF of groups of sentences."""
    confidence, chrf = np.array([row["confidence"] for row in rows]), np.array(chrf)
    parts = np.array_split(np.argsort(confidence, kind="stable"), GROUPS)
    named = {f"{i + 1} of {GROUPS}": part for i, part in enumerate(parts)}
    named["all"] = np.arange(len(rows))
    gaps = [abs(confidence[part].mean() - chrf[part].mean()) for part in parts]
    table = {
        name: {
            "confidence": round(float(confidence[part].mean()), 1),
            "chrF": round(float(chrf[part].mean()), 1),
        }
        for name, part in named.items()
    }
    return table | {"mean gap of the groups": {"chrF": round(float(np.mean(gaps)), 1)}}


def correlations(translator, back, test, rows, chrf):
    """Of several scores with chrF: all higher is better."""
    translations = [row["translation"] for row in rows]
    forced = QualityEstimator(translator).estimate(test.sources, translations)
    ways = {}
    if back:
        ways = {
            "the same, backward": QualityEstimator(back).estimate(translations, test.sources),
            "the same, both ways": QualityEstimator(translator, back).estimate(
                test.sources, translations
            ),
        }
    scores = {
        "mean log-probability, forced": forced,
        **ways,
        "mean log-probability of the search's pieces": list(map(mean_log_probability, rows)),
        "log-probability": [row["log_probability"] for row in rows],
        "score of the search": [row["score"] for row in rows],
        "least log-probability of a piece": [
            min((value for _, value in row["tokens"]), default=0.0) for row in rows
        ],
        "confidence": [row["confidence"] for row in rows],
        "minus the source's words": [-len(source.split()) for source in test.sources],
    }
    return {
        name: {
            "Spearman": round(float(spearmanr(values, chrf).statistic), 3),
            "Pearson": round(float(pearsonr(values, chrf).statistic), 3),
        }
        for name, values in scores.items()
    }


def alignments(model, tokenizer, data, aligner):
    """Error rates of all blocks and queries on the validation set, of the best on the test set."""
    linked = links_of(data, aligner)
    ways = [(layer, at) for layer in range(len(model.decoder_blocks)) for at in ("output", "input")]
    valid = {
        f"block {layer}, query at the {at}": rate(
            model, tokenizer, data.valid, linked, layer, None, at
        )
        for layer, at in ways
    }
    layer, at = min(ways, key=lambda way: valid[f"block {way[0]}, query at the {way[1]}"]["AER"])
    heads = range(model.decoder_blocks[layer].cross_attention.num_heads)
    for head in heads:
        name = f"block {layer}, query at the {at}, head {head}"
        valid[name] = rate(model, tokenizer, data.valid, linked, layer, [head], at)
    best = min(heads, key=lambda h: valid[f"block {layer}, query at the {at}, head {h}"]["AER"])
    started = time.perf_counter()
    sides = data.train.sources, data.train.targets
    head = learn_alignment(model, tokenizer, *sides, linked[id(data.train)][0])
    print(f"The guided head has learned for {time.perf_counter() - started:.0f} s")
    valid["guided head"] = rate(model, tokenizer, data.valid, linked, learned=head)
    test = {
        "guided head": rate(model, tokenizer, data.test, linked, learned=head),
        f"block {layer}, query at the {at}": rate(
            model, tokenizer, data.test, linked, layer, None, at
        ),
        f"the same, head {best} alone": rate(
            model, tokenizer, data.test, linked, layer, [best], at
        ),
        "word i to word i": scored(diagonal(data.test), *linked[id(data.test)]),
    }
    return {"links, validation set": valid, "links, test set": test}


def rate(model, tokenizer, corpus, linked, *chosen, **learned):
    found = align_words(model, tokenizer, corpus.sources, corpus.targets, *chosen, **learned)
    return scored(found, *linked[id(corpus)])


def scored(found, sure, possible):
    rates = alignment_error_rate(found, sure, possible)
    names = {"AER": "error_rate", "precision": "precision", "recall": "recall"}
    return {name: f"{rates[key]:.3f}" for name, key in names.items()}


def diagonal(corpus):
    """What knows nothing: the first word to the first, and so on."""
    pairs = zip(corpus.sources, corpus.targets, strict=True)
    sizes = [min(len(source.split()), len(target.split())) for source, target in pairs]
    return [[(i, i) for i in range(size)] for size in sizes]


def links_of(data, aligner):
    """Sure and possible links of each set, by `id` of the corpus."""
    corpora = (data.train, data.valid, data.test)
    forward, reverse = eflomal_links(corpora, aligner)
    found, start = {}, 0
    for corpus in corpora:
        rows = slice(start, start + len(corpus))
        both = list(zip(forward[rows], reverse[rows], strict=True))
        found[id(corpus)] = [sorted(a & b) for a, b in both], [a | b for a, b in both]
        start = rows.stop
    return found


if __name__ == "__main__":
    keras.utils.set_random_seed(1)
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--run", type=pathlib.Path, default=pathlib.Path("runs/translation"))
    parser.add_argument("--backward", type=pathlib.Path, help="a run of the other direction")
    parser.add_argument("--aligner", default=EFLOMAL, help="program of eflomal")
    main(**vars(parser.parse_args()))
