"""Pages to try a trained model: answers, examples, requests, and a layout for each kind.

`layout` and `requests` need gradio, the other modules do not. A request that cannot be answered
raises a ValueError, whose text is shown on the page.
"""

# Kinds of predictors that have a page; `layout` has a function of the same name for each.
PICTURE_PAGES = ("image_classifier", "image_encoder", "detector", "segmenter")
TEXT_PAGES = (
    *("translator", "text_generator", "mask_filler", "text_classifier", "text_regressor"),
    *("text_tagger", "sentence_encoder", "question_answerer"),
)
PAGES = (*TEXT_PAGES, *PICTURE_PAGES)
