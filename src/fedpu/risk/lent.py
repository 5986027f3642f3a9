"""The term that clients lend each other in ``equ:fedpurisk``, and the one sum over clients that it needs."""

from __future__ import annotations

from typing import Literal

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor

Lent = Literal["printed", "shared", "off"]
"""``printed``: as in the paper; ``shared``: divided among the clients that label the class, exact under overlap and
for clients of any sizes; ``off``.
"""


def co_negatives(positive: Bool[Tensor, "K C"], sizes: Int64[Tensor, " K"] | None = None) -> Float[Tensor, "C C"]:
    """Return Σ_q v_q v_qᵀ of the clients' negative classes v_q: how many have both i and m among them.

    With ``sizes`` n_q it is (K / Σ_q n_q) Σ_q n_q v_q v_qᵀ, in which a client counts as its part of the mean that the
    server forms. Where all sizes are equal that is the same number, to the last bit.

    The only thing besides model parameters that the method exchanges: one sum over clients, made once, which a server
    can form under secure aggregation without seeing any client's classes.
    """
    negative = (~positive).double()
    weights = torch.ones(len(positive)) if sizes is None else sizes
    # Whole numbers up to the last division, so that every way of forming the sum gives the same bits.
    total = (negative.T * weights.double()) @ negative
    return (total * len(positive) / weights.double().sum().clamp(min=1)).float()


def lent_weights(
    total: Float[Tensor, "C C"], positive: Bool[Tensor, "*K C"], clients: int, mode: Lent
) -> Float[Tensor, "*K C C"]:
    """Return a_im = #{q ≠ k : i ∉ P_q and m ∉ P_q} of client k for m ≠ i, zero on the diagonal.

    ``total`` is :func:`co_negatives` of all clients. Its diagonal counts the clients that do not label i, so
    r_i = K − total_ii label it; ``shared`` divides by r_i, and then Σ_k ``equ:fedpurisk`` = Σ_k ``equ:fedrisk1``
    however the positive classes overlap. With a total in which client q counts n_q, a_im / r_i is Σ n_q over the
    clients that lack both i and m, divided by Σ n_q over those that label i, and Σ_k n_k ``equ:fedpurisk`` =
    Σ_k n_k ``equ:fedrisk1``. Both for clients whose classes look alike and have the same priors.
    """
    own = (~positive).to(total.dtype)
    pairs = own[..., :, None] * own[..., None, :]
    if mode == "off":
        return torch.zeros_like(pairs)
    # A sum that was made private by noise may be smaller than the client's own part. Where the sum is weighted, that
    # part is not what is taken off here; it only concerns i ∉ P, of which the client has nothing to lend.
    weights = (total - pairs).clamp(min=0) * (1 - torch.eye(len(total), dtype=total.dtype))
    if mode == "shared":
        labelling = clients - total.diagonal()
        weights = weights / torch.where(labelling > 0, labelling, 1)[:, None]
    return weights
