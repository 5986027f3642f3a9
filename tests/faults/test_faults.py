"""Faulty clients: who they are, what each fault does to an update, and that runs with them resume to the same bits."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from fedpu.aggregation import AGGREGATIONS
from fedpu.applications.comparison import variant
from fedpu.applications.experiment import resume, run
from fedpu.applications.prepared import prepare
from fedpu.config import Config
from fedpu.engine import Clients
from fedpu.errors import ConfigError
from fedpu.faults import KINDS, Faults, FaultyClients, mislabelled
from fedpu.round import Broadcast, Update, Work

SENT = Broadcast({"w": torch.tensor([1.0, 2.0]), "steps": torch.tensor(3)}, round=2)
FIRST = {"w": torch.tensor([9.0, 9.0]), "steps": torch.tensor(0)}


class Plain(Clients):
    """Client k moves by k + 1, times the share of its steps."""

    def update(self, sent: Broadcast, work: Sequence[Work], each: bool = True) -> Iterator[Update]:
        for one in work:
            step = (one.client + 1) * one.share
            model = {"w": sent.model["w"] + torch.tensor([step, 0.0]), "steps": torch.tensor(4)}
            yield Update(one.client, 10, model, {}, extras={"c": torch.tensor([step])})


def answers(faulty: dict[int, str], **settings: Any) -> dict[int, Update]:
    clients = FaultyClients(Plain(), Faults(**settings), faulty, FIRST, seed=0)
    found = {one.client: one for one in clients.update(SENT, [Work(k, 2, 0.1) for k in range(4)])}
    found |= {int(name): Update(int(name), 0, {}, {}) for name in clients.left_out}
    return found


def moved(update: Update) -> list[float]:
    return (update.model["w"] - SENT.model["w"]).tolist()


def test_each_fault_is_what_it_says() -> None:
    assert moved(answers({1: "sign_flip"}, flip_by=5.0)[1]) == [-10.0, 0.0]
    assert moved(answers({1: "scale"}, scale_by=3.0)[1]) == [6.0, 0.0]
    assert moved(answers({1: "slow"}, slow_share=0.25)[1]) == [0.5, 0.0]
    assert bool(answers({1: "nan"})[1].model["w"].isnan().all())
    assert answers({1: "stale"})[1].model["w"].tolist() == [11.0, 9.0], "trained from the run's first model"
    assert answers({1: "silent"})[1].model == {}
    assert answers({1: "sign_flip"})[1].extras["c"].tolist() == [-2.0], "it lies in all that it sends"


def test_a_little_is_the_mean_of_the_others_less_some_deviations() -> None:
    found = answers({0: "little", 2: "little"}, little_by=2.0)
    honest = torch.tensor([moved(found[1]), moved(found[3])])
    expected = honest.mean(dim=0) - 2 * honest.std(dim=0, correction=0)
    for liar in (0, 2):
        torch.testing.assert_close(torch.tensor(moved(found[liar])), expected)


def test_noise_is_as_long_as_the_update_and_another_in_every_round() -> None:
    big = Broadcast({"w": torch.zeros(10_000)}, round=2)

    class Far(Plain):
        def update(self, sent: Broadcast, work: Sequence[Work], each: bool = True) -> Iterator[Update]:
            return (Update(one.client, 10, {"w": sent.model["w"] + 0.5}, {}) for one in work)

    clients = FaultyClients(Far(), Faults(noise_by=2.0), {1: "noise"}, FIRST, seed=0)
    [one] = clients.update(big, [Work(1, 2, 0.1)])
    assert float(one.model["w"].norm()) == pytest.approx(2 * 50.0, rel=0.05)
    [other] = clients.update(Broadcast(big.model, round=3), [Work(1, 3, 0.1)])
    assert not torch.equal(one.model["w"], other.model["w"])


def test_the_honest_are_left_alone() -> None:
    for kind in KINDS:
        found = answers({1: kind})
        assert [moved(found[k]) for k in (0, 2, 3)] == [[1.0, 0.0], [3.0, 0.0], [4.0, 0.0]], kind


def test_who_is_faulty_depends_on_the_seed_alone_and_is_the_same_for_every_fault() -> None:
    assert Faults().drawn(0, 10) == {}
    liars = {kind: tuple(Faults(**{kind: 2}).drawn(3, 10)) for kind in KINDS}
    assert len(set(liars.values())) == 1
    assert len({tuple(Faults(nan=2).drawn(seed, 10)) for seed in range(20)}) > 5
    assert Faults(sign_flip=1, nan=2).named(3, 10).keys() == {"sign_flip", "nan"}
    with pytest.raises(ConfigError, match="asks for 11 faulty clients, and there are 10"):
        Faults(silent=11).drawn(0, 10)


def test_swapped_labels_are_swapped_on_the_liars_alone(tiny_config: Config) -> None:
    federation = prepare(tiny_config).federation
    faults = Faults(label_swap=2)
    liars = faults.named(0, 5)["label_swap"]
    swapped = mislabelled(federation, faults, 0)
    for k in range(5):
        own, truth = swapped.client(k), federation.client(k)
        known = truth.labels >= 0
        expected = 9 - truth.labels[known] if k in liars else truth.labels[known]
        assert torch.equal(own.labels[known], expected)
        assert bool((own.labels[~known] == -1).all())
        assert bool(own.positive[own.labels[known]].all()), "they say that these are their classes"
    assert mislabelled(federation, Faults(), 0) is federation


@pytest.mark.parametrize("kind", KINDS)
def test_every_fault_runs_and_resumes_to_the_same_bits(tiny_config: Config, tmp_path: Path, kind: str) -> None:
    config = tiny_config.with_(f"faults.{kind}=1", "aggregation.name=agreement")

    class Stop(Exception):
        pass

    def stop(line: dict[str, Any]) -> None:
        if line["round"] == 2:
            raise Stop

    with pytest.raises(Stop):
        run(config, out=tmp_path / "r", on_round=stop)
    resumed, whole = resume(tmp_path / "r"), run(config)
    assert all(torch.equal(value, whole.model.state_dict()[name]) for name, value in resumed.model.state_dict().items())
    told = [{name: line.get(name) for name in ("left_out", "cut")} for line in whole.curve]
    assert [{name: line.get(name) for name in ("left_out", "cut")} for line in resumed.curve] == told
    assert whole.summary["faults"] == {kind: list(config.faults.drawn(0, 5))}


@pytest.mark.parametrize("aggregation", list(AGGREGATIONS))
def test_no_client_ends_a_run_under_any_aggregation(tiny_config: Config, aggregation: str) -> None:
    config = tiny_config.with_(f"aggregation.name={aggregation}", "faults.nan=1", "faults.silent=1", "faults.stale=1")
    result = run(config)
    assert all(bool(torch.isfinite(value).all()) for value in result.model.state_dict().values())
    faults = result.summary["faults"]
    for line in result.curve:
        assert line["left_out"].keys() >= {str(faults["nan"][0]), str(faults["silent"][0])}
        assert "NaN" in line["left_out"][str(faults["nan"][0])]


def test_both_engines_of_one_machine_have_the_same_liars(tiny_config: Config) -> None:
    config = tiny_config.with_("faults.sign_flip=1", "faults.noise=1", "faults.label_swap=1")
    one, other = (run(config.with_(f"engine.name={name}")) for name in ("local", "reference"))
    for name, value in one.model.state_dict().items():
        torch.testing.assert_close(other.model.state_dict()[name], value, rtol=2e-5, atol=2e-5)


def test_nan_is_not_played_under_privacy(tiny_config: Config) -> None:
    with pytest.raises(ConfigError, match=r"faults\.nan.*\[privacy\]"):
        run(tiny_config.with_("faults.nan=1", "privacy.secure_aggregation=true"))


def test_if_everybody_is_silent_the_run_says_so(tiny_config: Config) -> None:
    from fedpu.errors import TrainingError

    with pytest.raises(TrainingError, match="No client returned an update"):
        run(tiny_config.with_("faults.silent=5"))


def test_a_comparison_may_ask_for_liars_in_a_column_of_its_own(tiny_config: Config) -> None:
    asked = variant(tiny_config, "fedpu+faults.sign_flip=2+aggregation.name=agreement")
    assert asked.faults.named(0, 5) == {"sign_flip": sorted(asked.faults.drawn(0, 5))}
    assert asked.aggregation.name == "agreement"
    assert tiny_config.faults.count == 0
