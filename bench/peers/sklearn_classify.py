"""scikit-learn's side: TF-IDF of words and pairs of words, then LinearSVC or logistic regression.

C is chosen by validation. scikit-learn trains on one thread, so candidates of C are tried on as many threads
as the other side has. Logistic regression with more than two labels is one-vs-rest: liblinear's dual solver
is many times quicker here than a softmax by lbfgs. Arguments come as one JSON object.
"""

import json
import sys
import time
import warnings
from typing import Any

import numpy as np
from joblib import Parallel, delayed
from sklearn.exceptions import ConvergenceWarning
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.multiclass import OneVsRestClassifier
from sklearn.svm import LinearSVC
from validation import folds, read, scores

CANDIDATES = {
    "LinearSVC": (0.1, 0.3, 1.0, 3.0, 10.0, 30.0),
    "logistic regression": (1.0, 3.0, 10.0, 30.0, 100.0, 300.0),
}
warnings.simplefilter("ignore", ConvergenceWarning)


def new_vectors() -> TfidfVectorizer:
    return TfidfVectorizer(sublinear_tf=True, ngram_range=(1, 2), dtype=np.float32)


def new_model(kind: str, c: float, seed: int) -> Any:
    if kind == "LinearSVC":
        return LinearSVC(C=c, random_state=seed)
    return OneVsRestClassifier(LogisticRegression(C=c, solver="liblinear", dual=True, random_state=seed))


def score(kind: str, c: float, seed: int, part: tuple[Any, list[str], Any, list[str]]) -> float:
    train, train_labels, valid, valid_labels = part
    return new_model(kind, c, seed).fit(train, train_labels).score(valid, valid_labels)


job = json.loads(sys.argv[1])
began, used = time.perf_counter(), time.process_time()
labels, texts = read(job["train"])
parts = []
for learn, choose in folds(labels, job["seed"]):
    vectors = new_vectors()
    train = vectors.fit_transform([texts[row] for row in learn])
    valid = vectors.transform([texts[row] for row in choose])
    parts.append((train, [labels[row] for row in learn], valid, [labels[row] for row in choose]))
vectors = new_vectors()
whole = vectors.fit_transform(texts)
for train, _, valid, _ in parts:
    train.sum_duplicates()  # in place: later, candidates on two threads would do it to one matrix at once
    valid.sum_duplicates()
prepared = time.perf_counter() - began, time.process_time() - used
test_labels, test_texts = read(job["test"])
test = vectors.transform(test_texts)
for kind in job["models"]:
    began, used = time.perf_counter(), time.process_time()
    grid = CANDIDATES[kind]
    tries = (delayed(score)(kind, c, job["seed"], part) for c in grid for part in parts)
    found = Parallel(n_jobs=job["threads"], prefer="threads")(tries)
    means = np.reshape(found, (len(grid), -1)).mean(axis=1)
    chosen = grid[int(means.argmax())]
    model = new_model(kind, chosen, job["seed"]).fit(whole, labels)
    seconds = prepared[0] + time.perf_counter() - began
    cpu = prepared[1] + time.process_time() - used
    given = model.predict(test)
    result = {
        "peer": kind,
        "chosen": {"C": chosen},
        "valid": round(100 * means.max(), 3),
        **scores(list(given), test_labels),
        "seconds": round(seconds, 2),
        "cpu_seconds": round(cpu, 2),
    }
    print(json.dumps(result), flush=True)
