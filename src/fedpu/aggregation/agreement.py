"""Agreement: clients that contradict the others round after round are left out.

Clients that label different classes move the model in different directions. Those of one round tell little: where each
class is labelled by one client, honest updates are at right angles to each other, and everything that trusts a round's
majority (medians, trimmed means, Krum) throws away what only one client knows. Over many rounds chance cancels, and a
lie does not: whoever flips signs, swaps labels or holds the model back works *against* those who label the same
classes. The server keeps for every client

    a_k ← β a_k + δ_k / ‖δ_k‖

and the cosines c_jk of a_j and a_k. The trusted client with the least mean cosine to the other trusted ones is left out
if that is below −threshold, then the next among those that are left, up to a share of the round's clients. The others
are averaged with the weights n_k/n. Where all but that share agree (a mean cosine above zero), so is one that does not,
if it is far below the median in the clients' own spread: clients that learn from unlabelled data agree a little from
the first round on, and a flipped sign shows in that long before it reaches a fixed threshold. Who was left out stays so
until its mean cosine to the trusted is positive: when a model has converged everybody's updates are small and at odds,
and lies no longer stand out. Nobody is left out for being different: at right angles the mean cosine is zero.

A few clients whose updates of a round are the same (a cosine above 0.999, which two clients' own data don't give) have
not trained on data of their own, and are left out of that round: liars who speak with one voice are so many times as
strong as one, and nothing else tells them (cf. Fung et al. 2020, https://arxiv.org/abs/1808.04866).

What it can't see: lies that agree with the honest in direction (``aggregation.norm_bound`` keeps them short), and lies
on what nobody else knows. The kept vectors are as long as the model, one per client, in single precision.
"""

from __future__ import annotations

from typing import Literal

import torch
from jaxtyping import Bool, Float
from pydantic import Field
from torch import Tensor

from fedpu.aggregation.base import ServerState
from fedpu.aggregation.robust import Changes, Robust, Verdict, flat
from fedpu.round import Tensors

DIRECTIONS, DISTRUSTED = "directions", "distrusted"
SAME = 0.999
"""two updates with a larger cosine are one"""

LEAST = 4
"""clients of whom a median and its deviation say something"""


class Agreement(Robust):
    """The mean of the clients that don't work against the others."""

    name: Literal["agreement"] = "agreement"
    memory: float = Field(1.0, ge=0, le=1, description="share β of what the server remembers that is kept")
    threshold: float = Field(
        0.1, ge=0, le=1, description="for agreement: a client with a mean cosine below minus this is left out"
    )
    apart: float = Field(
        2.0,
        ge=0,
        le=1e6,
        description="for agreement: where all but few agree, a client whose mean cosine is below zero and so many "
        "median deviations below the median is left out, too; 0: nobody is",
    )
    liars: float = Field(0.34, ge=0, lt=0.5, description="share of a round's updates that may be lies")
    norm_bound: float = Field(2.0, ge=0, le=1e9, description="as with others, and tighter")

    def start_server(self, state: ServerState) -> Tensors:
        """Return a_k = 0, and nobody distrusted."""
        directions = torch.zeros(state.clients, len(flat(state.model, state.model)), dtype=torch.float32)
        return {DIRECTIONS: directions, DISTRUSTED: torch.zeros(state.clients, dtype=torch.bool)}

    def judge(self, state: ServerState, changes: Changes) -> Verdict:
        """Leave out, one after another, those who disagree most."""
        clients = [group[0] for group in changes.clients]
        kept = state.extras[DIRECTIONS].clone()
        kept[clients] = self.memory * kept[clients] + unit(changes.vectors).float()
        directions = unit(kept[clients].double())
        trusted, mean = self._trusted(directions @ directions.T, state.extras[DISTRUSTED][clients])
        distrusted = state.extras[DISTRUSTED].clone()
        distrusted[clients] = ~trusted
        told = {
            row: f"over the rounds it works against the others (mean cosine {float(mean[row]):.2f}): left out"
            for row in (~trusted).nonzero()[:, 0].tolist()
        }
        copied = trusted & self._copied(changes.vectors)
        for row in copied.nonzero()[:, 0].tolist():
            told[row] = "its update is the same as another client's: left out"
        used = trusted & ~copied
        used = used if bool(used.any()) else trusted
        shares = changes.shares.where(used, 0)
        change = (shares / shares.sum()) @ changes.vectors
        return Verdict(change, told, {DIRECTIONS: kept, DISTRUSTED: distrusted}, used.double())

    def _trusted(
        self, cosines: Float[Tensor, "m m"], before: Bool[Tensor, " m"]
    ) -> tuple[Bool[Tensor, " m"], Float[Tensor, " m"]]:
        """Return who is trusted, and everybody's mean cosine to those that are."""
        trusted = ~before | (mean_cosines(cosines, ~before) > 0)
        most = self._most(len(cosines))
        while int((~trusted).sum()) < most:
            mean = mean_cosines(cosines, trusted)
            worst = int(mean.where(trusted, torch.inf).argmin())
            if not mean[worst] < -self.threshold and not self._apart(mean, trusted, worst):
                break
            trusted[worst] = False
        # Of the clients that a round has drawn, all may have been left out before: then there is nobody to agree with.
        trusted = trusted if bool(trusted.any()) else torch.ones_like(trusted)
        return trusted, mean_cosines(cosines, trusted)

    def _apart(self, mean: Float[Tensor, " m"], trusted: Bool[Tensor, " m"], worst: int) -> bool:
        """Does somebody disagree, if only a little, where all but few agree?"""
        own = mean[trusted]
        agree = int((own > 0).sum())
        if not self.apart or not mean[worst] < 0 or agree < LEAST or len(mean) - agree > self._most(len(mean)):
            return False
        middle = own.median()
        return bool(mean[worst] < middle - self.apart * (own - middle).abs().median())

    def _copied(self, vectors: Float[Tensor, "m d"]) -> Bool[Tensor, " m"]:
        """Return who has sent what few others have sent, too; where most are alike, that is how their data are."""
        now = unit(vectors)
        alike = (now @ now.T > SAME).sum(dim=1)
        return (alike > 1) & (alike <= self._most(len(vectors)))

    def _most(self, clients: int) -> int:
        return int(self.liars * clients + 1e-9)


def mean_cosines(cosines: Float[Tensor, "m m"], among: Bool[Tensor, " m"]) -> Float[Tensor, " m"]:
    """Return everybody's mean cosine to others of a group; zero, where there are none."""
    others = among.to(cosines) - torch.eye(len(cosines), dtype=cosines.dtype) * among
    return (cosines * others).sum(dim=1) / others.sum(dim=1).clamp(min=1)


def unit(vectors: Float[Tensor, "m d"]) -> Float[Tensor, "m d"]:
    """Return vectors of length one; one of length zero stays."""
    lengths: Tensor = vectors.norm(dim=1, keepdim=True)
    return vectors / lengths.clamp(min=1e-300)
