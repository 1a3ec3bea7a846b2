"""What commands show on the screen: a dataset, the scores of a classifier, and those of word vectors."""

import json
from typing import TYPE_CHECKING, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from manyhands.report.shown import amount

if TYPE_CHECKING:
    from manyhands.data.describe import Description

BAR_WIDTH = 30
MOST_POINTS = 20  # of a curve
MOST_LABELS = 25
LARGEST_CONFUSION = 10  # labels that fit side by side
WIDEST_NAME = 12  # above a column; the names down the side stand in the same order


def _numbers(*heads: str) -> Table:
    """A table of numbers: all columns but the first are flush right."""
    table = Table(*heads, box=None, pad_edge=False)
    for column in table.columns[1:]:
        column.justify = "right"
    return table


def show_dataset(facts: "Description") -> None:
    """Print what ``manyhands inspect`` shows."""
    typer.echo(f"{facts.folder}: {facts.rows:,} rows, {facts.tokens:,} tokens, {amount(facts.bytes, 'B')}")
    ledger = facts.ledger
    typer.echo(
        f"where the input went: {ledger.read:,} read = {ledger.kept:,} kept "
        f"+ {ledger.duplicates:,} duplicates + {ledger.empty:,} empty + {ledger.rejected:,} rejected"
    )
    for reason, count in sorted(facts.rejections.items(), key=lambda item: -item[1])[:5]:
        typer.echo(f"  rejected {count:,}: {reason}")
    console = Console(highlight=False, markup=False)
    console.print(_label_counts(facts))
    console.print(_lengths(facts))
    typer.echo(
        f"length: mean {facts.mean_length:.1f}, longest {facts.longest:,}; "
        f"{facts.length} tokens cover {facts.coverage:.1%} of the rows"
    )
    words = " ".join(word for word, _ in facts.most_frequent)
    typer.echo(
        f"vocabulary: {facts.vocabulary:,} words, {facts.known_tokens:.1%} of the training tokens; "
        f"most frequent: {words}"
    )


def _label_counts(facts: "Description") -> Table:
    table = _numbers("label", *facts.splits, "share")
    total = sum(sum(counts.values()) for counts in facts.labels.values()) or 1
    for name, counts in list(facts.labels.items())[:MOST_LABELS]:
        share = f"{sum(counts.values()) / total:.1%}"
        table.add_row(Text(name), *(f"{count:,}" for count in counts.values()), share)
    if len(facts.labels) > MOST_LABELS:
        table.add_row(f"… {len(facts.labels) - MOST_LABELS:,} more")
    table.add_row("rows", *(f"{count:,}" for count in facts.splits.values()), "")
    return table


def _lengths(facts: "Description") -> Table:
    table = Table("tokens", "rows", "", box=None, pad_edge=False)
    table.columns[1].justify = "right"
    most = max((rows for _, _, rows in facts.lengths), default=1)
    for low, high, rows in facts.lengths:
        table.add_row(f"{low:,}-{high:,}", f"{rows:,}", "#" * round(BAR_WIDTH * rows / most))
    return table


def show_stream(out: str, record: dict[str, Any]) -> None:
    """Print how a model comes along that learns from a stream."""
    found = record["stream"]
    ledger, seconds = found["ledger"], record["seconds"]
    workers = f" by {record['workers']} workers" if record["workers"] > 1 else ""
    typer.echo(
        f"{out}: {record['model']} from {found['url']}{workers}, "
        f"{record['rows_per_second']:,.0f} messages/s, {record['tokens_per_second']:,.0f} words/s, "
        f"{seconds:,.1f} s"
    )
    typer.echo(
        f"where the messages went: {ledger['read']:,} read = {ledger['learnt']:,} learnt "
        f"+ {ledger['empty']:,} empty + {ledger['rejected']:,} rejected"
    )
    typer.echo(f"position: {json.dumps(found['position'])}")
    for messages in found["drifts"]:
        typer.echo(f"drift: the loss rose after {messages:,} messages")
    console, points = Console(highlight=False, markup=False), found["history"]
    if points:
        console.print(_curve(_some(points)))
    for score in _some(record["scores"]["stream"]):
        shown = ", ".join(f"{name} {value:.4f}" for name, value in score.items() if name != "messages")
        typer.echo(f"after {score['messages']:,} messages: {shown}")


def _some(points: list[Any]) -> list[Any]:
    """As many points as fit on a screen, the last among them."""
    step = -(-len(points) // MOST_POINTS)
    return points[::-1][::step][::-1] if points else []


def _curve(points: list[dict[str, float]]) -> Table:
    table = _numbers("messages", "loss", "messages/s", "words/s", "")
    table.columns[0].justify, table.columns[-1].justify = "right", "left"
    most = max(point["loss"] for point in points) or 1.0
    for point in points:
        bar = "#" * round(BAR_WIDTH * point["loss"] / most)
        speeds = f"{point['messages_per_second']:,.0f}", f"{point['words_per_second']:,.0f}"
        table.add_row(f"{point['messages']:,}", f"{point['loss']:.4f}", *speeds, bar)
    return table


def show_scores(facts: dict[str, Any]) -> None:
    """Print the facts of a classifier's report, fresh or as they were read from JSON."""
    typer.echo(_summary(facts))
    if facts["unknown_labels"]:
        rows = facts["unknown_labels"]
        typer.echo(f"labels that the model does not know: in {rows:,} rows; they count as wrong")
    if facts.get("left_out"):
        typer.echo(f"{facts['left_out']:,} rows without a text or a label were skipped")
    for k, found in facts["at"].items():
        typer.echo(f"P@{k} {found['precision']:.4f}, R@{k} {found['recall']:.4f}")
    console, labels = Console(highlight=False, markup=False), facts["labels"]
    console.print(_rates(labels, facts["intervals"]["labels"]))
    if facts["confusion"] is not None and len(labels) <= LARGEST_CONFUSION:
        console.print(_confusion(list(labels), facts["confusion"]), soft_wrap=True)
    if facts["reliability"]:
        console.print(_reliability(facts["reliability"]))
    if facts["answered"]:
        _show_answered(console, facts["answered"])
    if facts["against"]:
        _show_against(facts["against"])


def _summary(facts: dict[str, Any]) -> str:
    bounds = facts["intervals"]
    figures = [
        f"{shown} {facts[name]:.4f} ({bounds[name][0]:.4f} to {bounds[name][1]:.4f})"
        for name, shown in (("accuracy", "accuracy"), ("macro_f1", "macro F1"), ("micro_f1", "micro F1"))
    ]
    if facts["log_loss"] is not None:
        figures.append(f"log loss {facts['log_loss']:.4f}")
    if facts["ece"] is not None:
        figures.append(f"calibration error {facts['ece']:.4f}")
    if facts["threshold"] is not None:
        figures.append(f"threshold {facts['threshold']:g}")
    return f"{facts['rows']:,} rows: {', '.join(figures)}"


def _reliability(bins: list[dict[str, Any]]) -> Table:
    """A bar as long as the rows are right, with a mark where the model said that it would be."""
    table = Table("probability", "rows", "said", "right", "", box=None, pad_edge=False)
    for column in table.columns[1:4]:
        column.justify = "right"
    for found in bins:
        said, right = (round(BAR_WIDTH * found[name]) for name in ("confidence", "right"))
        bar = list("#" * right + " " * (BAR_WIDTH + 1 - right))
        bar[said] = "|"
        span = f"{found['low']:.2f}-{found['high']:.2f}"
        rates = f"{found['confidence']:.1%}", f"{found['right']:.1%}"
        table.add_row(span, f"{found['rows']:,}", *rates, "".join(bar))
    return table


def _show_answered(console: Console, found: dict[str, Any]) -> None:
    typer.echo(f"to be right in {found['precision']:.1%} of the answers, by these very rows:")
    table = _numbers("label", "threshold", "precision", "95 % interval", "coverage", "rows")
    chosen = {"all": found["overall"], **dict(list(found["labels"].items())[:MOST_LABELS])}
    for name, at in chosen.items():
        if at is None:
            table.add_row(Text(name), "none", "", "", "", "")
            continue
        low, high = at["interval"]
        bounds = f"{low:.4f}-{high:.4f}"
        figures = f"{at['precision']:.4f}", bounds, f"{at['coverage']:.1%}", f"{at['rows']:,}"
        table.add_row(Text(name), f"{at['threshold']:.4f}", *figures)
    console.print(table)


def _show_against(found: dict[str, Any]) -> None:
    for name, shown in (("accuracy", "accuracy"), ("macro_f1", "macro F1")):
        of = found[name]
        low, high = of["interval"]
        typer.echo(
            f"{shown} beside {found['bundle']}, {of['of_other']:.4f}: {of['difference']:+.4f} "
            f"({low:+.4f} to {high:+.4f}), p = {of['p']:.3g}"
        )
    rows = found["accuracy"]
    typer.echo(
        f"rows that only one has right: {rows['only_first_right']:,} this one, "
        f"{rows['only_second_right']:,} the other"
    )


def _rates(labels: dict[str, dict[str, float]], intervals: dict[str, Any]) -> Table:
    table = _numbers("label", "precision", "recall", "F1", "95 % of F1", "rows")
    table.columns[0].no_wrap = True
    shown = list(labels.items())
    if len(shown) > MOST_LABELS:
        shown = sorted(shown, key=lambda item: -item[1]["rows"])[:MOST_LABELS]
    for name, found in shown:
        rates = (f"{found[key]:.4f}" for key in ("precision", "recall", "f1"))
        bounds = "{:.4f}-{:.4f}".format(*intervals[name]) if name in intervals else ""
        table.add_row(Text(name), *rates, bounds, f"{found['rows']:,}")
    if len(labels) > MOST_LABELS:
        table.add_row(f"… {len(labels) - MOST_LABELS:,} more")
    return table


def _confusion(names: list[str], counts: list[list[int]]) -> Table:
    table = Table(box=None, pad_edge=False)
    table.add_column("true \\ predicted", no_wrap=True, min_width=len("true \\ predicted"))
    # A name may be cut short, a number never.
    widest = max(len(f"{count:,}") for row in counts for count in row)
    for name in names:
        table.add_column(
            Text(name), justify="right", no_wrap=True, min_width=widest, max_width=max(widest, WIDEST_NAME)
        )
    for name, row in zip(names, counts, strict=True):
        table.add_row(Text(name), *(f"{count:,}" for count in row))
    return table


def show_words(facts: dict[str, Any], folder: str, why: str) -> None:
    """Print the facts of a report on word vectors; ``why`` says why there is no PIP loss."""
    console = Console(highlight=False, markup=False)
    typer.echo(f"{facts['words']:,} words, vectors of size {facts['dim']}")
    if facts["similarity"]:
        console.print(_similarity(facts["similarity"]))
        typer.echo("all: pairs with an unknown word count as cosine 0")
    for name, found in facts["analogies"].items():
        console.print(_analogies(name, found))
    if facts["missing"]:
        typer.echo(f"not found in {folder}: {', '.join(facts['missing'])}")
    pip = facts["pip"]
    if pip is None:
        typer.echo(f"no PIP loss: {why}")
        return
    typer.echo(
        f"PIP loss {pip['loss']:,.1f} over {pip['words']:,} words; {pip['relative']:.4f} of the reference's "
        f"norm at equal norms; random vectors reach {pip['random']:.4f} and zeros {pip['zero']:.4f}"
    )


def _rate(value: float | None, form: str = ".3f") -> str:
    return "-" if value is None else format(value, form)


def _similarity(sets: dict[str, Any]) -> Table:
    table = _numbers("similarity", "Spearman", "coverage", "pairs", "all", "unseen words")
    for name, found in sets.items():
        unseen = found["unseen"]
        spelled = "-" if not unseen else f"{_rate(unseen['spearman'])} of {unseen['pairs']:,}"
        figures = _rate(found["spearman"]), f"{found['coverage']:.1%}", f"{found['pairs']:,}"
        table.add_row(Text(name), *figures, _rate(found["spearman_all"]), spelled)
    return table


def _analogies(name: str, found: dict[str, Any]) -> Table:
    table = _numbers(f"analogies {name}", "3CosAdd", "3CosMul", "covered", "questions")
    rows = {**found["sections"], **{k: found[k] for k in ("semantic", "syntactic") if found[k]}}
    for section, score in {**rows, "total": found["total"]}.items():
        shares = (_rate(score["accuracy"][k], ".1%") for k in ("add", "mul"))
        table.add_row(Text(section), *shares, f"{score['covered']:,}", f"{score['questions']:,}")
    return table
