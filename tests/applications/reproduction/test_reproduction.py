"""Reproduction: every run once, killed and gone on with, filled into the tables."""

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from dataclasses import replace

import pytest

from fedpu.applications.experiment import Outcome
from fedpu.applications.reproduction import CellOutcome, RowOutcome, TableOutcome, carry_out, outcomes, plan, working_in
from fedpu.errors import ConfigError, FedpuError
from fedpu.paper import find_table
from fedpu.paper.published import Row, Table, common_columns
from fedpu.report.reproduction import (
    curves_figure,
    html_page,
    less_ours,
    line,
    markdown,
    reproduction_table,
    save_reproduction,
)

SETTINGS = {
    "data": {"name": "digits"},
    "partition": {"kind": "iid", "clients": 4},
    "model": {"name": "mlp", "hidden": [16]},
    "aggregation": {"rounds": 4, "batch_size": 50, "lr": 0.1},
    "evaluation": {"every": 2},
}
PUBLISHED = {"positive-only": 40.0, "fedpu": 70.0, "supervised": 80.0}


def small_table(rounds=4, rows=2):
    settings = SETTINGS | {"aggregation": SETTINGS["aggregation"] | {"rounds": rounds}}
    every = (
        Row(1, "three classes", {"labelling": {"positive": 3, "overlap": True}}, PUBLISHED),
        Row(2, "five classes", {"labelling": {"positive": 5, "overlap": True}}, PUBLISHED),
    )
    columns = tuple(common_columns()[key] for key in PUBLISHED)
    return Table(99, "table:small", "a small one", ("A note.",), settings, {}, columns, every[:rows])


def test_each_distinct_configuration_is_run_once(tmp_path):
    names = [run.name for run in plan([small_table()], "paper", [0, 1], tmp_path)]
    assert names == [
        f"table99-{cell}-seed{seed}"
        for seed in (0, 1)
        for cell in ("row1-positive-only", "row1-fedpu", "row1-supervised", "row2-positive-only", "row2-fedpu")
    ]
    tables = [find_table(name) for name in ("iid", "dif", "per")]
    runs = plan(tables, "paper", [0], tmp_path)
    assert sum("-supervised-seed" in run.name for run in runs) == 6  # of 2, 3, 4, 5, 6 and 10 clients
    assert sum("-supervised-views-seed" in run.name for run in runs) == 6
    assert sum("fedpu" in run.name for run in runs) == 14


def test_some_columns_can_be_run_alone(tmp_path):
    every = plan([small_table()], "paper", [0, 1], tmp_path)
    one = plan([small_table()], "paper", [0, 1], tmp_path, ["fedpu"])
    assert one == [run for run in every if run.config.method.model_dump()["name"] == "fedpu"] != []
    with pytest.raises(ConfigError, match=r"no column 'fedpo'. Did you mean 'fedpu'"):
        plan([small_table()], "paper", [0], tmp_path, ["fedpo"])


def test_tables_are_filled_and_shown(tmp_path):
    table = small_table(rows=1)
    runs = plan([table], "paper", [0, 1], tmp_path)
    *_, last = carry_out(runs, jobs=2)
    assert last.done == {run.name for run in runs}
    (outcome,) = outcomes([table], "paper", [0, 1], tmp_path)
    first = outcome.rows[0].cells
    low, ours, high = ([cell.accuracies[seed] for seed in (0, 1)] for cell in first)
    assert first[1].mean == pytest.approx(sum(ours) / 2)
    assert first[1].difference == pytest.approx(sum(ours) / 2 - 70)
    assert first[1].gaps[1] == pytest.approx((ours[1] - low[1]) / (high[1] - low[1]))
    assert first[1].published_gap == pytest.approx(0.75)
    assert [number for number, _ in first[1].curves[0]] == [2, 4]
    page = save_reproduction([outcome], tmp_path)
    text = (tmp_path / "results.md").read_text()
    assert f"{first[1].mean:.2f} ± {first[1].std:.2f}" in text
    assert f"fedpu run --preset table99-row1-fedpu --set seed=1  # {ours[1]:.2f} %" in text
    assert "A note." in text
    assert page.read_text().count("<figure") == 1
    assert (tmp_path / "table99.svg").exists()
    # Nothing is run again.
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.json*")}
    progress = next(carry_out(runs, jobs=1))
    assert progress.done == {run.name for run in runs}
    assert {path: path.stat().st_mtime_ns for path in before} == before


def test_outcomes_of_other_settings_are_refused(tmp_path):
    run = plan([small_table()], "paper", [0], tmp_path)[0]
    list(carry_out([run], jobs=1))
    changed = plan([small_table(rounds=5)], "paper", [0], tmp_path)[0]
    with pytest.raises(FedpuError, match="made with other settings"):
        list(carry_out([changed], jobs=1))
    changed.file.unlink()
    with pytest.raises(FedpuError, match="holds a run with other settings"):
        list(carry_out([changed], jobs=1))


def test_a_run_that_fails_says_why(tmp_path):
    table = small_table()
    table.settings["data"] = {"name": str(tmp_path / "gone.npz")}
    run = plan([table], "paper", [0], tmp_path)[0]
    with pytest.raises(FedpuError, match=r"table99-row1-positive-only-seed0 failed: .*gone\.npz"):
        list(carry_out([run], jobs=1))


def test_two_commands_do_not_work_in_one_folder(tmp_path):
    with working_in(tmp_path), pytest.raises(FedpuError, match="at work in"), working_in(tmp_path):
        pass
    with working_in(tmp_path):
        pass


def test_killed_and_started_again_it_repeats_nothing_and_ends_the_same(tmp_path):
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    table = small_table(rounds=40, rows=1)
    list(carry_out(plan([table], "paper", [0], whole), jobs=2))

    script = textwrap.dedent(f"""
        import os
        import signal
        import sys
        sys.path.insert(0, {os.path.dirname(__file__)!r})
        from pathlib import Path
        from test_reproduction import small_table
        from fedpu.applications.reproduction import carry_out, plan, working_in
        if __name__ == "__main__":
            out = Path({str(killed)!r})
            with working_in(out):
                for progress in carry_out(plan([small_table(rounds=40, rows=1)], "paper", [0], out), jobs=2):
                    if progress.done:
                        os.kill(os.getpid(), signal.SIGKILL)
    """)
    file = tmp_path / "work.py"
    file.write_text(script)
    assert subprocess.run([sys.executable, str(file)], check=False).returncode == -signal.SIGKILL
    finished = {path: path.stat().st_mtime_ns for path in killed.glob("*.json")}
    assert 1 <= len(finished) < 3
    time.sleep(0.5)
    rounds = [path.read_bytes() for path in sorted(killed.glob("runs/*/rounds.jsonl"))]
    time.sleep(0.5)
    assert rounds == [path.read_bytes() for path in sorted(killed.glob("runs/*/rounds.jsonl"))]  # nobody goes on alone

    with working_in(killed):
        list(carry_out(plan([table], "paper", [0], killed), jobs=1))
    assert {path: path.stat().st_mtime_ns for path in finished} == finished
    for path in whole.glob("*.json"):
        ours, theirs = (json.loads((folder / path.name).read_text()) for folder in (whole, killed))
        assert ours["curve"] == theirs["curve"]
        assert ours["config"] == theirs["config"]
        assert ours["result"]["accuracy"] == theirs["result"]["accuracy"]


def test_reduced_scales_say_so_everywhere(tmp_path):
    measured = outcomes([find_table("iid")], "quick", [0], tmp_path)
    assert "REDUCED" in markdown(measured)
    page = html_page(measured)
    assert page.count("educed") >= 2
    assert "REDUCED" not in markdown(outcomes([find_table("iid")], "paper", [0], tmp_path))


def test_a_method_has_one_colour_in_all_pictures():
    def colours(*keys):
        curve = {0: [(1, 50.0), (2, 60.0)]}
        row = Row(1, "a row", {}, dict.fromkeys(keys, 70.0))
        table = Table(
            99, "table:small", "a small one", (), {}, {}, tuple(common_columns()[key] for key in keys), (row,)
        )
        cells = [CellOutcome(cell, {0: 60.0}, curve, {}, None) for cell in table.cells()]
        (panel,) = curves_figure(TableOutcome(table, "paper", [RowOutcome(row, cells)])).axes
        lines, headings = panel.get_legend_handles_labels()
        return {heading: line.get_color() for heading, line in zip(headings, lines, strict=True)}

    all_four = colours("positive-only", "fedpu", "supervised", "conventional-pu")
    assert len(set(all_four.values())) == 4
    assert colours("fedpu", "supervised").items() <= all_four.items()
    of_two_methods = colours("labelled-only", "labelled-only-views", "supervised", "supervised-views")
    assert len(set(of_two_methods.values())) == 4


def hand_made(tmp_path, keys=("positive-only", "labelled-only", "fedpu", "supervised"), **accuracies):
    """Return the first row of a table with these columns, from runs that nobody has run."""
    table = small_table()
    columns = [common_columns()[key] for key in keys]
    table = replace(table, columns=tuple(columns), rows=table.rows[:1])
    for run in plan([table], "paper", [0, 1, 2], tmp_path):
        key, _, seed = run.name.removeprefix("table99-row1-").rpartition("-seed")
        found = accuracies[key.replace("-", "_")]
        if int(seed) < len(found) and found[int(seed)] is not None:
            accuracy = found[int(seed)] / 100
            run.keep(Outcome({"accuracy": accuracy}, [{"round": 4, "accuracy": accuracy}]))
    (outcome,) = outcomes([table], "paper", [0, 1, 2], tmp_path)
    return outcome


def test_differences_are_paired_over_the_seeds_that_both_cells_have(tmp_path):
    outcome = hand_made(
        tmp_path, positive_only=[50, 52, 54], labelled_only=[60, None, 61], fedpu=[70, 74, 75], supervised=[None, 80]
    )
    low, stronger, ours, high = outcome.rows[0].cells
    assert low.less_ours == pytest.approx({0: -20, 1: -22, 2: -21})
    # mean −21, standard deviation 1, t with two degrees of freedom at 97.5 %: 4.3027
    assert low.paired.interval == pytest.approx((-21 - 4.3027 / 3**0.5, -21 + 4.3027 / 3**0.5), abs=1e-4)
    assert stronger.less_ours == pytest.approx({0: -10, 2: -14})
    assert stronger.paired.interval == pytest.approx((-12 - 12.7062 * 2, -12 + 12.7062 * 2), abs=1e-3)
    assert high.less_ours == pytest.approx({1: 6})
    assert high.paired.interval is None
    assert ours.paired is None
    assert [less_ours(cell) for cell in outcome.rows[0].cells] == [
        "-21.00 [-23.48, -18.52]",
        "-12.00 [-37.41, +13.41]",
        "–",
        "+6.00 (one seed)",
    ]
    assert line(outcome.rows[0], low)[3] == "52.00 ± 2.00"
    assert line(outcome.rows[0], high)[3] == "80.00"
    assert outcome.to_dict()["rows"][0]["cells"][0]["less_ours"]["seeds"] == 3
    assert "-21.00 [-23.48, -18.52]" in markdown([outcome])
    assert "+6.00 (one seed)" in html_page([outcome])
    assert reproduction_table(outcome).row_count == 4


def test_what_the_paper_did_not_print_is_a_dash_and_counts_for_the_gap(tmp_path):
    outcome = hand_made(tmp_path, positive_only=[50], labelled_only=[60], fedpu=[70], supervised=[80])
    low, stronger, ours, _ = outcome.rows[0].cells
    assert stronger.cell.published is None
    assert stronger.difference is None
    assert line(outcome.rows[0], stronger)[2:5] == ("–", "60.00", "–")
    assert ours.gaps == pytest.approx({0: 0.5}), "of the two lower ends the better one counts"
    assert ours.published_gap == pytest.approx(0.75), "the paper has one lower end"
    assert low.gap is None
    assert stronger.gap is None
    assert len(curves_figure(outcome).axes) == 1


def test_a_share_of_the_gap_is_between_baselines_that_see_the_same(tmp_path):
    keys = ("positive-only", "labelled-only", "labelled-only-views", "fedpu", "aligned", "supervised")
    found = {"positive_only": [50], "labelled_only": [55], "labelled_only_views": [60], "fedpu": [65], "aligned": [80]}
    outcome = hand_made(tmp_path, keys, supervised=[75], **found)
    gaps = {cell.cell.column.key: cell.gap for cell in outcome.rows[0].cells}
    assert gaps == dict.fromkeys(keys) | {"fedpu": pytest.approx(0.5)}, "aligned lacks its upper end"
    keys = (*keys, "supervised-views")
    outcome = hand_made(tmp_path, keys, supervised=[75], supervised_views=[85], **found)
    gaps = {cell.cell.column.key: cell.gap for cell in outcome.rows[0].cells}
    assert gaps == dict.fromkeys(keys) | {"fedpu": pytest.approx(0.5), "aligned": pytest.approx(0.8)}
