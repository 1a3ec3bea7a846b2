"""Sets of judged words: how they are read, told apart, named and found."""

import os
from pathlib import Path

import pytest

from manyhands.errors import InputError
from manyhands.evaluation import wordsets
from manyhands.evaluation.wordsets import KNOWN, default_folder, find_sets, read_analogies, read_similarity


def write(folder: Path, name: str, text: str | bytes) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


@pytest.mark.parametrize(
    "line",
    ["cat\tdog\t7.5", "cat dog 7.5", "cat,dog,7.5", "cat;dog;7.5", "cat, dog, 7.5", "  cat \t dog\t7.5\r",
     "cat,dog 7.5", "cat\tdog\tN\t7.5\t1\t2", "cat dog +.75e1", "cat\tdog\t7.5\t7\t8"],
)  # fmt: skip
def test_separators(tmp_path: Path, line: str) -> None:
    judged = read_similarity(write(tmp_path, "set.txt", line + "\nhot dog\tfood\t-1\n"))
    assert judged.first == ["cat", "hot dog"] and judged.second == ["dog", "food"]
    assert judged.scores.tolist() == [7.5, -1] and judged.name == "set" and len(judged) == 2


@pytest.mark.parametrize(
    "head", ["", "# comment\n\n", "// comment\n", "Word 1,Word 2,Human (mean)\n", "\ufeffword1 word2 score\n"]
)
def test_comments_and_one_header(tmp_path: Path, head: str) -> None:
    judged = read_similarity(write(tmp_path, "set.csv", head + "a,b,1\n\n# more\nb,c,2\n"))
    assert judged.first == ["a", "b"] and judged.scores.tolist() == [1, 2]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a b 1\na b\n", r"set.txt line 2: there are 2 columns; it should read: word word score"),
        ("\n# x\na b 1\nb c high\n", r"set.txt line 4: 'high' is not a number"),
        ("one two score\none two score\na b 1\n", "line 2: 'score' is not a number"),
        ("a b 1\na b nan\n", "line 2: 'nan' is not a number"),
        ("a b 1\na b 1e999\n", "line 2: '1e999' is not a number"),
        ("a b 1\na b 1_0\n", "line 2: '1_0' is not a number"),
        ("a b 1\na b 7,5\n", "line 2: '7,5' is not a number"),
        ("a b 1\na\t\t1\n", "line 2: a word is missing"),
        ("a b 1\na b 1 x\n", "line 2: 'x' is not a number"),
        ("lonely\na b 1\n", "line 1: there are 1 columns"),
        (b"a b 1\nc\xe9 b 1\n", "line 2: it is not UTF-8"),
        ("# nothing\n", "holds no pairs"),
        ("w1 w2 score\n", "holds no pairs"),
    ],
)
def test_bad_lines_of_similarity(tmp_path: Path, text: str | bytes, message: str) -> None:
    with pytest.raises(InputError, match=message):
        read_similarity(write(tmp_path, "set.txt", text))


def test_sections_of_analogies(tmp_path: Path) -> None:
    text = "//Copyright\n: capitals\nAthens Greece Oslo Norway\n:gram1 plural\ncat cats dog dogs\n"
    asked = read_analogies(write(tmp_path, "set.txt", text + ": capitals\na b c d\n"))
    assert asked.sections == {
        "capitals": [("Athens", "Greece", "Oslo", "Norway"), ("a", "b", "c", "d")],
        "gram1 plural": [("cat", "cats", "dog", "dogs")],
    }
    assert len(asked) == 3
    tabs = read_analogies(write(tmp_path, "msr.txt", "good\tbetter\tnew york\tx\r\na\tb\tc\td\r\n"))
    assert tabs.name == "MSR" and tabs.sections == {
        "msr": [("good", "better", "new york", "x"), ("a", "b", "c", "d")]
    }


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a b c d\na b c\n", "set.txt line 2: there are 3 words; it should read: a b c d"),
        (": s\na b c d e\n", "line 2: there are 5 words"),
        ("a\tb\t\td\n", "line 1: there are 3 words"),
        (": only a section\n", "holds no questions"),
    ],
)
def test_bad_lines_of_analogies(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        read_analogies(write(tmp_path, "set.txt", text))


def test_too_large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path, "set.txt", "a b 1\n" * 10)
    os.truncate(path, (64 << 20) + 1)  # a hole: nothing is written
    for read in (read_similarity, read_analogies):
        with pytest.raises(InputError, match="larger than 64 MB"):
            read(path)
    with pytest.raises(InputError, match="does not exist"):
        read_similarity(tmp_path / "none.txt")


NAMES = {
    "EN-MEN-TR-3k.txt": "MEN",
    "MEN_dataset_natural_form_full": "MEN",
    "EN-MTurk-287.txt": "MTurk-287",
    "mturk-771.csv": "MTurk-771",
    "EN-RW-STANFORD.txt": "RW",
    "EN-SIMLEX-999.txt": "SimLex-999",
    "EN-WS-353-ALL.txt": "WS-353",
    "wordsim353.tsv": "WS-353",
    "EN-WS-353-SIM.txt": "WS-353-SIM",
    "wordsim_relatedness_goldstandard.txt": "WS-353-REL",
    "rg65.csv": "RG-65",
    "women.txt": "women",
    "msr.txt": "msr",  # that is a set of analogies
}


@pytest.mark.parametrize(("file", "name"), NAMES.items())
def test_names(tmp_path: Path, file: str, name: str) -> None:
    write(tmp_path, file, "a b 1\nb c 2\n")
    found = find_sets(tmp_path)
    assert [judged.name for judged in found.similarity] == [name] and not found.analogies
    assert found.missing == [known for known in KNOWN if known != name]


def test_finding(tmp_path: Path) -> None:
    write(tmp_path, "zoo/my-pairs.txt", "a b 1\nb c 2\n")
    write(tmp_path, "zoo/EN-RG-65.txt", "a b 1\nb c 2\n")
    write(tmp_path, "zoo/DE-RG-65.txt", "a b 1\nb c 2\n")
    write(tmp_path, "other/DE-RG-65.txt", "a b 1\nb c 2\n")
    write(tmp_path, "analogy/questions-words.txt", ": s\na b c d\n")
    write(tmp_path, "README.md", "# Sets\nThese are some sets of words.\nSee the papers.\n")
    write(tmp_path, "iris.csv", "5.1,3.5,1.4,0.2,setosa\n4.9,3.0,1.4,0.2,setosa\n")
    write(tmp_path, "reviews.csv", "Great thing,I like it,5\nBad thing,I hate it,1\n")
    write(tmp_path, "vectors.txt", "the 0.1 0.2\nof 0.3 0.4\n")
    write(tmp_path, "binary.txt", b"a b 1\n\0\0")
    write(tmp_path, "empty.txt", "")
    write(tmp_path, ".hidden/x.txt", "a b 1\n")
    (tmp_path / "gone.txt").symlink_to(tmp_path / "nowhere")
    os.mkfifo(tmp_path / "pipe.txt")
    found = find_sets(tmp_path)
    # The first file of a name in the order of paths has it; the others go by their own.
    assert [s.name for s in found.similarity] == ["RG-65", "DE-RG-65", "EN-RG-65", "my-pairs"]
    assert [s.name for s in found.analogies] == ["Google"]
    assert found.missing == [name for name in KNOWN if name not in ("RG-65", "Google")]


def test_a_bad_line_does_not_hide_a_set(tmp_path: Path) -> None:
    write(tmp_path, "set.txt", "a b 1\nb c 2\nc d\n")
    with pytest.raises(InputError, match=r"set.txt line 3"):
        find_sets(tmp_path)


def test_where_sets_are_looked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(wordsets.VARIABLE, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert default_folder() == tmp_path / "manyhands" / "wordsets"
    assert find_sets().missing == list(KNOWN), "nobody has to have sets"
    write(tmp_path, "elsewhere/set.txt", "a b 1\n")
    monkeypatch.setenv(wordsets.VARIABLE, str(tmp_path / "elsewhere"))
    assert [judged.name for judged in find_sets().similarity] == ["set"]
    for chosen in (tmp_path / "none", tmp_path / "elsewhere" / "set.txt"):
        with pytest.raises(InputError, match="is not a folder"):
            find_sets(chosen)
    monkeypatch.setenv(wordsets.VARIABLE, str(tmp_path / "none"))
    with pytest.raises(InputError, match="is not a folder"):
        find_sets()


def test_real_sets(real_data: Path) -> None:
    found = find_sets(real_data)  # among reviews, tables and compressed files
    assert {judged.name: len(judged) for judged in found.similarity} == {
        "MEN": 3000, "MTurk-287": 287, "MTurk-771": 771, "RW": 2034, "SimLex-999": 999,
        "WS-353": 353, "WS-353-SIM": 203, "WS-353-REL": 252, "RG-65": 65,
    }  # fmt: skip
    assert {asked.name: (len(asked), len(asked.sections)) for asked in found.analogies} == {
        "Google": (19_544, 14),
        "MSR": (8000, 1),
    }
    assert not found.missing


def test_many_files_of_one_name_and_a_licence(tmp_path):
    """Names never run out, and prose is no set even if some of its lines have four words."""
    for name in ("EN-MEN.txt", "MEN", "MEN.txt", "men.csv"):
        (tmp_path / name).write_text("king queen 8\nman woman 7\n")
    (tmp_path / "LICENSE").write_text(
        "Permission is granted hereby\nto do all this\nand more of it\nwithout limitation\n"
    )
    found = find_sets(tmp_path)
    assert len({one.name for one in found.similarity}) == 4
    assert not found.analogies
