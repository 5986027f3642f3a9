"""Aligned targets: offsets against an independent minimum, the loss against its equation, what clients share."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable
from functools import partial
from typing import Literal

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import optimize

from fedpu.applications.experiment import run
from fedpu.applications.prepared import prepare
from fedpu.config import Config
from fedpu.errors import ConfigError
from fedpu.labelling import Client
from fedpu.method import Aligned, Batch, ClientRound, FedPU, PriorsOf
from fedpu.method.aligned import ADJUSTMENT, CLOSE, LABELLED, OFFSETS, PREDICTED, TARGET, aligned, pooled
from fedpu.randomness import torch_generator
from fedpu.risk import co_negatives
from fedpu.round import Tensors, Work

GENERATOR: Callable[[int], torch.Generator] = partial(torch_generator, 0, "batches")


@given(
    st.integers(0, 10_000),
    st.floats(0.1, 8),
    st.lists(st.floats(1e-4, 1), min_size=4, max_size=4),
)
def test_the_mean_of_targets_is_the_shares(seed: int, scale: float, weights: list[float]) -> None:
    logits = scale * torch.randn(300, 4, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    shares = torch.tensor(weights, dtype=torch.float64) / sum(weights)
    found = aligned(logits, shares)
    assert float((found.values.mean(dim=0) - shares).abs().max()) < 2 * CLOSE
    assert torch.allclose(found.values, (logits + found.offsets).softmax(dim=1))


def test_offsets_are_the_minimum_that_another_solver_finds() -> None:
    logits = 3 * torch.randn(50, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    shares = torch.tensor([0.7, 0.2, 0.1], dtype=torch.float64)
    z, rho = logits.numpy(), shares.numpy()
    other = optimize.minimize(lambda v: np.log(np.exp(z + v).sum(axis=1)).mean() - rho @ v, np.zeros(3), tol=1e-12).x
    ours = aligned(logits, shares).offsets.numpy()
    assert ours - ours[0] == pytest.approx(other - other[0], abs=5e-3)


def test_a_model_that_knows_nothing_gives_the_shares_as_targets() -> None:
    shares = torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64)
    flat = torch.tensor([[1.0, -2.0, 4.0]], dtype=torch.float64).expand(9, 3)
    assert torch.allclose(aligned(flat, shares).values, shares.expand(9, 3), atol=2 * CLOSE)


def test_shares_that_are_not_known_lie_between_the_guess_and_what_a_sure_model_counts() -> None:
    classes = torch.tensor([0] * 6 + [1] * 3 + [2] * 3)
    logits = 50 * torch.nn.functional.one_hot(classes, 3).double()
    guess = torch.tensor([0.2, 0.2, 0.6], dtype=torch.float64)
    counted = torch.tensor([0.5, 0.25, 0.25], dtype=torch.float64)
    found = pooled(logits, torch.zeros(3, dtype=torch.float64), guess)
    assert torch.allclose(found.shares, (2 * counted + guess) / 3, atol=1e-6)
    assert torch.equal(found.values.argmax(dim=1), classes)
    nothing = pooled(torch.zeros(12, 3, dtype=torch.float64), torch.zeros(3, dtype=torch.float64), guess)
    assert torch.allclose(nothing.shares, guess, atol=1e-6)


def test_the_loss_is_that_of_its_equation(tiny_config: Config) -> None:
    client, ready = client_of(tiny_config)
    method = Aligned(temperatures=(0.5,))
    constants = method.constants(client.summary, co_negatives(ready.federation.positive), 5)
    z = torch.randn(len(client.labels), 10, generator=torch.Generator().manual_seed(0))
    prepared = method.prepare(moment(method, client, constants, z))
    rows = torch.arange(0, len(z), 3)
    labels = client.labels[rows]
    own, taught = [], []
    given = client.labels[client.labels >= 0].tolist()
    rho = constants.unlabelled_priors.double().tolist()
    size, hidden = len(client.labels), int((client.labels < 0).sum())
    whole = [(given.count(y) + hidden * rho[y]) / size for y in range(10)]
    shares = [(given.count(y) / len(given) + rho[y]) / 2 / min(whole[y], 0.05) for y in range(10)]
    for row, y, q in zip(
        z[rows].double().tolist(), labels.tolist(), prepared.examples[TARGET][rows].tolist(), strict=True
    ):
        weights = [share * math.exp(a) for share, a in zip(shares, row, strict=True)]
        if y >= 0:
            own.append(-math.log(weights[y] / sum(weights)))
        else:
            taught.append(-sum(t * math.log(w / sum(weights)) for t, w in zip(q, weights, strict=True)))
    examples = {name: value[rows] for name, value in prepared.examples.items()}
    batch = Batch(labels, {"strong": client.batch(rows)[0]}, examples)
    terms = method.objective(lambda _: z[rows], batch, constants)
    assert own
    assert float(terms["labelled"]) == pytest.approx(np.mean(own), rel=1e-3)
    assert float(terms["targets"]) == pytest.approx(np.mean(taught), rel=1e-3)
    assert float(terms["total"]) == pytest.approx(float(terms["labelled"] + terms["targets"]))


@pytest.mark.parametrize("scenario", ["censored", "case-control"])
@pytest.mark.parametrize("counts", [(3, 0), (0, 2), (4, 1)], ids=["first", "second", "both"])
@pytest.mark.parametrize("share", [0.5, 0.2, 0.9])
def test_what_a_client_labels_does_not_move_it_from_its_posterior(
    tiny_config: Config, share: float, counts: tuple[int, int], scenario: Literal["censored", "case-control"]
) -> None:
    """A world of three inputs and two classes that overlap: the gradient of a client's loss, summed exactly, vanishes
    at p(y|x) ∝ min(π_y, ¼) P(x|y), with π its class shares, whichever class it labels. Without the correction not.
    """
    client, ready = client_of(tiny_config)
    hidden = 10
    labels = torch.tensor([0] * counts[0] + [1] * counts[1] + [-1] * hidden)
    likelihood = torch.tensor([[0.6, 0.3, 0.1], [0.1, 0.3, 0.6]], dtype=torch.float64)  # of x given y
    rho = torch.tensor([share, 1 - share], dtype=torch.float64)
    inside = rho @ likelihood  # of x in U
    target = (rho[:, None] * likelihood / inside).T
    given = torch.tensor(counts, dtype=torch.float64)
    own = (given + hidden * rho) / len(labels) if scenario == "censored" else rho
    expected = own.clamp(max=0.25)
    logits = (expected[:, None] * likelihood).T.log().requires_grad_()
    method = Aligned(temperatures=(1.0,))
    constants = method.constants(client.summary, co_negatives(ready.federation.positive), 5)
    client = dataclasses.replace(
        client, labels=labels, rows=torch.arange(len(labels)), positive=given > 0, priors=own.float(), scenario=scenario
    )
    two = constants._replace(unlabelled_priors=rho.float())
    outputs = torch.zeros(len(labels), 2)
    adjustment = method.prepare(moment(method, client, two, outputs)).examples[ADJUSTMENT][0].double()

    def gradient(adjustment: torch.Tensor) -> torch.Tensor:
        total = torch.zeros((), dtype=torch.float64)
        for y, x in itertools.product(range(2), range(3)):  # an example of each kind, as often as it is there
            targets = torch.stack([torch.eye(2, dtype=torch.float64)[y], target[x]])
            examples = {TARGET: targets, ADJUSTMENT: adjustment.expand(2, 2)}
            terms = method.stacked(logits[[x, x]], torch.tensor([y, -1]), examples, constants)
            total = total + given[y] / given.sum() * likelihood[y, x] * terms["labelled"]
            total = total + inside[x] * terms["targets"] / 2  # for each of the two classes once
        return torch.autograd.grad(total, logits)[0]

    assert float(gradient(adjustment).abs().max()) < 1e-4
    ratio = (given / given.sum() + rho) / 2 / expected
    something_to_correct = not torch.allclose(ratio[0], ratio[1])
    assert (float(gradient(torch.zeros(2)).abs().max()) > 1e-4) == something_to_correct


def test_a_client_takes_the_temperature_under_which_its_labels_are_most_likely(tiny_config: Config) -> None:
    client, ready = client_of(tiny_config)
    method = Aligned(temperatures=(1.0, 0.25))
    constants = method.constants(client.summary, co_negatives(ready.federation.positive), 5)
    truth = torch.where(client.labels >= 0, client.labels, torch.arange(len(client.labels)) % 10)
    right = 2 * torch.nn.functional.one_hot(truth, 10).float()
    wrong = torch.where((client.labels >= 0)[:, None], right.roll(1, dims=1), right)
    unlabelled = client.labels < 0

    def sureness(outputs: torch.Tensor, whose: PriorsOf = "client") -> float:
        prepared = method.prepare(moment(method, client, constants, outputs, priors_of=whose))
        return float(prepared.examples[TARGET][unlabelled].max())

    assert sureness(right) > 0.95 > sureness(wrong)
    assert sureness(right, "federation") > 0.95
    assert sureness(right, "estimate") < 0.95, "an estimate may take one class for another: nothing is sharpened"


def test_half_of_a_batch_is_labelled_and_there_are_as_many_as_in_a_pass_over_all_data() -> None:
    labels = torch.tensor([3, 3, 1] + [-1] * 60)
    work = Work(0, 0, 0.1, batch_size=10, epochs=2)
    batches = Aligned().batches(labels, work, GENERATOR)
    assert len(batches) == len(FedPU().batches(labels, work, GENERATOR)) == 14
    assert all(int((labels[batch] >= 0).sum()) == 5 for batch in batches)
    assert len(batches[0][5:].unique()) == 5
    for full in (Work(0, 0, 0.1), Work(0, 0, 0.1, batch_size=100)):
        (whole,) = Aligned().batches(labels, full, GENERATOR)
        assert sorted(whole.tolist()) == list(range(63))
    for others in (torch.full((9,), -1), torch.zeros(9, dtype=torch.int64), torch.tensor([0, 1, 2, -1])):
        every = torch.cat(Aligned().batches(others, Work(0, 0, 0.1, batch_size=2), GENERATOR))
        assert sorted(every.tolist()) == list(range(len(others)))


@pytest.mark.parametrize("whose", ["estimate", "federation"])
def test_a_model_that_prefers_a_class_everywhere_is_corrected_by_all_clients_together(
    tiny_config: Config, whose: PriorsOf
) -> None:
    """The offsets that clients share find the preference out, and no client takes it for many examples of the class."""
    client, ready = client_of(tiny_config)
    method = Aligned(temperatures=(1.0,))
    constants = method.constants(client.summary, co_negatives(ready.federation.positive), 5)
    tenth = torch.full((10,), 0.1)
    even = constants._replace(priors=tenth, unlabelled_priors=tenth)
    truth = torch.where(client.labels >= 0, client.labels, torch.arange(len(client.labels)) % 10)
    outputs = 4 * torch.nn.functional.one_hot(truth, 10).float() + 3 * torch.eye(10)[0]
    shared = method.shares(10)
    for _ in range(8):
        prepared = method.prepare(moment(method, client, even, outputs, shared=shared, priors_of=whose))
        shared = prepared.shared
    taken = torch.bincount(client.labels[client.labels >= 0], minlength=10) / len(client.labels)
    assert torch.allclose(shared[LABELLED], taken)
    hidden = (0.1 - taken) / (0.1 - taken).sum()
    assert float((shared[PREDICTED] - hidden).abs().max()) < 0.01
    assert float(shared[OFFSETS][0] - shared[OFFSETS][1:].mean()) == pytest.approx(-3, abs=0.3)
    unlabelled = client.labels < 0
    mine = taken / taken.sum()
    found = 2 * prepared.examples[ADJUSTMENT][0].exp() - mine
    assert float(found.max()) < 0.12, "the shares that it takes U to have"
    assert torch.equal(prepared.examples[TARGET][unlabelled].argmax(dim=1), truth[unlabelled])


@pytest.mark.parametrize(
    ("factor", "counted"),
    [(0.5, True), (1.9, True), (0.3, False), (4.0, False)],
    ids=["half", "double", "third", "four"],
)
def test_shares_that_were_given_by_hand_only_bound_what_a_model_counts(
    tiny_config: Config, factor: float, counted: bool
) -> None:
    """A class whose given share is off by up to two keeps the share that the model finds; beyond, it is cut to that."""
    client, ready = client_of(tiny_config)
    method = Aligned(temperatures=(1.0,))
    constants = method.constants(client.summary, co_negatives(ready.federation.positive), 5)
    given = torch.full((10,), 0.1)
    given[0] *= factor
    wrong = constants._replace(priors=given / given.sum(), unlabelled_priors=given / given.sum())
    truth = torch.arange(len(client.labels)) % 10
    outputs = 6 * torch.nn.functional.one_hot(truth, 10).float()
    client = dataclasses.replace(client, labels=torch.full_like(client.labels, -1))
    shared = method.shares(10)
    for _ in range(60):
        shared = method.prepare(moment(method, client, wrong, outputs, shared=shared, priors_of="guess")).shared
    found = float(shared[PREDICTED][0])
    if counted:
        assert found == pytest.approx(0.1, abs=0.01)
    else:
        bound = 2 if factor < 1 else 0.5
        assert found == pytest.approx(bound * float(given[0] / given.sum()), rel=0.1)


def test_the_federations_shares_can_be_given(tiny_config: Config) -> None:
    config = tiny_config.with_("method.name=aligned", "priors.source=estimated", "priors.estimator=em")
    one, other = (run(config.with_(f"method.overall={[x] + [1] * 9}")).model.state_dict() for x in (1, 5))
    assert any(not torch.equal(one[name], other[name]) for name in one)
    with pytest.raises(ConfigError, match=r"method\.overall has 2 shares, but there are 10 classes"):
        run(config.with_("method.overall=[0.5,0.5]"))


@pytest.mark.parametrize("source", ["estimated", "global"])
def test_shares_that_are_not_the_clients_own_on_both_engines(tiny_config: Config, source: str) -> None:
    estimator = ("priors.estimator=em", "priors.trust=0") if source == "estimated" else ()
    config = tiny_config.with_("method.name=aligned", f"priors.source={source}", *estimator)
    fast, plain = run(config), run(config.with_("engine.name=reference"))
    for name, value in plain.model.state_dict().items():
        torch.testing.assert_close(fast.model.state_dict()[name], value, rtol=1e-4, atol=1e-4)


def test_it_learns_from_unlabelled_data_what_labelled_data_alone_do_not_tell(tiny_config: Config) -> None:
    config = tiny_config.with_("aggregation.rounds=15", "aggregation.batch_size=20", "labelling.fraction=0.1")
    ours, labelled = (run(config.with_(f"method.name={name}")).accuracy for name in ("aligned", "labelled-only"))
    assert ours is not None
    assert labelled is not None
    assert ours > labelled + 0.03


def client_of(config: Config) -> tuple[Client, object]:
    ready = prepare(config)
    return ready.federation.client(0), ready


def moment(
    method: Aligned,
    client: Client,
    constants: object,
    outputs: torch.Tensor,
    shared: Tensors | None = None,
    priors_of: PriorsOf = "client",
) -> ClientRound:
    """What a client knows before its first step, of a model with these outputs."""
    return ClientRound(
        client=client,
        constants=constants,  # type: ignore[arg-type]
        round=0,
        state={},
        outputs=lambda: outputs,
        generator=lambda purpose: torch.Generator(),
        shared=method.shares(10) if shared is None else shared,
        priors_of=priors_of,
    )
