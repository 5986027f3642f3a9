"""reproduction: the paper's tables, run cell by cell."""

from fedpu.reproduction.outcome import CellOutcome, RowOutcome, TableOutcome, outcomes
from fedpu.reproduction.plan import PlannedRun, cell_config, plan
from fedpu.reproduction.work import Progress, carry_out, working_in

__all__ = [
    "CellOutcome",
    "PlannedRun",
    "Progress",
    "RowOutcome",
    "TableOutcome",
    "carry_out",
    "cell_config",
    "outcomes",
    "plan",
    "working_in",
]
