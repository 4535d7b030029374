"""Products of many cases: a few representatives run always, the others with `-m slow`.

`slow_except` makes the cases of one test. `REPRESENTATIVES` does the same by the names of cases,
for tests whose cases come from fixtures, from several decorators or from tables of values.
"""

import keras
import pytest

# Test -> the cases that run always. `tests/conftest.py` marks the others.
REPRESENTATIVES = {
    "tests/detection/test_criterion.py::"
    "test_what_stands_at_padding_changes_neither_loss_nor_gradients": ["focal"],
    "tests/export/test_arrays.py::test_a_saved_model_of_arrays_answers_as_the_model_was_scored": [
        "13"
    ],
    "tests/export/test_arrays.py::test_what_is_no_such_array_is_named_with_its_number": [
        "4-nowhere.npy-No such file",
        "13-None-must be an array",
    ],
    "tests/export/test_detector.py::test_a_model_that_knows_its_targets_finds_the_true_boxes": [
        "(40, 60, 3)-rectangle",
        "(50, 20, 3)-shorter side",
    ],
    "tests/export/test_detector.py::test_boxes_of_version_0_2_are_fractions_of_the_frame": [
        "(40, 60, 3)",
        "(50, 20, 3)",
    ],
    "tests/export/test_format_limits.py::"
    "test_onnx_takes_models_in_fewer_bits_and_litert_refuses_them": ["int8"],
    "tests/export/test_formats.py::test_boxes_are_found_by_hand_as_by_us": ["learned-onnx"],
    "tests/export/test_formats.py::test_files_are_classified_by_hand_as_by_us": ["litert"],
    "tests/export/test_formats.py::test_images_are_encoded_by_hand_as_by_us": ["onnx"],
    "tests/export/test_formats.py::test_sentences_are_encoded_by_hand_as_by_us": [
        "token-False-litert"
    ],
    "tests/export/test_formats.py::test_texts_are_classified_by_hand_as_by_us": ["onnx"],
    "tests/export/test_images.py::test_pyramids_are_served_like_a_vit": ["pvt"],
    "tests/export/test_images.py::test_what_is_served_is_upright_as_in_training": ["JPEG"],
    "tests/export/test_kernels.py::"
    "test_a_window_over_a_cache_of_any_size_is_that_of_the_whole_pass": ["9-1"],
    "tests/export/test_kernels.py::test_caches_that_grow_change_no_token": [
        "translator-None-search3"
    ],
    "tests/export/test_requests.py::test_a_broken_image_is_named_by_its_number": [
        "animation-image classifier, vit",
        "empty-image classifier, vit",
        "half a JPEG-image classifier, vit",
        "text-image classifier, vit",
    ],
    "tests/export/test_requests.py::test_another_rank_is_refused_by_the_name_of_the_input": [
        "text classifier",
        "image classifier, vit",
    ],
    "tests/export/test_requests.py::test_no_row_and_one_row_are_answered": ["text classifier"],
    "tests/export/test_several_labels.py::test_a_single_logit_is_no_certainty": [
        "1-text",
        "2-image",
    ],
    "tests/export/test_several_labels.py::test_any_model_can_be_said_to_have_several_labels": [
        "image"
    ],
    "tests/export/test_several_labels.py::"
    "test_each_of_several_labels_has_a_probability_of_its_own": ["text"],
    "tests/export/test_several_labels.py::test_files_of_tensors_tell_which_labels_are_present": [
        "text-onnx",
        "image-litert",
    ],
    "tests/export/test_text_generator.py::test_a_seed_draws_the_same_and_compiles_nothing_new": [
        "generator"
    ],
    "tests/export/test_text_limits.py::"
    "test_a_source_longer_than_the_positions_is_cut_and_said_to_be": ["one table"],
    "tests/export/test_text_limits.py::test_a_writer_goes_as_far_as_generate_does": ["search4"],
    "tests/export/test_translation.py::test_the_translator_gives_what_generate_gives": ["search0"],
    "tests/field/test_pictures.py::test_what_is_trained_on_is_answered": [
        "RGB-a.jpg",
        "RGB-a.webp",
        "L-a.png",
        "L-a.tif",
    ],
    "tests/fitting/test_few_bits.py::"
    "test_weights_of_sixteen_bits_are_trained_in_float32_and_stored_as_before": [
        "text_classifier-bfloat16-all"
    ],
    "tests/generation/test_boundaries.py::"
    "test_a_row_that_is_cut_early_is_what_it_is_alone_with_that_limit": ["search2", "search5"],
    "tests/generation/test_cache.py::"
    "test_a_cache_in_fewer_bits_changes_scores_by_its_rounding_only": ["int8-search1"],
    "tests/generation/test_cache.py::"
    "test_decoding_with_the_cache_is_decoding_without_token_for_token": ["pre-norm-beam"],
    "tests/generation/test_generate.py::test_a_prompt_with_end_is_continued": ["greedy", "beam"],
    "tests/generation/test_generate_all.py::test_a_limit_cuts_as_that_of_generate_does": ["greedy"],
    "tests/generation/test_generate_all.py::"
    "test_any_number_of_sentences_come_back_in_order_as_each_gives_alone": ["constrained greedy"],
    "tests/generation/test_generate_all.py::test_no_sentence_gives_nothing_of_everything": [
        "greedy"
    ],
    "tests/generation/test_options.py::test_a_beam_of_everything_finds_the_best_of_all_sequences": [
        "plain",
        "no repeated pair",
        "required word",
    ],
    "tests/generation/test_options.py::"
    "test_every_search_keeps_the_constraints_and_scores_by_the_model": [
        "Greedy-maximum of the source's",
        "Greedy-no repeated pair",
        "Greedy-required word",
        "Sampling-banned pair",
        "Sampling-minimum length",
        "Sampling-new tokens",
        "BeamSearch-minimum of the source's",
        "BeamSearch-several",
    ],
    "tests/generation/test_phrases.py::test_a_narrow_beam_finds_phrases_of_no_probability": ["4"],
    "tests/generation/test_search.py::test_sequences_that_leave_the_batch_change_nothing": [
        "beam-4"
    ],
    "tests/generation/test_stream.py::test_the_other_arguments_are_those_of_generate": [
        "{'end_id': 5}"
    ],
    "tests/generation/test_stream.py::test_the_tokens_are_those_of_generate": [
        "transformer, constrained",
        "language model, sampling",
    ],
    "tests/generation/test_stream.py::test_what_a_prompt_gives_is_not_among_them": [
        "two-language model",
        "two-decoder alone",
        "with END-language model",
        "padded-language model",
        "with a hole-language model",
        "empty-language model",
        "whole-language model",
    ],
    "tests/layers/test_blocks.py::test_contract": [
        "encoder, every setting",
        "decoder, across",
        "decoder only",
        "set",
        "other parts",
    ],
    "tests/layers/test_conditional.py::test_they_are_layers_like_others": ["self", "cross"],
    "tests/layers/test_deformable.py::test_they_are_layers_like_others": ["attention"],
    "tests/layers/test_fused_attention.py::test_output_and_gradients_are_those_of_the_plain_way": [
        "grouped, rotary",
        "dropout",
        "causal, padding in front",
        "T5, both ways",
        "ALiBi",
        "bias",
    ],
    "tests/layers/test_local_attention.py::"
    "test_token_by_token_local_attention_reads_its_window_only": [
        "none-2-1",
        "alibi-5-3",
        "rotary-40-3",
        "shaw-2-3",
        "t5-5-1",
    ],
    "tests/layers/test_parts.py::test_a_stack_of_parts_can_be_loaded_again_and_again": [
        "attention"
    ],
    "tests/layers/test_positions_in_attention.py::test_contract": [
        "CausalSelfAttention-alibi",
        "CausalSelfAttention-rotary",
        "SelfAttention-grid",
        "SelfAttention-shaw",
        "SelfAttention-t5",
    ],
    "tests/layers/test_positions_in_attention.py::test_token_by_token_it_is_what_it_is_at_once": [
        "1-1-rotary",
        "1-2-logarithmic grid",
        "3-1-shaw",
        "3-1-grid",
        "3-2-t5, causal",
        "3-2-alibi",
        "1-1-shaw, keys only",
        "3-1-yarn",
        "1-2-t5",
        "3-2-part of rotary",
    ],
    "tests/layers/test_pyramid_layers.py::test_contract": [
        "embedding",
        "reduction",
        "block of a PVT",
        "block of an MViT",
    ],
    "tests/layers/test_windows.py::test_contract_of_a_block": ["options1"],
    "tests/loading/test_published.py::test_a_model_of_any_channels_is_loaded_with_as_many": ["1"],
    "tests/loading/test_published.py::"
    "test_a_model_of_images_without_classes_answers_with_its_features": ["vit"],
    "tests/models/test_calibration.py::test_adapters_learn_beside_what_is_calibrated": ["gptq"],
    "tests/models/test_calibration.py::test_what_is_calibrated_comes_back_from_its_files": [
        "LanguageModel-gptq-options0"
    ],
    "tests/models/test_detr_parts.py::test_any_backbone_will_do": ["vit", "functional"],
    "tests/models/test_image_parts.py::test_contract": ["pooling"],
    "tests/models/test_language_model.py::test_it_writes_in_fewer_bits": ["int8"],
    "tests/models/test_language_model.py::test_padding_and_company_do_not_change_what_is_written": [
        "gpt2-greedy"
    ],
    "tests/models/test_language_model.py::test_scores_are_those_of_one_pass_over_the_text": [
        "gpt2-beam",
        "modern-sampling",
    ],
    "tests/models/test_language_model.py::test_taking_in_the_prompt_at_once_changes_nothing": [
        "gpt2-beam",
        "modern-greedy",
    ],
    "tests/models/test_pyramids.py::test_a_transferred_model_starts_from_the_same_weights": [
        "swin2"
    ],
    "tests/models/test_pyramids.py::test_frozen_parts_stay_as_they_are_also_after_reload": ["pvt"],
    "tests/models/test_pyramids.py::test_sizes_are_known_only_when_called_or_before": ["swin2"],
    "tests/models/test_pyramids_published.py::test_logits_are_those_of_published_implementations": [
        "swin-size1",
        "pvt-size7",
    ],
    "tests/models/test_recurrent.py::test_contract": ["every setting"],
    "tests/models/test_resnet.py::test_contract": ["pooled"],
    "tests/models/test_text_encoder.py::test_contract": ["masked_language", "tagging"],
    "tests/models/test_transformer.py::test_contract": ["every setting"],
    "tests/models/test_vit.py::test_contract": ["token"],
    "tests/predictors/test_text_streams.py::test_a_recited_text_is_that_of_predict": [
        "byte pairs, 3"
    ],
    "tests/predictors/test_text_streams.py::test_a_streamed_continuation_is_that_of_predict": [
        "byte pairs-seed"
    ],
    "tests/pretrained/test_published.py::test_a_loaded_model_is_a_keras_model": [
        "modernbert",
        "gpt2_classes",
        "marian",
        "vit",
        "swin",
        "deformable_detr_proposals",
    ],
    "tests/pretrained/test_published.py::test_outputs_and_losses_are_the_published_ones": [
        "modernbert_odd_masked",
        "electra_detects",
        "bert_classes",
        "distilbert_tags",
        "roberta_answers",
        "xlm_roberta_odd",
        "gpt2_odd",
        "llama",
        "mistral_odd",
        "qwen2",
        "qwen3_odd",
        "gemma2_odd",
        "phi3",
        "gpt2_tags",
        "llama_classes",
        "marian_odd",
        "bart",
        "mbart_odd",
        "pegasus_odd",
        "m2m_100",
        "t5_odd",
        "mt5",
        "beit_odd",
        "dinov2_registers_odd",
        "vit_odd",
        "deit_teacher",
        "vit_mae_odd",
        "swin_odd",
        "swinv2_five",
        "segformer_odd_segments",
        "detr_odd",
        "conditional_detr",
        "deformable_detr_proposals",
        "clip_odd",
        "siglip_odd",
    ],
    "tests/pretrained/test_text_to_text.py::"
    "test_an_output_is_as_long_as_its_folder_or_the_user_says": ["longer-t5"],
    "tests/recipes/test_mixers.py::test_every_variant_makes_a_model_of_every_task": [
        "additive-text",
        "attention-image",
        "convolution-text",
        "dot-image",
        "fourier-image",
        "general-text",
        "linear-text",
        "local-image",
        "lstm-image",
        "mlp-text",
        "multi_query-image",
        "rotary-text",
        "shaw-image",
        "synthesizer-text",
    ],
    "tests/saving/test_changed_parts.py::test_a_copy_in_fewer_bits_comes_back_from_its_file": [
        "float16",
        "int4",
    ],
    "tests/saving/test_changed_parts.py::test_a_quantised_layer_comes_back_from_its_file": [
        "EncoderBlock-int8",
        "TokenEmbedding-int4/5",
    ],
    "tests/saving/test_changed_parts.py::test_a_quantised_model_comes_back_from_its_file": [
        "vit-int8",
        "transformer-int4/5",
    ],
    "tests/saving/test_old_files.py::test_an_old_model_answers_and_learns_on_as_it_did": [
        "encoder-ours",
        "functional-keras",
    ],
    "tests/alignment/test_links.py::"
    "test_each_word_is_linked_to_the_word_that_is_attended_to_most": ["None-None-input"],
    "tests/core/test_gradients.py::"
    "test_derivatives_of_blockwise_attention_are_those_of_all_pairs": [
        "padding-forward-xla",
        "padding-second-xla",
        "padding-forward_of_gradient-xla",
        "dropout, grouped, T5-forward-xla",
    ],
    "tests/test_mask_arguments.py::test_in_a_graph_floats_are_refused_and_integers_are_taken": [
        "CausalSelfAttention",
        "DecoderBlock",
        "LSTMMixing",
        "RelativePositionBias",
    ],
    "tests/test_memory.py::test_a_worker_above_the_limit_gets_no_further_file": ["0-2", "1000-1"],
    "tests/test_output_dtypes.py::test_a_layer_says_the_dtype_of_an_eager_call": [
        "mixed_bfloat16-CausalSelfAttention",
        "mixed_bfloat16-LocalAttention",
        "mixed_bfloat16-EncoderBlock",
        "mixed_bfloat16-DecoderBlock",
        "mixed_bfloat16-DeformableAttention",
        "mixed_bfloat16-SwinBlock",
        "mixed_bfloat16-AttentionPooling",
        "mixed_bfloat16-TokenEmbedding",
        "mixed_bfloat16-PatchEmbedding",
        "mixed_bfloat16-GridPositionEmbedding",
        "mixed_bfloat16-ConvolutionNorm",
        "mixed_bfloat16-ClassToken",
        "mixed_bfloat16-RotaryEmbedding",
        "mixed_bfloat16-GridRelativeBias",
    ],
    "tests/test_output_dtypes.py::test_a_model_says_the_dtype_of_an_eager_call": [
        "vit",
        "transformer",
    ],
    "tests/test_precision.py::test_a_image_classifier_can_have_fewer_bits_too": [
        "vit-int8",
        "vit-bfloat16",
        "swin2-int8",
    ],
    "tests/test_precision.py::test_it_decodes_as_it_computes_the_whole": ["beam-int8"],
    "tests/test_unknown_extents.py::test_layers": [
        "CausalSelfAttention",
        "CrossAttention",
        "LocalAttention",
        "LinearAttention",
        "EncoderBlock",
        "DecoderBlock",
        "ConditionalDecoderBlock",
        "DeformableEncoderBlock",
        "RandomSynthesizer",
        "ConvolutionMixing",
        "LSTMMixing",
        "AttentionPooling",
        "ShiftedPatchEmbedding",
        "SwinBlock",
        "PoolingBlock",
        "RotaryEmbedding",
        "ShawRelativePosition",
        "LogGridBias",
        "PatchEmbedding",
        "TokenEmbedding",
        "PositionalEncoding",
        "ConvolutionNorm",
    ],
    "tests/test_unknown_extents.py::test_models": ["language_model", "transformer", "vit"],
    "tests/text/test_byte_pairs.py::test_pieces_are_those_of_the_definition": ["True"],
    "tests/text/test_fast.py::test_ids_are_the_packages_both_ways_in_eighteen_languages": [
        "unigram"
    ],
    "tests/text/test_sentence_pieces.py::"
    "test_a_saved_model_with_the_tokenizer_runs_in_another_process": ["unigram"],
    "tests/text/test_trimming.py::test_the_same_texts_are_cut_into_the_same_pieces": [
        "NllbTokenizer",
        "lossless",
        "unigram",
        "bytes",
        "bpe",
        "bert",
    ],
    "tests/training/test_accumulation.py::test_a_schedule_counts_steps_of_any_number_of_batches": [
        "AdamW-linear"
    ],
    "tests/training/test_adapter_files.py::"
    "test_what_a_file_of_adapters_gives_is_what_was_saved_or_is_refused": [
        "one adapter-merged-adapter-our layers",
        "two adapters-merged-.keras-a user's layer",
    ],
    "tests/training/test_depth.py::test_a_depth_opens_after_so_many_steps_of_the_optimizer": [
        "1-1-False",
        "3-4-True",
    ],
    "tests/training/test_depth.py::test_statistics_of_frozen_depths_stay_until_their_turn": ["2"],
    "tests/vision/test_boxes.py::test_targets_are_fractions_of_the_image": ["pixels", "files"],
    "tests/vision/test_decoding.py::test_the_pixels_are_pillows_for_grey_and_for_coloured_models": [
        "JPEG 4:4:4",
        "JPEG 4:2:0",
        "JPEG, grey",
        "PNG, alpha",
        "PNG, palette",
        "GIF",
        "BMP, palette",
        "WebP, alpha",
    ],
    "tests/vision/test_given.py::"
    "test_fit_evaluate_and_predict_see_the_same_pixels_in_whatever_holds_an_image": ["colour-6"],
    "tests/vision/test_listed.py::test_every_image_has_the_labels_of_its_line": [
        "csv",
        "separator",
    ],
}


def slow_except(cases, *quick):
    """Returns the cases for `pytest.mark.parametrize`; all but the `quick` ones are slow.

    Args:
        cases: Iterable of names, or a dict from names to values, whose values are the parameters.
        quick: Names of the representatives. Each must be a name of `cases`.
    """
    values = cases if isinstance(cases, dict) else {name: name for name in cases}
    unknown = set(quick) - set(values)
    assert not unknown, f"no cases: {', '.join(map(str, unknown))}"
    return [
        pytest.param(value, id=str(name), marks=[] if name in quick else [pytest.mark.slow])
        for name, value in values.items()
    ]


@pytest.hookimpl(tryfirst=True)  # before pytest chooses by marks
def pytest_collection_modifyitems(config, items):
    """Marks the cases of products that are no representatives as slow.

    On JAX some tests have fewer cases. Without any representative among them, all run always.

    Raises:
        AssertionError: If a test has no case of that name on TensorFlow; unless only some cases
            were asked for.
    """
    cases = {}  # test -> name of a case -> item
    for item in items:
        test, _, case = item.nodeid.partition("[")
        if test in REPRESENTATIVES:
            cases.setdefault(test, {})[case.removesuffix("]")] = item
    for test, named in cases.items():
        representatives = set(REPRESENTATIVES[test])
        if representatives & named.keys():
            for name in named.keys() - representatives:
                named[name].add_marker(pytest.mark.slow)
    asks_for_cases = any("::" in argument for argument in config.args)
    if keras.backend.backend() != "tensorflow" or config.getoption("lf", False) or asks_for_cases:
        return
    for test, named in cases.items():
        unknown = set(REPRESENTATIVES[test]) - named.keys()
        assert not unknown, f"tests/slow.py: {test} has no case {unknown}"
