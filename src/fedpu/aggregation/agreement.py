"""Agreement: clients that contradict the others round after round are left out.

Clients that label different classes move the model in different directions. Those of one round tell little: where each
class is labelled by one client, honest updates are at right angles to each other, and everything that trusts a round's
majority (medians, trimmed means, Krum) throws away what only one client knows. Over many rounds chance cancels, and a
lie does not: whoever flips signs, swaps labels or holds the model back works *against* those who label the same
classes. The server keeps for every client

    a_k ← β a_k + δ_k / ‖δ_k‖

and the cosines c_jk of a_j and a_k. The client with the least mean cosine to the others is left out if that is below
−threshold, then the next among those that are left, up to a share of the round's clients. The others are averaged with
the weights n_k/n. Nobody is cut for being different: at right angles the mean cosine is zero. Nobody is cut for good,
either: who agrees again counts again.

What it can't see: lies that agree with the honest in direction (``aggregation.norm_bound`` keeps them short), and lies
on what nobody else knows. The kept vectors are as long as the model, one per client, in single precision.
"""

from __future__ import annotations

from typing import Literal

import torch
from jaxtyping import Float
from pydantic import Field
from torch import Tensor

from fedpu.aggregation.base import ServerState
from fedpu.aggregation.robust import Changes, Robust, Verdict, flat
from fedpu.round import Tensors

DIRECTIONS = "directions"


class Agreement(Robust):
    """The mean of the clients that don't work against the others."""

    name: Literal["agreement"] = "agreement"
    memory: float = Field(1.0, ge=0, le=1, description="share β of what the server remembers that is kept")
    threshold: float = Field(
        0.1, ge=0, le=1, description="for agreement: a client with a mean cosine below minus this is left out"
    )
    liars: float = Field(0.34, ge=0, lt=0.5, description="share of a round's updates that may be lies")
    norm_bound: float = Field(3.0, ge=0, le=1e9, description="as with others, and tighter")

    def start_server(self, state: ServerState) -> Tensors:
        """Return a_k = 0."""
        return {DIRECTIONS: torch.zeros(state.clients, len(flat(state.model, state.model)), dtype=torch.float32)}

    def judge(self, state: ServerState, changes: Changes) -> Verdict:
        """Leave out, one after another, those who disagree most."""
        clients = [group[0] for group in changes.clients]
        kept = state.extras[DIRECTIONS].clone()
        kept[clients] = self.memory * kept[clients] + unit(changes.vectors).float()
        directions = unit(kept[clients].double())
        cosines = directions @ directions.T
        active, told = list(range(len(clients))), {}
        for _ in range(int(self.liars * len(clients) + 1e-9)):
            mean = (cosines[active][:, active].sum(dim=1) - 1) / max(len(active) - 1, 1)
            worst = int(mean.argmin())
            if not mean[worst] < -self.threshold:
                break
            told[active.pop(worst)] = (
                f"over the rounds it works against the others (mean cosine {float(mean[worst]):.2f}): left out"
            )
        shares = changes.shares[active]
        return Verdict((shares / shares.sum()) @ changes.vectors[active], told, {DIRECTIONS: kept})


def unit(vectors: Float[Tensor, "m d"]) -> Float[Tensor, "m d"]:
    """Return vectors of length one; one of length zero stays."""
    lengths: Tensor = vectors.norm(dim=1, keepdim=True)
    return vectors / lengths.clamp(min=1e-300)
