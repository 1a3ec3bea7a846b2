"""``convert``: a bundle in the file formats of other tools.

``safetensors`` is the whole model in one file, ``vec`` the word vectors as text in the layout of
word2vec, ``onnx`` the way from feature numbers to probabilities. How a text becomes feature
numbers stays in manyhands: ``manyhands.models.space.Featuriser``.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from fsspec.core import url_to_fs

from manyhands.errors import UsageError
from manyhands.kernel import Flags
from manyhands.models.bundle import IMPORTED, Bundle
from manyhands.models.fasttext import FastTextModel
from manyhands.models.ngrams import NgramsModel
from manyhands.models.onnx_graphs import fasttext_graph, ngrams_graph, onnx_model
from manyhands.models.space import ROWS_AT_ONCE, FeatureSpace, Featuriser
from manyhands.storage.files import STDIN, reading, writing
from manyhands.storage.tensors import send_tensors
from manyhands.text.corpus import Corpus
from manyhands.text.ragged import Ragged, from_arrow

NUMBERS_AT_ONCE = 1 << 20  # of a vec file; as text they take about twelve bytes each
BLANK = " "


def convert(bundle: Bundle, to: str, out: str, *, overwrite: bool = False) -> list[str]:
    """Write ``bundle`` to the file ``out``, in the format ``to``; returns the files written."""
    if to not in FORMATS:
        raise UsageError(f"there is no format '{to}' to convert to; there are: {', '.join(FORMATS)}")
    if out != STDIN and not overwrite:
        with reading(out):
            filesystem, path = url_to_fs(out)
            if filesystem.exists(path):
                raise UsageError(f"{out} exists already; choose another --out, or pass --overwrite")
    FORMATS[to](bundle, out)
    return [out]


def _to_safetensors(bundle: Bundle, out: str) -> None:
    arrays = bundle.stored or bundle.model.arrays()
    facts = {"format": "manyhands", "config": bundle.config.model_dump_json()}
    with writing(out) as file:
        send_tensors(file, arrays, facts)


def _to_onnx(bundle: Bundle, out: str) -> None:
    model = bundle.model
    if isinstance(model, NgramsModel):
        graph = ngrams_graph(model)
    elif isinstance(model, FastTextModel):
        graph = fasttext_graph(model)
    else:
        raise _wrong_model(bundle, "onnx", "an ngrams or fasttext model")
    data = onnx_model(graph, bundle.config)
    with writing(out) as file:
        file.write(data)


def _to_vec(bundle: Bundle, out: str) -> None:
    model = bundle.model
    if isinstance(model, NgramsModel):
        raise UsageError("an ngrams model has no word vectors; train one with --model fasttext")
    if not isinstance(model, FastTextModel):
        raise _wrong_model(bundle, "vec", "a fasttext model")
    words = from_arrow(_writable(bundle.vocabulary.words))
    words = words.take(np.flatnonzero(_known(model.space, words)))
    with writing(out) as file:
        file.write(f"{len(words)} {model.dim}\n".encode())
        for lines in _lines(model, words):
            file.write(lines)


def _wrong_model(bundle: Bundle, to: str, right: str) -> UsageError:
    kind = (
        "imported from fastText" if bundle.config.model == IMPORTED else f"of a {bundle.config.model} model"
    )
    return UsageError(f"{to} needs a bundle of {right} that was trained here, and this one is {kind}")


FORMATS = {"onnx": _to_onnx, "vec": _to_vec, "safetensors": _to_safetensors}


def _writable(words: pa.Array) -> pa.Array:
    """The words that such a file can hold: a blank ends a word there."""
    return words.filter(pc.invert(pc.or_(pc.equal(words, ""), pc.match_substring(words, BLANK))))


def _one_a_row(words: Ragged) -> Corpus:
    rows = len(words)
    return Corpus(lambda some: (some.astype(np.uint32), np.arange(len(some) + 1)), rows, rows, words)


def _known(space: FeatureSpace, words: Ragged) -> Flags:
    """Which words have a vector: their own feature is known, or runs of their letters are."""
    featuriser = Featuriser(space, _one_a_row(words), distinct=True)
    known = np.zeros(len(words), np.bool_)
    for start in range(0, len(words), ROWS_AT_ONCE):
        rows = np.arange(start, min(start + ROWS_AT_ONCE, len(words)))
        known[rows] = np.diff(featuriser.of(rows).offsets) > 0
    return known


def _lines(model: FastTextModel, words: Ragged) -> Iterator[Any]:
    step = max(NUMBERS_AT_ONCE // model.dim, 1)
    for start in range(0, len(words), step):
        some = words.take(np.arange(start, min(start + step, len(words))))
        yield _as_text(some, model.sentence_vectors(_one_a_row(some)))


def _as_text(words: Ragged, vectors: npt.NDArray[np.float32]) -> Any:
    """``word v1 v2 …`` a line, every number with as many digits as tell it from all others."""
    blank, end, nothing = (pa.scalar(text, pa.large_string()) for text in (BLANK, "\n", ""))
    numbers = pa.array(vectors.ravel()).cast(pa.large_string())
    starts = pa.array(np.arange(len(vectors) + 1, dtype=np.int32) * vectors.shape[1], pa.int32())
    joined = pc.binary_join(pa.ListArray.from_arrays(starts, numbers), blank)
    lines = pc.binary_join_element_wise(words.arrow().cast(pa.large_string()), joined, blank)
    lines = from_arrow(pc.binary_join_element_wise(lines, nothing, end))
    return lines.data[: lines.size].data
