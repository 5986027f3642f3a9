"""secagg: sums over clients of which the server learns nothing but the sum (Bonawitz et al. 2017, Bell et al. 2020).

Two state machines without a transport, :class:`SecureClient` and :class:`SecureServer`, and the messages between them.
:func:`secure_sum` runs them in one process.
"""

from fedpu.privacy.secagg.blocks import need_flower
from fedpu.privacy.secagg.client import SecureClient
from fedpu.privacy.secagg.local import secure_sum
from fedpu.privacy.secagg.messages import (
    Inbox,
    MaskedVector,
    Neighbourhood,
    OpenedShares,
    PublicKeys,
    SealedShares,
    Unmask,
)
from fedpu.privacy.secagg.rules import Rules, SecureAggregationError, Total, encode
from fedpu.privacy.secagg.server import SecureServer

__all__ = [
    "Inbox",
    "MaskedVector",
    "Neighbourhood",
    "OpenedShares",
    "PublicKeys",
    "Rules",
    "SealedShares",
    "SecureAggregationError",
    "SecureClient",
    "SecureServer",
    "Total",
    "Unmask",
    "encode",
    "need_flower",
    "secure_sum",
]
