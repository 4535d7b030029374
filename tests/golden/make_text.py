"""Makes text.npz: random BERT, GPT-2 and Llama models of transformers, ids, and what they say.

    pip install torch==2.13.0 transformers
    python tests/golden/make_text.py

Written by torch 2.13.0 and transformers 5.23.0.
"""

import pathlib

import numpy as np
import torch
import transformers

VOCAB, WIDTH, HEADS, MLP, LAYERS, LENGTH = 43, 24, 4, 29, 2, 13
CLASSES, TAGS = 5, 7


def scattered(model):
    """The model with weights far from their initial zeros and ones."""
    torch.manual_seed(11)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    return model.eval()


def bert(head, **options):
    return head(
        transformers.BertConfig(
            vocab_size=VOCAB,
            hidden_size=WIDTH,
            num_hidden_layers=LAYERS,
            num_attention_heads=HEADS,
            intermediate_size=MLP,
            max_position_embeddings=LENGTH + 2,
            **options,
        )
    )


def gpt2():
    return transformers.GPT2LMHeadModel(
        transformers.GPT2Config(
            vocab_size=VOCAB,
            n_embd=WIDTH,
            n_layer=LAYERS,
            n_head=HEADS,
            n_inner=MLP,
            n_positions=LENGTH + 2,
        )
    )


def llama():
    return transformers.LlamaForCausalLM(
        transformers.LlamaConfig(
            vocab_size=VOCAB,
            hidden_size=WIDTH,
            num_hidden_layers=LAYERS,
            num_attention_heads=HEADS,
            num_key_value_heads=2,
            intermediate_size=MLP,
            rms_norm_eps=1e-5,
            tie_word_embeddings=True,
            max_position_embeddings=64,
        )
    )


def main():
    torch.manual_seed(5)
    ids = torch.randint(1, VOCAB, (3, LENGTH))
    ids[1, 8:], ids[2, 11:] = 0, 0
    token_types = torch.randint(0, 2, ids.shape)
    mask = (ids != 0).long()
    arrays = {"ids": ids.numpy(), "token_types": token_types.numpy()}
    common = {"attention_mask": mask, "token_type_ids": token_types}
    models = {
        "masked_language": (bert(transformers.BertForMaskedLM), common),
        "classification": (
            bert(transformers.BertForSequenceClassification, num_labels=CLASSES),
            common,
        ),
        "tagging": (bert(transformers.BertForTokenClassification, num_labels=TAGS), common),
        "gpt2": (gpt2(), {"attention_mask": mask}),
        "llama": (llama(), {"attention_mask": mask}),
    }
    for name, (model, arguments) in models.items():
        scattered(model)
        with torch.no_grad():
            arrays[f"{name}/logits"] = model(ids, **arguments).logits.numpy()
        for weight, value in model.state_dict().items():
            arrays[f"{name}/{weight}"] = value.numpy()
    np.savez_compressed(pathlib.Path(__file__).with_name("text.npz"), **arrays)


if __name__ == "__main__":
    main()
