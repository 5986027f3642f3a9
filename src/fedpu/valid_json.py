"""JSON that every reader takes: what is no number (NaN, infinity), which JSON does not have, is null."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any


def finite(value: Any) -> Any:
    """Return plain data with None for every number that JSON can't hold."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: finite(entry) for key, entry in value.items()}
    return [finite(entry) for entry in value] if isinstance(value, list | tuple) else value


def json_text(value: Any, indent: int | None = None) -> str:
    """Return plain data as JSON, and a new line."""
    return json.dumps(finite(value), indent=indent, allow_nan=False) + "\n"
