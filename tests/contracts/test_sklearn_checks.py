"""scikit-learn's own checks of estimators, all of them, and an honest list of those that cannot pass.

The checks feed matrices of numbers and ``TextClassifier`` takes texts. So they run three times: on
the class as it is; on the class as if it had said that it takes matrices, which shows what it does
with them; and on a subclass that writes every number of a row as a few words, which lets all that
is not about matrices be checked for real.
"""

import warnings
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array
from sklearn.base import BaseEstimator
from sklearn.exceptions import SkipTestWarning
from sklearn.utils.estimator_checks import check_estimator
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted, validate_data

from manyhands import TextClassifier
from manyhands.errors import ManyhandsError
from manyhands.estimator.classifier import _has_features

SETTINGS: dict[str, Any] = {"min_count": 1, "effort": 0, "deterministic": True, "threads": 1}
CLASSIFIERS: dict[str, dict[str, Any]] = {
    "ngrams": {"ngrams": 1},
    "fasttext": {"ngrams": 1},
    # As small as it can be and still learn: the checks fit it some four hundred times.
    "lstm": {"hidden_size": 8, "dim": 8, "batch_size": 16, "learning_rate": 0.05, "pooling": "mean"},
}

MATRIX = "fits a matrix of numbers first; the input here is texts"
COLUMNS = "asks about the columns of a matrix; texts have none"
NUMBERS = "asks which numbers are taken; texts are no numbers"

# Pass once numbers are written as words, of models that have features to make a matrix of.
OF_TRANSFORMERS = {
    "check_transformer_data_not_an_array": MATRIX,
    "check_transformer_general": MATRIX,
}

# Pass once numbers are written as words.
NEEDS_MATRIX = {
    **OF_TRANSFORMERS,
    "check_all_zero_sample_weights_error": MATRIX,
    "check_class_weight_classifiers": MATRIX,
    "check_classifier_data_not_an_array": MATRIX,
    "check_classifiers_classes": MATRIX,
    "check_classifiers_multilabel_output_format_decision_function": MATRIX,
    "check_classifiers_multilabel_output_format_predict": MATRIX,
    "check_classifiers_multilabel_output_format_predict_proba": MATRIX,
    "check_classifiers_one_label": MATRIX,
    "check_classifiers_one_label_sample_weights": MATRIX,
    "check_classifiers_regression_target": MATRIX,
    "check_classifiers_train": MATRIX,
    "check_complex_data": NUMBERS,
    "check_decision_proba_consistency": MATRIX,
    "check_dict_unchanged": MATRIX,
    "check_dont_overwrite_parameters": MATRIX,
    "check_dtype_object": NUMBERS,
    "check_estimators_dtypes": NUMBERS,
    "check_estimators_empty_data_messages": COLUMNS,
    "check_estimators_fit_returns_self": MATRIX,
    "check_estimators_nan_inf": NUMBERS,
    "check_estimators_overwrite_params": MATRIX,
    "check_estimators_partial_fit_n_features": COLUMNS,
    "check_estimators_pickle": MATRIX,
    "check_f_contiguous_array_estimator": MATRIX,
    "check_fit2d_1feature": COLUMNS,
    "check_fit2d_1sample": MATRIX,
    "check_fit2d_predict1d": COLUMNS,
    "check_fit_check_is_fitted": MATRIX,
    "check_fit_idempotent": MATRIX,
    "check_fit_score_takes_y": MATRIX,
    "check_methods_sample_order_invariance": MATRIX,
    "check_methods_subset_invariance": MATRIX,
    "check_n_features_in": COLUMNS,
    "check_n_features_in_after_fitting": COLUMNS,
    "check_pipeline_consistency": MATRIX,
    "check_positive_only_tag_during_fit": MATRIX,
    "check_readonly_memmap_input": MATRIX,
    "check_sample_weights_list": MATRIX,
    "check_sample_weights_not_an_array": MATRIX,
    "check_sample_weights_not_overwritten": MATRIX,
    "check_sample_weights_pandas_series": MATRIX,
    "check_sample_weights_shape": MATRIX,
    "check_supervised_y_2d": MATRIX,
}

# Never pass.
NEVER = {
    "check_classifiers_multilabel_representation_invariance": "takes lists of 0 and 1 for a matrix; "
    "here lists hold the labels themselves",
    "check_array_api_input": "scikit-learn skips it unless SCIPY_ARRAY_API is set; arrays here hold texts",
    "check_sample_weight_equivalence_on_dense_data": "a row of weight 2 is one step twice as long, and "
    "two equal rows are two steps, each after the other (weight 0 does equal leaving out)",
}


class FedMatrices(TextClassifier):
    """The same class, without its word that it takes no matrices."""

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array = True
        return tags


class NumbersAsWords(FedMatrices):
    """A number is written as the words of the steps it lies on, from coarse to fine."""

    def fit(self, X, y, sample_weight=None):  # noqa: N803
        return super().fit(self._texts(X, reset=True), y, sample_weight)

    def partial_fit(self, X, y, classes=None, sample_weight=None):  # noqa: N803
        first = not hasattr(self, "classes_")
        return super().partial_fit(self._texts(X, reset=first), y, classes, sample_weight)

    def predict_proba(self, X):  # noqa: N803
        check_is_fitted(self)
        return super().predict_proba(self._texts(X, reset=False))

    @available_if(_has_features)
    def fit_transform(self, X, y=None):  # noqa: N803
        return self.fit(X, y).transform(X)

    @available_if(_has_features)
    def transform(self, X):  # noqa: N803
        check_is_fitted(self)
        return super().transform(self._texts(X, reset=False))

    def _texts(self, X, reset: bool) -> list[str]:  # noqa: N803
        rows = validate_data(self, X, reset=reset, dtype="numeric")
        steps = np.concatenate([np.floor(rows * fine) for fine in (0.1, 0.5, 1, 2)], axis=1)
        return [
            " ".join(f"n{place}x{int(step)}".replace("-", "m") for place, step in enumerate(row))
            for row in steps
        ]


def outcomes(estimator: BaseEstimator) -> dict[str, set[str]]:
    """What became of each check; some run more than once."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        results = check_estimator(estimator, on_skip=None, on_fail=None)
    found: dict[str, set[str]] = {}
    for result in results:
        found.setdefault(result["check_name"], set()).add(result["status"])
    return found


def not_passed(found: dict[str, set[str]]) -> set[str]:
    return {name for name, statuses in found.items() if statuses != {"passed"}}


def passed(found: dict[str, set[str]]) -> int:
    return sum(statuses == {"passed"} for statuses in found.values())


def test_as_it_is_scikit_learn_sees_that_it_takes_texts():
    with pytest.warns(SkipTestWarning, match="string=True"):
        results = check_estimator(TextClassifier())
    assert [(result["check_name"], result["status"]) for result in results] == [
        ("check_estimator_cloneable", "passed")
    ]


def test_exactly_the_checks_that_fit_a_matrix_fail():
    found = outcomes(FedMatrices(**SETTINGS, ngrams=1))
    assert not_passed(found) == set(NEEDS_MATRIX | NEVER)
    assert passed(found) == len(found) - len(NEEDS_MATRIX | NEVER) >= 18


@pytest.mark.parametrize("model", CLASSIFIERS)
def test_with_numbers_written_as_words_nearly_all_pass(model):
    classifier = NumbersAsWords(model=model, **SETTINGS, **CLASSIFIERS[model])
    found = outcomes(classifier)
    assert not_passed(found) == set(NEVER)
    left = set(NEEDS_MATRIX) - set(NEVER) - set(found)
    assert left == (set() if hasattr(classifier, "transform") else set(OF_TRANSFORMERS))


def test_a_matrix_is_refused_with_advice():
    for matrix in (np.eye(3), csr_array(np.eye(3))):
        with pytest.raises(ManyhandsError, match=r"the shape \(3, 3\); give texts") as caught:
            TextClassifier().fit(matrix, [0, 1, 0])
        assert isinstance(caught.value, ValueError)
