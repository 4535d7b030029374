"""Translation from text files to a SavedModel, with the Transformer of Vaswani et al. 2017.

    python -m recipes.translation                          # English-German user interfaces
    python -m recipes.translation --dataset bible.en-es
    python -m recipes.translation --train a.tsv --valid b.tsv --test c.tsv
    python -m recipes.translation --pretrained opus-mt-en-de  # published weights, in that folder

See https://arxiv.org/abs/1706.03762. Measured on the 1,000 test pairs of the first data set with
beam 4, on two cores of an AMD EPYC 7003 at some 2,200 target tokens a second: 21.8, 20.8 and 21.3
BLEU in 12 minutes, training and evaluation (seeds 1, 2, 3; 52.9, 51.8, 52.2 chrF); 27.9 and 57.3 in
22 (`--minutes 21`); 32.9 and 62.1 in 60 (`--minutes 59 --dropout 0.2 --batch-size 2048
--learning-rate 6e-3 --score-every 6`).
sacreBLEU nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:2.6.0
"""

import dataclasses
import typing

import numpy as np

from keras_transformers.layers import sinusoidal_encoding
from keras_transformers.models import Transformer
from keras_transformers.text import balanced_lengths, packed
from keras_transformers.training import AdamW, Muon
from keras_transformers.visualization import position_similarity

from . import seq2seq
from .command import main, start_from


@dataclasses.dataclass(frozen=True)
class Config(seq2seq.TranslationConfig):
    """Every number of a run. The defaults suit some 30,000 pairs and two CPU cores."""

    output: str = "runs/translation"
    pretrained: str | None = None  # folder of published Marian weights, to go on from
    join: float = 0.0  # share of training pairs made one longer pair of two: see `packed`
    variant: typing.Literal["tiny", "mini", "small", "base", "big"] = "mini"
    dropout: float = 0.0  # a few epochs are regularised enough by `sample`; 0.2 for an hour


SMOKE = {"epochs": 1, "batch_size": 512, "vocab_size": 600, "variant": "tiny", "warmup_steps": 5}


def load_data(config):
    """Pairs, a tokenizer trained on them, and datasets of packed rows."""
    data, tokenizer = seq2seq.load_pairs(config)

    def encode(corpus, **options):
        return seq2seq.encode(corpus, tokenizer, batch_size=8192, **options)

    lengths = balanced_lengths(encode(data.train), config.row_length)
    train, valid = (
        corpus.without_long(seq2seq.both(tokenizer), *lengths)
        for corpus in (data.train, data.valid)
    )
    for corpus in (train, valid, data.test):
        print(corpus.summary())
    rows = config.batch_size // config.row_length
    padding = {"padding_id": tokenizer.pad_id}
    drawn = {"shuffle_seed": config.seed, "sample": config.sample, "longest": lengths}

    def batches(epoch):
        pairs = encode(train, epoch=epoch, **drawn)
        return packed(pairs, *lengths, rows, config.seed, config.join, epoch=epoch, **padding)

    return data, tokenizer, batches, packed(encode(valid), *lengths, rows, **padding)


def build_model(config, vocab_size):
    """The pre-norm Transformer with one shared table, compiled with Muon; or the published one."""
    if config.pretrained is not None:
        model = start_from(config.pretrained)
        if not isinstance(model, Transformer):
            raise ValueError(f"--pretrained: {config.pretrained} holds no translator.")
        optimizer = config.make_optimizer(AdamW, global_clipnorm=1.0)
        return seq2seq.prepare(config, model, optimizer)
    model = Transformer.from_variant(
        config.variant, vocab_size, dropout=config.dropout, norm_first=True
    )
    optimizer = config.make_optimizer(Muon)
    return seq2seq.prepare(config, model, optimizer)


def draw_positions(folder, model):
    """The similarity of positions to one another."""
    positions = sinusoidal_encoding(np.arange(64), model.get_config()["hidden_dim"])
    with folder.drawing("position_similarity") as path:
        position_similarity(positions, path)


def run(config):
    """Trains, scores on the test set with beam search, exports; returns the metrics."""
    title = "Cross-attention of the last decoder block, mean of its heads"
    return seq2seq.run(
        config, SMOKE, load_data, build_model, "cross_attention", title, draw_positions
    )


if __name__ == "__main__":
    main(run, Config, __doc__)
