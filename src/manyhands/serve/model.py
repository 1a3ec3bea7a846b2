"""A bundle that is being served: opened, checked, warmed up, with a queue of its own."""

import hashlib
import time
from dataclasses import dataclass
from typing import Any

from manyhands.bundle.bundle import SUMS, Bundle, load_bundle
from manyhands.bundle.explain import explain, word_parts
from manyhands.bundle.word_vectors import embedding_of
from manyhands.errors import InputError
from manyhands.kernels.simd import Floats
from manyhands.models.model import CLASSIFY, EMBED, Scores
from manyhands.models.words.nearest import complete, neighbours
from manyhands.serve.answers import Refusal
from manyhands.serve.batching import Batcher
from manyhands.serve.metrics import Metrics
from manyhands.serve.schemas import ModelFacts
from manyhands.serve.settings import LimitSettings
from manyhands.storage.files import StrPath
from manyhands.text.embedding import Embedding
from manyhands.text.ragged import from_strings

WARM_UP = "The soup was great, and the waiter was not so bad; 10 of 10, we will come again! " * 100
WARM_UPS = 3
DIGITS = 6  # as the command line prints scores
VERSION_LETTERS = 12


@dataclass(frozen=True)
class ServedModel:
    """One version of the model. Requests that began with it end with it."""

    bundle: Bundle
    name: str
    version: str
    batcher: Batcher
    embedding: Embedding | None
    no_embedding: str  # why there is none

    @property
    def labels(self) -> list[str]:
        return self.bundle.labels

    async def scores(self, texts: list[str], *, alone: bool) -> Scores:
        classifier = self.bundle.classifier
        if classifier.reads_numbers:
            raise Refusal(409, f"{self.name} reads tables of numbers, and the service takes texts only")
        return await self.batcher.scores(texts, alone=alone)

    def likeliest(self, scores: Scores, top: int) -> list[tuple[list[str], list[float]]]:
        """For each row its most likely labels with their probabilities, as the command line rounds them."""
        found = self.bundle.likeliest(scores, top)
        return [([label for label, _ in row], [round(value, DIGITS) for _, value in row]) for row in found]

    def explain(self, text: str, label: str | None) -> dict[str, Any]:
        found = explain(self.bundle, text, label)
        words = [{"word": part.ngram, "part": part.part} for part in word_parts(self.bundle, text, found)]
        parts = [vars(part) for part in found.parts]
        return {**vars(found), "parts": parts, "words": words}

    def vectors(self, words: list[str]) -> Floats:
        """The vectors of words. A guess at what was meant would take longer than all else a request does."""
        embedding = self._embedding()
        vectors, found = embedding.vectors_of(words)
        if not found.all():
            word = words[int(found.argmin())]
            raise Refusal(422, f"'{word[:80]}' is not among the {len(embedding):,} words of {self.name}")
        return vectors

    def nearest(self, words: list[str], top: int) -> list[dict[str, Any]]:
        self.vectors(words)
        found = neighbours(self._embedding(), words, top, of=self.name)
        return [
            {"word": word, "nearest": [{"word": other, "cosine": round(c, DIGITS)} for other, c in near]}
            for word, near in zip(words, found, strict=True)
        ]

    def analogy(self, first: str, second: str, third: str, top: int, method: str) -> list[dict[str, Any]]:
        self.vectors([first, second, third])
        found = complete(self._embedding(), first, second, third, top, method, of=self.name)
        return [{"word": word, "score": round(score, DIGITS)} for word, score in found]

    def word_map(self, words: int) -> bytes:
        """The page of words on a plane, as ``manyhands project`` writes it."""
        embedding = self._embedding()
        # scikit-learn takes seconds to load, and few ask for the map.
        from manyhands.report.page import page  # noqa: PLC0415
        from manyhands.report.plane import plane  # noqa: PLC0415

        drawn = plane(embedding, min(words, len(embedding)))
        return page(drawn, name=self.name, model=self.bundle.config.model, dim=embedding.dim).encode()

    def _embedding(self) -> Embedding:
        if self.embedding is None:
            raise Refusal(409, self.no_embedding)
        return self.embedding

    def facts(self) -> ModelFacts:
        can = set(self.bundle.model.can)
        if self.embedding is None:
            can.discard(EMBED)
        return ModelFacts(
            name=self.name,
            version=self.version,
            model=self.bundle.config.model,
            can=sorted(can),
            labels=self.labels,
            words=len(self.embedding) if self.embedding else 0,
            dim=self.embedding.dim if self.embedding else 0,
        )


def open_model(path: StrPath, name: str, limits: LimitSettings, metrics: Metrics) -> ServedModel:
    """Open a bundle, compare its files with their checksums, and use it once, for a quick first request."""
    bundle = load_bundle(path)
    bundle.verify()
    embedding, why = _embedding_of(bundle)

    def score(texts: list[str]) -> Scores:
        return bundle.scores(from_strings(texts))

    reads_texts = CLASSIFY in bundle.model.can and not bundle.classifier.reads_numbers
    seconds = _warm_up(bundle, limits) if reads_texts else 0.0
    return ServedModel(
        bundle, name, _version(bundle), Batcher(score, limits, metrics, seconds), embedding, why
    )


def _embedding_of(bundle: Bundle) -> tuple[Embedding | None, str]:
    """Its word vectors, in memory before anyone asks; or why there are none."""
    if EMBED not in bundle.model.can:
        return None, f"{bundle.config.model} models have no word vectors"
    try:
        return embedding_of(bundle), ""
    except InputError as error:
        return None, str(error)


def _warm_up(bundle: Bundle, limits: LimitSettings) -> float:
    """Score as many short texts as a batch may have, and a long one; gives the seconds a character takes."""
    bundle.scores(from_strings([WARM_UP[:80]] * limits.batch_texts))
    fastest = float("inf")
    for _ in range(WARM_UPS):
        began = time.perf_counter()
        bundle.scores(from_strings([WARM_UP]))
        fastest = min(fastest, time.perf_counter() - began)
    return fastest / len(WARM_UP)


def _version(bundle: Bundle) -> str:
    """Of the contents: the same bundle has the same version wherever it stands."""
    sums = (bundle.folder / SUMS).read_bytes() if bundle.folder else b""
    return hashlib.sha256(sums).hexdigest()[:VERSION_LETTERS]
