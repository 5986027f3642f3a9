"""Something random in every small record that is about one client, so that nobody can guess its hash.

A SuperLink gives any part of a message to a registered node that knows the part's SHA-256. A number of examples, a set
of classes or the work of a round has so few possible values that another node could try them all, and would learn
whether a client has sent it, or was drawn. What is the same for all, such as the model, is left as it is: a SuperLink
keeps it once.
"""

from __future__ import annotations

import secrets
from collections.abc import Container

from flwr.app import ArrayRecord, ConfigRecord, MetricRecord, RecordDict

SALT = "salt"
Record = ArrayRecord | ConfigRecord | MetricRecord


def salt(content: RecordDict, but: Container[str]) -> RecordDict:
    """Return the records with something random in each of them that has not one of those names."""
    return RecordDict({name: record if name in but else _salted(record) for name, record in content.items()})


def _salted(record: Record) -> Record:
    if isinstance(record, ConfigRecord):
        return ConfigRecord({**record, SALT: secrets.token_bytes(16)})
    if isinstance(record, MetricRecord):
        return MetricRecord({**record, SALT: [secrets.randbelow(2**62), secrets.randbelow(2**62)]})
    return record  # arrays are for numbers that nobody can guess


def take_salt_off(content: RecordDict) -> None:
    """Remove it again, where there is some."""
    for record in content.values():
        if isinstance(record, ConfigRecord | MetricRecord) and SALT in record:
            del record[SALT]
