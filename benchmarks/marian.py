"""The same weights in our `Transformer` and in Hugging Face's MarianMT, which are one network.

Of pre-norm blocks, which Marian has not, in Pegasus, which differs from it in that alone. Nothing
here imports our library or TensorFlow.
"""

import math

import numpy as np


def random_weights(model, seed=1):
    """Weights for a built `Transformer`, as a dict of paths; nothing ever chooses padding or END.

    Large enough that what comes out depends on what went in, as in a trained model.
    """
    rng = np.random.default_rng(seed)

    def value(weight):
        noise = rng.normal(size=weight.shape).astype("float32")
        if weight.path.endswith("output/kernel"):  # twice as large, or tokens repeat themselves
            return 2 * noise / math.sqrt(np.prod(weight.shape[:-1]))
        if weight.path.endswith("kernel"):
            return noise / math.sqrt(weight.shape[0])
        if weight.path.endswith("token_embedding"):
            noise[[0, 2]] = 0
            return noise / math.sqrt(weight.shape[1])
        return weight.path.endswith("gamma") + 0.1 * noise

    return {weight.path.split("/", 1)[1]: value(weight) for weight in model.weights}


def set_epsilon(model, epsilon):
    """Gives every layer norm of a Keras model this epsilon: other libraries have another."""
    for layer in model._flatten_layers():
        if type(layer).__name__ == "LayerNormalization":
            layer.epsilon = epsilon


ATTENTION = {"query": "q_proj", "key": "k_proj", "value": "v_proj", "attention_output": "out_proj"}
POSITIONS = {
    "mixer": "self_attn",
    "cross_attention": "encoder_attn",
    "mixer_norm": "self_attn_layer_norm",
    "cross_attention_norm": "encoder_attn_layer_norm",
    "feed_forward_norm": "final_layer_norm",
    "feed_forward/hidden": "fc1",
    "feed_forward/output": "fc2",
}
STACK_NORM = {"encoder_norm": "encoder", "decoder_norm": "decoder"}  # of pre-norm stacks
LAST = {"kernel": "weight", "gamma": "weight", "bias": "bias", "beta": "bias"}


def marian(settings, weights):
    """`transformers.MarianMTModel` of a `Transformer`'s `transformer_keywords`, with these weights.

    `PegasusForConditionalGeneration` where the settings say `norm_first`. None leaves its own first
    weights.
    """
    import torch

    model = _new(settings)
    if weights is None:
        return model
    state = model.state_dict()
    embedding = weights["source_embedding/token_embedding"]
    table = sinusoidal(model.config.max_position_embeddings, model.config.d_model)
    for name in state:
        if name.endswith(("embed_tokens.weight", "shared.weight", "lm_head.weight")):
            state[name] = torch.tensor(embedding)
        elif name.endswith("embed_positions.weight"):  # ours, not sines before cosines
            state[name] = torch.tensor(table)
    for path, value in weights.items():
        if not path.startswith("source_embedding"):
            name, value = _renamed(path, value)
            assert state[name].shape == value.shape, name
            state[name] = torch.tensor(np.ascontiguousarray(value))
    model.load_state_dict(state)
    return model


def sinusoidal(length, width):
    """Our table of positions, sines and cosines in turn, without our library, float32."""
    angles = np.arange(length)[:, None] / 10000 ** (np.arange(0, width, 2) / width)
    table = np.stack([np.sin(angles), np.cos(angles)], axis=-1)
    return table.reshape(length, width).astype("float32")


def _new(settings):
    """The model of transformers, with its own first weights."""
    import transformers

    layers, heads = settings["num_layers"], settings["num_heads"]
    sizes = {
        "vocab_size": settings["vocab_size"],
        "d_model": settings["hidden_dim"],
        "encoder_layers": layers,
        "decoder_layers": layers,
        "encoder_attention_heads": heads,
        "decoder_attention_heads": heads,
        "encoder_ffn_dim": settings["mlp_dim"],
        "decoder_ffn_dim": settings["mlp_dim"],
        "activation_function": "relu",
        "dropout": settings["dropout"],
        "attention_dropout": 0.0,
        "activation_dropout": 0.0,
        "scale_embedding": True,
        "pad_token_id": 0,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "forced_eos_token_id": None,
        "decoder_start_token_id": 1,
    }
    if settings.get("norm_first"):
        config = transformers.PegasusConfig(**sizes)
        return transformers.PegasusForConditionalGeneration(config)
    return transformers.MarianMTModel(transformers.MarianConfig(**sizes))


def _renamed(path, value):
    """The name of a weight in transformers, and its value in that shape."""
    block, _, rest = path.partition("/")
    if block in STACK_NORM:
        return f"model.{STACK_NORM[block]}.layer_norm.{LAST[rest]}", value
    side, _, number = block.partition("_")
    position, last = rest.rsplit("/", 1)
    if position.endswith(tuple(ATTENTION)):
        part, _, projection = position.rpartition("/")
        name = f"{POSITIONS[part]}.{ATTENTION[projection]}"
        width = value.shape[-1] if projection == "attention_output" else value.shape[0]
        if last == "kernel":
            joined = (-1, width) if projection == "attention_output" else (width, -1)
            value = value.reshape(joined)
        else:
            value = value.reshape(-1)
    else:
        name = POSITIONS[position]
    value = value.T if last == "kernel" else value
    return f"model.{side}.layers.{number}.{name}.{LAST[last]}", value
