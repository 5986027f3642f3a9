"""Who was asked is noted beforehand, and a line that was cut short is no line."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedpu.errors import FedpuError
from fedpu.record.releases import Releases


def test_every_time_that_a_round_asks_is_there(tmp_path: Path) -> None:
    file = tmp_path / "releases.jsonl"
    assert Releases(file).read() == []
    for round_, clients in ((0, [1, 2]), (1, [0]), (1, [0])):
        Releases(file).add(round_, clients)
    assert Releases(file).read() == [(0, [1, 2]), (1, [0]), (1, [0])]


@pytest.mark.parametrize("cut", [1, 5, 20])
def test_a_line_that_was_cut_short_asked_nobody_and_is_written_over(tmp_path: Path, cut: int) -> None:
    file = tmp_path / "releases.jsonl"
    Releases(file).add(0, [1])
    Releases(file).add(1, [1])
    file.write_bytes(file.read_bytes()[:-cut])
    assert Releases(file).read() == [(0, [1])]
    Releases(file).add(1, [2])
    assert Releases(file).read() == [(0, [1]), (1, [2])]


@pytest.mark.parametrize("content", [b"x\n", b"{}\n", b'{"round": "a", "clients": []}\n', b"\xff\n", b"[1]\n"])
def test_a_damaged_file_is_told(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "releases.jsonl").write_bytes(content)
    with pytest.raises(FedpuError, match="nobody knows how often"):
        Releases(tmp_path / "releases.jsonl").read()
