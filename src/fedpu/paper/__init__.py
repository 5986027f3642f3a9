"""paper: the published tables as data, and each of their cells as a configuration."""

from fedpu.paper.published import (
    SCALES,
    Cell,
    Column,
    Row,
    Scale,
    Table,
    cell_presets,
    common_columns,
    find_table,
    tables,
)

__all__ = [
    "SCALES",
    "Cell",
    "Column",
    "Row",
    "Scale",
    "Table",
    "cell_presets",
    "common_columns",
    "find_table",
    "tables",
]
