"""Private runs: clipping and noise measured on the aggregate; same bits whoever runs them; off changes nothing."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats

from fedpu.aggregation import AGGREGATIONS
from fedpu.applications.comparison import compare
from fedpu.applications.experiment import resume, run
from fedpu.applications.prepared import prepare
from fedpu.applications.training import Result, first_state, guard_of, job_of
from fedpu.config import Config
from fedpu.errors import ConfigError
from fedpu.privacy import Guard, Layout
from fedpu.privacy.accountant import gaussian_epsilon
from fedpu.record import RunDirectory
from fedpu.report.comparison import markdown, table
from fedpu.risk import co_negatives
from fedpu.round import Broadcast, Tensors, Update, Work

CENTRAL = ["privacy.differential=central", "privacy.noise_multiplier=0.5", "privacy.clip=0.3"]
LOCAL = ["privacy.differential=local", "privacy.noise_multiplier=0.5", "privacy.clip=0.3"]
SECURE = ["privacy.secure_aggregation=true"]
MEANS = [name for name in AGGREGATIONS if AGGREGATIONS[name].takes == "mean"]
KINDS = {"central": CENTRAL, "local": LOCAL, "secure": SECURE, "both": CENTRAL + SECURE, "all": LOCAL + SECURE}


def bits(config: Config) -> Tensors:
    return dict(run(config).model.state_dict())


def assert_same_bits(first: Tensors, second: Tensors) -> None:
    assert all(torch.equal(first[name], value) for name, value in second.items())


def assert_close(first: Tensors, second: Tensors, tolerance: float) -> None:
    for name, value in second.items():
        torch.testing.assert_close(first[name], value, rtol=0, atol=tolerance)


def big(tiny_config: Config, *changes: str, clients: int) -> tuple[Guard, Tensors]:
    """A guard over 20,000 parameters."""
    config = tiny_config.with_("model.hidden=[270]", "method.lent=off", *changes)
    network = config.model.build((1, 8, 8), 10)
    guard = guard_of(config, network, clients, 10)
    assert guard is not None
    return guard, {name: value.detach() for name, value in network.state_dict().items()}


def moved_by(guard: Guard, start: Tensors, lengths: Sequence[float], round_: int = 0) -> np.ndarray:
    """The mean update of clients whose own updates have those lengths, all along the same direction."""
    direction = np.ones(guard.layout.length) / math.sqrt(guard.layout.length)
    sent = Broadcast(start, round=round_)
    work = [Work(client, round_, 0.1) for client in range(len(lengths))]

    def updates() -> Iterator[Update]:
        for client, length in enumerate(lengths):
            model = guard.layout.update(sent, length * direction, 1).model
            yield Update(client, 1 + client, model, {"total": 1.0})

    combined = guard.combined(sent, work, updates())
    assert combined.clients == len(lengths)
    assert combined.terms == {}
    return guard.layout.vector(sent, combined)


@pytest.mark.parametrize("secure", [[], SECURE], ids=["plain", "secure"])
def test_updates_are_clipped_before_they_are_summed(tiny_config: Config, secure: list[str]) -> None:
    settings = ["privacy.differential=central", "privacy.noise_multiplier=0", "privacy.clip=0.5"]
    guard, model = big(tiny_config, *settings, *secure, clients=4)
    for lengths in ([0.1, 0.2, 0.3, 0.4], [0.1, 0.2, 1000.0, 7.0]):
        expected = sum(min(length, 0.5) for length in lengths) / 4
        assert np.linalg.norm(moved_by(guard, model, lengths)) == pytest.approx(expected, rel=1e-3)


@pytest.mark.parametrize("secure", [[], SECURE], ids=["plain", "secure"])
@pytest.mark.parametrize("source", ["seed", "system"])
def test_central_noise_on_the_sum_has_the_standard_deviation_asked_for(
    tiny_config: Config, source: str, secure: list[str]
) -> None:
    settings = ["privacy.differential=central", "privacy.noise_multiplier=2", "privacy.clip=0.5"]
    guard, model = big(tiny_config, *settings, *secure, f"privacy.noise_source={source}", clients=4)
    noise = moved_by(guard, model, [0.0] * 4) * 4
    assert len(noise) > 20_000
    assert np.std(noise) == pytest.approx(2 * 0.5, rel=0.03)
    assert abs(np.mean(noise)) < 0.03
    assert stats.kstest(noise / np.std(noise), "norm").pvalue > 1e-4
    fewer = moved_by(guard, model, [0.0] * 2, round_=1) * 4
    assert np.std(fewer) == pytest.approx(2 * 0.5, rel=0.03), "the divisor is fixed, whoever came"


@pytest.mark.parametrize("secure", [[], SECURE], ids=["plain", "secure"])
def test_local_noise_is_everybodys_own(tiny_config: Config, secure: list[str]) -> None:
    settings = ["privacy.differential=local", "privacy.noise_multiplier=2", "privacy.clip=0.5"]
    guard, model = big(tiny_config, *settings, *secure, clients=9)
    noise = moved_by(guard, model, [0.0] * 9)
    assert np.std(noise) == pytest.approx(2 * 0.5 / math.sqrt(9), rel=0.03)
    assert np.linalg.norm(moved_by(guard, model, [50.0] * 9) - noise) == pytest.approx(0.5, rel=1e-3)


def test_noise_depends_on_seed_and_round(tiny_config: Config) -> None:
    settings = ["privacy.differential=central"]
    guard, model = big(tiny_config, *settings, clients=3)
    first = moved_by(guard, model, [0.0] * 3)
    np.testing.assert_array_equal(first, moved_by(guard, model, [0.0] * 3))
    for other in (
        moved_by(guard, model, [0.0] * 3, round_=1),
        moved_by(big(tiny_config, *settings, "seed=1", clients=3)[0], model, [0.0] * 3),
        moved_by(big(tiny_config, *settings, "privacy.noise_source=system", clients=3)[0], model, [0.0] * 3),
    ):
        assert abs(np.corrcoef(first, other)[0, 1]) < 0.05


@pytest.mark.parametrize("aggregation", MEANS)
def test_with_no_noise_and_a_huge_clip_central_is_the_uniform_mean(tiny_config: Config, aggregation: str) -> None:
    config = tiny_config.with_(
        f"aggregation.name={aggregation}", "partition.kind=dirichlet", "method.lent=off", "labelling.overlap=true"
    )
    private = bits(config.with_("privacy.differential=central", "privacy.clip=1e6", "privacy.noise_multiplier=0"))
    ready = prepare(config)
    assert len(set(ready.federation.sizes.tolist())) > 1
    job = job_of(config, ready.federation)
    state = first_state(config, job.initial_model(), len(ready.federation), 10)
    with config.engine.start(job) as clients:
        for round_ in range(config.aggregation.rounds):
            work = config.aggregation.work(config.seed, round_, list(range(len(ready.federation))))
            sent = Broadcast(state.model, config.aggregation.broadcast(state), round=round_)
            uniform = [replace(update, examples=1) for update in clients.update(sent, work)]
            state = config.aggregation.combine(state, uniform)
    assert_close(private, state.model, 1e-5)


@pytest.mark.parametrize(("aggregation", "partition"), [("fedavg", "iid"), *((name, "dirichlet") for name in MEANS)])
def test_secure_aggregation_gives_the_plain_model_to_its_quantisation(
    tiny_config: Config, aggregation: str, partition: str
) -> None:
    config = tiny_config.with_(
        f"aggregation.name={aggregation}", f"partition.kind={partition}", "labelling.overlap=true"
    )
    plain, secure = run(config), run(config.with_(*SECURE))
    assert_close(dict(secure.model.state_dict()), dict(plain.model.state_dict()), 1e-5)
    assert [line["clients"] for line in secure.curve] == [line["clients"] for line in plain.curve]
    assert all(line["risk"] == {} for line in secure.curve), "the terms of the risk stay with the clients"
    assert "epsilon" not in secure.summary


@pytest.mark.parametrize("kind", list(KINDS))
def test_an_aggregation_that_needs_each_update_is_refused(tiny_config: Config, kind: str) -> None:
    with pytest.raises(
        ConfigError, match=r"'ifca' needs each of them by itself\. Choose an aggregation that takes a mean"
    ):
        run(tiny_config.with_("aggregation.name=ifca", *KINDS[kind]))


def test_what_the_server_keeps_does_not_tell_how_many_clients_came(tiny_config: Config) -> None:
    """A noisy sum is divided by the number to be expected, and |S|/K of SCAFFOLD and FedDyn is that number's too."""
    settings = ["privacy.differential=central", "privacy.noise_multiplier=0", "privacy.clip=1e6", "method.lent=off"]
    config = tiny_config.with_("aggregation.name=scaffold", "aggregation.participation=0.5", *settings)
    job = job_of(config, prepare(config).federation)
    guard = guard_of(config, job.initial_model(), 5, 10)
    assert guard is not None
    came = next(draw for t in range(20) if len(draw := guard.select(t)) not in (2, 3))
    state = first_state(config, job.initial_model(), 5, 10)
    sent = Broadcast(state.model, config.aggregation.broadcast(state))
    work = config.aggregation.work(config.seed, 0, came)
    with config.engine.start(job) as clients:
        updates = list(clients.update(sent, work))
    combined = guard.combined(sent, work, updates)
    assert (combined.clients, combined.divisor) == (len(came), 2.5)
    control = config.aggregation.combine(state, [combined]).extras
    for name, value in control.items():
        torch.testing.assert_close(value, sum(update.extras[name] for update in updates) / 5, rtol=0, atol=1e-6)


def test_coarse_quantisation_is_felt(tiny_config: Config) -> None:
    fine, coarse = bits(tiny_config.with_(*SECURE)), bits(tiny_config.with_(*SECURE, "privacy.quantisation_bits=4"))
    assert max(float((fine[name] - coarse[name]).abs().max()) for name in fine) > 0.05
    with pytest.raises(ConfigError, match=r"overflow.*privacy\.quantisation_bits"):
        run(tiny_config.with_(*SECURE, "privacy.quantisation_bits=50"))


def test_off_changes_nothing_whatever_the_other_settings_say(tiny_config: Config) -> None:
    assert guard_of(tiny_config, torch.nn.Linear(2, 2), 5, 2) is None
    settled = tiny_config.with_("privacy.clip=0.01", "privacy.noise_multiplier=9", "privacy.sampling=fixed")
    assert_same_bits(bits(settled), bits(tiny_config))


@pytest.mark.parametrize("kind", list(KINDS))
def test_any_number_of_workers_gives_the_same_bits(tiny_config: Config, kind: str) -> None:
    config = tiny_config.with_(*KINDS[kind], "aggregation.rounds=2")
    assert_same_bits(bits(config), bits(config.with_("engine.workers=2")))


@pytest.mark.parametrize(("kind", "batch_size"), [*((kind, 20) for kind in KINDS), ("central", 1000)])
def test_both_engines_give_the_same_model(tiny_config: Config, kind: str, batch_size: int) -> None:
    config = tiny_config.with_(
        *KINDS[kind],
        "aggregation.rounds=2",
        f"aggregation.batch_size={batch_size}",
        "partition.clients=8",
        "labelling.overlap=true",
        "aggregation.lr=0.02",
        "aggregation.participation=0.8",
    )
    assert_close(bits(config), bits(config.with_("engine.name=reference")), 2e-5)


@pytest.mark.parametrize("kind", list(KINDS))
def test_a_run_that_was_stopped_goes_on_to_the_same_bits_and_account(
    tiny_config: Config, tmp_path: Path, kind: str
) -> None:
    config = tiny_config.with_(*KINDS[kind], "aggregation.rounds=4", "aggregation.participation=0.7")
    whole, resumed = run(config), stopped_and_resumed(config, tmp_path / "r")
    assert_same_bits(dict(resumed.model.state_dict()), dict(whole.model.state_dict()))
    spent = [line.get("epsilon") for line in resumed.curve]
    assert spent == [line.get("epsilon") for line in whole.curve]
    if kind != "secure":
        assert spent == sorted(set(spent))
        assert resumed.summary["epsilon"] == spent[-1] == RunDirectory.open(tmp_path / "r").rounds()[-1]["epsilon"]
        assert resumed.summary["delta"] == 1e-5


def test_interrupted_rounds_of_local_noise_count_as_often_as_they_were_released(
    tiny_config: Config, tmp_path: Path
) -> None:
    config = tiny_config.with_(*LOCAL, "aggregation.rounds=4", "aggregation.participation=0.7")
    system = config.with_("privacy.noise_source=system")
    for name, one, repeats in (("seed", config, 0), ("system", system, 1)):
        whole = [line["epsilon"] for line in run(one).curve]
        resumed = interrupted_and_resumed(one, tmp_path / name)
        releases = releases_of(one, 4)
        releases[one.aggregation.select(one.seed, 2, 5)] += repeats  # round 3 was asked for twice
        halves = [(0.25, int(releases.max())), (one.privacy.lent_noise_multiplier / 2, 1)]
        assert resumed.curve[-1]["epsilon"] == pytest.approx(gaussian_epsilon(halves, one.privacy.delta))
        assert (resumed.curve[-1]["epsilon"] > whole[-1]) == bool(
            repeats and releases.max() > releases_of(one, 4).max()
        )


def releases_of(config: Config, rounds: int) -> np.ndarray:
    found = np.zeros(5, dtype=int)
    for round_ in range(rounds):
        found[config.aggregation.select(config.seed, round_, 5)] += 1
    return found


def interrupted_and_resumed(config: Config, out: Path) -> Result:
    """Kill a run in its third round, after its clients were asked."""

    class Killed(Exception):
        pass

    asked = Guard.combined

    def killed(self: Guard, sent: Broadcast, *arguments: Any) -> Update:
        if sent.round == 2:
            raise Killed
        return asked(self, sent, *arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Guard, "combined", killed)
        with pytest.raises(Killed):
            run(config, out=out)
    return resume(out)


def stopped_and_resumed(config: Config, path: Path):  # type: ignore[no-untyped-def]
    class Stop(Exception):
        pass

    def stop(line: dict[str, object]) -> None:
        if line["round"] == 2:
            raise Stop

    with pytest.raises(Stop):
        run(config, out=path, on_round=stop)
    return resume(path)


def test_the_sum_of_negative_classes_is_released_once_even_if_a_run_is_resumed(
    tiny_config: Config, tmp_path: Path
) -> None:
    config = tiny_config.with_(*CENTRAL, "privacy.noise_source=system", "aggregation.rounds=4")

    def kept() -> torch.Tensor:
        network = prepare_network(config)
        state = RunDirectory.open(tmp_path / "r").resume_state(first_state(config, network, 5, 10), network)
        return state.once["co_negatives"]

    class Stop(Exception):
        pass

    def stop(line: dict[str, object]) -> None:
        raise Stop

    with pytest.raises(Stop):
        run(config, out=tmp_path / "r", on_round=stop)
    before = kept()
    resume(tmp_path / "r")
    assert torch.equal(before, kept())


def prepare_network(config: Config) -> torch.nn.Module:
    return job_of(config, prepare(config).federation).initial_model()


def test_the_sum_of_negative_classes_is_exact_under_secure_aggregation(tiny_config: Config) -> None:
    guard, positive = lending(tiny_config, *SECURE)
    assert torch.equal(guard.co_negatives(positive, None), co_negatives(positive))
    sizes = torch.tensor([7, 1000, 31, 5, 64])
    assert torch.equal(guard.co_negatives(positive, sizes), co_negatives(positive, sizes))
    assert not torch.equal(co_negatives(positive, sizes), co_negatives(positive))
    off, _ = lending(tiny_config, *SECURE, "method.lent=off")
    assert guard.lends
    assert not off.lends


@pytest.mark.parametrize(("kind", "spread"), [("central", 1.0), ("local", math.sqrt(300))], ids=["central", "local"])
def test_the_sum_of_negative_classes_is_as_noisy_as_asked_for(tiny_config: Config, kind: str, spread: float) -> None:
    settings = [f"privacy.differential={kind}", "privacy.lent_noise_multiplier=0.2"]
    positive = torch.zeros(300, 10, dtype=torch.bool)
    positive[::2, :5] = positive[1::2, 5:] = True
    differences = []
    for seed in range(20):
        guard, _ = lending(tiny_config, *settings, f"seed={seed}")
        noisy = guard.co_negatives(positive, None)
        assert torch.equal(noisy, noisy.T)
        differences.append((noisy - co_negatives(positive)).diagonal())
    # Both triangles are averaged; the diagonal is as noisy as it was.
    assert float(torch.cat(differences).std()) == pytest.approx(0.2 * 10 * spread, rel=0.15)


@pytest.mark.parametrize("kind", ["central", "local"])
def test_sizes_play_no_part_in_it_under_differential_privacy(tiny_config: Config, kind: str) -> None:
    guard, positive = lending(tiny_config, f"privacy.differential={kind}", "privacy.lent_noise_multiplier=0.1")
    sizes = torch.tensor([7, 1000, 31, 5, 64])
    assert torch.equal(guard.co_negatives(positive, sizes), guard.co_negatives(positive, None))
    assert float(guard.co_negatives(positive, sizes).diagonal().max()) <= len(positive) - 1


def test_shared_lending_gives_the_same_model_in_the_open_and_under_secure_aggregation(tiny_config: Config) -> None:
    config = tiny_config.with_("method.lent=shared", "partition.kind=dirichlet", "labelling.overlap=true")
    federation = prepare(config).federation
    assert len(set(federation.sizes.tolist())) > 1
    by_size = co_negatives(federation.positive, federation.sizes)
    assert torch.equal(job_of(config, federation).co_negatives(), by_size)
    assert_close(bits(config.with_(*SECURE)), bits(config), 1e-5)
    printed = job_of(config.with_("method.lent=printed"), federation)
    assert torch.equal(printed.co_negatives(), co_negatives(federation.positive))


def lending(tiny_config: Config, *changes: str) -> tuple[Guard, torch.Tensor]:
    config = tiny_config.with_(*changes)
    ready = prepare(config)
    guard = guard_of(config, prepare_network(config), len(ready.federation), 10)
    assert guard is not None
    return guard, ready.federation.positive


def test_poisson_draws_are_coins_that_depend_on_seed_and_round(tiny_config: Config) -> None:
    guard, _ = big(tiny_config, *CENTRAL, "aggregation.participation=0.1", clients=500)
    draws = [guard.select(round_) for round_ in range(200)]
    sizes = [len(draw) for draw in draws]
    assert np.mean(sizes) == pytest.approx(50, abs=2)
    assert np.var(sizes) == pytest.approx(45, rel=0.3)
    assert draws[3] == guard.select(3)
    assert draws[3] != draws[4]
    assert guard.expected == 50
    fixed, _ = big(tiny_config, *CENTRAL, "aggregation.participation=0.1", "privacy.sampling=fixed", clients=500)
    assert fixed.select(3) == fixed.aggregation.select(0, 3, 500)
    secret, _ = big(
        tiny_config,
        *CENTRAL,
        "aggregation.participation=0.1",
        "privacy.sampling=fixed",
        "privacy.noise_source=system",
        clients=500,
    )
    assert len(set(secret.select(3))) == 50
    assert secret.select(3) != secret.select(3)


def test_a_round_without_clients_is_noise_alone(tiny_config: Config) -> None:
    config = tiny_config.with_(*CENTRAL, "aggregation.participation=0.01", "aggregation.rounds=1")
    result = run(config)
    assert result.curve[0]["clients"] == 0
    start = prepare_network(config).state_dict()
    assert all(not torch.equal(start[name], value) for name, value in result.model.state_dict().items())


def test_with_secure_aggregation_a_draw_of_fewer_than_two_clients_is_noise_alone(tiny_config: Config) -> None:
    config = tiny_config.with_(*CENTRAL, *SECURE, "aggregation.participation=0.2", "aggregation.rounds=6")
    guard = guard_of(config, prepare_network(config), 5, 10)
    assert guard is not None
    drawn = [len(guard.select(round_)) for round_ in range(6)]
    assert {0, 1} < set(drawn)
    result = run(config)
    assert [line["clients"] for line in result.curve] == [0 if number < 2 else number for number in drawn]
    # The one client of a draw has no part in the model: it moves by the noise that a draw of nobody moves it by.
    sent = Broadcast(dict(prepare_network(config).state_dict()), round=0)
    work = [Work(3, 0, 0.1)]
    assert guard.asked(work) == []
    alone = guard.combined(sent, work, iter([]))
    assert_same_bits(alone.model, guard.combined(sent, [], iter([])).model)
    assert any(not torch.equal(alone.model[name], value) for name, value in sent.model.items())


def test_too_few_clients_for_a_secure_sum_are_refused_with_a_sentence(tiny_config: Config) -> None:
    with pytest.raises(Exception, match=r"at least two clients.*aggregation\.participation"):
        run(tiny_config.with_(*SECURE, "aggregation.participation=0.2"))
    with pytest.raises(Exception, match=r"at least two clients"):
        run(tiny_config.with_(*SECURE, *CENTRAL, "privacy.sampling=fixed", "aggregation.participation=0.2"))


def test_statistics_of_batch_norm_are_refused_and_frozen_parameters_left_alone(tiny_config: Config) -> None:
    with pytest.raises(ConfigError, match=r"running_mean.*GroupNorm"):
        run(tiny_config.with_(*CENTRAL, "data.name=mnist-5k", "model.name=resnet9", "model.norm=batch"))
    network = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(2, 2))
    network[0].requires_grad_(False)
    layout = Layout(network, {"control": torch.zeros(3)}, {"mean": torch.zeros(2)})
    assert layout.length == 6 + 3 + 2
    model = {name: value.detach() for name, value in network.state_dict().items()}
    sent = Broadcast(model, shared={"mean": torch.ones(2)})
    update = layout.update(sent, np.ones(11), 4)
    assert torch.equal(update.model["0.weight"], model["0.weight"])
    assert update.extras["control"].tolist() == [1.0] * 3
    assert update.shared["mean"].tolist() == [2.0] * 2
    np.testing.assert_allclose(layout.vector(sent, update), 1, atol=1e-6)


def test_a_comparison_shows_what_was_spent(tiny_config: Config) -> None:
    comparison = compare(tiny_config.with_("aggregation.rounds=1"), "fedpu,fedpu+privacy.differential=central", [0])
    plain, private = comparison.rows
    assert plain.epsilon is None
    assert private.epsilon == private.to_dict()["epsilon"] == pytest.approx(4.42, abs=0.01)
    headings, first, second = table(comparison)
    assert headings[-2:] == ("ε spent", "seconds")
    assert (first[-2], second[-2]) == ("–", "4.42")
    assert "| ε spent |" in markdown(comparison)
