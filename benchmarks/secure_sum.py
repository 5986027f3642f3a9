"""What a secure sum costs: processor seconds for everybody's work, and bytes that a client sends.

``.venv/bin/python benchmarks/secure_sum.py --out results/benchmarks`` sums vectors as long as ``paper-cnn``.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import asdict
from pathlib import Path

import numpy as np

from fedpu.applications.bench import machine
from fedpu.privacy.secagg import Rules, SecureClient, SecureServer, secure_sum

LENGTH = 18_158
SIZES = ((10, 0), (30, 0), (30, 20), (100, 20), (300, 20))


def measure(clients: int, neighbours: int) -> dict[str, float]:
    """Return the processor seconds of a sum and the kilobytes that one of its clients sends."""
    rules = Rules(clients, LENGTH, range=1.0, max_weight=10**6, neighbours=neighbours)
    values = np.random.default_rng(0).uniform(-1, 1, LENGTH)
    started = time.process_time()
    total = secure_sum(rules, range(clients), ((client, 100, values) for client in range(clients)))
    seconds = time.process_time() - started
    assert np.abs(total.mean - values).max() < rules.step
    return {
        "clients": clients,
        "neighbours": neighbours or clients - 1,
        "seconds": seconds,
        "seconds_a_client": seconds / clients,
        "kilobytes": sent_by_one(rules, clients) / 1000,
        "kilobytes_plain": 4 * LENGTH / 1000,
    }


def sent_by_one(rules: Rules, clients: int) -> int:
    """Return the bytes of all messages of client 0, up to its masked vector."""
    server = SecureServer(rules, range(clients))
    joined = {client: SecureClient.join(client, agreed) for client, agreed in server.begin().items()}
    hoods = server.introduce([(client, keys) for client, (_, keys) in joined.items()])
    _, shares = joined[0][0].share(hoods[0])
    vector = (rules.length + 1) * rules.word.itemsize
    return vector + sum(_size(value) for message in (joined[0][1], shares) for value in asdict(message).values())


def _size(value: bytes | list[bytes] | list[int]) -> int:
    if isinstance(value, bytes):
        return len(value)
    return sum(len(item) if isinstance(item, bytes) else 8 for item in value)


def main() -> None:
    """Measure, print, and write a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, help="folder for secure_sum.json and secure_sum.md")
    out = parser.parse_args().out
    measure(2, 0)  # imports
    rows = [measure(*size) for size in SIZES]
    lines = [
        "| clients | neighbours of each | CPU seconds of all | CPU ms per client | a client sends (kB) | plain (kB) |",
        "| ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    lines += [
        f"| {row['clients']} | {row['neighbours']} | {row['seconds']:.2f} | {1000 * row['seconds_a_client']:.0f} | "
        f"{row['kilobytes']:.0f} | {row['kilobytes_plain']:.0f} |"
        for row in rows
    ]
    print("\n".join(lines))
    if out is not None:
        (out / "secure_sum.json").write_text(json.dumps({"machine": machine(), "rows": rows}, indent=2) + "\n")
        (out / "secure_sum.md").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
