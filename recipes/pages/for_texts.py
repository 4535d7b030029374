"""Pages for texts, laid out with gradio: a function for each kind of predictor."""

import functools

import gradio as gr

from . import examples, texts
from . import translator as translating
from . import writer as writing
from .asking import cut, missing_parts
from .frame import button, connect, message, missing, offer

ALTERNATIVES = 4
LONG = "The alignment has too many pieces to be read, and is not drawn."
NOTHING = "The model makes nothing of this text."
SCORES = "Score: log-probability over length penalty; nearer to 0 is surer."
ALIGNED = "Alignment: what each piece of the translation (a row) looks at in the text (the columns)"


def translator(predictor, folder):
    """Text -> translation; with the Keras model also alternatives and an alignment."""
    why = missing_parts(predictor, "model", "tokenizer")
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
    search = None if why else translating.search_of(folder, ALTERNATIVES)

    def translate(text):
        found = translating.translate(predictor, text)
        translation, end = found["translation"], cut(found)
        if why or not translation:
            yield translation, None, None, end if translation else NOTHING
            return
        yield translation, None, None, f"{end} Looking for alternatives ...".strip()
        ranked = translating.alternatives(predictor, text, search)
        rows = [[f"{score:.2f}", each] for score, each in ranked]
        drawn = translating.alignment_picture(predictor, text, translation)
        yield translation, rows, drawn, f"{end} {LONG if drawn is None else ''}".strip()

    connect(translate, [text], [answer, table, picture], note, [ask.click, text.submit])


def text_generator(predictor, folder):
    """Beginning -> text; with the Keras model as boldly as is asked."""
    why = missing_parts(predictor, "model", "tokenizer")
    own = writing.sampling_settings(folder, None if why else predictor)
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
        return writing.Writer(predictor.model, predictor.tokenizer, own.new_tokens)

    def write(prompt, temperature, top_p):
        if why:
            yield writing.write(predictor, prompt)
        else:
            yield from pen().write(prompt, temperature, top_p)

    connect(write, [prompt], [answer], note, [ask.click], settings=[heat, share])


def mask_filler(predictor, folder):
    """Text with masks -> filled in, and what else was likely."""
    with gr.Row():
        with gr.Column():
            text = gr.Textbox(label=f"Text with {texts.MASK}", lines=3, elem_id="input")
            ask = button("Fill in")
            offer(examples.masked(folder), text)
        with gr.Column():
            answer = gr.Textbox(label="Filled in", lines=3, elem_id="answer", buttons=["copy"])
            words = gr.Label(label=f"For the first {texts.MASK}", elem_id="candidates")
            note = message()

    def fill(text):
        yield texts.fill(predictor, text)

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
        yield texts.classify(predictor, text)

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
        yield texts.rate(predictor, text)

    connect(rate, [text], [answer], note, [ask.click, text.submit])


def text_tagger(predictor, folder):
    """Text -> the same, in which entities, or words, have the colour of their tag."""
    with gr.Row():
        with gr.Column():
            text = gr.Textbox(label="Text", lines=6, elem_id="input", autofocus=True)
            ask = button("Tag")
        with gr.Column():
            answer = gr.HighlightedText(label="Tags", elem_id="answer", show_legend=True)
            note = message()

    def tag(text):
        yield texts.tag(predictor, text)

    connect(tag, [text], [answer], note, [ask.click, text.submit])


def sentence_encoder(predictor, folder):
    """Two texts -> how alike they are."""
    with gr.Row():
        first = gr.Textbox(label="First text", lines=3, elem_id="input", autofocus=True)
        second = gr.Textbox(label="Second text", lines=3, elem_id="other")
    ask = button("Compare")
    answer = gr.Textbox(label="Cosine similarity, from -1 to 1", elem_id="answer")
    note = message()

    def compare(first, second):
        cosine, end = texts.similarity(predictor, first, second)
        yield f"{cosine:.3f}", end

    connect(compare, [first, second], [answer], note, [ask.click, second.submit])


def question_answerer(predictor, folder):
    """Question and text -> the answer, and where it stands."""
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
        yield texts.answer(predictor, question, text)

    connect(find, [question, text], [answer, marked], note, [ask.click, question.submit])
