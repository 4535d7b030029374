"""Claims about links of words in the translation recipe."""

import pytest

import keras_transformers
from keras_transformers.text import PairCorpus
from recipes.data.joined_corpora import JoinedCorpus
from recipes.data.translation import TranslationData
from recipes.data.translation import load as load_pairs
from recipes.lib.translating import eflomal_links, load_links
from tests.recipes.command import run

PAIRS = [("open the door", "Öffne die Tür"), ("a  cat", "eine Katze")]


@pytest.fixture
def data():
    corpus = PairCorpus.from_pairs("pairs", PAIRS)
    return TranslationData("own", corpus, corpus, corpus)


def test_links_of_a_file_are_those_of_the_pairs_in_their_order(data, tmp_path):
    (tmp_path / "links").write_text("0-0 1-1 2-2\n\n")
    assert load_links(str(tmp_path / "links"), data) == [[(0, 0), (1, 1), (2, 2)], []]
    assert load_links(None, data) is None


def test_wrong_links_end_in_a_sentence(data, tmp_path):
    (tmp_path / "links").write_text("0-0\n")
    with pytest.raises(ValueError, match="must have a line for each training pair.* 2. It has 1"):
        load_links(str(tmp_path / "links"), data)
    (tmp_path / "links").write_text("0-0\n0:1\n")
    with pytest.raises(ValueError, match="line 2: .*must have links such as 0-0. Received: '0:1'"):
        load_links(str(tmp_path / "links"), data)
    with pytest.raises(ValueError, match='there is no file .*nothing; or give "eflomal"'):
        load_links(str(tmp_path / "nothing"), data)
    joined = TranslationData("two", *[JoinedCorpus({"en-de": data.train})] * 3)
    with pytest.raises(ValueError, match="several directions have none"):
        load_links("eflomal", joined)


def test_an_aligner_reads_both_sides_and_what_it_says_is_read(data, tmp_path):
    """One that stands for eflomal's: links the first words, keeps what it was given."""
    program = tmp_path / "aligner"
    program.write_text(
        "#!/bin/sh\n"
        f'cat "$2" "$4" > {tmp_path}/given\n'
        'sed "s/.*/0-0/" "$2" > "$6"\n'
        'sed "s/.*/0-0 1-1/" "$2" > "$8"\n'
    )
    program.chmod(0o755)
    forward, reverse = eflomal_links([data.train, data.valid], str(program))
    assert forward == [{(0, 0)}] * 4 and reverse == [{(0, 0), (1, 1)}] * 4
    given = (tmp_path / "given").read_text().splitlines()
    assert given == ["open the door", "a cat"] * 2 + ["Öffne die Tür", "eine Katze"] * 2
    program.write_text("#!/bin/sh\necho no memory >&2\nexit 1\n")
    with pytest.raises(ValueError, match="aligner failed: no memory"):
        eflomal_links([data.train], str(program))
    with pytest.raises(ValueError, match="There is no program .*nothing; `pip install eflomal`"):
        eflomal_links([data.train], str(tmp_path / "nothing"))


@pytest.mark.slow
def test_a_run_with_links_leaves_a_head_that_answers(tmp_path):
    train = load_pairs("ui.en-de").head(train=400).train
    lines = "".join("0-0\n" if source and target else "\n" for source, target in
                    zip(train.sources, train.targets, strict=True))  # fmt: skip
    (tmp_path / "links").write_text(lines)
    run("translation", tmp_path / "run", "--smoke", "--guided-alignment", str(tmp_path / "links"))
    predictor = keras_transformers.load(tmp_path / "run")
    learned = predictor.align(["Open the door"], ["Öffne die Tür"])
    assert len(learned) == len(predictor.align(["Open"], ["Öffne"], layer=0)) == 1
    answer = predictor.predict("Open the door", confidence=True, scores=True)
    assert 0 <= answer["confidence"] <= 100 and answer["tokens"]
