"""The outputs of a network on stored inputs, written once for everybody who needs them."""

from __future__ import annotations

import torch
from jaxtyping import Float, Num
from torch import Tensor, nn

from fedpu.data import Normalisation
from fedpu.engine.stacked import WideNetwork, twin_of
from fedpu.labelling import Client

BATCH = 500
WIDE_BATCH = 100
"""with many channels, so that what a layer makes is still in the cache for the next"""


@torch.no_grad()
def predict(
    network: nn.Module, inputs: Num[Tensor, "n *shape"], normalisation: Normalisation, device: torch.device
) -> Float[Tensor, "n C"]:
    """Return the logits of stored inputs, a batch at a time, on the CPU."""
    twin = twin_of(network) if device.type == "cpu" else None
    if twin is not None:  # several times faster than the network itself
        parameters = twin.views(twin.flatten(dict(network.state_dict()))[None])
        size = WIDE_BATCH if isinstance(twin, WideNetwork) else BATCH
        batches = (batch.movedim(0, -1)[None].contiguous() for batch in inputs.split(size))
        return torch.cat([twin.forward(parameters, normalisation(batch))[0].T for batch in batches])
    network = network.to(device).eval()
    return torch.cat([network(normalisation(batch.to(device))).cpu() for batch in inputs.split(BATCH)])


def client_outputs(client: Client, network: nn.Module) -> Float[Tensor, "r C"]:
    """Return the network's logits on all entries of a client, as they are."""
    device = next(network.parameters()).device
    return predict(network, client.inputs, client.normalisation, device)[client.rows].double()
