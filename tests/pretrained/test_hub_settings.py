"""Claims about `config.json` as it stands on the hub: all that is in it is known."""

import pytest

from keras_transformers.pretrained.folder import FAMILIES

OPUS = {
    "_num_labels": 3, "activation_dropout": 0.0, "activation_function": "swish",
    "add_bias_logits": False, "add_final_layer_norm": False, "architectures": ["MarianMTModel"],
    "attention_dropout": 0.0, "bad_words_ids": [[58100]], "bos_token_id": 0,
    "classif_dropout": 0.0, "classifier_dropout": 0.0, "d_model": 512,
    "decoder_attention_heads": 8, "decoder_ffn_dim": 2048, "decoder_layerdrop": 0.0,
    "decoder_layers": 6, "decoder_start_token_id": 58100, "decoder_vocab_size": 58101,
    "dropout": 0.1, "encoder_attention_heads": 8, "encoder_ffn_dim": 2048,
    "encoder_layerdrop": 0.0, "encoder_layers": 6, "eos_token_id": 0,
    "forced_eos_token_id": 0, "id2label": {"0": "LABEL_0", "1": "LABEL_1", "2": "LABEL_2"},
    "init_std": 0.02, "is_encoder_decoder": True,
    "label2id": {"LABEL_0": 0, "LABEL_1": 1, "LABEL_2": 2}, "max_length": 512,
    "max_position_embeddings": 512, "model_type": "marian", "normalize_before": False,
    "normalize_embedding": False, "num_beams": 6, "num_hidden_layers": 6,
    "pad_token_id": 58100, "scale_embedding": True, "share_encoder_decoder_embeddings": True,
    "static_position_embeddings": True, "transformers_version": "4.22.0.dev0",
    "use_cache": True, "vocab_size": 58101,
}
BERT = {
    "architectures": ["BertForMaskedLM"], "attention_probs_dropout_prob": 0.1,
    "gradient_checkpointing": False, "hidden_act": "gelu", "hidden_dropout_prob": 0.1,
    "hidden_size": 768, "initializer_range": 0.02, "intermediate_size": 3072,
    "layer_norm_eps": 1e-12, "max_position_embeddings": 512, "model_type": "bert",
    "num_attention_heads": 12, "num_hidden_layers": 12, "pad_token_id": 0,
    "position_embedding_type": "absolute", "transformers_version": "4.6.0.dev0",
    "type_vocab_size": 2, "use_cache": True, "vocab_size": 30522, "directionality": "bidi",
    "pooler_fc_size": 768, "pooler_num_attention_heads": 12, "pooler_num_fc_layers": 3,
    "pooler_size_per_head": 128, "pooler_type": "first_token_transform",
}
DISTILBERT = {
    "activation": "gelu", "architectures": ["DistilBertForMaskedLM"], "attention_dropout": 0.1,
    "dim": 768, "dropout": 0.1, "hidden_dim": 3072, "initializer_range": 0.02,
    "max_position_embeddings": 512, "model_type": "distilbert", "n_heads": 12, "n_layers": 6,
    "pad_token_id": 0, "qa_dropout": 0.1, "seq_classif_dropout": 0.2,
    "sinusoidal_pos_embds": False, "tie_weights_": True, "transformers_version": "4.10.0.dev0",
    "vocab_size": 30522,
}
GPT2 = {
    "activation_function": "gelu_new", "architectures": ["GPT2LMHeadModel"], "attn_pdrop": 0.1,
    "bos_token_id": 50256, "embd_pdrop": 0.1, "eos_token_id": 50256, "initializer_range": 0.02,
    "layer_norm_epsilon": 1e-05, "model_type": "gpt2", "n_ctx": 1024, "n_embd": 768,
    "n_head": 12, "n_layer": 12, "n_positions": 1024, "resid_pdrop": 0.1,
    "summary_activation": None, "summary_first_dropout": 0.1, "summary_proj_to_labels": True,
    "summary_type": "cls_index", "summary_use_proj": True,
    "task_specific_params": {"text-generation": {"do_sample": True, "max_length": 50}},
    "vocab_size": 50257,
}
VIT = {
    "_name_or_path": "google/vit-base-patch16-224-in21k",
    "architectures": ["ViTForImageClassification"], "attention_probs_dropout_prob": 0.0,
    "encoder_stride": 16, "hidden_act": "gelu", "hidden_dropout_prob": 0.0, "hidden_size": 768,
    "id2label": {"0": "tench", "1": "goldfish"}, "image_size": 224, "initializer_range": 0.02,
    "intermediate_size": 3072, "label2id": {"tench": 0, "goldfish": 1},
    "layer_norm_eps": 1e-12, "model_type": "vit", "num_attention_heads": 12, "num_channels": 3,
    "num_hidden_layers": 12, "patch_size": 16, "qkv_bias": True,
    "transformers_version": "4.13.0.dev0",
}
DEIT = {
    **VIT, "model_type": "deit", "architectures": ["DeiTForImageClassificationWithTeacher"],
    "_name_or_path": "", "torch_dtype": "float32",
}
MAE = {
    **VIT, "model_type": "vit_mae", "architectures": ["ViTMAEForPreTraining"],
    "decoder_hidden_size": 512, "decoder_intermediate_size": 2048,
    "decoder_num_attention_heads": 16, "decoder_num_hidden_layers": 8, "mask_ratio": 0.75,
    "norm_pix_loss": False,
}
SWIN = {
    "architectures": ["SwinForImageClassification"], "attention_probs_dropout_prob": 0.0,
    "depths": [2, 2, 6, 2], "drop_path_rate": 0.1, "embed_dim": 96, "encoder_stride": 32,
    "hidden_act": "gelu", "hidden_dropout_prob": 0.0, "hidden_size": 768, "image_size": 224,
    "initializer_range": 0.02, "layer_norm_eps": 1e-05, "mlp_ratio": 4.0, "model_type": "swin",
    "num_channels": 3, "num_heads": [3, 6, 12, 24], "num_layers": 4, "patch_size": 4,
    "path_norm": True, "qkv_bias": True, "torch_dtype": "float32",
    "transformers_version": "4.20.0.dev0", "use_absolute_embeddings": False, "window_size": 7,
}
SWINV2 = {
    **SWIN, "model_type": "swinv2", "architectures": ["Swinv2ForImageClassification"],
    "image_size": 256, "window_size": 8, "pretrained_window_sizes": [0, 0, 0, 0],
}
DETR = {
    "_name_or_path": "", "activation_dropout": 0.0, "activation_function": "relu",
    "architectures": ["DetrForObjectDetection"], "attention_dropout": 0.0,
    "auxiliary_loss": False, "backbone": "resnet50", "backbone_config": None,
    "backbone_kwargs": {"in_chans": 3, "out_indices": [1, 2, 3, 4]}, "bbox_cost": 5,
    "bbox_loss_coefficient": 5, "class_cost": 1, "classifier_dropout": 0.0, "d_model": 256,
    "decoder_attention_heads": 8, "decoder_ffn_dim": 2048, "decoder_layerdrop": 0.0,
    "decoder_layers": 6, "dice_loss_coefficient": 1, "dilation": False, "dropout": 0.1,
    "encoder_attention_heads": 8, "encoder_ffn_dim": 2048, "encoder_layerdrop": 0.0,
    "encoder_layers": 6, "eos_coefficient": 0.1, "giou_cost": 2, "giou_loss_coefficient": 2,
    "id2label": {"0": "N/A", "1": "person"}, "init_std": 0.02, "init_xavier_std": 1.0,
    "is_encoder_decoder": True, "label2id": {"N/A": 0, "person": 1}, "mask_loss_coefficient": 1,
    "max_position_embeddings": 1024, "model_type": "detr", "num_channels": 3,
    "num_hidden_layers": 6, "num_queries": 100, "position_embedding_type": "sine",
    "scale_embedding": False, "use_pretrained_backbone": True, "use_timm_backbone": True,
}


@pytest.mark.parametrize(
    "config",
    [OPUS, BERT, DISTILBERT, GPT2, VIT, DEIT, MAE, SWIN, SWINV2, DETR],
    ids=lambda config: config["model_type"],
)
def test_settings_of_the_hub_are_known(config):
    family = FAMILIES[config["model_type"]]
    assert family.read(config, "config.json")
    assert set(config["architectures"]) <= set(family.architectures)
