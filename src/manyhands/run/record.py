"""What a run leaves behind beside the weights: the bundle's configuration, and the record of how it went."""

from dataclasses import asdict
from typing import Any

from manyhands.bundle.bundle import VERSION, Bundle, BundleConfig
from manyhands.catalog import SPREADS, load
from manyhands.machine import examine
from manyhands.records import SPLITS
from manyhands.training.job import Job, Outcome
from manyhands.training.objective import Tested, objective_of
from manyhands.training.splits import Splits


def config_of(job: Job, splits: Splits, outcome: Outcome) -> BundleConfig:
    """What a bundle of this run says of itself."""
    facts = outcome.model.facts()
    return BundleConfig(
        version=VERSION,
        model=job.model,
        labels=facts.pop("labels", []),
        label_scheme=splits.scheme,
        text=splits.text,
        facts=facts,
        settings=job.settings.model_dump(),
        calibration=outcome.calibrated.calibration if outcome.calibrated else None,
    )


def record_of(job: Job, splits: Splits, outcome: Outcome, seconds: float) -> dict[str, Any]:
    """The facts of a run, as other tools read them."""
    state, corpus = outcome.state, splits.train.corpus
    machine = examine()
    learning = max(state.seconds, 1e-9)
    objective = objective_of(job.model)
    # Of running text, words are counted as they are seen; otherwise rows are.
    epochs = state.seen / (len(corpus) if objective.labelled else corpus.tokens)
    shown = ("epoch", "loss", "examples")
    scores: dict[str, Any] = {"train": [{name: e[name] for name in shown} for e in state.history]}
    if state.best_epoch:
        scores["valid"] = [
            {k: v for k, v in epoch.items() if k not in ("loss", "examples")} for epoch in state.history
        ]
        scores["best_epoch"] = state.best_epoch
    tested = Tested({}, {})
    if splits.test:
        model: Any = outcome.model
        if objective.labelled:  # as whoever opens the bundle will have it
            model = Bundle(config_of(job, splits, outcome), outcome.model).classifier
        tested = objective.test(model, splits.test, job.resources.threads)
    if tested.scores:
        scores["test"] = tested.scores
    price = outcome.account.record()
    return {
        "model": job.model,
        "learns": "labels" if objective.labelled else "words",
        **outcome.facts,
        "traffic": _traffic(outcome),
        "settings": job.chosen(),
        **({"chosen": job.call.chosen} if job.call and job.call.chosen else {}),
        "data": {
            "fingerprint": splits.train.fingerprint,
            "from": list(splits.names),
            "reading": job.reading.model_dump(mode="json", exclude_unset=True),
            "rows": len(splits.train),
            "tokens": corpus.tokens,
            "left_out": splits.train.left_out,
            "splits": {name: len(rows) for name in SPLITS if (rows := getattr(splits, name))},
            **({"ledger": asdict(splits.ledger)} if splits.ledger else {}),
        },
        "seconds": round(seconds, 3),
        "learning_seconds": round(state.seconds, 3),
        "threads": job.resources.threads,
        **({"price": price} if price else {}),
        "rows_per_second": round(epochs * len(corpus) / learning, 1),
        "tokens_per_second": round(epochs * corpus.tokens / learning, 1),
        "scores": scores,
        **({"calibration": outcome.calibrated.facts} if outcome.calibrated else {}),
        **({"evaluation": tested.details} if tested.details else {}),
        "laps": state.laps,
        "machine": {name: machine[name] for name in ("system", "cores", "memory_bytes")},
        "versions": {"manyhands": machine["manyhands"], "python": machine["python"]}
        | {
            part["name"]: part["version"]
            for part in machine["parts"]
            if part["version"] and not part["extra"]
        },
    }


def _traffic(outcome: Outcome) -> dict[str, Any]:
    """What was sent; ``bytes`` are those of one worker or of all, as the spread counts them."""
    sums = load(SPREADS, "spread", outcome.spread).adds_up_bytes
    bytes_per_worker = outcome.traffic.bytes / (outcome.workers if sums else 1)
    return {**asdict(outcome.traffic), "bytes_per_worker": round(bytes_per_worker)}
