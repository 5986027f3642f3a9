"""FixMatch and UDA: losses against explicit loops, masks, gradients where they belong, batches, and what they learn."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import numpy as np
import pytest
import torch
from torch import Tensor

from fedpu.applications.experiment import run
from fedpu.config import Config
from fedpu.data import Dataset
from fedpu.errors import ConfigError
from fedpu.method import UDA, Batch, FedPU, FixMatch, proportioned_batches
from fedpu.method.consistency import Consistency
from fedpu.randomness import torch_generator
from fedpu.risk import RiskConstants, plain_constants
from fedpu.round import Work
from fedpu.testing import check_method

GENERATOR: Callable[[int], torch.Generator] = partial(torch_generator, 0, "batches")
CLASSES = 4
LABELS = torch.tensor([2, -1, 0, -1, -1, 3, -1, -1])
CONSTANTS: RiskConstants = plain_constants(torch.ones(CLASSES, dtype=torch.bool), torch.zeros(CLASSES))
RIVALS: list[type[Consistency]] = [FixMatch, UDA]


def outputs(seed: int = 0, scale: float = 3.0) -> dict[str, Tensor]:
    random = torch.Generator().manual_seed(seed)
    return {
        view: (scale * torch.randn(len(LABELS), CLASSES, generator=random, dtype=torch.float64)).requires_grad_()
        for view in ("weak", "strong", "clean")
    }


def terms_of(method: Consistency, logits: dict[str, Tensor], labels: Tensor = LABELS, round_: int = 0) -> dict:
    """The terms of a batch for which the network gives these logits."""
    views = {name: torch.full((len(labels), 1), float(place)) for place, name in enumerate(method.views)}
    batch = Batch(labels, views, round=round_)

    def forward(inputs: Tensor) -> Tensor:
        (name,) = (name for name, view in views.items() if view is inputs)
        return logits[name]

    return method.objective(forward, batch, CONSTANTS)


def posteriors(row: list[float], temperature: float = 1.0) -> list[float]:
    weights = [math.exp(z / temperature) for z in row]
    return [weight / sum(weights) for weight in weights]


@pytest.mark.parametrize("view", ["weak", "clean"])
@pytest.mark.parametrize("confidence", [0.0, 0.7, 0.95])
def test_fixmatch_is_its_equation(confidence: float, view: str) -> None:
    method = FixMatch(confidence=confidence, unlabelled_weight=1.5, target_view=view)
    logits = outputs()
    own, taught, sure, hidden = 0.0, 0.0, 0, 0
    for place, y in enumerate(LABELS.tolist()):
        if y >= 0:
            own -= math.log(posteriors(logits["weak"][place].tolist())[y])
            continue
        hidden += 1
        p = posteriors(logits[view][place].tolist())
        if max(p) >= confidence:
            sure += 1
            taught -= math.log(posteriors(logits["strong"][place].tolist())[p.index(max(p))])
    assert sure < hidden or confidence < 0.7
    terms = terms_of(method, logits)
    assert terms["labelled"].item() == pytest.approx(own / 3)
    assert terms["unlabelled"].item() == pytest.approx(1.5 * taught / hidden)
    assert terms["total"].item() == pytest.approx(own / 3 + 1.5 * taught / hidden)


@pytest.mark.parametrize("view", ["weak", "clean"])
@pytest.mark.parametrize("confidence", [0.0, 0.7, 0.8])
def test_uda_is_its_equation(confidence: float, view: str) -> None:
    method = UDA(confidence=confidence, temperature=0.4, target_view=view, annealing="linear", annealing_rounds=10)
    logits = outputs(3)
    threshold = 0.5 * (1 - 1 / CLASSES) + 1 / CLASSES
    own, taught, hidden = [], 0.0, 0
    for place, y in enumerate(LABELS.tolist()):
        weak = posteriors(logits["weak"][place].tolist())
        if y >= 0:
            if weak[y] <= threshold:
                own.append(-math.log(weak[y]))
            continue
        hidden += 1
        if max(posteriors(logits[view][place].tolist())) > confidence:
            q = posteriors(logits[view][place].tolist(), 0.4)
            p = posteriors(logits["strong"][place].tolist())
            taught += sum(a * math.log(a / b) for a, b in zip(q, p, strict=True))
    assert 0 < len(own) < 3, "one example or two are annealed away"
    terms = terms_of(method, logits, round_=5)
    assert terms["labelled"].item() == pytest.approx(sum(own) / len(own))
    assert terms["unlabelled"].item() == pytest.approx(taught / hidden)
    assert terms["total"].item() == pytest.approx((terms["labelled"] + terms["unlabelled"]).item())


@pytest.mark.parametrize("view", ["weak", "clean"])
@pytest.mark.parametrize("rival", RIVALS)
def test_gradients_are_where_they_belong(rival: type[Consistency], view: str) -> None:
    logits = outputs()
    method = rival(target_view=view, confidence=0.7, **({"annealing": "off"} if rival is UDA else {}))
    terms_of(method, logits)["total"].backward()
    known = LABELS >= 0
    sure = (logits[view].softmax(dim=1).amax(dim=1) > 0.7) & ~known
    assert bool(sure.any())
    assert bool((~known & ~sure).any())
    moved = {name: _moved(value) for name, value in logits.items()}
    assert torch.equal(moved["weak"], known), "labelled examples are learned from weak views, targets have no gradient"
    assert torch.equal(moved["strong"], sure), "only what the network is sure of is learned from strong views"
    assert not moved["clean"].any()


def _moved(value: Tensor) -> Tensor:
    return torch.zeros(len(value), dtype=torch.bool) if value.grad is None else value.grad.abs().sum(dim=1) > 0


@pytest.mark.parametrize("rival", RIVALS)
@pytest.mark.parametrize("labels", [torch.full((8,), -1), torch.arange(8) % CLASSES], ids=["none", "all"])
def test_a_batch_of_one_kind_has_a_finite_loss_and_gradient(rival: type[Consistency], labels: Tensor) -> None:
    logits = outputs()
    method = rival(confidence=1.0)
    terms = terms_of(method, logits, labels)
    terms["total"].backward()
    assert logits["strong"].grad is not None
    assert not logits["strong"].grad.any(), "nobody is that sure"
    assert all(bool(torch.isfinite(term)) for term in terms.values())
    assert terms["unlabelled"].item() == 0
    assert (terms["labelled"].item() == 0) == bool((labels < 0).all())


def test_the_threshold_of_labelled_examples_rises_as_its_schedule_says() -> None:
    methods = {name: UDA(annealing=name, annealing_rounds=20) for name in ("exp", "linear", "log", "off")}
    for done in (0, 5, 10, 19):
        part = done / 20
        alpha = {"linear": part, "exp": math.exp(5 * part - 5), "log": 1 - math.exp(-5 * part), "off": 1}
        for name, method in methods.items():
            assert method.threshold(done, 10) == pytest.approx(0.9 * alpha[name] + 0.1)
    assert all(method.threshold(done, 10) == 1 for method in methods.values() for done in (20, 1000))
    start, end = (methods["exp"].threshold(done, 10) for done in (0, 19))
    assert 0.1 < start < 0.11
    assert 0.7 < end < 1


def test_labels_that_the_network_is_sure_of_count_again_when_the_threshold_has_risen() -> None:
    logits = outputs()
    right = logits["weak"].detach().clone()
    right[LABELS >= 0] = 4 * torch.eye(CLASSES, dtype=torch.float64)[LABELS[LABELS >= 0]]
    logits["weak"] = right.requires_grad_()
    method = UDA(annealing="exp", annealing_rounds=10)
    assert terms_of(method, logits, round_=0)["labelled"].item() == 0
    assert terms_of(method, logits, round_=10)["labelled"].item() > 0


@pytest.mark.parametrize(("ratio", "labelled"), [(7, 2), (1, 8), (1000, 1), (0.001, 15)])
def test_batches_have_the_asked_proportion_and_an_epoch_the_steps_of_a_pass(ratio: float, labelled: int) -> None:
    labels = torch.tensor([0, 1, 2] + [-1] * 60)
    work = Work(0, 0, 0.1, batch_size=16, epochs=2)
    batches = FixMatch(unlabelled_ratio=ratio).batches(labels, work, GENERATOR)
    assert len(batches) == len(FedPU().batches(labels, work, GENERATOR)) == 8
    assert all(len(batch) == 16 and int((labels[batch] >= 0).sum()) == labelled for batch in batches)
    assert len(UDA(unlabelled_ratio=ratio).batches(labels, Work(0, 0, 0.1, batch_size=16, share=0.5), GENERATOR)) == 2


def test_clients_with_one_kind_of_examples_go_through_them_all() -> None:
    mixed = torch.tensor([0, -1, -1, -1, 1])
    for labels in (torch.full((9,), -1), torch.zeros(9, dtype=torch.int64)):
        batches = proportioned_batches(labels, Work(0, 0, 0.1, batch_size=4), GENERATOR, 7.0)
        assert sorted(torch.cat(batches).tolist()) == list(range(9))
    for size in (None, 1, 5, 100):
        batches = proportioned_batches(mixed, Work(0, 0, 0.1, batch_size=size), GENERATOR, 7.0)
        assert sorted(torch.cat(batches).tolist()) == list(range(5))
    assert proportioned_batches(torch.empty(0, dtype=torch.int64), Work(0, 0, 0.1), GENERATOR, 7.0) == []


def test_three_views_a_mask_and_annealing_keep_every_promise_of_a_method() -> None:
    check_method(UDA(target_view="clean", confidence=0.3, annealing="linear", annealing_rounds=3))


def test_every_engine_sees_views_in_stacks(tiny_config: Config) -> None:
    views = ['augmentation.weak=["shift"]', 'augmentation.strong=["shift","noise"]', "augmentation.shift=1"]
    for name in ("fixmatch", "uda"):
        notes: list[str] = []
        run(tiny_config.with_(f"method.name={name}", "aggregation.rounds=1", *views), on_note=notes.append)
        assert notes == []


def test_they_need_no_priors() -> None:
    """Partly labelled data are taken as they are; a method that needs priors refuses them."""
    random = torch.Generator().manual_seed(0)
    truth = torch.arange(200) % 2
    x = torch.randn(200, 3, generator=random) + 3 * truth[:, None]
    y = torch.where(torch.arange(200) < 20, truth, -1)
    data = Dataset.from_arrays(x, y, x_test=x, y_test=truth)
    config = Config.from_dict(
        {
            "partition": {"clients": 1},
            "labelling": {"positive": "as-given"},
            "model": {"name": "mlp", "hidden": [8]},
            "aggregation": {"rounds": 5, "batch_size": 20, "lr": 0.1},
            "engine": {"workers": 1},
            "augmentation": {"strong": ["noise"]},
        }
    )
    for name in ("fixmatch", "uda"):
        assert run(config.with_(f"method.name={name}"), data=data).accuracy > 0.95
    with pytest.raises(ConfigError, match=r"priors\.source"):
        run(config.with_("method.name=fedpu"), data=data)


def test_they_learn_from_unlabelled_data_what_labelled_data_alone_do_not_tell(tiny_config: Config) -> None:
    """One client with three labels for each digit, over two draws of them."""
    config = tiny_config.with_(
        "partition.clients=1",
        "labelling.positive=10",
        "labelling.per_class=3",
        "model.hidden=[32]",
        "aggregation.rounds=20",
        "aggregation.batch_size=48",
        "aggregation.momentum=0.9",
        "evaluation.every=20",
        'augmentation.strong=["feature-dropout", "noise"]',
        "augmentation.feature_dropout=0.2",
        "augmentation.noise=0.5",
    )
    alone, fixmatch, uda = (
        np.mean([run(config.with_(f"method.name={name}", f"seed={seed}")).accuracy for seed in range(2)])
        for name in ("labelled-only", "fixmatch", "uda")
    )
    assert min(fixmatch, uda) > alone + 0.025
