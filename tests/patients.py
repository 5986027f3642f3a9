"""The table that the pages speak of: patients of two hospitals, half of them without a label, and some new ones."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd


def write_patients(folder: Path) -> list[str]:
    """Write ``patients.csv`` and ``new.csv``, and return the names of the columns."""
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"age": rng.integers(20, 80, 60), "ward": rng.choice(["A", "B"], 60)})
    table["dose"] = np.where(rng.random(60) < 0.2, np.nan, rng.random(60).round(1))
    table[:10].to_csv(folder / "new.csv", index=False)
    table["label"] = np.where(rng.random(60) < 0.5, np.where(table["age"] > 50, "ill", "well"), None)
    table["client"] = rng.choice(["north", "south"], 60)
    table.to_csv(folder / "patients.csv", index=False)
    return list(table.columns)
