"""The page of runs that are there already, from Python as from the command line."""

from __future__ import annotations

from pathlib import Path

from fedpu.errors import ConfigError
from fedpu.report.page.report import save_report
from fedpu.report.page.runs import read_groups

ENDINGS = (".html", ".htm")


def write_report(*runs: str | Path, out: str | Path | None = None) -> Path:
    """Write one self-contained HTML page of recorded runs, or of folders of them, and return its path.

    Without ``out`` the page is ``report.html`` in the first of them. Runs may be finished or not; those that differ in
    nothing but the seed are shown as one method.
    """
    if not runs:
        raise ConfigError("A report is of runs: give at least one run directory, such as 'runs/mine'.")
    paths = [Path(run).expanduser() for run in runs]
    page = paths[0] / "report.html" if out is None else Path(out).expanduser()
    if page.suffix.lower() not in ENDINGS:
        raise ConfigError(f"'{page}' can't be written: a report is a page, whose name ends in .html.")
    return save_report(read_groups(paths), page)
