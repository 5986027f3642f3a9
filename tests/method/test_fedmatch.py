"""FedMatch part by part: two parts of one model, who learns what, helpers, votes, and what travels."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from fedpu.aggregation import FedAvg
from fedpu.applications.experiment import run
from fedpu.config import Config
from fedpu.engine.client import begin, draw_batches, make_batch
from fedpu.engine.descent import PartedDescent
from fedpu.errors import ConfigError
from fedpu.method import Batch, FedMatch
from fedpu.method.fedmatch import agreement, changed, helper_values, nearest, vote, where_changed, without_small
from fedpu.risk import plain_constants
from fedpu.round import Broadcast, Tensors, Update, Work, under
from fedpu.testing import check_method
from fedpu.testing.trial import LOCAL, REFERENCE, Trial

CONSTANTS = plain_constants(torch.ones(3, dtype=torch.bool), torch.zeros(3))
EAGER = FedMatch(helper_rounds=2, confidence=0.17)
"""so that three rounds have helpers, and examples that are sure enough"""


@pytest.fixture(scope="module")
def trial() -> Trial:
    return Trial.of(EAGER, FedAvg(rounds=4, lr=0.01, batch_size=30, momentum=0.0))


def test_it_keeps_the_contract_with_helpers_too() -> None:
    check_method(EAGER)


def test_the_parts_add_up_to_the_networks_first_parameters_and_one_is_a_fifth_of_the_other(trial: Trial) -> None:
    state = trial.start().state
    for name, psi in under("psi", state.shared).items():
        sigma = state.model[name] - psi
        assert torch.allclose(psi, 0.2 * sigma, atol=1e-7)
    assert len(under("psi", state.shared)) == len(state.model)


def test_after_rounds_the_sum_of_the_averaged_parts_is_the_model() -> None:
    """Both are means with the same weights, so it does not matter which of σ and θ = σ + ψ is averaged."""
    trial = Trial.of(EAGER, FedAvg(rounds=1, lr=0.01, batch_size=30, momentum=0.5))
    start = trial.start().state
    with REFERENCE.start(trial.job) as clients:
        work = trial.config.aggregation.work(0, 0, [0, 1, 2, 3, 4])
        updates = list(clients.update(Broadcast(start.model, {}, start.shared), work))
    state = trial.run(REFERENCE).state
    weights = torch.tensor([update.examples for update in updates]).double()
    for name, value in state.model.items():
        sigma = torch.stack([update.model[name] - update.shared[f"psi.{name}"] for update in updates]).double()
        psi = torch.stack([update.shared[f"psi.{name}"] for update in updates]).double()
        mean = [torch.einsum("k,k...->...", weights / weights.sum(), part) for part in (sigma, psi)]
        assert torch.allclose(value.double(), mean[0] + mean[1], atol=1e-6)
        assert torch.allclose(state.shared[f"psi.{name}"].double(), mean[1], atol=1e-6)


def steps_of(trial: Trial, momentum: float = 0.0) -> list[tuple[str, dict[str, Tensors], dict[str, Tensors]]]:
    """Two batches of a client by hand: which part, and all parts before and after."""
    job, network = trial.job, trial.job.initial_model()
    state, client = trial.start().state, trial.job.federation.client(0)
    work = Work(client=0, round=0, lr=0.01, batch_size=30, momentum=momentum)
    sent = Broadcast(state.model, {}, state.shared)
    begun = begin(job, network, client, sent, work, None, job.co_negatives())
    descent = PartedDescent(job.method, network, sent, work, lambda: None)
    seen = []
    for step, positions in enumerate(draw_batches(job, client, work)[:2]):
        batch = make_batch(job, begun, positions, step, torch.device("cpu"))
        for shown in descent.shown(batch):
            before = {part: {n: v.detach().clone() for n, v in values.items()} for part, values in shown.parts.items()}
            descent.step(shown, job.method.objective(network, shown, begun.constants)["total"])
            after = {part: {n: v.detach().clone() for n, v in values.items()} for part, values in shown.parts.items()}
            seen.append((str(shown.part), before, after))
            for name, p in network.named_parameters():
                assert torch.allclose(p.detach(), after["sigma"][name] + after["psi"][name], atol=1e-7)
    return seen


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_labels_move_one_part_and_unlabelled_data_the_other(trial: Trial, momentum: float) -> None:
    seen = steps_of(trial, momentum)
    assert [part for part, _, _ in seen] == ["sigma", "psi", "sigma", "psi"]
    for part, before, after in seen:
        other = "psi" if part == "sigma" else "sigma"
        assert all(torch.equal(before[other][name], after[other][name]) for name in before[other])
        assert all(not torch.equal(before[part][name], after[part][name]) for name in before[part])


def test_a_step_of_psi_is_the_gradient_of_its_equation(trial: Trial) -> None:
    """σ first, then ψ at the new σ: the second step against a gradient by hand."""
    job, method = trial.job, trial.config.method
    (_, _, moved), (_, before, after), *_ = steps_of(trial)
    client = job.federation.client(0)
    work = Work(client=0, round=0, lr=0.01, batch_size=30)
    state = trial.start().state
    begun = begin(
        job, job.initial_model(), client, Broadcast(state.model, {}, state.shared), work, None, job.co_negatives()
    )
    batch = make_batch(job, begun, draw_batches(job, client, work)[0], 0, torch.device("cpu"))
    hidden = batch.labels < 0
    network = job.initial_model()
    psi = {name: value.clone().requires_grad_() for name, value in before["psi"].items()}
    theta = {name: before["sigma"][name] + psi[name] for name in psi}
    p = torch.func.functional_call(network, theta, batch.views["clean"][hidden]).softmax(dim=1)
    strong = torch.func.functional_call(network, theta, batch.views["strong"][hidden]).log_softmax(dim=1)
    sure = p.amax(dim=1) >= 0.17
    assert 0 < int(sure.sum()) < len(sure)
    loss = 0.01 * -strong[sure, p[sure].argmax(dim=1)].mean()
    loss = loss + sum(1e-4 * v.abs().sum() + 10 * (before["sigma"][n] - v).square().sum() for n, v in psi.items())
    loss.backward()
    assert isinstance(method, FedMatch)
    for name, value in psi.items():
        assert torch.allclose(after["psi"][name], (value - 0.01 * value.grad).detach(), atol=1e-6)
        assert torch.equal(before["sigma"][name], moved["sigma"][name])


def test_agreement_is_the_mean_divergence_from_helpers_where_the_client_is_sure() -> None:
    logits = torch.tensor([[2.0, 0.0, 0.0], [0.0, 0.0, 0.0], [0.0, 3.0, 0.0]], dtype=torch.float64)
    helpers = [torch.tensor([[0.7, 0.2, 0.1]] * 3).double(), torch.tensor([[0.1, 0.1, 0.8]] * 3).double()]
    sure = torch.tensor([True, False, True])
    p = logits.softmax(dim=1).tolist()
    expected = [
        sum(q[row][j].item() * math.log(q[row][j].item() / p[row][j]) for j in range(3))
        for row in (0, 2)
        for q in helpers
    ]
    assert agreement(helpers, logits, sure).item() == pytest.approx(sum(expected) / 4)
    assert agreement([], logits, sure).item() == 0
    assert agreement(helpers, logits, torch.zeros(3, dtype=torch.bool)).item() == 0


def test_the_majority_wins_and_a_tie_is_the_clients_own() -> None:
    def says(*classes: int) -> Tensor:
        return torch.eye(4)[list(classes)] * 0.7 + 0.075

    assert vote(says(3, 3, 3, 1), [says(0, 3, 0, 0), says(0, 1, 1, 0)]).tolist() == [0, 3, 3, 0]
    assert vote(says(3, 2), []).tolist() == [3, 2]
    assert vote(says(3), [says(1)]).tolist() == [3]


def test_helpers_are_the_nearest_others_by_their_posteriors_on_noise() -> None:
    places = {7: 0.0, 2: 0.1, 5: 0.25, 9: 0.9, 4: 1.0}
    vectors = {k: torch.tensor([x, 1 - x]) for k, x in places.items()}
    chosen = nearest(vectors, 2)
    for k, x in places.items():
        others = sorted((other for other in places if other != k), key=lambda other: abs(places[other] - x))
        assert chosen[k] == others[:2]
    assert nearest({1: torch.zeros(2)}, 2) == {}
    assert nearest(dict.fromkeys(range(4), torch.ones(2)), 3).keys() == {0, 1, 2, 3}
    assert all(k not in helpers for k, helpers in nearest(dict.fromkeys(range(9), torch.ones(2)), 2).items())


def memory_after(method: FedMatch, sent: Broadcast, psi: dict[int, float]) -> Tensors:
    """The server's memory of clients whose ψ are constants, each with a vector of its own."""
    memory: Tensors = {}
    for k, value in psi.items():
        update = Update(k, 1, {"w": torch.full((2, 2), 1.0 + value)}, {}, {}, {"psi.w": torch.full((2, 2), value)})
        memory = method.remember(
            memory, sent, Work(k, 0, 0.1), update, lambda model: model["w"].mean().view(1, 1) * EYE
        )
    return memory


EYE = torch.tensor([[1.0, 0.0]])


def test_the_server_sends_helpers_psi_in_every_tenth_round_to_those_it_knows() -> None:
    method = FedMatch()
    sent = Broadcast({"w": torch.ones(2, 2)}, {}, {"psi.w": torch.zeros(2, 2)}, round=8)
    memory = memory_after(method, sent, {0: 0.0, 1: 0.1, 2: 0.2, 3: 5.0})
    work = [Work(2, 9, 0.1), Work(8, 9, 0.1)]
    assert method.ask(memory, sent, work) == work
    ninth = Broadcast(sent.model, {}, sent.shared, round=9)
    known, unknown = method.ask(memory, ninth, work)
    assert set(known.extras) == {"helper0.w", "helper1.w"}
    assert sorted(float(value[0, 0]) for value in known.extras.values()) == pytest.approx([0.0, 0.1])
    assert known.extras["helper0.w"].shape == (2, 2)
    assert unknown.extras == {}


def test_small_entries_are_zero_and_what_has_hardly_changed_stays_as_it_was_sent() -> None:
    method = FedMatch(zero=0.1, change=0.5)
    received = {"sigma": {"w": torch.tensor([1.0, 1.0, 1.0])}, "psi": {"w": torch.tensor([0.05, 1.0, 1.0])}}
    trained = {"sigma": {"w": torch.tensor([1.4, 1.6, 0.4])}, "psi": {"w": torch.tensor([0.04, 0.09, 1.3])}}
    returned = method.returned(received, trained)
    assert returned["sigma"]["w"].tolist() == pytest.approx([1.0, 1.6, 0.4])
    assert returned["psi"]["w"].tolist() == pytest.approx([0.05, 0.0, 1.0]), "0.09 is zero, which is a change of 1"
    assert without_small(torch.tensor([-0.2, 0.1, 0.05]), 0.1).tolist() == pytest.approx([-0.2, 0.0, 0.0])
    assert where_changed(torch.tensor([2.0]), torch.tensor([1.0]), 1.0).tolist() == [1.0]
    assert changed(torch.tensor([2.0, 1.1]), torch.tensor([1.0, 1.0]), 0.5) == 1
    assert helper_values(torch.tensor([0.05, 1.0, 1.0]), torch.tensor([3.0, 0.2, 0.9]), 0.1, 0.5) == 1


def test_traffic_is_counted_as_values_that_travel_four_bytes_each() -> None:
    """Six values each of σ and ψ, by hand."""
    method = FedMatch(zero=0.01, change=0.1, helper_rounds=1, helpers=1)
    one = torch.ones(6)

    def noise(model: Tensors) -> Tensor:
        return model["w"][None, :2]

    sent = Broadcast({"w": 2 * one}, {}, {"psi.w": one}, round=0)  # σ = 1, ψ = 1
    psi = torch.tensor([0.0, 1, 1, 1, 1, 1])
    sigma = torch.tensor([1.0, 2, 2, 1, 1, 1])
    first = Update(3, 1, {"w": sigma + psi}, {}, {}, {"psi.w": psi})
    memory = method.remember({}, sent, Work(3, 0, 0.1), first, noise)
    assert method.report(memory) == {"bytes_sparse": {"down": 4 * 12, "up": 4 * 3}}, "the first time all goes down"
    second = Update(4, 1, {"w": 2 * one}, {}, {}, {"psi.w": one})
    memory = method.remember(memory, sent, Work(4, 0, 0.1), second, noise)
    assert method.report(memory) == {"bytes_sparse": {"down": 4 * 24, "up": 4 * 3}}, "a round's clients add up"
    later = Broadcast({"w": 2 * one}, {}, {"psi.w": one}, round=1)
    (asked,) = method.ask(memory, later, [Work(3, 1, 0.1)])
    assert asked.extras["helper0.w"].tolist() == one.tolist()
    memory = method.remember(memory, later, asked, replace(second, client=3), noise)
    down = 2 + 1 + 1  # σ differs from what client 3 has in two places, ψ in one, its helper's ψ in one
    assert method.report(memory) == {"bytes_sparse": {"down": 4 * down, "up": 0}}


def test_the_record_has_the_bytes_of_every_round_both_ways(tiny_config: Config, tmp_path: Path) -> None:
    config = tiny_config.with_("method.name=fedmatch", "method.helper_rounds=2", "aggregation.lr=0.01")
    curve = run(config, out=tmp_path / "run").curve
    parameters = sum(value.numel() for value in run(config).model.parameters())
    whole = 4 * 2 * parameters * 5  # θ and ψ for five clients
    assert [line["bytes"]["up"] for line in curve] == [whole] * 3
    assert [line["bytes"]["down"] for line in curve] == [whole, 2 * whole, whole], "with two ψ each, in the second"
    assert curve[0]["bytes_sparse"]["down"] == whole
    assert all(0 < line["bytes_sparse"]["up"] < whole for line in curve)
    kept = [json.loads(text) for text in (tmp_path / "run" / "rounds.jsonl").read_text().splitlines()]
    assert [line["bytes_sparse"] for line in kept] == [line["bytes_sparse"] for line in curve]


def test_helpers_make_a_difference_on_every_engine(trial: Trial) -> None:
    alone = Trial.of(EAGER.model_copy(update={"helpers": 0}), trial.config.aggregation)
    helped = trial.run(LOCAL)
    assert helped.far_from(trial.run(REFERENCE)) is None
    assert helped.terms[0]["helpers"] == 0
    assert helped.terms[1]["helpers"] > 0
    assert alone.run(LOCAL).terms[1]["helpers"] == 0


def test_a_batch_without_parts_has_the_sum_of_both_losses() -> None:
    labels = torch.tensor([0, -1, 2, -1])
    views = {"clean": torch.randn(4, 3), "strong": torch.randn(4, 3)}
    terms = FedMatch(confidence=0.4).objective(lambda inputs: 2 * inputs, Batch(labels, views), CONSTANTS)
    assert set(terms) == {"labelled", "helpers", "vote", "total"}
    assert terms["total"].item() == pytest.approx(terms["labelled"].item() + terms["vote"].item())


def test_it_can_not_be_trained_where_the_server_sees_one_mean_alone(tiny_config: Config) -> None:
    config = tiny_config.with_("method.name=fedmatch", "privacy.differential=central")
    with pytest.raises(ConfigError, match="'fedmatch' looks at each of them on the server"):
        run(config)


def test_it_learns(tiny_config: Config) -> None:
    config = tiny_config.with_(
        "method.name=fedmatch",
        "labelling.positive=10",
        "labelling.overlap=true",
        "labelling.per_class=5",
        "augmentation.strong=['shift']",
        "aggregation.rounds=10",
        "aggregation.lr=0.02",
        "aggregation.momentum=0",
        "aggregation.batch_size=40",
    )
    assert run(config).accuracy > 0.7
