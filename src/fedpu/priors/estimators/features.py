"""What kernel methods do to features first: fewer dimensions, distances, centres, folds."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Int64
from scipy.linalg import eigh

from fedpu.errors import EstimationError
from fedpu.priors.estimators.base import Matrix, Sample


def reduced(sample: Sample, components: int | None) -> Sample:
    """Return the sample on the first principal components of all its examples, or as it is when it has no more."""
    pooled = np.concatenate([*sample.positives, sample.unlabelled])
    dimensions = pooled.shape[1]
    if components is None or components >= dimensions:
        return sample
    mean = pooled.mean(axis=0)
    spread = (pooled - mean).T @ (pooled - mean)
    _, axes = eigh(spread, subset_by_index=[dimensions - components, dimensions - 1])
    return Sample(
        sample.labelled,
        tuple((array - mean) @ axes for array in sample.positives),
        (sample.unlabelled - mean) @ axes,
        sample.classes,
    )


def squared_distances(left: Float[np.ndarray, "n d"], right: Float[np.ndarray, "m d"]) -> Float[np.ndarray, "n m"]:
    """Return ‖x − y‖² of all pairs."""
    squares: Matrix = (left**2).sum(axis=1)[:, None] + (right**2).sum(axis=1) - 2 * left @ right.T
    np.maximum(squares, 0, out=squares)
    return squares


def median_square(squares: Float[np.ndarray, "n m"]) -> float:
    """Return the median of ‖x − y‖², of those that are not zero where most of them are."""
    finite = squares[np.isfinite(squares)]
    median = float(np.median(finite))
    if median == 0 and not finite.any():
        raise EstimationError(
            "The examples that were drawn are all the same, so that no class can be told from another."
        )
    return median if median > 0 else float(np.median(finite[finite > 0]))


def distances_to_drawn(groups: list[Matrix], most: int, rng: np.random.Generator) -> list[Matrix]:
    """Return each group's ‖x − c‖² to at most that many centres drawn from all of them; a centre's own is infinite."""
    pooled = np.concatenate(groups)
    chosen = rng.permutation(len(pooled))[:most]
    squares = squared_distances(pooled, pooled[chosen])
    squares[chosen, np.arange(len(chosen))] = np.inf
    return np.split(squares, np.cumsum([len(group) for group in groups])[:-1])


def drawn(array: Float[np.ndarray, "n d"], most: int, rng: np.random.Generator) -> Float[np.ndarray, "m d"]:
    """Return at most that many rows, drawn without replacement."""
    rows: Matrix = array if len(array) <= most else array[rng.choice(len(array), most, replace=False)]
    return rows


def fold_numbers(n: int, folds: int, rng: np.random.Generator) -> Int64[np.ndarray, " n"]:
    """Return the fold of each of n examples: even sizes, drawn at random."""
    numbers: Int64[np.ndarray, " n"] = rng.permutation(np.arange(n) % folds)
    return numbers
