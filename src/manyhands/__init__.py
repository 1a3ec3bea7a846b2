"""manyhands: raw reviews in, trained text models out."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from manyhands.data.dataset import Dataset, open_dataset
    from manyhands.data.prepare import prepare
    from manyhands.data.sample import sample
    from manyhands.estimator import TextClassifier

__version__ = "0.1.0"
__all__ = ["Dataset", "TextClassifier", "open_dataset", "prepare", "sample"]

_HOMES = {
    "Dataset": "data.dataset",
    "TextClassifier": "estimator",
    "open_dataset": "data.dataset",
    "prepare": "data.prepare",
    "sample": "data.sample",
}


def __getattr__(name: str) -> Any:
    """Import on first use: ``manyhands --help`` should not wait for numba and Arrow."""
    if name not in _HOMES:
        raise AttributeError(f"module 'manyhands' has no attribute '{name}'")
    return getattr(import_module(f"manyhands.{_HOMES[name]}"), name)
