"""A run with held-out data: training never sees them, hidden labels never enter, and the record has the score."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from fedpu.applications.comparison import compare
from fedpu.applications.experiment import resume, run
from fedpu.applications.prepared import prepare
from fedpu.config import Config
from fedpu.data import load
from fedpu.engine import initial_model
from fedpu.errors import ConfigError
from fedpu.record import RunDirectory
from fedpu.report import save_comparison
from fedpu.risk import client_posterior, consistent_priors, labelled_odds, observable_loss
from fedpu.validation import TEMPERATURES, tallies, validation_of


@pytest.fixture(scope="module")
def config(tiny_config: Config) -> Config:
    return tiny_config.with_("evaluation.validation=0.1")


def test_training_sees_the_rest_alone(config: Config) -> None:
    ready = prepare(config)
    assert ready.held_out is not None
    seen = {row.numpy().tobytes() for row in ready.federation.inputs}
    held = [row.numpy().tobytes() for row in ready.held_out.federation.inputs]
    assert len(ready.federation.inputs) + len(held) == 1442
    assert abs(len(held) - 144) <= 5
    twins = sum(row in seen for row in held)
    assert twins <= 2, "images that are there twice in the data aside, nothing is on both sides"
    assert int(ready.federation.sizes.sum()) == len(ready.federation.inputs)
    nothing = prepare(config.with_("evaluation.validation=0"))
    assert nothing.held_out is None
    assert len(nothing.federation.inputs) == 1442


def test_every_client_computes_its_own_part(config: Config) -> None:
    """The sums of all clients at once are those that each would compute from its own data."""
    ready = prepare(config.with_("partition.kind=dirichlet", "labelling.overlap=true"))
    held = ready.held_out
    assert held is not None
    network = initial_model(config.model, (1, 8, 8), 10, 0)
    told = tallies(network, held, torch.device("cpu"))
    priors = consistent_priors(held.summary)
    shares = (held.sizes.double() / held.sizes.sum()) @ priors
    for k in range(5):
        client = held.federation.client(k)
        inputs, labels = client.batch(torch.arange(len(client.labels)))
        logits = network.eval()(inputs).detach()
        odds = labelled_odds(held.summary, priors)[k]
        expected = [len(labels), int((logits.argmax(dim=1) == labels).sum()), int((labels >= 0).sum())]
        for temperature in TEMPERATURES:
            posterior = client_posterior(logits / temperature, priors[k], shares)
            expected.append(float(observable_loss(posterior, labels, odds, "censored").sum()))
        np.testing.assert_allclose(told[k], expected, rtol=1e-5)
    means = told[:, 3:].sum(dim=0) / told[:, 0].sum()
    found = validation_of(told)
    assert found.score == pytest.approx(float(means.min()))
    assert found.temperature == TEMPERATURES[int(means.argmin())]
    assert found.as_trained == pytest.approx(float(means[TEMPERATURES.index(1)]))


def test_a_model_that_is_too_sure_of_itself_is_scored_as_if_it_were_not(config: Config) -> None:
    """Four times the logits are the same decisions: the score is the same, and the temperature is higher."""
    result = run(config.with_("aggregation.rounds=6"))
    held = prepare(config).held_out
    assert held is not None
    calm, sure = (
        validation_of(tallies(model, held, torch.device("cpu"))) for model in (result.model, _Sharper(result.model))
    )
    assert sure.score == pytest.approx(calm.score)
    assert sure.temperature == pytest.approx(4 * calm.temperature)
    assert sure.as_trained > sure.score
    assert sure.labelled_accuracy == calm.labelled_accuracy


class _Sharper(torch.nn.Module):
    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.model(inputs)
        return 4 * logits


def test_hidden_labels_do_not_change_the_score(config: Config) -> None:
    clean = load(config.data)
    data = replace(clean, labels=clean.labels.clone())
    ready = prepare(config, data)
    network = initial_model(config.model, (1, 8, 8), 10, 0)
    assert ready.held_out is not None
    before = tallies(network, ready.held_out, torch.device("cpu"))
    data.labels.fill_(7)
    ready.hidden.labels.fill_(3)
    ready.test_set.labels.fill_(5)
    assert ready.whole is not None
    ready.whole[1].labels.fill_(3)
    assert torch.equal(tallies(network, ready.held_out, torch.device("cpu")), before)


def test_the_record_has_the_score_and_a_stopped_run_goes_on_to_the_same(config: Config, tmp_path: Path) -> None:
    whole = run(config, out=tmp_path / "whole")
    assert all({"validation", "validation_accuracy"} <= set(line) for line in whole.curve)
    result = json.loads((tmp_path / "whole/result.json").read_text())
    assert result["validation"] == whole.curve[-1]["validation"]
    assert result["validation_accuracy"] == whole.curve[-1]["validation_accuracy"]
    assert result["examples"] + result["held_out"] == 1442

    class Stop(Exception):
        pass

    def stop(line: dict) -> None:
        if line["round"] == 2:
            raise Stop

    with pytest.raises(Stop):
        run(config, out=tmp_path / "r", on_round=stop)
    resumed = resume(tmp_path / "r")
    assert resumed.curve[-1]["validation"] == whole.curve[-1]["validation"]
    labels = np.load(tmp_path / "r/partition.npz")["labels"]
    assert len(labels) == 1442
    assert int((labels >= 0).sum()) > result["labelled"]
    assert RunDirectory.open(tmp_path / "r").config() == config


@pytest.mark.parametrize(
    "changes",
    [
        ["labelling.scenario=case-control"],
        ["method.name=positive-only"],
        ["method.name=supervised"],
        ["priors.source=given", "priors.values=0.05"],
        ["priors.source=estimated", "priors.estimator=count"],
        ["engine.name=reference"],
        ["privacy.secure_aggregation=true"],
    ],
    ids=lambda changes: changes[0],
)
def test_it_is_there_whatever_else_is_chosen(config: Config, changes: list[str]) -> None:
    result = run(config.with_("aggregation.rounds=2", *changes))
    assert np.isfinite(result.summary["validation"])
    assert 0 <= result.summary["validation_accuracy"] <= 1


def test_estimated_priors_are_those_of_the_moment(config: Config) -> None:
    ready = prepare(config)
    assert ready.held_out is not None
    assert ready.held_out.summary.priors is not None
    network = initial_model(config.model, (1, 8, 8), 10, 0)
    told = tallies(network, ready.held_out, torch.device("cpu"))
    others = {k: ready.held_out.summary.priors[k].flip(0) for k in range(5)}
    assert not torch.equal(tallies(network, ready.held_out, torch.device("cpu"), others), told)
    summary = ready.held_out.summary._replace(priors=ready.held_out.summary.priors.flip(1))
    flipped = replace(ready.held_out, summary=summary)
    assert torch.equal(
        tallies(network, ready.held_out, torch.device("cpu"), others), tallies(network, flipped, torch.device("cpu"))
    )


def test_what_it_can_not_be_used_with_is_said_in_a_sentence(config: Config) -> None:
    with pytest.raises(ConfigError, match="does not count"):
        run(config.with_("privacy.differential=central"))
    with pytest.raises(ConfigError, match=r"validation = 0\.6 can't be used"):
        config.with_("evaluation.validation=0.6")
    pytest.importorskip("flwr")
    from fedpu.deploy.folder import write_config

    with pytest.raises(ConfigError, match="can't be used in a deployment yet"):
        write_config(Path("never"), config)


def test_a_comparison_shows_it_beside_the_accuracy(config: Config, tmp_path: Path) -> None:
    result = compare(config.with_("aggregation.rounds=1"), "fedpu,supervised", [0, 1], out=tmp_path)
    save_comparison(result, tmp_path)
    page = (tmp_path / "comparison.md").read_text()
    fedpu, supervised = result.rows
    assert fedpu.validations is not None
    assert supervised.validations is not None
    assert f"{np.mean(fedpu.validations):.4f} ± " in page
    assert f"{np.mean(supervised.validations):.4f}" not in page, "which is of other labels"
    assert result.to_dict()["rows"][0]["validations"] == fedpu.validations
