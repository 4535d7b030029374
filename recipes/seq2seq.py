"""What the translation recipes share: numbers, data, training, scores and pictures."""

import dataclasses
import typing

import keras

from keras_transformers.export import Translator
from keras_transformers.generation import BeamSearch, generate_all
from keras_transformers.inspection import attention_maps
from keras_transformers.pretrained import load_tokenizer
from keras_transformers.text import SentencePieceTokenizer, encode_pairs
from keras_transformers.training import (
    MaskedAccuracy,
    SmoothedCrossEntropy,
    TokenCrossEntropy,
    TranslationScores,
    bleu_tokenizer,
    score_translations,
    text_normalization,
)
from keras_transformers.visualization import attention_heat_map, training_curves

from . import texts
from .command import RunConfig, begin, publish
from .data.translation import load
from .devices import hand_over


@dataclasses.dataclass(frozen=True)
class TranslationConfig(RunConfig):
    """The numbers of every translation run."""

    dataset: str = "ui.en-de"  # ui.en-de, bible.en-es, or tfds:NAME
    train: str | None = None  # own files instead: source TAB target, plain or .gz
    valid: str | None = None
    test: str | None = None
    output: str = "runs/translation"
    pretrained: typing.ClassVar[str | None] = None
    minutes: float | None = 10.0  # of training; the learning rate decays to reach 0 then
    epochs: int = 60  # at most, however quick the machine; without minutes the decay ends there
    batch_size: int = 1024  # places for target pieces in a batch
    row_length: int = 64  # places in a row; a longer pair is left out of training, and counted
    sample: float | None = 0.5  # subword regularisation; drawn anew each epoch, by the seed
    vocab_size: int = 2500  # joint
    normalization: typing.Literal["none", "nmt_nfkc", "nfkc"] | None = None  # by the script
    dropout: float = 0.0
    label_smoothing: float = 0.1
    learning_rate: float = 5e-3  # the peak, for matrices and embeddings alike
    weight_decay: float = 0.05
    warmup_steps: int = 100
    beam_size: int = 4
    length_penalty: float = 1.5  # on the validation set 1.6 did better than 1 and than 2.5
    score_every: int = 4  # epochs from one BLEU on the validation set to the next
    patience: int = 5  # scorings without a better one before training stops
    bleu_tokenizer: str | None = None  # sacreBLEU's; by default by the script of the references


# What changes where not chosen, to go on from published weights.
TUNING = {"learning_rate": 1e-4, "sample": None, "length_penalty": 1.0, "batch_size": 2048}
TUNING |= {"score_every": 1}


def load_pairs(config):
    """The data set, and a tokenizer trained on both its sides, or the published one."""
    data = load(config.dataset, config.train, config.valid, config.test)
    if config.smoke:
        pairs = {"train": 400, "valid": 64, "test": 64}
        data = dataclasses.replace(
            data, **{name: getattr(data, name).head(number) for name, number in pairs.items()}
        )
    if config.pretrained is not None:
        return data, load_tokenizer(config.pretrained)
    sides = data.train.sources, data.train.targets
    rule = config.normalization or text_normalization(*sides)
    print(f"Vocabulary: {config.vocab_size} pieces, normalization {rule}")
    return data, SentencePieceTokenizer.train(
        sum(sides, []), config.vocab_size, normalization=rule
    )


def both(tokenizer):
    """The tokenizers of sources and targets."""
    return tokenizer, tokenizer.for_targets() if hasattr(tokenizer, "for_targets") else tokenizer


def encode(corpus, tokenizer, **options):
    """Pairs of id sequences."""
    source, target = both(tokenizer)
    return encode_pairs(corpus.sources, corpus.targets, source, target_tokenizer=target, **options)


def prepare(config, model, optimizer):
    """Compiles a model, and builds it with its optimizer."""
    padding = {"ignore_id": getattr(model, "padding_id", 0)}
    model.compile(
        optimizer,
        SmoothedCrossEntropy(config.label_smoothing, **padding),
        metrics=[MaskedAccuracy(**padding), TokenCrossEntropy(**padding)],
        jit_compile=config.jit_compile,
    )
    if not model.built:
        model.build({"source": (None, None), "target": (None, None)})
    # Now, or Keras makes the optimizer's variables inside the first step and traces it again.
    model.optimizer.build(model.trainable_variables)
    return model


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


def fit(config, folder, data, model, translate, batches, valid):
    """Fits, and goes back to the weights that translate the validation set best.

    Returns the history and what was measured on the way.
    """
    scores = TranslationScores(
        translate,
        data.valid.sources,
        data.valid.targets,
        config.score_every,
        config.bleu_tokenizer,
        samples=3,
    )
    history, share, rate = texts.fit(
        config,
        folder,
        model,
        batches,
        texts.counted(valid),
        ["source", "target"],
        ("val_rank", "max", config.patience * config.score_every),
        [scores],
    )
    return history, {"real_token_share": share, "target_tokens_per_second": rate}


def score(config, folder, data, translator):
    """Translates the test set with the beam; returns the scores, and rows of what it did."""
    translations = translator.translate(data.test.sources)
    references = data.test.targets
    tokenize = config.bleu_tokenizer or bleu_tokenizer(data.valid.targets)  # as while training
    bleu, chrf, signature = score_translations(translations, references, tokenize)
    folder.write_json("bleu.json", {"tokenizer": tokenize, "signature": signature})
    rows = list(zip(data.test.sources, references, translations, strict=True))
    folder.write_table("translations.tsv", ["source", "reference", "translation"], rows)
    for source, reference, translation in rows[:8]:
        print(f"  {source}\n    reference: {reference}\n    model:     {translation}")
    print(f"BLEU signature: {signature}")
    return {"test_bleu": bleu, "test_chrf": chrf}, rows


def draw(folder, history, model, tokenizer, rows, match, title):
    """Curves, and the alignment of one test sentence, by the last attention layer of that name."""
    groups = ("loss", "cross_entropy", "accuracy", "bleu", "chrf")
    with folder.drawing("training_curves") as path:
        training_curves(history, path, groups)
    with folder.drawing("cross_attention") as path:
        source, translation = _sentence_to_draw(rows, tokenizer)
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


def _sentence_to_draw(rows, tokenizer):
    """The first test sentence of 8 to 14 pieces, and its translation."""
    for source, _, translation in rows:
        if 8 <= len(tokenizer.tokenize(source)) <= 14 and translation:
            return source, translation
    return rows[0][0], rows[0][2]


def run(config, smoke, load_data, build_model, match, title, draw_more=None):
    """Trains, scores on the test set with beam search, exports; returns the metrics.

    Args:
        config: A `TranslationConfig`.
        smoke: What differs under `--smoke`.
        load_data: Function of the configuration that gives data, tokenizer, and two datasets.
        build_model: Function of configuration and size of the vocabulary.
        match, title: The attention layer to draw, see `draw`, and what stands above.
        draw_more: Optional function of folder and model.
    """
    config, folder = begin(config, smoke, TUNING)
    data, tokenizer, batches, valid = load_data(config)
    if config.pretrained is None:
        tokenizer.save(folder / "tokenizer.model")
    with config.making():
        model = build_model(config, tokenizer.vocab_size)
    search = BeamSearch(config.beam_size, config.length_penalty)
    translate = translation(model, tokenizer, search)
    history, measured = fit(config, folder, data, model, translate, batches, valid)
    hand_over()
    translator = Translator(model, tokenizer, search)
    scores, rows = score(config, folder, data, translator)
    metrics = {
        **scores,
        "valid_bleu": max(history["val_bleu"]),
        "valid_chrf": max(history["val_chrf"]),
        **measured,
        "parameters": model.count_params(),
        "epochs": len(history["loss"]),
        "seconds_training_and_evaluation": folder.seconds(),
    }
    folder.write_metrics(metrics)
    with folder.exporting("saved_model") as path:
        translator.save(path)
    if config.pretrained is not None:
        with folder.exporting("published"):
            publish(folder, model, tokenizer)
    draw(folder, history, model, tokenizer, rows, match, title)
    if draw_more:
        draw_more(folder, model)
    folder.end()
    folder.show_use(_sentence_to_draw(rows, tokenizer)[0])
    return metrics
