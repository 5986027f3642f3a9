"""Robust aggregations against versions of their own written out in NumPy, and what they are for: liars."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy.stats import trim_mean

from fedpu.aggregation import AGGREGATIONS, Agreement, CentredClipping, GeometricMedian, MultiKrum, ServerState
from fedpu.aggregation.robust import Robust
from fedpu.applications.experiment import run
from fedpu.config import Config
from fedpu.errors import ConfigError
from fedpu.randomness import numpy_generator
from fedpu.round import Update

Rows = NDArray[np.float64]
Rule = Callable[[Rows, Rows], Rows]
EXAMPLES = [10, 30, 20, 25, 5, 40, 15]


def state(model: dict[str, torch.Tensor], rule: Robust, clients: int = len(EXAMPLES)) -> ServerState:
    first = ServerState(0, model, buffers=frozenset({"mean", "steps"}), clients=clients)
    return ServerState(0, model, rule.start_server(first), buffers=first.buffers, clients=clients)


MODEL = {"w": torch.tensor([[1.0, -2.0], [0.5, 3.0]]), "mean": torch.tensor([0.25]), "steps": torch.tensor(7)}


def updates(changes: Rows, examples: list[int] = EXAMPLES) -> list[Update]:
    """The change of each client: first that of the buffer, whose name comes first, then those of the weights."""
    return [
        Update(
            k,
            n,
            {
                "w": MODEL["w"] + torch.tensor(row[1:]).float().view(2, 2),
                "mean": MODEL["mean"] + float(row[0]),
                "steps": torch.tensor(8 + k),
            },
            {},
        )
        for k, (n, row) in enumerate(zip(examples, changes, strict=True))
    ]


def change(before: ServerState, after: ServerState) -> Rows:
    moved = [(after.model[name] - before.model[name]).flatten().double() for name in ("mean", "w")]
    return torch.cat(moved).numpy()


def drawn(round_: int = 0) -> Rows:
    changes = np.random.default_rng(round_).normal(size=(len(EXAMPLES), 5))
    changes[2] *= 30
    return changes.astype(np.float32).astype(np.float64)


def krum(rows: Rows, shares: Rows, liars: int = 1) -> Rows:
    scores = []
    for one in range(len(rows)):
        near = sorted(float(((rows[one] - rows[other]) ** 2).sum()) for other in range(len(rows)) if other != one)
        scores.append(sum(near[: len(rows) - liars - 2]))
    kept = np.argsort(scores)[: len(rows) - liars]
    return np.average(rows[kept], axis=0, weights=shares[kept])


def trimmed(rows: Rows, shares: Rows) -> Rows:
    return np.asarray(trim_mean(rows, 0.2, axis=0))


def clipped(rows: Rows, shares: Rows) -> Rows:
    centre = np.zeros(rows.shape[1])
    for _ in range(3):
        lengths = np.linalg.norm(rows - centre, axis=1)
        kept = np.minimum(1, np.median(lengths) / lengths)
        centre = centre + ((shares * kept)[:, None] * (rows - centre)).sum(axis=0)
    return centre


def geometric(rows: Rows, shares: Rows) -> Rows:
    """By plain descent, another way than Weiszfeld's."""
    from scipy.optimize import minimize

    def cost(point: Rows) -> float:
        return float((shares * np.linalg.norm(rows - point, axis=1)).sum())

    found = minimize(cost, np.median(rows, axis=0), method="Nelder-Mead", options={"xatol": 1e-9, "fatol": 1e-13,
                     "maxiter": 20000, "maxfev": 20000})  # fmt: skip
    return np.asarray(found.x)


RULES: dict[str, Rule] = {
    "multi-krum": krum,
    "trimmed-mean": trimmed,
    "centred-clipping": clipped,
    "geometric-median": geometric,
}
PATIENT = {"geometric-median": {"iterations": 10_000}}
"""Weiszfeld's steps get short near an update"""


@pytest.mark.parametrize("name", RULES)
def test_each_rule_is_its_numpy_version(name: str) -> None:
    rule = AGGREGATIONS[name](**PATIENT.get(name, {}))
    assert isinstance(rule, Robust)
    before, shares = state(MODEL, rule), np.array(EXAMPLES) / sum(EXAMPLES)
    after = rule.combine(before, reversed(updates(drawn())))
    np.testing.assert_allclose(change(before, after), RULES[name](drawn(), shares), rtol=2e-4, atol=2e-5)
    assert after.model["steps"].item() == 11, "counters take their median"


@pytest.mark.parametrize("name", RULES)
def test_buckets_are_means_of_clients_that_the_round_draws(name: str) -> None:
    rule = AGGREGATIONS[name](bucket=2, **PATIENT.get(name, {}))
    assert isinstance(rule, Robust)
    before, sizes = state(MODEL, rule), np.array(EXAMPLES, dtype=float)
    after = rule.combine(before, updates(drawn()))
    order = numpy_generator(0, "buckets", 0).permutation(len(EXAMPLES))
    groups = [order[start : start + 2] for start in range(0, len(order), 2)]
    means = np.array([np.average(drawn()[group], axis=0, weights=sizes[group]) for group in groups])
    shares = np.array([sizes[group].sum() for group in groups]) / sizes.sum()
    alone = krum(means, shares, liars=0) if name == "multi-krum" else RULES[name](means, shares)
    alone = means.mean(axis=0) if name == "trimmed-mean" else alone  # a fifth of four buckets is none
    np.testing.assert_allclose(change(before, after), alone, rtol=2e-4, atol=2e-5)


def test_centred_clipping_starts_where_the_last_round_went() -> None:
    rule = CentredClipping(iterations=1, memory=0.5, radius=2.0)
    now, centre, shares = state(MODEL, rule), np.zeros(5), np.array(EXAMPLES) / sum(EXAMPLES)
    for round_ in range(3):
        rows = drawn(round_)
        after = rule.combine(now, updates(rows))
        start = 0.5 * centre
        lengths = np.linalg.norm(rows - start, axis=1)
        kept = np.minimum(1, 2 * np.median(lengths) / lengths)
        centre = start + ((shares * kept)[:, None] * (rows - start)).sum(axis=0)
        np.testing.assert_allclose(after.extras["centre"].numpy(), centre, rtol=1e-5, atol=1e-6)
        assert 2 in after.judged, "the record tells of the long one"
        now = ServerState(round_ + 1, MODEL, after.extras, buffers=now.buffers, clients=now.clients)


def agreeing(round_: int, liar: int = 4) -> Rows:
    """Updates that have something in common, and one that has the opposite."""
    noise = np.random.default_rng(round_).normal(size=(len(EXAMPLES), 5))
    rows = noise + np.array([1.0, 0, 0, 1.0, 0])
    rows[liar] = noise[liar] - np.array([2.0, 0, 0, 2.0, 0])
    return rows.astype(np.float32).astype(np.float64)


def low_median(values: list[float]) -> float:
    return sorted(values)[(len(values) - 1) // 2]


@pytest.mark.parametrize("spread", [0.0, 0.5, 2.0])
def test_agreement_is_its_numpy_version_over_rounds(spread: float) -> None:
    rule = Agreement(threshold=0.3, apart=spread, norm_bound=0)
    now, sums, out = state(MODEL, rule), np.zeros((len(EXAMPLES), 5)), set[int]()
    cut: list[set[int]] = []
    for round_ in range(6):
        rows = agreeing(round_)
        after = rule.combine(now, updates(rows))
        sums = sums + rows / np.linalg.norm(rows, axis=1, keepdims=True)
        units = sums / np.linalg.norm(sums, axis=1, keepdims=True)

        def mean(k: int, among: set[int], units: Rows = units) -> float:
            others = [j for j in among if j != k]
            return float(np.mean([units[k] @ units[j] for j in others]))

        everybody = set(range(len(EXAMPLES)))
        trusted = everybody - out
        out = {k for k in out if mean(k, trusted) <= 0}
        while len(out) < 2:  # a third of seven
            means = {k: mean(k, everybody - out) for k in everybody - out}
            worst = min(means, key=lambda k: means[k])
            agree = sum(value > 0 for value in means.values())
            middle = low_median(list(means.values()))
            apart = spread * low_median([abs(value - middle) for value in means.values()])
            few = agree >= 4 and len(EXAMPLES) - agree <= 2
            alone = spread > 0 and few and means[worst] < min(0, middle - apart)
            if means[worst] >= -0.3 and not alone:
                break
            out.add(worst)
        kept = sorted(everybody - out)
        expected = np.average(rows[kept], axis=0, weights=np.array(EXAMPLES)[kept])
        np.testing.assert_allclose(change(now, after), expected, rtol=1e-4, atol=1e-5)
        assert after.judged.keys() == out
        cut.append(set(out))
        now = ServerState(round_ + 1, MODEL, after.extras, buffers=now.buffers, clients=now.clients)
    assert cut[-1] == {4}


def nearly_at_right_angles(signs: list[float]) -> Rows:
    """Updates of ten clients with a little in common, or a little against it."""
    return np.hstack([np.array(signs)[:, None] * 0.2, np.eye(10)])


def cut_of_ten(rule: Agreement, rows: Rows) -> set[int]:
    model = {"w": torch.zeros(11)}
    given = [Update(k, 10, {"w": torch.from_numpy(row).float()}, {}) for k, row in enumerate(rows)]
    return set(rule.combine(ServerState(0, model, rule.start_server(state(model, rule, 10)), clients=10), given).judged)


def test_agreement_sees_who_disagrees_a_little_where_all_others_agree() -> None:
    rows = nearly_at_right_angles([1, -1, 1, 1, 1, 1, 1, -1, 1, 1])
    assert cut_of_ten(Agreement(), rows) == {1, 7}
    assert cut_of_ten(Agreement(apart=0), rows) == set(), "a mean cosine of -0.03 is far above the threshold"


def test_agreement_takes_no_side_where_many_disagree_a_little() -> None:
    assert cut_of_ten(Agreement(), nearly_at_right_angles([1, -1] * 5)) == set()
    assert cut_of_ten(Agreement(), nearly_at_right_angles([1, -1, 1, -1, 1, 1, 1, -1, 1, -1])) == set()


def test_agreement_takes_no_offence_at_clients_at_right_angles() -> None:
    rule = Agreement()
    rows = np.eye(5)
    now = state(MODEL, rule, 5)
    after = rule.combine(now, updates(rows, [10] * 5))
    assert after.judged == {}
    np.testing.assert_allclose(change(now, after), rows.mean(axis=0), rtol=1e-5)


def test_agreement_leaves_out_clients_that_send_the_same() -> None:
    rule = Agreement()
    rows = np.vstack([np.eye(5), np.full((2, 5), -0.1) + np.eye(5)[0]])
    after = rule.combine(state(MODEL, rule), updates(rows))
    assert after.judged.keys() == {5, 6}
    assert "the same as another client's" in after.judged[5]


def test_agreement_does_not_ask_for_differences_where_all_are_alike() -> None:
    rule = Agreement()
    after = rule.combine(state(MODEL, rule), updates(np.ones((7, 5))))
    assert after.judged == {}


@pytest.mark.parametrize("rule", [Agreement(), CentredClipping(), GeometricMedian(), MultiKrum()], ids=lambda r: r.name)
def test_one_or_two_clients_are_enough(rule: Robust) -> None:
    for count in (1, 2):
        after = rule.combine(state(MODEL, rule), updates(drawn()[:count], EXAMPLES[:count]))
        assert all(bool(torch.isfinite(value.float()).all()) for value in after.model.values())


@pytest.mark.parametrize("name", ["agreement", *RULES])
def test_what_needs_each_update_is_refused_with_privacy(tiny_config: Config, name: str) -> None:
    config = tiny_config.with_(f"aggregation.name={name}", "privacy.secure_aggregation=true")
    with pytest.raises(ConfigError, match="needs each of them by itself"):
        run(config)


def overlapping(config: Config) -> Config:
    """Ten clients that label three classes each, and each class is labelled by three of them."""
    sets = [[(k + step) % 10 for step in range(3)] for k in range(10)]
    return config.with_(
        "partition.clients=10", f"labelling.positive={sets}", "labelling.overlap=true", "aggregation.rounds=12",
        "aggregation.batch_size=20", "model.hidden=[32]",
    )  # fmt: skip


def test_agreement_finds_the_liars_and_tells_who_they_are(tiny_config: Config) -> None:
    lying = overlapping(tiny_config).with_("faults.sign_flip=2")
    mean, robust = run(lying), run(lying.with_("aggregation.name=agreement"))
    silent = run(overlapping(tiny_config).with_("faults.silent=2"))
    liars = {str(k) for k in robust.summary["faults"]["sign_flip"]}
    assert robust.curve[-1]["cut"].keys() >= liars
    assert "works against the others" in robust.curve[-1]["cut"][min(liars)]
    assert robust.accuracy > mean.accuracy + 0.1
    assert robust.accuracy > silent.accuracy - 0.03, "nearly as if they had said nothing"
