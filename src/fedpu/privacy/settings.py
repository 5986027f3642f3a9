"""The table ``[privacy]`` of the configuration."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from fedpu.registry import Settings


class Privacy(Settings):
    """What the server, and whoever sees the model, may learn of a client. Everything is off by default."""

    differential: Literal["off", "central", "local"] = Field(
        "off",
        description='differential privacy of clients: "off", "central" (the server adds noise to the sum of clipped '
        'updates: trust the server, hide from everybody else) or "local" (every client adds its own: trust nobody, '
        "at far more noise)",
    )
    clip: float = Field(
        1.0,
        gt=0,
        le=1e9,
        description="largest L2 norm of a client's update over all parameters; longer ones are scaled",
    )
    noise_multiplier: float = Field(
        1.0,
        ge=0,
        le=1e9,
        description="standard deviation of the noise, in clips: on the sum (central) or on each update (local)",
    )
    delta: float = Field(
        1e-5, gt=0, lt=1, description="the δ for which ε is reported; keep it well below 1 / number of clients"
    )
    sampling: Literal["poisson", "fixed"] = Field(
        "poisson",
        description="for central: how a round's clients are drawn with aggregation.participation. poisson: each by a "
        "coin of its own, which the accountant rewards; fixed: always as many, as without privacy",
    )
    noise_source: Literal["seed", "system"] = Field(
        "seed",
        description='"seed": noise and draws can be repeated, and undone by whoever knows the seed: for studies. '
        '"system": the operating system\'s randomness, for deployment; a run can then not be repeated',
    )
    lent_noise_multiplier: float = Field(
        8.0,
        ge=0,
        le=1e9,
        description="noise on the one sum of negative classes that method.lent needs, in numbers of classes; it counts "
        'in ε, and method.lent = "off" saves it',
    )
    secure_aggregation: bool = Field(
        False, description="the server learns the sum of the clients' updates and no single one (SecAgg+)"
    )
    threshold: float = Field(
        0.66,
        gt=0.5,
        le=1,
        description="for secure aggregation: share of a round's clients that must stay to its end, and of the "
        "holders of a client's secret that can open it",
    )
    neighbours: int = Field(
        20,
        ge=0,
        le=10**6,
        description="for secure aggregation: other clients with which each exchanges masks; 0: all, at a cost that "
        "grows with their square",
    )
    quantisation_bits: int = Field(
        24, ge=2, le=53, description="for secure aggregation: bits of a number, with its sign"
    )
    quantisation_range: float = Field(
        1.0,
        gt=0,
        le=1e9,
        description="for secure aggregation: the largest change of a parameter in a round; a client with a larger one "
        "refuses. With differential privacy the range follows from clip",
    )
    max_examples: int = Field(
        1_000_000, ge=1, le=10**12, description="for secure aggregation: the largest number of examples of a client"
    )

    @property
    def on(self) -> bool:
        """Is there anything to protect?"""
        return self.differential != "off" or self.secure_aggregation
