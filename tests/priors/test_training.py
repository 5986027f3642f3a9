"""Priors that clients estimate while they are trained: from no knowledge, from their own data, to the same bits."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedpu.aggregation.base import weighted_mean
from fedpu.applications.experiment import resume, run
from fedpu.applications.prepared import Prepared, prepare
from fedpu.applications.prior_estimates import estimate_priors
from fedpu.config import Config
from fedpu.data import Dataset, load
from fedpu.engine import ClientStates, Job, LocalEngine, client_outputs
from fedpu.errors import ConfigError, EstimationError
from fedpu.labelling import Scenario
from fedpu.priors import ESTIMATORS, Priors, divided, estimate_client, population_priors, unlabelled_priors
from fedpu.priors.running import first_guess
from fedpu.priors.unlabelled import priors_of_no_knowledge
from fedpu.report.priors import priors_figure, priors_table
from fedpu.round import Broadcast, Work, prefixed


@pytest.fixture(scope="module")
def config(tiny_config: Config) -> Config:
    return tiny_config.with_(
        "priors.source=estimated",
        "priors.every=2",
        "aggregation.rounds=12",
        "aggregation.batch_size=20",
        "partition.clients=4",
        "labelling.positive=3",
        "labelling.overlap=true",
    )


counts = st.lists(st.integers(0, 40), min_size=4, max_size=4)


@given(counts, st.integers(1, 100), st.sampled_from(["censored", "case-control"]))
def test_no_knowledge_takes_classes_as_even_inside_the_unlabelled_data(
    labelled: list[int], unlabelled: int, scenario: Scenario
) -> None:
    known, hidden = torch.tensor([labelled]), torch.tensor([unlabelled])
    priors = priors_of_no_knowledge(known, hidden, scenario)
    assert float(priors.sum()) == pytest.approx(1, abs=1e-5)
    inside, _ = unlabelled_priors(priors, known, hidden, scenario)
    assert inside[0].tolist() == pytest.approx([0.25] * 4, abs=1e-5)


@given(
    counts,
    st.integers(1, 100),
    st.lists(st.floats(0.01, 1), min_size=4, max_size=4),
    st.sampled_from(["censored", "case-control"]),
)
def test_population_priors_are_the_inverse_of_unlabelled_priors(
    labelled: list[int], unlabelled: int, weights: list[float], scenario: Scenario
) -> None:
    inside = np.array(weights) / sum(weights)
    known = torch.tensor(labelled)
    priors = population_priors(inside, known, unlabelled, scenario)
    assert priors.sum() == pytest.approx(1)
    back, _ = unlabelled_priors(torch.from_numpy(priors), known, torch.tensor(unlabelled), scenario)
    assert back.numpy() == pytest.approx(inside, abs=1e-9)


def test_classes_that_an_estimator_can_not_tell_share_the_rest() -> None:
    own = np.array([0.4, np.nan, np.nan])
    assert divided(own, None) == pytest.approx([0.4, 0.3, 0.3])
    assert divided(own, np.array([0.7, 0.1, 0.2])) == pytest.approx([0.4, 0.2, 0.4])


def test_they_start_from_no_knowledge_and_come_near_the_truth(config: Config, tmp_path: Path) -> None:
    skewed = config.with_("partition.kind=classes", "partition.classes_per_client=5")
    skewed = skewed.with_("aggregation.rounds=30")
    start = prepare(skewed)
    assert start.true_priors is not None
    assert start.federation.priors is not None
    before = float((start.federation.priors - start.true_priors).abs().mean())
    assert before > 0.06
    run(skewed, out=tmp_path / "r")
    told = [json.loads(text).get("priors") for text in (tmp_path / "r/rounds.jsonl").read_text().splitlines()]
    estimates = [line for line in told if line]
    assert estimates[-1]["mean_absolute_error"] < 0.03
    assert np.sum(estimates[-1]["values"], axis=1) == pytest.approx(1, abs=1e-3)
    assert len(estimates) < len(told)


def test_a_client_estimates_every_few_rounds_once_the_model_is_sure(config: Config, tmp_path: Path) -> None:
    em = config.with_("priors.estimator=em")
    run(em.with_("priors.trust=0", "priors.every=5"), out=tmp_path / "eager")
    run(em.with_("priors.trust=1"), out=tmp_path / "never")

    def rounds(name: str) -> list[int]:
        lines = map(json.loads, (tmp_path / name / "rounds.jsonl").read_text().splitlines())
        return [line["round"] for line in lines if "priors" in line]

    assert rounds("eager") == [1, 6, 11]
    assert rounds("never") == []


def test_bits_are_the_same_for_workers_and_after_resuming(config: Config, tmp_path: Path) -> None:
    eager = config.with_("priors.trust=0", "aggregation.rounds=4")
    whole = run(eager, out=tmp_path / "whole")
    two = run(eager.with_("engine.workers=2"))
    assert all(torch.equal(a, b) for a, b in zip(whole.model.parameters(), two.model.parameters(), strict=True))

    class Stop(Exception):
        pass

    def stop(line: dict[str, object]) -> None:
        if line["round"] == 2:
            raise Stop

    with pytest.raises(Stop):
        run(eager, out=tmp_path / "cut", on_round=stop)
    again = resume(tmp_path / "cut")
    assert all(torch.equal(a, b) for a, b in zip(whole.model.parameters(), again.model.parameters(), strict=True))
    last = [json.loads((tmp_path / name / "rounds.jsonl").read_text().splitlines()[2]) for name in ("whole", "cut")]
    assert last[0]["priors"] == last[1]["priors"]


def test_both_engines_estimate_alike(config: Config) -> None:
    model = dict(run(config.with_("aggregation.rounds=6", "priors.source=known")).model.state_dict())
    config = config.with_("priors.trust=0")
    job = Job(prepare(config).federation, config.method, config.model, 0, config.priors)
    work = [Work(client=k, round=6, lr=0.1, batch_size=50) for k in range(4)]
    found = []
    for name in ("local", "reference"):
        with config.with_(f"engine.name={name}").engine.start(job) as clients:
            found.append((weighted_mean(clients.update(Broadcast(model), work)), clients.states()))
    (fast, fast_kept), (plain, plain_kept) = found
    for k in range(4):
        assert fast_kept[k]["priors.last"] == 6
        assert torch.equal(fast_kept[k]["priors.priors"], plain_kept[k]["priors.priors"])
    assert all(torch.allclose(fast[name], plain[name], atol=1e-5) for name in fast)


def test_estimated_priors_are_what_training_uses(config: Config) -> None:
    ready = prepare(config)
    assert ready.federation.priors is not None
    job = Job(ready.federation, config.method, config.model, 0, config.priors.model_copy(update={"every": 99}))
    start = dict(job.initial_model().state_dict())
    for engine in (LocalEngine(workers=1), Config.from_dict({"engine": {"name": "reference", "workers": 1}}).engine):
        models = []
        for priors in (ready.federation.priors[1], torch.tensor([0.9] + [0.1 / 9] * 9), ready.federation.priors[1]):
            known = first_guess(priors) | {"last": torch.tensor(0)}
            with engine.start(job) as clients:
                clients.restore(ClientStates({1: prefixed({"priors": known})}))
                (update,) = clients.update(Broadcast(start), [Work(client=1, round=1, lr=0.1, batch_size=20)])
                models.append(update.model)
        plain, other, same = models
        assert all(torch.equal(plain[name], same[name]) for name in plain)
        assert any(not torch.equal(plain[name], other[name]) for name in plain)


def poisonable(config: Config) -> tuple[Config, Prepared, Dataset]:
    clean = load(config.data)
    data = replace(clean, labels=clean.labels.clone())
    eager = config.with_("priors.trust=0", "labelling.positive=5", "labelling.overlap=true", "partition.clients=3")
    return eager, prepare(eager, data), data


def test_poisoned_hidden_labels_do_not_change_training_with_estimates(config: Config) -> None:
    """Hidden labels are overwritten where they live, and what clients have estimated and trained is the same."""
    eager, ready, data = poisonable(config)
    job = Job(ready.federation, eager.method, eager.model, 0, eager.priors)

    def trained() -> list[torch.Tensor]:
        start = {key: value.clone() for key, value in job.initial_model().state_dict().items()}
        work = [Work(client=k, round=0, lr=0.1, batch_size=20) for k in range(3)]
        with LocalEngine(workers=1).start(job) as clients:
            (*_, update) = clients.update(Broadcast(start), work)
            return [*update.model.values(), *(clients.states()[k]["priors.priors"] for k in range(3))]

    before = trained()
    data.labels.fill_(7)
    ready.hidden.labels.fill_(3)
    assert all(torch.equal(a, b) for a, b in zip(before, trained(), strict=True))


@pytest.mark.parametrize("name", list(ESTIMATORS))
def test_poisoned_hidden_labels_do_not_change_an_estimate(config: Config, name: str) -> None:
    eager, ready, data = poisonable(config)
    network = Job(ready.federation, eager.method, eager.model, 0, eager.priors).initial_model()
    settings = Priors(source="estimated", estimator=name)

    def estimate() -> list[torch.Tensor]:
        client = ready.federation.client(0)
        found = estimate_client(client, client_outputs(client, network), settings, seed=0, bootstrap=3)
        return [torch.from_numpy(values.copy()) for values in (found.priors, found.lower, found.upper)]

    before = estimate()
    data.labels.fill_(7)
    ready.hidden.labels.fill_(3)
    assert all(torch.equal(a.nan_to_num(-1), b.nan_to_num(-1)) for a, b in zip(before, estimate(), strict=True))


def test_nothing_new_goes_to_the_server(config: Config) -> None:
    known, estimated = (
        prepare(config.with_(f"priors.source={source}", "priors.trust=0")) for source in ("known", "estimated")
    )
    for ready, priors in ((known, Priors()), (estimated, config.priors)):
        job = Job(ready.federation, config.method, config.model, 0, priors)
        start = dict(job.initial_model().state_dict())
        with LocalEngine(workers=1).start(job) as clients:
            (update,) = clients.update(Broadcast(start), [Work(client=0, round=0, lr=0.1, batch_size=20)])
        assert set(vars(update)) == {"client", "examples", "model", "terms", "extras", "shared", "clients", "divisor"}
        assert update.extras == update.shared == {}
        assert {name: value.shape for name, value in update.model.items()} == {
            name: value.shape for name, value in start.items()
        }


def test_data_that_nobody_knows_can_be_trained_with_estimates(digits: Dataset, config: Config) -> None:
    labels = digits.labels.clone()
    labels[::2] = -1
    unknown = replace(digits, labels=labels)
    given = config.with_('labelling.positive="as-given"', "labelling.overlap=true", "aggregation.rounds=5")
    result = run(given, data=unknown)
    assert result.accuracy > 0.5
    with pytest.raises(ConfigError, match="estimated"):
        run(given.with_("priors.source=known"), data=unknown)


def test_the_whole_estimate_with_intervals_beside_the_truth(config: Config, tmp_path: Path) -> None:
    found = estimate_priors(config.with_("aggregation.rounds=40"), out=tmp_path / "r", bootstrap=50)
    again = estimate_priors(config.with_("aggregation.rounds=40"), out=tmp_path / "r", bootstrap=50)
    assert found.to_dict() == again.to_dict()
    assert found.mean_absolute_error is not None
    assert found.mean_absolute_error < 0.04
    held = 0
    for client in found.clients:
        assert client.truth is not None
        assert client.estimate is not None
        assert client.estimate.sum() == pytest.approx(1)
        assert client.true_negative == pytest.approx(1 - client.truth[client.positive].sum())
        for c in range(10):
            assert client.lower[c] <= client.estimate[c] + 1e-9  # type: ignore[index]
            held += client.lower[c] - 1e-9 <= client.truth[c] <= client.upper[c] + 1e-9  # type: ignore[index]
    assert held > 20
    assert priors_table(found).row_count == 4
    assert priors_figure(found).axes


def test_estimators_from_the_examples_need_no_training(config: Config) -> None:
    plain = config.with_("priors.others=even", "priors.estimator=bbe", "partition.clients=2", "labelling.positive=5")
    found = estimate_priors(plain, bootstrap=0)
    assert found.rounds == 0
    assert found.accuracy is None
    for client in found.clients:
        assert client.estimate is not None
        assert np.isfinite(client.estimate).tolist() == [c in client.positive for c in range(10)]


def test_mistakes_are_told(config: Config) -> None:
    with pytest.raises(ConfigError, match=r"priors.options: 'calibation' of the estimator 'em'.*calibration"):
        prepare(
            config.model_copy(
                update={"priors": Priors(source="estimated", estimator="em", options={"calibation": "bcts"})}
            )
        )
    with pytest.raises(ConfigError, match="Did you mean 'bbse'"):
        config.with_("priors.estimator=bbsee")
    everything = config.with_("labelling.fraction=1", "labelling.positive=10")
    with pytest.raises(EstimationError, match="unlabelled"):
        estimate_priors(everything)


def test_a_client_with_too_few_labelled_examples_asks_the_model(config: Config) -> None:
    few = config.with_("labelling.per_class=5", "aggregation.rounds=40", "priors.every=5")
    with pytest.raises(EstimationError, match="too few of the positives"):
        estimate_priors(few.with_("aggregation.rounds=1"))
    told = [line["priors"] for line in run(few).curve if "priors" in line]
    assert told[-1]["estimated"] >= 1
    assert np.sum(told[-1]["values"], axis=1) == pytest.approx(1, abs=1e-3)


def test_training_goes_on_where_nothing_is_unlabelled(config: Config) -> None:
    everything = config.with_("labelling.fraction=1", "labelling.positive=10", "priors.trust=0")
    assert run(everything).accuracy > 0.5
