"""The stacked risk with its gradient written out equals the plain one with automatic differentiation."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedpu.risk import CROSS_ENTROPY_FORM, PADDING, RiskConstants, fedpu_form, fedpu_risk, fedpu_table, linear_risk
from risk.test_federated import random_case


def together(tasks: list[RiskConstants]) -> RiskConstants:
    """The tasks of several clients with a leading dimension."""
    return RiskConstants(*(torch.stack(column) for column in zip(*tasks, strict=True)))


@settings(max_examples=80)
@given(
    st.lists(st.integers(0, 10_000), min_size=1, max_size=4),
    st.sampled_from(["max", "reverse", "off"]),
    st.sampled_from([0.0, 0.7]),
    st.booleans(),
)
def test_every_term_and_the_gradient_are_the_same(seeds: list[int], clamp: str, plain: float, unbiased: bool) -> None:
    cases = [random_case(seed, n=10 + seed % 20) for seed in seeds]
    longest = max(len(labels) for _, labels, _ in cases)
    logits = torch.zeros(len(cases), longest, 5).double()
    labels = torch.full((len(cases), longest), PADDING)
    tasks = []
    for k, (z, y, constants) in enumerate(cases):
        if unbiased:
            counts = torch.bincount(torch.where(y < 0, 5, y), minlength=6)
            constants = constants._replace(shares=counts.double() / len(y))
        tasks.append(constants)
        logits[k, : len(y)], labels[k, : len(y)] = z, y
    form = fedpu_form(clamp, "unbiased" if unbiased else "batch", plain)
    gradient, terms = linear_risk(logits, labels, fedpu_table(together(tasks)), form)
    for k, (z, y, _) in enumerate(cases):
        z = z.clone().requires_grad_()
        expected = fedpu_risk(z, y, tasks[k], clamp=clamp, cross_entropy=plain)
        expected["total"].backward()
        torch.testing.assert_close(gradient[k, : len(y)], z.grad, rtol=1e-9, atol=1e-10)
        assert not gradient[k, len(y) :].any(), "padding must have no gradient"
        for name, value in zip(form.names, terms[k].tolist(), strict=True):
            assert value == pytest.approx(expected[name].item(), abs=1e-9), name
        assert terms[k].sum().item() == pytest.approx(expected["total"].item(), abs=1e-9)


def test_cross_entropy_is_the_plain_mean() -> None:
    z = torch.randn(2, 7, 4, generator=torch.Generator().manual_seed(0)).requires_grad_()
    y = torch.tensor([[0, 1, 2, 3, 0, 1, 2], [3, 2, 1, 0, PADDING, PADDING, PADDING]])
    gradient, terms = linear_risk(z.detach(), y, None, CROSS_ENTROPY_FORM)
    loss = torch.nn.functional.cross_entropy(z[0], y[0]) + torch.nn.functional.cross_entropy(z[1, :4], y[1, :4])
    loss.backward()
    torch.testing.assert_close(gradient, z.grad)
    assert terms.sum().item() == pytest.approx(loss.item(), abs=1e-5)
