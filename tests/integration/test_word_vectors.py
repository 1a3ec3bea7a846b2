"""Word vectors from text to page, as a user makes them; and what goes wrong on the way."""

import json
import os
import signal
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from tests.tasks import TOPICS, running_text, told_apart

from manyhands import WordVectors
from manyhands.bundle.bundle import load_bundle
from manyhands.bundle.word_vectors import open_embedding
from manyhands.storage.tensors import read_tensors
from manyhands.training.checkpoint import checkpoints

SMALL = ("--dim", "20", "--sample", "1", "--min-count", "1", "--negatives", "2")


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text("\n".join(dict.fromkeys(running_text(3000))) + "\n")
    return path


@pytest.fixture
def sets(tmp_path):
    folder = tmp_path / "sets"
    folder.mkdir()
    words = [topic.split() for topic in TOPICS]
    lines = [f"{words[0][k]}\t{words[0][k + 1]}\t{8 + k / 10}" for k in range(4)]
    lines += [f"{words[0][k]}\t{words[1][k]}\t{1 + k / 10}" for k in range(4)]
    (folder / "mine.txt").write_text("\n".join([*lines, "whale\tunheardof\t5"]) + "\n")
    (folder / "questions-words.txt").write_text(
        ": places\nwhale ocean wheat barley\nwhale ocean wheat nowhere\n"
    )
    return folder


def test_from_text_to_a_page(manyhands, tmp_path, text, sets):
    shown = manyhands("prepare", text, "--format", "text", "--valid", "0.1", "--test", "0.1", "--out", "data")
    assert shown.code == 0, shown.err
    shown = manyhands("train", "data", "--model", "skipgram", *SMALL, "--epochs", "8", "--out", "runs/words")
    assert shown.code == 0, shown.err
    assert "validation: loss" in shown.out
    assert "test: loss" in shown.out
    record = json.loads((tmp_path / "runs/words/record.json").read_text())
    assert record["data"]["from"] == ["data"]
    assert record["examples_seen"] == 8 * record["data"]["tokens"]
    assert record["tokens_per_second"] > 0
    assert told_apart(open_embedding(tmp_path / "runs/words")) > 0.3

    found = json.loads(manyhands("evaluate", "runs/words", "--sets", sets, "--json").out)
    assert found["similarity"]["mine"]["spearman"] > 0.5
    assert found["similarity"]["mine"]["coverage"] == pytest.approx(8 / 9)
    assert found["analogies"]["Google"]["total"]["covered"] == 1
    assert found["analogies"]["Google"]["total"]["questions"] == 2
    assert "MEN" in found["missing"]
    assert found["pip"]["relative"] < found["pip"]["random"]
    assert found["pip"]["zero"] == 1
    told = manyhands("evaluate", "runs/words", "--sets", sets).out
    assert "coverage" in told
    assert "PIP loss" in told
    assert "not found in" in told

    near = manyhands("nearest", "runs/words", "whale", "--top", "3").out.split()
    assert set(near[::2]) <= set(TOPICS[0].split())
    answers = manyhands("analogy", "runs/words", "whale", "ocean", "wheat", "--top", "2").out.split()[::2]
    assert len(answers) == 2
    assert not {"whale", "ocean", "wheat"} & {*answers}
    assert manyhands("project", "runs/words", "--words", "60", "--out", "page.html").code == 0
    assert "whale" in (tmp_path / "page.html").read_text()


def test_a_bundle_whose_text_is_gone_says_so(manyhands, text, sets):
    assert manyhands("train", text, "--model", "skipgram", *SMALL, "--out", "run").code == 0
    text.rename(text.with_name("moved.txt"))
    shown = manyhands("evaluate", "run", "--sets", sets)
    assert shown.code == 0
    assert "no PIP loss: " in shown.out and "text.txt does not exist" in shown.out
    named = json.loads(manyhands("evaluate", "run", "moved.txt", "--sets", sets, "--json").out)
    assert named["pip"]["words"] > 20
    itself = json.loads(manyhands("evaluate", "run", "--against", "run", "--sets", sets, "--json").out)
    assert itself["pip"]["loss"] == 0


FORMATS = ["word2vec", "word2vec-binary", "glove", "keyedvectors", "safetensors", "projector"]


def test_every_format_is_read_back_by_gensim_with_the_same_neighbours(manyhands, tmp_path, text):
    gensim = pytest.importorskip("gensim.models", reason="needs gensim")
    assert manyhands("train", text, "--model", "skipgram", *SMALL, "--out", "run").code == 0
    mine = WordVectors.load(tmp_path / "run")
    words = [topic.split()[0] for topic in TOPICS]
    expected = {word: [near for near, _ in mine.most_similar(word, topn=10)] for word in words}
    keyed = gensim.KeyedVectors
    for to in FORMATS:
        shown = manyhands("convert", "run", "--to", to, "--out", f"out.{to}")
        assert shown.code == 0, shown.err
        path = str(tmp_path / f"out.{to}")
        if to in ("word2vec", "word2vec-binary"):
            read = keyed.load_word2vec_format(path, binary=to.endswith("binary"))
        elif to == "glove":
            read = keyed.load_word2vec_format(path, no_header=True)
        elif to == "keyedvectors":
            read = keyed.load(path)
        else:
            names, vectors = read_plainly(Path(path), to)
            read = keyed(vectors.shape[1])
            read.add_vectors(names, vectors)
        assert len(read) == len(mine), to
        for word in words:
            assert [near for near, _ in read.most_similar(word, topn=10)] == expected[word], to


def read_plainly(path, to):
    if to == "projector":
        names = (path / "metadata.tsv").read_text().splitlines()
        return names, np.loadtxt(path / "vectors.tsv", delimiter="\t", dtype=np.float32)
    arrays, _ = read_tensors(path)
    starts = arrays["word_offsets"].tolist()
    letters = arrays["letters"].tobytes()
    return [letters[a:b].decode() for a, b in pairwise(starts)], arrays["inputs"].copy()


@pytest.mark.parametrize(("model", "more"), [("skipgram", ()), ("charlstm", ("--hidden-size", "16"))])
def test_killed_and_resumed_is_as_if_nothing_had_happened(manyhands, tmp_path, model, more):
    (tmp_path / "text.txt").write_text("\n".join(running_text(400)))
    command = ["train", "text.txt", "--model", model, *SMALL, *more, "--epochs", "6", "--deterministic"]
    assert manyhands(*command, "--out", "whole").code == 0
    killed = [*command, "--out", "killed", "--checkpoint-seconds", "0"]
    process = subprocess.Popen([sys.executable, "-m", "manyhands", *killed], cwd=tmp_path)
    while not checkpoints(tmp_path / ".killed.checkpoint"):
        assert process.poll() is None
        time.sleep(0.002)
    process.send_signal(signal.SIGKILL)
    assert process.wait(30) == -signal.SIGKILL, "it ended before it was killed"
    assert not (tmp_path / "killed").exists()
    assert checkpoints(tmp_path / ".killed.checkpoint")
    resumed = manyhands(*killed, "--resume")
    assert resumed.code == 0, resumed.err
    one, two = ((tmp_path / name / "model.safetensors").read_bytes() for name in ("whole", "killed"))
    assert one == two


def test_letters_have_a_vector_for_any_word(manyhands, text):
    shown = manyhands("train", text, "--model", "charlstm", *SMALL, "--hidden-size", "16", "--out", "run")
    assert shown.code == 0, shown.err
    near = manyhands("nearest", "run", "unheardofword", "--top", "3", "--json")
    assert near.code == 0, near.err
    assert len(json.loads(near.out)["nearest"]) == 3


def test_mistakes_are_told_in_a_sentence(manyhands, tmp_path, text, sets):
    assert manyhands("train", text, "--model", "skipgram", *SMALL, "--out", "run").code == 0
    unknown = manyhands("nearest", "run", "whalee")
    assert (unknown.code, "did you mean whale" in unknown.err) == (3, True)
    for verb in (
        ("predict", "run"),
        ("explain", "run", "a text"),
        ("quantize", "run", "--size", "2MB", "--out", "q"),
    ):
        refused = manyhands(*verb, stdin=b"text\n")
        assert (refused.code, "word vectors" in refused.err) == (2, True), verb
    (tmp_path / "empty.txt").write_text("\n\n")
    assert manyhands("train", "empty.txt", "--model", "skipgram", "--out", "x").code == 3
    (tmp_path / "one.txt").write_text("word " * 100)
    one = manyhands("train", "one.txt", "--model", "skipgram", "--out", "x")
    assert (one.code, "only 'word'" in one.err) == (3, True)
    (sets / "bad.txt").write_text("king queen 8\nking queen much\nman woman 7\nman boy 6\n")
    bad = manyhands("evaluate", "run", "--sets", sets)
    assert (bad.code, "line 2" in bad.err) == (3, True)
    assert not bad.out
    wrong = manyhands("train", text, "--model", "skipgram", "--hidden-size", "3", "--out", "x")
    assert (wrong.code, "--hidden-size is for --model lstm or charlstm" in wrong.err) == (2, True)
    (tmp_path / "lies.vec").write_text("5 2\nking 1 2\n")
    lies = manyhands("nearest", "lies.vec", "king")
    assert lies.code == 3
    assert os.linesep not in lies.err.strip()


def test_any_column_of_text_will_do(manyhands, tmp_path, sets):
    lines = ["id,body,x", *(f'{n},"{row}",1' for n, row in enumerate(running_text(500)))]
    (tmp_path / "body.csv").write_text("\n".join(lines))
    which = ("--text-field", "body", "--model", "skipgram", *SMALL)
    shown = manyhands("train", "body.csv", *which, "--out", "run")
    assert shown.code == 0, shown.err
    found = json.loads(manyhands("evaluate", "run", "--sets", sets, "--json").out)
    assert found["pip"]["words"] > 20
    refused = manyhands("train", "body.csv", "--labels", "stars", "--model", "skipgram", "--out", "x")
    assert (refused.code, "--labels is for classifiers" in refused.err) == (2, True)


def test_a_reader_of_letters_is_continued_in_its_own_shape(manyhands, text):
    shape = ("--char-dim", "8", "--hidden-size", "16")
    assert manyhands("train", text, "--model", "charlstm", *SMALL, *shape, "--out", "one").code == 0
    more = ("--continue-from", "one", "--epochs", "1", "--out", "two")
    shown = manyhands("train", text, "--model", "charlstm", *more)
    assert shown.code == 0, shown.err


def test_a_vocabulary_is_kept_with_the_vectors(tmp_path, text):
    vectors = WordVectors.train(text, tmp_path / "run", dim=16, min_count=1, sample=1.0)
    assert vectors.vector_size == 16
    assert vectors.similarity("whale", "ocean") > vectors.similarity("whale", "wheat")
    assert load_bundle(tmp_path / "run").labels == []
    assert not (tmp_path / "run" / "vocabulary.tsv").exists()
    assert (tmp_path / "run" / "README.md").read_text().startswith("# Word vectors: skipgram")
