"""manyhands: raw reviews in, trained text models out."""

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from manyhands.data.dataset import Dataset, open_dataset
    from manyhands.data.prepare import prepare
    from manyhands.data.sample import sample
    from manyhands.estimator import TextClassifier
    from manyhands.evaluate.judging import evaluate
    from manyhands.models.saving import load_bundle
    from manyhands.spread.training import train
    from manyhands.wordvectors import WordVectors

__version__ = "0.1.0"
__all__ = [
    "Dataset",
    "TextClassifier",
    "WordVectors",
    "evaluate",
    "load_bundle",
    "open_dataset",
    "prepare",
    "sample",
    "train",
]

_HOMES = {
    "Dataset": "data.dataset",
    "TextClassifier": "estimator",
    "WordVectors": "wordvectors",
    "evaluate": "evaluate.judging",
    "load_bundle": "models.saving",
    "open_dataset": "data.dataset",
    "prepare": "data.prepare",
    "sample": "data.sample",
    "train": "spread.training",
}


def __getattr__(name: str) -> Any:
    """Import on first use: ``manyhands --help`` should not wait for numba and Arrow."""
    if name not in _HOMES:
        raise AttributeError(f"module 'manyhands' has no attribute '{name}'")
    return getattr(import_module(f"manyhands.{_HOMES[name]}"), name)


class _Package(ModuleType):
    """The rooms ``train`` and ``evaluate`` must not hide the functions of these names."""

    def __setattr__(self, name: str, value: Any) -> None:
        if not (name in _HOMES and isinstance(value, ModuleType)):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
