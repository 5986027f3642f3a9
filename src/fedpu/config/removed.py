"""Keys that earlier configurations had: each with a sentence on what to write now."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fedpu.errors import ConfigError

REMOVED = {
    "model.augment": "model.augment is no longer a setting: the table [augmentation] says how images are changed in "
    'training. Delete it where it is false; in place of true write augmentation.weak = ["mirror", "shift"], '
    'augmentation.shift = 4 and augmentation.border = "mean".',
}
"""by ``table.key``"""


def refuse_removed(values: Mapping[str, Any]) -> None:
    """Refuse nested tables that have such a key."""
    for path, sentence in REMOVED.items():
        table, key = path.split(".")
        if isinstance(values.get(table), Mapping) and key in values[table]:
            raise ConfigError(sentence)
