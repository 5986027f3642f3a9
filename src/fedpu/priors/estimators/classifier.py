"""Scores where there are only features: a classifier of labelled against unlabelled, cross-fitted.

No example is scored by a classifier that it trained.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal

import numpy as np
import torch
from jaxtyping import Float, Int64
from pydantic import Field, PositiveFloat, PositiveInt
from torch import Tensor, nn

from fedpu.errors import EstimationError
from fedpu.priors.estimators.base import Estimator, Matrix, Sample, Vector
from fedpu.priors.estimators.features import fold_numbers
from fedpu.randomness import numpy_generator, torch_generator, torch_seed

Kind = Literal["mlp", "logistic", "trees", "none"]


class ClassifierEstimator(Estimator):
    """What the estimators from one score an example share: where the score comes from.

    One classifier of k + 1 groups, the k labelled classes and U, is trained on all folds but one and scores that one.
    The score of class i is P(labelled i | x, labelled i or unlabelled), to which other labelled classes don't matter.
    """

    fewest: ClassVar[int] = 10

    classifier: Kind = Field(
        "mlp", description='what is trained on features; "none": they are scores already, one column per class'
    )
    folds: int = Field(5, ge=2, description="of the cross-fitting")
    hidden: PositiveInt = Field(200, description="for mlp: size of the hidden layer")
    steps: PositiveInt = Field(200, description="for mlp: steps of AdamW on batches of 100")
    weight_decay: float = Field(0.1, ge=0, description="for mlp: of AdamW")
    strength: PositiveFloat = Field(0.01, description="for logistic: inverse of the L2 penalty")

    def scores(self, sample: Sample, seed: int) -> list[tuple[Vector, Vector]]:
        """Return for each labelled class the scores of its positives and of U."""
        if self.classifier == "none":
            return [_columns(sample, at) for at in range(len(sample.labelled))]
        groups = [*sample.positives, sample.unlabelled]
        smallest = min(len(group) for group in groups)
        if smallest < 2 * self.folds:
            raise EstimationError(
                f"Cross-fitting in {self.folds} folds needs {2 * self.folds} examples of every labelled class and of U;"
                f" the smallest has {smallest}."
            )
        features = _standardised(np.concatenate(groups))
        sizes = [len(group) for group in groups]
        targets = np.repeat(np.arange(len(groups)), sizes)
        rng = numpy_generator(seed, "cross-fitting")
        folds = np.concatenate([fold_numbers(size, self.folds, rng) for size in sizes])
        odds = np.empty((len(features), len(groups)))
        for fold in range(self.folds):
            test = folds == fold
            odds[test] = self._log_odds(features[~test], targets[~test], features[test], seed, fold)
        ends = np.cumsum(sizes)
        against = 1 / (1 + np.exp(np.clip(odds[:, -1:] - odds[:, :-1], -700, 700)))
        return [
            (against[ends[at] - sizes[at] : ends[at], at], against[ends[-2] :, at])
            for at in range(len(sample.labelled))
        ]

    def _log_odds(
        self,
        features: Float[np.ndarray, "n d"],
        targets: Int64[np.ndarray, " n"],
        test: Float[np.ndarray, "m d"],
        seed: int,
        fold: int,
    ) -> Float[np.ndarray, "m k"]:
        """Train on features and targets, and return the log-probabilities of the test examples, up to a constant."""
        if self.classifier == "mlp":
            return self._mlp(features, targets, test, seed, fold)
        # scikit-learn takes a second to import, which only those who use it should pay.
        from sklearn.ensemble import HistGradientBoostingClassifier
        from sklearn.linear_model import LogisticRegression

        model = (
            LogisticRegression(C=self.strength, max_iter=1000)
            if self.classifier == "logistic"
            else HistGradientBoostingClassifier(max_iter=60, early_stopping=False)
        )
        found: Matrix = np.log(np.maximum(model.fit(features, targets).predict_proba(test), 1e-300))
        return found

    def _mlp(
        self,
        features: Float[np.ndarray, "n d"],
        targets: Int64[np.ndarray, " n"],
        test: Float[np.ndarray, "m d"],
        seed: int,
        fold: int,
    ) -> Float[np.ndarray, "m k"]:
        inputs, wanted = torch.from_numpy(features).float(), torch.from_numpy(targets)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(torch_seed(seed, "cross-fitting weights", fold))
            network = nn.Sequential(
                nn.Linear(features.shape[1], self.hidden), nn.ReLU(), nn.Linear(self.hidden, int(targets.max()) + 1)
            )
        optimiser = AdamW(list(network.parameters()), lr=1e-3, weight_decay=self.weight_decay)
        batches = torch_generator(seed, "cross-fitting batches", fold)
        order = torch.empty(0, dtype=torch.int64)
        for _ in range(self.steps):
            if not len(order):
                order = torch.randperm(len(inputs), generator=batches)
            batch, order = order[:100], order[100:]
            optimiser.step(nn.functional.cross_entropy(network(inputs[batch]), wanted[batch]))
        with torch.no_grad():
            found: Matrix = network(torch.from_numpy(test).float()).double().numpy()
        return found


class AdamW:
    """The steps of ``torch.optim.AdamW`` to the bit, without the second and more that its first step takes to import
    PyTorch's compiler.
    """

    betas, eps = (0.9, 0.999), 1e-8

    def __init__(self, parameters: Sequence[nn.Parameter], lr: float, weight_decay: float) -> None:
        self.parameters, self.lr, self.weight_decay = parameters, lr, weight_decay
        self._moments = [(torch.zeros_like(p), torch.zeros_like(p)) for p in parameters]
        self._steps = 0

    def step(self, loss: Float[Tensor, ""]) -> None:
        """Move the parameters one step down the loss."""
        self._steps += 1
        first, second = (1 - beta**self._steps for beta in self.betas)
        gradients = torch.autograd.grad(loss, self.parameters)
        with torch.no_grad():
            for p, gradient, (mean, square) in zip(self.parameters, gradients, self._moments, strict=True):
                p.mul_(1 - self.lr * self.weight_decay)
                mean.lerp_(gradient, 1 - self.betas[0])
                square.mul_(self.betas[1]).addcmul_(gradient, gradient, value=1 - self.betas[1])
                p.addcdiv_(mean, (square.sqrt() / second**0.5).add_(self.eps), value=-self.lr / first)


def _columns(sample: Sample, at: int) -> tuple[Vector, Vector]:
    columns, c = sample.unlabelled.shape[1], sample.labelled[at]
    if columns == 1 and len(sample.labelled) == 1:
        return sample.positives[0][:, 0], sample.unlabelled[:, 0]
    if columns != sample.classes:
        raise EstimationError(
            f'With classifier = "none" the arrays are scores, one column for each of {sample.classes} classes, or one '
            f"column for one labelled class; they have {columns} columns and {len(sample.labelled)} labelled classes."
        )
    return sample.positives[at][:, c], sample.unlabelled[:, c]


def _standardised(features: Matrix) -> Matrix:
    spread = features.std()
    scaled: Matrix = (features - features.mean(axis=0)) / (spread if spread > 0 else 1.0)
    return scaled
