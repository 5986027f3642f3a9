"""The contract that every registered method keeps: found by name, tested here with no other edit."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from fedpu.config import Config
from fedpu.data import Dataset, load
from fedpu.engine import Job, LocalEngine, Work
from fedpu.experiment import prepare, run
from fedpu.labelling import Evaluation, Federation
from fedpu.method import METHODS, Method
from fedpu.risk import co_negatives


def prepared(config: Config, name: str) -> tuple[Method, Federation, Evaluation]:
    ready = prepare(config.with_(f"method.name={name}"))
    return METHODS[name](), ready.federation, ready.evaluation


@pytest.mark.parametrize("name", list(METHODS))
def test_its_terms_are_finite_add_up_and_have_a_gradient(tiny_config: Config, name: str) -> None:
    method, federation, _ = prepared(tiny_config, name)
    client = federation.client(0)
    task = method.task(client.facts, co_negatives(federation.positive), len(federation))
    usable = torch.arange(len(client.labels)) if method.uses_unlabelled else (client.labels >= 0).nonzero()[:, 0]
    inputs, labels = client.batch(usable)
    network = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 10))
    terms = method.objective(network, inputs, labels, task)
    terms["total"].backward()
    assert sum(v.item() for k, v in terms.items() if k != "total") == pytest.approx(terms["total"].item(), abs=1e-3)
    assert network[1].weight.grad is not None
    assert torch.isfinite(network[1].weight.grad).all()
    assert network[1].weight.grad.abs().sum() > 0


@pytest.mark.parametrize("name", list(METHODS))
def test_poisoned_hidden_labels_do_not_change_a_bit(tiny_config: Config, name: str) -> None:
    """Hidden labels are overwritten where they live, in the data set and the evaluation: training must not notice."""
    clean = load(tiny_config.data)
    data = Dataset(**{**vars(clean), "labels": clean.labels.clone()})
    method = METHODS[name]()
    ready = prepare(tiny_config.with_(f"method.name={name}"), data)
    job = Job(ready.federation, method, tiny_config.model, seed=0)
    work = [Work(client=k, round=0, lr=0.1, batch_size=20) for k in range(5)]

    def train() -> list[torch.Tensor]:
        start = {key: value.clone() for key, value in job.initial_model().state_dict().items()}
        with LocalEngine(workers=1).start(job) as clients:
            return [value for update in clients.update(start, work) for value in update.model.values()]

    before = train()
    data.labels.fill_(7)
    ready.evaluation.hidden.fill_(3)
    ready.evaluation.labels.fill_(5)
    after = train()
    assert all(torch.equal(a, b) for a, b in zip(before, after, strict=True))


@pytest.mark.parametrize("name", list(METHODS))
def test_a_client_without_labels_or_without_unlabelled_data_does_not_break_it(tiny_config: Config, name: str) -> None:
    method, federation, _ = prepared(tiny_config, name)
    for labels, positive in (
        (torch.full_like(federation.labels, -1), torch.zeros_like(federation.positive)),
        (torch.zeros_like(federation.labels), federation.positive),
    ):
        changed = replace(federation, labels=labels, positive=positive)
        job = Job(changed, method, tiny_config.model, seed=0)
        start = dict(job.initial_model().state_dict())
        with LocalEngine(workers=1).start(job) as clients:
            (update,) = clients.update(start, [Work(client=0, round=0, lr=0.1, batch_size=20)])
        assert all(torch.isfinite(value).all() for value in update.model.values())


def test_fedpu_learns_what_positive_only_can_not(tiny_config: Config) -> None:
    one_each = ["partition.clients=10", "labelling.positive=1"]
    longer = tiny_config.with_("aggregation.rounds=20", "aggregation.batch_size=20", *one_each)
    fedpu = run(longer).accuracy
    positive_only = run(longer.with_("method.name=positive-only")).accuracy
    supervised = run(longer.with_("method.name=supervised")).accuracy
    assert positive_only + 0.1 < fedpu < supervised + 0.02


@pytest.mark.parametrize("surrogate", ["log", "absolute", "sigmoid", "released-code", "released-code-older"])
def test_every_surrogate_can_be_chosen(tiny_config: Config, surrogate: str) -> None:
    result = run(tiny_config.with_(f"method.surrogate={surrogate}", "aggregation.rounds=1"))
    assert set(result.curve[0]["risk"]) >= {"positive", "unlabelled", "total"}
