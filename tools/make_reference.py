"""Write what is drawn from other sources: docs/reference/cli.md from the command line's own help,
and the README's tables from the benchmark records. With ``--check``, only say what is out of date.
"""

import json
import re
import sys
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from manyhands.cli.main import app

ROOT = Path(__file__).parent.parent
PLAIN = {"COLUMNS": "100", "TERM": "dumb", "NO_COLOR": "1"}
VERBS = (
    "prepare",
    "train",
    "evaluate",
    "predict",
    "explain",
    "nearest",
    "analogy",
    "profile",
    "project",
    "quantize",
    "tune",
    "import",
    "convert",
    "inspect",
    "export",
    "sample",
    "doctor",
)
WITH_TABLES = ("README.md", "docs/explanation/how-word-vectors-work.md")
TABLE = re.compile(r"<!-- table: (\w+) -->")
CLASSIFY_HEAD = (
    "2 threads",
    "fastText 0.9.3",
    "our `fasttext`",
    "faster by",
    "our `ngrams`",
    "faster by",
    "both predict faster by",
)


def command_line() -> str:
    """The help of every verb."""
    pages = ["# The command line\n\nMade from `--help` by `make reference`.\n"]
    for verb in VERBS:
        shown = CliRunner().invoke(app, [verb, "--help"], env=PLAIN)
        help_text = "\n".join(line.rstrip() for line in shown.output.strip().splitlines())
        pages.append(f"## manyhands {verb}\n\n```\n{help_text}\n```\n")
    return "\n".join(pages)


def record(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((ROOT / "bench" / "records" / f"{name}.json").read_text())
    return found


def tables() -> dict[str, str]:
    """The tables by name."""
    prepare, rows, memory = record("prepare"), record("rows"), record("memory")
    classify = record("classify")
    small = [
        (
            r["set"],
            f"`{r['model']}`",
            f"{r['accuracy']} %",
            f"{r['full_mb']} MB",
            f"{r['accuracy_at_2_mb']} %",
        )
        for r in record("quantize")["results"]
    ]
    by_way = [
        (r["way"], r["mb_per_second"], f"{r['ours_is_faster_by']} x", f"{r['peak_gb']} GB")
        for r in prepare["results"]
    ]
    by_row = [(r["way"], f"{r['rows_per_second']:,}") for r in rows["results"]]
    by_memory = [
        (f"`--memory {r['memory']}`", f"{r['peak_gb']} GB", f"{r['mb_per_second']} MB/s")
        for r in memory["results"]
    ]
    size = f"{prepare['megabytes']} MB of reviews, {prepare['machine']['cores']} cores"
    return {
        "classify": table([CLASSIFY_HEAD, *(by_set(name, r) for name, r in classify["results"].items())]),
        "quantize": table([("set", "model", "accuracy", "size", "at 2 MB"), *small]),
        "prepare": table([(size, "MB/s", "ours is faster by", "peak memory"), *by_way]),
        "rows": table([("random rows, one core", "rows/s"), *by_row]),
        **crews_and_cells(),
        **words(),
        **on_spark(),
        "memory": table([(f"{memory['gigabytes']} GB of reviews", "peak memory", "speed"), *by_memory]),
    }


def crews_and_cells() -> dict[str, str]:
    """The tables of ``lstm`` and of crews."""
    ways = ("ours", "PyTorch, padded", "PyTorch, packed")
    speeds = [
        (name, *(f"{r[way]:,}" for way in ways), f"{r['times the padded']} x")
        for name, r in record("lstm")["rows_per_second"].items()
    ]
    learnt = [
        (
            f"`{name}`",
            " ".join(f"`--{k.replace('_', '-')} {v}`" for k, v in r["settings"].items()),
            ", ".join(f"{100 * run['accuracy']:.2f} %" for run in r["runs"]),
            ", ".join(f"{run['seconds']:.0f} s" for run in r["runs"]),
        )
        for name, r in record("lstm_accuracy").items()
        if isinstance(r, dict) and "runs" in r
    ]
    crews = [
        (
            name,
            " + ".join(f"{speed:,}" for speed in r["alone"]),
            f"{r['together']:,}",
            f"{100 * r['share_of_sum']:.0f} %",
            f"{r['unbalanced']:,} ({100 * r['unbalanced_share']:.0f} %)",
        )
        for name, r in record("balance")["crews"].items()
    ]
    return {
        "lstm": table([("rows/s on 2 threads", *ways, "ours beside the padded"), *speeds]),
        "lstm_accuracy": table([("reviews", "settings", "accuracy by seed", "seconds"), *learnt]),
        "balance": table([("speeds", "each alone", "together", "of the sum", "without balance"), *crews]),
    }


def on_spark() -> dict[str, str]:
    """The tables of what runs on Spark."""
    prepared, found = record("spark"), record("average")
    size = f"{prepared['megabytes']} MB of reviews, Spark on 2 cores"
    by_way = [
        (r["way"], r["mb_per_second"], f"{r['ours_is_faster_by']} x", f"{r['peak_gb']} GB")
        for r in prepared["results"]
    ]
    iris = [
        (
            "one process" if r["spread"] == "single" else f"{r['partitions']} partitions",
            {None: "-", 1: "once, at the end"}.get(r.get("rounds"), f"{r.get('rounds')} times"),
            f"{100 * r['accuracy']:.1f} %",
            f"{r['seconds']} s",
            "-" if r["study_seconds"] is None else f"{r['study_seconds']:,} s",
        )
        for r in found["iris"]
    ]
    imdb = [
        (
            f"`{name}`",
            f"{r['rounds']}, momentum {r.get('outer_momentum', 0)}",
            *(f"{100 * r[way]['accuracy']:.2f} %, {r[way]['seconds']} s" for way in ("single", "average")),
            f"{r['points']:+} points",
        )
        for name, r in found["imdb"].items()
    ]
    return {
        "spark": table([(size, "MB/s", "ours is faster by", "peak memory"), *by_way]),
        "iris": table([("Iris", "averaged", "accuracy", "seconds", "the study"), *iris]),
        "averages": table([("IMDB", "rounds", "one process", "four partitions", "difference"), *imdb]),
    }


def words() -> dict[str, str]:
    """The tables of word vectors."""
    found, books = record("embed"), record("embed_books")
    mine = found["contenders"]["ours"]["words_per_second"]
    kinds = ("WS-353", "SimLex-999", "MEN", "RW")
    contenders = [
        (
            f"{name} {found['versions_of_peers'].get(name, '')}".strip(),
            f"{r['words_per_second']:,}",
            f"{mine / r['words_per_second']:.1f} x",
            *(f"{r['scores'][kind]:.3f}" for kind in kinds),
            f"{r['scores']['Google']:.1f} %",
        )
        for name, r in found["contenders"].items()
    ]
    sizes = [200, 50]
    study = [
        (
            f"`skipgram`, {dim} numbers",
            *(
                f"{books[f'skipgram {dim}'][k]:,}"
                for k in ("pairs_per_second", "study_gpu", "study_four_machines")
            ),
        )
        for dim in sizes
    ]
    letters = books["charlstm 200"]
    study.append(("`charlstm`, 200 numbers", f"{letters['median']:,}", f"{letters['study_gpu']:,}", ""))
    rare = [
        (
            f"`{name}`",
            f"{100 * r['coverage']:.0f} %",
            *(
                "-" if value is None else f"{value:.3f}"
                for value in (r["spearman_all"], r["spearman_unseen"])
            ),
        )
        for name, r in books["rare words"]["models"].items()
    ]
    return {
        "embed": table([("2 threads", "words/s", "ours is faster by", *kinds, "Google"), *contenders]),
        "study": table([("pairs/s", "ours, 2 cores", "a GTX 970", "four of them"), *study]),
        "rare": table([("RW", "covered", "all pairs", "pairs with a word never seen"), *rare]),
        "pip": table(by_pip({dim: books[f"skipgram {dim}"]["pip"] for dim in sizes})),
    }


def by_pip(found: dict[int, dict[str, Any]]) -> list[tuple[Any, ...]]:
    """The PIP loss epoch by epoch, as it should be taken and as the study took it."""
    epochs = len(next(iter(found.values()))["by_epoch"])
    head = ("", *(f"{kind}, {dim} numbers" for dim in found for kind in ("PIP at equal norm", "‖EEᵀ − S‖")))
    rows: list[tuple[Any, ...]] = [
        (name, *(x for r in found.values() for x in (r[name], f"{r['naive'][name]:,}")))
        for name in ("zeros", "random")
    ]
    for epoch in range(epochs):
        pairs = ((r["by_epoch"][epoch], f"{r['naive']['by_epoch'][epoch]:,}") for r in found.values())
        rows.append((f"after epoch {epoch + 1}", *(x for pair in pairs for x in pair)))
    return [head, *rows]


def by_set(name: str, result: dict[str, Any]) -> tuple[Any, ...]:
    """One row of the table of classifiers."""
    theirs, same, default = (result[who] for who in ("fastText", "ours, fasttext", "ours, ngrams"))
    predicted = [
        f"{run['predicted_per_second_2'] / theirs['predicted_per_second']:.1f} x" for run in (same, default)
    ]
    return (
        name,
        f"{theirs['seconds']} s, {theirs['accuracy']} % ({theirs['best_of_rates']} %)",
        f"{same['seconds']} s, {same['accuracy']} %",
        f"{theirs['seconds'] / same['seconds']:.1f} x",
        f"{default['seconds']} s, {default['accuracy']} %",
        f"{theirs['seconds'] / default['seconds']:.1f} x",
        " and ".join(predicted),
    )


def table(rows: list[tuple[Any, ...]]) -> str:
    """A table in Markdown; the first row is its head."""
    lines = [f"| {' | '.join(map(str, row))} |\n" for row in rows]
    return "".join([lines[0], "|---" * len(rows[0]) + "|\n", *lines[1:]])


def redrawn(page: Path, drawn: dict[str, str]) -> str:
    """A page with its tables drawn anew."""
    text = page.read_text()
    for name in TABLE.findall(text):
        start = text.index(f"<!-- table: {name} -->\n") + len(f"<!-- table: {name} -->\n")
        text = text[:start] + drawn[name] + text[text.index("<!-- end -->", start) :]
    return text


def main() -> int:
    drawn = tables()
    pages = {ROOT / "docs" / "reference" / "cli.md": command_line()}
    pages |= {ROOT / name: redrawn(ROOT / name, drawn) for name in WITH_TABLES}
    stale = [path for path, text in pages.items() if not path.exists() or path.read_text() != text]
    if "--check" in sys.argv:
        for path in stale:
            print(f"{path.relative_to(ROOT)} is out of date; run: make reference")
        return len(stale)
    for path in stale:
        path.write_text(pages[path])
        print(f"wrote {path.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
