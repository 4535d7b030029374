"""One translator in the forms of three libraries: written to a folder, and answering from it.

`write` needs all of them. What answers needs its own library and, for the peers, sentencepiece:
each takes a list of str and gives a list of str, in a process without `keras_transformers`.
"""

import ctypes
import importlib
import json
import os
import pathlib
import statistics
import sys
import time

from benchmarks import alternating
from benchmarks.report import resident_mebibytes

PORTABLE, XLA, THEIRS, COMPILED = "ours, portable", "ours, XLA", "Hugging Face", "CTranslate2"
OF_OURS = ("tensorflow", "tensorflow_text")  # which registers the tokenizer's ops
MODULES = {
    PORTABLE: OF_OURS,
    XLA: OF_OURS,
    THEIRS: ("torch", "sentencepiece", "transformers"),
    COMPILED: ("ctranslate2", "sentencepiece"),
}
SIGNATURES = {PORTABLE: "serving_default", XLA: "xla"}
START, END, PADDING = 1, 2, 0
ENDLESS = "endless"  # a file, where it is so
EPSILON = 1e-5  # of all norms: CTranslate2 has no other


def write(folder, model, tokenizer, searches, endless):
    """Writes a post-norm or pre-norm `Transformer` for all candidates.

    Args:
        folder: `pathlib.Path` to write into.
        model: The model; its norms get the epsilon that CTranslate2 has.
        tokenizer: Its `SentencePieceTokenizer`.
        searches: Dict of beam sizes to searches.
        endless: Whether the model never ends a sentence.
    """
    from benchmarks.keywords import transformer_keywords
    from benchmarks.marian import set_epsilon
    from keras_transformers.export import Translator

    set_epsilon(model, EPSILON)
    for beam, search in searches.items():
        Translator(model, tokenizer, search).save(folder / f"beam{beam}")
    (folder / "tokenizer.model").write_bytes(tokenizer.proto)
    if endless:
        (folder / ENDLESS).touch()
    weights = {weight.path.split("/", 1)[1]: weight.numpy() for weight in model.weights}
    pieces = tokenizer.pieces(range(tokenizer.vocab_size))
    alternating.apart(write_peers, folder, transformer_keywords(model), weights, pieces)


def write_peers(folder, settings, weights, pieces):
    """Writes a `Transformer` of these settings and weights for transformers and CTranslate2."""
    import torch
    from ctranslate2.converters.transformers import BartLoader

    from benchmarks.marian import marian

    same = marian(settings, weights).eval()
    same.config.save_pretrained(folder / "hugging_face")
    # Not by `save_pretrained`, which leaves out positions: ours are in another order.
    torch.save(same.state_dict(), folder / "hugging_face" / "weights.pt")
    same.config.normalize_before = settings["norm_first"]
    same.config.normalize_embedding = False
    spec = BartLoader().get_model_spec(same)
    spec.register_source_vocabulary(pieces)
    spec.register_target_vocabulary(pieces)
    spec.config.unk_token = "<unk>"
    spec.config.bos_token = spec.config.decoder_start_token = pieces[START]
    spec.config.eos_token = pieces[END]
    spec.validate()
    spec.optimize()
    (folder / "ctranslate2").mkdir()
    spec.save(str(folder / "ctranslate2"))


def most_tokens(pieces):
    """Our limit on a translation, END included, of so many pieces, END included."""
    return min(2 * pieces + 10, pieces + 50)


def importing(name):
    """Imports what a candidate needs, so that it can be timed without."""
    first, *_ = [importlib.import_module(module) for module in MODULES[name]]
    if name == PORTABLE:  # as TensorFlow Serving does when it starts
        library = os.path.join(os.path.dirname(first.__file__), "libtensorflow_cc.so.2")
        ctypes.CDLL(library)._ZN10tensorflow21DisableXlaCompilationEv()
    elif name == THEIRS:
        first.set_num_threads(os.cpu_count())


def translator(name, folder, beam):
    """Function from a list of sentences to a list of translations."""
    folder = pathlib.Path(folder)
    if name in SIGNATURES:
        return _ours(folder / f"beam{beam}", SIGNATURES[name])
    return (_hugging_face if name == THEIRS else _ctranslate)(folder, beam)


def _ours(folder, signature):
    import tensorflow as tf

    loaded = tf.saved_model.load(str(folder))
    run = loaded.signatures[signature]

    def translate(sentences):
        found = run(text=tf.constant(sentences))["translation"].numpy()
        return [text.decode() for text in found]

    translate.loaded = loaded  # whose variables the signature holds weakly
    return translate


def _pieces(folder):
    import sentencepiece

    return sentencepiece.SentencePieceProcessor(model_file=str(folder / "tokenizer.model"))


def _hugging_face(folder, beam):
    import torch
    import transformers

    config = transformers.AutoConfig.from_pretrained(folder / "hugging_face")
    model = transformers.AutoModelForSeq2SeqLM.from_config(config).eval()
    path = folder / "hugging_face" / "weights.pt"
    model.load_state_dict(torch.load(path, weights_only=True))
    pieces = _pieces(folder)
    ends = {"num_beams": beam, "early_stopping": True} if beam > 1 else {}

    def translate(sentences):
        rows = [[*row, END] for row in pieces.encode(sentences)]
        longest = max(map(len, rows))
        ids = torch.tensor([row + [PADDING] * (longest - len(row)) for row in rows])
        limits = torch.tensor([most_tokens(len(row)) for row in rows])
        with torch.inference_mode():
            found = model.generate(
                ids,
                attention_mask=(ids != PADDING).long(),
                do_sample=False,
                max_new_tokens=int(limits.max()),
                logits_processor=[_limiting(limits.repeat_interleave(beam))],
                **ends,
            )
        return pieces.decode([_text_only(row) for row in found[:, 1:].tolist()])

    return translate


def _limiting(limits):
    """Forces END where a row of its own limit has no room for more."""

    def limit(tokens, scores):
        due = limits <= tokens.shape[1]
        if due.any():
            end = scores[due, END]
            scores[due] = -float("inf")
            scores[due, END] = end
        return scores

    return limit


def _text_only(ids):
    return [number for number in ids if number > END]


def _ctranslate(folder, beam):
    import ctranslate2

    translator = ctranslate2.Translator(
        str(folder / "ctranslate2"), compute_type="float32", intra_threads=os.cpu_count()
    )
    pieces = _pieces(folder)
    end = pieces.id_to_piece(END)
    among = statistics.mean if (folder / ENDLESS).exists() else max

    def translate(sentences):
        rows = [[*row, end] for row in pieces.encode(sentences, out_type=str)]
        limit = among([most_tokens(len(row)) for row in rows])
        found = translator.translate_batch(
            rows,
            beam_size=beam,
            length_penalty=1.0,
            max_decoding_length=round(limit) - 1,  # END not counted
        )
        ids = [pieces.piece_to_id(each.hypotheses[0]) for each in found]
        return pieces.decode([_text_only(row) for row in ids])

    return translate


def requests(folder):
    """The sentences of all requests, written by `benchmarks.serving`."""
    return json.loads(pathlib.Path(folder, "requests.json").read_text(encoding="utf-8"))


def first_answer(name, folder, beam):
    """Seconds from loading to the answer to the first request of one, and memory then."""
    importing(name)
    request = requests(folder)["1"][0]
    started = time.perf_counter()
    translator(name, folder, beam)(request)
    return {"seconds": time.perf_counter() - started, "mebibytes": resident_mebibytes()}


if __name__ == "__main__":  # NAME FOLDER BEAM, for `benchmarks.serving`
    print(json.dumps(first_answer(sys.argv[1], sys.argv[2], int(sys.argv[3]))))
