"""Your own table in five lines: a CSV file whose label cells are mostly empty, and whose rows belong to clients.

    python own_table.py

writes such a file first (scikit-learn's wines, of three growers who know one kind each), so that there is one to show.
"""

import numpy as np
from sklearn.datasets import load_wine

import fedpu


def write_tables() -> None:
    """Write ``wines.csv``, with empty label cells and a column ``client``, and ``new.csv`` without either."""
    wines = load_wine(as_frame=True)
    table = wines.data.rename(columns={"od280/od315_of_diluted_wines": "dilution"})
    rng = np.random.default_rng(0)
    table["soil"] = np.where(table["magnesium"] > 100, "chalk", "clay")
    table.loc[rng.random(len(table)) < 0.1, "ash"] = np.nan
    new = rng.random(len(table)) < 0.2
    table[new].to_csv("new.csv", index=False)
    kind = np.array(["barolo", "grignolino", "barbera"])[wines.target]
    table["client"] = np.array(["north", "south", "west"])[rng.integers(0, 3, len(table))]
    knows = {"north": "barolo", "south": "grignolino", "west": "barbera"}
    known = (kind == table["client"].map(knows)) & (rng.random(len(table)) < 0.6)
    table["label"] = np.where(known, kind, None)
    table[~new].to_csv("wines.csv", index=False)


def main() -> None:
    """Train, predict, and say how good that is, as far as anybody can know."""
    write_tables()

    data = fedpu.read("wines.csv")  # columns "label", empty where nobody knows, and "client"
    result = fedpu.run(fedpu.config_for(data), data=data, out="runs/wines")
    print(result.predict("new.csv")[:5])
    print(result.predict_proba("new.csv")[:5].round(3))
    print(fedpu.write_report("runs/wines"))  # one page to look at
    print(result.summary["measured_on"]["note"], result.summary["estimates"]["accuracy"])


if __name__ == "__main__":
    main()
