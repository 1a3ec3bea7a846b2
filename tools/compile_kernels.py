"""Compile the kernels ahead, for wheels: ``compile_kernels.py FOLDER`` fills ``FOLDER`` with libraries.

Small jobs of all kinds show with which types the kernels are called; numba then compiles these into a
library for each level of processors. Whatever is missing is compiled where it is first called, as ever.
"""

import contextlib
import importlib
import io
import json
import os
import pickle
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any

from manyhands.catalog import STREAM_LEARNERS, load
from manyhands.kernels import compile as kernel
from manyhands.kernels.ahead import LEVELS, TABLE, digest, kind, library_name

CLASSIFIERS: dict[str, list[list[str]]] = {
    "ngrams": [[], ["--char-ngrams", "3-5"], ["--deterministic"], ["--loss", "one-vs-all"]],
    "fasttext": [[], ["--char-ngrams", "3-5"], ["--loss", "negative"]],
    "lstm": [[], ["--bidirectional"], ["--cell", "gru"], ["--pooling", "mean"]],
}
WORD_VECTORS: dict[str, list[list[str]]] = {"skipgram": [[], ["--char-ngrams", "3-5"]], "charlstm": [[]]}
WORDS = "the a good bad not very book film plot naïve great awful I you it was is & <br/> don't".split()
ROWS = 120

Called = dict[tuple[str, str, str], Any]


def text(row: int) -> str:
    """Of a length and words that differ from row to row."""
    return " ".join(WORDS[row * step % len(WORDS)] for step in range(1, 6 + row % 23)) + "."


def inputs(folder: Path) -> list[Path]:
    """The same few reviews in all layouts of text."""
    stars = [1 + row % 5 for row in range(ROWS)]
    lines = {
        "jsonl": [json.dumps({"reviewText": text(r), "overall": stars[r]}) for r in range(ROWS)],
        "csv": ["text,label", *(f'"{text(r)}",{stars[r]}' for r in range(ROWS))],
        "txt": [f"__label__{stars[r]} {text(r)}" for r in range(ROWS)],
        "text": [text(r) for r in range(ROWS)],
    }
    files = {f"reviews.{ending}": rows for ending, rows in lines.items()}
    # Ids of more words than that take four bytes.
    wide = [
        {"reviewText": f"{text(r)} " + " ".join(f"w{r}x{n}" for n in range(600)), "overall": stars[r]}
        for r in range(ROWS)
    ]
    files = {"reviews.jsonl": files.pop("reviews.jsonl"), "wide.jsonl": [*map(json.dumps, wide)], **files}
    for name, rows in files.items():
        (folder / name).write_text("\n".join(rows) + "\n", "utf-8")
    return [folder / name for name in files]


def run(*words: object) -> None:
    """One verb, as the command line runs it."""
    from manyhands.cli.main import build  # noqa: PLC0415

    arguments = [*map(str, words)]
    with contextlib.redirect_stdout(io.StringIO()):
        build(arguments)(arguments, standalone_mode=False)


def jobs(folder: Path) -> None:
    """What users do."""
    files = inputs(folder)
    for file in files:
        options = ["--format", "text"] if file.suffix == ".text" else ["--valid", 0.2, "--test", 0.2]
        run("prepare", file, "--out", folder / file.stem / file.suffix, *options)
    bundle, texts = folder / "bundle", files[-1]
    for model, choices in {**CLASSIFIERS, **WORD_VECTORS}.items():
        for name in ("wide", "reviews"):  # the last bundle is one that knows ordinary words
            for options in choices if name == "reviews" else [[]]:
                data = folder / name / ".jsonl"
                print("compile_kernels:", model, name, *options, file=sys.stderr)
                least = ["--min-count", 2 if name == "wide" else 1, "--epochs", 2, "--overwrite"]
                run("train", data, "--out", bundle, "--model", model, *least, *options)
                if model in CLASSIFIERS:
                    run("evaluate", bundle, data)
                    run("predict", bundle, texts, "--format", "text")
                    sys.stdin = io.TextIOWrapper(io.BytesIO(b"good book\n"))
                    run("predict", bundle)
    for model in STREAM_LEARNERS:
        source = texts if load(STREAM_LEARNERS, "model", model).learns == "words" else files[0]
        options = ["--messages", ROWS, "--block-messages", 50, "--min-count", 2, "--half-life", 60]
        run("stream", source, "--out", folder / f"live-{model}", "--model", model, *options)
    run("train", files[0], "--out", bundle, "--overwrite", "--min-count", 1)
    run("explain", bundle, "not a good book")


def record(called: Called) -> None:
    """From now on, note the types of all calls of kernels."""
    from numba import typeof  # noqa: PLC0415
    from numba.core import types  # noqa: PLC0415

    plain = kernel._Kernel.__call__
    numbers = (types.Number, types.Boolean)

    def call(self: Any, *arguments: Any) -> Any:
        function = self._function
        key = (function.__module__, function.__qualname__, ";".join(map(kind, arguments)))
        if key not in called:
            found = [typeof(argument) for argument in arguments]  # type: ignore[no-untyped-call]
            if all(isinstance(getattr(one, "dtype", one), numbers) for one in found):
                # Columns first is one more order of any order to ``kind``.
                called[key] = [
                    one.copy(layout="A") if getattr(one, "layout", "") == "F" else one for one in found
                ]
        return plain(self, *arguments)

    kernel._Kernel.__call__ = call  # type: ignore[assignment,method-assign]


def names(called: Called) -> dict[str, Any]:
    return {
        f"k{number}": item for number, item in enumerate(sorted(called.items(), key=lambda item: item[0]))
    }


def write_table(called: Called, folder: Path) -> None:
    """What the libraries hold; they are the same in this."""
    out: dict[str, Any] = {}
    for name, ((module, function, kinds), _) in names(called).items():
        file = Path(importlib.import_module(module).__file__ or "")
        entry = out.setdefault(module, {"digest": digest(file).hex(), "kernels": {}})
        entry["kernels"].setdefault(function, {})[kinds] = name
    (folder / TABLE).write_text(json.dumps(out, indent=1, sort_keys=True) + "\n", "utf-8")


def compile_library(called: Called, level: str, folder: Path) -> None:
    """For one level; nothing of it runs here, so this processor need not have it."""
    # What kernels call is compiled before them, for the processor that numba thinks is here.
    config: Any = importlib.import_module("numba").config
    config.CPU_NAME, config.CPU_FEATURES = level, ""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # numba means to replace this module one day
        pycc: Any = importlib.import_module("numba.pycc")
        compiler: Any = importlib.import_module("numba.pycc.compiler")
    plain = compiler.Flags

    def flags() -> Any:
        chosen = plain()
        chosen.release_gil = True  # as kernels are compiled otherwise; CC cannot be told
        return chosen

    compiler.Flags = flags
    library = pycc.CC(library_name(level), source_module=__name__)
    library.output_dir, library.target_cpu = str(folder), level
    for name, ((module, function, _), types) in names(called).items():
        library.export(name, tuple(types))(getattr(importlib.import_module(module), function)._function)
    library.compile()


def main(folder: Path) -> int:
    """Record once, then compile for all levels side by side."""
    folder.mkdir(parents=True, exist_ok=True)
    called: Called = {}
    with tempfile.TemporaryDirectory() as place:
        os.environ["NUMBA_CACHE_DIR"] = place  # else wheels would take what it keeps beside the sources
        record(called)
        jobs(Path(place))
        notes = Path(place) / "called"
        notes.write_bytes(pickle.dumps(called))
        commands = [[sys.executable, __file__, str(folder), level, str(notes)] for level in LEVELS]
        workers = [subprocess.Popen(command) for command in commands]  # noqa: S603
        failed = max([worker.wait() for worker in workers])
    if not failed:
        write_table(called, folder)
    return failed


if __name__ == "__main__":
    if len(sys.argv) > 2:
        compile_library(pickle.loads(Path(sys.argv[3]).read_bytes()), sys.argv[2], Path(sys.argv[1]))  # noqa: S301
    else:
        sys.exit(main(Path(sys.argv[1])))
