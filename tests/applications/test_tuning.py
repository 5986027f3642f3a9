"""Settings are chosen by the score without hidden labels and by nothing else; a search that was stopped goes on."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from fedpu.applications import tuning
from fedpu.applications.tuning import combinations, folder_name, tune
from fedpu.config import Config
from fedpu.data import load
from fedpu.errors import ConfigError, FedpuError


def test_all_combinations_are_tried() -> None:
    found = combinations(["aggregation.lr=.03,.1,.03", "method.clamp=max,off", "model.hidden=[16],[8, 4]"])
    assert len(found) == 2 * 2 * 2
    assert found[0] == ("aggregation.lr=0.03", "method.clamp=max", "model.hidden=[16]")
    assert len({folder_name(settings) for settings in found}) == len(found)
    assert folder_name(("aggregation.lr=0.03",)) == "aggregation.lr=0.03"
    assert "/" not in folder_name(("model.name=a/b:c",))


@pytest.mark.parametrize(
    ("over", "message"),
    [
        ([], "nothing to choose from"),
        (["aggregation.lr"], "can't be tried"),
        (["aggregation.lr="], "can't be tried"),
        (["aggregation.lr=1", "aggregation.lr=2"], "given twice"),
        (["seed=0,1"], "use --seeds"),
        (["labelling.fraction=.1,.2"], "other labels"),
    ],
)
def test_what_can_not_be_chosen_is_said(over: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        combinations(over)


def test_the_lowest_score_wins_whatever_the_test_set_says(tiny_config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    clean = load(tiny_config.data)
    over = ["aggregation.lr=.001,.1", "method.lent=off,printed"]
    first = tune(tiny_config, over, [0, 1], data=clean)
    assert [trial.score for trial in first.trials] == sorted(trial.score for trial in first.trials)
    assert "aggregation.lr=0.1" in first.best.settings
    assert first.best_config.evaluation.validation == 0
    assert first.best_config.aggregation.lr == 0.1
    poisoned = replace(clean, test_labels=9 - clean.test_labels)
    again = tune(tiny_config, over, [0, 1], data=poisoned)
    assert [trial.settings for trial in again.trials] == [trial.settings for trial in first.trials]
    assert [trial.scores for trial in again.trials] == [trial.scores for trial in first.trials]
    assert again.best.test_accuracies != first.best.test_accuracies
    assert "test" not in json.dumps(first.to_dict()["trials"])
    assert "test_accuracies_not_used" in json.dumps(first.to_dict(show_test=True))


def test_a_search_goes_on_where_it_was(tiny_config: Config, tmp_path: Path) -> None:
    seen: list[str] = []

    def on_run(name: str, seed: int):  # type: ignore[no-untyped-def]
        return lambda line: seen.append(name)

    over = ["aggregation.lr=.01,.1"]
    first = tune(tiny_config, over, [0], out=tmp_path, on_run=on_run)
    assert len(seen) == 2 * 3
    again = tune(tiny_config, [*over, "method.clamp=reverse"], [0], out=tmp_path / "other", on_run=on_run)
    assert len(seen) == 4 * 3
    assert [trial.scores for trial in again.trials] == [trial.scores for trial in first.trials]
    tune(tiny_config, over, [0], out=tmp_path, on_run=on_run)
    assert len(seen) == 4 * 3, "finished runs were run again"
    with pytest.raises(FedpuError, match="other settings"):
        tune(tiny_config.with_("aggregation.momentum=0.9"), over, [0], out=tmp_path)


def test_the_worse_half_is_dropped_on_the_way(tiny_config: Config, tmp_path: Path) -> None:
    config = tiny_config.with_("aggregation.rounds=8")
    over = ["aggregation.lr=.0001,.001,.05,.2"]
    rounds: list[str] = []

    def on_run(name: str, seed: int):  # type: ignore[no-untyped-def]
        return lambda line: rounds.append(name)

    halved = tune(config, over, [0], halve=True, out=tmp_path, on_run=on_run)
    assert sorted(trial.rounds for trial in halved.trials) == [2, 2, 4, 8]
    assert len(rounds) == 2 + 2 + 4 + 8, "a run goes on where it was stopped"
    assert halved.best.rounds == 8
    whole = tune(config, over, [0])
    scores = {trial.settings: trial.score for trial in whole.trials}
    assert halved.best.score == scores[halved.best.settings], "stopping on the way changes nothing"


def test_settings_with_which_training_fails_are_the_worst(tiny_config: Config) -> None:
    # With a proximal term every step multiplies parameters by 1 − lr · mu.
    config = tiny_config.with_("aggregation.name=fedprox", "aggregation.mu=1", "aggregation.batch_size=10")
    found = tune(config, ["aggregation.lr=1e6,.1"], [0])
    assert found.best.settings == ("aggregation.lr=0.1",)
    assert found.trials[1].error is not None
    assert found.to_dict()["trials"][1]["score"] is None
    with pytest.raises(FedpuError, match="No combination could be trained"):
        tune(config, ["aggregation.lr=1e6"], [0])


def test_many_combinations_are_drawn_from(tiny_config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    over = ["aggregation.lr=.01,.02,.03,.04,.05", "method.clamp=max,off"]
    short = tiny_config.with_("aggregation.rounds=1")
    found = tune(short, over, [0], most=3)
    assert len(found.trials) == 3
    assert found.combinations == 10
    again = tune(short, over, [0], most=3)
    assert [trial.settings for trial in again.trials] == [trial.settings for trial in found.trials]


def test_a_method_that_is_given_every_label_is_not_compared_with_others(tiny_config: Config) -> None:
    with pytest.raises(ConfigError, match="by themselves"):
        tune(tiny_config, ["method.name=fedpu,supervised"], [0])
    assert tune(tiny_config, ["method.name=supervised"], [0], validation=0.2).best.score > 0


def test_the_default_share_is_the_configured_one(tiny_config: Config, tmp_path: Path) -> None:
    tune(tiny_config.with_("aggregation.rounds=1"), ["aggregation.lr=.1"], [0], out=tmp_path)
    text = (tmp_path / "aggregation.lr=0.1-seed0/config.toml").read_text()
    assert f"validation = {tuning.HELD_OUT}" in text
