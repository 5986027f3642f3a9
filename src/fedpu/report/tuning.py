"""What was tried and what was chosen, for people."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from rich.table import Table

from fedpu.applications.tuning import Trial, Tuning

NOT_USED = "test accuracy (not used)"


def tuning_table(tuning: Tuning, show_test: bool) -> Table:
    """Return a table for the terminal, the chosen settings first."""
    seeds = f"{len(tuning.seeds)} seeds" if len(tuning.seeds) > 1 else f"seed {tuning.seeds[0]}"
    tried = f"{len(tuning.trials)} of {tuning.combinations} combinations, {seeds}"
    shown = Table(title=f"Chosen by the validation score: {tried}", title_justify="left", header_style="bold")
    shown.add_column("settings", overflow="fold")
    for heading in ("validation score", "labelled hold-out accuracy", *([NOT_USED] if show_test else []), "rounds"):
        shown.add_column(heading, justify="right")
    for trial in tuning.trials:
        accuracies = [accuracy for accuracy in trial.labelled_accuracies if accuracy is not None]
        cells = ["\n".join(trial.settings), score_cell(trial), per_cent(accuracies)]
        cells += [per_cent(trial.test_accuracies)] if show_test else []
        shown.add_row(*cells, str(trial.rounds), style="bold green" if trial is tuning.best else "")
    shown.caption = "validation score: mean of −log P(the label that a client gave, or none) on what it holds out; "
    shown.caption += "lower is better"
    shown.caption_justify = "left"
    return shown


def score_cell(trial: Trial) -> str:
    """Return mean ± standard deviation over seeds."""
    if trial.error is not None:
        return "failed"
    spread = f" ± {trial.std:.4f}" if len(trial.scores) > 1 else ""
    return f"{trial.score:.4f}{spread}"


def per_cent(values: Sequence[float]) -> str:
    """Return the mean of shares in per cent, with its standard deviation where there are several."""
    if not values:
        return "–"
    spread = f" ± {100 * statistics.stdev(values):.2f}" if len(values) > 1 else ""
    return f"{100 * statistics.fmean(values):.2f} %{spread}"
