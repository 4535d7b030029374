"""Encoders of text that tests compare with."""

from tests.pretrained.cases.of import of, of_spans

SMALL_TEXT = {
    "vocab_size": 31,
    "hidden_size": 12,
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
    "intermediate_size": 20,
    "max_position_embeddings": 17,
    "num_labels": 3,
}
ODD_TEXT = {
    **SMALL_TEXT,
    "hidden_size": 20,
    "num_hidden_layers": 1,
    "num_attention_heads": 5,
    "hidden_act": "gelu_new",
    "type_vocab_size": 3,
    "layer_norm_eps": 1e-5,
}
SMALL_ROBERTA = {**SMALL_TEXT, "type_vocab_size": 1, "pad_token_id": 1}
ODD_ROBERTA = {**ODD_TEXT, "pad_token_id": 1}
SMALL_DISTIL = {
    "vocab_size": 31,
    "dim": 12,
    "n_layers": 2,
    "n_heads": 3,
    "hidden_dim": 20,
    "max_position_embeddings": 17,
    "num_labels": 3,
}
SMALL_ELECTRA = {**SMALL_TEXT, "embedding_size": 8}
ODD_ELECTRA = {**ODD_TEXT, "embedding_size": 20}  # as wide as the blocks: no projection
SMALL_MODERN = {
    "vocab_size": 31,
    "hidden_size": 12,
    "num_hidden_layers": 2,  # a global one and a local one
    "num_attention_heads": 3,
    "intermediate_size": 20,
    "local_attention": 5,
    "pad_token_id": 0,
    "num_labels": 3,
}
ODD_MODERN = {
    **SMALL_MODERN,
    "hidden_size": 20,
    "num_hidden_layers": 3,
    "num_attention_heads": 5,
    "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
    "rope_parameters": {
        "full_attention": {"rope_type": "default", "rope_theta": 1000.0},
        "sliding_attention": {"rope_type": "default", "rope_theta": 50.0},
    },
    "local_attention": 2,
    "hidden_activation": "silu",
    "norm_eps": 1e-3,
    "norm_bias": True,
    "attention_bias": True,
    "mlp_bias": True,
    "classifier_bias": True,
    "classifier_pooling": "mean",
    "classifier_activation": "relu",
}
OF_SPANS_MODERN = of_spans({**ODD_MODERN, "classifier_pooling": "cls"})
ODD_DISTIL = {**SMALL_DISTIL, "dim": 20, "n_heads": 5, "activation": "relu"}

CASES = {
    **of(
        "ModernBertConfig",
        "text",
        {
            "modernbert": ("ModernBertModel", SMALL_MODERN),
            "modernbert_masked": ("ModernBertForMaskedLM", SMALL_MODERN),
            "modernbert_tags": ("ModernBertForTokenClassification", SMALL_MODERN),
            "modernbert_answers": ("ModernBertForQuestionAnswering", OF_SPANS_MODERN),
            "modernbert_odd": ("ModernBertForSequenceClassification", ODD_MODERN),
            "modernbert_odd_masked": (
                "ModernBertForMaskedLM",
                {**ODD_MODERN, "classifier_pooling": "cls"},
            ),
        },
    ),
    **of(
        "ElectraConfig",
        "text",
        {
            "electra": ("ElectraModel", SMALL_ELECTRA),
            "electra_masked": ("ElectraForMaskedLM", {**SMALL_ELECTRA, "hidden_act": "relu"}),
            "electra_classes": ("ElectraForSequenceClassification", SMALL_ELECTRA),
            "electra_tags": ("ElectraForTokenClassification", SMALL_ELECTRA),
            "electra_answers": ("ElectraForQuestionAnswering", of_spans(SMALL_ELECTRA)),
            "electra_detects": ("ElectraForPreTraining", {**SMALL_ELECTRA, "hidden_act": "relu"}),
            "electra_odd": ("ElectraForMaskedLM", ODD_ELECTRA),
        },
    ),
    **of(
        "BertConfig",
        "text",
        {
            "bert": ("BertModel", SMALL_TEXT),
            "bert_masked": ("BertForMaskedLM", SMALL_TEXT),
            "bert_classes": ("BertForSequenceClassification", SMALL_TEXT),
            "bert_tags": ("BertForTokenClassification", SMALL_TEXT),
            "bert_answers": ("BertForQuestionAnswering", of_spans(SMALL_TEXT)),
            "bert_odd": ("BertForMaskedLM", ODD_TEXT),
        },
    ),
    **of(
        "DistilBertConfig",
        "text",
        {
            "distilbert": ("DistilBertModel", SMALL_DISTIL),
            "distilbert_masked": ("DistilBertForMaskedLM", SMALL_DISTIL),
            "distilbert_classes": ("DistilBertForSequenceClassification", SMALL_DISTIL),
            "distilbert_tags": ("DistilBertForTokenClassification", SMALL_DISTIL),
            "distilbert_answers": ("DistilBertForQuestionAnswering", of_spans(SMALL_DISTIL)),
            "distilbert_odd": ("DistilBertForMaskedLM", ODD_DISTIL),
        },
    ),
    **of(
        "RobertaConfig",
        "text",
        {
            "roberta": ("RobertaModel", SMALL_ROBERTA),
            "roberta_masked": ("RobertaForMaskedLM", SMALL_ROBERTA),
            "roberta_classes": ("RobertaForSequenceClassification", SMALL_ROBERTA),
            "roberta_tags": ("RobertaForTokenClassification", SMALL_ROBERTA),
            "roberta_answers": ("RobertaForQuestionAnswering", of_spans(SMALL_ROBERTA)),
            "roberta_odd": ("RobertaForMaskedLM", ODD_ROBERTA),
        },
    ),
    **of(
        "XLMRobertaConfig",
        "text",
        {
            "xlm_roberta": ("XLMRobertaForMaskedLM", SMALL_ROBERTA),
            "xlm_roberta_odd": ("XLMRobertaForSequenceClassification", ODD_ROBERTA),
        },
        family="xlm-roberta",  # to be written as such: it computes what RoBERTa does
    ),
}
# The defaults of the configuration are not those of the published one.
XLM_R = {
    "vocab_size": 250002,
    "pad_token_id": 1,
    "max_position_embeddings": 514,
    "type_vocab_size": 1,
    "layer_norm_eps": 1e-5,
}
MODERN = {"vocab_size": 50368, "pad_token_id": 50283}
LARGE = {
    **of("BertConfig", "text", {"bert": ("BertForMaskedLM", {})}),
    **of("DistilBertConfig", "text", {"distilbert": ("DistilBertForMaskedLM", {})}),
    **of("XLMRobertaConfig", "text", {"xlm_roberta": ("XLMRobertaModel", XLM_R)}),
    **of("ElectraConfig", "text", {"electra": ("ElectraForPreTraining", {})}),
    **of("ModernBertConfig", "text", {"modernbert": ("ModernBertForMaskedLM", MODERN)}),
}
