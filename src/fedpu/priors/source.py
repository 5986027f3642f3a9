"""Whose priors: a client's own, the whole federation's, given numbers, or estimates that improve with the model."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

import torch
from pydantic import Field, ValidationError, field_validator

from fedpu.errors import ConfigError, did_you_mean
from fedpu.labelling import Federation, Scenario
from fedpu.priors.estimators import ESTIMATORS, Estimator
from fedpu.priors.unlabelled import priors_of_no_knowledge
from fedpu.registry import Settings


class Priors(Settings):
    """Where each client's class priors come from."""

    source: Literal["known", "global", "given", "estimated"] = Field(
        "known",
        description='"known": the client\'s own class shares; "global": the federation\'s; "given": values; '
        '"estimated": by each client from its own data and the global model, while training',
    )
    values: float | list[float] | None = Field(
        None,
        description='for source = "given": one prior for all classes (the paper tries .1, .05, .08) or one a class',
    )
    estimator: str = Field(
        "bbe",
        description=f'for source = "estimated": {" | ".join(name for name, _ in ESTIMATORS.items())}, or your own as '
        f"{ESTIMATORS.own}",
    )
    options: dict[str, Any] = Field({}, description='settings of the estimator, such as { calibration = "bcts" }')
    features: Literal["inputs", "model"] = Field(
        "inputs", description="what estimators from features look at: the examples, or the global model's logits"
    )
    others: Literal["em", "even"] = Field(
        "em",
        description="how classes that the estimator can't tell share what is left: as em finds with the global model, "
        "or evenly",
    )
    trust: float = Field(
        0.6,
        ge=0,
        le=1,
        description="how sure of itself the global model must be on a client's unlabelled data (mean of the largest "
        "posterior) before the client uses it; until then what is not known is taken as even",
    )
    shrink: bool = Field(
        True, description="move estimates towards even classes by their own uncertainty; false: take them as they are"
    )
    every: int = Field(10, ge=1, description="rounds between a client's estimates")
    smoothing: float = Field(0.5, ge=0, lt=1, description="weight of the earlier estimates beside a new one")
    scenario: Literal["auto"] | Scenario = Field(
        "auto", description='what the unlabelled data are a sample of; "auto": what labelling.scenario did'
    )

    def without_unused(self) -> Priors:
        """Return the settings with those at their defaults that play no part in this source."""
        if self.source == "estimated":
            return self
        return Priors(source=self.source, values=self.values, scenario=self.scenario)

    @property
    def looks_at_model(self) -> bool:
        """Does the estimator itself look at the global model's outputs?"""
        return self.features == "model" or ESTIMATORS[self.estimator].needs == "scores"

    @property
    def needs_model(self) -> bool:
        """Is the global model needed at all?"""
        return self.looks_at_model or self.others == "em"

    @field_validator("estimator")
    @classmethod
    def _known(cls, value: str) -> str:
        if value not in ESTIMATORS:
            names = ", ".join(repr(name) for name in ESTIMATORS)
            raise ValueError(f"must be one of {names}, or your own as {ESTIMATORS.own}")
        ESTIMATORS[value]
        return value

    def make_estimator(self) -> Estimator:
        """Return the estimator with its options."""
        kind = ESTIMATORS[self.estimator]
        try:
            return kind(**self.options)
        except ValidationError as error:
            first = error.errors()[0]
            key = first["loc"][0] if first["loc"] else ""
            known = [name for name in kind.model_fields if name != "name"]
            near = did_you_mean(str(key), known) if key not in known else ""
            raise ConfigError(
                f"priors.options: '{key}' of the estimator '{self.estimator}' can't be used: {first['msg']}.{near} "
                f"Its options: {', '.join(known) or 'none'}."
            ) from error


def set_priors(federation: Federation, settings: Priors) -> Federation:
    """Return the federation with the priors that ``settings`` ask for."""
    scenario = federation.scenario if settings.scenario == "auto" else settings.scenario
    return replace(federation, priors=_priors(federation, settings, scenario), scenario=scenario)


def _priors(federation: Federation, settings: Priors, scenario: Scenario) -> torch.Tensor:
    clients, classes = federation.positive.shape
    if settings.values is not None and settings.source != "given":
        raise ConfigError(f'priors.values are used only with priors.source = "given"; it is "{settings.source}".')
    if settings.source == "estimated":
        settings.make_estimator()
        every = federation.summary(torch.arange(clients))
        return priors_of_no_knowledge(every.labelled, every.unlabelled, scenario)
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
            'whose class nobody knows. Set priors.source = "estimated", or "given" and priors.values.'
        )
    if settings.source == "global":
        weights = federation.sizes / federation.sizes.sum()
        return (weights.to(torch.float32) @ federation.priors).expand(clients, classes).clone()
    return federation.priors
