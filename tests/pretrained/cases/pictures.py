"""Models of pictures that tests compare with."""

from tests.pretrained.cases.of import of

SMALL_PICTURES = {
    "hidden_size": 12,
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
    "intermediate_size": 20,
    "image_size": 20,
    "patch_size": 4,
    "num_labels": 3,
}
ODD_PICTURES = {
    **SMALL_PICTURES,
    "hidden_size": 20,
    "num_attention_heads": 5,
    "hidden_act": "relu",
    "qkv_bias": False,
    "num_channels": 2,
    "layer_norm_eps": 1e-5,
}
SMALL_SWIN = {
    "image_size": 96,
    "patch_size": 4,
    "embed_dim": 4,
    "depths": [2, 2, 2, 1],
    "num_heads": [1, 2, 2, 4],
    "window_size": 3,
    "num_labels": 3,
}
# Of longer lists their code reads as many as there are stages.
THREE_STAGES = {**SMALL_SWIN, "image_size": 48, "depths": [1, 2, 1]}
FIVE_STAGES = {**SMALL_SWIN, "depths": [1] * 5, "num_heads": [1, 2, 2, 4, 8]}
FIVE_STAGES |= {"pretrained_window_sizes": [0] * 5, "patch_size": 2}
ODD_SWIN = {
    **SMALL_SWIN,
    "depths": [1, 2, 1, 1],
    "num_heads": [2, 4, 4, 8],
    "hidden_act": "gelu_new",
    "qkv_bias": False,
    "mlp_ratio": 3.0,
    "num_channels": 2,
}
SMALL_SEGFORMER = {
    "hidden_sizes": [4, 8, 10, 12],
    "depths": [1, 2, 1, 1],
    "num_attention_heads": [1, 2, 5, 3],
    "sr_ratios": [4, 2, 2, 1],
    "mlp_ratios": [2, 2, 3, 1],
    "num_labels": 3,
}
ODD_SEGMENTS = {
    **SMALL_SEGFORMER,
    "sr_ratios": [8, 4, 2, 2],
    "decoder_hidden_size": 7,
    "classifier_dropout_prob": 0.2,
    "semantic_loss_ignore_index": 2,
    "num_channels": 2,
    "num_labels": 4,
}
SMALL_DETR = {
    "use_timm_backbone": False,
    "use_pretrained_backbone": False,
    "backbone": None,
    "num_labels": 5,
    "num_queries": 7,
    "d_model": 24,
    "encoder_layers": 2,
    "encoder_attention_heads": 3,
    "encoder_ffn_dim": 20,
    "decoder_layers": 1,
    "decoder_attention_heads": 3,
    "decoder_ffn_dim": 20,
}
SMALL_BACKBONE = {
    "embedding_size": 4,
    "hidden_sizes": [16, 32, 64, 128],
    "depths": [1, 2, 1, 1],
    "out_features": ["stage4"],
}
ODD_DETR = {**SMALL_DETR, "d_model": 16, "encoder_attention_heads": 4, "eos_coefficient": 0.2}
ODD_DETR |= {"decoder_attention_heads": 4, "class_cost": 2, "giou_loss_coefficient": 3}
ODD_BACKBONE = {
    "embedding_size": 8,
    "hidden_sizes": [8, 16, 32, 64],
    "depths": [1, 1, 1, 2],
    "layer_type": "basic",
    "out_features": ["stage4"],
}
SMALL_CONDITIONAL = {**SMALL_DETR, "decoder_layers": 2}
ODD_CONDITIONAL = {**ODD_DETR, "encoder_layers": 1, "decoder_layers": 3, "class_cost": 3}
del ODD_CONDITIONAL["eos_coefficient"]
SMALL_DEFORMABLE = {
    **SMALL_CONDITIONAL,
    "d_model": 32,
    "encoder_layers": 1,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "auxiliary_loss": True,
}
SEVERAL_MAPS = {**SMALL_BACKBONE, "out_features": ["stage2", "stage3", "stage4"]}
ODD_DEFORMABLE = {
    **SMALL_DEFORMABLE,
    "with_box_refine": True,
    "num_feature_levels": 3,
    "encoder_layers": 2,
    "encoder_n_points": 3,
    "decoder_n_points": 2,
    "decoder_attention_heads": 2,
    "decoder_ffn_dim": 24,
    "class_cost": 3,
    "giou_loss_coefficient": 3,
    "auxiliary_loss": False,
}
TWO_MAPS = {**ODD_BACKBONE, "out_features": ["stage3", "stage4"]}
DEFORMABLE_PROPOSALS = {**SMALL_DEFORMABLE, "with_box_refine": True, "two_stage": True}
DEFORMABLE_PROPOSALS |= {"two_stage_num_proposals": 11}

SMALL_DINOV2 = {
    "hidden_size": 12,
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
    "mlp_ratio": 2,
    "image_size": 20,
    "patch_size": 4,
    "num_labels": 3,
}
ODD_DINOV2 = {
    **SMALL_DINOV2,
    "hidden_size": 20,
    "num_attention_heads": 5,
    "use_swiglu_ffn": True,
    "qkv_bias": False,
    "num_channels": 2,
    "layer_norm_eps": 1e-5,
}

SMALL_BEIT = {**SMALL_PICTURES, "use_relative_position_bias": True}
ODD_BEIT = {
    **SMALL_BEIT,
    "hidden_size": 20,
    "num_attention_heads": 5,
    "hidden_act": "relu",
    "num_channels": 2,
    "layer_norm_eps": 1e-5,
    "use_relative_position_bias": False,
    "use_absolute_position_embeddings": True,
    "layer_scale_init_value": 0.0,
    "use_mean_pooling": False,
}

CASES = {
    **of(
        "BeitConfig",
        "images",
        {
            "beit": ("BeitForImageClassification", SMALL_BEIT),
            "beit_base": ("BeitModel", SMALL_BEIT),
            "beit_odd": ("BeitForImageClassification", ODD_BEIT),
        },
    ),
    **of(
        "Dinov2Config",
        "images",
        {
            "dinov2": ("Dinov2ForImageClassification", SMALL_DINOV2),
            "dinov2_odd": ("Dinov2ForImageClassification", ODD_DINOV2),
        },
    ),
    # Images of another size than positions were made for, as those on the hub are used.
    **of("Dinov2Config", "images", {"dinov2_base": ("Dinov2Model", SMALL_DINOV2)}, sides=(24, 12)),
    **of(
        "Dinov2WithRegistersConfig",
        "images",
        {"dinov2_registers": ("Dinov2WithRegistersModel", SMALL_DINOV2)},
        sides=(24, 12),
    ),
    **of(
        "Dinov2WithRegistersConfig",
        "images",
        {
            "dinov2_registers_odd": (
                "Dinov2WithRegistersForImageClassification",
                {**ODD_DINOV2, "num_register_tokens": 3},
            )
        },
    ),
    **of(
        "ViTConfig",
        "images",
        {
            "vit": ("ViTForImageClassification", SMALL_PICTURES),
            "vit_base": ("ViTModel", SMALL_PICTURES),
            "vit_odd": ("ViTForImageClassification", ODD_PICTURES),
        },
    ),
    **of(
        "DeiTConfig",
        "images",
        {
            "deit": ("DeiTForImageClassification", SMALL_PICTURES),
            "deit_teacher": ("DeiTForImageClassificationWithTeacher", SMALL_PICTURES),
            "deit_base": ("DeiTModel", SMALL_PICTURES),
            "deit_odd": ("DeiTForImageClassificationWithTeacher", ODD_PICTURES),
        },
    ),
    **of(
        "ViTMAEConfig",
        "images",
        {
            "vit_mae": (
                "ViTMAEForPreTraining",
                {
                    **SMALL_PICTURES,
                    "decoder_hidden_size": 8,
                    "decoder_num_hidden_layers": 1,
                    "decoder_num_attention_heads": 2,
                    "decoder_intermediate_size": 16,
                },
            ),
            "vit_mae_odd": (
                "ViTMAEForPreTraining",
                {
                    **ODD_PICTURES,
                    "decoder_hidden_size": 12,
                    "decoder_num_hidden_layers": 2,
                    "decoder_num_attention_heads": 3,
                    "decoder_intermediate_size": 16,
                    "norm_pix_loss": True,
                    "mask_ratio": 0.5,
                },
            ),
        },
    ),
    **of(
        "SwinConfig",
        "images",
        {
            "swin": ("SwinForImageClassification", SMALL_SWIN),
            "swin_base": ("SwinModel", SMALL_SWIN),
            "swin_three": ("SwinForImageClassification", THREE_STAGES),
            "swin_odd": ("SwinForImageClassification", ODD_SWIN),
        },
    ),
    **of(
        "Swinv2Config",
        "images",
        {
            "swinv2": ("Swinv2ForImageClassification", SMALL_SWIN),
            "swinv2_five": ("Swinv2ForImageClassification", FIVE_STAGES),
            "swinv2_odd": (
                "Swinv2ForImageClassification",
                {**ODD_SWIN, "pretrained_window_sizes": [5, 5, 5, 2]},
            ),
        },
    ),
    **of(
        "SegformerConfig",
        "images",
        {
            "segformer": ("SegformerForImageClassification", SMALL_SEGFORMER),
            "segformer_base": ("SegformerModel", {**SMALL_SEGFORMER, "num_channels": 2}),
        },
        sides=(64, 96),
    ),
    **of(
        "SegformerConfig",
        "images",
        {
            "segformer_segments": (
                "SegformerForSemanticSegmentation",
                {**SMALL_SEGFORMER, "decoder_hidden_size": 6},
            ),
            "segformer_odd_segments": ("SegformerForSemanticSegmentation", ODD_SEGMENTS),
            "segformer_odd_one_class": (
                "SegformerForSemanticSegmentation",
                {**SMALL_SEGFORMER, "decoder_hidden_size": 5, "num_labels": 1},
            ),
        },
        sides=(40, 52),
    ),
    **of(
        "DetrConfig",
        "detr",
        {"detr": ("DetrForObjectDetection", SMALL_DETR)},
        backbone_config=SMALL_BACKBONE,
    ),
    **of(
        "DetrConfig",
        "detr",
        {"detr_odd": ("DetrForObjectDetection", ODD_DETR)},
        backbone_config=ODD_BACKBONE,
    ),
    **of(
        "ConditionalDetrConfig",
        "detr",
        {"conditional_detr": ("ConditionalDetrForObjectDetection", SMALL_CONDITIONAL)},
        backbone_config=SMALL_BACKBONE,
    ),
    **of(
        "ConditionalDetrConfig",
        "detr",
        {"conditional_detr_odd": ("ConditionalDetrForObjectDetection", ODD_CONDITIONAL)},
        backbone_config=ODD_BACKBONE,
    ),
    **of(
        "DeformableDetrConfig",
        "detr",
        {
            "deformable_detr": ("DeformableDetrForObjectDetection", SMALL_DEFORMABLE),
            "deformable_detr_proposals": ("DeformableDetrForObjectDetection", DEFORMABLE_PROPOSALS),
        },
        backbone_config=SEVERAL_MAPS,
    ),
    **of(
        "DeformableDetrConfig",
        "detr",
        {"deformable_detr_odd": ("DeformableDetrForObjectDetection", ODD_DEFORMABLE)},
        backbone_config=TWO_MAPS,
    ),
}
LARGE = {
    **of(
        "BeitConfig",
        "images",
        {
            "beit": (
                "BeitForImageClassification",
                {"num_labels": 1000, "use_relative_position_bias": True},
            )
        },
    ),
    # Features without a last head are large; float32 loses the fourth digit behind the point.
    **of(
        "Dinov2Config",
        "images",
        {"dinov2": ("Dinov2Model", {"image_size": 518})},
        sides=(224, 224),
        precision="float64",
    ),
    **of("ViTConfig", "images", {"vit": ("ViTForImageClassification", {"num_labels": 1000})}),
    **of(
        "DeiTConfig",
        "images",
        {"deit": ("DeiTForImageClassificationWithTeacher", {"num_labels": 1000})},
    ),
    **of("ViTMAEConfig", "images", {"vit_mae": ("ViTMAEForPreTraining", {})}),
    **of("SwinConfig", "images", {"swin": ("SwinForImageClassification", {"num_labels": 1000})}),
    **of(
        "SegformerConfig",
        "images",
        {
            "segformer": ("SegformerForImageClassification", {"num_labels": 1000}),
            "segformer_segments": ("SegformerForSemanticSegmentation", {"num_labels": 150}),
        },
        sides=(224, 224),
    ),
    **of(
        "Swinv2Config",
        "images",
        {
            "swinv2": (
                "Swinv2ForImageClassification",
                {"num_labels": 1000, "image_size": 256, "window_size": 8},
            )
        },
    ),
    **of(
        "DetrConfig",
        "detr",
        {
            "detr": (
                "DetrForObjectDetection",
                {
                    "use_timm_backbone": False,
                    "use_pretrained_backbone": False,
                    "backbone": None,
                    "num_labels": 91,
                },
            )
        },
        backbone_config={"out_features": ["stage4"]},
    ),
    **of(
        "ConditionalDetrConfig",
        "detr",
        {
            "conditional_detr": (
                "ConditionalDetrForObjectDetection",
                {
                    "use_timm_backbone": False,
                    "use_pretrained_backbone": False,
                    "backbone": None,
                    "num_labels": 91,
                },
            )
        },
        backbone_config={"out_features": ["stage4"]},
    ),
    **of(
        "DeformableDetrConfig",
        "detr",
        {
            "deformable_detr": (
                "DeformableDetrForObjectDetection",
                {
                    "use_timm_backbone": False,
                    "use_pretrained_backbone": False,
                    "backbone": None,
                    "num_labels": 91,
                },
            )
        },
        backbone_config={"out_features": ["stage2", "stage3", "stage4"]},
    ),
}
