"""page: one self-contained HTML page of one run or of many, for people."""

from fedpu.report.page.charts import Chart, Series, on_common_axis, over_seeds
from fedpu.report.page.report import report_page, save_report
from fedpu.report.page.runs import Group, RecordedRun, groups_of, read_groups
from fedpu.report.page.shell import page
from fedpu.report.page.write import ENDINGS, write_report

__all__ = [
    "ENDINGS",
    "Chart",
    "Group",
    "RecordedRun",
    "Series",
    "groups_of",
    "on_common_axis",
    "over_seeds",
    "page",
    "read_groups",
    "report_page",
    "save_report",
    "write_report",
]
