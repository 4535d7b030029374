"""Translation from text files to a SavedModel, with the Transformer of Vaswani et al. 2017.

    python -m recipes.translation                          # English-German user interfaces
    python -m recipes.translation --dataset bible.en-es
    python -m recipes.translation --train a.tsv --valid b.tsv --test c.tsv

See https://arxiv.org/abs/1706.03762. Measured on the 1,000 test pairs of the first data set with
beam 4, on two cores of an AMD EPYC 7003 at some 2,200 target tokens a second: 21.8, 20.8 and 21.3
BLEU in 12 minutes, training and evaluation (seeds 1, 2, 3; 52.9, 51.8, 52.2 chrF); 27.9 and 57.3 in
22 (`--minutes 21`); 32.9 and 62.1 in 60 (`--minutes 59 --dropout 0.2 --batch-size 2048
--learning-rate 6e-3 --score-every 6`).
sacreBLEU nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:2.6.0
"""

import dataclasses
import time
import typing

import keras
import numpy as np
import tyro

from keras_transformers.export import Translator
from keras_transformers.generation import BeamSearch
from keras_transformers.inspection import attention_maps
from keras_transformers.layers import sinusoidal_encoding
from keras_transformers.models import Transformer
from keras_transformers.text import (
    SentencePieceTokenizer,
    balanced_lengths,
    encode_pairs,
    packed,
    real_token_share,
)
from keras_transformers.training import (
    BudgetedDecay,
    MaskedAccuracy,
    Muon,
    SmoothedCrossEntropy,
    Throughput,
    TokenCrossEntropy,
    TranslationScores,
    score_translations,
)
from keras_transformers.visualization import (
    attention_heat_map,
    position_similarity,
    training_curves,
)
from recipes.data.translation import load
from recipes.folder import begin


@dataclasses.dataclass(frozen=True)
class Config:
    """Every number of a run. The defaults suit some 30,000 pairs and two CPU cores."""

    dataset: str = "ui.en-de"  # ui.en-de, bible.en-es, or tfds:NAME
    train: str | None = None  # own files instead: source TAB target, plain or .gz
    valid: str | None = None
    test: str | None = None
    output: str = "runs/translation"
    minutes: float | None = 10.0  # of training; the learning rate decays to reach 0 then
    epochs: int = 60  # at most, however quick the machine; without minutes the decay ends there
    batch_size: int = 1024  # places for target pieces in a batch
    row_length: int = 64  # places in a row; a longer pair is left out of training, and counted
    sample: float | None = 0.5  # subword regularisation; its draws follow from no seed
    join: float = 0.0  # share of training pairs made one longer pair of two: see `packed`
    vocab_size: int = 2500  # joint
    variant: typing.Literal["tiny", "mini", "small", "base", "big"] = "mini"
    dropout: float = 0.0  # a few epochs are regularised enough by `sample`; 0.2 for an hour
    label_smoothing: float = 0.1
    learning_rate: float = 5e-3  # the peak, for matrices and embeddings alike
    weight_decay: float = 0.05
    warmup_steps: int = 100
    beam_size: int = 4
    length_penalty: float = 1.5  # on the validation set 1.6 did better than 1 and than 2.5
    score_every: int = 4  # epochs from one BLEU on the validation set to the next
    patience: int = 5  # scorings without a better BLEU before training stops
    precision: typing.Literal["float32", "mixed_bfloat16", "mixed_float16"] = "float32"
    seed: int = 1
    tensorboard: bool = False
    smoke: bool = False  # the same path in under a minute, on a few hundred pairs


SMOKE = {"epochs": 1, "batch_size": 512, "vocab_size": 600, "variant": "tiny", "warmup_steps": 5}


def load_data(config):
    """Pairs, a tokenizer trained on them, and datasets of packed rows."""
    data = load(config.dataset, config.train, config.valid, config.test)
    if config.smoke:
        pairs = {"train": 400, "valid": 64, "test": 64}
        data = dataclasses.replace(
            data, **{name: getattr(data, name).head(number) for name, number in pairs.items()}
        )
    tokenizer = SentencePieceTokenizer.train(
        data.train.sources + data.train.targets, config.vocab_size
    )

    def encode(corpus, **options):
        return encode_pairs(corpus.sources, corpus.targets, tokenizer, batch_size=8192, **options)

    lengths = balanced_lengths(encode(data.train), config.row_length)
    train = data.train.without_long(tokenizer, *lengths)
    valid = data.valid.without_long(tokenizer, *lengths)
    for corpus in (train, valid, data.test):
        print(corpus.summary())
    rows = config.batch_size // config.row_length
    pairs = encode(train, shuffle_seed=config.seed, sample=config.sample, longest=lengths)
    batches = packed(pairs, *lengths, rows, config.seed, config.join)
    return data, tokenizer, batches, packed(encode(valid), *lengths, rows)


def build_model(config, vocab_size):
    """The pre-norm Transformer with one shared table, compiled with Muon."""
    model = Transformer.from_variant(
        config.variant, vocab_size, dropout=config.dropout, norm_first=True
    )
    model.compile(
        Muon(config.learning_rate, weight_decay=config.weight_decay),
        SmoothedCrossEntropy(config.label_smoothing),
        metrics=[MaskedAccuracy(), TokenCrossEntropy()],
        jit_compile=True,
    )
    # Now, or Keras makes the optimizer's variables inside the first step and traces it again.
    model.build({"source": (None, None), "target": (None, None)})
    model.optimizer.build(model.trainable_variables)
    return model


def train(config, folder, data, model, translator, batches, valid):
    """Fits, and goes back to the weights of the best BLEU on the validation set.

    Returns the history and what was measured on the way.
    """
    epoch = list(batches)
    share = real_token_share(epoch)
    print(f"{len(epoch)} batches an epoch; {share:.1%} of their places hold real tokens")
    throughput = Throughput(sum(np.count_nonzero(labels) for _, labels in epoch))
    best = {"monitor": "val_bleu", "mode": "max"}
    history = model.fit(
        batches.repeat(),
        shuffle=False,  # the pipeline does that
        steps_per_epoch=len(epoch),  # packing makes an epoch a batch longer or shorter
        validation_data=valid,
        validation_steps=sum(1 for _ in valid),  # or Keras warns that the data ran out
        epochs=config.epochs,
        callbacks=[
            BudgetedDecay(
                config.learning_rate,
                config.warmup_steps,
                config.epochs * len(epoch),
                config.minutes,
            ),
            throughput,
            TranslationScores(
                translator.translate,
                data.valid.sources,
                data.valid.targets,
                config.score_every,
                samples=3,
            ),
            keras.callbacks.ModelCheckpoint(folder / "model.keras", save_best_only=True, **best),
            keras.callbacks.EarlyStopping(
                patience=config.patience * config.score_every, restore_best_weights=True, **best
            ),
            *folder.callbacks(config.tensorboard),
        ],
    ).history
    rate = float(np.median(throughput.rates))
    return history, {"real_token_share": share, "target_tokens_per_second": rate}


def draw(folder, history, model, tokenizer, source, translation):
    """Curves, the cross-attention of one test sentence, and the similarity of positions."""
    groups = ("loss", "cross_entropy", "accuracy", "bleu", "chrf")
    training_curves(history, folder.figures / "training_curves.png", groups)
    ids = {
        "source": tokenizer.tokenize([source], end=True).to_tensor(),
        "target": tokenizer.tokenize([translation], start=True).to_tensor(),
    }
    *_, last = attention_maps(model, ids, match="cross_attention").values()
    attention_heat_map(
        last[0].mean(axis=0),  # its heads
        queries=[*tokenizer.pieces(ids["target"][0])[1:], "</s>"],  # what each query produces
        keys=tokenizer.pieces(ids["source"][0]),
        path=folder.figures / "cross_attention.png",
        title="Cross-attention of the last decoder block, mean of its heads",
    )
    positions = sinusoidal_encoding(np.arange(64), model.get_config()["hidden_dim"])
    position_similarity(positions, folder.figures / "position_similarity.png")


def run(config):
    """Trains, scores on the test set with beam search, exports; returns the metrics."""
    started = time.perf_counter()
    config, folder = begin(config, SMOKE)
    data, tokenizer, batches, valid = load_data(config)
    tokenizer.save(folder / "tokenizer.model")
    model = build_model(config, tokenizer.vocab_size)
    search = BeamSearch(config.beam_size, config.length_penalty)
    translator = Translator(model, tokenizer, search)
    history, measured = train(config, folder, data, model, translator, batches, valid)

    translations = translator.translate(data.test.sources)
    bleu, chrf, signature = score_translations(translations, data.test.targets)
    rows = list(zip(data.test.sources, data.test.targets, translations, strict=True))
    folder.write_table("translations.tsv", ["source", "reference", "translation"], rows)
    for source, reference, translation in rows[:8]:
        print(f"  {source}\n    reference: {reference}\n    model:     {translation}")
    training_seconds = time.perf_counter() - started
    translator.save(folder / "saved_model")
    draw(folder, history, model, tokenizer, *_sentence_to_draw(rows, tokenizer))
    metrics = {
        "test_bleu": bleu,
        "test_chrf": chrf,
        "valid_bleu": max(history["val_bleu"]),
        **measured,
        "parameters": model.count_params(),
        "epochs": len(history["loss"]),
        "seconds_training_and_evaluation": training_seconds,
        "seconds": time.perf_counter() - started,
    }
    print(f"BLEU signature: {signature}")
    folder.write_metrics(metrics)
    return metrics


def _sentence_to_draw(rows, tokenizer):
    """The first test sentence of 8 to 14 pieces, and its translation."""
    for source, _, translation in rows:
        if 8 <= len(tokenizer.tokenize(source)) <= 14 and translation:
            return source, translation
    return rows[0][0], rows[0][2]


if __name__ == "__main__":
    try:
        run(tyro.cli(Config, description=__doc__))
    except (ValueError, FileNotFoundError) as error:  # bad input: a sentence, not a stack trace
        raise SystemExit(f"recipes.translation: {error}") from None
