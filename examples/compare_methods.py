"""Compare methods on one partition, and write the page: python examples/compare_methods.py."""

from pathlib import Path

import fedpu
from fedpu.report import save_comparison

OUT = Path("runs/compared")

config = fedpu.Config.load(
    overrides=[
        "data.name=digits",
        "labelling.positive=2",
        "model.name=mlp",
        "aggregation.rounds=5",
        "aggregation.lr=0.1",
    ]
).with_("partition.clients=5")

if __name__ == "__main__":
    result = fedpu.compare(config, ["fedpu", "positive-only", "supervised"], [0], out=OUT, progress=True)
    for row in result.rows:
        print(f"{row.method}: {row.mean:.1%}")
    print(f"The page: {save_comparison(result, OUT)}")
