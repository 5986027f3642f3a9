"""Clients of any engine, some of which fail or lie in what they return."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from fedpu.engine import Clients, ClientStates
from fedpu.faults.settings import Faults
from fedpu.randomness import torch_generator
from fedpu.round import Broadcast, Tensors, Update, Work

SILENT = "it did not answer"


class FaultyClients(Clients):
    """Clients of an engine; those of ``faulty`` have a fault each. What they are to return is made from what they have
    truly trained, so that every fault is deterministic and a run with faults resumes to the same bits.
    """

    trusted = False

    def __init__(
        self, clients: Clients, settings: Faults, faulty: Mapping[int, str], initial: Tensors, seed: int
    ) -> None:
        self._clients = clients
        self._settings = settings
        self._faulty = faulty
        self._initial = initial
        self._seed = seed
        self._left_out: dict[str, str] = {}

    def update(self, sent: Broadcast, work: Sequence[Work], each: bool = True) -> Iterator[Update]:
        """Yield every client's update, as it claims it to be."""
        kinds = {one.client: self._faulty.get(one.client, "") for one in work}
        asked = [self._asked(one, kinds[one.client]) for one in work if kinds[one.client] not in ("silent", "stale")]
        known: list[Update] = []
        self._left_out = {self.name(k): SILENT for k, kind in kinds.items() if kind == "silent"}
        for update in self._clients.update(sent, asked):
            if "little" in kinds.values():
                known.append(update)
            else:
                yield self._claimed(update, sent, kinds[update.client])
        yield from self._with_little(known, sent, kinds)
        self._left_out |= self._clients.left_out
        late = [one for one in work if kinds[one.client] == "stale"]
        if late:
            yield from self._clients.update(replace(sent, model=self._initial), late)

    def name(self, client: int) -> str:
        """Return what a client is called."""
        return self._clients.name(client)

    def states(self) -> ClientStates:
        """Return what stays with the clients."""
        return self._clients.states()

    def restore(self, states: ClientStates) -> None:
        """Put back what stayed with the clients."""
        self._clients.restore(states)

    @property
    def left_out(self) -> dict[str, str]:
        """Who was asked in the last round and took no part in its result, and why."""
        return self._clients.left_out | self._left_out

    def _asked(self, one: Work, kind: str) -> Work:
        return replace(one, share=one.share * self._settings.slow_share) if kind == "slow" else one

    def _claimed(self, update: Update, sent: Broadcast, kind: str) -> Update:
        """Return what a client says that it has trained."""
        settings = self._settings
        if kind == "sign_flip":
            return _moved(update, sent.model, -settings.flip_by)
        if kind == "scale":
            return _moved(update, sent.model, settings.scale_by)
        if kind == "noise":
            return self._noise(update, sent)
        if kind == "nan":
            return replace(update, model=_floats(update.model, lambda _, value: torch.full_like(value, torch.nan)))
        return update

    def _noise(self, update: Update, sent: Broadcast) -> Update:
        """Return w_t and noise, which in every tensor is as long as the client's own change of it, times a factor."""
        generator = torch_generator(self._seed, "faulty noise", sent.round, update.client)

        def noisy(name: str, value: Tensor) -> Tensor:
            length = float((value - sent.model[name]).norm()) * self._settings.noise_by
            drawn = torch.randn(value.shape, generator=generator, dtype=value.dtype)
            return sent.model[name] + drawn * (length / math.sqrt(max(value.numel(), 1)))

        return replace(update, model=_floats(update.model, noisy))

    def _with_little(self, known: list[Update], sent: Broadcast, kinds: Mapping[int, str]) -> Iterator[Update]:
        """Yield all updates, those of the liars being the mean of the others' less z standard deviations."""
        if not known:
            return
        honest = [update for update in known if kinds[update.client] != "little"]
        z = self._settings.little_by

        def mean_less(name: str, value: Tensor) -> Tensor:
            values = torch.stack([one.model[name].double() for one in honest or known])
            return (values.mean(dim=0) - z * values.std(dim=0, correction=0)).to(value.dtype)

        model = _floats(known[0].model, mean_less)
        for update in known:
            little = kinds[update.client] == "little"
            yield replace(update, model=model) if little else self._claimed(update, sent, kinds[update.client])


def _moved(update: Update, start: Tensors, factor: float) -> Update:
    """Return an update that has gone ``factor`` times as far from ``start``."""
    far = _floats(update.model, lambda name, value: start[name] + factor * (value - start[name]))
    return replace(update, model=far, extras=_floats(update.extras, lambda _, value: factor * value))


def _floats(model: Tensors, change: Callable[[str, Tensor], Tensor]) -> Tensors:
    """Return a model with every tensor of floats changed, in the order of their names; counters stay."""
    changed = {name: change(name, value) for name, value in sorted(model.items()) if value.is_floating_point()}
    return {name: changed.get(name, value) for name, value in model.items()}
