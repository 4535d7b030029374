"""Makes published_tokenizers.npz: ids of Hugging Face's Marian and GPT-2 tokenizers.

    pip install transformers sentencepiece
    python tests/golden/make_published_tokenizers.py

Written by transformers 5.23.0. The vocabularies are learnt here, from the embedded translations;
the texts are of those and of `TEXTS`, which has what is rare.
"""

import io
import json
import pathlib
import sys
import tempfile

import numpy as np
import sentencepiece
import transformers
from tokenizers import ByteLevelBPETokenizer

sys.path.insert(0, str(pathlib.Path(__file__).parents[2]))
from recipes.data.translation import load

TEXTS = [
    "",
    " ",
    "   a   b\tc\n\n d  ",
    "It's what they'll've done, I'd say: 'tis theirs' 'S",
    "x\u00a0y\u2003z\u3000\u0085w",
    "12 345,67 € ½ ² Ⅷ ٣",
    "naïve café Übergröße ÇA İstanbul",
    "日本語のテキスト 한국어 العربية हिन्दी",
    "👩‍👩‍👧 🙂🙂 \U0001f1e9\U0001f1ea",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaa ababababababab!!!!!!!!!----====",
    "a<|endoftext|>b  <|endoftext|>  c <|endoftext",
    ">>fra<< Open the door.",
    ">>x<<>>y<< Open",
    "> >fra<< a >>fra<< b",
    "\ufeffbyte order mark\u200b and zero width",
    "unknown: \u2603 \u1e9e \u0416",
    "tab\tand\r\nlines",
]


def spm(lines, size):
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines),
        model_writer=model,
        vocab_size=size,
        num_threads=1,
        bos_id=-1,
        eos_id=0,
        unk_id=1,
        minloglevel=2,
    )
    return model.getvalue()


def pieces(proto):
    model = sentencepiece.SentencePieceProcessor(model_proto=proto)
    return [model.id_to_piece(i) for i in range(model.get_piece_size())]


def ragged(sequences):
    return np.concatenate([np.array(s, "int32") for s in sequences]), np.array(
        [len(s) for s in sequences]
    )


def main():
    data = load("ui.en-de")
    sources, targets = data.train.sources[:6000], data.train.targets[:6000]
    texts = TEXTS + data.test.sources[:60] + data.test.targets[:60]
    arrays = {"texts": np.array(json.dumps(texts))}
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        protos = {"source.spm": spm(sources, 800), "target.spm": spm(targets, 800)}
        vocab = list(
            dict.fromkeys(
                [
                    "</s>",
                    "<unk>",
                    *pieces(protos["source.spm"]),
                    *pieces(protos["target.spm"]),
                    ">>fra<<",
                ]
            )
        )
        vocab.append("<pad>")
        for name, proto in protos.items():
            (folder / name).write_bytes(proto)
            arrays[name] = np.frombuffer(proto, "uint8")
        numbers = {piece: i for i, piece in enumerate(vocab)}
        (folder / "vocab.json").write_text(json.dumps(numbers))
        arrays["vocab.json"] = np.array(json.dumps(numbers))
        marian = transformers.MarianTokenizer(
            str(folder / "source.spm"), str(folder / "target.spm"), str(folder / "vocab.json")
        )
        for name, found in (
            ("marian", marian(texts)),
            ("marian_target", marian(text_target=texts)),
        ):
            arrays[f"{name}/ids"], arrays[f"{name}/lengths"] = ragged(found["input_ids"])
        decoded = marian.batch_decode(marian(texts)["input_ids"], skip_special_tokens=True)
        arrays["marian/decoded"] = np.array(json.dumps(decoded))
        trained = ByteLevelBPETokenizer()
        trained.train_from_iterator(
            sources + targets, 1200, 2, special_tokens=["<|endoftext|>"], show_progress=False
        )
        trained.save_model(str(folder))
        for name in ("vocab.json", "merges.txt"):
            arrays[f"gpt2/{name}"] = np.array((folder / name).read_text(encoding="utf-8"))
        gpt2 = transformers.GPT2Tokenizer.from_pretrained(str(folder))
        found = [gpt2(text)["input_ids"] for text in texts]
        arrays["gpt2/ids"], arrays["gpt2/lengths"] = ragged(found)
    np.savez_compressed(pathlib.Path(__file__).with_name("published_tokenizers.npz"), **arrays)


if __name__ == "__main__":
    main()
