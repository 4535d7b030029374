"""RoBERTa (Liu et al. 2019) and XLM-R (Conneau et al. 2020)."""

from keras_transformers.models import TextEncoder
from keras_transformers.pretrained.bert import (
    STYLE,
    bert_layers,
    bert_settings,
    bert_weights,
    classes,
    embeddings,
    make_encoder,
)
from keras_transformers.pretrained.configuration import Configuration
from keras_transformers.pretrained.family import Family
from keras_transformers.pretrained.heads import OF_ENCODERS, of_texts
from keras_transformers.pretrained.text_parts import encoder_keywords
from keras_transformers.pretrained.weight_mapping import WeightMapping, linear, norm

RESTORING = "gelu"  # of the head that restores tokens, whatever the blocks have
MAPPINGS = [
    *embeddings("roberta.embeddings", "lm_head.decoder.weight"),
    *bert_layers("roberta"),
    *linear("head/transform", "lm_head.dense"),
    *norm("head/norm", "lm_head.layer_norm"),
    WeightMapping("head/bias", "lm_head.bias", also=("lm_head.decoder.bias",)),
]


def _family(name: str, title: str, vocab_size: int) -> Family:
    """A family of RoBERTa's kind.

    Args:
        name: Its `model_type`.
        title: What the names of the published classes begin with.
        vocab_size: Size of the vocabulary where nothing is said.
    """
    configuration = Configuration(
        name=name,
        settings=bert_settings(vocab_size),
        # The position of padding is its id, and the first token has the one after it.
        fixed={**STYLE, "padding_id": 1, "first_position": 2, "pooler_activation": "tanh"},
        settled={"position_embedding_type": ("absolute",), "pad_token_id": (1,)},
        without_effect=frozenset({"classifier_dropout", "output_past"}),
    )
    return Family(
        configuration=configuration,
        weights=bert_weights("roberta", title, lambda model: [*MAPPINGS, *classes(model)]),
        model=TextEncoder,
        **of_texts(title, OF_ENCODERS),
        make=lambda arguments: make_encoder(arguments, RESTORING),
        arguments=lambda model: encoder_keywords(model, RESTORING),
    )


ROBERTA = _family("roberta", "Roberta", 50265)
XLM_ROBERTA = _family("xlm-roberta", "XLMRoberta", 30522)
