"""The page of each kind of predictor, laid out with gradio."""

import atexit
import functools
import pathlib
import shutil
import tempfile

import gradio as gr
import numpy as np
import PIL.Image
from gradio.utils import get_upload_folder

from . import answers, examples
from .requests import button, connect, message, missing, offer

CSS = """
#message p, #missing p, .caption p { opacity: 0.8; margin: 0; }
#alternatives .cell-wrap, #boxes .cell-wrap, #answer, #candidates { font-family: var(--font); }
"""
KEPT = 3600  # seconds that uploads and drawn pictures are kept
ALTERNATIVES = 4
LONG = "The alignment has too many pieces to be read, and is not drawn."
NOTHING = "The model makes nothing of this text."
SCORES = "Score: log-probability over length penalty; nearer to 0 is surer."
ALIGNED = "Alignment: what each piece of the translation (a row) looks at in the text (the columns)"


def theme():
    """Returns the theme, with the fonts that the browser has: none is fetched."""
    return gr.themes.Default(
        font=["system-ui", "sans-serif"], font_mono=["ui-monospace", "monospace"]
    )


def translator(predictor, folder):
    """Text -> translation; with the Keras model also alternatives and an alignment."""
    why = answers.missing_parts(predictor, "model", "tokenizer")
    with gr.Row():
        with gr.Column():
            text = gr.Textbox(label="Text", lines=3, elem_id="input", autofocus=True)
            ask = button("Translate")
            offer(examples.sentences(folder), text)
        with gr.Column():
            answer = gr.Textbox(label="Translation", lines=3, elem_id="answer", buttons=["copy"])
            note = message()
            table = gr.Dataframe(
                headers=["score", "translation"],
                label="Alternatives",
                elem_id="alternatives",
                interactive=False,
                wrap=True,
                column_widths=["28%", "70%"],
                visible=not why,
            )
            gr.Markdown(SCORES, visible=not why, elem_classes="caption")
    gr.Markdown(ALIGNED, visible=not why, elem_classes="caption")
    picture = gr.Image(
        show_label=False,
        elem_id="alignment",
        interactive=False,
        buttons=[],
        height=460,
        visible=not why,
    )
    missing("Showing alternatives and the alignment", why)
    search = None if why else answers.search_of(folder, ALTERNATIVES)

    def translate(text):
        answer_and_score = answers.translate(predictor, text)
        translation, end = answer_and_score["translation"], answers.cut(answer_and_score)
        if why or not translation:
            yield translation, None, None, end if translation else NOTHING
            return
        yield translation, None, None, f"{end} Looking for alternatives ...".strip()
        ranked = answers.alternatives(predictor, text, search)
        rows = [[f"{score:.2f}", each] for score, each in ranked]
        drawn = answers.alignment_picture(predictor, text, translation)
        yield translation, rows, drawn, f"{end} {LONG if drawn is None else ''}".strip()

    connect(translate, [text], [answer, table, picture], note, [ask.click, text.submit])


def text_generator(predictor, folder):
    """Beginning -> text; with the Keras model at a chosen temperature and `top_p`."""
    why = answers.missing_parts(predictor, "model", "tokenizer")
    own = answers.sampling_settings(folder, None if why else predictor)
    with gr.Row():
        with gr.Column():
            prompt = gr.Textbox(label="Beginning", lines=4, elem_id="input", autofocus=True)
            heat = gr.Slider(
                0.1,
                2,
                own.temperature,
                step=0.05,
                label="Temperature: more is bolder",
                elem_id="temperature",
                visible=not why,
            )
            share = gr.Slider(
                0.05,
                1,
                own.top_p,
                step=0.05,
                elem_id="top_p",
                visible=not why,
                label="top_p: share of the probability that is drawn from",
            )
            ask = button("Write")
            offer([[text] for text in examples.prompts(folder) if text], prompt)
        with gr.Column():
            answer = gr.Textbox(label="Text", lines=14, elem_id="answer", buttons=["copy"])
            note = message()
    missing("Choosing temperature and top_p", why)

    @functools.cache
    def pen():
        return answers.Writer(predictor.model, predictor.tokenizer, own.new_tokens)

    def write(prompt, temperature, top_p):
        if why:
            yield answers.write(predictor, prompt)
        else:
            yield from pen().write(prompt, temperature, top_p)

    connect(write, [prompt], [answer], note, [ask.click], settings=[heat, share])


def mask_filler(predictor, folder):
    """Text with masks -> filled text, and other likely words."""
    with gr.Row():
        with gr.Column():
            text = gr.Textbox(label=f"Text with {answers.MASK}", lines=3, elem_id="input")
            ask = button("Fill in")
            offer(examples.masked(folder), text)
        with gr.Column():
            answer = gr.Textbox(label="Filled in", lines=3, elem_id="answer", buttons=["copy"])
            words = gr.Label(label=f"For the first {answers.MASK}", elem_id="candidates")
            note = message()

    def fill(text):
        yield answers.fill(predictor, text)

    connect(fill, [text], [answer, words], note, [ask.click, text.submit])


def text_classifier(predictor, folder):
    """Text -> classes."""
    with gr.Row():
        with gr.Column():
            text = gr.Textbox(label="Text", lines=6, elem_id="input", autofocus=True)
            ask = button("Classify")
            offer(examples.labelled_texts(folder), text)
        with gr.Column():
            answer = gr.Label(label="Most probable classes", elem_id="answer")
            note = message()

    def classify(text):
        yield answers.classify_text(predictor, text)

    connect(classify, [text], [answer], note, [ask.click, text.submit])


def text_regressor(predictor, folder):
    """Text -> a number."""
    with gr.Row():
        with gr.Column():
            text = gr.Textbox(label="Text", lines=6, elem_id="input", autofocus=True)
            ask = button("Rate")
        with gr.Column():
            answer = gr.Number(label="Value", elem_id="answer", interactive=False)
            note = message()

    def rate(text):
        yield answers.rate(predictor, text)

    connect(rate, [text], [answer], note, [ask.click, text.submit])


def text_tagger(predictor, folder):
    """Text -> the same text, with entities or words in the colour of their tag."""
    with gr.Row():
        with gr.Column():
            text = gr.Textbox(label="Text", lines=6, elem_id="input", autofocus=True)
            ask = button("Tag")
        with gr.Column():
            answer = gr.HighlightedText(label="Tags", elem_id="answer", show_legend=True)
            note = message()

    def tag(text):
        yield answers.tag(predictor, text)

    connect(tag, [text], [answer], note, [ask.click, text.submit])


def sentence_encoder(predictor, folder):
    """Two texts -> their similarity."""
    with gr.Row():
        first = gr.Textbox(label="First text", lines=3, elem_id="input", autofocus=True)
        second = gr.Textbox(label="Second text", lines=3, elem_id="other")
    ask = button("Compare")
    answer = gr.Textbox(label="Cosine similarity, from -1 to 1", elem_id="answer")
    note = message()

    def compare(first, second):
        cosine, end = answers.text_similarity(predictor, first, second)
        yield f"{cosine:.3f}", end

    connect(compare, [first, second], [answer], note, [ask.click, second.submit])


def question_answerer(predictor, folder):
    """Question and text -> the answer, marked in the text."""
    with gr.Row():
        with gr.Column():
            question = gr.Textbox(label="Question", elem_id="input", autofocus=True)
            text = gr.Textbox(label="Text with the answer", lines=8, elem_id="other")
            ask = button("Answer")
        with gr.Column():
            answer = gr.Textbox(label="Answer", elem_id="answer", buttons=["copy"])
            note = message()
            marked = gr.HighlightedText(label="Where it stands", elem_id="marked")

    def find(question, text):
        yield answers.answer(predictor, question, text)

    connect(find, [question, text], [answer, marked], note, [ask.click, question.submit])


def image_classifier(predictor, folder):
    """Picture -> classes; with the Keras model also a map of what they draw on."""
    why = answers.missing_parts(predictor, "model", "preprocessing")
    with gr.Row():
        with gr.Column():
            picture = position()
            ask = button("Classify")
            offer(files(examples.pictures(folder)), picture)
        with gr.Column():
            answer = gr.Label(label="Most probable classes", elem_id="answer")
            shown = gr.Image(
                label="Attention",
                elem_id="attention",
                interactive=False,
                buttons=[],
                height=320,
                visible=not why,
            )
            note = message()
    missing("Showing what the answer draws on", why)

    def classify(upload):
        opened = answers.uploaded(upload, get_upload_folder())
        classes = answers.classify_picture(predictor, opened)
        over, how = (None, "") if why else answers.attention(predictor, opened)
        yield classes, over, how

    triggers = [ask.click, picture.upload]
    connect(classify, [picture], [answer, shown], note, triggers, preprocess=False)


def image_encoder(predictor, folder):
    """Two pictures -> their similarity."""
    with gr.Row():
        first, second = position(), position("Second picture", "other")
    ask = button("Compare")
    answer = gr.Textbox(label="Cosine similarity, from -1 to 1", elem_id="answer")
    note = message()

    def compare(first, second):
        opened = [answers.uploaded(upload, get_upload_folder()) for upload in (first, second)]
        yield f"{answers.picture_similarity(predictor, *opened):.3f}", ""

    connect(compare, [first, second], [answer], note, [ask.click], preprocess=False)


def detector(predictor, folder):
    """Picture -> boxes above a score that can be moved."""
    threshold = examples.threshold(folder)
    with gr.Row():
        with gr.Column():
            picture = position()
            bar = gr.Slider(
                0, 1, threshold, step=0.01, elem_id="threshold", label="Least score of a box"
            )
            ask = button("Find")
            offer(files(examples.scenes(folder)), picture)
        with gr.Column():
            shown = gr.Image(label="Found", elem_id="answer", interactive=False, buttons=[])
            note = message()
            table = gr.Dataframe(
                headers=["label", "score %", "left", "top", "right", "bottom"],
                label="Boxes in pixels",
                elem_id="boxes",
                interactive=False,
                max_height=300,
            )
    everything = gr.State()  # so that another threshold needs no other answer

    def detect(upload):
        opened = answers.uploaded(upload, get_upload_folder())
        yield (opened, answers.detect(predictor, opened)), None, None, ""

    def draw(answered, threshold):
        if not answered:
            return [gr.skip()] * 3
        opened, found = answered
        kept = answers.above_threshold(found, threshold)
        number = f"Boxes with a score of {threshold:.2f} or more: {len(kept)} of {len(found)}."
        return answers.with_boxes(opened, kept), answers.rows_of(kept), number

    outputs = [shown, table]
    triggers = [ask.click, picture.upload]
    event = connect(detect, [picture], [everything, *outputs], note, triggers, preprocess=False)
    options = {"show_progress": "hidden", "concurrency_limit": 1, "api_visibility": "private"}
    for after in (event.then, bar.change):
        after(draw, [everything, bar], [*outputs, note], trigger_mode="always_last", **options)


def segmenter(predictor, folder):
    """Picture -> the class of every pixel, as colours over it."""
    with gr.Row():
        with gr.Column():
            picture = position()
            ask = button("Segment")
        with gr.Column():
            answer = gr.AnnotatedImage(label="Classes", elem_id="answer", buttons=[])
            note = message()

    def segment(upload):
        opened = answers.uploaded(upload, get_upload_folder())
        pixels, masks, left_out = answers.segment(predictor, opened)
        yield (pixels, masks), left_out

    triggers = [ask.click, picture.upload]
    connect(segment, [picture], [answer], note, triggers, preprocess=False)


def position(label="Picture", elem_id="input"):
    """Returns the component for an uploaded picture."""
    return gr.Image(
        label=label,
        type="filepath",
        image_mode=None,
        sources=["upload", "clipboard"],
        height=320,
        elem_id=elem_id,
    )


def files(pixels):
    """Writes files of example pictures, which are removed when this process ends."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix="examples-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    paths = [folder / f"{number}.png" for number in range(len(pixels))]
    for path, array in zip(paths, pixels, strict=True):
        PIL.Image.fromarray(np.squeeze(array)).save(path)
    return [[str(path)] for path in paths]


LAYOUTS = (
    translator,
    text_generator,
    mask_filler,
    text_classifier,
    text_regressor,
    text_tagger,
    sentence_encoder,
    question_answerer,
    image_classifier,
    image_encoder,
    detector,
    segmenter,
)


def page(predictor, folder, read=None):
    """Lays out the page of a predictor: the request on the left, the answer on the right.

    On every page `#input` takes the request, `#ask` sends it, `#answer` shows what came of it, and
    `#message` says in a sentence why there is no answer, or what to know about it.

    Args:
        predictor: As `keras_transformers.load` gives it.
        folder: What it was loaded from.
        read: Function that returns when the model is loaded; by default it is.

    Returns:
        A `gradio.Blocks`.

    Raises:
        ValueError: If there is no page for such a predictor: arrays cannot be uploaded, and classes
            not be given.
    """
    layouts = {layout.__name__: layout for layout in LAYOUTS}
    if predictor.kind not in layouts:
        raise ValueError(f"there is no page for a {predictor.kind}; use predict.")
    title = predictor.kind.replace("_", " ").capitalize()
    with gr.Blocks(title=title, analytics_enabled=False, delete_cache=(KEPT, KEPT)) as blocks:
        gr.Markdown(f"# {title}")
        about = gr.Markdown(answers.loading(folder), elem_id="about")
        layouts[predictor.kind](predictor, folder)

        def describe():
            if read is not None:
                read()
            return answers.described(predictor, folder)

        blocks.load(
            describe,
            None,
            about,
            show_progress="hidden",
            concurrency_limit=None,
            api_visibility="private",
        )
    return blocks
