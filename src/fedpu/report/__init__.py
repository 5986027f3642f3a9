"""report: what happened, for people."""

from fedpu.report.comparison import save_comparison, terminal_table
from fedpu.report.picture import holdings, save_picture, terminal_picture

__all__ = ["holdings", "save_comparison", "save_picture", "terminal_picture", "terminal_table"]
