"""The estimator contract that users of scikit-learn know: ``fit(X, y, client=…)``, ``predict``, ``predict_proba``."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import numpy as np
import torch
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import assert_all_finite, check_random_state, column_or_1d
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_feature_names, check_is_fitted, validate_data

from fedpu.applications.experiment import run_prepared
from fedpu.applications.prepared import prepare
from fedpu.applications.suggestion import config_for
from fedpu.applications.trained import TrainedModel
from fedpu.data import Dataset, read
from fedpu.data.labels import UNLABELLED, is_missing
from fedpu.errors import FedpuError

EXPECTED_FAILED_CHECKS = {
    "check_classifiers_classes": "it trains with the two labels −1 and 1, and −1 means unlabelled here",
}
"""checks of scikit-learn's that can't pass, and why"""

Array = np.ndarray[Any, np.dtype[Any]]


class FedPUClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A federated classifier for partly labelled data, trained in this process.

    ``fit(X, y, client=owner)``: ``y`` holds labels, and −1 or a missing value (None, NaN) where there is none;
    ``client`` says whose each example is. Without ``client`` all examples are one client's. Where every example is
    labelled, training is plain federated supervised training, whatever ``method`` is.

    ``X`` is an array (features, images, or with ``tokens`` token ids), a sparse matrix, or a DataFrame with numbers,
    words and missing values.

    Parameters
    ----------
    method : a method's name, or None for the default
    model : a model's name, or None for one that suits the inputs
    rounds, lr, batch_size : of federated training
    priors : "estimated", or one class share for each class in sorted order
    tokens : are the inputs token ids?
    settings : more settings as ``"table.key=value"``
    random_state : the seed
    """

    # scikit-learn sets parameters to anything, and wants mistakes told by fit alone: hence no types here.
    def __init__(
        self,
        method: Any = None,
        *,
        model: Any = None,
        rounds: Any = 50,
        lr: Any = 0.05,
        batch_size: Any = 20,
        priors: Any = "estimated",
        tokens: Any = False,
        settings: Any = (),
        random_state: Any = 0,
    ) -> None:
        self.method = method
        self.model = model
        self.rounds = rounds
        self.lr = lr
        self.batch_size = batch_size
        self.priors = priors
        self.tokens = tokens
        self.settings = settings
        self.random_state = random_state

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.three_d_array = True
        return tags

    def fit(self, X: Any, y: Any, client: Any = None) -> FedPUClassifier:
        """Train on examples of which only some are labelled."""
        if y is None:
            raise ValueError(f"This {type(self).__name__} estimator requires y to be passed, but the target y is None.")
        table = _is_table(X)
        if table:
            _check_feature_names(self, X, reset=True)
            self.n_features_in_ = X.shape[1]
        else:
            X = validate_data(self, X, accept_sparse="csr", allow_nd=True, ensure_min_samples=1)
        numbers = self._numbered(y, X.shape[0])
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        try:
            self._train(read(X, numbers, client=client, test_fraction=0.0, tokens=self.tokens), seed)
        except FedpuError as error:
            raise ValueError(str(error)) from error
        return self

    def _numbered(self, y: Any, examples: int) -> Array:
        """Note the classes, and return their numbers, −1 for unlabelled."""
        labels = column_or_1d(_objects(y), warn=True)
        missing = _unlabelled(labels)
        known = labels[~missing]
        if labels.dtype == object:
            known = np.array(known.tolist())
        if known.dtype.kind == "f":
            assert_all_finite(known, input_name="y")
        if len(labels) != examples:
            raise ValueError(f"Found input variables with inconsistent numbers of samples: [{examples}, {len(labels)}]")
        if not len(known):
            raise ValueError("y has no label at all: every entry is −1 or missing.")
        check_classification_targets(known)
        self.classes_, places = np.unique(known, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError(
                f"y has one class, {self.classes_.tolist()[0]!r}, besides unlabelled examples (−1 or missing); a "
                "classifier needs labelled examples of at least two."
            )
        numbers = np.full(examples, UNLABELLED)
        numbers[~missing] = places
        return numbers

    def _train(self, data: Dataset, seed: int) -> None:
        chosen = [f"seed={seed}", f"aggregation.rounds={self.rounds}", f"aggregation.lr={self.lr}"]
        chosen += [f"aggregation.batch_size={self.batch_size}", "engine.workers=1"]
        if bool((data.labels < 0).any()):
            chosen += [] if self.method is None else [f"method.name={self.method}"]
            if not isinstance(self.priors, str):
                shares = ", ".join(str(float(share)) for share in self.priors)
                chosen += ["priors.source=given", f"priors.values=[{shares}]"]
            elif self.priors != "estimated":
                chosen.append(f"priors.source={self.priors}")
        chosen += [] if self.model is None else [f"model.name={self.model}"]
        config = config_for(data, *chosen, *self.settings)
        result = run_prepared(config, prepare(config, data))
        self.n_iter_ = config.aggregation.rounds
        self.method_ = config.method.name
        self.model_: TrainedModel = result.trained

    def predict(self, X: Any) -> Array:
        """Return the most probable class of each example."""
        check_is_fitted(self)
        found: Array = self.classes_[self.predict_proba(X).argmax(axis=1)]
        return found

    def predict_proba(self, X: Any) -> Array:
        """Return the probability of every class, in the order of ``classes_``."""
        check_is_fitted(self)
        if self.model_.card.encoding is not None:
            _check_feature_names(self, X, reset=False)
        else:
            X = validate_data(self, X, reset=False, accept_sparse="csr", allow_nd=True)
        try:
            inputs = self.model_.read(X).inputs
            self.model_.logits(inputs[:1])  # refuses inputs of another shape or kind
        except FedpuError as error:
            raise ValueError(str(error)) from error
        # In double precision a row's output does not depend on the rows around it, as scikit-learn asks.
        network = deepcopy(self.model_.network).double()
        values = self.model_.card.normalisation(inputs)
        with torch.no_grad():
            found: Array = network(values.double() if values.is_floating_point() else values).softmax(dim=1).numpy()
        return found

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return the accuracy on the labelled examples; those with −1 or a missing value do not count."""
        labels = column_or_1d(_objects(y))
        known = ~_unlabelled(labels)
        if not known.any():
            raise ValueError("y has no label at all: there is nothing to score on.")
        weights = None if sample_weight is None else np.asarray(sample_weight)[known]
        right = self.predict(X)[known] == labels[known]
        return float(np.average(right, weights=weights))


def _unlabelled(labels: Array) -> Array:
    """Say which labels are none: missing ones, and the number −1."""
    return np.array([is_missing(one) or (not isinstance(one, str) and one == UNLABELLED) for one in labels.tolist()])


def _is_table(X: Any) -> bool:
    """Is it a DataFrame that is more than a matrix of numbers?"""
    if type(X).__name__ != "DataFrame":
        return False
    kinds = [str(kind).lower() for kind in X.dtypes]
    if not all(kind.startswith(("int", "uint", "float")) for kind in kinds):
        return True
    return bool(np.isnan(np.asarray(X, dtype=np.float64)).any())


def _objects(y: Any) -> Any:
    """Return labels as an array; a column of words with missing ones as objects."""
    if isinstance(y, list) and any(one is None for one in y):
        return np.array(y, dtype=object)
    return y if not hasattr(y, "to_numpy") else y.to_numpy()
