"""scikit-learn's own checks of estimators."""

from __future__ import annotations

from sklearn.utils.estimator_checks import parametrize_with_checks

from fedpu import FedPUClassifier
from fedpu.applications.classifier import EXPECTED_FAILED_CHECKS


@parametrize_with_checks(
    [FedPUClassifier(rounds=5, lr=0.1)], expected_failed_checks=lambda estimator: EXPECTED_FAILED_CHECKS
)
def test_it_passes_scikit_learns_checks(estimator, check) -> None:  # type: ignore[no-untyped-def]
    check(estimator)
