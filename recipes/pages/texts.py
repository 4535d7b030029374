"""Pages for texts: what is masked, classes, numbers, tags, likeness, and answers to questions."""

import math

from .asking import cut, most_probable, text_of

MASK = "[MASK]"
CUT_PAIR = "The end of the question, or of a very long text, was cut off."
NO_ANSWER = "The model finds it more probable that the text does not answer this."


def fill(predictor, text):
    """A text filled in; dict of candidate -> probability for its first mask; and a sentence.

    Raises:
        ValueError: If there is no text, or no mask in it.
    """
    if MASK not in text_of(text):
        raise ValueError(f"Write {MASK} where the model is to fill in a word.")
    found = predictor.predict(text)
    candidates = {}
    for each in found["candidates"]:  # a word and the end of one may be written alike
        candidates.setdefault(each["token"], each["probability"])
    if not candidates:
        raise ValueError(f"The model reads no {MASK} in this text. {cut(found)}".strip())
    return found["text"], candidates, cut(found)


def classify(predictor, text):
    """The five most probable classes, dict of label -> probability; and a sentence.

    Raises:
        ValueError: If there is no text.
    """
    found = predictor.predict(text_of(text))
    return most_probable(found), cut(found)


def rate(predictor, text):
    """The number of a text, to six digits, and a sentence.

    Raises:
        ValueError: If there is no text.
    """
    found = predictor.predict(text_of(text), details=True)
    return float(f"{found['value']:.6g}"), cut(found)


def tag(predictor, text):
    """A text in parts, pairs of str and the tag of its words, or None; and a sentence.

    Words of an entity stand in one part; where tags mark none, each word that has a tag.

    Raises:
        ValueError: If there is no text.
    """
    found = predictor.predict(text_of(text), details=True)
    words = [{**word, "type": word["tag"]} for word in found["words"] if word["tag"]]
    parts, end = [], 0
    for each in found.get("entities", words):
        parts += [(text[end : each["start"]], None)] if each["start"] > end else []
        parts.append((text[each["start"] : each["end"]], each["type"]))
        end = each["end"]
    return parts + ([(text[end:], None)] if end < len(text) else []), cut(found)


def similarity(predictor, first, second):
    """The cosine of the angle between the vectors of two texts, and a sentence.

    Raises:
        ValueError: If a text is missing.
    """
    texts = [text_of(first, "first text"), text_of(second, "second text")]
    found = predictor.predict(texts, details=True)
    one, other = (each["embedding"] for each in found)
    length = math.hypot(*one) * math.hypot(*other)
    product = sum(a * b for a, b in zip(one, other, strict=True))
    return product / length if length else 0.0, cut(found[0]) or cut(found[1])


def answer(predictor, question, text):
    """The answer to a question, the text in parts, of which it is one, and sentences.

    Raises:
        ValueError: If the question or the text is missing.
    """
    pair = (text_of(question, "question"), text_of(text))
    found = predictor.predict(pair, details=True)
    start, end = found["start"], found["end"]
    parts = [(text[:start], None), (text[start:end], "answer"), (text[end:], None)]
    said = [f"Score: {found['score']:.2f}; 1 is surest."]
    said += [NO_ANSWER] if found["no_answer"] > found["score"] else []
    said += [CUT_PAIR] if found["truncated"] else []
    return found["answer"], [part for part in parts if part[0]], " ".join(said)
