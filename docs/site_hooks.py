"""Lets the site show what lies beside the documentation: pictures of the results come along, other files are named."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parent.parent
OUTSIDE = re.compile(r"(!?)\[([^\]]*)\]\(\.\./([^)#\s]+)(#[^)\s]*)?\)")
PICTURES = (".svg", ".png")


def on_files(files: Files, config: Any) -> Files:
    """Add the pictures of other folders that pages show."""
    wanted = {
        match[3]
        for page in Path(config["docs_dir"]).glob("*.md")
        for match in OUTSIDE.finditer(page.read_text("utf-8"))
        if match[3].endswith(PICTURES)
    }
    for name in sorted(wanted):
        files.append(File.generated(config, f"beside/{name}", abs_src_path=str(ROOT / name)))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Point to the pictures where they are now; a link to another file of the repository becomes its name."""

    def moved(match: re.Match[str]) -> str:
        mark, text, path, _anchor = match.groups()
        if path.endswith(PICTURES):
            return f"{mark}[{text}](beside/{path})"
        return text if text.strip("`") == path else f"{text} (`{path}`)"

    return OUTSIDE.sub(moved, markdown)
