"""Answers of an exported folder by hand: numpy, Pillow, sentencepiece and the format's runtime.

    python by_hand.py FOLDER image.png ...      python by_hand.py FOLDER "a text" ...

Everything else comes out of `preprocessing.json` and the tokenizer's file; TensorFlow, Keras and
keras_transformers are not used.
"""

import json
import pathlib
import re
import sys
import unicodedata

import numpy as np

IDEOGRAPHS = ((0x3400, 0x9FFF), (0xF900, 0xFAFF), (0x20000, 0x2CEAF), (0x2F800, 0x2FA1F))


def answers(folder, raw):
    """The outputs for some image files or texts, with the names of labels; plain Python."""
    folder = pathlib.Path(folder)
    settings = json.loads((folder / "preprocessing.json").read_text(encoding="utf-8"))
    inputs = batch_of_texts(folder, settings, raw) if "tokenizer" in settings else None
    inputs = inputs or batch_of_images(settings, raw)
    found = run(folder / settings["file"], inputs)
    result = {name: found[name].tolist() for name in settings["outputs"]}
    if "labels" in settings:
        result["label"] = np.array(settings["labels"])[found["label"]].tolist()
    return result


def run(file, inputs):
    if file.suffix == ".onnx":
        import onnxruntime

        session = onnxruntime.InferenceSession(file)
        names = [output.name for output in session.get_outputs()]
        return dict(zip(names, session.run(names, inputs), strict=True))
    from ai_edge_litert.interpreter import Interpreter

    return Interpreter(str(file)).get_signature_runner()(**inputs)


def batch_of_images(settings, files):
    pixels, sizes = zip(*(image(settings, file) for file in files), strict=True)
    inputs = {"pixels": np.stack(pixels), "content_size": np.array(sizes, "int32")}
    return {name: inputs[name] for name in settings["inputs"]}


def image(settings, file):
    """Pixels of one file as the model takes them, and the height and width of the image there."""
    from PIL import Image, ImageOps

    channels = settings["channels"]
    picture = ImageOps.exif_transpose(Image.open(file))
    x = np.asarray(picture.convert("L" if channels == 1 else "RGB"), "float32")
    x = x.reshape(*x.shape[:2], channels)
    height, width = resized(settings, np.float32(x.shape[:2]))
    method = Image.Resampling[settings["method"].upper()]
    planes = [Image.fromarray(x[..., c]).resize((width, height), method) for c in range(channels)]
    x = np.round(np.clip(np.stack(planes, axis=-1), *settings["pixel_range"])).astype("uint8")
    rows, columns = settings["image_size"]
    if settings["resize"] == "fit":
        space = ((0, rows - height), (0, columns - width), (0, 0))
        return np.pad(x, space, constant_values=settings["filling"]), (height, width)
    top, left = (height - rows) // 2, (width - columns) // 2
    return x[top : top + rows, left : left + columns], (rows, columns)


def sides_in_frame(settings, extents):
    """Height and width of an image in the frame of a detector."""
    side, frame = settings["resized"], settings["image_size"]
    if side is None:
        sides = np.floor(extents * (frame / extents).min())
    else:
        shorter, longer = extents.min(), extents.max()
        if longer / shorter * side > frame[0]:
            side = frame[0] * shorter / longer
        sides = np.where(extents == shorter, np.round(side), np.floor(side * extents / shorter))
    return np.maximum(sides, 1).astype(int).tolist()


def resized(settings, extents):
    """Height and width that an image is resized to."""
    size, rule = np.float32(settings["image_size"]), settings["resize"]
    if rule == "squeeze":
        return settings["resized"]
    if rule == "fit":
        return sides_in_frame(settings, np.float64(extents))
    if rule == "cover":
        inner = np.round(extents * (size / extents).max())
    else:
        factor = np.float32(settings["resized"]) / extents.min()
        inner = np.floor(extents * factor + np.float32(1e-3))
    return np.maximum(inner, size).astype(int).tolist()


def batch_of_texts(folder, settings, texts):
    tokenizer = settings["tokenizer"]
    kinds = {"wordpiece": word_pieces, "sentencepiece": sentence_pieces}
    tokenize = kinds[tokenizer["kind"]](folder / tokenizer["file"], tokenizer)
    most = settings["max_length"] - 2
    rows = [[settings["start_id"], *tokenize(t)[:most], settings["end_id"]] for t in texts]
    ids = np.full((len(rows), max(map(len, rows))), settings["padding_id"], "int32")
    for row, found in zip(ids, rows, strict=True):
        row[: len(found)] = found
    return {"ids": ids}


def sentence_pieces(file, settings):
    import sentencepiece

    return sentencepiece.SentencePieceProcessor(model_file=str(file)).encode


def word_pieces(file, settings):
    pieces = file.read_text(encoding="utf-8").removesuffix("\n").split("\n")
    numbers = {piece: number for number, piece in enumerate(pieces)}
    special = "|".join(map(re.escape, settings["special"]))

    def cut(word):
        found, start = [], 0
        while start < len(word):
            for end in range(len(word), start, -1):
                piece = settings["continuation"] * bool(start) + word[start:end]
                if piece in numbers:
                    break
            else:
                return [numbers[settings["unknown"]]]
            found.append(numbers[piece])
            start = end
        return found

    def tokenize(text):
        ids = []
        for part in re.split(f"({special})", text):
            if part in settings["special"]:
                ids.append(numbers[part])
                continue
            for word in words(part, settings["lower_case"]):
                long = len(word) > settings["max_word_length"]
                ids += [numbers[settings["unknown"]]] if long else cut(word)
        return ids

    return tokenize


def words(text, lower_case):
    """BERT's: spaces, no control characters, accents and capitals away, punctuation alone."""
    category = unicodedata.category
    text = "".join(" " if c in "\t\n\r" or category(c)[0] == "Z" else c for c in text)
    text = "".join(c for c in text if category(c) not in ("Cc", "Cf", "Co") and c != "\ufffd")
    if lower_case:
        text = unicodedata.normalize("NFD", text)
        text = "".join("σ" if c == "Σ" else c.lower() for c in text if category(c) != "Mn")
    return "".join(f" {c} " if alone(c) else c for c in text).split()


def alone(character):
    number = ord(character)
    if character.isascii():
        return character.isprintable() and not character.isalnum() and character != " "
    ideograph = any(first <= number <= last for first, last in IDEOGRAPHS)
    return ideograph or unicodedata.category(character)[0] == "P"


if __name__ == "__main__":
    sys.modules.update(dict.fromkeys(("keras_transformers", "keras", "tensorflow")))
    print(json.dumps(answers(sys.argv[1], sys.argv[2:])))
