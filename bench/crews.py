"""How good crews are beside one process: the same rows, settings and epochs, learnt by 2 to 16 workers.

Emulated workers are threads of one process that exchange what as many machines would: ``spread/emulated.py``.
Crews of processes are trained beside them: with ``--real`` those of one machine, which share memory, with
``--apart`` those in which each has its own, as if on a machine of its own. Scores are means over the
seeds, on test rows that no setting was chosen by; what ``merge`` does was chosen on training rows of IMDB, 20
Newsgroups and TripAdvisor that were held out. For ``skipgram``, scores are those of word sets.
"""

import argparse
import json
import statistics
import tempfile
from pathlib import Path
from typing import Any

from classification_sets import LARGE_SETS, SETS, write_sets
from embed import JOB, write_text
from manyhands.bundle.bundle import load_bundle
from manyhands.data.labelled_rows import read_rows
from manyhands.evaluation.evaluate import judge
from manyhands.evaluation.words import evaluate_words
from manyhands.records import Resources, Silent
from manyhands.run.train import train
from manyhands.settings import PrepareSettings
from manyhands.spread.emulated import emulate
from manyhands.spread.merge import ENOUGH, useful
from manyhands.spread.single import Single
from manyhands.text.labelled_rows import LabelledRows
from manyhands.training.job import job_for
from measure import RECORDS, save

MODELS = ("ngrams", "fasttext")
MEMORY = 12 << 30
MOST_LOST = 0.3  # points
REAL = (2, 4)  # workers that are no more than emulated otherwise


def read(path: Path) -> LabelledRows:
    return read_rows([str(path)], PrepareSettings(), Resources(2, MEMORY), Silent()).examples


class Contest:
    """All runs of one model on one set."""

    def __init__(self, files: dict[str, Path], model: str, seeds: list[int]) -> None:
        self._files, self._model, self._seeds = files, model, seeds
        self._train, self._test = read(files["train"]), read(files["test"])

    def _accuracy(self, model: Any) -> float:
        return 100 * judge(model, self._test.with_names(model.labels), threads=2).accuracy

    @property
    def epochs(self) -> int:
        return int(self._job(0).settings.epochs)

    def _job(self, seed: int) -> Any:
        return job_for(self._model, {"seed": seed}, Resources(1, MEMORY))

    def alone(self) -> dict[str, Any]:
        models = [Single().run(self._job(seed), self._train, None, Silent()).model for seed in self._seeds]
        return _summary([self._accuracy(model) for model in models])

    def emulated(self, workers: int) -> dict[str, Any]:
        outcomes = [emulate(self._job(seed), self._train, None, workers) for seed in self._seeds]
        scores = _summary([self._accuracy(outcome.model) for outcome in outcomes])
        learning = useful(workers, len(self._train), ENOUGH["labels"])
        return {**scores, "bytes": outcomes[0].traffic.bytes, "machines_that_learn": learning}

    def real(self, workers: int, folder: Path, *, apart: bool) -> dict[str, Any]:
        """A crew of processes, by the first seed; those that give the same every time share no memory."""
        accuracies, bytes_sent = [], 0
        for seed in self._seeds[:1]:
            out = folder / "run"
            crew = {"spread": "allreduce", "workers": workers, "threads": 1, "deterministic": apart}
            train(self._files["train"], out, model=self._model, seed=seed, overwrite=True, **crew)
            bundle = load_bundle(out)
            accuracies.append(self._accuracy(bundle.model))
            bytes_sent = _bytes(out)
        return {**_summary(accuracies), "bytes": bytes_sent}


def _bytes(out: Path) -> int:
    sent: int = json.loads((out / "record.json").read_text())["traffic"]["bytes"]
    return sent


def _summary(accuracies: list[float]) -> dict[str, Any]:
    return {
        "accuracy": round(statistics.mean(accuracies), 2),
        "of_seeds": [round(accuracy, 2) for accuracy in accuracies],
    }


def _keep(found: dict[str, Any]) -> None:
    """Beside the runs of other sets and models, which take their time."""
    path = RECORDS / "crews.json"
    before = json.loads(path.read_text())["runs"] if path.is_file() else {}
    for name, runs in found.items():
        before[name] = {**before.get(name, {}), **runs}
    save("crews", {"most_lost_points": MOST_LOST, "runs": before})


def words(data: Path, folder: Path, crews: list[int], epochs: int) -> dict[str, Any]:
    """Word vectors, by one process and by so many emulated machines."""
    write_text(data, folder / "words.txt")
    read = read_rows(
        [str(folder / "words.txt")], PrepareSettings(), Resources(2, MEMORY), Silent(), labelled=False
    )
    job = job_for("skipgram", {**JOB, "epochs": epochs, "seed": 1}, Resources(1, MEMORY))
    runs: dict[str, Any] = {"epochs": epochs}
    for workers in (1, *crews):
        alone = workers == 1
        outcome = (
            Single().run(job, read.examples, None, Silent())
            if alone
            else emulate(job, read.examples, None, workers)
        )
        found = evaluate_words(outcome.model.embedding(None), sets=data, threads=2).facts()
        scores = {name: round(found["similarity"][name]["spearman"], 3) for name in ("WS-353", "MEN")}
        scores["Google"] = round(100 * found["analogies"]["Google"]["total"]["accuracy"]["add"], 2)
        scores["bytes"] = outcome.traffic.bytes
        scores["machines_that_learn"] = useful(workers, read.examples.corpus.tokens, ENOUGH["words"])
        runs["1" if alone else f"{workers} emulated"] = scores
        print(f"skipgram, {workers}: {scores}", flush=True)
    return {f"12.6 M words, skipgram, {epochs} epochs": runs}


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--data", type=Path, required=True)
    arguments.add_argument("--sets", nargs="+", default=list(LARGE_SETS), choices=list(SETS))
    arguments.add_argument("--models", nargs="+", default=MODELS)
    arguments.add_argument("--workers", nargs="+", type=int, default=[2, 4])
    arguments.add_argument("--seeds", nargs="+", type=int, default=[1, 2, 3])
    arguments.add_argument("--real", action="store_true", help="crews of processes that share memory as well")
    arguments.add_argument("--apart", action="store_true", help="and of processes that do not")
    arguments.add_argument(
        "--words", type=int, metavar="EPOCHS", help="of skipgram; no classifier is trained"
    )
    given = arguments.parse_args()
    if given.words:
        with tempfile.TemporaryDirectory() as name:
            _keep(words(given.data, Path(name), given.workers, given.words))
        return
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for label, files in write_sets(given.data, folder, given.sets).items():
            for model in given.models:
                contest = Contest(files, model, given.seeds)
                runs: dict[str, Any] = {"1": contest.alone(), "epochs": contest.epochs}
                print(f"{label}, {model}, one process: {runs['1']}", flush=True)
                for workers in given.workers:
                    ways = {f"{workers} emulated": contest.emulated(workers)}
                    if given.real and workers in REAL:
                        ways[f"{workers} real, shared memory"] = contest.real(workers, folder, apart=False)
                    if given.apart and workers in REAL:
                        ways[f"{workers} real, apart"] = contest.real(workers, folder, apart=True)
                    for way, run in ways.items():
                        same = runs["1"]["of_seeds"][: len(run["of_seeds"])]
                        run["points"] = round(statistics.mean(run["of_seeds"]) - statistics.mean(same), 2)
                        verdict = "" if run["points"] >= -MOST_LOST else "  MISSED"
                        print(f"{label}, {model}, {way}: {run}{verdict}", flush=True)
                    runs |= ways
                    _keep({f"{label}, {model}": runs})


if __name__ == "__main__":
    main()
