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

# Messages without end, by the scheme of their URL; paths are files or folders, and - is stdin.
STREAMS = {
    "kafka": "manyhands.data.streams.kafka:KafkaStream",
    "redis": "manyhands.data.streams.redis:RedisStream",
    "nats": "manyhands.data.streams.nats:NatsStream",
    "file": "manyhands.data.streams.file:FollowedFile",
    "folder": "manyhands.data.streams.folder:FillingFolder",
    "stdin": "manyhands.data.streams.stdin:StandardInput",
}

# What trains, and the model that it makes.
LEARNERS = {
    "ngrams": "manyhands.models.ngram.ngrams:Ngrams",
    "fasttext": "manyhands.models.ngram.fasttext:FastText",
    "lstm": "manyhands.models.recurrent.lstm:Lstm",
    "skipgram": "manyhands.models.words.skipgram:Skipgram",
    "charlstm": "manyhands.models.words.charlstm:CharLstm",
}

# What learns from a stream, by the model that it makes.
STREAM_LEARNERS = {
    "ngrams": "manyhands.models.ngram.stream:StreamNgrams",
    "fasttext": "manyhands.models.ngram.stream:StreamFastText",
    "skipgram": "manyhands.models.words.stream:StreamSkipgram",
    "charlstm": "manyhands.models.words.stream:StreamCharLstm",
}

# Models that others trained: they predict here, and no learner makes them.
IMPORTED_MODELS = {
    "imported": "manyhands.formats.fasttext_model:ImportedFastText",
    "imported-vectors": "manyhands.formats.fasttext_vectors:ImportedWordVectors",
}

# How the work of a run is shared.
SPREADS = {
    "single": "manyhands.spread.single:Single",
    "allreduce": "manyhands.spread.allreduce:AllReduce",
    "average": "manyhands.spread.average:Average",
    "server": "manyhands.spread.server.server:Server",
}


OPTIMIZERS = {
    "adam": "manyhands.models.recurrent.optimizers:Adam",
    "adamw": "manyhands.models.recurrent.optimizers:Adam",
    "sgd": "manyhands.models.recurrent.optimizers:Sgd",
}

# Who is told how a training goes.
TRACKERS = {"tensorboard": "manyhands.training.trackers:TensorBoard"}


def load_model(name: str) -> Any:
    """The class of a model, be it trained here or by others."""
    return (
        load(IMPORTED_MODELS, "model", name)
        if name in IMPORTED_MODELS
        else load(LEARNERS, "model", name).Model
    )


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
