"""From nothing to a model: the way of somebody who has only a clone, a wheel or a source archive, and a table.

    make stranger

Each gets an empty environment of its own, in a folder outside the repository. There the five lines of
docs/your-data.md train on a CSV file with empty label cells and a client column, and then the README's table is made.
Fails if any of that does. It takes some minutes, most of which pip needs for PyTorch; --only is a choice.
"""

from __future__ import annotations

import argparse
import csv
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
KINDS = ("clone", "wheel", "sdist")
CENTRES = {"flu": (38.9, 90.0), "gout": (36.8, 70.0), "well": (36.6, 60.0)}
"""what a disease does to temperature and pulse"""


def main() -> None:
    """Go each way that is asked for, and print how long it took."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=",".join(KINDS), help="what is installed, separated by commas")
    kinds = parser.parse_args().only.split(",")
    if unknown := set(kinds) - set(KINDS):
        parser.error(f"--only takes {', '.join(KINDS)}, not {', '.join(sorted(unknown))}.")
    with tempfile.TemporaryDirectory(prefix="stranger-") as name:
        folder = Path(name)
        sources = {"clone": folder / "clone", **_archives(folder, kinds)}
        if "clone" in kinds:
            _run(["git", "clone", "--quiet", str(ROOT), str(sources["clone"])], folder)
        for kind in kinds:
            _walk(kind, sources[kind], folder / kind)


def _walk(kind: str, source: Path, folder: Path) -> None:
    """Install into an empty environment, and use it where nothing of the repository lies."""
    began = time.perf_counter()
    (folder / "work").mkdir(parents=True)
    python = _environment(folder / "venv")
    constraints = str(ROOT / "constraints.txt")
    _run([python, "-m", "pip", "install", "--quiet", "--no-compile", "--constraint", constraints, str(source)], folder)
    installed = time.perf_counter()
    used = use(python, folder / "work")
    trained = time.perf_counter()
    command = [str(Path(python).parent / "fedpu"), "compare", "--preset", "quickstart", "--quiet"]
    table = _run(command, folder / "work")
    ended = time.perf_counter()
    print(f"== {kind}\n{used}\n{table}")
    print(
        f"{kind}: installed in {installed - began:.0f} s, five lines in {trained - installed:.0f} s, the README's "
        f"table in {ended - trained:.0f} s; from nothing to it in {ended - began - (trained - installed):.0f} s.",
        flush=True,
    )


def use(python: str, folder: Path) -> str:
    """Run the five lines of the documentation on a table, and see that they give what is promised there."""
    write_tables(folder)
    printed = _run([python, "-I", "-c", five_lines()], folder)
    names = set(re.findall(r"'(\w+)'", printed))
    probabilities = [float(value) for value in re.findall(r"\d\.\d+(?:e-\d+)?", printed)]
    page = (folder / "runs/again/report.html").read_text("utf-8")
    assert names, printed
    assert names <= set(CENTRES), printed
    assert probabilities, printed
    assert all(0 <= value <= 1 for value in probabilities), printed
    assert page.count("<figure") > 2, "the report has no figures"
    assert (folder / "runs/again/model.safetensors").stat().st_size > 0
    return printed


def five_lines() -> str:
    """Return the lines as they stand on the page."""
    page = (ROOT / "docs/your-data.md").read_text("utf-8")
    found = re.search(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    assert found is not None
    lines = [line for line in found[1].splitlines() if line.strip()]
    assert len(lines) == 5, found[1]
    return "\n".join(lines)


def write_tables(folder: Path, rows: int = 600) -> None:
    """Write ``patients.csv``, of three clients that know one disease each, and ``new.csv`` without labels."""
    draw = random.Random(0)
    owners = dict(zip(("north", "south", "west"), CENTRES, strict=True))
    patients, new = [], []
    for _ in range(rows):
        disease, owner = draw.choice(list(CENTRES)), draw.choice(list(owners))
        warmth, pulse = CENTRES[disease]
        joint = "" if draw.random() < 0.1 else draw.choice(["swollen", "red"] if disease == "gout" else ["fine"])
        shown = [f"{draw.gauss(warmth, 0.4):.1f}", "" if draw.random() < 0.1 else f"{draw.gauss(pulse, 8):.0f}", joint]
        known = owners[owner] == disease and draw.random() < 0.5
        patients.append([*shown, disease if known else "", owner])
        new.append(shown)
    for name, head, body in (
        ("patients.csv", ["temperature", "pulse", "joint", "label", "client"], patients[30:]),
        ("new.csv", ["temperature", "pulse", "joint"], new[:30]),
    ):
        with (folder / name).open("w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows([head, *body])


def _archives(folder: Path, kinds: Sequence[str]) -> dict[str, Path]:
    """Build wheel and source archive with the standard tool, from a clean copy."""
    if not {"wheel", "sdist"} & set(kinds):
        return {}
    copy, dist = folder / "to-build", folder / "dist"
    _run(["git", "clone", "--quiet", str(ROOT), str(copy)], folder)
    python = _environment(folder / "build-venv")
    _run([python, "-m", "pip", "install", "--quiet", "build"], folder)
    _run([python, "-m", "build", "--outdir", str(dist), str(copy)], folder)
    shutil.rmtree(copy)
    return {"wheel": next(dist.glob("*.whl")), "sdist": next(dist.glob("*.tar.gz"))}


def _environment(folder: Path) -> str:
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    return str(folder / ("Scripts" if os.name == "nt" else "bin") / "python")


def _run(command: Sequence[str], folder: Path) -> str:
    """Run a command without any of this shell's settings of Python; return what it prints."""
    ours = ("PYTHON", "FEDPU", "VIRTUAL_ENV")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    done = subprocess.run(command, cwd=folder, env=environment, stdout=subprocess.PIPE, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(command[:4])} … failed with status {done.returncode}:\n{done.stdout}")
    return done.stdout


if __name__ == "__main__":
    main()
