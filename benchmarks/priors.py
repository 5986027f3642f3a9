"""How far every class-prior estimator is off on real data whose priors are known, and how long it takes.

    .venv/bin/python benchmarks/priors.py --out results/priors

Binary PU data are drawn from real data sets at true priors .1 … .9, ten times each: positives with their label, and U
without labels in which exactly that share is positive. Every draw is a line of ``cells.jsonl``; a second call goes on
where the first was stopped. ``comparison.md`` and ``comparison.json`` are made from those lines.

``em`` and ``bbse`` need a classifier of all classes. On MNIST it is a logistic regression on the 10,000 test images; on
the others one on the examples that were not drawn. The other estimators see the drawn arrays alone.

Then three digits of MNIST are positive at once (``several.jsonl``).
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.datasets import load_breast_cancer
from sklearn.linear_model import LogisticRegression

from fedpu.applications.bench import machine
from fedpu.data import DataSettings, load
from fedpu.priors.estimators import Bbe, Bbse, ElkanNoto, Em, Estimate, Estimator, Km, Pe, PenalizedL1
from fedpu.priors.estimators.classifier import ClassifierEstimator
from fedpu.randomness import numpy_generator

PRIORS = tuple(round(0.1 * i, 1) for i in range(1, 10))
ROWS: dict[str, Estimator] = {
    "bbe": Bbe(),
    "bbe, logistic": Bbe(classifier="logistic"),
    "km (km1)": Km(),
    "km (km2)": Km(variant="km2"),
    "penalized-l1": PenalizedL1(),
    "penalized-l1, 4 components": PenalizedL1(components=4),
    "pe": Pe(),
    "elkan-noto (e1)": ElkanNoto(),
    "elkan-noto (e2)": ElkanNoto(variant="e2"),
    "elkan-noto (e3)": ElkanNoto(variant="e3"),
    "em*": Em(),
    "bbse*": Bbse(),
}
BOOTSTRAP = 50
SEVERAL = (0.1, 0.2, 0.3)


@dataclass(frozen=True)
class World:
    """A data set, the classes that are positive (by seed), and how many examples are drawn.

    ``posteriors`` are those of a classifier made of other data, and ``training_priors`` the shares it was trained on.
    """

    title: str
    features: np.ndarray
    labels: np.ndarray
    positive: Callable[[int], tuple[int, ...]]
    n_positive: int
    n_unlabelled: int
    posteriors: np.ndarray | None = None
    training_priors: np.ndarray | None = None


@dataclass(frozen=True)
class Draw:
    """Labelled positives and U, and the posteriors of both under a classifier made of other data."""

    positives: np.ndarray
    unlabelled: np.ndarray
    positive_scores: np.ndarray
    unlabelled_scores: np.ndarray
    training_priors: np.ndarray
    column: int


def mnist() -> World:
    """One digit against the rest; the digit is the seed's."""
    data = load(DataSettings(name="mnist"))
    features = data.inputs.numpy().reshape(len(data.inputs), -1) / 255.0
    test = data.test_inputs.numpy().reshape(len(data.test_inputs), -1) / 255.0
    classifier = LogisticRegression(C=0.02, max_iter=200).fit(test, data.test_labels.numpy())
    shares = np.bincount(data.test_labels.numpy()) / len(test)
    labels = data.labels.numpy()
    return World(
        "MNIST",
        features,
        labels,
        lambda seed: (seed % 10,),
        2000,
        3000,
        classifier.predict_proba(features),
        shares,
    )


def digits() -> World:
    """Even against odd digits of scikit-learn's small set."""
    data = load(DataSettings(name="digits"))
    features = np.concatenate([data.inputs.numpy(), data.test_inputs.numpy()]).reshape(-1, 64) / 255.0
    labels = np.concatenate([data.labels.numpy(), data.test_labels.numpy()])
    return World("digits", features, labels % 2, lambda seed: (0,), 300, 500)


def breast_cancer() -> World:
    """Benign against malignant, features standardised."""
    found = load_breast_cancer()
    features = (found.data - found.data.mean(axis=0)) / found.data.std(axis=0)
    return World("breast cancer", features, found.target, lambda seed: (1,), 100, 200)


WORLDS: dict[str, Callable[[], World]] = {"mnist": mnist, "digits": digits, "breast-cancer": breast_cancer}


def draw(world: World, prior: float, seed: int) -> Draw:
    """Draw positives and U, of which exactly the share ``prior`` is positive."""
    rng = numpy_generator(seed, f"prior study {world.title}", round(10 * prior))
    classes = world.positive(seed)
    is_positive = np.isin(world.labels, classes)
    ours, others = (rng.permutation(np.flatnonzero(is_positive == side)) for side in (True, False))
    hidden = round(prior * world.n_unlabelled)
    labelled, inside = ours[: world.n_positive], ours[world.n_positive : world.n_positive + hidden]
    if len(inside) < hidden or len(others) < world.n_unlabelled - hidden:
        raise ValueError(f"{world.title} is too small for a prior of {prior}.")
    unlabelled = rng.permutation(np.concatenate([inside, others[: world.n_unlabelled - hidden]]))
    if world.posteriors is not None and world.training_priors is not None:
        posteriors, shares, column = world.posteriors, world.training_priors, classes[0]
    else:
        left = np.setdiff1d(np.arange(len(world.labels)), np.concatenate([labelled, unlabelled]))
        target = is_positive[left].astype(int)
        classifier = LogisticRegression(max_iter=2000).fit(world.features[left], target)
        posteriors, shares, column = (
            classifier.predict_proba(world.features),
            np.array([1 - target.mean(), target.mean()]),
            1,
        )
    return Draw(
        world.features[labelled],
        world.features[unlabelled],
        posteriors[labelled],
        posteriors[unlabelled],
        shares,
        column,
    )


def estimates(found: Draw, rows: list[str], seed: int) -> Iterator[tuple[str, Estimate, int]]:
    """Yield the rows' estimates, and the class that is meant. Rows with the same classifier share its scores."""
    scored: dict[str, tuple[np.ndarray, np.ndarray]] = {}
    for row in rows:
        estimator = ROWS[row]
        if isinstance(estimator, Em | Bbse):
            column = found.column
            estimate = estimator.estimate(
                {column: found.positive_scores},
                found.unlabelled_scores,
                seed=seed,
                bootstrap=BOOTSTRAP,
                training_priors=found.training_priors,
            )
        elif isinstance(estimator, ClassifierEstimator):
            column, kind = 0, estimator.classifier
            if kind not in scored:
                sample = estimator.sample({0: found.positives}, found.unlabelled, None)
                scored[kind] = estimator.scores(sample, seed)[0]
            p, u = scored[kind]
            ready = estimator.model_copy(update={"classifier": "none"})
            estimate = ready.estimate({0: p[:, None]}, u[:, None], seed=seed, bootstrap=BOOTSTRAP)
        else:
            column = 0
            estimate = estimator.estimate({0: found.positives}, found.unlabelled, seed=seed, bootstrap=BOOTSTRAP)
        yield row, estimate, column


def run(names: list[str], seeds: int, out: Path) -> None:
    """Add the cells that are missing."""
    cells = out / "cells.jsonl"
    done: dict[tuple[object, ...], set[str]] = {}
    for cell in read(cells):
        done.setdefault((cell["data"], cell["prior"], cell["seed"]), set()).update(cell["estimates"])
    worlds = {name: WORLDS[name]() for name in names}
    for seed in range(seeds):
        for name, world in worlds.items():
            for prior in PRIORS:
                rows = [row for row in ROWS if row not in done.get((name, prior, seed), ())]
                if not rows:
                    continue
                values, bounds = {}, {}
                for row, estimate, column in estimates(draw(world, prior, seed), rows, seed):
                    values[row] = round(float(estimate.priors[column]), 5)
                    bounds[row] = [round(float(estimate.lower[column]), 5), round(float(estimate.upper[column]), 5)]
                with cells.open("a", encoding="utf-8") as file:
                    line = {"data": name, "prior": prior, "seed": seed, "estimates": values, "intervals": bounds}
                    file.write(json.dumps(line) + "\n")
                print(f"{name} prior {prior} seed {seed}: {values}", file=sys.stderr, flush=True)


def run_several(seeds: int, out: Path) -> None:
    """Three digits with 500 positives each that are .1, .2 and .3 of 3,000 unlabelled images, seven digits the rest."""
    cells, world = out / "several.jsonl", mnist()
    assert world.posteriors is not None
    done: dict[int, set[str]] = {}
    for cell in read(cells):
        done.setdefault(cell["seed"], set()).update(cell["estimates"])
    for seed in range(seeds):
        rows = [row for row in ROWS if row not in done.get(seed, ())]
        if not rows:
            continue
        rng = numpy_generator(seed, "prior study of several classes")
        digits = [(seed + i) % 10 for i in range(3)]
        orders = {c: rng.permutation(np.flatnonzero(world.labels == c)) for c in digits}
        others = rng.permutation(np.flatnonzero(~np.isin(world.labels, digits)))
        hidden = [orders[c][500 : 500 + round(3000 * p)] for c, p in zip(digits, SEVERAL, strict=True)]
        chosen = rng.permutation(np.concatenate([*hidden, others[: 3000 - sum(map(len, hidden))]]))
        values = {}
        for row in rows:
            estimator = ROWS[row]
            if isinstance(estimator, Em | Bbse):
                table = world.posteriors
                extra: dict[str, Any] = {"training_priors": world.training_priors}
            else:
                table, extra = world.features, {}
            positives = {c: table[orders[c][:500]] for c in digits}
            found = estimator.estimate(positives, table[chosen], seed=seed, classes=10, bootstrap=0, **extra)
            values[row] = [round(float(found.priors[c]), 5) for c in digits]
        with cells.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"seed": seed, "priors": SEVERAL, "estimates": values}) + "\n")
        print(f"several, seed {seed}: {values}", file=sys.stderr, flush=True)


def clock(out: Path) -> None:
    """Take every row's seconds of CPU for 2,000 positives and 10,000 unlabelled examples × 784, with 100 resamples."""
    world = mnist()
    larger = World(
        world.title,
        world.features,
        world.labels,
        world.positive,
        2000,
        10_000,
        world.posteriors,
        world.training_priors,
    )
    seconds: dict[str, float] = {}
    for row, estimator in ROWS.items():
        found = draw(larger, 0.3, 3)
        started = time.process_time()
        if isinstance(estimator, Em | Bbse):
            estimator.estimate({3: found.positive_scores}, found.unlabelled_scores, seed=0)
        else:
            estimator.estimate({0: found.positives}, found.unlabelled, seed=0)
        seconds[row] = round(time.process_time() - started, 2)
        print(f"{row}: {seconds[row]} s", file=sys.stderr, flush=True)
    (out / "seconds.json").write_text(json.dumps({"seconds": seconds, "machine": machine()}, indent=1) + "\n", "utf-8")


def report(out: Path) -> None:
    """Write ``comparison.json`` and ``comparison.md`` from the cells."""
    cells = list(read(out / "cells.jsonl"))
    timed = out / "seconds.json"
    seconds = json.loads(timed.read_text("utf-8"))["seconds"] if timed.exists() else {}
    names = [name for name in WORLDS if any(c["data"] == name for c in cells)]
    summary: dict[str, dict[str, dict[str, float]]] = {}
    for row in ROWS:
        summary[row] = {}
        for name in names:
            mine = [c for c in cells if c["data"] == name and row in c["estimates"]]
            errors = np.array([c["estimates"][row] - c["prior"] for c in mine])
            inside = [c["intervals"][row][0] <= c["prior"] <= c["intervals"][row][1] for c in mine]
            by_prior = {
                str(p): float(np.mean([abs(c["estimates"][row] - p) for c in mine if c["prior"] == p])) for p in PRIORS
            }
            summary[row][name] = {
                "mae": float(np.abs(errors).mean()),
                "bias": float(errors.mean()),
                "mean_squared_error": float((errors**2).mean()),
                "covered": float(np.mean(inside)),
                "cells": len(mine),
                **{f"mae at {p}": value for p, value in by_prior.items()},
            }
    text = {"mnist": "MNIST, one digit", "digits": "digits, even", "breast-cancer": "breast cancer, benign"}
    several = list(read(out / "several.jsonl"))
    lines = [
        "| estimator | "
        + " | ".join(f"{text[n]}: MAE (bias)" for n in names)
        + " | covered, % | MNIST, three digits at once: MAE | s, 10,000 × 784 |",
        "| --- |" + " --- |" * (len(names) + 3),
    ]
    for name, found in sorted(summary.items(), key=lambda item: item[1][names[0]]["mae"]):
        shown = " | ".join(f"{found[n]['mae']:.3f} ({found[n]['bias']:+.3f})" for n in names)
        covered = " / ".join(f"{100 * found[n]['covered']:.0f}" for n in names)
        joint = [
            np.abs(np.subtract(c["estimates"][name], c["priors"])).mean() for c in several if name in c["estimates"]
        ]
        together = f"{np.mean(joint):.3f}" if joint else ""
        lines.append(f"| `{name}` | {shown} | {covered} | {together} | {seconds.get(name, '')} |")
    (out / "comparison.md").write_text("\n".join(lines) + "\n", "utf-8")
    settings = {row: estimator.model_dump() for row, estimator in ROWS.items()}
    (out / "comparison.json").write_text(
        json.dumps({"rows": summary, "settings": settings}, indent=1) + "\n", encoding="utf-8"
    )


def read(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the cells that are there."""
    if path.exists():
        for line in path.read_text("utf-8").splitlines():
            yield json.loads(line)


def main() -> None:
    """Run what is missing, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("results/priors"))
    parser.add_argument("--data", default=",".join(WORLDS), help="which data sets, with commas")
    parser.add_argument("--seeds", type=int, default=10, help="2 for a quick look")
    parser.add_argument("--clock", action="store_true", help="time the estimators instead of measuring errors")
    parser.add_argument("--report", action="store_true", help="only write the table from what is there")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    if arguments.clock:
        clock(arguments.out)
    elif not arguments.report:
        run(arguments.data.split(","), arguments.seeds, arguments.out)
        run_several(arguments.seeds, arguments.out)
    report(arguments.out)


if __name__ == "__main__":
    main()
