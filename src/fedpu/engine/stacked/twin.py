"""Which twin of a network trains without a graph: a stack of networks with few channels, or single wide ones."""

from __future__ import annotations

from torch import nn

from fedpu.engine.stacked.network import StackedNetwork
from fedpu.engine.stacked.wide import WideNetwork

Twin = StackedNetwork | WideNetwork


def twin_of(network: nn.Module) -> Twin | None:
    """Return a network's twin; a matter of its layers alone, so that it is the same for every worker."""
    return StackedNetwork.of(network) or WideNetwork.of(network)


def why_no_twin(network: nn.Module) -> str | None:
    """Say what keeps a network from having a twin; nothing, where it has one."""
    return None if twin_of(network) is not None else WideNetwork.missing(network) or StackedNetwork.missing(network)
