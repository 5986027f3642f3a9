"""What a soak counts, and the page that it ends in."""

from __future__ import annotations

import json
import platform
from collections import Counter
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

MOST_FINDINGS = 50


@dataclass
class Tally:
    """One kind of trial: how many were made, how they ended, and those that ended as they must not."""

    promise: str
    """what every trial must show"""
    tried: int = 0
    seconds: float = 0.0
    ends: Counter[str] = field(default_factory=Counter)
    findings: list[str] = field(default_factory=list)

    def add(self, end: str, finding: str | None = None) -> None:
        """Count one trial."""
        self.tried += 1
        self.ends[end] += 1
        if finding is not None and len(self.findings) < MOST_FINDINGS:
            self.findings.append(finding)

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain data."""
        return {
            "promise": self.promise,
            "tried": self.tried,
            "ends": dict(self.ends.most_common()),
            "seconds": round(self.seconds, 1),
            "findings": self.findings,
        }


def added(reports: list[Path]) -> dict[str, Tally]:
    """Return the sum of several soaks."""
    sums: dict[str, Tally] = {}
    for report in reports:
        for name, found in json.loads(report.read_text())["trials"].items():
            tally = sums.setdefault(name, Tally(found["promise"]))
            tally.tried += found["tried"]
            tally.seconds += found["seconds"]
            tally.ends.update(found["ends"])
            tally.findings += found["findings"]
    return sums


def save(tallies: dict[str, Tally], seed: int, seconds: float, out: Path) -> None:
    """Write the report as JSON and as a page."""
    out.mkdir(parents=True, exist_ok=True)
    about = {"seed": seed, "seconds": round(seconds), "fedpu": version("fedpu"), "python": platform.python_version()}
    plain = about | {"trials": {name: tally.to_dict() for name, tally in tallies.items()}}
    (out / "soak.json").write_text(json.dumps(plain, indent=2, ensure_ascii=False) + "\n")
    (out / "soak.md").write_text(page(tallies, seed, seconds))


def page(tallies: dict[str, Tally], seed: int, seconds: float) -> str:
    """Return the report as Markdown."""
    lines = [
        f"{seconds / 60:.0f} minutes, seed {seed}, Python {platform.python_version()}:",
        "",
        "| trials | number | how they ended | broken promises |",
        "| --- | ---: | --- | ---: |",
    ]
    for name, tally in tallies.items():
        ends = ", ".join(f"{count:,} {end}" for end, count in tally.ends.most_common())
        lines.append(f"| {name} | {tally.tried:,} | {ends or '–'} | {len(tally.findings)} |")
    for name, tally in tallies.items():
        lines += [f"- {name}: {finding}" for finding in tally.findings]
    return "\n".join(lines) + "\n"
