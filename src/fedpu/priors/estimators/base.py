"""The contract of a class-prior estimator: labelled positives and unlabelled data in, priors with an interval out.

An estimator never sees the labels of unlabelled data: what it is handed are arrays of examples, of each class that the
client labels and of U. It does its expensive work once, in :meth:`Estimator.fit`, and gives back a *statistic*: the
priors as a function of the weights of the examples. Equal weights give the estimate; the weights of resampled
examples give the bootstrap, which therefore repeats neither the choice of hyperparameters nor the training of a
classifier, and its interval tells of the sample alone.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
from jaxtyping import Bool, Float, Num

from fedpu.errors import EstimationError
from fedpu.priors.estimators.simplex import project
from fedpu.randomness import numpy_generator
from fedpu.registry import Choice

Vector = Float[np.ndarray, " _"]
Matrix = Float[np.ndarray, "_ _"]

Statistic = Callable[[list[Vector], Vector], Vector]
"""(weights of each class's positives, weights of U), each summing to one → the prior of each of C classes"""


@dataclass(frozen=True, eq=False)
class Estimate:
    """The class priors inside U, with bootstrap intervals at ``level``, which tell of the sample alone.

    A class that the estimator can't tell has NaN. ``negative`` is the total of the classes that have no labelled
    positives. Without a bootstrap all bounds are NaN.
    """

    priors: Float[np.ndarray, " C"]
    lower: Float[np.ndarray, " C"]
    upper: Float[np.ndarray, " C"]
    negative: float
    negative_lower: float
    negative_upper: float
    level: float
    labelled: Bool[np.ndarray, " C"]
    """which classes have labelled positives"""
    weights: Float[np.ndarray, " C"] | None = None
    """how much of each prior is estimate and not guess, where it was shrunk (:mod:`fedpu.priors.shrinkage`)"""
    unshrunk: Float[np.ndarray, " C"] | None = None
    """the priors before that"""


@dataclass(frozen=True, eq=False)
class Sample:
    """Checked arrays in float64: the examples of each labelled class, those of U, and how many classes there are."""

    labelled: tuple[int, ...]
    positives: tuple[Matrix, ...]
    unlabelled: Matrix
    classes: int

    def full(self, priors: Vector) -> Float[np.ndarray, " C"]:
        """Return the priors of the labelled classes among those of all classes, the others being NaN."""
        result = np.full(self.classes, np.nan)
        result[list(self.labelled)] = priors
        return result


class Estimator(Choice, ABC):
    """The settings of an estimator, which is also the estimator."""

    name: str = ""
    needs: ClassVar[Literal["features", "scores"]] = "features"
    """``features``: any vectors; ``scores``: a classifier's posteriors of all C classes, one a column"""
    positives_needed: ClassVar[bool] = True
    fewest: ClassVar[int] = 10
    """examples of each labelled class, and of U, below which it refuses"""

    def estimate(
        self,
        positives: Mapping[int, Num[np.ndarray, "..."]],
        unlabelled: Num[np.ndarray, "..."],
        *,
        seed: int,
        classes: int | None = None,
        bootstrap: int = 100,
        level: float = 0.95,
    ) -> Estimate:
        """Return the prior in U of every class in ``positives``.

        ``positives`` maps a class to the examples (n_i × d) labelled so, ``unlabelled`` is n × d. ``classes`` is C, by
        default one more than the largest class (for scores: their columns). ``bootstrap`` is the number of resamples
        for the intervals at ``level``; 0 leaves them out.
        """
        sample = self.sample(positives, unlabelled, classes)
        return interval(sample, self.fit(sample, seed), seed, bootstrap, level)

    @abstractmethod
    def fit(self, sample: Sample, seed: int) -> Statistic:
        """Do what is done once, and return the priors as a function of the examples' weights."""

    def sample(
        self, positives: Mapping[int, Num[np.ndarray, "..."]], unlabelled: Num[np.ndarray, "..."], classes: int | None
    ) -> Sample:
        """Return the data, checked."""
        if self.positives_needed and not positives:
            raise EstimationError(
                f"'{self.name}' needs labelled positives, and no class has any: label some examples, or use an "
                "estimator that works from a classifier's scores alone (em)."
            )
        labelled = tuple(sorted(positives))
        arrays = tuple(_checked(positives[c], f"the positives of class {c}", self.fewest) for c in labelled)
        rest = _checked(unlabelled, "the unlabelled data", self.fewest)
        for c, array in zip(labelled, arrays, strict=True):
            if array.shape[1] != rest.shape[1]:
                raise EstimationError(
                    f"The positives of class {c} have {array.shape[1]} features and the unlabelled data "
                    f"{rest.shape[1]}; they must be measured alike."
                )
        _vary(arrays, rest)
        if self.needs == "scores":
            for what, array in (("the positives", np.concatenate(arrays) if arrays else rest), ("U", rest)):
                _posteriors(array, what)
        count = classes if classes is not None else rest.shape[1] if self.needs == "scores" else max(labelled) + 1
        if self.needs == "scores" and count != rest.shape[1]:
            raise EstimationError(f"Scores have {rest.shape[1]} columns for {count} classes; give one a class.")
        if labelled and not (labelled[0] >= 0 and labelled[-1] < count):
            raise EstimationError(f"Classes are numbered 0 … {count - 1}; got positives of {list(labelled)}.")
        return Sample(labelled, arrays, rest, count)


def interval(sample: Sample, statistic: Statistic, seed: int, bootstrap: int, level: float) -> Estimate:
    """Return the statistic with its bootstrap interval: U and each class's positives are resampled apart.

    Percentiles, moved so that the median of the resamples falls on the estimate: an estimator that takes a minimum over
    noisy quantities is off by the noise, and on resamples it is off once more.
    """
    if bootstrap < 0 or not 0 < level < 1:
        raise EstimationError(f"A bootstrap needs resamples ≥ 0 and 0 < level < 1; got {bootstrap} and {level}.")
    sizes = [len(array) for array in sample.positives]
    known = list(sample.labelled)
    point = statistic([np.full(n, 1 / n) for n in sizes], np.full(len(sample.unlabelled), 1 / len(sample.unlabelled)))
    values = np.full((max(bootstrap, 1), sample.classes), np.nan)
    for replicate in range(bootstrap):
        rng = numpy_generator(seed, "prior-bootstrap", replicate)
        weights = [_resampled(n, rng) for n in sizes]
        values[replicate] = statistic(weights, _resampled(len(sample.unlabelled), rng))
    tail = (1 - level) / 2
    # The total of the classes without positives goes along as one more column.
    point = np.append(point, np.clip(1 - point[known].sum(), 0, 1))
    values = np.column_stack([values, 1 - values[:, known].sum(axis=1)])
    low, median, high = np.quantile(values, [tail, 0.5, 1 - tail], axis=0)
    lower, upper = np.clip(point + low - median, 0, 1), np.clip(point + high - median, 0, 1)
    return Estimate(
        priors=point[:-1],
        lower=lower[:-1],
        upper=upper[:-1],
        negative=float(point[-1]),
        negative_lower=float(lower[-1]),
        negative_upper=float(upper[-1]),
        level=level,
        labelled=np.isin(np.arange(sample.classes), known),
    )


def class_by_class(sample: Sample, statistics: list[Callable[[Vector, Vector], float]]) -> Statistic:
    """Return the statistic whose labelled classes are estimated one at a time, as if each were the only one.

    The result is the nearest point (Euclidean) of {θ ≥ 0, Σθ ≤ 1}.
    """

    def statistic(positives: list[Vector], unlabelled: Vector) -> Vector:
        alone = [one(weights, unlabelled) for one, weights in zip(statistics, positives, strict=True)]
        return sample.full(project(np.array(alone), at_most=True))

    return statistic


def _resampled(n: int, rng: np.random.Generator) -> Vector:
    return np.bincount(rng.integers(n, size=n), minlength=n) / n


def _checked(values: Any, what: str, fewest: int) -> Matrix:
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != 2:
        raise EstimationError(f"{_capital(what)} must be a table, one example per row; the shape is {array.shape}.")
    if len(array) < fewest:
        found = f"only {len(array)}" if len(array) else "none"
        raise EstimationError(f"There are too few of {what}: {found}, and at least {fewest} are needed.")
    bad = np.flatnonzero(~np.isfinite(array).all(axis=1))
    if len(bad):
        raise EstimationError(
            f"{_capital(what)} hold NaN or infinite values in {len(bad)} examples (the first is row {bad[0]}). Remove "
            "those examples or fill the values in."
        )
    return array


def _vary(positives: tuple[Matrix, ...], unlabelled: Matrix) -> None:
    first = unlabelled[0]
    same: Bool[np.ndarray, " n"] = np.array([bool((array == first).all()) for array in (unlabelled, *positives)])
    if unlabelled.shape[1] == 0 or same.all():
        raise EstimationError(
            "All features are constant: every example, labelled or not, is the same, so that no class can be told from "
            "another."
        )


def _posteriors(scores: Matrix, what: str) -> None:
    if (scores < 0).any() or (np.abs(scores.sum(axis=1) - 1) > 1e-3).any():
        raise EstimationError(
            f"The scores of {what} are no posteriors: every row must be non-negative and sum to 1, as a softmax does."
        )


def _capital(text: str) -> str:
    return text[0].upper() + text[1:]
