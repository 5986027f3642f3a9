"""What docs/privacy.md says that no setting withstands, and where the line is: each attack is played to its end."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

pytest.importorskip("flwr", reason="Flower is not installed: pip install 'fedpu[flower]'")

from flwr.app import ConfigRecord, RecordDict

from deploy.in_process import EXAMPLES, NAMES, Table, own_data_config
from fedpu.config import Config
from fedpu.data import Dataset
from fedpu.deploy import guard, server
from fedpu.deploy.protocol import SECURE, SECURE_JOIN, SECURE_TRAIN
from fedpu.deploy.server import serve
from fedpu.deploy.sums import Sum, secure_sum
from fedpu.engine import initial_model
from fedpu.errors import FedpuError
from fedpu.flower.messages import MODEL, unpack_tensors
from fedpu.flower.wire import Request
from fedpu.privacy import Guard, Privacy, secure_rules
from fedpu.privacy.mechanism import clipped
from fedpu.privacy.secagg import secure_sum as summed_securely
from fedpu.record import RunDirectory
from fedpu.risk import co_negatives
from fedpu.round import Tensors

ONE = ["aggregation.rounds=1", "method.lent=off"]
SECURE_RUN = ["privacy.secure_aggregation=true"]
LOCAL = ["privacy.differential=local", "privacy.noise_source=system"]


@pytest.fixture
def table(digits: Dataset, tmp_path: Path) -> Table:
    return Table(tmp_path, digits)


def data_of(table: Table, name: str) -> tuple[np.ndarray, np.ndarray]:
    found = np.load(table.folder / f"{name}.npz")
    return found["x"], found["y"]


def negatives_of(table: Table, name: str) -> np.ndarray:
    labels = data_of(table, name)[1]
    return ~np.isin(np.arange(10), labels[labels >= 0])


# A model of the server's choice.


def trap(data: Dataset) -> Callable[..., nn.Module]:
    """Return a network of which each hidden unit answers to one image in some three hundred.

    The server knows images of this kind, its own, and so where the highest of so many will lie in any direction.
    """

    def crafted(*arguments: Any) -> nn.Module:
        network = initial_model(*arguments)
        linear = next(part for part in network.modules() if isinstance(part, nn.Linear))
        mine = data.normalisation(data.inputs).flatten(1)
        with torch.no_grad():
            towards = 0.03 * torch.randn(linear.weight.shape, generator=torch.Generator().manual_seed(0))
            linear.weight.copy_(towards)
            linear.bias.copy_(-(mine @ towards.T).quantile(1 - 1 / (EXAMPLES * len(NAMES)), dim=0))
        return network

    return crafted


def nearest(found: Tensor, images: Tensor) -> float:
    """Return how near the best of some guesses comes to an image, in lengths of that image."""
    usable = found[found.isfinite().all(1)]
    apart = torch.cdist(usable.double(), images.double()) / images.double().norm(dim=1)
    return float(apart.min())


@pytest.mark.parametrize(
    ("settings", "reads"), [([], True), (SECURE_RUN, True), (LOCAL, False)], ids=["nothing", "secure sums", "local"]
)
def test_with_a_model_of_its_choice_a_server_reads_images_out_of_a_sum_and_not_through_local_noise(
    table: Table, digits: Dataset, monkeypatch: pytest.MonkeyPatch, settings: list[str], reads: bool
) -> None:
    crafted = trap(digits)
    monkeypatch.setattr(server, "initial_model", crafted)
    config = own_data_config(*ONE, "model.hidden=[32]", *settings)
    result = table.train(config)
    before, after = crafted(config.model, (1, 8, 8), 10, config.seed).state_dict(), result.model.state_dict()
    moved = [after[name] - before[name] for name in list(before)[:2]]
    weight, bias = sorted(moved, key=lambda value: -value.dim())
    images = torch.from_numpy(np.concatenate([data_of(table, name)[0] for name in NAMES]))
    distance = nearest(weight / bias[:, None], digits.normalisation(images).flatten(1))
    assert (distance < 0.01) == reads, distance
    if not reads:
        assert distance > 0.5, "no image is anywhere near"


# Sums that can be taken from one another.


@contextmanager
def listening() -> Iterator[list[Sum]]:
    """Give every secure sum that the server forms."""
    heard: list[Sum] = []

    def kept(*arguments: Any) -> Sum:
        heard.append(secure_sum(*arguments))
        return heard[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(guard, "secure_sum", kept)
        yield heard


def updates_in_the_open(table: Table, config: Config) -> dict[str, Tensors]:
    """Return everybody's model after the round, from a run without protection: what an attack has to find."""
    table.train(config, "open", run=6)
    found: dict[str, Tensors] = {}
    for name, kind, content in table.sent:
        if kind == "train":
            tensors = unpack_tensors(content[MODEL])
            found[name] = {key.removeprefix("model."): value for key, value in tensors.items()}
    return found


def assert_is(found: Tensors, expected: Tensors) -> None:
    for key, value in expected.items():
        torch.testing.assert_close(found[key], value, rtol=0, atol=2e-5)


def test_a_sum_over_a_client_and_accomplices_of_the_server_is_that_clients_update(table: Table) -> None:
    """Three of four registered clients are puppets; 'group' counts them like any other."""
    secret = updates_in_the_open(table, own_data_config(*ONE))
    total = table.train(own_data_config(*ONE, *SECURE_RUN)).model.state_dict()
    puppets = [name for name in NAMES if name != "east"]
    found = {key: 4 * value - sum(secret[name][key] for name in puppets) for key, value in total.items()}
    assert_is(found, secret["east"])


def without_west(name: str, kind: str, content: RecordDict) -> RecordDict:
    """A server that wants no part of 'west' acts as if its keys were no good."""
    if (name, kind) == ("west", SECURE_JOIN):
        fields: Any = content[SECURE]
        content[SECURE] = ConfigRecord(dict(fields) | {"proof": b""})
    return content


@pytest.mark.parametrize("settings", [SECURE_RUN, LOCAL], ids=["secure", "local"])
def test_a_round_is_answered_once_under_one_invitation(table: Table, settings: list[str]) -> None:
    """Summed again without 'west', a round would tell the update of 'west'; answered again and again, it would tell
    everybody's, since the noise differs each time.
    """
    config = own_data_config(*ONE, *settings, "engine.deadline=1")
    wire = table.signed(config)
    serve(wire, config, table.folder / "all", resume=False)
    before = len(table.sent)
    table.tap_reply = without_west
    with pytest.raises(FedpuError):
        serve(wire, config, table.folder / "again", resume=False)
    assert "This client has answered for this round already." in table.refusals
    assert not [kind for _, kind, _ in table.sent[before:] if kind.startswith("train")]


@pytest.mark.parametrize("group", [3, 4])
def test_two_rounds_of_one_model_that_differ_by_one_client_tell_its_update_unless_every_group_is_all_clients(
    table: Table, group: int
) -> None:
    """A server that sends the first model again, and leaves the victim out. Clients take one step on all of their data,
    which is the same step in both rounds; with batches it would be nearly the same.
    """
    whole = [*ONE, "aggregation.name=fedsgd", "aggregation.momentum=0"]
    secret = updates_in_the_open(table, own_data_config(*whole))
    for name in NAMES:
        table.write_file(name, f"[accepts]\ngroup = {group}")
    config = own_data_config(*whole, *SECURE_RUN, "aggregation.rounds=2", "engine.deadline=1")
    sent: list[Any] = []

    def the_first_model_again(request: Request) -> Request:
        if request.kind != SECURE_TRAIN:
            return request
        sent.append(request.content[MODEL])
        return replace(request, content=RecordDict(dict(request.content) | {MODEL: sent[0]}))

    def without_west_then(name: str, kind: str, content: RecordDict) -> RecordDict:
        return without_west(name, kind, content) if len(sent) >= len(NAMES) else content

    table.tap_reply = without_west_then
    with listening() as sums:
        if group == 4:
            with pytest.raises(FedpuError):
                table.train(config, change=the_first_model_again)
            assert any("hidden among 3 clients; its owner accepts 4" in refusal for refusal in table.refusals)
            return
        names = list(table.train(config, change=the_first_model_again).model.state_dict())
    first, second = (one.values for one in sums)
    start = unpack_tensors(sent[0])
    moved = [secret["west"][name] - start[f"model.{name}"] for name in names]
    found = torch.cat([value.flatten() for value in moved]).numpy()
    second = second / config.aggregation.lr_decay  # everybody knows how much shorter its steps are
    np.testing.assert_allclose((first - second) / EXAMPLES, found, rtol=0, atol=2e-5)


def test_sizes_can_be_told_from_sums_over_different_clients_and_not_from_sums_over_all(table: Table) -> None:
    """A server that only listens: Σ n_k of every round, and who was drawn for it, are so many equations."""
    sizes = dict(zip(NAMES, (80, 71, 64, 53), strict=True))
    for name, size in sizes.items():
        x, y = data_of(table, name)
        np.savez(table.folder / f"{name}.npz", x=x[:size], y=y[:size])
    for share, rounds, known in ((1.0, 2, False), (0.75, 5, True)):
        config = own_data_config("method.lent=off", f"aggregation.rounds={rounds}", "seed=6", *SECURE_RUN)
        config = config.with_(f"aggregation.participation={share}")
        with listening() as sums:
            table.train(config, f"run-{share}", run=int(10 * share))
        heard = [one.weight for one in sums]
        drawn = [config.aggregation.select(config.seed, round_, 4) for round_ in range(rounds)]
        equations = np.array([[client in who for client in range(4)] for who in drawn], dtype=float)
        solved, _, rank, _ = np.linalg.lstsq(equations, np.array(heard, dtype=float), rcond=None)
        assert (rank == 4) == known
        assert np.allclose(solved, list(sizes.values())) == known
        assert heard[0] == sum(size for k, size in enumerate(sizes.values()) if k in drawn[0])


def test_of_two_clients_each_learns_the_others_classes_and_no_node_joins_two_by_default(
    digits: Dataset, tmp_path: Path
) -> None:
    pair = Table(tmp_path, digits, names=("east", "west"))
    config = own_data_config("aggregation.rounds=1", *SECURE_RUN, clients=2)
    with suppress(FedpuError):
        pair.train(config, "refused")
    assert any("hidden among 2 clients; its owner accepts 3 or more" in refusal for refusal in pair.refusals)
    seen: list[Any] = []

    def listen(name: str, kind: str, content: RecordDict) -> RecordDict:
        if (name, kind) == ("east", SECURE_TRAIN):
            seen.append(content["run"])
        return content

    pair.tap_request = listen
    for name in pair.named:
        pair.write_file(name, "[accepts]\ngroup = 2")
    pair.train(config, run=8)
    total, mine = np.array(seen[0]["co-negatives"]).reshape(10, 10), negatives_of(pair, "east").astype(float)
    assert np.array_equal((total - np.outer(mine, mine)).diagonal() == 1, negatives_of(pair, "west"))


@pytest.mark.parametrize(("lent", "told"), [("shared", True), ("printed", False)])
def test_whoever_knows_the_sizes_tells_from_a_sum_by_size_who_lacks_which_classes(lent: str, told: bool) -> None:
    positive = torch.tensor([[True, True, False, False], [False, True, True, False], [False, False, True, True]])
    sizes = torch.tensor([40, 70, 130])
    total = co_negatives(positive, sizes) if lent == "shared" else co_negatives(positive)
    shares = (sizes / sizes.sum() * 3 if lent == "shared" else torch.ones(3)).double()
    for class_ in range(4):
        lacking = [
            who
            for who in itertools.product([False, True], repeat=3)
            if abs(float(shares @ torch.tensor(who, dtype=torch.double)) - float(total[class_, class_])) < 1e-4
        ]
        assert tuple((~positive[:, class_]).tolist()) in lacking
        assert (len(lacking) == 1) == told, "clients that are counted alike can't be told from one another"


def test_a_client_that_was_not_drawn_under_central_noise_answers_all_the_same(table: Table) -> None:
    """The draw is as secret as the noise, so that a node can't check it: a server may ask everybody always."""
    central = ["privacy.differential=central", "privacy.noise_source=system", "aggregation.participation=0.5"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Guard, "select", lambda self, round_: list(range(4)))
        table.train(own_data_config(*ONE, *central))
    assert RunDirectory(table.folder / "run").rounds()[0]["clients"] == 4
    assert {name for name, kind, _ in table.sent if kind == "train.private"} == set(NAMES)


def test_under_masks_nothing_proves_that_an_update_was_clipped() -> None:
    settings = Privacy(differential="central", secure_aggregation=True, clip=0.5)
    rules = secure_rules(settings, 4, 100)
    honest, liar = clipped(np.ones(100), 0.5), np.full(100, 0.5)
    assert np.linalg.norm(liar) == 10 * settings.clip
    parts = [(client, 1, liar if client == 3 else honest) for client in range(4)]
    total = summed_securely(rules, range(4), parts)
    np.testing.assert_allclose(total.sums, 3 * honest + liar, atol=1e-5)
