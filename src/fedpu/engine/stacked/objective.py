"""The loss of every client of a stack: its gradient with respect to the logits, and its terms added up over steps."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from fedpu.engine.client import Begun
from fedpu.engine.stacked.plan import Columns, Step
from fedpu.method import Batch, Forward, Method
from fedpu.risk import PADDING, LinearRisk, RiskConstants, Terms, linear_risk
from fedpu.round import Tensors, overrides


class UnknownInputs(Exception):
    """The method has called the network on inputs that are none of the views it asked for."""


class Objective:
    """Differentiates a method's objective for the clients of a stack."""

    def __init__(self, method: Method, constants: RiskConstants, begun: Sequence[Begun], round_: int) -> None:
        self._method = method
        self._constants = constants
        self._begun = begun
        self._round = round_
        self.form = method.linear_form() if len(method.views) == 1 else None
        """where there is one, the inputs need not be known"""
        self._together = len(method.views) == 1 and overrides(method, Method, "stacked")
        self._table = None if self.form is None else method.table(constants)
        clients = len(constants.positive)
        self._names: tuple[str, ...] = ()
        self._sums = torch.zeros(clients, 0)
        self._seen = torch.zeros(clients)
        self.steps = [0] * clients
        """steps that each client has taken"""

    def __call__(
        self,
        logits: Float[Tensor, "K NV C"],
        labels: Int64[Tensor, "K N"],
        step: Step,
        columns: Columns,
        views: dict[str, Float[Tensor, "K *shape N"]],
    ) -> Float[Tensor, "K NV C"]:
        """Return the gradient for the first K clients; the logits of all views stand one behind the other."""
        if self.form is not None:
            names = self.form.names
            part = None if self._table is None else LinearRisk(*(column[: len(logits)] for column in self._table))
            slopes, terms = linear_risk(logits, labels, part, self.form)
        elif self._together:
            slopes, terms, names = self._differentiate_together(logits, labels, step, columns)
        else:
            slopes, terms, names = self._differentiate(logits, labels, step, columns, views)
        if len(names) > len(self._names):
            more = torch.zeros(len(self._seen), len(names) - len(self._names))
            self._names, self._sums = names, torch.cat([self._sums, more], dim=1)
        sizes = (labels != PADDING).sum(dim=1, keepdim=True)
        self._sums[: len(terms)].addcmul_(terms, sizes)
        self._seen[: len(terms)] += sizes[:, 0]
        for k in range(len(logits)):
            self.steps[k] += 1
        return slopes

    def _differentiate_together(
        self, logits: Float[Tensor, "K N C"], labels: Int64[Tensor, "K N"], step: Step, columns: Columns
    ) -> tuple[Float[Tensor, "K N C"], Float[Tensor, "K T"], tuple[str, ...]]:
        """Differentiate the objective of all clients at once, where the method says how."""
        constants = RiskConstants(*(column[: len(logits)] for column in self._constants))
        with torch.enable_grad():
            leaf = logits.detach().requires_grad_()
            terms = self._method.stacked(leaf, labels, self._examples(step, columns), constants)
        assert terms is not None
        (slopes,) = torch.autograd.grad(terms["total"].sum(), leaf)
        return slopes, torch.stack([term.detach() for term in terms.values()], dim=1), tuple(terms)

    def _examples(self, step: Step, columns: Columns) -> Tensors:
        """Return what the method has prepared for the examples of a step, with zeros where a batch is filled up."""
        places = columns.places[step.positions.clamp(min=0)]
        rows = [begun.preparation.examples for begun in self._begun[: len(places)]]
        names = rows[0] if rows else ()
        return {name: torch.stack([row[name][at] for row, at in zip(rows, places, strict=True)]) for name in names}

    def _differentiate(
        self,
        logits: Float[Tensor, "K NV C"],
        labels: Int64[Tensor, "K N"],
        step: Step,
        columns: Columns,
        views: dict[str, Float[Tensor, "K *shape N"]],
    ) -> tuple[Float[Tensor, "K NV C"], Float[Tensor, "K T"], tuple[str, ...]]:
        """Return what ``linear_risk`` does, for any method, by automatic differentiation of one client at a time."""
        slopes = torch.zeros_like(logits)
        length = labels.shape[1]
        rows: list[Terms] = []
        for k in range(len(logits)):
            count = int((labels[k] != PADDING).sum())
            own = RiskConstants(*(column[k] for column in self._constants))
            with torch.enable_grad():
                seen = {name: view[k].movedim(-1, 0)[:count] for name, view in views.items()}
                leaves = [part[:count].detach().requires_grad_() for part in logits[k].split(length)]
                batch = self._batch(k, labels[k, :count], seen, step, columns)
                terms = self._method.objective(_remembered(seen, leaves), batch, own)
            found = torch.autograd.grad(terms["total"], leaves, allow_unused=True)
            for part, slope in zip(slopes[k].split(length), found, strict=True):
                if slope is not None:
                    part[:count] = slope
            rows.append({name: term.detach() for name, term in terms.items()})
        # A batch may lack a term that another has, such as one of unlabelled examples.
        names = tuple(dict.fromkeys([*self._names, *(name for row in rows for name in row)]))
        none = logits.new_zeros(())
        return slopes, torch.stack([torch.stack([row.get(name, none) for name in names]) for row in rows]), names

    def _batch(
        self, k: int, labels: Int64[Tensor, " n"], views: dict[str, Tensor], step: Step, columns: Columns
    ) -> Batch:
        if not self._begun:
            return Batch(labels, views, round=self._round)
        begun = self._begun[k]
        places = columns.places[step.positions[k, : len(labels)]]
        examples = {name: value[places] for name, value in begun.preparation.examples.items()}
        return Batch(labels, views, examples, begun.method_state, self._round)

    def terms(self, k: int) -> dict[str, float]:
        """Return the mean of each term over the examples of one client."""
        if not self._names or not self._seen[k] > 0:
            return {}
        values = (self._sums[k].double() / self._seen[k]).tolist()
        return self._named(values)

    def mean(self, weights: Float[Tensor, " K"]) -> dict[str, float]:
        """Return the mean of each term over the clients that trained, by their weights."""
        trained = self._seen > 0
        if not self._names or not bool(trained.any()):
            return {}
        share = weights[trained] / weights[trained].sum()
        values = (share @ (self._sums[trained].double() / self._seen[trained, None])).tolist()
        return self._named(values)

    def _named(self, values: list[float]) -> dict[str, float]:
        named = dict(zip(self._names, values, strict=True))
        return named if "total" in named else named | {"total": sum(values)}


def _remembered(views: dict[str, Tensor], logits: Sequence[Tensor]) -> Forward:
    """Return a network that has been run already, on those views and on nothing else."""
    known = list(zip(views.values(), logits, strict=True))

    def forward(inputs: Tensor) -> Tensor:
        for view, output in known:
            if inputs is view:
                return output
        raise UnknownInputs

    return forward
