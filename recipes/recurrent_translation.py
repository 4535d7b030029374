"""Translation as before the Transformer: recurrent networks with attention, Bahdanau et al. 2014.

    python -m recipes.recurrent_translation                          # English-German
    python -m recipes.recurrent_translation --dataset bible.en-es
    python -m recipes.recurrent_translation --train a.tsv --valid b.tsv --test c.tsv

See https://arxiv.org/abs/1409.0473. The same data, optimizer, search and scores as in
`recipes.translation`, so that the two can be compared: 27.0 BLEU and 57.2 chrF on the 1,000 test
pairs of the first data set with beam 4, in 10.2 minutes of training and evaluation on two cores of
an AMD EPYC with AVX-512, at some 5,600 target tokens a second (seed 1). There the Transformer has
33.2 BLEU.
sacreBLEU nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:2.6.0
"""

import dataclasses

from keras_transformers.models import RecurrentTranslator
from keras_transformers.text import bucketed
from keras_transformers.training import Muon

from . import seq2seq
from .command import main


@dataclasses.dataclass(frozen=True)
class Config(seq2seq.TranslationConfig):
    """Every number of a run. The defaults suit some 30,000 pairs and two CPU cores."""

    output: str = "runs/recurrent_translation"
    buckets: tuple[int, ...] = (8, 16, 24, 32, 48)  # batches are padded to these, or row_length
    hidden_dim: int = 256  # 2.0 million parameters with 2,500 pieces
    dropout: float = 0.1


SMOKE = {"epochs": 1, "batch_size": 512, "vocab_size": 600, "hidden_dim": 64, "warmup_steps": 5}
SMOKE["buckets"] = (32,)  # each takes some ten seconds to compile


def load_data(config):
    """Pairs, a tokenizer trained on them, and batches of like length: recurrence cannot be packed.

    A state would run on from one pair of a row into the next.
    """
    data, tokenizer = seq2seq.load_pairs(config)
    lengths = (config.row_length, config.row_length)
    train = data.train.without_long(tokenizer, *lengths)
    valid = data.valid.without_long(tokenizer, *lengths)
    for corpus in (train, valid, data.test):
        print(corpus.summary())
    shorter = [length for length in config.buckets if length < config.row_length]
    buckets = [*shorter, config.row_length]
    drawn = {"shuffle_seed": config.seed, "sample": config.sample, "longest": lengths}

    def batches(epoch):
        pairs = seq2seq.encode(train, tokenizer, epoch=epoch, **drawn)
        return bucketed(pairs, buckets, config.batch_size)

    watched = bucketed(seq2seq.encode(valid, tokenizer), buckets, config.batch_size)
    return data, tokenizer, batches, watched


def build_model(config, vocab_size):
    """The recurrent network with one shared table, compiled with Muon."""
    model = RecurrentTranslator(vocab_size, config.hidden_dim, dropout=config.dropout)
    optimizer = config.make_optimizer(Muon)
    return seq2seq.prepare(config, model, optimizer)


def run(config):
    """Trains, scores on the test set with beam search, exports; returns the metrics."""
    title = "Alignment: additive attention of the decoder"
    return seq2seq.run(config, SMOKE, load_data, build_model, "attention", title)


if __name__ == "__main__":
    main(run, Config, __doc__)
