"""The observable likelihood: how well a model foretells which label, if any, a client has given.

No hidden label enters it. A client labels an example of class y with probability e_y, whatever the example looks like.
With p the posterior of the classes on that client, what can be observed of an example x has the probabilities

    P(labelled as y | x) = e_y p_y(x)          P(not labelled | x) = Σ_y (1 − e_y) p_y(x)                  (censored)

which add up to one. Their negative logarithm is a proper score: its mean is least at the true posterior. In the
case-control scenario labelled and unlabelled entries are two samples, n_y entries of class y and n_U of the whole
population. An entry that is drawn from both together is, with w_y = n_y / (n_U π_y),

    P(labelled as y | x) = w_y p_y(x) / (1 + Σ_j w_j p_j(x))     P(not labelled | x) = 1 / (1 + Σ_j w_j p_j(x))

(Lancaster and Imbens 1996). Clients differ in their class shares π and in what they label, and not in what a class
looks like, so that one model p of the whole federation, with class shares g, tells the posterior of each of them,

    p_y(x) ∝ p_y^model(x) π_y / g_y

and is the best one for all of them at once.
"""

from __future__ import annotations

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from fedpu.errors import ConfigError
from fedpu.labelling import ClassSummary, Scenario
from fedpu.priors import unlabelled_priors

LEAST = 1e-12
"""the least probability that counts: a model that is sure of what can't be, in a world that is wrong about its own
priors, is not scored with infinity
"""


def consistent_priors(summary: ClassSummary) -> Float[Tensor, "*K C"]:
    """Return the class shares of clients' populations, made to agree with what the clients have labelled.

    They add up to one, and no class has fewer examples than were labelled. Priors that do so already stay as they are;
    others, which somebody has guessed, leave a class that they gave too little with its labelled examples alone.
    """
    if summary.priors is None:
        raise ConfigError("A score without hidden labels needs class priors: set priors.source and priors.values.")
    priors = summary.priors.double().clamp(min=0)
    priors = priors / priors.sum(dim=-1, keepdim=True).clamp(min=LEAST)
    if summary.scenario == "case-control":
        priors = torch.where(summary.labelled > 0, priors.clamp(min=LEAST), priors)
        return priors / priors.sum(dim=-1, keepdim=True).clamp(min=LEAST)
    inside, _ = unlabelled_priors(priors, summary.labelled, summary.unlabelled, "censored")
    total = inside.sum(dim=-1, keepdim=True)
    inside = torch.where(total > 0, inside / total.clamp(min=LEAST), 1 / priors.shape[-1])
    counts = summary.labelled + inside * summary.unlabelled[..., None]
    return counts / counts.sum(dim=-1, keepdim=True).clamp(min=1)


def labelled_odds(summary: ClassSummary, priors: Float[Tensor, "*K C"]) -> Float[Tensor, "*K C"]:
    """Return how the labelled examples of each class compare with all of its examples that could have been labelled.

    Censored: e_y = n_y / N_y, the share of class y that is labelled, with N_y = n π_y; at most 1, and 0 for a class
    that the client does not label or does not have. Case-control: w_y = n_y / (n_U π_y).
    """
    labelled = summary.labelled.double()
    if summary.scenario == "case-control":
        have = summary.unlabelled.double().clamp(min=1)[..., None] * priors
        return labelled / have.clamp(min=LEAST)
    have = (labelled.sum(dim=-1) + summary.unlabelled)[..., None] * priors
    return (labelled / have.clamp(min=LEAST)).clamp(max=1)


def client_posterior(
    logits: Float[Tensor, "n C"], priors: Float[Tensor, "*m C"], model_priors: Float[Tensor, " C"]
) -> Float[Tensor, "n C"]:
    """Return log p_y ∝ log p_y^model + log π_y − log g_y: the model's posterior, for a client's own class shares."""
    ratio = torch.where(priors > 0, priors / model_priors.clamp(min=LEAST), 0)
    return (logits.double() + ratio.log()).log_softmax(dim=-1)


def observable_loss(
    log_posterior: Float[Tensor, "n C"],
    labels: Int64[Tensor, " n"],
    odds: Float[Tensor, "*m C"],
    scenario: Scenario,
) -> Float[Tensor, " n"]:
    """Return −log of the probability of what was observed of each example: its label, or −1 for none."""
    own = labels.clamp(min=0)[:, None]
    log_odds = odds.log().expand(log_posterior.shape)
    log_labelled = (log_odds + log_posterior).gather(1, own)[:, 0]
    if scenario == "case-control":
        either = torch.logaddexp((log_odds + log_posterior).logsumexp(dim=1), torch.zeros(()).to(log_posterior))
        log_labelled, log_unlabelled = log_labelled - either, -either
    else:
        log_unlabelled = ((1 - odds).log().expand(log_posterior.shape) + log_posterior).logsumexp(dim=1)
    found = torch.where(labels >= 0, log_labelled, log_unlabelled)
    # Rounding may take a probability of one above it.
    return -found.clamp(min=torch.tensor(LEAST).log().item(), max=0)
