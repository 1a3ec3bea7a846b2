"""How well the cosines of word vectors agree with what people say of the same words."""

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.stats import spearmanr

from manyhands.errors import InputError
from manyhands.evaluation.wordsets import SimilaritySet
from manyhands.kernels.compile import Flags
from manyhands.text.embedding import UNKNOWN, Embedding

DIGITS = 12
Numbers = npt.NDArray[np.float64]


@dataclass(frozen=True)
class SimilarityReport:
    """The figures of one set. A correlation is None where none can be had: there are fewer than two pairs,
    or all of them are equally alike.

    ``spearman`` is over the pairs whose words both have a vector, ``coverage`` the share of these. Who knows
    few words is judged by few, often easy pairs; so ``spearman_all`` is over every pair, and one with an
    unknown word counts as if its cosine were 0, which is the best guess of who knows nothing.

    ``unseen`` is over those pairs with vectors in which a word is not in the vocabulary, but was spelled
    from its letters; it is None where there are fewer than two.
    """

    spearman: float | None
    coverage: float
    pairs: int
    spearman_all: float | None
    unseen: dict[str, float | int | None] | None

    def facts(self) -> dict[str, Any]:
        return asdict(self)


def evaluate_similarity(embedding: Embedding, judged: SimilaritySet) -> SimilarityReport:
    """Compare cosines with the scores that people gave, by rank.

    Here "cow" has no vector. Of the two other pairs, people and cosines find the same more alike; with the
    cow's cosine of 0, three pairs are ranked 3, 1, 2 by people and 3, 2, 1 by cosines.

    >>> import pyarrow as pa
    >>> from manyhands.text.vocabulary import Vocabulary
    >>> words = Vocabulary(pa.array(["cat", "dog", "sky"], pa.large_string()), np.array([3, 2, 1]))
    >>> vectors = np.array([[1, 0], [1, 0.5], [0.5, 1]], np.float32)
    >>> judged = SimilaritySet("pets", ["cat"] * 3, ["Dog", "sky", "cow"], np.array([9.0, 1.0, 5.0]))
    >>> report = evaluate_similarity(Embedding(words, vectors), judged)
    >>> f"{report.spearman:.2f} {report.coverage:.2f} {report.spearman_all:.2f}", report.unseen
    ('1.00 0.67 0.50', None)
    """
    words = list(dict.fromkeys([*judged.first, *judged.second]))
    number = {word: k for k, word in enumerate(words)}
    first, second = (np.array([number[word] for word in side]) for side in (judged.first, judged.second))
    vectors, known = embedding.vectors_of(words)
    unit = _unit(vectors)
    # Rounded, so that what is equally alike, as every word is to itself, ranks equally.
    cosines = np.einsum("ij,ij->i", unit[first], unit[second]).round(DIGITS)
    covered = known[first] & known[second]
    cosines[~covered] = 0
    spelled = embedding.places(words) == UNKNOWN
    unseen = covered & (spelled[first] | spelled[second])
    of_unseen = {"spearman": _spearman(cosines, judged.scores, unseen), "pairs": int(unseen.sum())}
    return SimilarityReport(
        spearman=_spearman(cosines, judged.scores, covered),
        coverage=float(covered.mean()),
        pairs=len(judged),
        spearman_all=_spearman(cosines, judged.scores, np.ones_like(covered)),
        unseen=of_unseen if unseen.sum() >= 2 else None,
    )


def _unit(vectors: npt.NDArray[np.float32]) -> Numbers:
    """Each vector with a length of 1; one that is 0 stays so, and is like no other."""
    wide = vectors.astype(np.float64)
    if not np.isfinite(wide).all():
        raise InputError("some word vectors are not finite numbers; the model has probably diverged")
    lengths = np.linalg.norm(wide, axis=1, keepdims=True)
    lengths[lengths == 0] = 1
    wide /= lengths
    return wide


def _spearman(cosines: Numbers, scores: Numbers, chosen: Flags) -> float | None:
    ours, theirs = cosines[chosen], scores[chosen]
    if len(ours) < 2 or np.ptp(ours) == 0 or np.ptp(theirs) == 0:
        return None
    return float(spearmanr(ours, theirs).statistic)
