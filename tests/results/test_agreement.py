"""How well the choice without hidden labels agrees with the test set's: the committed cases, and their verdicts."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from fedpu.applications.tuning import combinations
from fedpu.config import Config

FOLDER = Path(__file__).parents[2] / "results/validation"
FOUND = json.loads((FOLDER / "agreement.json").read_text())


@pytest.fixture(scope="module")
def agreement() -> ModuleType:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "path", [str(FOLDER), *sys.path])
        import agreement

        return agreement


def test_every_case_has_been_run_and_can_be_run_again(agreement: ModuleType) -> None:
    assert [case["case"] for case in FOUND] == [case.name for case in agreement.CASES]
    for case, found in zip(agreement.CASES, FOUND, strict=True):
        Config.load(preset=case.preset, overrides=case.settings)
        assert sorted(tuple(trial["settings"]) for trial in found["trials"]) == sorted(combinations(case.over))
        assert found["tried"] == case.tried
    assert (FOLDER / "agreement.md").read_text() == agreement.markdown(FOUND)


def test_on_tables_that_it_was_not_made_with_it_is_near_the_best(agreement: ModuleType) -> None:
    fresh = [agreement.verdict(case)["lost"] for case in FOUND if not case["tried"]]
    assert len(fresh) == 10
    assert sum(lost <= agreement.NEAR for lost in fresh) >= 8


def test_a_choice_is_judged_by_what_it_loses(agreement: ModuleType) -> None:
    def trial(name: str, score: float, as_trained: float, labels: float, *tests: float) -> dict[str, Any]:
        run = {"validation": score, "validation_as_trained": as_trained, "validation_accuracy": labels}
        return {"settings": [name], "error": None, "runs": [run | {"accuracy": test} for test in tests]}

    failed = {"settings": ["d"], "error": "NaN", "runs": []}
    trials = [trial("a", 0.1, 0.4, 0.7, 0.8, 0.9), trial("b", 0.2, 0.3, 0.9, 0.9, 0.9), trial("c", 0.3, 0.5, 0.8, 0.5)]
    found = agreement.verdict({"case": "x", "tried": True, "trials": [*trials, failed]})
    assert found == pytest.approx(
        {
            "combinations": 4,
            "best": 90,
            "lost": 5,
            "lost_as_trained": 0,
            "lost_by_labels": 0,
            "rank_correlation": 0.5,
        }
    )


def test_the_searches_on_other_data_are_read_from_what_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(FOLDER))
    import elsewhere

    assert (FOLDER / "elsewhere.md").read_text() == elsewhere.page()
    assert elsewhere.lost([(0.2, 0.9), (0.1, 0.85), (0.3, 0.8)]) == pytest.approx(5)
    assert elsewhere.correlation([(0.1, 0.9), (0.2, 0.85), (0.3, 0.8)]) == pytest.approx(1)
