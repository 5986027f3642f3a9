"""A client's estimates of its own class priors: kept between rounds in its node's state of the run, told to nobody."""

from __future__ import annotations

from typing import Any

import torch
from flwr.app import ConfigRecord, Context
from jaxtyping import Float
from torch import Tensor, nn

from fedpu.engine import ModelState, Work
from fedpu.engine.estimating import OwnPriors, estimate
from fedpu.labelling import Client
from fedpu.priors import Priors

STATE = "priors"


def estimated_priors(
    context: Context, client: Client, network: nn.Module, settings: Priors, model: ModelState, work: Work, seed: int
) -> Float[Tensor, " C"]:
    """Return the priors by now, after a new estimate where one is due. ``network`` is filled with the global model."""
    kept = _kept(context, client)
    if kept.due(work.round, settings):
        network.load_state_dict(model)
        kept = estimate(kept, client, network, settings, work, seed)
        context.state[STATE] = ConfigRecord(
            {"priors": kept.priors.tolist(), "own": kept.own.tolist(), "last": kept.last}
        )
    return kept.priors.float()


def _kept(context: Context, client: Client) -> OwnPriors:
    """Return what the state holds; a node that was started anew begins with its first guess."""
    if STATE not in context.state:
        assert client.priors is not None
        return OwnPriors.initial(client.priors)
    record: Any = context.state[STATE]
    priors, own = (torch.tensor(record[name], dtype=torch.float64) for name in ("priors", "own"))
    return OwnPriors(priors, own, int(record["last"]))
