"""The rows that a search trains on and judges by: of a dataset its splits, of raw files some held out."""

from dataclasses import dataclass

from manyhands.data.dataset import Dataset, is_dataset, open_dataset
from manyhands.data.labelled_rows import rows_of_split
from manyhands.errors import InputError
from manyhands.records import Progress
from manyhands.text.labelled_rows import LabelledRows
from manyhands.training.job import Job
from manyhands.training.objective import objective_of
from manyhands.training.splits import Splits, check_reading, open_splits

HELD_OUT = 0.1  # of raw files, drawn by the text of a row


@dataclass(frozen=True)
class TuningRows:
    """``dataset`` is None of raw files. ``valid`` is then only held out to choose by: the best settings are
    trained on all rows."""

    splits: Splits
    valid: LabelledRows
    dataset: Dataset | None

    @property
    def train(self) -> LabelledRows:
        return self.splits.train

    @property
    def fingerprint(self) -> str:
        return f"{self.train.fingerprint}{self.valid.fingerprint}"

    def test(self, labelled: bool) -> LabelledRows | None:
        """The test rows of a dataset, which nobody looks at before the search is over."""
        return None if self.dataset is None else rows_of_split(self.dataset, "test", labelled=labelled)


def open_rows(names: tuple[str, ...], job: Job, progress: Progress) -> TuningRows:
    prepared = is_dataset(list(names))
    check_reading(names, job, prepared)
    return _of_dataset(names[0], job) if prepared else _of_raw_files(names, job, progress)


def _of_dataset(name: str, job: Job) -> TuningRows:
    dataset, labelled = open_dataset(name), objective_of(job.model).labelled
    if not len(dataset["valid"]):
        raise InputError(f"{name} has no validation rows to tune by; prepare it with --valid 0.1")
    train, valid = (rows_of_split(dataset, split, labelled=labelled) for split in ("train", "valid"))
    manifest = dataset.manifest
    scheme = manifest.labels.scheme if labelled else "none"
    splits = Splits(train, valid, None, manifest.settings.text, scheme, None, (name,))
    return TuningRows(splits, valid, dataset)


def _of_raw_files(names: tuple[str, ...], job: Job, progress: Progress) -> TuningRows:
    raw = open_splits(names, job, progress)
    train, valid = raw.train.held_out(HELD_OUT)
    if not len(valid) or not len(train):
        raise InputError(f"{names[0]} has {len(raw.train):,} rows: too few to hold some out; give more")
    return TuningRows(Splits(train, valid, None, raw.text, raw.scheme, None, names), valid, None)
