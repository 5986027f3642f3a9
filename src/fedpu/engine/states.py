"""What stays with clients between rounds: in one process a store keeps it, and the checkpoint holds it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import torch

from fedpu.round import Tensors

NUMBERS = "numbers"
STACKED, SINGLE = "all", "one"


class ClientStates(Mapping[int, Tensors]):
    """The states of the clients that have taken part, by number. Memory grows with their number alone."""

    def __init__(self, states: Mapping[int, Tensors] | None = None) -> None:
        self._states: dict[int, Tensors] = dict(states or {})

    def __getitem__(self, client: int) -> Tensors:
        return self._states[client]

    def __iter__(self) -> Iterator[int]:
        return iter(self._states)

    def __len__(self) -> int:
        return len(self._states)

    def put(self, states: Mapping[int, Tensors]) -> None:
        """Keep new states of some clients."""
        self._states.update(states)

    def of(self, clients: Sequence[int]) -> dict[int, Tensors]:
        """Return the states of those clients that have one."""
        return {client: self._states[client] for client in clients if client in self._states}

    def to_tensors(self) -> Tensors:
        """Return all states as a few tensors: a name that all clients have in one shape becomes one of them."""
        if not self._states:
            return {}
        numbers = sorted(self._states)
        tensors: Tensors = {NUMBERS: torch.tensor(numbers)}
        names = sorted({name for state in self._states.values() for name in state})
        for name in names:
            having = [k for k in numbers if name in self._states[k]]
            values = [self._states[k][name] for k in having]
            if having == numbers and len({(value.shape, value.dtype) for value in values}) == 1:
                tensors[f"{STACKED}.{name}"] = torch.stack(values)
            else:
                tensors |= {f"{SINGLE}.{k}.{name}": value.contiguous() for k, value in zip(having, values, strict=True)}
        return tensors

    @classmethod
    def from_tensors(cls, tensors: Tensors) -> ClientStates:
        """Read what :meth:`to_tensors` has made."""
        if not tensors:
            return cls()
        numbers = tensors[NUMBERS].tolist()
        if tensors[NUMBERS].dtype != torch.int64 or len(set(numbers)) < len(numbers) or min(numbers, default=0) < 0:
            raise ValueError("its clients are not numbered")
        states: dict[int, Tensors] = {k: {} for k in numbers}
        for name, value in tensors.items():
            kind, _, rest = name.partition(".")
            if kind == STACKED:
                for k, row in zip(numbers, value, strict=True):
                    states[k][rest] = row.clone()
            elif kind == SINGLE:
                number, _, own = rest.partition(".")
                states[int(number)][own] = value
        return cls(states)
