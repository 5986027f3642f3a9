"""report: what happened, for people."""

from fedpu.report.comparison import save_comparison, terminal_table
from fedpu.report.page import read_groups, save_report, write_report
from fedpu.report.picture import save_picture, terminal_picture
from fedpu.report.plot import check_picture, save_figure
from fedpu.report.priors import priors_figure, priors_table
from fedpu.report.reproduction import heading, reproduction_table, save_reproduction, warning
from fedpu.report.tuning import tuning_table

__all__ = [
    "check_picture",
    "heading",
    "priors_figure",
    "priors_table",
    "read_groups",
    "reproduction_table",
    "save_comparison",
    "save_figure",
    "save_picture",
    "save_report",
    "save_reproduction",
    "terminal_picture",
    "terminal_table",
    "tuning_table",
    "warning",
    "write_report",
]
