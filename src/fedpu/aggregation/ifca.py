"""IFCA, the iterative federated clustering algorithm (Ghosh et al. 2020, https://arxiv.org/abs/2006.04088).

Where groups of clients need different models, one mean serves none of them. The server keeps a model w_j for every
cluster j and sends all of them:

    client:     j_k = arg min_j R_k(w_j) on its own data, the first of equals;     it trains w_{j_k} and returns j_k too
    server:     w_j⁺ = Σ n_k w_k / Σ n_k  over the clients with j_k = j;     w_j, where nobody chose j

(The paper's averaging of models, with the weights n_k of the server's objective.) Clusters must not start alike.
Cluster 0 starts with the initial weights of the seed. Those of a layer are independent draws from one distribution, so
that the same numbers in another order are as good a draw: the other clusters start with such permutations, which
depend on nothing but the cluster's number.

The run's global model, which is evaluated, saved and used to predict, is that of the cluster with the most examples in
the last round. The models of all clusters are in the checkpoint.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Literal

import torch
from pydantic import Field
from torch import Tensor

from fedpu.aggregation.base import Aggregation, Mean, ServerState
from fedpu.randomness import torch_generator
from fedpu.round import Broadcast, Descent, Ending, Tensors, Update, Work, prefixed, under

CLUSTER, CLIENTS, EXAMPLES = "cluster", "clients", "examples"


class IFCA(Aggregation):
    """A model for every cluster of clients; clients choose their cluster anew in every round."""

    name: Literal["ifca"] = "ifca"
    clusters: int = Field(2, ge=1, le=1000, description="for ifca: number of models")
    # Clusters are far from the global model, which is one of theirs.
    norm_bound: float = Field(0.0, ge=0, le=1e9, description="as with others, and off: clusters are far apart")
    spread: float = Field(
        1.0, ge=0, le=1, description="for ifca: how far apart clusters start; 1: drawn anew, less: near the first"
    )

    def start_server(self, state: ServerState) -> Tensors:
        """Return the first model of every cluster, and how many chose it: nobody yet."""
        models = [state.model] + [state.model | self._apart(state.parameters, j) for j in range(1, self.clusters)]
        return self._kept(models, [Mean() for _ in models])

    def broadcast(self, state: ServerState) -> Tensors:
        """Send the models of all clusters."""
        return {name: value for name, value in state.extras.items() if name.startswith(CLUSTER)}

    def choose_model(self, sent: Broadcast, work: Work, loss: Callable[[Tensors], float]) -> Tensors:
        """Return the model with the least loss."""
        return min(self._models(sent.extras), key=loss)

    def end_client(
        self, sent: Broadcast, work: Work, state: Tensors, start: Tensors, trained: Tensors, descent: Descent
    ) -> Ending:
        """Tell the cluster: the first one that has the parameters that the client started from."""
        models = self._models(sent.extras)
        chosen = next(j for j in range(self.clusters) if all(torch.equal(models[j][n], start[n]) for n in start))
        return Ending({CLUSTER: torch.tensor(chosen)}, state)

    def returns(self, parameters: Tensors) -> Tensors:
        """Return what a cluster's number looks like."""
        return {CLUSTER: torch.tensor(0)}

    def combine(self, state: ServerState, updates: Iterable[Update]) -> ServerState:
        """Average every cluster's updates."""
        means = [Mean() for _ in range(self.clusters)]
        for update in updates:
            chosen = int(update.extras[CLUSTER])
            if 0 <= chosen < self.clusters:  # whatever a client on somebody else's machine has sent
                means[chosen].add(update)
        before = self._models(state.extras)
        models = [mean.of("model") if mean.examples else before[j] for j, mean in enumerate(means)]
        largest = max(range(self.clusters), key=lambda j: means[j].examples)
        model = models[largest] if means[largest].examples else state.model
        return state.after(model, **self._kept(models, means))

    def report(self, state: ServerState) -> dict[str, Any]:
        """Return how many clients and examples every cluster had in the round."""
        return {"clusters": {name: state.extras[name].tolist() for name in (CLIENTS, EXAMPLES)}}

    def _models(self, extras: Tensors) -> list[Tensors]:
        return [under(f"{CLUSTER}-{j}", extras) for j in range(self.clusters)]

    def _kept(self, models: list[Tensors], means: list[Mean]) -> Tensors:
        counts = {CLIENTS: [int(mean.clients) for mean in means], EXAMPLES: [mean.examples for mean in means]}
        named = prefixed({f"{CLUSTER}-{j}": model for j, model in enumerate(models)})
        return named | {name: torch.tensor(values) for name, values in counts.items()}

    def _apart(self, parameters: Tensors, cluster: int) -> Tensors:
        def moved(position: int, value: Tensor) -> Tensor:
            order = torch.randperm(value.numel(), generator=torch_generator(0, "cluster", cluster, position))
            return value + self.spread * (value.flatten()[order].view_as(value) - value)

        return {name: moved(position, value) for position, (name, value) in enumerate(parameters.items())}
