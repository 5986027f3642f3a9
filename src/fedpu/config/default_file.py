"""The default configuration as a commented TOML file, made from the settings themselves."""

from __future__ import annotations

import json
import textwrap
from typing import Any

from pydantic_core import to_jsonable_python

from fedpu.config.sections import SECTIONS, Section

COLUMN = 30
WIDTH = 118


def default_file() -> str:
    """Return every key with its default and its meaning; the text is a valid configuration."""
    lines = ["# Every setting of fedpu with its default. Delete what you do not change.", "seed = 0"]
    for section in SECTIONS.values():
        lines += ["", f"[{section.name}]"]
        for key, variant in sorted(section.fields(), key=lambda pair: pair[0] != section.key):
            field = variant.model_fields[key]
            if key == section.key:
                choices = f"{' | '.join(section.variants)}, or your own as {section.variants.own}"
                lines += _line(key, next(iter(section.variants)), choices)
            else:
                meaning, defaults = _meaning(section, key, field.description or ""), _defaults(section, key)
                if len(set(map(str, defaults.values()))) > 1:  # none of them would do for all
                    meaning += f"; default: {', '.join(f'{value} with {name}' for name, value in defaults.items())}"
                    lines += _line(key, None, meaning)
                else:
                    lines += _line(key, next(iter(defaults.values())), meaning)
    return "\n".join(lines) + "\n"


def _defaults(section: Section, key: str) -> dict[str, Any]:
    """Return the default of a key in every variant that has it."""
    return {
        name: variant.model_fields[key].get_default(call_default_factory=True)
        for name, variant in section.variants.items()
        if key in variant.model_fields
    }


def _meaning(section: Section, key: str, description: str) -> str:
    having = list(_defaults(section, key))
    everywhere = len(having) == sum(1 for _ in section.variants.items())
    if everywhere or section.key is None or description.startswith("for "):
        return description
    return f"for {' and '.join(having)}: {description}" if len(having) < 3 else description


def _line(key: str, default: Any, meaning: str) -> list[str]:
    """Return ``key = value  # meaning``, folded; a key without a default is commented out."""
    shown = (
        f"{key} = {json.dumps(to_jsonable_python(default), ensure_ascii=False)}"
        if default is not None
        else f"# {key} ="
    )
    comment = textwrap.wrap(meaning, WIDTH - COLUMN - 2, break_on_hyphens=False)
    first, *rest = comment or [""]
    return [f"{shown:<{COLUMN}}# {first}".rstrip("# ")] + [f"{'':<{COLUMN}}# {line}" for line in rest]
