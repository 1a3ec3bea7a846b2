"""What a run leaves behind beside the weights: the bundle's configuration, and the record of how it went."""

from typing import Any

from manyhands.bundle.bundle import VERSION, BundleConfig
from manyhands.machine import examine
from manyhands.training.job import Job, Outcome
from manyhands.training.objective import objective_of
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
    tested = splits.test and objective.test_scores(outcome.model, splits.test, job.resources.threads)
    if tested:
        scores["test"] = tested
    price = outcome.account.record()
    return {
        "model": job.model,
        **outcome.facts,
        "settings": job.chosen(),
        "data": {
            "fingerprint": splits.train.fingerprint,
            "from": list(splits.names),
            "reading": job.reading.model_dump(mode="json", exclude_unset=True),
            "rows": len(splits.train),
            "tokens": corpus.tokens,
            "left_out": splits.train.left_out,
        },
        "seconds": round(seconds, 3),
        "learning_seconds": round(state.seconds, 3),
        "threads": job.resources.threads,
        **({"price": price} if price else {}),
        "rows_per_second": round(epochs * len(corpus) / learning, 1),
        "tokens_per_second": round(epochs * corpus.tokens / learning, 1),
        "scores": scores,
        "laps": state.laps,
        "machine": {name: machine[name] for name in ("system", "cores", "memory_bytes")},
        "versions": {"manyhands": machine["manyhands"], "python": machine["python"]}
        | {
            part["name"]: part["version"]
            for part in machine["parts"]
            if part["version"] and not part["extra"]
        },
    }
