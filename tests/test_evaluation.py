"""Measures of a model, against scikit-learn's and against a world whose truth is known."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.stats import binomtest
from sklearn.metrics import brier_score_loss, confusion_matrix, log_loss, precision_recall_fscore_support

import fedpu
from command import fedpu as command
from fedpu.evaluation import estimates, interval, measure

NAMES = ("a", "b", "c", "d")


def test_measures_are_scikit_learns() -> None:
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(500, 4, generator=generator) * 2
    labels = torch.randint(3, (500,), generator=generator)  # the last class has no example
    found = measure(logits, labels, NAMES)
    chances, chosen = logits.double().softmax(dim=1), logits.argmax(dim=1)
    assert found.confusion == confusion_matrix(labels, chosen, labels=range(4)).tolist()
    precision, recall, f1, counts = precision_recall_fscore_support(labels, chosen, labels=range(4), zero_division=0)
    for cls, one in enumerate(found.classes):
        assert one["class"] == NAMES[cls]
        assert one["examples"] == counts[cls]
        assert one["precision"] == pytest.approx(precision[cls])
        assert one["f1"] == pytest.approx(f1[cls])
        assert one["recall"] == (pytest.approx(recall[cls]) if counts[cls] else None)
    assert found.loss == pytest.approx(log_loss(labels, chances, labels=range(4)))
    squares = sum(brier_score_loss(labels == cls, chances[:, cls]) for cls in range(3))
    assert found.brier == pytest.approx(squares + float((chances[:, 3] ** 2).mean()))


def test_calibration_error_by_hand() -> None:
    # Ten examples that are .9 sure, of which seven are right; four that are .6 sure, of which all are.
    chances = torch.tensor([[0.9, 0.1]] * 10 + [[0.4, 0.6]] * 4, dtype=torch.float64)
    labels = torch.tensor([0] * 7 + [1] * 3 + [1] * 4)
    found = measure(chances.log(), labels, ("x", "y"))
    assert found.calibration_error == pytest.approx((10 * 0.2 + 4 * 0.4) / 14)
    assert [(one["examples"], round(one["accuracy"], 3)) for one in found.calibration] == [(4, 1.0), (10, 0.7)]


def test_the_interval_is_wilsons() -> None:
    for hits, examples in ((0, 5), (3, 5), (47, 50)):
        wilson = binomtest(hits, examples).proportion_ci(method="wilson")
        assert interval(hits, examples) == pytest.approx((wilson.low, wilson.high), abs=1e-6)
    assert interval(0, 0) is None


def test_estimates_from_a_biased_choice_of_labelled_examples_are_those_of_the_population() -> None:
    """Labels are given to 90 % of one class and 5 % of another, at random within each."""
    rng = np.random.default_rng(0)
    truth = rng.choice(3, 60_000, p=[0.6, 0.3, 0.1])
    right = rng.random(60_000) < np.array([0.95, 0.6, 0.8])[truth]
    chosen = np.where(right, truth, (truth + 1) % 3)
    logits = torch.nn.functional.one_hot(torch.from_numpy(chosen), 3).float() * 5
    labelled = rng.random(60_000) < np.array([0.05, 0.9, 0.3])[truth]
    on_labelled = measure(logits[labelled], torch.from_numpy(truth[labelled]), ("a", "b", "c"))
    of_all = measure(logits, torch.from_numpy(truth), ("a", "b", "c"))
    shares = torch.from_numpy(np.bincount(chosen) / len(chosen))
    told = estimates(on_labelled, torch.tensor([0.6, 0.3, 0.1]), shares, "given")
    assert abs(on_labelled.accuracy - of_all.accuracy) > 0.1  # what it must not be taken for
    assert told["accuracy"] == pytest.approx(of_all.accuracy, abs=0.01)
    for one, true in zip(told["classes"], of_all.classes, strict=True):
        assert one["precision"] == pytest.approx(true["precision"], abs=0.02)
        low, high = one["recall_interval"]
        assert low <= one["recall"] <= high


def partly_labelled(digits: fedpu.Dataset) -> fedpu.Dataset:
    hidden = np.where(np.arange(len(digits.labels)) % 2, digits.labels, -1)
    return fedpu.Dataset.from_arrays(digits.inputs, hidden, name="partly")


def test_the_record_says_on_what_a_number_was_measured(digits: fedpu.Dataset, tmp_path: Path) -> None:
    quick = ("aggregation.rounds=2", "engine.workers=1")
    data = partly_labelled(digits)
    partly = fedpu.run(fedpu.config_for(data, *quick), data=data, out=tmp_path / "partly").summary
    assert not partly["measured_on"]["is_accuracy"]
    assert partly["measured_on"]["examples"] == partly["measures"]["examples"] == len(data.test_labels)
    assert 0 < partly["estimates"]["accuracy"] < 1
    assert partly["estimates"]["priors"] == "estimated"
    line = json.loads((tmp_path / "partly" / "rounds.jsonl").read_text().splitlines()[-1])
    assert line["measured_on"] == "labelled examples set aside"

    fully = fedpu.run(fedpu.config_for(digits, *quick), data=digits).summary
    assert fully["measured_on"]["is_accuracy"]
    assert "estimates" not in fully
    assert np.trace(fully["measures"]["confusion"]) / len(digits.test_labels) == pytest.approx(fully["accuracy"])

    nothing = fedpu.Dataset.from_arrays(digits.inputs, digits.labels, test_fraction=0.0)
    unmeasured = fedpu.run(fedpu.config_for(nothing, *quick), data=nothing)
    assert unmeasured.summary["measured_on"] is None
    with pytest.raises(fedpu.FedpuError, match="there was no test set to measure it on"):
        unmeasured.accuracy  # noqa: B018


def test_evaluate_shows_every_measure(digits: fedpu.Dataset, tmp_path: Path) -> None:
    np.savez(tmp_path / "own.npz", x=digits.inputs, y=np.where(np.arange(len(digits.labels)) % 2, digits.labels, -1))
    given = ["--set=priors.source=given", "--set=priors.values=0.1"]
    run = ["run", "--data", "own.npz", "--set=aggregation.rounds=2", "--set=engine.workers=1", "--out", "r"]
    printed = command(*run, *given, cwd=tmp_path)
    assert "labelled examples set aside are right; estimated accuracy" in printed.stdout
    assert "accuracy" not in printed.stderr.replace("right of labelled", "")
    shown = command("evaluate", "r", cwd=tmp_path).stdout
    for word in ("recall", "precision", "F1", "calibration error", "predicted class", "only partly labelled"):
        assert word in shown, word
    found = json.loads(command("evaluate", "r", "--json", cwd=tmp_path).stdout)
    assert found["confusion"] == json.loads((tmp_path / "r" / "result.json").read_text())["measures"]["confusion"]
    np.savez(tmp_path / "tests.npz", x=digits.test_inputs, y=digits.test_labels)
    others = json.loads(command("evaluate", "r", "--data", "tests.npz", "--json", cwd=tmp_path).stdout)
    assert others["examples"] == len(digits.test_labels)  # all of them, for nothing is trained on these
    assert others["measured_on"]["is_accuracy"]
