"""Reports say what the numbers say."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from rich.console import Console

from fedpu.applications.comparison import compare, gap_closed, variant
from fedpu.applications.prepared import prepare
from fedpu.config import Config
from fedpu.errors import FedpuError
from fedpu.labelling import holdings
from fedpu.report import save_comparison, save_picture, terminal_picture, terminal_table


def test_the_picture_counts_what_clients_hold(tiny_config: Config, tmp_path: Path) -> None:
    ready = prepare(tiny_config.with_("partition.kind=classes", "partition.clients=10", "labelling.positive=1"))
    held = holdings(ready.federation, ready.hidden)
    assert held.labelled.sum() == int((ready.federation.labels >= 0).sum())
    assert held.labelled.sum() + held.unlabelled.sum() == 1442
    assert ((held.labelled + held.unlabelled > 0).sum(axis=1) == 5).all()
    console = Console(width=120, record=True, file=(tmp_path / "out").open("w"))
    console.print(terminal_picture(held))
    text = console.export_text()
    assert text.count("█") == 10
    assert text.count("░") == 40
    assert text.count("·") == 50
    console.file.close()
    save_picture(held, tmp_path / "deep/picture.png")
    assert np.asarray(Image.open(tmp_path / "deep/picture.png")).std() > 0
    save_picture(held, tmp_path / "picture.svg")
    save_picture(held, tmp_path / "again.svg")
    assert "<svg" in (tmp_path / "picture.svg").read_text()
    assert (tmp_path / "picture.svg").read_bytes() == (tmp_path / "again.svg").read_bytes()
    with pytest.raises(FedpuError, match=r"must end in \.png"):
        save_picture(held, tmp_path / "picture.docx")


def test_the_share_of_the_gap() -> None:
    assert gap_closed(0.9, 0.5, 1.0) == pytest.approx(0.8)
    with pytest.raises(FedpuError, match="no gap to close"):
        gap_closed(0.9, 0.5, 0.5)


def test_a_comparison_uses_the_same_partitions_and_goes_on_where_it_was(tiny_config: Config, tmp_path: Path) -> None:
    names = ["fedpu", "positive-only", "supervised", "fedpu+lent=off"]
    seen: list[tuple[str, int]] = []

    def on_run(method: str, seed: int):  # type: ignore[no-untyped-def]
        return lambda line: seen.append((method, seed))

    first = compare(tiny_config, names, [0, 1], out=tmp_path, on_run=on_run)
    assert len(seen) == 4 * 2 * 3
    again = compare(tiny_config, names, [0, 1], out=tmp_path, on_run=on_run)
    assert len(seen) == 4 * 2 * 3, "finished runs were run again"
    assert [row.accuracies for row in again.rows] == [row.accuracies for row in first.rows]
    for seed in (0, 1):
        files = [np.load(tmp_path / f"{name}-seed{seed}/partition.npz")["rows"] for name in names]
        assert all(np.array_equal(files[0], other) for other in files)
    with pytest.raises(FedpuError, match="other settings"):
        compare(tiny_config.with_("aggregation.lr=0.2"), names, [0], out=tmp_path)

    fedpu, lower, upper, _ = first.rows
    assert lower.gap_closed == [0.0, 0.0]
    assert upper.gap_closed == [1.0, 1.0]
    assert fedpu.gap_closed is not None
    assert fedpu.gap_closed[1] == pytest.approx(
        gap_closed(fedpu.accuracies[1], lower.accuracies[1], upper.accuracies[1])
    )
    page = save_comparison(first, tmp_path).read_text()
    console = Console(width=140, record=True, file=(tmp_path / "out").open("w"))
    console.print(terminal_table(first))
    for text in (page, console.export_text(), (tmp_path / "comparison.md").read_text()):
        for row in first.rows:
            assert f"{100 * row.mean:.2f} % ± {100 * row.std:.2f}" in text
    console.file.close()
    assert "<!doctype html>" in page
    assert (tmp_path / "curves.png").stat().st_size > 5000


def test_variants_carry_settings(tiny_config: Config) -> None:
    changed = variant(tiny_config, "fedpu+lent=off+aggregation.lr=0.5")
    assert changed.method.model_dump()["lent"] == "off"
    assert changed.aggregation.lr == 0.5
    with pytest.raises(FedpuError, match=r"no method called 'fedpo'\. Did you mean 'fedpu'"):
        variant(tiny_config, "fedpo")
