"""Models of images and texts that tests compare with."""

from tests.pretrained.cases.of import of

OF_TEXTS = {
    "vocab_size": 31,
    "hidden_size": 12,
    "intermediate_size": 20,
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
    "max_position_embeddings": 11,
}
OF_IMAGES = {
    "hidden_size": 16,
    "intermediate_size": 20,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "image_size": 20,
    "patch_size": 4,
}
ODD_IMAGES = {**OF_IMAGES, "hidden_act": "gelu", "num_channels": 2, "layer_norm_eps": 1e-6}
# END is the greatest id of each text, as in the first files; or a token, and padding is its copy.
CLIP = {"projection_dim": 10, "text_config": {**OF_TEXTS, "eos_token_id": 2}}
CLIP |= {"vision_config": OF_IMAGES}
ODD_CLIP = {
    "projection_dim": 7,
    "text_config": {**OF_TEXTS, "hidden_act": "relu", "eos_token_id": 5, "layer_norm_eps": 1e-6},
    "vision_config": ODD_IMAGES,
}

# Of the pictures some columns and rows fill no patch, as in those of 384 pixels on the hub.
SIGLIP = {"text_config": {**OF_TEXTS, "projection_size": 16}}
SIGLIP |= {"vision_config": {**OF_IMAGES, "image_size": 23}}
ODD_SIGLIP = {
    "text_config": {**OF_TEXTS, "hidden_act": "relu", "pad_token_id": 5, "layer_norm_eps": 1e-5},
    "vision_config": {**ODD_IMAGES, "hidden_size": 12, "num_attention_heads": 3},
}

CASES = {
    **of("CLIPConfig", "pairs", {"clip": ("CLIPModel", CLIP)}, end_id=30),
    **of("CLIPConfig", "pairs", {"clip_odd": ("CLIPModel", ODD_CLIP)}, end_id=5),
    **of("SiglipConfig", "pairs", {"siglip": ("SiglipModel", SIGLIP)}, end_id=1),
    **of("SiglipConfig", "pairs", {"siglip_odd": ("SiglipModel", ODD_SIGLIP)}, end_id=5),
}
LARGE = {
    **of("CLIPConfig", "pairs", {"clip": ("CLIPModel", {})}, end_id=49407),
    # Texts of 64 ids, which are all that its encoder takes.
    **of("SiglipConfig", "pairs", {"siglip": ("SiglipModel", {})}, end_id=1, length=64),
}
