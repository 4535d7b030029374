"""Makes mae.npz: images, noise, and what a masked autoencoder of transformers makes of them.

    pip install torch==2.13.0 transformers
    python tests/golden/make_mae.py

Written by torch 2.13.0 and transformers 5.23.0. The weights are not in the file:
`tests.published.random_weights` makes them from their names and shapes.
"""

import json
import pathlib
import sys

import numpy as np
import torch
import transformers
import transformers.models.vit_mae.modeling_vit_mae as modeling

sys.path.insert(0, str(pathlib.Path(__file__).parents[2]))
from tests.published import random_weights


def positions(width):
    """The authors' table: sines and cosines of the columns in the first half, of rows after."""
    table = modeling.build_2d_sinusoidal_position_embedding(5, 5, width, cls_token=True)
    return torch.roll(table, width // 2, dims=-1)[None]


def main():
    torch.manual_seed(5)
    model = transformers.ViTMAEForPreTraining(
        transformers.ViTMAEConfig(
            image_size=20,
            patch_size=4,
            hidden_size=12,
            num_hidden_layers=2,
            num_attention_heads=3,
            intermediate_size=20,
            decoder_hidden_size=8,
            decoder_num_hidden_layers=2,
            decoder_num_attention_heads=2,
            decoder_intermediate_size=14,
            layer_norm_eps=1e-6,
            norm_pix_loss=True,
            mask_ratio=0.7,
        )
    ).eval()
    # Not the fixed positions, which the constructor leaves at zero.
    shapes = {
        key: list(value.shape)
        for key, value in model.named_parameters()
        if "position_embeddings" not in key and "pos_embed" not in key
    }
    weights = random_weights(shapes)
    with torch.no_grad():
        for key in shapes:
            model.get_parameter(key).copy_(torch.tensor(weights[key]))
        for table in (model.vit.embeddings.position_embeddings, model.decoder.decoder_pos_embed):
            table.copy_(positions(table.shape[-1]))
        images, noise = torch.randn(2, 3, 20, 20), torch.rand(2, 25)
        result = model(images, noise=noise)
    arrays = {
        "images": images.permute(0, 2, 3, 1).numpy(),
        "noise": noise.numpy(),
        "patches": result.logits.numpy(),
        "masked": result.mask.numpy(),
        "loss": result.loss.numpy(),
        "positions": model.vit.embeddings.position_embeddings.detach().numpy(),
        "decoder_positions": model.decoder.decoder_pos_embed.detach().numpy(),
        "shapes": np.array(json.dumps(shapes)),
    }
    np.savez_compressed(pathlib.Path(__file__).with_name("mae.npz"), **arrays)


if __name__ == "__main__":
    main()
