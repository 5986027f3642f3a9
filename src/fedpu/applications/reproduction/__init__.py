"""reproduction: the paper's tables, run cell by cell."""

from fedpu.applications.reproduction.outcome import CellOutcome, RowOutcome, TableOutcome, outcomes
from fedpu.applications.reproduction.plan import PlannedRun, cell_config, plan
from fedpu.applications.reproduction.work import Progress, carry_out, working_in

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
