"""Pages to try a trained model: what they compute, a file for each sort, and how they are laid out.

`layout` and what it lays out need gradio, nothing else does. A request that cannot be answered
raises ValueError; its sentence is shown on the page.
"""

# Kinds of predictors to the file that lays out their page, in a function of the kind's name.
PAGES = {
    "translator": "for_texts",
    "text_generator": "for_texts",
    "mask_filler": "for_texts",
    "text_classifier": "for_texts",
    "text_regressor": "for_texts",
    "text_tagger": "for_texts",
    "sentence_encoder": "for_texts",
    "question_answerer": "for_texts",
    "image_classifier": "for_pictures",
    "image_encoder": "for_pictures",
    "detector": "for_pictures",
    "segmenter": "for_pictures",
}
