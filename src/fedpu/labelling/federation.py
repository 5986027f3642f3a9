"""What training may see, and what only evaluation may see: two objects that never meet.

A :class:`Federation` holds everything that clients know. The true labels of their unlabelled examples are not in it,
nor in anything that it refers to: they live in a :class:`HiddenTruth`, which no method is handed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal, NamedTuple

import torch
from jaxtyping import Bool, Float, Int64, Num
from torch import Tensor

from fedpu.data import Dataset, Normalisation

UNLABELLED = -1

Scenario = Literal["censored", "case-control"]


class ClassSummary(NamedTuple):
    """What a risk is made from besides the examples themselves, of one client or, with a leading dimension, of K."""

    positive: Bool[Tensor, "*K C"]
    priors: Float[Tensor, "*K C"] | None
    labelled: Int64[Tensor, "*K C"]
    """labelled examples of each class"""
    unlabelled: Int64[Tensor, "*K"]
    """unlabelled examples"""
    scenario: Scenario


@dataclass(frozen=True, eq=False)
class Client:
    """One client: its examples, their labels (``−1`` for unlabelled), its positive classes and its class priors."""

    inputs: Num[Tensor, "n *shape"]
    rows: Int64[Tensor, " r"]
    labels: Int64[Tensor, " r"]
    positive: Bool[Tensor, " C"]
    priors: Float[Tensor, " C"] | None
    scenario: Scenario
    normalisation: Normalisation

    def batch(self, positions: Int64[Tensor, " b"]) -> tuple[Num[Tensor, "b *shape"], Int64[Tensor, " b"]]:
        """Return the inputs, normalised (token ids as they are), and the labels at those positions."""
        return self.normalisation(self.inputs[self.rows[positions]]), self.labels[positions]

    @property
    def summary(self) -> ClassSummary:
        """What its risk is made from."""
        labelled = torch.bincount(self.labels[self.labels >= 0], minlength=len(self.positive))
        return ClassSummary(self.positive, self.priors, labelled, (self.labels < 0).sum(), self.scenario)


@dataclass(frozen=True, eq=False)
class Federation:
    """All clients in columns: client ``k`` has the entries ``offsets[k] … offsets[k + 1]`` of ``rows`` and ``labels``.

    ``inputs`` are stored in the order of the clients, shuffled within each: neither order nor place tells a class.
    ``rows`` point into ``inputs``, which are stored once and as they came. In the ``censored`` scenario every example
    is there once, labelled or not; in ``case-control`` a labelled example is there twice, with its label and again
    among the unlabelled.
    """

    inputs: Num[Tensor, "n *shape"]
    rows: Int64[Tensor, " r"]
    labels: Int64[Tensor, " r"]
    offsets: Int64[Tensor, " K1"]
    sizes: Int64[Tensor, " K"]
    positive: Bool[Tensor, "K C"]
    priors: Float[Tensor, "K C"] | None
    scenario: Scenario
    classes: tuple[str, ...]
    normalisation: Normalisation

    def __len__(self) -> int:
        return len(self.sizes)

    def span(self, k: int) -> slice:
        """Return where the entries of client ``k`` are in ``rows`` and ``labels``."""
        return slice(int(self.offsets[k]), int(self.offsets[k + 1]))

    def client(self, k: int) -> Client:
        """Return what client ``k`` knows, its own examples alone, without copying them."""
        mine = self.span(k)
        first = int(self.first_examples[k])
        return Client(
            inputs=self.inputs[first : first + int(self.sizes[k])],
            rows=self.rows[mine] - first,
            labels=self.labels[mine],
            positive=self.positive[k],
            priors=None if self.priors is None else self.priors[k],
            scenario=self.scenario,
            normalisation=self.normalisation,
        )

    def summary(self, clients: Int64[Tensor, " K"]) -> ClassSummary:
        """Return what the risks of several clients are made from."""
        labelled = self.labelled_counts[clients]
        entries = (self.offsets[1:] - self.offsets[:-1])[clients]
        priors = None if self.priors is None else self.priors[clients]
        return ClassSummary(self.positive[clients], priors, labelled, entries - labelled.sum(dim=1), self.scenario)

    @cached_property
    def labelled_counts(self) -> Int64[Tensor, "K C"]:
        """How many examples of each class each client has labelled."""
        known, classes = self.labels >= 0, len(self.classes)
        flat = self.owner[known] * classes + self.labels[known]
        return torch.bincount(flat, minlength=len(self) * classes).view(len(self), classes)

    @cached_property
    def first_examples(self) -> Int64[Tensor, " K"]:
        """Where each client's examples begin in ``inputs``."""
        return self.sizes.cumsum(0) - self.sizes

    @cached_property
    def owner(self) -> Int64[Tensor, " r"]:
        """Which client each row belongs to."""
        return torch.repeat_interleave(torch.arange(len(self)), self.offsets.diff())


@dataclass(frozen=True, eq=False)
class TestSet:
    """What a model is measured on."""

    __test__ = False  # pytest takes classes of this name for its own

    inputs: Num[Tensor, "n_test *shape"]
    labels: Int64[Tensor, " n_test"]
    normalisation: Normalisation

    @classmethod
    def of(cls, data: Dataset) -> TestSet | None:
        """Return the test set of a data set, or None where it has none."""
        if not len(data.test_labels):
            return None
        return cls(data.test_inputs, data.test_labels, data.normalisation)

    @classmethod
    def of_validation(cls, data: Dataset) -> TestSet | None:
        """Return the validation set of a data set, where it has one."""
        return None if data.validation is None else cls(*data.validation, data.normalisation)


def without_priors(federation: Federation) -> Federation:
    """Return the federation without class priors, for a method that makes no use of them."""
    return replace(federation, priors=None)


@dataclass(frozen=True, eq=False)
class HiddenTruth:
    """What nobody in training may see: the true classes of the federation's rows (``−1``: nobody knows), and where
    each of its examples stands in the data set.
    """

    labels: Int64[Tensor, " r"]
    examples: Int64[Tensor, " n"]
