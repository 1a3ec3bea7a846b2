"""What every engine of ``prepare`` does in the same way: judge the input, and write the manifest."""

from dataclasses import dataclass
from pathlib import Path

from manyhands.data.counting import Counts
from manyhands.data.labels import Classes
from manyhands.data.layout import Layout
from manyhands.data.manifest import VERSION, FileFacts, LabelFacts, Manifest, PartFacts, SourceFacts
from manyhands.data.reading import Given, Read
from manyhands.data.rejections import FILE as REJECTED
from manyhands.data.store import WHOLE, PartPlan, write_whole
from manyhands.errors import InputError
from manyhands.records import SPLITS, Ledger
from manyhands.settings import PrepareSettings
from manyhands.storage.files import flush, sha256
from manyhands.text.vocabulary import FILE as VOCABULARY
from manyhands.text.vocabulary import Vocabulary


@dataclass(frozen=True)
class Made:
    """All that is known of a dataset when its rows are written."""

    given: list[Given]
    settings: PrepareSettings
    read: Read
    found: Counts
    classes: Classes
    vocabulary: Vocabulary
    layout: Layout


def finish(folder: Path, made: Made, parts: list[FileFacts], rejected: FileFacts) -> None:
    """The vocabulary, the view of all parts as one file and, last, the manifest."""
    made.vocabulary.save(folder)
    write_whole(folder, made.layout.plans)
    rows, read = int(made.found.rows.sum()), made.read
    files = {name: file_facts(folder / name) for name in (WHOLE, VOCABULARY)} | {REJECTED: rejected}
    Manifest(
        version=VERSION,
        rows=rows,
        tokens=int(made.found.tokens.sum()),
        splits={split: int(made.found.rows[number].sum()) for number, split in enumerate(SPLITS)},
        labels=LabelFacts(scheme=read.scheme, names=made.classes.names, several=made.classes.several),
        vocabulary=len(made.vocabulary),
        ledger=_ledger(read, rows, made.found.duplicates),
        rejections=dict(sorted(read.rejections.by_reason.items())),
        settings=made.settings,
        sources=[_source_facts(item) for item in made.given],
        parts=[_part_facts(plan, facts) for plan, facts in zip(made.layout.plans, parts, strict=True)],
        files=files,
    ).save(folder)


def file_facts(path: Path) -> FileFacts:
    facts = FileFacts(bytes=path.stat().st_size, sha256=sha256(path))
    flush(path)
    return facts


def check(read: Read, settings: PrepareSettings) -> None:
    """Stop here if too much of the input is of no use."""
    if not read.rows:
        raise InputError("the input holds no rows at all")
    if read.wrong > settings.max_rejected * read.rows:
        reasons = ", ".join(
            f"{count:,} x {reason}" for reason, count in read.rejections.by_reason.most_common(3)
        )
        raise InputError(
            f"{read.wrong:,} of {read.rows:,} rows cannot be used, more than --max-rejected "
            f"{settings.max_rejected:.2%}; the first is {read.rejections.first()} (in all: {reasons})"
        )
    if read.rows == read.empty + len(read.rejections):
        raise InputError(f"none of the {read.rows:,} rows holds any text that can be used")


def _ledger(read: Read, kept: int, duplicates: int) -> Ledger:
    ledger = Ledger(read.rows, kept, duplicates, read.empty, len(read.rejections))
    if not ledger.adds_up:
        raise AssertionError(f"rows were lost or counted twice: {ledger}")
    return ledger


def _source_facts(item: Given) -> SourceFacts:
    split = SPLITS[item.origin] if item.origin else None
    return SourceFacts(name=item.file.name, bytes=item.file.size, split=split)


def _part_facts(plan: PartPlan, facts: FileFacts) -> PartFacts:
    rows, tokens = plan.shapes["weights"], plan.shapes["tokens"]
    return PartFacts(
        name=plan.name, split=plan.split, rows=rows, tokens=tokens, bytes=facts.bytes, sha256=facts.sha256
    )
