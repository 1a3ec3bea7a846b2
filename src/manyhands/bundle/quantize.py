"""``quantize``: a bundle of no more than so many bytes."""

from dataclasses import replace
from typing import Any

from manyhands.bundle.bundle import Bundle, load_classifier, record_of, write_bundle
from manyhands.models.model import QUANTIZE
from manyhands.storage.files import StrPath

OVERHEAD_BYTES = 16 << 10  # card, record, checksums and the head of the file


def quantize_bundle(path: StrPath, out: StrPath, size_bytes: int, *, overwrite: bool = False) -> Bundle:
    """Write a small copy of a bundle. The scores in its record are those of the model it was made from."""
    full = load_classifier(path)
    old = record_of(full)
    record: dict[str, Any] = {name: old[name] for name in ("model", "data") if name in old}
    record |= {"quantized": {"bytes": size_bytes, "scores_of_full_model": _last_scores(old)}}
    small = quantize(full, size_bytes)
    write_bundle(small, out, record, overwrite=overwrite)
    return small


def _last_scores(record: dict[str, Any]) -> dict[str, Any] | None:
    scores = record.get("scores")
    found = scores.get("test") if isinstance(scores, dict) else None
    return found if isinstance(found, dict) else None


def quantize(bundle: Bundle, size_bytes: int) -> Bundle:
    """The same model in no more than ``size_bytes`` on disk."""
    model = bundle.need(QUANTIZE, "cannot be quantised")
    config_bytes = len(bundle.config.model_dump_json(indent=1).encode())
    small = model.quantize(size_bytes, OVERHEAD_BYTES + config_bytes)
    facts = small.facts()
    config = bundle.config.model_copy(update={"labels": facts.pop("labels"), "facts": facts})
    return replace(bundle, config=config, model=small, folder=None)
