"""Replay runs of the command line, and tell whether each still makes exactly what was recorded.

    python tools/replay.py --record tests/golden/replay.json     # before a change that must change nothing
    python tools/replay.py --check tests/golden/replay.json      # after it

Every run is a process of its own. What it leaves is digested: the bytes of a dataset, the arrays of a
bundle, the lines that were printed. Seconds, versions and machines are left out.
"""

import argparse
import gzip
import hashlib
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from replay_inputs import write_inputs

# What a change renames: keys of JSON and names of arrays, new name -> old name.
RENAMED: dict[str, str] = {
    "batch_size": "batch",
    "bidirectional": "ways",
    "char_dim": "letter_dim",
    "char_ngrams": "chars",
    "clip_norm": "clip",
    "early_stopping": "patience",
    "hidden_size": "hidden",
    "learning_rate": "rate",
    "max_length": "length",
    "max_restarts": "restarts",
    "multi_label": "several",
    "pooling": "pool",
    "pretrained_vectors": "vectors",
    "vocabulary_size": "words",
    "warmup": "warm_up",
    "weight_decay": "decay",
}
# Values of JSON: (old key, new value as JSON) -> old value, like ("ways", "true"): 2.
REWORDED: dict[tuple[str, str], Any] = {("ways", "false"): 1, ("ways", "true"): 2}

LSTM = "--model lstm --dim 12 --hidden-size 8 --epochs 2 --deterministic"
SKIPGRAM = "--model skipgram --dim 16 --min-count 2 --sample 0.01 --deterministic"
CHARLSTM = "--model charlstm --dim 16 --min-count 2 --sample 0.01 --hidden-size 12 --deterministic"
CREW = "--spread allreduce --workers 2 --deterministic"
AVERAGE = "--spread average --master local[2] --partitions 2 --rounds 3"
LONG = "--model fasttext --dim 64 --epochs 20 --early-stopping 99 --deterministic --checkpoint-seconds 0"
ON_SPARK = "--engine spark --master local[2] --partitions 2"

# A run a line: * if it is one of the small set, its name, its command; indented lines go on. The small set
# runs on every machine, so it leaves out what goes through BLAS, whose last digits differ from one processor
# to another: recurrent models and quantised ones. A run makes the file or folder of its name, or prints.
# @name stands for what another run, further up, has made. A run with --resume is first started without it,
# and stopped by a signal.
TABLE = f"""\
. reviews.jsonl        sample --rows 1500 --seed 7
. more.jsonl.gz        sample --rows 400 --seed 8
* prepared             prepare @reviews.jsonl
. prepared-one-thread  prepare @reviews.jsonl --threads 1
. prepared-spark       prepare @reviews.jsonl {ON_SPARK}
* stars                prepare @reviews.jsonl @more.jsonl.gz --labels stars --seed 3 --valid 0.2 --test 0.05
. strict               prepare @reviews.jsonl --labels polarity-strict --keep-duplicates --min-count 3
. unlabelled           prepare @reviews.jsonl --labels none --vocabulary-size 500
. files                prepare @reviews.jsonl --valid-file @more.jsonl.gz --test-file loose.json --seed 1
* csv                  prepare table.csv --weight-field weight --keep-case
. tsv                  prepare table.tsv --labels stars --punctuation drop --no-html --max-rejected 0.1
. fields               prepare table.csv.gz --text-field title --label-field topic --labels as-is
. untouched            prepare table.tsv --keep-case --no-html --punctuation keep
. yelp                 prepare yelp.csv --format yelp --labels polarity
. loose                prepare loose.json
. labelled             prepare labelled.txt
* several              prepare several.txt --test 0.2
. several-spark        prepare several.txt --test 0.2 {ON_SPARK}
. text                 prepare corpus.txt --format text --labels none --min-count 2
. parquet              prepare table.parquet --labels stars --weight-field weight
. arrow                prepare table.arrow --labels stars --weight-field weight
. inspect              inspect @stars --json --verify
. exported.h5          export @stars --length 50 --parts 3
* ngrams               train @prepared --deterministic
. ngrams-chars         train @prepared --ngrams 2 --char-ngrams 3-5 --buckets 65536 --seed 5 --deterministic
. ngrams-balanced      train @stars --class-weights balanced --epochs 3 --learning-rate 4 --deterministic
* ngrams-several       train @several --loss one-vs-all --min-count 1 --deterministic
. ngrams-raw           train table.csv --labels stars --deterministic
. ngrams-weighted      train @parquet --ngrams 1 --early-stopping 1 --threads 1
* fasttext             train @stars --model fasttext --deterministic
. fasttext-negative    train @labelled --model fasttext --loss negative --negatives 3 --deterministic
. fasttext-chars       train @several --model fasttext --dim 24 --ngrams 3 --char-ngrams 2-4 --buckets 50000
                       --deterministic
. fasttext-cosine      train labelled.txt --model fasttext --schedule cosine --warmup 0.1 --epochs 6
                       --deterministic
. lstm                 train @prepared {LSTM} --max-length 60
. lstm-gru             train @stars {LSTM} --cell gru --bidirectional --pooling mean --class-weights balanced
. lstm-layers          train @prepared {LSTM} --layers 2 --dropout 0.3 --pooling last --optimizer adamw
                       --weight-decay 0.01 --max-length 40
. lstm-sgd             train @labelled {LSTM} --optimizer sgd --momentum 0.8 --learning-rate 0.1 --clip-norm 1
                       --schedule cosine --warmup 0.2
. lstm-equations       train @labelled {LSTM} --cell equations --hidden-size 8,6 --batch-size 64
. lstm-vectors         train @labelled {LSTM} --pretrained-vectors vectors.txt --vocabulary-size 300
                       --schedule constant
. lstm-numbers         train flowers.csv {LSTM} --epochs 8 --batch-size 16
. lstm-several         train @several {LSTM} --loss one-vs-all
* skipgram             train corpus.txt {SKIPGRAM}
. skipgram-chars       train @text {SKIPGRAM} --char-ngrams 3-5 --buckets 4096 --window 3 --negatives 3
. charlstm             train corpus.txt {CHARLSTM} --char-dim 8 --epochs 2 --batch-size 512
. charlstm-gru         train @text {CHARLSTM} --cell gru --epochs 1
. undisturbed          train @stars {LONG}
* resumed              train @stars {LONG} --resume
. continued            train labelled.txt --continue-from @ngrams-several --deterministic
. continued-lstm       train table.csv --labels stars {LSTM} --cell gru --bidirectional
                       --continue-from @lstm-gru
. continued-words      train more.txt {SKIPGRAM} --continue-from @skipgram
. crew-ngrams          train @prepared {CREW}
* crew-fasttext        train @stars --model fasttext {CREW}
. crew-lstm            train @prepared {LSTM} {CREW}
. crew-skipgram        train corpus.txt {SKIPGRAM} {CREW}
. average-fasttext     train @stars --model fasttext {AVERAGE}
. average-lstm         train @labelled {LSTM} {AVERAGE}
. quantized-ngrams     quantize @ngrams --size 80KB
. quantized-fasttext   quantize @fasttext --size 100KB
. tuned                tune @prepared --trials 3 --seed 1 --minutes 60 --deterministic
. tuned-small          tune @stars --model fasttext --trials 3 --minutes 60 --epochs 2 --size 100KB
                       --deterministic
. ngrams.onnx          convert @ngrams --to onnx
. fasttext.onnx        convert @fasttext --to onnx
. fasttext.vec         convert @fasttext --to vec
. lstm.safetensors     convert @lstm-layers --to safetensors
. words.word2vec       convert @skipgram --to word2vec
. words.bin            convert @skipgram-chars --to word2vec-binary
. words.glove          convert @charlstm --to glove
. words.projector      convert @skipgram --to projector
. words.keyedvectors   convert @skipgram --to keyedvectors
. imported-bin         import model.bin
. imported-ftz         import model.ftz
* evaluate             evaluate @fasttext @stars --top 2 --json
. evaluate-several     evaluate @ngrams-several @several --at 0.4 --split valid --json
. evaluate-raw         evaluate @ngrams-raw table.tsv --labels stars --json
. evaluate-words       evaluate @skipgram --sets wordsets --restrict 200 --json
. evaluate-against     evaluate @skipgram-chars --sets wordsets --against @skipgram --json
. predict              predict @ngrams lines.txt --format text --top 2 --json
. predict-dataset      predict @lstm-gru @stars --split valid --top 5 --json
* predict-bin          predict @imported-bin lines.txt --format text --top 4 --json
. predict-ftz          predict @imported-ftz lines.txt --format text --at 0.1 --top 3 --json
. predict-quantized    predict @quantized-fasttext lines.txt --format text --top 5 --json
. predict-numbers      predict @lstm-numbers flowers.csv --top 3 --json
. explain              explain @ngrams 'not good, but not terrible at all' --json
. explain-chars        explain @ngrams-chars 'great waste' --label positive --json
. nearest              nearest @skipgram the bad good --top 5 --json
. nearest-spelt        nearest @charlstm unheardof good --top 5 --json
. nearest-file         nearest @words.word2vec good --top 5 --json
. analogy              analogy @skipgram the good bad --top 5 --json
. analogy-mul          analogy @skipgram-chars the good bad --method mul --top 5 --json
"""
SAME_AS = {  # runs that must make the very same as another
    "prepared-one-thread": "prepared",
    "prepared-spark": "prepared",
    "several-spark": "several",
    "resumed": "undisturbed",
}

ROOT = Path(__file__).parents[1]
SECONDS = 300  # that one command may take
# Sums of several threads depend on how many there are, and so on the machine.
ENVIRONMENT = {"PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
OUT, RESUME, PRINTS = "--out", "--resume", "--json"
OUT_OF = {"export": "--to"}  # verbs with another option for what they make
CHECKPOINTS = ".{}.checkpoint/*.safetensors"  # where a run leaves what it needs to be resumed
INTERRUPTED = 5  # the exit code of a run that can be resumed
UNSTEADY = {"version", "versions", "machine", "threads", "seconds", "sources", "out"}  # keys left out of JSON
RECORDED = ("scores", "examples_seen", "settings", "tuned", "quantized")  # what counts of a record
SETTINGS = "settings of "  # outputs that are compared only where both sides have them

Digests = dict[str, str]


@dataclass(frozen=True)
class Run:
    name: str
    command: tuple[str, ...]
    small: bool

    @property
    def needs(self) -> set[str]:
        return {word[1:] for word in self.command if word.startswith("@")}


def read_table() -> list[Run]:
    cells = (line.split(None, 2) for line in re.split(r"\n(?=\S)", TABLE.strip()))
    return [Run(name, tuple(shlex.split(command)), mark == "*") for mark, name, command in cells]


def old_name(name: str) -> str:
    return RENAMED.get(name, name)


def plain(value: Any, key: str = "") -> Any:
    """JSON under its old names, without what differs from run to run."""
    if isinstance(value, dict):
        named = {old_name(name): inner for name, inner in value.items()}
        return {name: plain(inner, name) for name, inner in named.items() if name not in UNSTEADY}
    if isinstance(value, list):
        return [plain(inner) for inner in value]
    return REWORDED.get((key, json.dumps(value)), value)


def canonical(value: Any) -> str:
    return json.dumps(value, sort_keys=True, ensure_ascii=False)


def digest(*pieces: bytes | str) -> str:
    total = hashlib.sha256()
    for piece in pieces:
        total.update(piece.encode() if isinstance(piece, str) else piece)
    return total.hexdigest()[:16]


def digest_facts(name: str, facts: dict[str, Any]) -> Digests:
    """One digest, and the settings as they are, one by one."""
    settings = facts.pop("settings", {})
    shown = {f"{SETTINGS}{name}: {key}": canonical(value) for key, value in settings.items()}
    return {name: digest(canonical(facts)), **shown}


def digest_json(file: Path) -> Digests:
    return digest_facts(file.name, plain(json.loads(file.read_text("utf-8"))))


def digest_tensors(file: Path) -> Digests:
    """Of all arrays, in the order of their names, and of the configuration if it is beside them."""
    data = file.read_bytes()
    begin = 8 + int.from_bytes(data[:8], "little")
    header = json.loads(data[8:begin])
    texts = header.pop("__metadata__", {})
    pieces: list[bytes | str] = []
    for name, array in sorted((old_name(name), array) for name, array in header.items()):
        first, last = array["data_offsets"]
        pieces += [f"{name} {array['dtype']} {array['shape']}:", data[begin + first : begin + last]]
    beside = digest_facts("config", plain(json.loads(texts["config"]))) if "config" in texts else {}
    return {"arrays": digest(*pieces), **beside}


def digest_onnx(file: Path) -> Digests:
    import onnx  # noqa: PLC0415

    model = onnx.load(str(file))
    texts = {prop.key: prop.value for prop in model.metadata_props}
    facts = {name: json.loads(text) if text[:1] in ("[", "{") else text for name, text in texts.items()}
    graph = model.graph.SerializeToString(deterministic=True)
    return {"graph": digest(graph), "metadata": digest(canonical(plain(facts)))}


def digest_gensim(file: Path) -> Digests:
    """Its file says when it was made, so its contents count."""
    from gensim.models import KeyedVectors  # noqa: PLC0415

    made = KeyedVectors.load(str(file))
    counts = {name: array.tolist() for name, array in made.expandos.items()}
    return {
        "vectors": digest(made.vectors.tobytes()),
        "words": digest(canonical([made.index_to_key, counts])),
    }


def digest_dataset(folder: Path) -> Digests:
    files = sorted(path for path in folder.iterdir() if path.suffix in (".h5", ".tsv", ".csv"))
    found = {file.name: digest(file.read_bytes()) for file in files}
    return found | digest_json(folder / "manifest.json")


def digest_bundle(folder: Path) -> Digests:
    found = digest_tensors(folder / "model.safetensors") | digest_json(folder / "config.json")
    if (folder / "vocabulary.tsv").exists():
        found["vocabulary.tsv"] = digest((folder / "vocabulary.tsv").read_bytes())
    record = plain(json.loads((folder / "record.json").read_text("utf-8")))
    kept = {name: record[name] for name in RECORDED if name in record}
    return found | digest_facts("record", {**kept, "data": record.get("data", {}).get("fingerprint")})


def digest_file(path: Path) -> Digests:
    if path.is_dir():
        return {file.name: digest(file.read_bytes()) for file in sorted(path.iterdir())}
    if path.suffix in READERS:
        return READERS[path.suffix](path)
    data = path.read_bytes()
    return {"bytes": digest(gzip.decompress(data) if path.suffix == ".gz" else data)}


READERS = {".onnx": digest_onnx, ".safetensors": digest_tensors, ".keyedvectors": digest_gensim}


def digest_printed(lines: bytes) -> Digests:
    return {"printed": digest(*(canonical(plain(json.loads(line))) for line in lines.splitlines()))}


class FailedError(Exception):
    """A command did not end as it should."""


def call(words: list[str], folder: Path, stop_at: str = "") -> bytes:
    """Run a command to its end, or until there is a file like ``stop_at``; returns what it printed."""
    process = subprocess.Popen(  # noqa: S603
        [sys.executable, "-m", "manyhands", *words],
        cwd=folder,
        env={**os.environ, **ENVIRONMENT},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    while stop_at and process.poll() is None and not any(folder.glob(stop_at)):
        time.sleep(0.01)
    if stop_at:
        process.send_signal(signal.SIGTERM)
    try:
        out, err = process.communicate(timeout=SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        raise FailedError(f"not done after {SECONDS} s") from None
    if process.returncode != (INTERRUPTED if stop_at else 0):
        said = err.decode("utf-8", "replace").strip()
        raise FailedError(f"exit code {process.returncode}: {said[-500:]}")
    return out


def outcome(run: Run, folder: Path) -> Digests:
    """Run it, and digest what it makes."""
    verb, words, made = run.command[0], [word.removeprefix("@") for word in run.command], folder / run.name
    if PRINTS in words:
        return digest_printed(call(words, folder))
    words += [OUT_OF.get(verb, OUT), run.name]
    if RESUME in words:
        call([word for word in words if word != RESUME], folder, CHECKPOINTS.format(run.name))
    call(words, folder)
    if verb in ("sample", "export", "convert"):
        return digest_file(made)
    return digest_dataset(made) if verb == "prepare" else digest_bundle(made)


def needed(runs: list[Run], names: Iterable[str]) -> list[Run]:
    """The runs so called and all that they need, in the order of the table."""
    wanted, known = set(names), {run.name for run in runs}
    if unknown := wanted - known:
        raise SystemExit(f"there is no run {min(unknown)}; there are: {', '.join(sorted(known))}")
    for run in reversed(runs):  # what a run needs stands further up
        if run.name in wanted:
            wanted |= run.needs | ({SAME_AS[run.name]} if run.name in SAME_AS else set())
    return [run for run in runs if run.name in wanted]


def replay(runs: list[Run], jobs: int, folder: Path) -> Iterator[tuple[str, Digests, float]]:
    """The name of each run, its digests and its seconds; of a failed one, ``{"failed": why}``."""
    started: dict[str, Future[tuple[Digests, float]]] = {}

    def go(run: Run) -> tuple[Digests, float]:
        for name in sorted(run.needs):
            if "failed" in started[name].result()[0]:
                return {"failed": f"it needs {name}"}, 0.0
        began = time.monotonic()
        try:
            found = outcome(run, folder)
        except (FailedError, OSError, ValueError) as error:
            found = {"failed": str(error)}
        return found, time.monotonic() - began

    with ThreadPoolExecutor(jobs) as pool:
        for run in runs:
            started[run.name] = pool.submit(go, run)
        for run in runs:
            yield run.name, *started[run.name].result()


def differences(found: Digests, expected: Digests) -> tuple[list[str], int]:
    """Which outputs differ, and how many settings stand on one side only."""
    alone = found.keys() ^ expected.keys()
    settings = {name for name in alone if name.startswith(SETTINGS)}
    changed = {name for name in found.keys() & expected.keys() if found[name] != expected[name]}
    return sorted(changed | (alone - settings)), len(settings)


def tell(name: str, seconds: float, found: Digests, expected: Digests, twin: Digests) -> bool:
    """Print a line on a run; returns whether all is well."""
    different, alone = differences(found, expected)
    different += [f"{output} (not that of {SAME_AS[name]})" for output in differences(found, twin)[0]]
    wrong = found.get("failed") or ("" if expected else "never recorded") or ", ".join(different)
    note = f"  ({alone} settings on one side only)" if alone else ""
    print(f"{'DIFFERENT' if wrong else 'same':<10}{name:<21}{seconds:>6.1f} s  {wrong}{note}", flush=True)
    return not wrong


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    way = parser.add_mutually_exclusive_group(required=True)
    way.add_argument("--record", type=Path, metavar="FILE", help="write digests; those of other runs stay")
    way.add_argument("--check", type=Path, metavar="FILE", help="compare with what was recorded")
    parser.add_argument("--small", action="store_true", help="only the runs that the tests repeat")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="only these runs, and those that they need")
    parser.add_argument("--jobs", type=int, default=2, help="so many runs at a time: 2")
    chosen = parser.parse_args()
    file: Path = chosen.check or chosen.record
    recorded: dict[str, Digests] = json.loads(file.read_text("utf-8")) if file.exists() else {}
    table = read_table()
    names = chosen.only or [run.name for run in table if run.small or not chosen.small]
    began, good, made = time.monotonic(), 0, dict[str, Digests]()
    with tempfile.TemporaryDirectory(prefix="replay-") as folder:
        write_inputs(Path(folder))
        for name, found, seconds in replay(needed(table, names), chosen.jobs, Path(folder)):
            made[name] = found
            expected = recorded.get(name, {}) if chosen.check else found
            good += tell(name, seconds, found, expected, made[SAME_AS[name]] if name in SAME_AS else found)
    print(f"{good} of {len(made)} runs are the same; {time.monotonic() - began:.0f} s")
    if chosen.record:
        recorded |= {name: found for name, found in made.items() if "failed" not in found}
        known = [run.name for run in table if run.name in recorded]
        lines = ",\n".join(f"{json.dumps(name)}: {canonical(recorded[name])}" for name in known)
        file.write_text(f"{{\n{lines}\n}}\n", "utf-8")
    return int(good < len(made))


if __name__ == "__main__":
    sys.exit(main())
