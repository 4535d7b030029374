"""Every key of `transformers.GenerationConfig` (version 5), and what becomes of it here."""

from typing import Any, NamedTuple

IMITATED = "is imitated"


class Only(NamedTuple):
    """A key that no search of ours imitates.

    Args:
        values: Those that change nothing, besides null; others are refused.
        mode: "sampling", "greedy" or "beams" where the key is read there alone.
    """

    values: tuple[Any, ...] = ()
    mode: str | None = None


CACHES = ("dynamic", "static", "offloaded", "offloaded_static", "sliding_window", "hybrid")
CACHES += ("hybrid_chunked", "offloaded_hybrid", "offloaded_hybrid_chunked", "paged")
COST = "changes the cost, not the tokens"
SPECULATION = "of speculation, which gives the same tokens, or draws from the same distribution"
LIMIT = "is what a caller asks for: `max_length` of `generate`, `new_tokens` of `TextGenerator`"
RESULTS = "is about what else is returned"
RECORD = "is a record of how the file came about"

KEYS = {
    # which search
    "num_beams": IMITATED,
    "do_sample": IMITATED,
    "early_stopping": IMITATED,
    "length_penalty": IMITATED,
    "num_return_sequences": IMITATED,
    "temperature": IMITATED,
    "top_k": IMITATED,
    "top_p": IMITATED,
    "min_p": IMITATED,
    "top_h": Only(mode="sampling"),
    "typical_p": Only((1.0,), "sampling"),
    "epsilon_cutoff": Only((0.0,), "sampling"),
    "eta_cutoff": Only((0.0,), "sampling"),
    "penalty_alpha": Only((0.0,), "greedy"),
    "num_beam_groups": Only((1,), "beams"),
    "diversity_penalty": "is read with `num_beam_groups` alone",
    "dola_layers": Only(),
    # which tokens
    "min_length": IMITATED,
    "min_new_tokens": IMITATED,
    "no_repeat_ngram_size": IMITATED,
    "bad_words_ids": IMITATED,
    "suppress_tokens": IMITATED,
    "begin_suppress_tokens": IMITATED,
    "forced_bos_token_id": IMITATED,
    "forced_eos_token_id": IMITATED,
    "eos_token_id": IMITATED,
    "renormalize_logits": IMITATED,
    "repetition_penalty": IMITATED,
    "encoder_repetition_penalty": Only((1.0,)),
    "encoder_no_repeat_ngram_size": Only((0,)),
    "exponential_decay_length_penalty": Only(),
    "sequence_bias": Only(),
    "constraints": Only(),
    "force_words_ids": Only(),
    "guidance_scale": Only((1.0,)),
    "watermarking_config": Only(),
    "token_healing": Only((False,)),
    "remove_invalid_values": "concerns NaN and infinity, which sound weights do not give",
    # how long
    "max_length": LIMIT,
    "max_new_tokens": LIMIT,
    "max_time": Only(),
    "stop_strings": "is read by `load`: `stop_strings` of `TextGenerator`",
    # ids
    "pad_token_id": "stands behind END, where ours has `padding_id`, which is never chosen",
    "bos_token_id": "is the tokenizer's `start_id`",
    "decoder_start_token_id": IMITATED,
    # speculation
    "use_mtp": SPECULATION,
    "prompt_lookup_num_tokens": SPECULATION,
    "max_matching_ngram_size": SPECULATION,
    "num_assistant_tokens": SPECULATION,
    "num_assistant_tokens_schedule": SPECULATION,
    "assistant_confidence_threshold": SPECULATION,
    "assistant_early_exit": SPECULATION,
    "assistant_lookbehind": SPECULATION,
    "target_lookbehind": SPECULATION,
    "speculation_type": SPECULATION,
    "assistant_ensemble_weight": Only(),
    "is_assistant": Only((False,)),
    # cost
    "use_cache": COST,
    "cache_implementation": Only(CACHES),  # not "quantized", which rounds
    "cache_config": 'is read with the "quantized" cache alone',
    "max_cache_len": COST,
    "prefill_chunk_size": COST,
    "low_memory": COST,
    "compile_config": COST,
    "disable_compile": COST,
    "continuous_batching_config": COST,
    # results
    "output_attentions": RESULTS,
    "output_hidden_states": RESULTS,
    "output_scores": RESULTS,
    "output_logits": RESULTS,
    "return_dict_in_generate": RESULTS,
    "_from_model_config": RECORD,
    "_original_object_hash": RECORD,
    "_commit_hash": RECORD,
    "transformers_version": RECORD,
}
