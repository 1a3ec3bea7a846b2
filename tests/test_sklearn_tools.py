"""``TextClassifier`` among scikit-learn's own tools, with matrices of labels, and its features by name."""

import importlib.util
import pickle
import random

import numpy as np
import pandas as pd
import pytest
from scipy.sparse import csr_array, csr_matrix, issparse
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import make_column_transformer
from sklearn.feature_selection import SelectFromModel
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_val_predict, cross_val_score
from sklearn.multioutput import MultiOutputClassifier
from sklearn.pipeline import make_pipeline

import manyhands
from manyhands import TextClassifier
from manyhands.errors import InputError, UsageError
from tests.conftest import need
from tests.test_estimator import NOISE, SIGNS, classifier, task, weights

LSTM = {"model": "lstm", "hidden_size": 8, "dim": 8, "epochs": 4, "learning_rate": 0.05, "min_count": 1}


def several(rows: int, seed: int = 0) -> tuple[list[str], np.ndarray]:
    """Texts of noise with a word for each of their labels; a row of 0 and 1 for each."""
    draw = random.Random(seed)
    truth = np.array([[draw.random() < 0.4 for _ in SIGNS] for _ in range(rows)], np.int64)
    signs = [
        [draw.choice(words) for words, on in zip(SIGNS.values(), row, strict=True) if on] for row in truth
    ]
    return [" ".join([*draw.choices(NOISE, k=3), *row]) for row in signs], truth


def test_takes_the_settings_of_the_recurrent_network():
    fresh = task(100, seed=1)
    learnt = TextClassifier(**LSTM, threads=1, random_state=0).fit(*task(400))
    assert learnt.score(*fresh) > 0.9
    assert learnt._fitted.bundle.model.network.shape.widths == (8, 8)
    assert not hasattr(learnt, "transform")
    assert not hasattr(learnt, "coef_")
    with pytest.raises(UsageError, match="lstm models have no features with weights of their own"):
        learnt.feature_weights()
    with pytest.raises(UsageError, match="hidden_size is for model lstm"):
        classifier(hidden_size=8).fit(*task(40))


def test_early_stopping_judges_by_rows_that_are_held_out():
    texts, labels = task(400)
    learnt = classifier(validation_fraction=0.25, early_stopping=1, epochs=30).fit(texts, labels)
    record = learnt._fitted.record
    assert record["data"]["rows"] == 300
    assert len(record["scores"]["valid"]) < 30  # it stopped
    assert record["scores"]["best_epoch"] == len(record["scores"]["valid"]) - 1
    assert learnt.score(*task(100, seed=1)) > 0.95
    with pytest.raises(UsageError, match="give validation_fraction too"):
        classifier(early_stopping=1).fit(texts, labels)
    with pytest.raises(UsageError, match="validation_fraction is 2"):
        classifier(validation_fraction=2).fit(texts, labels)


def test_settings_are_chosen_unless_nothing_is_to_be_looked_for():
    """Words that nobody has seen before, of which only the endings tell anything."""
    draw = random.Random(3)
    labels = [draw.randrange(2) for _ in range(200)]
    texts = ["".join(draw.choices("abcdefgh", k=6)) + ("ing" if label else "ous") for label in labels]
    learnt = TextClassifier(random_state=0, deterministic=True).fit(texts, labels)
    assert learnt._fitted.bundle.config.settings["char_ngrams"] == "3-5"
    assert learnt.score(["walking", "glorious"], [1, 0]) == 1
    learnt.partial_fit(texts, labels)
    assert learnt._fitted.bundle.config.settings["char_ngrams"] == "3-5"
    plain = TextClassifier(effort=0, random_state=0, deterministic=True).fit(texts, labels)
    assert plain._fitted.bundle.config.settings["char_ngrams"] == "0-0"


def test_a_schedule_changes_what_is_learnt():
    texts, labels = task(200)
    falling, level = (
        classifier(schedule=shape).fit(texts, labels).predict_proba(texts) for shape in ("linear", "constant")
    )
    assert (falling != level).any()
    with pytest.raises(UsageError, match="schedule"):
        classifier(schedule="steep").fit(texts, labels)


@pytest.mark.parametrize("kind", [np.asarray, csr_matrix, csr_array, pd.DataFrame, lambda y: y.astype(bool)])
def test_matrices_of_labels_come_back_as_they_were_given(kind, tmp_path):
    texts, truth = several(800)
    learnt = classifier(epochs=10).fit(texts[:600], kind(truth[:600]))
    assert learnt.classes_.tolist() == [0, 1, 2]
    found = learnt.predict(texts[600:])
    assert issparse(found) == issparse(kind(truth))
    dense = found.toarray() if issparse(found) else found
    assert dense.dtype.kind == "i"
    assert learnt.score(texts[600:], truth[600:]) == (dense == truth[600:]).all(axis=1).mean() > 0.9
    lists = classifier(epochs=10).fit(texts[:600], [np.flatnonzero(row).tolist() for row in truth[:600]])
    np.testing.assert_array_equal(lists.predict_proba(texts), learnt.predict_proba(texts))
    learnt.save(tmp_path / "bundle")
    again = TextClassifier.load(tmp_path / "bundle").predict(texts[600:])
    assert issparse(again) == issparse(found)
    np.testing.assert_array_equal(again.toarray() if issparse(again) else again, dense)


def test_the_matrix_that_is_given_stays_as_it_is():
    texts, truth = several(40)
    given = csr_matrix(truth)
    given.data[0] = 0
    classifier().fit(texts, given)
    assert given.nnz == truth.sum()


def test_thresholds_decide_which_labels_a_text_gets():
    texts, truth = several(600)
    learnt = classifier().fit(texts, truth)
    chances = learnt.predict_proba(texts)
    for threshold, limits in ((None, 0.5), (0.2, 0.2), ({0: 0.9, 2: 0}, np.array([0.9, 0.5, 0.0]))):
        found = learnt.set_params(threshold=threshold).predict(texts)
        np.testing.assert_array_equal(found, chances >= limits)
    for bad, message in (
        (1.5, "from 0 to 1"),
        ({7: 0.5}, "7, which is not a label"),
        ("half", "from 0 to 1"),
    ):
        with pytest.raises(UsageError, match=message):
            learnt.set_params(threshold=bad).predict(texts)
    with pytest.raises(UsageError, match="several labels"):
        classifier(threshold=0.3).fit(*task(40))


def test_partial_fit_takes_matrices_of_the_same_labels_only():
    texts, truth = several(600)
    learnt = classifier(epochs=10).partial_fit(texts[:300], truth[:300]).partial_fit(texts[300:], truth[300:])
    assert learnt.score(*several(200, seed=1)) > 0.9
    with pytest.raises(InputError, match="2 columns, and had 3"):
        learnt.partial_fit(texts, truth[:, :2])
    with pytest.raises(InputError, match="is a matrix, and was none"):
        learnt.partial_fit(["a", "b"], [[0], [1]])


def test_several_targets_are_for_scikit_learns_own_wrapper():
    texts, labels = task(200)
    y = np.c_[[label == "tool" for label in labels], [len(text) % 2 for text in texts]].astype(int)
    wrapped = MultiOutputClassifier(classifier()).fit(texts, y)
    assert (wrapped.predict(texts)[:, 0] == y[:, 0]).mean() > 0.97


def test_calibrated_grid_searched_and_cross_validated():
    texts, labels = task(240)
    calibrated = CalibratedClassifierCV(classifier(), cv=3).fit(texts, labels)
    assert (calibrated.predict(texts) == labels).mean() > 0.95
    texts, truth = several(300)
    assert cross_val_score(classifier(epochs=10), texts, truth, cv=2).min() > 0.8
    chances = cross_val_predict(classifier(epochs=10), texts, truth, cv=2, method="predict_proba")
    assert ((chances >= 0.5) == truth).mean() > 0.9
    search = GridSearchCV(classifier(epochs=10), {"threshold": [0.5, 1.0]}, cv=2)
    assert search.fit(texts, truth).best_params_["threshold"] == 0.5


def test_columns_of_tables():
    need("polars", importlib.util.find_spec("polars"))
    import polars as pl

    texts, labels = task(60)
    expected = classifier().fit(texts, labels).predict_proba(texts)
    table = pd.DataFrame({"text": texts, "label": labels, "other": 1.0}, index=range(5, 65))
    columns = [
        (table["text"], table["label"]),
        (table["text"].astype("string"), table["label"].astype("category")),
        (table.text.to_numpy(object), table.label.to_numpy(object)),
        (pl.Series(texts), pl.Series(labels)),
        (pl.DataFrame({"text": texts})["text"], labels),
    ]
    for X, y in columns:  # noqa: N806
        learnt = classifier().fit(X, y, sample_weight=pd.Series(np.ones(60)))
        np.testing.assert_array_equal(learnt.predict_proba(X), expected)
    with pytest.raises(InputError, match=r"X\[1\] is missing"):
        classifier().fit(pl.Series(["a", None]), ["x", "y"])
    line = make_pipeline(
        make_column_transformer((classifier(), "text"), ("passthrough", ["other"])), LogisticRegression(C=100)
    )
    assert line.fit(table, labels).score(table, labels) > 0.95


def test_a_matrix_of_polars_is_one_of_labels():
    need("polars", importlib.util.find_spec("polars"))
    import polars as pl

    texts, truth = several(200)
    assert classifier().fit(texts, pl.DataFrame(truth)).predict(texts).shape == (200, 3)


@pytest.mark.parametrize(
    ("settings", "labels"),
    [
        ({}, ("fruit", "tool")),
        ({"ngrams": 2, "char_ngrams": "2-3"}, ("fruit", "tool", "wind")),
        ({"model": "fasttext", "epochs": 10}, ("fruit", "tool", "wind")),
    ],
)
def test_the_matrix_times_the_coefficients_is_the_score(settings, labels):
    learnt = classifier(**settings).fit(*task(300, labels))
    fresh = [*task(50, labels, seed=1)[0], "", "never seen"]
    matrix = learnt.transform(fresh)
    assert matrix.shape == (52, len(learnt.get_feature_names_out()))
    scores = matrix @ learnt.coef_.T + learnt.intercept_
    if len(labels) == 2:
        np.testing.assert_allclose(scores[:, 0], learnt.decision_function(fresh), atol=1e-4)
    else:
        odds = np.exp(scores - scores.max(axis=1, keepdims=True))
        chances = odds / odds.sum(axis=1, keepdims=True)
        np.testing.assert_allclose(chances, learnt.predict_proba(fresh), atol=1e-5)


def test_the_rows_of_ngrams_have_length_1_and_feed_other_models():
    texts, labels = task(300)
    learnt = classifier().fit(texts, labels)
    lengths = np.sqrt(learnt.transform(texts).power(2).sum(axis=1))
    np.testing.assert_allclose(lengths, 1, rtol=1e-5)
    line = make_pipeline(classifier(), LogisticRegression(C=100))
    assert line.fit(texts, labels).score(*task(100, seed=1)) > 0.95
    few = SelectFromModel(learnt, prefit=True, max_features=12, threshold=-np.inf, importance_getter="coef_")
    chosen = learnt.get_feature_names_out()[few.get_support()]
    assert {*SIGNS["fruit"], *SIGNS["tool"]} <= {*chosen}


def test_columns_are_named_by_the_ngrams_that_were_learnt():
    learnt = classifier(ngrams=3).fit(["a b c", "c b a", "b a c"], [0, 1, 0])
    names = learnt.get_feature_names_out().tolist()
    assert sorted(names) == sorted("a,b,c,a b,b c,c b,b a,a c,a b c,c b a,b a c".split(","))
    for text in ("a b c", "c b", "a"):
        row = learnt.transform([text]).toarray()[0]
        words = text.split()
        spans = {" ".join(words[i:j]) for i in range(len(words)) for j in range(i + 1, len(words) + 1)}
        assert {names[column] for column in np.flatnonzero(row)} == spans
    again = pickle.loads(pickle.dumps(learnt))  # a copy holds no texts, but it holds the words
    assert sorted(name for name in again.get_feature_names_out() if len(name) == 1) == ["a", "b", "c"]
    assert [name.startswith("feature ") for name in again.get_feature_names_out() if len(name) > 1] == [
        True
    ] * 8


def test_runs_of_letters_are_named_by_their_letters():
    learnt = classifier(char_ngrams="2-3").fit(["né so", "so"], [0, 1])
    names = [name.removeprefix("letters ") for name in learnt.get_feature_names_out() if "letters" in name]
    assert sorted(names) == sorted(["<n", "<né", "né", "né>", "é>", "<s", "<so", "so", "so>", "o>"])


def test_an_ngram_that_shares_a_feature_with_a_rare_one_gives_it_its_name():
    frequent, rare = ["good day"] * 20, [f"x{number} y{number}" for number in range(2000)]
    learnt = classifier(ngrams=2, buckets=1024).fit(rare + frequent + rare, [0, 1] * 2010)
    assert "good day" in learnt.get_feature_names_out()  # thousands of pairs share 1024 features


@pytest.mark.parametrize("model", ["ngrams", "fasttext"])
def test_weights_by_name_are_what_explanations_add_up(model):
    texts, labels = task(300, ("fruit", "tool", "wind"))
    learnt = classifier(model=model, epochs=10, ngrams=2).fit(texts, labels)
    for label, signs in SIGNS.items():
        found = learnt.feature_weights(label)
        assert {name for name, _ in found[:3]} == {*signs}
        assert [weight for _, weight in found] == sorted((weight for _, weight in found), reverse=True)
        assert learnt.feature_weights(label, top=2) == found[:2]
        (explanation,) = learnt.explain([texts[0]], label)
        weight, parts = dict(found), {part.ngram: part.part for part in explanation.parts}
        shares = {name: part / weight[name] for name, part in parts.items() if abs(weight[name]) > 1e-3}
        assert len(shares) > 5
        assert max(shares.values()) == pytest.approx(min(shares.values()), rel=1e-2)  # one by the length
    assert [one.label for one in learnt.explain(texts[:3])] == learnt.predict(texts[:3]).tolist()
    with pytest.raises(UsageError, match="None, which is not one of classes_; give one of 'fruit'"):
        learnt.feature_weights()
    with pytest.raises(UsageError, match="top is 0"):
        learnt.feature_weights("fruit", top=0)


def test_weights_of_the_second_of_two_classes_and_names_from_other_texts(tmp_path):
    texts, labels = task(300)
    learnt = classifier(ngrams=2).fit(texts, np.array([int(label == "tool") for label in labels]))
    found = learnt.feature_weights()
    assert {name for name, _ in found[:3]} == {*SIGNS["tool"]}
    assert {name for name, _ in found[-3:]} == {*SIGNS["fruit"]}
    assert dict(learnt.feature_weights(0)) == {name: -weight for name, weight in found}
    learnt.save(tmp_path / "bundle")
    again = TextClassifier.load(tmp_path / "bundle")
    assert again.feature_weights() == [pair for pair in found if " " not in pair[0]]
    assert dict(again.feature_weights(texts=texts)) == dict(found)
    assert {*dict(again.feature_weights(texts=["saw plum"]))} <= {"saw", "plum", "saw plum"}


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {**LSTM, "ngrams": None, "epochs": 2},
        {**LSTM, "ngrams": None, "epochs": 2, "optimizer": "sgd", "learning_rate": 0.5},
    ],
)
def test_partial_fit_remembers_what_the_optimizer_did(settings):
    texts, labels = task(400)
    learnt = classifier(threads=1, **settings).partial_fit(texts, labels)
    copied = pickle.loads(pickle.dumps(learnt))
    memory = learnt._fitted.memory
    assert memory
    learnt.partial_fit(texts, labels)
    for name, array in learnt._fitted.memory.items():
        if name == "steps":
            assert array == 2 * memory[name]
        if name == "table":  # AdaGrad's squares only ever grow
            assert (array >= memory[name]).all()
            assert array.sum() > memory[name].sum()
    again = copied.partial_fit(texts, labels)
    assert all((weights(again)[name] == array).all() for name, array in weights(learnt).items())
    forgetful = classifier(threads=1, **settings).partial_fit(texts, labels)
    object.__setattr__(forgetful._fitted, "memory", {})
    forgetful.partial_fit(texts, labels)
    assert any((weights(forgetful)[name] != array).any() for name, array in weights(learnt).items())


def faint(rows: int, seed: int) -> tuple[list[str], list[int]]:
    """Words that each tell a little of the label: what is learnt gets better with every row."""
    draw = np.random.default_rng(seed)
    labels = draw.integers(0, 2, rows)
    lean = np.linspace(-1, 1, 400)  # the same for all rows
    texts = []
    for label in labels:
        odds = np.exp((0.8 if label else -0.8) * lean)
        texts.append(" ".join(f"w{word}" for word in draw.choice(400, 12, p=odds / odds.sum())))
    return texts, labels.tolist()


def test_two_halves_come_close_to_one_fit():
    texts, labels = faint(2400, seed=0)
    fresh = faint(3000, seed=1)
    whole = classifier().fit(texts, labels).score(*fresh)
    halves = classifier().partial_fit(texts[:1200], labels[:1200]).partial_fit(texts[1200:], labels[1200:])
    assert halves.score(*fresh) > whole - 0.01
    assert halves.score(*fresh) > classifier().fit(texts[:1200], labels[:1200]).score(*fresh)


def test_the_public_names_are_shown_before_anything_is_imported():
    shown = dir(manyhands)
    assert {*manyhands.__all__} <= {*shown}
    assert {"TextClassifier", "WordVectors", "Bundle", "train", "prepare", "evaluate"} <= {*shown}
    for name in manyhands.__all__:
        assert getattr(manyhands, name).__doc__, name


def test_a_bundle_takes_plain_lists(tmp_path):
    texts, labels = task(200)
    learnt = classifier().fit(texts, labels)
    learnt.save(tmp_path / "bundle")
    bundle = manyhands.load_bundle(tmp_path / "bundle")
    scores = bundle.scores(["a plum", "an axe"])
    np.testing.assert_allclose(scores, learnt.predict_proba(["a plum", "an axe"]), atol=1e-6)
    assert [row[0][0] for row in bundle.predict(("a plum", "an axe"))] == ["fruit", "tool"]
    for bad, message in (("a plum", "single str"), ([3], "list of str"), (7, "list of str")):
        with pytest.raises(UsageError, match=message):
            bundle.scores(bad)
