"""Whose priors: a client's own, the whole federation's, or given numbers."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import torch
from pydantic import Field

from fedpu.errors import ConfigError
from fedpu.labelling import Federation, Scenario
from fedpu.registry import Settings


class Priors(Settings):
    """Where each client's class priors come from."""

    source: Literal["known", "global", "given"] = Field(
        "known",
        description='"known": the client\'s own class shares; "global": the federation\'s; "given": values',
    )
    values: float | list[float] | None = Field(
        None,
        description='for source = "given": one prior for all classes (the paper tries .1, .05, .08) or one a class',
    )
    scenario: Literal["auto"] | Scenario = Field(
        "auto", description='what the unlabelled data are a sample of; "auto": what labelling.scenario did'
    )


def set_priors(federation: Federation, settings: Priors) -> Federation:
    """Return the federation with the priors that ``settings`` ask for."""
    scenario = federation.scenario if settings.scenario == "auto" else settings.scenario
    return replace(federation, priors=_priors(federation, settings), scenario=scenario)


def _priors(federation: Federation, settings: Priors) -> torch.Tensor:
    clients, classes = federation.positive.shape
    if settings.values is not None and settings.source != "given":
        raise ConfigError(f'priors.values are used only with priors.source = "given"; it is "{settings.source}".')
    if settings.source == "given":
        if settings.values is None:
            raise ConfigError('priors.source = "given" needs priors.values: one number, or one a class.')
        values = torch.as_tensor(settings.values, dtype=torch.float32)
        if values.dim() and len(values) != classes:
            raise ConfigError(f"priors.values has {len(values)} numbers for {classes} classes.")
        if (values < 0).any() or (values > 1).any():
            raise ConfigError(f"priors.values must lie between 0 and 1; got {settings.values}.")
        sums = federation.positive.to(torch.float32) @ values.expand(classes)
        if float(sums.max()) > 1 + 1e-4:
            raise ConfigError(
                f"priors.values = {settings.values} add up to {float(sums.max()):.2f} over the positive classes of "
                f"client {int(sums.argmax())}; shares can't exceed 1."
            )
        return values.expand(clients, classes).clone()
    if federation.priors is None:
        raise ConfigError(
            f'priors.source = "{settings.source}" needs the true class shares, but the data hold unlabelled examples '
            'whose class nobody knows. Set priors.source = "given" and priors.values.'
        )
    if settings.source == "global":
        weights = federation.sizes / federation.sizes.sum()
        return (weights.to(torch.float32) @ federation.priors).expand(clients, classes).clone()
    return federation.priors
