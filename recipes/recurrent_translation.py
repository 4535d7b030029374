"""Translation as before the Transformer: recurrent networks with attention, Bahdanau et al. 2014.

    python -m recipes.recurrent_translation                          # English-German
    python -m recipes.recurrent_translation --dataset bible.en-es
    python -m recipes.recurrent_translation --train a.tsv --valid b.tsv --test c.tsv

See https://arxiv.org/abs/1409.0473. The same data, optimizer, search and scores as in
`recipes.translation`, so that the two can be compared: 27.0 BLEU and 57.2 chrF on the 1,000 test
pairs of the first data set with beam 4, in 10.2 minutes of training and evaluation on two cores of
an AMD EPYC with AVX-512, at some 5,600 target tokens a second (seed 1). There the Transformer has
39.3 BLEU, and 33.4 with sinusoidal positions and splits that are drawn to the end, as here.
sacreBLEU nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:2.6.0
"""

from dataclasses import dataclass
from functools import partial
from typing import ClassVar, Literal

from keras_transformers.export import Translator
from keras_transformers.generation import BeamSearch
from keras_transformers.models import RecurrentTranslator
from keras_transformers.text import bucketed
from keras_transformers.training import Muon

from .data.translation import both, encode, load, train_tokenizer
from .lib import training, translating
from .lib.options import Run, main


@dataclass(frozen=True)
class Data:
    """The sentence pairs, and how they are padded."""

    dataset: str = "ui.en-de"  # or bible.en-es, or tfds:NAME
    train: str | None = None  # own file instead: source TAB target, or a table; may be alone
    valid: str | None = None  # the same, to stop in time; else a share of --train
    test: str | None = None  # the same, to score on at the end; else a share of --train
    columns: tuple[str, ...] = ()  # of source and target: their names, or numbers from 1
    vocab_size: int = 2500  # pieces, of both languages together
    normalization: Literal["none", "nmt_nfkc", "nfkc"] | None = None  # by the script
    sample: float | None = 0.5  # subword regularisation; drawn anew each epoch, by the seed
    row_length: int = 64  # positions; a longer pair is left out of training, and counted
    buckets: tuple[int, ...] = (8, 16, 24, 32, 48)  # batches are padded to these, or row_length


@dataclass(frozen=True)
class Architecture:
    """The recurrent network."""

    hidden_dim: int = 256  # 2.0 million parameters with 2,500 pieces
    dropout: float = 0.1  # of embeddings and before the logits


@dataclass(frozen=True)
class Training:
    """The length and speed of training."""

    minutes: float | None = 10.0  # of training; the learning rate decays to reach 0 then
    epochs: int = 60  # at most, however quick the machine; without minutes the decay ends there
    batch_size: int = 1024  # positions for target pieces in a batch
    label_smoothing: float = 0.1  # as in `recipes.translation`
    learning_rate: float = 5e-3  # the peak, for matrices and embeddings alike
    weight_decay: float = 0.05  # of matrices and embeddings
    warmup_steps: int = 100  # to the peak
    decay: Literal["linear", "cosine"] = "linear"  # to 0, over the budget
    score_every: int | None = None  # epochs from one BLEU to the next; or a tenth of the time
    score_pairs: int = 400  # of the validation set that are translated while training, at most
    patience: int = 5  # scorings without a better one before training stops


@dataclass(frozen=True)
class Decoding:
    """The search for translations, and their scores."""

    beam_size: int = 4  # as in `recipes.translation`
    length_penalty: float = 1.5  # on the validation set 1.6 did better than 1 and than 2.5
    bleu_tokenizer: str | None = None  # sacreBLEU's; by default by the script of the references


@dataclass(frozen=True)
class Config:
    """Every number of a run. The defaults suit some 30,000 pairs and two CPU cores."""

    run: Run = Run("runs/recurrent_translation")
    data: Data = Data()
    model: Architecture = Architecture()
    training: Training = Training()
    decoding: Decoding = Decoding()
    SMOKE: ClassVar = {
        "epochs": 1,
        "batch_size": 2048,
        "vocab_size": 600,
        "hidden_dim": 64,
        "warmup_steps": 5,
        "buckets": (32,),  # each takes some ten seconds to compile
    }


def load_data(config):
    """Returns pairs, a tokenizer trained on them, and batches of pairs of similar length.

    Pairs are not packed: a state would run on from one pair of a row into the next.
    """
    options = config.data
    data = load(
        options.dataset, options.train, options.valid, options.test, columns=options.columns
    )
    if config.run.smoke:
        data = data.head(train=400, valid=64, test=64)
    tokenizer = train_tokenizer(data, options.vocab_size, options.normalization)
    tokenizers, lengths = both(tokenizer), (options.row_length, options.row_length)
    train, valid = (
        corpus.without_long(tokenizers, *lengths) for corpus in (data.train, data.valid)
    )
    for corpus in (train, valid, data.test):
        print(corpus.summary())
    shorter = [length for length in options.buckets if length < options.row_length]
    buckets, size = [*shorter, options.row_length], config.training.batch_size
    drawn = {"shuffle_seed": config.run.seed, "sample": options.sample, "longest": lengths}

    def batches(epoch):
        return bucketed(encode(train, tokenizers, epoch=epoch, **drawn), buckets, size)

    return data, tokenizer, batches, bucketed(encode(valid, tokenizers), buckets, size)


def build_model(config, vocab_size):
    """Builds and compiles the recurrent network with one shared table."""
    options = config.model
    model = RecurrentTranslator(vocab_size, options.hidden_dim, dropout=options.dropout)
    learned = training.token_loss_and_metrics(model, config.training.label_smoothing)
    shape = {"source": (None, None), "target": (None, None)}
    optimizer = training.make_optimizer(config, Muon)
    return training.compile_model(config, model, optimizer, shape, **learned)


def run(config):
    """Trains, scores on the test set with beam search, exports; returns the metrics."""
    folder = training.start_run(config)
    data, tokenizer, batches, valid = load_data(config)
    folder.keep("tokenizer.model", tokenizer.save)
    with training.model_scope(config):
        model = build_model(config, tokenizer.vocab_size)
    search = BeamSearch(config.decoding.beam_size, config.decoding.length_penalty)
    scored = data.valid.spread(config.training.score_pairs)
    translate = translating.make_translate(model, tokenizer, search)
    history, measured = translating.fit_translations(
        config, folder, model, batches, valid, scored, translate
    )
    training.continue_on_tensorflow()
    translator = Translator(model, tokenizer, search)
    scores, rows = translating.score(folder, data, translator, config.decoding.bleu_tokenizer)
    translating.calibrate(translator, data.valid)
    attention = ("attention", "Alignment: additive attention of the decoder")
    return training.finish(
        folder,
        {**scores, **measured},
        model=model,
        history=history,
        curves=translating.CURVES,
        exports={"saved_model": translator.save},
        figures={
            "cross_attention": partial(
                translating.draw_attention, model, tokenizer, rows, *attention
            ),
            "errors": partial(translating.draw_errors, folder),
        },
        use=lambda: folder.show_use(translating.example(rows, tokenizer)[0]),
    )


if __name__ == "__main__":
    main(run, Config, __doc__)
