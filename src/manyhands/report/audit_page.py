"""The page of an audit: which rows look wrongly labelled, and why."""

from manyhands.auditing.audit import Audit
from manyhands.auditing.suspects import Suspect
from manyhands.report.document import Block, document, facts, folded, paragraph, section, table
from manyhands.report.shown import duration
from manyhands.storage.files import refuse_to_replace, writing

SHOWN_LETTERS = 600  # of a text; the rest is folded away
MOST_CONFUSIONS = 25


def write_page(found: Audit, out: str, *, overwrite: bool = False) -> None:
    """Write the page to a file or URL."""
    refuse_to_replace(out, overwrite)
    with writing(out) as file:
        file.write(page(found).encode())


def page(found: Audit) -> str:
    """The page as HTML."""
    name = found.names[0].rstrip("/").rsplit("/", 1)[-1] or found.names[0]
    more = f" and {len(found.names) - 1} more" if len(found.names) > 1 else ""
    sections = [
        section("Result", _result(found)),
        *([section("Labels", [_confusions(found)])] if len(found.suspicious) else []),
        *(_suspect(number, suspect) for number, suspect in enumerate(found.suspects, 1)),
    ]
    return document(f"{name}{more}", sections, subtitle=f"audit of the labels by {found.model}")


def _result(found: Audit) -> list[Block]:
    shown = [
        ("rows", f"{found.rows:,}"),
        ("look wrong", f"{len(found.suspicious):,}"),
        ("wrong by estimate", f"{found.estimated_wrong:,}"),
        ("listed here", f"{len(found.suspects):,}"),
        ("seconds", duration(found.seconds)),
    ]
    blocks = [facts(shown, "headline"), paragraph(found.summary() + ".")]
    for count, why in (
        (found.unjudged, "could not be judged: too few others have their labels"),
        (found.left_out, "without a usable text or label were left out"),
    ):
        if count:
            blocks.append(paragraph(f"{count:,} rows {why}.", "note"))
    return blocks


def _confusions(found: Audit) -> Block:
    pairs = found.confusions().most_common(MOST_CONFUSIONS)
    rows = [(label, suggested, f"{count:,}") for (label, suggested), count in pairs]
    return table(("label", "looks like", "rows"), rows, "Labels that look wrong, and what they look like")


def _suspect(number: int, suspect: Suspect) -> Block:
    title = f"{number}. {suspect.label}: looks like {suspect.suggested_label}"
    begin, rest = suspect.text[:SHOWN_LETTERS], suspect.text[SHOWN_LETTERS:]
    blocks = [paragraph(begin + ("…" if rest else ""))]
    if rest:
        blocks.append(folded("The whole text", [paragraph(suspect.text)]))
    chances = [
        ("row", f"{suspect.file}:{suspect.line}"),
        (f"probability of {suspect.label}", f"{suspect.probability:.4f}"),
        (f"probability of {suspect.suggested_label}", f"{suspect.suggested_probability:.4f}"),
    ]
    blocks.append(facts(chances))
    if suspect.why:
        reasons = [(part.ngram, f"{part.part:+.4f}") for part in suspect.why]
        blocks.append(
            table(("n-gram", f"speaks for {suspect.suggested_label}"), reasons, f"Why row {number}")
        )
    return section(title, blocks)
