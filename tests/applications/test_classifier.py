"""The estimator: partly labelled data, clients, pipelines, grids, images, tables and token ids."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from sklearn.base import clone
from sklearn.datasets import load_digits, make_blobs
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from fedpu import FedPUClassifier
from fedpu.method import UPPER

X, NUMBERS = make_blobs(240, centers=3, n_features=4, cluster_std=1.5, random_state=0)
NAMES = np.array(["cat", "dog", "owl"])[NUMBERS]
CLIENT = np.arange(240) % 3
OWN = NUMBERS == CLIENT  # every client has labelled one class


def quick(**settings: object) -> FedPUClassifier:
    # Estimating class shares takes most of the time of so short a training.
    return FedPUClassifier(**({"rounds": 5, "lr": 0.1, "priors": [1 / 3] * 3} | settings))


@pytest.mark.parametrize(
    "labels",
    [
        np.where(OWN, NAMES, None),
        np.where(OWN, NAMES.astype(object), np.nan),
        pd.Series(np.where(OWN, NAMES, None)),
        np.where(OWN, NAMES, None).tolist(),
    ],
    ids=["None", "NaN", "Series", "list"],
)
def test_a_missing_value_is_no_label(labels: object) -> None:
    fitted = quick().fit(X, labels, client=CLIENT)
    assert fitted.classes_.tolist() == ["cat", "dog", "owl"]
    assert (fitted.predict(X) == NAMES).mean() > 0.9
    assert np.allclose(fitted.predict_proba(X).sum(axis=1), 1)


def test_minus_one_is_no_label_and_gives_the_same_model_as_a_missing_value() -> None:
    numbers = quick().fit(X, np.where(OWN, NUMBERS, -1), client=CLIENT)
    missing = quick().fit(X, np.where(OWN, NUMBERS, np.nan), client=CLIENT)
    assert np.array_equal(numbers.predict_proba(X), missing.predict_proba(X))
    assert numbers.classes_.tolist() == [0, 1, 2]


def test_without_clients_and_with_every_label_it_is_plain_supervised_training() -> None:
    plain, other = quick().fit(X, NAMES), quick(method="aligned").fit(X, NAMES)
    assert np.array_equal(plain.predict_proba(X), other.predict_proba(X))
    assert plain.method_ == UPPER
    assert (plain.predict(X) == NAMES).mean() > 0.9
    assert quick().fit(X, np.where(OWN, NAMES, None)).method_ != UPPER


def test_one_labelled_class_is_refused_since_unlabelled_is_no_class() -> None:
    with pytest.raises(ValueError, match="one class, 1, besides unlabelled examples"):
        quick().fit(X, np.where(OWN, 1, -1))
    with pytest.raises(ValueError, match="no label at all"):
        quick().fit(X, np.full(240, -1))


def test_it_works_in_pipelines_and_grid_search_with_clients() -> None:
    labels = np.where(np.arange(240) % 2, NAMES, None)
    piped = make_pipeline(StandardScaler(), quick())
    piped.fit(X, labels, fedpuclassifier__client=CLIENT)
    assert piped.score(X, labels) > 0.9  # on the labelled examples
    search = GridSearchCV(quick(rounds=2), {"lr": [0.001, 0.1]}, cv=2)
    search.fit(X, np.where(np.arange(240) % 2, NUMBERS, -1), client=CLIENT)
    assert search.best_params_ == {"lr": 0.1}
    assert search.best_estimator_.model_.classes == ("0", "1", "2")


def test_it_takes_images_sparse_matrices_tables_and_token_ids() -> None:
    images, digits = load_digits(return_X_y=True)
    images = images.reshape(-1, 8, 8)[:300]
    assert quick(rounds=3).fit(images, digits[:300]).predict(images[:7]).shape == (7,)

    words = [f"{name} is a {name}, {number}" for name, number in zip(NAMES, NUMBERS, strict=True)]
    texts = TfidfVectorizer().fit_transform(words)
    assert scipy.sparse.issparse(texts)
    assert quick().fit(texts, np.where(OWN, NAMES, None), client=CLIENT).score(texts, NAMES) == 1

    frame = pd.DataFrame({"size": X[:, 0], "kind": NAMES, "more": np.where(OWN, np.nan, X[:, 1])})
    fitted = quick().fit(frame, NAMES)
    assert fitted.score(frame, NAMES) > 0.9
    assert fitted.feature_names_in_.tolist() == ["size", "kind", "more"]
    assert fitted.predict(frame[:3].assign(kind="newt")).shape == (3,)

    ids = np.where(np.arange(240)[:, None] % 2, [5, 6, 0], [7, 8, 9])
    told = quick(tokens=True, rounds=10, lr=0.5).fit(ids, np.arange(240) % 2)
    assert told.score(ids, np.arange(240) % 2) == 1


def test_given_class_shares_are_used() -> None:
    labels = np.where(OWN, NAMES, None)
    even, lopsided, estimated = (
        quick(priors=priors, rounds=2).fit(X, labels, client=CLIENT).predict_proba(X)
        for priors in ([1 / 3] * 3, [0.1, 0.1, 0.8], "estimated")
    )
    assert not np.array_equal(even, lopsided)
    assert not np.array_equal(estimated, lopsided)


def test_mistakes_are_value_errors_with_our_sentences() -> None:
    with pytest.raises(ValueError, match="Did you mean 'fedpu'"):
        quick(method="fdpu").fit(X, np.where(OWN, NAMES, None))
    with pytest.raises(ValueError, match=r"clients were given|client has 3"):
        quick().fit(X, NAMES, client=[1, 2, 3])
    with pytest.raises(ValueError, match="nothing to score on"):
        quick().fit(X, NAMES).score(X, np.full(240, -1))
    assert clone(quick(method="aligned")).method == "aligned"
