"""Every part that goes by a name: the one line a newcomer adds."""

from difflib import get_close_matches
from importlib import import_module
from typing import Any

from manyhands.errors import UsageError

# In the order in which they are asked whether they know a file.
SOURCES = {
    "parquet": "manyhands.data.sources.columns:Parquet",
    "arrow": "manyhands.data.sources.columns:ArrowFile",
    "jsonl": "manyhands.data.sources.jsonl:JsonLines",
    "labelled": "manyhands.data.sources.labelled:Labelled",
    "yelp": "manyhands.data.sources.delimited:Yelp",
    "csv": "manyhands.data.sources.delimited:Delimited",
    "text": "manyhands.data.sources.text:PlainText",
}

MODELS = {
    "ngrams": "manyhands.models.ngrams:Ngrams",
    "fasttext": "manyhands.models.fasttext:FastText",
    "lstm": "manyhands.models.lstm:Lstm",
    "skipgram": "manyhands.models.skipgram:Skipgram",
    "charlstm": "manyhands.models.charlstm:CharLstm",
}


SPREADS = {
    "single": "manyhands.spread.single:run",
    "allreduce": "manyhands.spread.allreduce:run",
    "average": "manyhands.spread.average:run",
}


def load(catalog: dict[str, str], kind: str, name: str) -> Any:
    """The object that ``name`` stands for; a wrong name lists the right ones.

    >>> load(SOURCES, "format", "jsonn")
    Traceback (most recent call last):
    manyhands.errors.UsageError: there is no format 'jsonn'; did you mean jsonl? There are: \
parquet, arrow, jsonl, labelled, yelp, csv, text
    """
    if name not in catalog:
        close = get_close_matches(name, catalog, n=1)
        guess = f"did you mean {close[0]}? There" if close else "there"
        raise UsageError(f"there is no {kind} '{name}'; {guess} are: {', '.join(catalog)}")
    module, _, attribute = catalog[name].partition(":")
    return getattr(import_module(module), attribute)
