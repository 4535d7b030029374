"""Pages for pictures, laid out with gradio: a function for each kind of predictor."""

import atexit
import pathlib
import shutil
import tempfile

import gradio as gr
import numpy as np
import PIL.Image
from gradio.utils import get_upload_folder

from . import examples, pictures
from .asking import missing_parts
from .frame import button, connect, message, missing, offer


def image_classifier(predictor, folder):
    """Picture -> classes; with the Keras model also what they draw on."""
    why = missing_parts(predictor, "model", "preprocessing")
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
        opened = pictures.uploaded(upload, get_upload_folder())
        found = pictures.classify(predictor, opened)
        over, how = (None, "") if why else pictures.attention(predictor, opened)
        yield found, over, how

    triggers = [ask.click, picture.upload]
    connect(classify, [picture], [answer, shown], note, triggers, preprocess=False)


def image_encoder(predictor, folder):
    """Two pictures -> how alike they are."""
    with gr.Row():
        first, second = position(), position("Second picture", "other")
    ask = button("Compare")
    answer = gr.Textbox(label="Cosine similarity, from -1 to 1", elem_id="answer")
    note = message()

    def compare(first, second):
        opened = [pictures.uploaded(upload, get_upload_folder()) for upload in (first, second)]
        yield f"{pictures.similarity(predictor, *opened):.3f}", ""

    connect(compare, [first, second], [answer], note, [ask.click], preprocess=False)


def detector(predictor, folder):
    """Picture -> boxes, above a score that can be moved."""
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
        opened = pictures.uploaded(upload, get_upload_folder())
        yield (opened, pictures.detect(predictor, opened)), None, None, ""

    def draw(answered, threshold):
        if not answered:
            return [gr.skip()] * 3
        opened, found = answered
        kept = pictures.above_threshold(found, threshold)
        number = f"Boxes with a score of {threshold:.2f} or more: {len(kept)} of {len(found)}."
        return pictures.with_boxes(opened, kept), pictures.rows_of(kept), number

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
        opened = pictures.uploaded(upload, get_upload_folder())
        pixels, masks, left_out = pictures.segment(predictor, opened)
        yield (pixels, masks), left_out

    triggers = [ask.click, picture.upload]
    connect(segment, [picture], [answer], note, triggers, preprocess=False)


def position(label="Picture", elem_id="input"):
    """Where a picture is put."""
    return gr.Image(
        label=label,
        type="filepath",
        image_mode=None,
        sources=["upload", "clipboard"],
        height=320,
        elem_id=elem_id,
    )


def files(pixels):
    """Files of example pictures, which are there as long as this process is."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix="examples-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    paths = [folder / f"{number}.png" for number in range(len(pixels))]
    for path, each in zip(paths, pixels, strict=True):
        PIL.Image.fromarray(np.squeeze(each)).save(path)
    return [[str(path)] for path in paths]
