"""Which twin of a network trains without a graph: a stack of networks with few channels, or single wide ones."""

from __future__ import annotations

from torch import nn

from fedpu.engine.stacked.network import StackedNetwork
from fedpu.engine.stacked.wide import WideNetwork
from fedpu.models import Precision

Twin = StackedNetwork | WideNetwork


def twin_of(network: nn.Module, precision: Precision = "float32") -> Twin | None:
    """Return a network's twin; a matter of its layers alone, so that it is the same for every worker."""
    if precision == "bfloat16" and any(isinstance(module, nn.Conv2d) for module in network.modules()):
        return WideNetwork.of(network, precision)
    return StackedNetwork.of(network) or WideNetwork.of(network)


def why_no_twin(network: nn.Module, precision: Precision = "float32") -> str | None:
    """Say what keeps a network from having a twin; nothing, where it has one."""
    if twin_of(network, precision) is not None:
        return None
    return WideNetwork.missing(network) or StackedNetwork.missing(network)
