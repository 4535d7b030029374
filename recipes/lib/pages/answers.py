"""The answers of predictors as pages show them."""

import dataclasses
import itertools
import math
import pathlib
import tempfile

import keras
import matplotlib
import numpy as np
import PIL.Image
import PIL.ImageDraw
import tensorflow as tf
from keras import ops

from keras_transformers.data.array_files import pixels_of_pillow
from keras_transformers.export import TextGenerator
from keras_transformers.generation import BeamSearch, Sampling, generate_all
from keras_transformers.models import Transformer
from keras_transformers.pretrained import load_search
from keras_transformers.visualization import attention_heat_map

from ...data.translation import both
from ..image_classifiers import heat_map
from ..translating import alignment
from .examples import settings_of

CUT = "The text is longer than the model reads: its {} was cut off."


def text_of(text, name="text"):
    """Returns a text that is not empty.

    Raises:
        ValueError: If there is nothing but space.
    """
    if not isinstance(text, str) or not text.strip():
        raise ValueError(f"Type a {name} first.")
    return text


def cut(answer, part="end"):
    """Returns a sentence on the part of a text that was not read, or ""."""
    return CUT.format(part) if answer.get("truncated") else ""


def missing_parts(predictor, *parts):
    """Returns a sentence on missing parts of a predictor, as "model" and "tokenizer", or ""."""
    missing = [part for part in parts if part not in predictor.parts]
    if not missing:
        return ""
    named = {"model": "Keras model"}
    return (
        f"needs the {' and the '.join(named.get(part, part) for part in missing)}, which a "
        "SavedModel alone does not have: give the folder of the run."
    )


def most_probable(answer, number=5):
    """Returns a dict of label -> probability of the most probable classes, best first."""
    ranked = sorted(answer["probabilities"].items(), key=lambda pair: -pair[1])
    return dict(ranked[:number])


def loading(folder):
    """Returns the sentence under the title until the model answers."""
    return f"`{pathlib.Path(folder)}`: The model is loading ..."


def described(predictor, folder):
    """Returns the text under the title: the folder, and the size of the model."""
    number = len(predictor.labels or ())
    classes = f", {number} class{'es' if number > 1 else ''}" if number else ""
    if "model" not in predictor.parts:
        return f"`{pathlib.Path(folder)}`{classes}"
    size = predictor.model.count_params()
    return f"`{pathlib.Path(folder)}`: {type(predictor.model).__name__}, {size:,} weights{classes}"


MASK = "[MASK]"
CUT_PAIR = "The end of the question, or of a very long text, was cut off."
NO_ANSWER = "The model finds it more probable that the text does not answer this."


def fill(predictor, text):
    """Returns the filled text; a dict of candidate -> probability for its first mask; and a note.

    Raises:
        ValueError: If there is no text, or no mask in it.
    """
    if MASK not in text_of(text):
        raise ValueError(f"Write {MASK} where the model is to fill in a word.")
    answer = predictor.predict(text)
    candidates = {}
    for candidate in answer["candidates"]:  # a word and the end of one may be written alike
        candidates.setdefault(candidate["token"], candidate["probability"])
    if not candidates:
        raise ValueError(f"The model reads no {MASK} in this text. {cut(answer)}".strip())
    return answer["text"], candidates, cut(answer)


def classify_text(predictor, text):
    """Returns the five most probable classes of a text, label -> probability; and a note.

    Raises:
        ValueError: If there is no text.
    """
    answer = predictor.predict(text_of(text))
    return most_probable(answer), cut(answer)


def rate(predictor, text):
    """Returns the number of a text, to six digits, and a note.

    Raises:
        ValueError: If there is no text.
    """
    answer = predictor.predict(text_of(text), details=True)
    return float(f"{answer['value']:.6g}"), cut(answer)


def tag(predictor, text):
    """Returns a text in parts, pairs of str and the tag of its words, or None; and a note.

    Words of an entity stand in one part; where tags mark none, each word that has a tag.

    Raises:
        ValueError: If there is no text.
    """
    answer = predictor.predict(text_of(text), details=True)
    words = [{**word, "type": word["tag"]} for word in answer["words"] if word["tag"]]
    parts, end = [], 0
    for entity in answer.get("entities", words):
        parts += [(text[end : entity["start"]], None)] if entity["start"] > end else []
        parts.append((text[entity["start"] : entity["end"]], entity["type"]))
        end = entity["end"]
    return parts + ([(text[end:], None)] if end < len(text) else []), cut(answer)


def text_similarity(predictor, first, second):
    """Returns the cosine of the angle between the vectors of two texts, and a note.

    Raises:
        ValueError: If a text is missing.
    """
    texts = [text_of(first, "first text"), text_of(second, "second text")]
    vectors = predictor.predict(texts, details=True)
    left, right = (vector["embedding"] for vector in vectors)
    length = math.hypot(*left) * math.hypot(*right)
    product = sum(a * b for a, b in zip(left, right, strict=True))
    return product / length if length else 0.0, cut(vectors[0]) or cut(vectors[1])


def answer(predictor, question, text):
    """Returns the answer to a question, the text in parts, one of which is the answer, and notes.

    Raises:
        ValueError: If the question or the text is missing.
    """
    pair = (text_of(question, "question"), text_of(text))
    result = predictor.predict(pair, details=True)
    start, end = result["start"], result["end"]
    parts = [(text[:start], None), (text[start:end], "answer"), (text[end:], None)]
    notes = [f"Score: {result['score']:.2f}; 1 is surest."]
    notes += [NO_ANSWER] if result["no_answer"] > result["score"] else []
    notes += [CUT_PAIR] if result["truncated"] else []
    return result["answer"], [part for part in parts if part[0]], " ".join(notes)


LENGTHS = (16, 32, 64, 128)  # of sources in pieces; each is compiled when it is first met
MOST_DRAWN = 60  # pieces of either side; more cannot be read
READ_BY = {True: "cross_attention", False: "attention"}  # whether a model is a `Transformer`


def translate(predictor, text):
    """Returns a dict of `translation`, `score`, `finished` and `truncated` of a text.

    Raises:
        ValueError: If there is no text.
    """
    return predictor.predict(text_of(text), details=True)


def search_of(folder, number):
    """Returns the beam search of a folder, which gives `number` translations."""
    settings = settings_of(folder)
    if "beam_size" in settings:  # a run
        search = BeamSearch(settings["beam_size"], settings["length_penalty"])
    else:
        try:
            search = load_search(folder)
        except (FileNotFoundError, ValueError):
            search = BeamSearch()
    if not isinstance(search, BeamSearch):
        search = BeamSearch(number, length_penalty=0.0, constraints=search.constraints)
    beams = max(search.beam_size, number)
    return dataclasses.replace(search, beam_size=beams, n_best=number)


def alternatives(predictor, text, search):
    """Returns pairs of score and translation, best first, as many as the search's `n_best`.

    Sentences that are the same but for how they are split into pieces are given once.
    """
    of_source, of_target = both(predictor.tokenizer)
    ids = of_source.tokenize([text]).numpy()[0].tolist()[: LENGTHS[-1] - 1]
    marks = {"start_id": of_source.start_id, "end_id": of_source.end_id}
    ids = [*ids, of_source.end_id]
    output = generate_all(predictor.model, [ids], search, LENGTHS, 1, verbose=0, **marks)
    tokens, scores = output["tokens"][0], output["scores"][0]
    if tokens.ndim == 1:  # `n_best` of one
        tokens, scores = tokens[None], scores[None]
    texts = [text.decode("utf-8", "replace") for text in of_target.detokenize(tokens).numpy()]
    ranked = {}
    for score, translation in zip(scores.tolist(), texts, strict=True):
        if score > float("-inf"):  # there may be fewer than `n_best`
            ranked.setdefault(translation, score)
    return [(score, translation) for translation, score in ranked.items()]


def alignment_picture(predictor, text, translation):
    """Draws the attention of each piece of the translation as pixels; None if it is too large.

    Rows are the pieces of the translation, columns those of the text.
    """
    match = READ_BY[isinstance(predictor.model, Transformer)]
    weights, queries, keys = alignment(
        predictor.model, predictor.tokenizer, text, translation, match
    )
    if max(weights.shape) > MOST_DRAWN:
        return None
    with tempfile.TemporaryDirectory() as folder:
        path = attention_heat_map(weights, queries, keys, pathlib.Path(folder, "alignment.png"))
        return np.asarray(PIL.Image.open(path).convert("RGB"))


NEW_TOKENS = 128
MASKED = -1e9


class AdjustableModel:
    """A language model whose temperature and `top_p` can be changed at any time.

    A search has its numbers compiled into it, and another temperature would compile for seconds;
    here they are variables: logits are divided by `temperature`, and what is not among the most
    probable tokens that sum to `top_p` is never chosen.

    Args:
        model: Anything with `start_decoding` and `decode_step` as `models.LanguageModel` has.
    """

    def __init__(self, model):
        self._model = model
        self.temperature = tf.Variable(1.0, trainable=False)
        self.top_p = tf.Variable(1.0, trainable=False)

    def __getattr__(self, name):
        return getattr(self._model, name)

    def decode_step(self, *inputs):
        """Returns the next logits, masked by `top_p`, and the state."""
        logits, state = self._model.decode_step(*inputs)
        logits = ops.cast(logits, "float32") / self.temperature
        return nucleus(logits, self.top_p), state


def nucleus(logits, top_p):
    """Masks the logits of all but the fewest tokens whose probabilities sum to `top_p`."""
    ranked = tf.sort(logits, direction="DESCENDING")
    probabilities = tf.nn.softmax(ranked)
    before = tf.cumsum(probabilities, axis=-1, exclusive=True)
    kept = tf.where(before < top_p, ranked, float("inf"))
    return tf.where(logits >= tf.reduce_min(kept, axis=-1, keepdims=True), logits, MASKED)


@dataclasses.dataclass(frozen=True)
class SamplingSettings:
    """The sampling of a folder's continuations, and their length."""

    temperature: float = 0.8
    top_p: float = 0.95
    new_tokens: int = NEW_TOKENS


def sampling_settings(folder, predictor=None):
    """Returns the `SamplingSettings` of a run, or of published weights with a model."""
    settings = settings_of(folder)
    names = [field.name for field in dataclasses.fields(SamplingSettings)]
    if "temperature" in settings and "new_tokens" in settings:  # a run
        return SamplingSettings(**{name: settings[name] for name in names})
    model = None if predictor is None else predictor.model
    most_positions = getattr(model, "most_positions", None) or 2 * NEW_TOKENS
    defaults = SamplingSettings(new_tokens=min(NEW_TOKENS, most_positions // 2))
    try:
        search = load_search(folder)
    except (FileNotFoundError, ValueError):
        return defaults
    if isinstance(search, Sampling):
        return dataclasses.replace(
            defaults, temperature=search.temperature, top_p=search.top_p or 1.0
        )
    return defaults


class Writer:
    """Writes continuations with a temperature and a `top_p` that differ from text to text.

    Args:
        model, tokenizer: As `export.TextGenerator` takes them.
        new_tokens: Most tokens of a continuation.
    """

    def __init__(self, model, tokenizer, new_tokens=NEW_TOKENS):
        if not model.built:
            model(keras.ops.ones((1, 1), "int32"))
        self._adjustable = AdjustableModel(model)
        self._generator = TextGenerator(self._adjustable, tokenizer, Sampling(), new_tokens)

    def write(self, prompt, temperature, top_p):
        """Yields a text with its continuation until now, and a note, while it is written.

        Raises:
            ValueError: If a number is out of its range.
        """
        if not temperature > 0 or not 0 < top_p <= 1:
            raise ValueError("The temperature must be above 0, top_p above 0 and at most 1.")
        self._adjustable.temperature.assign(temperature)
        self._adjustable.top_p.assign(top_p)
        pieces = self._generator.stream(prompt or "")
        note = cut({"truncated": pieces.truncated}, "beginning")
        for text in itertools.accumulate(pieces, initial=pieces.prompt):
            yield text, note


def write(predictor, prompt):
    """Returns a text with its continuation, by the numbers of the export; and a note."""
    answer = predictor.predict(prompt or "", details=True)
    return answer["text"], cut(answer, "beginning")


SIDE = 448  # pixels of a picture that is drawn over, at least
LARGEST = 1024  # pixels of a side of a picture that masks are laid over, at most
OPACITY = 0.6
MOST_CLASSES = 20
COLOURS = ("#e8590c", "#1971c2", "#2f9e44", "#9c36b5", "#e03131", "#f08c00", "#0c8599")


def uploaded(upload, folder):
    """Opens the picture of a request, the right way up, grey or RGB.

    Args:
        upload: Dict with the `path` of a file, as gradio passes it on, or None.
        folder: The folder in which gradio keeps uploads and examples. A request can name any other
            file of the machine, so files outside of it are not opened.

    Raises:
        ValueError: If there is no picture, it cannot be read, or it lies outside of `folder`.
    """
    path = upload and upload.get("path")
    if path and not pathlib.Path(path).resolve().is_relative_to(pathlib.Path(folder).resolve()):
        raise ValueError("Upload the picture, or choose an example: other files are not read.")
    return opened(path)


def opened(path):
    """Opens the picture in an uploaded file, the right way up, grey or RGB.

    Raises:
        ValueError: If there is none, or it cannot be read.
    """
    if not path:
        raise ValueError("Choose a picture first.")
    try:
        with PIL.Image.open(path) as picture:
            pixels = pixels_of_pillow(picture)
    except (OSError, ValueError, SyntaxError, PIL.Image.DecompressionBombError):
        raise ValueError("This file is no picture that can be read: JPEG, PNG, ...") from None
    return PIL.Image.fromarray(pixels[..., 0] if pixels.shape[-1] == 1 else pixels)


def classify_picture(predictor, picture):
    """Returns the five most probable classes of a picture, best first: label -> probability."""
    return most_probable(predictor.predict(picture))


def picture_similarity(predictor, first, second):
    """Returns the cosine of the angle between the vectors of two pictures."""
    left, right = np.array(predictor.predict([first, second]))
    length = np.linalg.norm(left) * np.linalg.norm(right)
    return float(left @ right / length) if length else 0.0


def attention(predictor, picture):
    """Returns the picture as the model sees it, under a map of what the answer draws on.

    Returns:
        uint8 pixels, or None where nothing says what an answer draws on; and a sentence.
    """
    preprocessing = predictor.preprocessing
    pixels = np.asarray(picture)
    pixels = pixels[..., None] if pixels.ndim == 2 else pixels
    pixels = preprocessing.decode(tf.io.encode_png(pixels)).numpy()
    maps = heat_map(predictor.model, preprocessing.normalize(pixels)[None])
    if maps is None:
        return None, "This model has no attention over patches that could be shown."
    return overlaid(pixels, maps[0][0]), f"What the answer draws on ({maps[1]}): bright is much."


def overlaid(pixels, warmth):
    """Lays a map of any size as colours over pixels `(height, width, 1 or 3)`, enlarged."""
    height, width = pixels.shape[:2]
    factor = max(1, -(-SIDE // min(height, width)))
    size = (width * factor, height * factor)
    colours = np.broadcast_to(pixels, (height, width, 3))
    enlarged = np.asarray(PIL.Image.fromarray(np.uint8(colours)).resize(size, PIL.Image.BILINEAR))
    warmth = np.asarray(warmth, "float32")
    warmth = warmth / max(float(warmth.max()), 1e-9)
    smooth = PIL.Image.fromarray(warmth).resize(size, PIL.Image.BICUBIC)
    shades = matplotlib.colormaps["inferno"](np.clip(np.asarray(smooth), 0, 1))[..., :3]
    return np.uint8(np.round(0.45 * enlarged + 0.55 * 255 * shades))


def detect(predictor, picture):
    """Returns all boxes of a picture, surest first: dicts of `label`, `score` and `box`."""
    return predictor.predict(picture, details=True)


def above_threshold(boxes, threshold):
    """Returns the boxes with a score of `threshold` or more."""
    return [box for box in boxes if box["score"] >= threshold]


def rows_of(boxes):
    """Returns a table: label, score in percent, left, top, right, bottom."""
    return [
        [box["label"], round(100 * box["score"], 1), *(round(side) for side in box["box"])]
        for box in boxes
    ]


def with_boxes(picture, boxes):
    """Draws boxes, labels and scores into a picture, which is enlarged if it is small."""
    factor = max(1, -(-SIDE // min(picture.size)))
    drawn = picture.convert("RGB").resize([factor * side for side in picture.size])
    pen = PIL.ImageDraw.Draw(drawn)
    line = max(2, round(min(drawn.size) / 200))
    names = sorted({box["label"] for box in boxes})
    for box in reversed(boxes):  # the surest above the others
        colour = COLOURS[names.index(box["label"]) % len(COLOURS)]
        left, top, right, bottom = (factor * side for side in box["box"])
        if right <= left or bottom <= top:
            continue
        pen.rectangle((left, top, right, bottom), outline=colour, width=line)
        label = f"{box['label']} {box['score']:.0%}" if len(names) > 1 else f"{box['score']:.0%}"
        position = pen.textbbox((left + line, top + line), label, font_size=6 * line)
        pen.rectangle(position, fill=colour)
        pen.text((left + line, top + line), label, fill="white", font_size=6 * line)
    return np.asarray(drawn)


def segment(predictor, picture):
    """Returns the picture, enlarged or reduced, with masks of its classes.

    Returns:
        uint8 pixels `(height, width, 3)`; pairs of a mask `(height, width)`, from 0 to 1, and the
        name of its class with its share, the largest first; and a sentence on what is left out.
    """
    answer = predictor.predict(picture)
    factor = min(max(1, SIDE / min(picture.size)), LARGEST / max(picture.size))
    size = [max(1, round(factor * side)) for side in picture.size]
    numbers = PIL.Image.fromarray(np.array(answer["map"], "int32"))
    numbers = np.asarray(numbers.resize(size, PIL.Image.NEAREST))
    masks = {}
    for number in np.unique(numbers):
        name = predictor.labels[number] if predictor.labels else str(number)
        masks[name] = masks.get(name, 0) + OPACITY * (numbers == number)
    shares = [share for share in answer["shares"].items() if share[0] in masks][:MOST_CLASSES]
    number = len(answer["shares"]) - len(shares)
    left_out = f"Classes that are too small to be shown: {number}." if number else ""
    pairs = [(masks[name], f"{name}: {share:.1%}") for name, share in shares]
    return np.asarray(picture.convert("RGB").resize(size)), pairs, left_out
