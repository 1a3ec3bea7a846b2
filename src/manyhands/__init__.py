"""manyhands: raw reviews in, trained text models out."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from manyhands.auditing.audit import audit
    from manyhands.bundle.bundle import Bundle, load_bundle
    from manyhands.data.dataset import Dataset, open_dataset
    from manyhands.data.prepare.prepare import prepare
    from manyhands.data.sample import sample
    from manyhands.estimator.classifier import TextClassifier
    from manyhands.estimator.word_vectors import WordVectors
    from manyhands.evaluation.embed import embed
    from manyhands.evaluation.evaluate import evaluate
    from manyhands.evaluation.top_features import top_features
    from manyhands.report.compare import compare
    from manyhands.run.train import train
    from manyhands.scaling.scale import scale
    from manyhands.scoring.score import score_files
    from manyhands.streaming.stream import stream

__version__ = "0.1.0"
__all__ = [
    "Bundle",
    "Dataset",
    "TextClassifier",
    "WordVectors",
    "audit",
    "compare",
    "embed",
    "evaluate",
    "load_bundle",
    "open_dataset",
    "prepare",
    "sample",
    "scale",
    "score_files",
    "stream",
    "top_features",
    "train",
]

_HOMES = {
    "Bundle": "bundle.bundle",
    "Dataset": "data.dataset",
    "TextClassifier": "estimator.classifier",
    "WordVectors": "estimator.word_vectors",
    "audit": "auditing.audit",
    "compare": "report.compare",
    "embed": "evaluation.embed",
    "evaluate": "evaluation.evaluate",
    "load_bundle": "bundle.bundle",
    "open_dataset": "data.dataset",
    "prepare": "data.prepare.prepare",
    "sample": "data.sample",
    "scale": "scaling.scale",
    "score_files": "scoring.score",
    "stream": "streaming.stream",
    "top_features": "evaluation.top_features",
    "train": "run.train",
}


def __getattr__(name: str) -> Any:
    """Import on first use: ``manyhands --help`` should not wait for numba and Arrow."""
    if name not in _HOMES:
        raise AttributeError(f"module 'manyhands' has no attribute '{name}'")
    return getattr(import_module(f"manyhands.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    """The public names, though nothing of them is imported yet."""
    return sorted([*__all__, "__version__"])
