"""The optimiser of the cross-fitted classifier."""

from __future__ import annotations

import copy

import torch
from torch import nn

from fedpu.priors.estimators.classifier import AdamW


def test_it_takes_the_steps_of_pytorchs_adamw_to_the_bit() -> None:
    torch.manual_seed(0)
    ours = nn.Sequential(nn.Linear(20, 16), nn.ReLU(), nn.Linear(16, 3))
    theirs = copy.deepcopy(ours)
    mine = AdamW(list(ours.parameters()), lr=1e-3, weight_decay=0.1)
    reference = torch.optim.AdamW(theirs.parameters(), lr=1e-3, weight_decay=0.1, foreach=False)
    for _ in range(50):
        x, y = torch.randn(30, 20), torch.randint(3, (30,))
        mine.step(nn.functional.cross_entropy(ours(x), y))
        reference.zero_grad()
        nn.functional.cross_entropy(theirs(x), y).backward()
        reference.step()
    assert all(torch.equal(a, b) for a, b in zip(ours.parameters(), theirs.parameters(), strict=True))
