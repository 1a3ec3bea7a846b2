"""Write what is made from other sources: docs/reference/cli.md from the command line's own help,
docs/reference/api.md from docstrings, and every table between ``<!-- table: name -->`` and ``<!-- end -->``
from the benchmark records.

With ``--check``, only say what is out of date.
"""

import json
import re
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from api_reference import api_page
from manyhands.cli.main import VERBS, build

ROOT = Path(__file__).parent.parent
COMMAND_LINE = ROOT / "docs" / "reference" / "cli.md"
PACKAGE = ROOT / "docs" / "reference" / "api.md"
PLAIN = {"COLUMNS": "100", "TERM": "dumb", "NO_COLOR": "1"}
TABLE = re.compile(r"(<!-- table: (\w+) -->\n).*?(?=<!-- end -->)", re.DOTALL)
SET_NAMES = {"imdb_polarity": "IMDB", "tripadvisor_polarity": "TripAdvisor"}
JUDGES = ("LinearSVC", "logistic regression", "fastText")
PEERS = (*JUDGES, "Vowpal Wabbit")

Rows = list[tuple[Any, ...]]


@cache
def record(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((ROOT / "bench" / "records" / f"{name}.json").read_text())
    return found


def command_line() -> str:
    """The help of every command."""
    pages = ["# The command line\n\nThis page is made from `--help` by `make reference`.\n"]
    for verb in VERBS:
        shown = CliRunner().invoke(build([verb, "--help"]), [verb, "--help"], env=PLAIN)
        help_text = "\n".join(line.rstrip() for line in shown.output.strip().splitlines())
        pages.append(f"## manyhands {verb}\n\n```\n{help_text}\n```\n")
    return "\n".join(pages)


def _numbers_of_runs(found: dict[str, Any]) -> str:
    """Means of different numbers of runs are not equally sure."""
    whole = [found[name] for name in found if {"manyhands", *JUDGES} <= {*found[name]}]
    ours = {group["manyhands"]["runs"] for group in whole}
    peers = {group[name]["runs"] for group in whole for name in JUDGES}
    return f"ours {'-'.join(map(str, sorted(ours)))} runs, peers {'-'.join(map(str, sorted(peers)))}"


def results() -> Rows:
    """The README's table: the most telling row of each benchmark, beside its conditions."""
    recipe, words, lstm = record("fasttext_recipe"), record("embed")["contenders"], record("lstm")
    imdb, trip, small = (
        recipe["results"]["IMDB"],
        recipe["results"]["TripAdvisor"],
        record("quantize")["results"],
    )
    ahead = [points for group in _whole_sets().values() if (points := _ahead(group)) is not None]
    ngrams = next(r for r in small if (r["set"], r["model"]) == ("IMDB", "ngrams"))
    local, polars = record("prepare")["results"][0], record("prepare")["results"][-1]
    on_spark, jvm = record("spark")["results"][0], record("spark")["results"][3]
    crew, mean = record("balance")["crews"]["1 : 0.5"], record("average")["imdb"]["lstm"]
    four = mean["partitions"]["4"]
    rows_per_second, two = lstm["rows_per_second"]["TripAdvisor"], record("crew_speed")["models"]["skipgram"]
    tries = [f"{100 * share:.0f} %" for share in crew["share_of_sum_in_each_round"]]
    return [
        ("task", "manyhands", "compared with", "ratio", "conditions"),
        (
            f"classify {len(ahead)} sets by the default",
            f"`ngrams`: more accurate on {sum(points > 0 for points in ahead)}",
            f"the best of {_listed(JUDGES)}, each tuned by validation",
            f"{min(ahead):+.2f} to {max(ahead):+.2f} points",
            "real texts, raw files in; of each set the peer with the highest test accuracy counts; "
            + _numbers_of_runs(record("classify")["results"]),
        ),
        (
            "classify IMDB reviews",
            _fit("`ngrams` without choosing", imdb["ours, ngrams"]),
            _fit("fastText 0.9.3", imdb["fastText"]),
            _times(imdb["fastText"]["seconds"] / imdb["ours, ngrams"]["seconds"]),
            "real reviews; the default before it chose its settings (softmax, rate 8, uncalibrated) "
            "beside fastText's recipe at its best learning rate on the "
            f"{recipe['rate_chosen_by']}; best time and mean accuracy of 9 runs; compile time excluded",
        ),
        (
            "classify TripAdvisor reviews",
            _fit("`fasttext`", trip["ours, fasttext"]),
            _fit("fastText 0.9.3", trip["fastText"]),
            _times(trip["fastText"]["seconds"] / trip["ours, fasttext"]["seconds"]),
            "real reviews, same settings; the learning rate is fastText's best on the "
            f"{recipe['rate_chosen_by']}; 3 runs",
        ),
        (
            "quantise to 2 MB, IMDB",
            f"`ngrams`: {ngrams['accuracy_at_2_mb']} %",
            f"at {ngrams['full_mb']} MB: {ngrams['accuracy']} %",
            f"{ngrams['accuracy_at_2_mb'] - ngrams['accuracy']:+.2f} points",
            "real reviews; one run",
        ),
        (
            "train a recurrent network",
            f"`lstm`: {rows_per_second['ours']:,} rows/s",
            f"PyTorch, padded: {rows_per_second['PyTorch, padded']:,} rows/s",
            _times(rows_per_second["times the padded"]),
            "real texts of TripAdvisor, random labels; PyTorch pads all to 100 words, which is not its "
            "fastest way; CPU; best of 3 epochs",
        ),
        (
            "learn word vectors",
            _vectors("`skipgram`", words["ours"]),
            _vectors("gensim 4.4.0", words["gensim"]),
            _times(words["ours"]["words_per_second"] / words["gensim"]["words_per_second"]),
            "12.6 M words of Wikipedia; best time, mean score of 3 seeds; our default learning rate was "
            "chosen on these word sets, gensim's was not",
        ),
        (
            "prepare reviews",
            f"{local['mb_per_second']} MB/s",
            f"polars: {polars['mb_per_second']} MB/s",
            _times(polars["ours_is_faster_by"]),
            f"{record('prepare')['megabytes']} MB of synthetic reviews; start-up left out",
        ),
        (
            "prepare on Spark",
            f"{on_spark['mb_per_second']} MB/s",
            f"Spark DataFrames: {jvm['mb_per_second']} MB/s",
            _times(jvm["ours_is_faster_by"]),
            f"{record('spark')['megabytes']:,} MB of synthetic reviews; one run; without Spark, "
            f"`prepare` makes {record('spark')['results'][4]['mb_per_second']} MB/s",
        ),
        (
            "workers of unequal speed",
            f"{crew['together']:,} rows/s",
            f"equal shares: {crew['unbalanced']:,} rows/s",
            _times(crew["together"] / crew["unbalanced"]),
            f"synthetic rows; one of two workers is slowed by sleeping; best of {len(tries)} runs: "
            f"{max(tries)} of the workers' combined speed (others {' and '.join(sorted(tries)[:-1])})",
        ),
        (
            "two workers on one machine",
            f"`skipgram`: {two['two workers, one thread each']['learning']:.1f} s",
            f"one worker: {two['one worker, one thread']['learning']:.1f} s",
            _times(two["beside one worker, one thread"]["learning"]),
            f"12.6 M words, two epochs, training loop alone; best of {two['repeats']}; "
            "one process of two threads takes "
            f"{two['one process, two threads']['learning']:.1f} s and starts {two['start_seconds']} s sooner",
        ),
        (
            "average 4 partitions, IMDB",
            f"`lstm` on Spark: {100 * four['accuracy']:.2f} %, {four['seconds']} s",
            f"one process: {100 * mean['single']['accuracy']:.2f} %, {mean['single']['seconds']} s",
            _times(mean["single"]["seconds"] / four["seconds"]),
            "real reviews; one run each; on one machine averaging costs time",
        ),
    ]


def _fit(name: str, found: dict[str, Any]) -> str:
    return f"{name}: {found['seconds']} s, {found['accuracy']} %"


def _vectors(name: str, found: dict[str, Any]) -> str:
    return f"{name}: {found['words_per_second']:,} words/s, WS-353 {found['scores']['WS-353']:.3f}"


def _times(ratio: float) -> str:
    return f"{ratio:.1f} x"


def classify() -> Rows:
    """Whole sets: our default beside every tuned peer."""
    counts = record("classify")["train_rows"]
    rows: Rows = [("accuracy in %", "rows", "our default", *PEERS, "ours beside the best peer")]
    return [
        *rows,
        *((name, f"{counts[name]:,}", *_accuracies(group)) for name, group in _whole_sets().items()),
    ]


def _whole_sets() -> dict[str, dict[str, Any]]:
    found = record("classify")
    return {name: group for name, group in found["results"].items() if name in found["train_rows"]}


def classify_few() -> Rows:
    """Small parts of the large sets."""
    found = record("classify")
    rows: Rows = [("accuracy in %", "our default", *PEERS, "ours beside the best peer")]
    parts = (pair for pair in found["results"].items() if pair[0] not in found["train_rows"])
    return [*rows, *((name, *_accuracies(group)) for name, group in parts)]


def classify_seconds() -> Rows:
    """Only of sets whose runs were side by side."""
    counts = record("classify")["train_rows"]
    rows: Rows = [("seconds", "rows", "our default", *PEERS)]
    for name, group in _whole_sets().items():
        if all(found["side_by_side"] for found in group.values()):
            who = ("manyhands", *PEERS)
            seconds = (f"{group[name]['seconds']:.1f}" if name in group else "-" for name in who)
            rows.append((name, f"{counts[name]:,}", *seconds))
    return rows


def _accuracies(group: dict[str, Any]) -> list[str]:
    points = _ahead(group)
    cells = (_accuracy(group.get(who)) for who in ("manyhands", *PEERS))
    return [*cells, "-" if points is None else f"{points:+.2f}"]


def _ahead(group: dict[str, Any]) -> float | None:
    """Points between ours and the best peer; none where one of them has not run."""
    if not {"manyhands", *JUDGES} <= {*group}:
        return None
    accuracy: dict[str, float] = {who: group[who]["accuracy"] for who in ("manyhands", *JUDGES)}
    return round(accuracy["manyhands"] - max(accuracy[who] for who in JUDGES), 2)


def _accuracy(found: dict[str, Any] | None) -> str:
    """The mean, and how far the runs lie apart."""
    if found is None:
        return "-"
    return f"{found['accuracy']:.2f}" + (f" ({found['spread']:.2f})" if found["runs"] > 1 else ", one run")


def _listed(names: tuple[str, ...]) -> str:
    return f"{', '.join(names[:-1])} and {names[-1]}"


def fasttext_recipe() -> Rows:
    head = (
        "2 threads",
        "fastText 0.9.3",
        "its best",
        "our `fasttext`",
        "faster by",
        "our `ngrams`",
        "faster by",
        "both predict faster by, one thread each",
    )
    rows: Rows = [head]
    for name, found in record("fasttext_recipe")["results"].items():
        theirs, same, default = (found[who] for who in ("fastText", "ours, fasttext", "ours, ngrams"))
        speeds = (run["predicted_per_second_1"] / theirs["predicted_per_second"] for run in (same, default))
        rows.append(
            (
                name,
                f"{theirs['seconds']} s, {theirs['accuracy']} %",
                f"{theirs['best']} %",
                f"{same['seconds']} s, {same['accuracy']} %",
                _times(theirs["seconds"] / same["seconds"]),
                f"{default['seconds']} s, {default['accuracy']} %",
                _times(theirs["seconds"] / default["seconds"]),
                " and ".join(_times(speed) for speed in speeds),
            )
        )
    return rows


def quantize() -> Rows:
    return [
        ("set", "model", "accuracy", "size", "accuracy at 2 MB"),
        *(
            (
                r["set"],
                f"`{r['model']}`",
                f"{r['accuracy']} %",
                f"{r['full_mb']} MB",
                f"{r['accuracy_at_2_mb']} %",
            )
            for r in record("quantize")["results"]
        ),
    ]


def unlabelled() -> Rows:
    return [
        (
            "set",
            "labelled rows",
            "unlabelled texts",
            "accuracy without",
            "with",
            "seconds without",
            "with",
            "used",
        ),
        *(
            (
                r["set"],
                f"{r['labelled']:,}",
                f"{r['unlabelled']:,}",
                f"{r['accuracy_without']} %",
                f"{r['accuracy_with']} %",
                r["seconds_without"],
                r["seconds_with"],
                f"{r['used']} of {r['draws']} times",
            )
            for r in record("unlabelled")["results"]
        ),
    ]


def audit() -> Rows:
    return [
        ("set", "rows", "planted", "found, by seed", "share", "seconds"),
        *(
            (
                name,
                f"{r['rows']:,}",
                f"{r['runs'][0]['planted']:,}",
                ", ".join(f"{run['found']:,}" for run in r["runs"]),
                f"{100 * r['precision']:.1f} %",
                min(run["seconds"] for run in r["runs"]),
            )
            for name, r in record("audit")["results"].items()
        ),
    ]


def lstm() -> Rows:
    ways = ("ours", "PyTorch, padded", "PyTorch, packed", "PyTorch, bucketed")
    beside = ("padded", "bucketed")  # the last is "-" in records from before it took part
    return [
        ("rows/s on 2 threads", *ways, *(f"ours beside the {way}" for way in beside)),
        *(
            (
                name,
                *(f"{r[way]:,}" if way in r else "-" for way in ways),
                *(f"{r[key]} x" if (key := f"times the {way}") in r else "-" for way in beside),
            )
            for name, r in record("lstm")["rows_per_second"].items()
        ),
    ]


def lstm_accuracy() -> Rows:
    return [
        ("reviews", "settings", "accuracy by seed", "seconds"),
        *(
            (
                SET_NAMES[name],
                " ".join(_option(*setting) for setting in r["settings"].items()),
                ", ".join(f"{100 * run['accuracy']:.2f} %" for run in r["runs"]),
                ", ".join(f"{run['seconds']:.0f} s" for run in r["runs"]),
            )
            for name, r in record("lstm_accuracy").items()
            if name in SET_NAMES
        ),
    ]


def _option(name: str, value: Any) -> str:
    flag = f"--{name.replace('_', '-')}"
    return f"`{flag}`" if value is True else f"`{flag} {value}`"


def embed() -> Rows:
    found, sets = record("embed"), ("WS-353", "SimLex-999", "MEN", "RW")
    mine = found["contenders"]["ours"]["words_per_second"]
    return [
        ("2 threads", "words/s", "ours is faster by", *sets, "Google"),
        *(
            (
                f"{name} {found['versions_of_peers'].get(name, '')}".strip(),
                f"{r['words_per_second']:,}",
                _times(mine / r["words_per_second"]),
                *(f"{r['scores'][kind]:.3f}" for kind in sets),
                f"{r['scores']['Google']:.1f} %",
            )
            for name, r in found["contenders"].items()
        ),
    ]


def study() -> Rows:
    books, kinds = record("embed_books"), ("pairs_per_second", "study_gpu", "study_four_machines")
    letters = books["charlstm 200"]
    return [
        ("pairs/s", "ours, 2 cores", "the study, one GTX 970", "the study, four machines"),
        *(
            (f"`skipgram --dim {dim}`", *(f"{books[f'skipgram {dim}'][kind]:,}" for kind in kinds))
            for dim in (200, 50)
        ),
        ("`charlstm --dim 200`", f"{letters['median']:,}", f"{letters['study_gpu']:,}", "-"),
    ]


def rare() -> Rows:
    return [
        ("RW", "coverage", "Spearman, all pairs", "Spearman, pairs with an out-of-vocabulary word"),
        *(
            (
                f"`{name}`",
                f"{100 * r['coverage']:.0f} %",
                *(
                    "-" if value is None else f"{value:.3f}"
                    for value in (r["spearman_all"], r["spearman_unseen"])
                ),
            )
            for name, r in record("embed_books")["rare words"]["models"].items()
        ),
    ]


def pip() -> Rows:
    """The PIP loss epoch by epoch, as it should be taken and as a study took it."""
    found = {dim: record("embed_books")[f"skipgram {dim}"]["pip"] for dim in (200, 50)}
    head = ("", *(f"{kind}, dim {dim}" for dim in found for kind in ("PIP at equal norm", "‖EEᵀ − S‖")))
    rows: Rows = [
        (name, *(x for r in found.values() for x in (r[name], f"{r['naive'][name]:,}")))
        for name in ("zeros", "random")
    ]
    for epoch in range(len(found[200]["by_epoch"])):
        pairs = ((r["by_epoch"][epoch], f"{r['naive']['by_epoch'][epoch]:,}") for r in found.values())
        rows.append((f"after epoch {epoch + 1}", *(x for pair in pairs for x in pair)))
    return [head, *rows]


def iris() -> Rows:
    return [
        ("Iris", "averaged", "accuracy", "seconds", "the study's seconds"),
        *(
            (
                "one process" if r["spread"] == "single" else f"{r['partitions']} partitions",
                {None: "-", 1: "once, at the end"}.get(r.get("rounds"), f"{r.get('rounds')} times"),
                f"{100 * r['accuracy']:.1f} %",
                f"{r['seconds']} s",
                "-" if r["study_seconds"] is None else f"{r['study_seconds']:,} s",
            )
            for r in record("average")["iris"]
        ),
    ]


def averages() -> Rows:
    return [
        ("IMDB", "partitions", "rounds", "one process", "partitions", "difference"),
        *(
            (
                f"`{name}`",
                partitions,
                f"{run['turns']}",
                *(f"{100 * way['accuracy']:.2f} %, {way['seconds']} s" for way in (r["single"], run)),
                f"{run['points']:+} points",
            )
            for name, r in record("average")["imdb"].items()
            for partitions, run in r["partitions"].items()
        ),
    ]


def balance() -> Rows:
    return [
        ("speeds", "each alone", "together", "of the sum", "every run", "with equal shares"),
        *(
            (
                name,
                " + ".join(f"{speed:,}" for speed in r["alone"]),
                f"{r['together']:,}",
                f"{100 * r['share_of_sum']:.0f} %",
                ", ".join(f"{100 * share:.0f} %" for share in r["share_of_sum_in_each_round"]),
                f"{r['unbalanced']:,} ({100 * r['unbalanced_share']:.0f} %)",
            )
            for name, r in record("balance")["crews"].items()
        ),
    ]


def crews() -> Rows:
    """Scores of one process, and how far those of crews differ."""
    ways = [f"{n} machines, emulated" for n in (2, 4, 8, 16)] + [f"{n} workers, one machine" for n in (2, 4)]
    keys = [f"{n} emulated" for n in (2, 4, 8, 16)] + [f"{n} real, shared memory" for n in (2, 4)]
    rows: Rows = [("accuracy", "one process", *ways, "MB a machine and epoch, of 2")]
    for name, runs in record("crews")["runs"].items():
        if "accuracy" in runs["1"]:
            points = [_points(key, runs[key]) if key in runs else "-" for key in keys]
            sent = (
                f"{runs['2 emulated']['bytes'] / runs['epochs'] / 1e6:.1f}" if "2 emulated" in runs else "-"
            )
            rows.append((name, f"{runs['1']['accuracy']:.2f} %", *points, sent))
    return rows


def _points(key: str, run: dict[str, Any]) -> str:
    """With how many machines learn, where not all do."""
    learn = run.get("machines_that_learn")
    fewer = f" ({learn} of them)" if learn and f"{learn} emulated" != key else ""
    return f"{run['points']:+.2f}{fewer}"


def crews_of_words() -> Rows:
    sets = ("WS-353", "MEN", "Google")
    rows: Rows = [("`skipgram`", "machines", *sets)]
    for name, runs in record("crews")["runs"].items():
        if "MEN" in runs["1"]:
            for key, run in runs.items():
                if key != "epochs":
                    learn = run.get("machines_that_learn", 1)
                    fewer = f", {learn} of them learn" if key not in ("1", f"{learn} emulated") else ""
                    rows.append((name, key + fewer, *(run[kind] for kind in sets)))
    return rows


def crew_speed() -> Rows:
    found = record("crew_speed")["models"]
    ways = ("one worker, one thread", "one process, two threads", "two workers, one thread each")
    return [
        ("seconds of learning (of the whole process)", *ways, "beside one thread", "beside two", "start"),
        *(
            (
                f"`{model}`",
                *(f"{r[way]['learning']:.1f} ({r[way]['seconds']:.1f})" for way in ways),
                *(
                    f"{r[f'beside {way}']['learning']} x ({r[f'beside {way}']['seconds']} x)"
                    for way in ways[:2]
                ),
                f"+{r['start_seconds']} s",
            )
            for model, r in found.items()
        ),
    ]


def crew_work() -> Rows:
    rows: Rows = [("model", "workers", "dataset read", "CPU before the first step", "memory of its own")]
    for model, runs in record("crew_work")["models"].items():
        for workers, r in runs.items():
            rows.append(
                (
                    f"`{model}`",
                    workers,
                    f"{r['dataset_bytes_read'] / 1e6:.0f} MB ({r['of_one']['dataset_bytes_read']:.2f})",
                    f"{r['cpu_seconds_before_first_step']:.1f} s "
                    f"({r['of_one']['cpu_seconds_before_first_step']:.2f})",
                    f"{r['private_peak_bytes'] / 1e6:.0f} MB ({r['of_one']['private_peak_bytes']:.2f})",
                )
            )
    return rows


def links() -> Rows:
    rows: Rows = [
        ("two machines", "link", "seconds of learning", "of the speed without a limit", "MB an epoch")
    ]
    for model, runs in record("links")["models"].items():
        for link, r in runs.items():
            share = f"{r['of_no_limit']:.2f}" if "of_no_limit" in r else "-"
            sent = f"{r['bytes_an_epoch'] / 1e6:.1f}"
            rows.append((f"`{model}`", link, r["learning_seconds"], share, sent))
    return rows


def kills() -> Rows:
    return [
        ("workers", "kills of each", "rows seen", "rows seen without kills", "same bytes"),
        *(
            (
                workers,
                ", ".join(map(str, r["kills"])),
                f"{r['rows_seen']:,}",
                f"{r['rows_seen_undisturbed']:,}",
                "yes" if r["same_bytes"] else "no",
            )
            for workers, r in record("kills")["workers"].items()
        ),
    ]


def hosts() -> Rows:
    cases = {
        "plain": "two hosts from the start",
        "four": "the same, two workers on each",
        "joined": "the second host joins later, two workers on each",
        "cut": "the link is cut for a while",
        "lost": "the link is cut for good",
    }
    found = record("hosts")
    return [
        ("case", "rows seen, of those asked for", "epochs by number of workers", "exit codes", "seconds"),
        *(
            (
                said,
                f"{leads['rows_seen']:,} of {leads['rows_asked']:,}",
                ", ".join(f"{epochs} with {n}" for n, epochs in leads["epochs_by_workers"].items()),
                f"{leads['exit']} and {follows['exit']}",
                f"{leads['seconds']} and {follows['seconds']}",
            )
            for case, said in cases.items()
            for leads, follows in [(found[case]["mha"], found[case]["mhb"])]
        ),
    ]


def server_speed() -> Rows:
    rows: Rows = [
        (
            "two cores",
            "seconds of learning, one process, server",
            "speed (whole command)",
            "scores, one process, server",
            "bytes beside a dense exchange",
        )
    ]
    for name, r in record("server")["runs"]["speed"].items():
        one, two = r["one process, two threads"], r["server, two workers"]
        judged = [key for key in ("WS-353", "MEN", "accuracy") if key in one]
        rows.append(
            (
                name,
                f"{one['learning']}, {two['learning']}",
                f"{r['speed']:.2f} ({r['speed_of_whole_command']:.2f})",
                "; ".join(f"{key} {one[key]}, {two[key]}" for key in judged),
                f"{r['bytes_beside_dense']:.4f} ({two['bytes'] / 1e6:.0f} MB)",
            )
        )
    return rows


def server_slow() -> Rows:
    return [
        (
            "one of two workers is held up half of the time",
            "words/s, async",
            "words/s, sync",
            "async beside sync",
        ),
        *(
            (
                memory,
                f"{r['async']['words_per_second']:,}",
                f"{r['sync']['words_per_second']:,}",
                r["async_beside_sync"],
            )
            for memory, r in record("server")["runs"]["slow"].items()
        ),
    ]


def server_kills() -> Rows:
    found = record("server")["runs"]["kills"]
    killed, every = found["killed"], len(found["runs"])
    return [
        ("runs", "workers killed", "shards", "drivers, then resumed", "every row once", "worst score"),
        (
            f"{every}, {found['text']}, `{found['model']}`",
            *killed.values(),
            f"{found['runs_exact']} of {every}",
            f"{found['worst_points']:+.2f} points",
        ),
    ]


def server_emulated() -> Rows:
    rows: Rows = [("set, model", "machines", "of which learn", "scores", "beside one process", "MB sent")]
    for name, runs in record("server")["runs"]["emulated"].items():
        judged = [key for key in ("WS-353", "MEN", "accuracy") if key in runs["1"]]
        for machines, r in sorted(runs.items(), key=lambda run: int(run[0])):
            beside = "; ".join(
                f"{r[key] - runs['1'][key]:+.{2 if key == 'accuracy' else 3}f}" for key in judged
            )
            rows.append(
                (
                    name,
                    machines,
                    r["machines_that_learn"],
                    "; ".join(f"{key} {r[key]}" for key in judged),
                    beside if machines != "1" else "",
                    f"{r['bytes'] / 1e6:,.0f}",
                )
            )
    return rows


def server_links() -> Rows:
    rows: Rows = [
        (
            "two machines",
            "link",
            "seconds of learning",
            "beside no limit (bar)",
            "beside one process of two threads",
            "scores",
            "MB sent",
        )
    ]
    for name, runs in record("server")["runs"]["links"].items():
        for link, r in runs.items():
            if link == "repeats":
                continue
            judged = [key for key in ("WS-353", "MEN", "accuracy") if key in r]
            rows.append(
                (
                    name,
                    link,
                    r["learning"],
                    f"{r['of_no_limit']:.2f} ({r['bar']})" if "bar" in r else "",
                    f"{r['of_one_process']:.2f}" if "of_one_process" in r else "",
                    "; ".join(f"{key} {r[key]}" for key in judged),
                    f"{r['bytes'] / 1e6:,.0f}" if "bytes" in r else "",
                )
            )
    return rows


def prepare() -> Rows:
    found = record("prepare")
    return _prepared(
        found, f"{found['megabytes']} MB of synthetic reviews, {found['machine']['cores']} cores"
    )


def spark() -> Rows:
    found = record("spark")
    return _prepared(found, f"{found['megabytes']:,} MB of synthetic reviews, Spark on 2 cores")


def _prepared(found: dict[str, Any], job: str) -> Rows:
    return [
        (job, "MB/s", "ours is faster by", "peak memory"),
        *(
            (r["way"], r["mb_per_second"], f"{r['ours_is_faster_by']} x", f"{r['peak_gb']} GB")
            for r in found["results"]
        ),
    ]


def rows() -> Rows:
    return [
        ("random rows, one core", "rows/s"),
        *((r["way"], f"{r['rows_per_second']:,}") for r in record("rows")["results"]),
    ]


def memory() -> Rows:
    found = record("memory")
    return [
        (f"{found['gigabytes']} GB of synthetic reviews", "peak memory", "speed"),
        *(
            (f"`--memory {r['memory']}`", f"{r['peak_gb']} GB", f"{r['mb_per_second']} MB/s")
            for r in found["results"]
        ),
    ]


def stream() -> Rows:
    found = record("stream")["quality"]
    out: Rows = [
        ("one pass over 12.6 M words, 2 threads", "WS-353", "MEN", "words/s", "words/s, learning alone")
    ]
    for name, shown in (("stream", "`stream`"), ("train", "`train --epochs 1`")):
        scores, one = found[name]["scores"], found[name]
        speeds = f"{one['words_per_second']:,}", f"{one['learning_words_per_second']:,}"
        out.append((shown, scores["WS-353"], scores["MEN"], *speeds))
    ratios = [found[f"{name}_beside_train"] for name in ("words_per_second", "learning_words_per_second")]
    return [*out, ("ratio", *found["quality"].values(), *ratios)]


def stream_memory() -> Rows:
    found = record("stream")["memory"]
    rows = [
        (
            f"{one['second']} s",
            f"{one['median'] / 1e6:.0f} MB",
            f"{one['peak'] / 1e6:.0f} MB",
            f"{one['words_that_entered']:,}",
        )
        for one in found["curve"]
    ]
    growth = (f"{100 * found['growth_after_warm_up'][name]:.1f} %" for name in ("median", "peak"))
    head = ("30 seconds from", "resident memory, median", "most", "words that entered so far")
    return [head, *rows, ("growth after the first minute", *growth, "")]


def stream_brokers() -> Rows:
    found = record("stream")["brokers"]
    names = {"train": "`train --epochs 1`", "file": "`stream`, a file"}
    names |= {kind: f"`stream`, {kind}" for kind in ("kafka", "redis", "nats")}
    head = (f"{found['words']:,} words in {found['messages']:,} messages", "words/s", "beside `train`")
    runs = found["runs"]
    return [
        head,
        *((shown, f"{runs[k]['words_per_second']:,}", runs[k]["beside_train"]) for k, shown in names.items()),
    ]


def stream_kills() -> Rows:
    found = record("stream")["kills"]
    exact = "exact" if found["ledger_exact"] else "NOT exact"
    shown = f"{found['killed']['worker']}", f"{found['killed']['reader']}", exact
    return [
        ("messages, two workers on Ray", "kills of workers", "of the reader", "ledger"),
        (f"{found['messages']:,}", *shown),
    ]


def serve() -> Rows:
    found = record("serve")["services"]
    rows: Rows = [("one text a request", "clients", "requests/s", "p50", "p99", "CPU a request")]
    for clients in ("1", "8", "64"):
        rows += [(name, clients, *_served(found[name][clients])) for name in found]
    half = record("serve")["half_load"]
    share = f"{100 * half['share_of_most']:.0f} % of the most"
    return [*rows, (f"manyhands, {share}", "64", *_served(half))]


def _served(found: dict[str, Any]) -> tuple[str, ...]:
    return (
        f"{found['requests_per_second']:,.0f}",
        *(f"{found[key]:.2f} ms" for key in ("p50_ms", "p99_ms")),
        f"{found['cpu_us_per_request']:.0f} µs",
    )


def serve_overload() -> Rows:
    found = record("serve")["overload"]
    first, last = (f"{size / 1e6:.0f} MB" for size in found["memory_bytes"])
    return [
        (f"{found['clients']} clients, {found['minutes']:g} minutes", "found"),
        ("answered", f"{found['answered']:,}"),
        ("told to retry (503)", f"{found['refused']:,}"),
        ("answers compared with the model", f"{found['checked']:,}, {found['wrong']} wrong"),
        ("other answers, or 503 without a time", found["other"] + found["refused_without_time"]),
        ("connections refused or broken", found["connect_errors"] + found["read_errors"]),
        ("answers later than 10 s", found["timeouts"]),
        ("resident memory, after the start and at the end", f"{first}, {last}"),
    ]


def serve_fuzz() -> Rows:
    found = record("serve_fuzz")
    first, *_, last = (f"{size / 1e6:.0f} MB" for size in found["memory_bytes"])
    before, after = found["open_files"]
    faults = sum(count for status, count in found["statuses"].items() if status.startswith("5"))
    return [
        ("what was sent", "what came back"),
        (f"{found['requests']:,} requests from the description", f"{len(found['complaints'])} complaints"),
        (f"{found['broken']:,} broken requests", f"{found['broken_answered_5xx']} answers of 500 or above"),
        (f"{found['slow_clients']} clients that stop halfway", f"{found['slow_clients_closed']} closed"),
        ("all of it", f"{faults} answers of 500 or above, {found['tracebacks']} tracebacks in the log"),
        ("open files, before and after", f"{before}, {after}"),
        ("resident memory, before and after", f"{first}, {last}"),
    ]


def predict_files() -> Rows:
    found = record("predict_files")["results"]
    who = {"fasttext": "our `fasttext`", "ngrams": "our `ngrams`", "ngrams, raw CSV": "`ngrams`, raw CSV"}
    rows: Rows = [("reviews/s", "threads", "measured by", "fastText", *who.values())]
    for name, one in found.items():
        for threads, run in one["threads"].items():
            for measure, shown in (("reviews_per_second", "clock"), ("reviews_per_cpu_second", "processor")):
                ours = (f"{run[measure][w]:,} ({run[f'{measure}, times fastText'][w]} x)" for w in who)
                rows.append((name, threads, shown, f"{run[measure]['fastText']:,}", *ours))
        accuracy = (f"{one['accuracy'][w.partition(',')[0]]:.2f} %" for w in who)
        rows.append((f"{name}, accuracy", "", "", f"{one['fastText']['accuracy']:.2f} %", *accuracy))
    return rows


def s3_kills() -> Rows:
    rows: Rows = [("to S3", "kills", "outcome", "left behind")]
    for verb, one in record("s3_kills")["results"].items():
        if verb == "predict":
            outcome = f"{one['rows']:,} rows, {'each once' if one['each_row_once'] else 'WRONG'}"
        else:
            outcome = "the files of one run" if one["same_as_one_run"] else "other files"
        rows.append((f"`{verb}`", one["kills"], outcome, ", ".join(one["left_behind"]) or "nothing"))
    return rows


def storage() -> Rows:
    names = ("open_seconds", "epoch_1_seconds", "epoch_2_seconds")
    return [
        ("read from", "open", "all rows, random order", "once more"),
        *((way, *(f"{one[n]} s" for n in names)) for way, one in record("storage")["results"].items()),
    ]


def plans() -> Rows:
    return [
        ("run", "predicted", "range", "measured", "off"),
        *(
            (
                one["case"],
                f"{one['predicted']} s",
                f"{one['from']} to {one['to']} s",
                f"{one['measured']} s",
                f"{one['off']:+.0%}",
            )
            for one in record("plan")["runs"]
        ),
    ]


TABLES: dict[str, Callable[[], Rows]] = {
    make.__name__: make
    for make in (
        results, classify, classify_few, classify_seconds, fasttext_recipe, quantize, audit,
        unlabelled, lstm, lstm_accuracy, embed, study, rare, pip, iris, averages, balance, crews,
        crews_of_words, crew_speed, crew_work, links, kills, hosts, server_speed, server_slow, server_kills,
        server_emulated, server_links, stream, stream_memory, stream_brokers, stream_kills,
        serve, serve_overload, serve_fuzz, prepare, spark, rows, memory, predict_files, s3_kills, storage,
        plans,
    )
}  # fmt: skip


def table(rows: Rows) -> str:
    """A table in Markdown; the first row is its head."""
    lines = [f"| {' | '.join(map(str, row))} |\n" for row in rows]
    return "".join([lines[0], "|---" * len(rows[0]) + "|\n", *lines[1:]])


def pages() -> dict[Path, str]:
    """Every page that is made, or has a table that is, as it should be."""
    found = {COMMAND_LINE: command_line(), PACKAGE: api_page()}
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]:
        text = "" if page in found else page.read_text()
        if TABLE.search(text):
            found[page] = TABLE.sub(lambda match: match[1] + table(TABLES[match[2]]()), text)
    return found


def main() -> int:
    made = pages()
    stale = [path for path, text in made.items() if not path.exists() or path.read_text() != text]
    if "--check" in sys.argv:
        for path in stale:
            print(f"{path.relative_to(ROOT)} is out of date; run: make reference")
        return len(stale)
    for path in stale:
        path.write_text(made[path])
        print(f"wrote {path.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
