"""The term that clients lend each other in ``equ:fedpurisk``, and the one sum over clients that it needs."""

from __future__ import annotations

from typing import Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor

Lent = Literal["printed", "shared", "off"]
"""``printed``: as in the paper; ``shared``: divided among the clients that label the class, exact under overlap;
``off``.
"""


def co_negatives(positive: Bool[Tensor, "K C"]) -> Float[Tensor, "C C"]:
    """Return Σ_q n_q n_qᵀ, how many clients have both i and m among their negative classes.

    The only thing besides model parameters that the method exchanges: one sum over clients, made once, which a server
    can form under secure aggregation without seeing any client's classes.
    """
    negative = (~positive).to(torch.float32)
    return negative.T @ negative


def lent_weights(
    total: Float[Tensor, "C C"], positive: Bool[Tensor, "*K C"], clients: int, mode: Lent
) -> Float[Tensor, "*K C C"]:
    """Return a_im = #{q ≠ k : i ∉ P_q and m ∉ P_q} of client k for m ≠ i, zero on the diagonal.

    ``total`` is :func:`co_negatives` of all clients. Its diagonal counts the clients that do not label i, so
    r_i = K − total_ii label it; ``shared`` divides by r_i, and then Σ_k ``equ:fedpurisk`` = Σ_k ``equ:fedrisk1``
    however the positive classes overlap.
    """
    own = (~positive).to(total.dtype)
    pairs = own[..., :, None] * own[..., None, :]
    if mode == "off":
        return torch.zeros_like(pairs)
    # A sum that was made private by noise may be smaller than the client's own part.
    weights = (total - pairs).clamp(min=0) * (1 - torch.eye(len(total), dtype=total.dtype))
    if mode == "shared":
        weights = weights / (clients - total.diagonal()).clamp(min=1)[:, None]
    return weights
