"""What a node accepts: the least privacy under which its owner lets anything leave, whatever the server asks for."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from pydantic import Field

from fedpu.config import Config
from fedpu.errors import ConfigError
from fedpu.privacy import Privacy
from fedpu.registry import Settings

MODES = ("off", "central", "local")
"""of differential privacy, the weakest first"""


class NotAccepted(ConfigError):
    """A run, or a message of one, that the node's owner does not accept."""


class Accepts(Settings):
    """The table ``[accepts]`` of a node's file.

    What it leaves out of the first five is as in the first run that the node joined: no later run may protect it less.
    """

    differential: Literal["off", "central", "local"] | None = Field(
        None, description='the weakest differential privacy: "off", "central" or "local"; else that of the first run'
    )
    clip: float | None = Field(
        None, gt=0, description="the largest privacy.clip of a run with differential privacy; else that of the first"
    )
    noise_multiplier: float | None = Field(
        None, ge=0, description="the least privacy.noise_multiplier of such a run; else that of the first"
    )
    lent_noise_multiplier: float | None = Field(
        None, ge=0, description="the least privacy.lent_noise_multiplier of such a run; else that of the first"
    )
    secure_aggregation: bool | None = Field(
        None, description="take part only in runs whose sums are formed securely? Else as in the first run"
    )
    batch: int = Field(8, ge=1, description="the least aggregation.batch_size")
    group: int = Field(
        3, ge=2, description="the least number of clients, this one counted, among which a secure sum hides it"
    )
    rounds: int | None = Field(None, ge=1, description="updates that the node gives out, in all runs together")
    epsilon: float | None = Field(
        None, gt=0, description="the largest ε of everything that the node gives out, in all runs together"
    )
    delta: float = Field(1e-5, gt=0, lt=1, description="the δ of that ε")

    def after(self, first: Privacy | None) -> Accepts:
        """Return what is accepted of a node whose first run had this privacy: what the file does not say is as there.

        A first run without differential privacy sets no clip and no noise.
        """
        if first is None:
            return self
        names = ["differential", "secure_aggregation"]
        if first.differential != "off":
            names += ["clip", "noise_multiplier", "lent_noise_multiplier"]
        unsaid = {name: getattr(first, name) for name in names if getattr(self, name) is None}
        return self.model_copy(update=unsaid)

    def refuse(self, config: Config, who: str) -> None:
        """Refuse a run that does not protect the node as its owner asks for; say why, and what would do."""
        wrong = next(self._shortcomings(config), None)
        if wrong is not None:
            raise NotAccepted(
                f"'{who}' does not accept this run: {wrong}. Its owner decides, in [accepts] of the node's file."
            )

    def _shortcomings(self, config: Config) -> Iterator[str]:
        privacy = config.privacy
        if MODES.index(privacy.differential) < MODES.index(self.differential or "off"):
            yield f'privacy.differential is "{privacy.differential}", and the least is "{self.differential}"'
        if self.secure_aggregation and not privacy.secure_aggregation:
            yield "it takes part only under secure aggregation, and this run has none"
        if self.epsilon is not None and privacy.differential == "off":
            yield f"without differential privacy no ε can be held, and it accepts ε = {self.epsilon:g}"
        if privacy.differential != "off":
            yield from self._too_little_noise(config)
        batch = config.aggregation.work(config.seed, 0, [0])[0].batch_size
        if batch is not None and batch < self.batch:
            yield f"aggregation.batch_size is {batch}, and the least is {self.batch}"
        within = privacy.neighbours + 1
        if privacy.secure_aggregation and privacy.neighbours and within < self.group:
            yield f"a secure sum hides it among {within} (privacy.neighbours), and the least is {self.group}"

    def _too_little_noise(self, config: Config) -> Iterator[str]:
        privacy = config.privacy
        if privacy.noise_source == "seed":
            yield (
                'privacy.noise_source is "seed", with which the server can take the noise off again; it must be '
                '"system"'
            )
        if self.clip is not None and privacy.clip > self.clip:
            yield f"privacy.clip is {privacy.clip:g}, and the largest is {self.clip:g}"
        least = self.noise_multiplier
        if least is not None and privacy.noise_multiplier < least:
            yield f"privacy.noise_multiplier is {privacy.noise_multiplier:g}, and the least is {least:g}"
        least = self.lent_noise_multiplier
        if least is not None and config.method.lends and privacy.lent_noise_multiplier < least:
            yield f"privacy.lent_noise_multiplier is {privacy.lent_noise_multiplier:g}, and the least is {least:g}"
