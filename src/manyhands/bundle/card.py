"""The model card: what a reader of a bundle's folder should know, with the scores that were measured."""

from typing import TYPE_CHECKING, Any

from manyhands.settings import TextSettings

if TYPE_CHECKING:
    from manyhands.bundle.bundle import BundleConfig

SHOWN_LABELS = 20
PUNCTUATION = {"token": "kept as separate tokens", "drop": "removed", "keep": "left unchanged"}


def model_card(config: "BundleConfig", record: dict[str, Any]) -> str:
    """A README for the bundle."""
    if not config.labels:
        return _card_of_words(config, record)
    labels = ", ".join(f"`{label}`" for label in config.labels[:SHOWN_LABELS])
    if len(config.labels) > SHOWN_LABELS:
        labels += f" and {len(config.labels) - SHOWN_LABELS:,} more"
    head = [f"# Text classifier: {config.model}", "", f"Labels: {labels}.", ""]
    use = ["echo 'some text' | manyhands predict THIS_FOLDER"]
    return _card([*head, *_reading(config.text), *_scores(record)], use, record)


def _card_of_words(config: "BundleConfig", record: dict[str, Any]) -> str:
    head = [f"# Word vectors: {config.model}", ""]
    found = record.get("scores", {})
    losses = [f"{split} {-likelihood:.4f}" for split, likelihood in _likelihoods(found)]
    measured = [f"Loss per pair of a word and a context word: {', '.join(losses)}.", ""] if losses else []
    use = ["manyhands nearest THIS_FOLDER king", "manyhands evaluate THIS_FOLDER"]
    return _card([*head, *_reading(config.text), *measured], use, record)


def _likelihoods(scores: dict[str, Any]) -> list[tuple[str, float]]:
    out = []
    if scores.get("valid"):
        out.append(("valid", scores["valid"][scores["best_epoch"] - 1]["log_likelihood"]))
    if scores.get("test"):
        out.append(("test", scores["test"]["log_likelihood"]))
    return out


def _reading(text: TextSettings) -> list[str]:
    return [
        f"Texts are {'lower-cased' if text.lower else 'not lower-cased'}; punctuation is "
        f"{PUNCTUATION[text.punctuation]}.",
        "",
    ]


def _card(head: list[str], use: list[str], record: dict[str, Any]) -> str:
    files = "No file in this folder contains code. Verify them with `sha256sum --check SHA256SUMS`."
    return "\n".join([*head, "## Use", "", "```", *use, "```", "", files, "", *_origin(record)])


def _scores(record: dict[str, Any]) -> list[str]:
    rows = []
    for split in ("valid", "test"):
        scores = record.get("scores", {}).get(split)
        best = scores
        if isinstance(scores, list):
            best = scores[record["scores"].get("best_epoch", len(scores)) - 1]
        if best:
            rows.append(
                f"| {split} | {best['accuracy']:.4f} | {best['macro_f1']:.4f} | {best['micro_f1']:.4f} |"
            )
    if not rows:
        return ["No scores were measured, because the data had no validation or test rows.", ""]
    head = ["| split | accuracy | macro F1 | micro F1 |", "|---|---|---|---|"]
    note = "Test rows were read once, after training."
    if record["scores"].get("valid"):
        note = "The epoch was chosen on the validation rows. " + note
    return ["## Measured", "", *head, *rows, "", note, ""]


def _origin(record: dict[str, Any]) -> list[str]:
    if "seconds" not in record:
        return []
    settings = ", ".join(f"{name} {value}" for name, value in record["settings"].items())
    return [
        "## Origin",
        "",
        f"Trained on {record['data']['rows']:,} rows in {record['seconds']:.1f} s "
        f"(data {record['data']['fingerprint']}); {settings}.",
        "",
    ]
