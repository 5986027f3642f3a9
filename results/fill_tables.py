"""Put the tables of the committed results into the README and the documentation.

A block ``<!-- table: NAME -->`` … ``<!-- end of table -->`` holds the table of ``results/NAME/comparison.md``, and
``<!-- include: FILE -->`` … ``<!-- end of include -->`` that file of ``results`` with its pictures.
``<!-- last: RUN KEY.PATH -->`` … ``<!-- end -->`` is the last value of a key in that run's ``rounds.jsonl``.
``--check`` changes nothing and fails where a block is out of step.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
INCLUDE = re.compile(r"(<!-- include: ([\w/.-]+) -->\n).*?(<!-- end of include -->)", re.DOTALL)
LAST = re.compile(r"(<!-- last: (\S+) (\S+) -->).*?(<!-- end -->)")
BLOCK = re.compile(r"(<!-- table: ([\w-]+) -->\n).*?(<!-- end of table -->)", re.DOTALL)


def filled(text: str) -> str:
    """Return a page with every block filled anew."""
    text = INCLUDE.sub(lambda match: match[1] + _included(match[2]) + match[3], text)
    text = LAST.sub(lambda match: match[1] + _last(match[2], match[3]) + match[4], text)
    return BLOCK.sub(lambda match: match[1] + _table(match[2]) + match[3], text)


def _last(run: str, path: str) -> str:
    table, *keys = path.split(".")
    lines = map(json.loads, (ROOT / "results" / run / "rounds.jsonl").read_text("utf-8").splitlines())
    value = [line for line in lines if table in line][-1][table]
    for key in keys:
        value = value[key]
    return f"{value:.4f}"


def _included(name: str) -> str:
    file = ROOT / "results" / name
    return re.sub(r"\]\(([\w.-]+\.svg)\)", rf"](../results/{Path(name).parent}/\1)", file.read_text("utf-8"))


def _table(name: str) -> str:
    lines = (ROOT / "results" / name / "comparison.md").read_text("utf-8").splitlines()
    return "\n".join(line for line in lines if line.startswith("|")) + "\n"


def main() -> None:
    """Fill or check all pages."""
    stale = []
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]:
        text = page.read_text("utf-8")
        if filled(text) != text:
            stale.append(page.name)
            if "--check" not in sys.argv:
                page.write_text(filled(text), "utf-8")
    if stale and "--check" in sys.argv:
        sys.exit(f"Out of step with results/: {', '.join(stale)}. Run 'python results/fill_tables.py'.")


if __name__ == "__main__":
    main()
