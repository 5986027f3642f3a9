"""The paper's equations, literally, on expectations: the readable twin that the trainable risks are tested against.

``wrong[i, m]`` is E_i[ℓ_m], the expectation over class i of a surrogate of 1[f(x) ≠ m]; ``unlabelled[m]`` is E_U[ℓ_m].
Each function returns its terms by name, with their sign, so that they add up to ``total``.
"""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor

from fedpu.risk.constants import RiskConstants, Terms


def risk(constants: RiskConstants, wrong: Float[Tensor, "C C"]) -> Terms:
    """``equ:risk``: R = Σ_i π_i E_i[ℓ_i], the expected misclassification when everything is labelled."""
    return _sum({"all": (constants.priors * wrong.diagonal()).sum()})


def unlabelled_risk(constants: RiskConstants, wrong: Float[Tensor, "C C"]) -> Terms:
    """``equ:unlabel``: R_U = Σ_{m∈N} P_U(f ≠ m), split by the true class of the unlabelled example.

    ``positive``: positives not classified into the negative classes; ``negative``: the wanted risk on the negative
    classes; ``between-negative``: negatives not classified into the other negative classes.
    """
    priors, n = constants.unlabelled_priors, (~constants.positive).to(wrong.dtype)
    p = 1 - n
    off_diagonal = wrong - wrong.diag().diag()
    return _sum(
        {
            "positive": (priors * p) @ wrong @ n,
            "negative": (priors * n * wrong.diagonal()).sum(),
            "between-negative": (priors * n) @ off_diagonal @ n,
        }
    )


def pu_risk(constants: RiskConstants, wrong: Float[Tensor, "C C"], unlabelled: Float[Tensor, " C"]) -> Terms:
    """``equ:purisk``, and ``equ:fedrisk1`` when the expectations are those of client k.

    Σ_{i∈P} π_i E_i[ℓ_i] − Σ_{i∈P} π_i E_i[Σ_{m∈N} ℓ_m] + Σ_{m∈N} E_U[ℓ_m] − Σ_{j≠m∈N} π_j E_j[ℓ_m]. The last term
    needs labelled data of negative classes, which no client has.
    """
    n = (~constants.positive).to(wrong.dtype)
    off_diagonal = wrong - wrong.diag().diag()
    return _sum(
        _own_terms(constants, wrong, unlabelled) | {"between-negative": -(constants.priors * n) @ off_diagonal @ n}
    )


def fedpu_risk(constants: RiskConstants, wrong: Float[Tensor, "C C"], unlabelled: Float[Tensor, " C"]) -> Terms:
    """``equ:fedpurisk``: the last term of ``equ:fedrisk1`` is dropped, and other clients' dropped terms are taken over.

    … − Σ_{i∈P} π_i Σ_{m≠i} a_im E_i[ℓ_m]: labelled data of class i stand in for the clients to which i is negative.
    """
    p = constants.positive.to(wrong.dtype)
    lent = -((constants.priors * p)[:, None] * constants.lent * wrong).sum()
    return _sum(_own_terms(constants, wrong, unlabelled) | {"lent": lent})


def _own_terms(constants: RiskConstants, wrong: Float[Tensor, "C C"], unlabelled: Float[Tensor, " C"]) -> Terms:
    p = constants.positive.to(wrong.dtype)
    n = 1 - p
    return {
        "positive": (constants.priors * p * wrong.diagonal()).sum(),
        "against-negative": -constants.unlabelled_share * ((constants.unlabelled_priors * p) @ wrong @ n),
        "unlabelled": constants.unlabelled_share * (unlabelled @ n),
    }


def _sum(terms: Terms) -> Terms:
    return terms | {"total": sum(terms.values(), start=next(iter(terms.values())).new_zeros(()))}
