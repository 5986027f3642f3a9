"""Nodes with CSV and Parquet files train the model that nodes with encoded arrays train, bit for bit."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

pytest.importorskip("flwr", reason="Flower is not installed: pip install 'fedpu[flower]'")

from deploy.in_process import EXAMPLES, NAMES, Table
from fedpu.config import Config
from fedpu.data import load
from fedpu.flower.messages import MODEL

KINDS = ("ash", "elm", "fir", "oak")


def made_up(rows: int, seed: int) -> pd.DataFrame:
    """Return trees: a column of numbers, one with missing ones, one of words, and the kind."""
    rng = np.random.default_rng(seed)
    kind = rng.integers(0, 4, rows)
    kind[:4] = range(4)
    height = np.where(rng.random(rows) < 0.1, np.nan, rng.normal(kind, 0.3))
    soil = np.array(["clay", "sand", "peat"])[(kind + rng.integers(0, 2, rows)) % 3]
    columns = {"girth": rng.normal(kind, 0.5), "height": height, "soil": soil, "label": np.array(KINDS)[kind]}
    return pd.DataFrame(columns)


def told(table: Table) -> list[tuple[str, str, dict[str, object]]]:
    """Return all that the nodes have sent but their parameters, and forget it."""
    found = [
        (name, kind, {key: dict(record) for key, record in content.items() if key != MODEL})
        for name, kind, content in table.sent
    ]
    table.sent.clear()
    return found


def test_files_of_tables_give_the_model_of_encoded_arrays(tmp_path: Path) -> None:
    trees = made_up(len(NAMES) * EXAMPLES, seed=0)
    trees.to_csv(tmp_path / "server.csv", index=False)
    made_up(100, seed=1).to_csv(tmp_path / "test.csv", index=False)
    config = Config.from_dict(
        {
            "data": {"name": str(tmp_path / "server.csv"), "test": str(tmp_path / "test.csv")},
            "priors": {"source": "given", "values": 0.25},
            "model": {"name": "mlp", "hidden": [8]},
            "aggregation": {"rounds": 3, "batch_size": 20, "lr": 0.1},
            "engine": {"name": "flower", "clients": 4, "wait": 60},
        }
    )
    table = Table(tmp_path, load(config.data))
    arrays = table.train(config, "arrays")
    sent_of_arrays = told(table)
    for k, name in enumerate(NAMES):
        labels = np.load(tmp_path / f"{name}.npz")["y"]
        own = trees[k * EXAMPLES : (k + 1) * EXAMPLES].drop(columns="label")
        own["tree"] = [None if label < 0 else KINDS[label] for label in labels]
        own = own[["tree", "soil", "girth", "height"]]  # columns are known by name, not by place
        file = tmp_path / f"{name}.{'csv' if k % 2 else 'parquet'}"
        own.to_csv(file, index=False) if k % 2 else own.to_parquet(file)
        text = (tmp_path / f"{name}.toml").read_text().replace(f"{name}.npz", file.name)
        (tmp_path / f"{name}.toml").write_text(f'label = "tree"\n{text}')
    tables = table.train(config, "tables", run=8)
    for mine, theirs in zip(arrays.model.parameters(), tables.model.parameters(), strict=True):
        assert torch.equal(mine, theirs)
    assert tables.accuracy == arrays.accuracy
    assert told(table) == sent_of_arrays, "no word, median or mean of a node's own"
    assert tables.predict(tmp_path / "test.csv").shape == (100,)
