"""Pearson divergence (du Plessis & Sugiyama 2014)."""

from __future__ import annotations

from typing import Literal

import numpy as np
from jaxtyping import Float
from pydantic import Field, PositiveFloat, PositiveInt

from fedpu.priors.estimators.base import Estimator, Matrix, Sample, Statistic, Vector
from fedpu.priors.estimators.features import drawn, fold_numbers, median_square, reduced, squared_distances
from fedpu.priors.estimators.simplex import quadratic
from fedpu.randomness import numpy_generator


class Pe(Estimator):
    """Match Σ_i θ_i p_i(x) to p_U(x) by least squares: PE(θ) = ½ ∫ (Σ_i θ_i p_i / p_U − 1)² p_U dx.

    The ratios r_i = p_i / p_U are had directly, as Σ_l α_l φ_l with Gaussian φ_l centred at positives:
    α_i = (H + λI)⁻¹ h_i, H = E_U[φφᵀ], h_i = E_i[φ]; width and λ are cross-validated on the least-squares error of the
    ratios. Then, with A_ij = h_iᵀα_j + α_iᵀh_j − α_iᵀHα_j,

        PE(θ) = ½ θᵀAθ − Σ_i θ_i + ½,

    minimised over {θ ≥ 0, Σθ ≤ 1}; for one class that is the paper's θ = (2hᵀG⁻¹h − hᵀG⁻¹HG⁻¹h)⁻¹, G = H + λI. Nothing
    stands for the hidden negatives: the estimate is right where they don't overlap with the positives, and too high
    where they do.

    Bootstrap: the fitted ratios stay, and their means over the positives and U are resampled.
    """

    name: Literal["pe"] = "pe"
    components: PositiveInt | None = Field(20, description="principal components that are kept; none: all features")
    centres: PositiveInt = Field(200, description="most centres of Gaussian functions")
    folds: int = Field(5, ge=2, description="of the cross-validation")
    widths: tuple[PositiveFloat, ...] = Field(
        tuple(float(w) for w in np.logspace(-1, 0.7, 8)), description="candidates, in medians of the distances"
    )
    penalties: tuple[PositiveFloat, ...] = Field(
        tuple(float(p) for p in np.logspace(-3, 1, 9)), description="candidates for λ"
    )

    def fit(self, sample: Sample, seed: int) -> Statistic:
        """Fit the ratios, and return the estimate as a function of the examples' weights."""
        sample = reduced(sample, self.components)
        rng = numpy_generator(seed, "pe")
        centres = drawn(np.concatenate(sample.positives), self.centres, rng)
        groups = [*sample.positives, sample.unlabelled]
        squares = [squared_distances(group, centres) for group in groups]
        folds = [fold_numbers(len(group), self.folds, rng) for group in groups]
        median = float(np.sqrt(median_square(np.concatenate(squares))))
        best, width, penalty = np.inf, self.widths[0], self.penalties[0]
        for candidate in self.widths:
            kernels = [np.exp(-d / (2 * (candidate * median) ** 2)) for d in squares]
            errors = sum(
                self._errors(
                    [k[f != fold] for k, f in zip(kernels, folds, strict=True)],
                    [k[f == fold] for k, f in zip(kernels, folds, strict=True)],
                )
                for fold in range(self.folds)
            )
            if np.min(errors) < best:
                best, width, penalty = float(np.min(errors)), candidate, self.penalties[int(np.argmin(errors))]
        kernels = [np.exp(-d / (2 * (width * median) ** 2)) for d in squares]
        squared, means = _moments(kernels)
        weights = np.linalg.solve(squared + penalty * np.eye(len(squared)), means)
        ratios = [kernel @ weights for kernel in kernels]

        def statistic(positives: list[Vector], unlabelled: Vector) -> Vector:
            cross = np.stack([w @ r for w, r in zip(positives, ratios[:-1], strict=True)])
            return sample.full(least_squares(cross + cross.T - (unlabelled[:, None] * ratios[-1]).T @ ratios[-1]))

        return statistic

    def _errors(self, trained: list[Matrix], held_out: list[Matrix]) -> Vector:
        """Return for each λ the held-out Σ_i ½ αᵢᵀHαᵢ − αᵢᵀhᵢ, α from the other folds."""
        squared, means = _moments(trained)
        values, axes = np.linalg.eigh(squared)
        turned = axes.T @ means
        test_squared, test_means = _moments(held_out)
        errors = []
        for penalty in self.penalties:
            weights = axes @ (turned / (np.maximum(values, 0) + penalty)[:, None])
            errors.append(float(0.5 * (weights * (test_squared @ weights)).sum() - (weights * test_means).sum()))
        return np.array(errors)


def least_squares(products: Float[np.ndarray, "k k"]) -> Float[np.ndarray, " k"]:
    """Return the θ of {θ ≥ 0, Σθ ≤ 1} that minimises ½ θᵀAθ − Σ_i θ_i."""
    # On a resample the products may have a direction of no or negative size, in which nothing is to be minimised.
    sizes, axes = np.linalg.eigh(products)
    return quadratic((axes * np.maximum(sizes, 1e-9)) @ axes.T, np.ones(len(products)), at_most=True)


def _moments(kernels: list[Matrix]) -> tuple[Float[np.ndarray, "b b"], Float[np.ndarray, "b k"]]:
    """Return H = E_U[φφᵀ], and h_i = E_i[φ] in columns; the last of ``kernels`` is that of U."""
    unlabelled = kernels[-1]
    return unlabelled.T @ unlabelled / len(unlabelled), np.stack([k.mean(axis=0) for k in kernels[:-1]], axis=1)
