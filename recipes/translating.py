"""How the translation recipes search, score and draw."""

import keras

from keras_transformers.export import Translator
from keras_transformers.generation import generate_all
from keras_transformers.inspection import attention_maps
from keras_transformers.training import bleu_tokenizer, score_translations
from keras_transformers.visualization import attention_heat_map

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
    bleu, chrf, signature = score_translations(translations, references, tokenize)
    folder.write_json("bleu.json", {"tokenizer": tokenize, "signature": signature})
    rows = list(zip(data.test.sources, references, translations, strict=True))
    folder.write_table("translations.tsv", ["source", "reference", "translation"], rows)
    for source, reference, translation in rows[:8]:
        print(f"  {source}\n    reference: {reference}\n    model:     {translation}")
    print(f"BLEU signature: {signature}")
    return {"test_bleu": bleu, "test_chrf": chrf}, rows


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
