"""``report``: one page about a run, and beside others if several are given, from their records."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from manyhands.errors import InputError
from manyhands.evaluation.intervals import wilson
from manyhands.records import PARTS, Progress, Silent
from manyhands.report import charts
from manyhands.report.compare import Comparison, Line, compare_records
from manyhands.report.compare_table import columns, notes
from manyhands.report.document import (
    Block,
    document,
    facts,
    figure,
    folded,
    frame,
    paragraph,
    section,
    side_by_side,
    table,
)
from manyhands.report.profile import from_record
from manyhands.report.records import RECORD, RunRecord, read_runs
from manyhands.report.shown import amount, duration, money
from manyhands.storage.files import refuse_to_replace, writing

MOST_CURVES = 8  # runs whose lines can be told apart
LARGEST_MATRIX = 100  # labels; the most frequent
SHOWN_LABELS = 25
IN_ORDER = 12  # so few labels stand in their own order; of more, the worst are looked for
MOST_CONFUSED = 10
MAP_WORDS = 1000
MEASURES = {
    "accuracy": "accuracy",
    "macro_f1": "macro F1",
    "micro_f1": "micro F1",
    "log_likelihood": "log likelihood",
}


def report(
    places: Sequence[str],
    out: str,
    *,
    data: Sequence[str] = (),
    baseline: str | None = None,
    price: float | None = None,
    overwrite: bool = False,
    progress: Progress | None = None,
    warn: Callable[[str], None] = lambda sentence: None,
) -> RunRecord:
    """Write a page about the runs in these folders to ``out``; gives the run that it shows in detail.

    With ``data``, that run is judged by these rows instead of by those that its record tells of.
    """
    refuse_to_replace(out, overwrite)
    records, told = read_runs(places, warn), list[str]()
    found = compare_records(records, baseline=baseline, price=price, warn=told.append)
    for sentence in told:
        warn(sentence)
    chosen = _best(records, found)
    if data:
        chosen = _judged(chosen, list(data), progress or Silent())
    text = page(records, found, chosen, told, progress or Silent())
    with writing(out) as file:
        file.write(text.encode())
    return chosen


def page_about(folder: str) -> str:
    """The page of one run folder, for whoever has its model at hand: without the map of its words."""
    records = read_runs([folder], lambda sentence: None)
    return page(records, compare_records(records), records[0], word_map=False)


def page(
    records: Sequence[RunRecord],
    found: Comparison,
    chosen: RunRecord,
    warnings: Sequence[str] = (),
    progress: Progress | None = None,
    *,
    word_map: bool = True,
) -> str:
    """The page as HTML; without ``word_map``, no model is opened for it."""
    several = len(records) > 1
    allowed: Sequence[str] = ()
    line = next(line for line in found.lines if chosen.folder in line.folders)
    try:
        sections = [*(_runs(records, found, warnings) if several else ())]
        about = f"{chosen.name}: the run with the best score" if several else "Result"
        sections.append(section(about, _headline(chosen, line)))
        sections += [*_learning(chosen), *_labels(chosen), *_time(chosen)]
        if chosen.learns == "words" and word_map:
            shown, allowed = _word_map(chosen, progress)
            sections.append(shown)
        sections += _circumstances(chosen)
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        raise InputError(f"{chosen.folder}/{RECORD} is damaged ({error}); train again") from None
    title = f"{len(records)} runs" if several else chosen.name
    return document(title, sections, subtitle=_subtitle(chosen), allowed=allowed)


def _best(records: Sequence[RunRecord], found: Comparison) -> RunRecord:
    """The run to show in detail: of the job with the best mean score, the first."""
    scored = [line for line in found.lines if line.score is not None]
    best = max(scored, key=lambda line: line.score.mean if line.score else 0.0) if scored else found.lines[0]
    return next(record for record in records if record.folder in best.folders)


def _judged(record: RunRecord, data: list[str], progress: Progress) -> RunRecord:
    # Models are slow to import, and most reports need none.
    from manyhands.bundle.bundle import load_bundle  # noqa: PLC0415
    from manyhands.evaluation.evaluate import judge_in_detail, rows_to_judge_by  # noqa: PLC0415
    from manyhands.machine import resources_for  # noqa: PLC0415

    bundle, resources = load_bundle(record.folder), resources_for(None, None)
    rows = rows_to_judge_by(bundle, data, None, {}, resources, progress)
    judged, details = judge_in_detail(bundle.classifier, rows, resources.threads)
    scores = {**record.facts["scores"], "test": judged.facts()}
    return replace(record, facts={**record.facts, "scores": scores, "evaluation": details})


def _subtitle(record: RunRecord) -> str:
    of = record.facts
    workers = f", {record.workers} workers" if record.workers > 1 else ""
    task = "classifier" if record.learns == "labels" else "word vectors"
    return f"{task}: {of['model']}, {of.get('spread', 'single')}{workers}"


# Several runs.


def _runs(records: Sequence[RunRecord], found: Comparison, warnings: Sequence[str]) -> list[Block]:
    shown = columns(found)
    rows = list(zip(*(column.cells for column in shown), strict=True))
    blocks = [paragraph(f"Warning: {said}.", "warning") for said in warnings]
    blocks.append(table([column.head for column in shown], rows, "All runs"))
    blocks.append(
        paragraph(". ".join(f"{said[:1].upper()}{said[1:]}" for said in notes(found)) + ".", "note")
    )
    sections = [section("All runs", blocks)]
    pictures = [*_scaling(records, found), *_trade_offs(found), *_races(records, found)]
    if pictures:
        sections.append(section("Speed, score and money", [side_by_side(pictures)]))
    return sections


def _scaling(records: Sequence[RunRecord], found: Comparison) -> list[Block]:
    """Speed-up and efficiency by workers, of the jobs that differ from the baseline in how work is shared."""
    settings = {record.folder: record.facts["settings"] for record in records}
    base = next(line for line in found.lines if line.name == found.baseline)
    lines = [
        line
        for line in found.lines
        if line.model == base.model and _same_job(settings[line.folders[0]], settings[base.folders[0]])
    ]
    lines.sort(key=lambda line: line.workers)
    counts = [line.workers for line in lines]
    if len(counts) < 2 or len({*counts}) < len(counts):
        return []
    ideal = [(count, count / base.workers) for count in counts]
    speedups = [(line.workers, line.speedup or 0.0) for line in lines]
    efficiencies = [(line.workers, line.efficiency or 0.0) for line in lines]
    rows = [(line.workers, f"{line.speedup:.2f}", f"{line.efficiency:.0%}") for line in lines]
    in_words = table(["workers", "speed-up", "efficiency"], rows, "Speed-up and efficiency")
    even = [(count, 1.0) for count in counts]
    return [
        figure(
            charts.by_workers(speedups, "speed-up", ideal),
            f"Speed-up by workers, relative to {found.baseline}; dashed: ideal.",
            in_words,
        ),
        figure(charts.by_workers(efficiencies, "efficiency", even), "Efficiency: speed-up per worker."),
    ]


def _same_job(one: dict[str, Any], other: dict[str, Any]) -> bool:
    """They differ in nothing that both have, but for how the work is shared."""
    both = (one.keys() & other.keys()) - {"seed", "spread", "workers", "partitions", "nodes"}
    return all(one[name] == other[name] for name in both)


def _trade_offs(found: Comparison) -> list[Block]:
    pictures = []
    lines = found.lines
    if len(lines) < 2:
        return []
    priced = [line for line in lines if line.money is not None and line.currency == lines[0].currency]
    if len(priced) == len(lines):
        shown = [_place(line, _cost(line), _unbeaten(line, lines, _cost)) for line in lines]
        rows = [(line.name, duration(line.seconds.mean), _money(line)) for line in lines]
        pictures.append(
            figure(
                charts.places(shown, "seconds", f"money ({lines[0].currency})"),
                "Money against speed. Filled: no other run is both faster and cheaper.",
                table(["run", "seconds", "money"], rows, "Money against speed"),
            )
        )
    if found.measure and all(line.score for line in lines):
        shown = [
            _place(line, _score(line), _unbeaten(line, lines, lambda line: -_score(line))) for line in lines
        ]
        rows = [(line.name, duration(line.seconds.mean), f"{_score(line):.4f}") for line in lines]
        pictures.append(
            figure(
                charts.places(shown, "seconds", found.measure),
                "Score against speed. Filled: no other run is both faster and better.",
                table(["run", "seconds", found.measure], rows, "Score against speed"),
            )
        )
    return pictures


def _cost(line: Line) -> float:
    return line.money.mean if line.money else 0.0


def _score(line: Line) -> float:
    return line.score.mean if line.score else 0.0


def _money(line: Line) -> str:
    return money(_cost(line), line.currency or "")


def _place(line: Line, y: float, stands_out: bool) -> charts.Place:
    return charts.Place(line.name, line.seconds.mean, y, stands_out)


def _unbeaten(line: Line, lines: Sequence[Line], bad: Callable[[Line], float]) -> bool:
    """No other is at least as fast and as good, and better in one of the two."""
    mine = line.seconds.mean, bad(line)
    others = [(other.seconds.mean, bad(other)) for other in lines]
    return not any(o[0] <= mine[0] and o[1] <= mine[1] and o != mine for o in others)


def _races(records: Sequence[RunRecord], found: Comparison) -> list[Block]:
    """The validation scores of the first run of each job over the seconds of learning."""
    firsts = {line.folders[0]: line.name for line in found.lines}
    measure = "accuracy" if found.learns == "labels" else "log_likelihood"
    shown = []
    for record in records:
        if record.folder in firsts:
            judged = record.facts["scores"].get("valid", [])
            laps = record.facts.get("laps", [])
            points = [
                (float(lap["learning_seconds"]), float(scores[measure]))
                for lap, scores in zip(laps, judged, strict=False)
                if "learning_seconds" in lap
            ]
            if points:
                shown.append(charts.Curve(firsts[record.folder], points))
    if not 2 <= len(shown) <= MOST_CURVES:
        return []
    rows = [(c.name, duration(x), f"{y:.4f}") for c in shown for x, y in c.points]
    name = f"validation {MEASURES[measure]}"
    return [
        figure(
            charts.curves(shown, "seconds of learning", name, whole=False),
            "Validation score over the time spent learning.",
            table(["run", "after", name], rows, "Validation score over time"),
        )
    ]


# One run.


def _headline(record: RunRecord, line: Line) -> list[Block]:
    of, tested = record.facts, record.facts["scores"].get("test") or {}
    pairs: list[tuple[str, object]] = []
    notes_of: list[Block] = []
    for name, shown in MEASURES.items():
        if name in tested and name != "micro_f1":
            pairs.append((f"test {shown}", f"{tested[name]:.4f}"))
    if "accuracy" in tested and tested.get("rows"):
        accuracy = wilson(float(tested["accuracy"]), int(tested["rows"]))
        bounds = {"accuracy": accuracy, **tested.get("intervals", {})}  # records of old have none
        intervals = [
            f"{MEASURES[name]} {low:.4f} to {high:.4f}"
            for name, (low, high) in bounds.items()
            if name in MEASURES and name != "micro_f1"
        ]
        said = f"On {tested['rows']:,} test rows; 95 % intervals: {', '.join(intervals)}."
        notes_of.append(paragraph(said, "note"))
    if not tested and line.score is not None:
        pairs.append(("validation score", f"{line.score.mean:.4f}"))
    if tested.get("log_loss") is not None:
        pairs.append(("test log loss", f"{tested['log_loss']:.4f}"))
    if "calibration" in of.get("evaluation", {}):
        pairs.append(("calibration error", f"{of['evaluation']['calibration']['ece']:.4f}"))
    unit = "rows" if record.learns == "labels" else "words"
    rate = of["rows_per_second" if unit == "rows" else "tokens_per_second"]
    pairs += [("seconds", duration(of["seconds"])), (f"{unit}/s learnt", f"{rate:,.0f}")]
    pairs.append(("workers", record.workers))
    sent = of.get("traffic", {}).get("bytes_per_worker", 0)
    if sent:
        pairs.append(("sent by a worker", amount(sent, "B")))
    if line.money is not None:
        pairs.append(("money", _money(line)))
    return [facts(pairs, "headline"), *notes_of]


def _learning(record: RunRecord) -> list[Block]:
    """Loss of the training rows and scores of the validation rows, by epoch."""
    of = record.facts
    if "stream" in of:
        return _stream(of["stream"])
    trained, judged = of["scores"].get("train", []), of["scores"].get("valid", [])
    if not trained:
        return []
    if len(trained) == 1:  # a point is no curve
        scores = {**trained[0], **(judged[0] if judged else {})}
        named = {"loss": "training loss", **{name: f"validation {shown}" for name, shown in MEASURES.items()}}
        pairs = [(shown, f"{scores[name]:.4f}") for name, shown in named.items() if name in scores]
        return [section("Learning", [paragraph("There was one epoch."), facts(pairs)])]
    epochs = [float(e["epoch"]) for e in trained]
    best = of["scores"].get("best_epoch")
    losses = charts.Curve(
        "training loss", list(zip(epochs, (float(e["loss"]) for e in trained), strict=True))
    )
    rows = [(str(e["epoch"]), f"{e['loss']:.4f}") for e in trained]
    pictures = [
        figure(
            charts.curves([losses], "epoch", "training loss"),
            "Training: the mean loss of each epoch.",
            table(["epoch", "training loss"], rows, "Training loss"),
        )
    ]
    names = [name for name in MEASURES if judged and name in judged[0]]
    if names == ["accuracy", "macro_f1", "micro_f1"] and all(e["accuracy"] == e["micro_f1"] for e in judged):
        names.remove("micro_f1")  # with one label a row they are the same
    if names:
        lines = [
            charts.Curve(MEASURES[name], [(x, float(e[name])) for x, e in zip(epochs, judged, strict=False)])
            for name in names
        ]
        scored = [
            (int(e.get("epoch", n)), *(f"{e[name]:.4f}" for name in names)) for n, e in enumerate(judged, 1)
        ]
        caption = "Validation: scores after each epoch" + (
            f"; dashed: epoch {best} is kept." if best else "."
        )
        title = MEASURES[names[0]] if len(names) == 1 else "validation score"
        pictures.append(
            figure(
                charts.curves(lines, "epoch", title, best),
                caption,
                table(["epoch", *(MEASURES[name] for name in names)], scored, "Validation scores"),
            )
        )
    return [section("Learning", [side_by_side(pictures)])]


def _stream(found: dict[str, Any]) -> list[Block]:
    """Loss by messages."""
    points = [(float(p["messages"]), float(p["loss"])) for p in found["history"]]
    if not points:
        return []
    rows = [(f"{int(x):,}", f"{y:.4f}") for x, y in points]
    shown = charts.curves([charts.Curve("loss", points)], "messages", "loss")
    in_words = table(["messages", "loss"], rows, "Loss by messages")
    return [section("Learning", [figure(shown, "Loss of the messages as they came.", in_words)])]


def _labels(record: RunRecord) -> list[Block]:
    if record.learns != "labels":
        return []
    found = record.facts.get("evaluation")
    if not found:
        why = "The record has no figures of test rows by label: report with --data to judge the model now."
        return [section("Labels", [paragraph(why)])]
    sections, pictures = [], []
    if "confusion" in found:
        pictures.append(_confusion(found))
    if "calibration" in found:
        pictures.append(_calibration(found["calibration"]))
    if pictures:
        sections.append(section("Confusion and calibration", [side_by_side(pictures), *_confused(found)]))
    sections.append(section("Labels", _rates(found["labels"])))
    return sections


def _confusion(found: dict[str, Any]) -> Block:
    by_rows = sorted(found["labels"], key=lambda name: -found["labels"][name]["rows"])
    kept = {*by_rows[:LARGEST_MATRIX]}
    names = [name for name in found["labels"] if name in kept]
    place = {name: number for number, name in enumerate(names)}
    cells = [
        (place[true], place[predicted], rows, rows / max(sum(row.values()), 1))
        for true, row in found["confusion"].items()
        for predicted, rows in row.items()
        if true in place and predicted in place
    ]
    caption = (
        "Confusion matrix: of the rows of each true label (down), the shares by predicted label (across)"
    )
    if len(names) > charts.MOST_NAMED:
        caption += "; labels in the order of the model, first at the top left"
    if len(names) < len(found["labels"]):
        caption += f"; the {len(names)} most frequent labels"
    in_words = None
    if len(names) <= SHOWN_LABELS:
        rows = [(t, *(found["confusion"].get(t, {}).get(p, 0) for p in names)) for t in names]
        in_words = table(["true \\ predicted", *names], rows, "Confusion matrix")
    return figure(charts.confusion(cells, names), f"{caption}.", in_words)


def _confused(found: dict[str, Any]) -> list[Block]:
    wrong = [
        (rows, true, predicted)
        for true, row in found.get("confusion", {}).items()
        for predicted, rows in row.items()
        if true != predicted
    ]
    if len(found["labels"]) < 3 or not wrong:
        return []
    most = sorted(wrong, key=lambda cell: -cell[0])[:MOST_CONFUSED]
    rows = [
        (true, predicted, f"{count:,}", f"{count / max(found['labels'].get(true, {}).get('rows', 0), 1):.1%}")
        for count, true, predicted in most
    ]
    heads = ["true label", "taken for", "rows", "of its rows"]
    return [paragraph("Most often confused:"), table(heads, rows, "Labels that are most often confused")]


def _calibration(found: dict[str, Any]) -> Block:
    rows = [
        (
            f"{b['low']:.0%} to {b['high']:.0%}",
            f"{b['confidence']:.1%}",
            f"{b['right']:.1%}",
            f"{b['rows']:,}",
        )
        for b in found["bins"]
    ]
    return figure(
        charts.reliability(found["bins"], found["ece"]),
        f"Calibration: how often predictions are right by how sure the model is; dashed: as sure as right. "
        f"Expected calibration error {found['ece']:.4f}. Larger circles stand for more rows.",
        table(["probability", "mean", "right", "rows"], rows, "Calibration"),
    )


def _rates(labels: dict[str, dict[str, float]]) -> list[Block]:
    shown = list(labels.items())
    if len(shown) > IN_ORDER:
        shown.sort(key=lambda item: item[1]["f1"])
    rows = [
        (name, *(f"{rates[key]:.4f}" for key in ("precision", "recall", "f1")), f"{int(rates['rows']):,}")
        for name, rates in shown
    ]
    heads = ["label", "precision", "recall", "F1", "rows"]
    blocks = [table(heads, rows[:SHOWN_LABELS], "Rates of each label")]
    if len(shown) > IN_ORDER:
        blocks.insert(0, paragraph("Lowest F1 first.", "note"))
    if len(rows) > SHOWN_LABELS:
        others = table(heads, rows[SHOWN_LABELS:], "Rates of the other labels")
        blocks.append(folded(f"{len(rows) - SHOWN_LABELS:,} more labels", [others]))
    return blocks


def _time(record: RunRecord) -> list[Block]:
    if not record.facts.get("laps"):
        return []
    profile = from_record(record.facts)
    if not profile.seconds:
        return []
    workers = range(profile.workers)
    rows = [
        (part, PARTS[part], *(f"{spent[worker]:.2f} s" for worker in workers))
        for part, spent in profile.seconds.items()
    ]
    heads = ["part", "what", *(f"worker {worker}" for worker in workers)]
    learning, whole = float(record.facts.get("learning_seconds", 0)), float(record.facts["seconds"])
    caption = (
        f"Seconds of each worker. Of {duration(whole)} in all, {duration(learning)} were spent learning; "
        "the rest on reading, starting, validating, testing and writing."
    )
    return [
        section(
            "Where the time went",
            [figure(charts.time_spent(profile.seconds), caption, table(heads, rows, "Seconds by part"))],
        )
    ]


def _word_map(record: RunRecord, progress: Progress | None) -> tuple[Block, Sequence[str]]:
    """The map, and the hashes of the style and the script that it brings."""
    # scikit-learn takes seconds to load.
    from manyhands.report.page import hashes, page_of  # noqa: PLC0415

    drawn, text = page_of(record.folder, MAP_WORDS, progress=progress)
    said = (
        f"The {len(drawn.words):,} most frequent words. Search, zoom, or click a word to see its neighbours."
    )
    return section("Word map", [paragraph(said), frame(text, "Word map")]), hashes()


def _circumstances(record: RunRecord) -> list[Block]:
    of = record.facts
    data, machine = of["data"], of.get("machine", {})
    about: list[tuple[str, object]] = [("from", name) for name in data.get("from", [])]
    about += [(f"{name} rows", f"{rows:,}") for name, rows in data.get("splits", {}).items()]
    if "splits" not in data:
        about.append(("rows", f"{data.get('rows', 0):,}"))
    about += [("training tokens", f"{data.get('tokens', 0):,}"), ("fingerprint", data.get("fingerprint", ""))]
    if data.get("left_out"):
        about.append(("rows without a text or a label", f"{data['left_out']:,}"))
    blocks = [facts(about)]
    ledger = data.get("ledger") or of.get("stream", {}).get("ledger")
    if ledger:
        kept = " + ".join(f"{count:,} {name}" for name, count in ledger.items() if name != "read")
        blocks.append(
            paragraph(f"Ledger, where every row of the input went: {ledger['read']:,} read = {kept}.")
        )
    settings = [(name.replace("_", " "), _value(value)) for name, value in of["settings"].items()]
    shown = {"system": "system", "cores": "cores"}
    where: list[tuple[str, object]] = [(name, machine[key]) for key, name in shown.items() if key in machine]
    if "memory_bytes" in machine:
        where.append(("memory", amount(machine["memory_bytes"], "B")))
    where.append(("threads", of.get("threads", "")))
    versions = list(of.get("versions", {}).items())
    return [
        section("Data", blocks),
        section("Settings", [facts(settings)]),
        section("Machine", [facts(where)]),
        section("Versions", [facts(versions)]),
    ]


def _value(value: Any) -> str:
    """A setting as the command line has it.

    >>> [_value(value) for value in (True, None, 0.05, "1-2")]
    ['yes', 'none', '0.05', '1-2']
    """
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "none" if value is None else str(value)
