"""Makes vit.npz: random ViTs of timm and of transformers, an image, and what they make of it.

    pip install torch==2.13.0 transformers timm
    python tests/golden/make_vit.py

Written by torch 2.13.0, transformers 5.23.0 and timm 1.0.31. (Where torchvision has no build for
the torch at hand, stand-ins for its modules must be imported before timm.)
"""

import pathlib

import numpy as np
import timm.models.vision_transformer as vision_transformer
import torch
import transformers

WIDTH, HEADS, MLP, LAYERS, CLASSES, PATCH = 15, 3, 30, 2, 7, 4
SIZE = (12, 20)


def scattered(model):
    """The model with weights far from their initial zeros and ones."""
    torch.manual_seed(11)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return model.eval()


def timm_model(**options):
    return vision_transformer.VisionTransformer(
        img_size=SIZE,
        patch_size=PATCH,
        num_classes=CLASSES,
        embed_dim=WIDTH,
        depth=LAYERS,
        num_heads=HEADS,
        mlp_ratio=MLP / WIDTH,
        **options,
    )


def huggingface_model():
    return transformers.ViTForImageClassification(
        transformers.ViTConfig(
            image_size=SIZE,
            patch_size=PATCH,
            hidden_size=WIDTH,
            num_hidden_layers=LAYERS,
            num_attention_heads=HEADS,
            intermediate_size=MLP,
            num_labels=CLASSES,
            layer_norm_eps=1e-6,
        )
    )


def main():
    torch.manual_seed(5)
    image = torch.randn(2, 3, *SIZE)
    arrays = {"image": image.permute(0, 2, 3, 1).numpy()}
    models = {
        "timm_token": timm_model(),
        "timm_mean": timm_model(global_pool="avg"),
        "timm_mean_only": timm_model(global_pool="avg", class_token=False),
        "timm_attention": timm_model(global_pool="map", class_token=False),
        "huggingface_token": huggingface_model(),
    }
    for name, model in models.items():
        model = scattered(model)
        with torch.no_grad():
            result = model(image)
        arrays[f"{name}/logits"] = getattr(result, "logits", result).numpy()
        for key, tensor in model.state_dict().items():
            arrays[f"{name}/{key}"] = tensor.numpy()
    table = torch.randn(1, 5, 7, 6)  # (1, width, rows, columns)
    arrays["grid/7x6"] = table[0].permute(1, 2, 0).numpy()
    for new in ((10, 9), (3, 4), (7, 11)):
        resized = torch.nn.functional.interpolate(table, size=new, mode="bicubic", antialias=True)
        arrays[f"grid/{new[0]}x{new[1]}"] = resized[0].permute(1, 2, 0).numpy()
    path = pathlib.Path(__file__).with_name("vit.npz")
    np.savez_compressed(path, **{name: np.float32(array) for name, array in arrays.items()})
    print(path, path.stat().st_size, [key for key in arrays if key.startswith("timm_attention")])


if __name__ == "__main__":
    main()
