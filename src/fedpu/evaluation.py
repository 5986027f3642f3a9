"""How good a model is: on a test set, over all classes and for each, and what partly labelled data can say of it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int64
from torch import Tensor, nn

from fedpu.engine import predict
from fedpu.labelling import TestSet

BINS = 15
"""of confidence, in which calibration is measured"""
NORMAL_95 = 1.959964
"""the 97.5 % quantile of the normal distribution, for intervals of 95 %"""


@dataclass(frozen=True)
class Metrics:
    """Test metrics; accuracies between 0 and 1. A class without test examples has none."""

    accuracy: float
    loss: float
    per_class_accuracy: list[float | None]


@dataclass(frozen=True)
class Measures:
    """All that is measured of a final model. What can't be said, such as the recall of a class without examples, is
    None.
    """

    examples: int
    accuracy: float
    loss: float
    macro_f1: float | None
    """mean of F1 over the classes that have one"""
    calibration_error: float
    """expected calibration error: how far confidence is from accuracy, over bins of confidence by their examples"""
    brier: float
    """mean squared distance of the probabilities from the truth, between 0 and 2"""
    confusion: list[list[int]]
    """examples by true class (rows) and predicted class (columns)"""
    classes: list[dict[str, Any]]
    """by class: ``class``, ``examples``, ``precision``, ``recall``, ``f1`` and ``calibration_error``"""
    calibration: list[dict[str, float]]
    """bins of the confidence in the predicted class: mean ``confidence``, ``accuracy``, ``examples``"""


def evaluate(network: nn.Module, test: TestSet, classes: int, device: torch.device) -> Metrics:
    """Measure a network on the test set."""
    logits = predict(network, test.inputs, test.normalisation, device)
    right = (logits.argmax(dim=1) == test.labels).double()
    counts = torch.bincount(test.labels, minlength=classes)
    hits = torch.bincount(test.labels, weights=right, minlength=classes)
    return Metrics(
        accuracy=float(right.mean()),
        loss=float(F.cross_entropy(logits.double(), test.labels)),
        per_class_accuracy=[float(h / c) if c else None for h, c in zip(hits, counts, strict=True)],
    )


def measure(logits: Float[Tensor, "n C"], labels: Int64[Tensor, " n"], names: tuple[str, ...]) -> Measures:
    """Return everything that is measured of a model's outputs on examples whose classes are known."""
    count = len(names)
    chances = logits.double().softmax(dim=1)
    sureness, chosen = chances.max(dim=1)
    confusion = torch.bincount(labels * count + chosen, minlength=count * count).view(count, count)
    truth = F.one_hot(labels, count).double()
    found = [_of_class(confusion, cls) for cls in range(count)]
    scores = [one["f1"] for one in found if one["f1"] is not None]
    return Measures(
        examples=len(labels),
        accuracy=float((chosen == labels).double().mean()),
        loss=float(F.cross_entropy(logits.double(), labels)),
        macro_f1=sum(scores) / len(scores) if scores else None,
        calibration_error=_calibration_error(sureness, (chosen == labels).double()),
        brier=float(((chances - truth) ** 2).sum(dim=1).mean()),
        confusion=confusion.tolist(),
        classes=[
            {"class": name, **one, "calibration_error": _calibration_error(chances[:, cls], truth[:, cls])}
            for cls, (name, one) in enumerate(zip(names, found, strict=True))
        ],
        calibration=_bins(sureness, (chosen == labels).double()),
    )


def _of_class(confusion: Int64[Tensor, "C C"], cls: int) -> dict[str, Any]:
    hits, there, named = int(confusion[cls, cls]), int(confusion[cls].sum()), int(confusion[:, cls].sum())
    return {
        "examples": there,
        "precision": hits / named if named else None,
        "recall": hits / there if there else None,
        "f1": 2 * hits / (there + named) if there + named else None,
    }


def _bins(chances: Float[Tensor, " n"], came_true: Float[Tensor, " n"]) -> list[dict[str, float]]:
    place = (chances * BINS).long().clamp(max=BINS - 1)
    counts = torch.bincount(place, minlength=BINS)
    sums = [torch.bincount(place, weights=values, minlength=BINS) for values in (chances, came_true)]
    return [
        {"confidence": float(told / n), "accuracy": float(true / n), "examples": int(n)}
        for n, told, true in zip(counts, *sums, strict=True)
        if n
    ]


def _calibration_error(chances: Float[Tensor, " n"], came_true: Float[Tensor, " n"]) -> float:
    bins = _bins(chances, came_true)
    return sum(one["examples"] * abs(one["confidence"] - one["accuracy"]) for one in bins) / len(chances)


def interval(hits: int, examples: int) -> tuple[float, float] | None:
    """Return Wilson's interval of 95 % for a share, or None where there is no example."""
    if not examples:
        return None
    share, z = hits / examples, NORMAL_95
    middle = share + z * z / (2 * examples)
    half = z * math.sqrt(share * (1 - share) / examples + z * z / (4 * examples * examples))
    scale = 1 + z * z / examples
    return max((middle - half) / scale, 0.0), min((middle + half) / scale, 1.0)


def estimates(
    measures: Measures, priors: Float[Tensor, " C"] | None, predicted: Float[Tensor, " C"], priors_are: str
) -> dict[str, Any]:
    """Return what partly labelled data say of a model: estimates, which rest on class shares and on how was labelled.

    ``measures`` are those of labelled examples alone, ``predicted`` is the share of all data, labelled or not, that the
    model puts into each class. If the labelled examples of a class are a random sample of it, their recall is that of
    the class; then the accuracy is Σ_c π_c · recall_c, and the precision of a class π_c · recall_c / (its predicted
    share). Without class shares (``priors`` is None) there is the recall alone.
    """
    shares: list[Any] = [None] * len(measures.classes)
    if priors is not None:
        shares = (priors.double() / priors.double().sum()).tolist()
    classes: list[dict[str, Any]] = []
    for one, share, named in zip(measures.classes, shares, predicted.tolist(), strict=True):
        recall = one["recall"]
        hits = 0 if recall is None else round(recall * one["examples"])
        precision = None if recall is None or share is None or not named else min(share * recall / named, 1.0)
        f1 = None
        if recall is not None and precision is not None:
            f1 = 2 * precision * recall / (precision + recall) if precision + recall else 0.0
        classes.append(
            {
                "class": one["class"],
                "share": share,
                "predicted_share": named,
                "recall": recall,
                "recall_interval": interval(hits, one["examples"]),
                "precision": precision,
                "f1": f1,
            }
        )
    known = all(one["recall"] is not None and one["share"] is not None for one in classes)
    return {
        "accuracy": sum(one["share"] * one["recall"] for one in classes) if known else None,
        "priors": priors_are if priors is not None else None,
        "assumes": "the labelled examples of each class are a random sample of that class",
        "classes": classes,
    }
