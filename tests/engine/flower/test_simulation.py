"""Flower's simulation gives the global model of the engine of one process, and is nobody else's to use."""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx
import pytest
import torch

pytest.importorskip("flwr", reason="Flower is not installed: pip install 'fedpu[flower]'")
pytest.importorskip("ray", reason="Flower's simulation is not installed: pip install 'fedpu[flower]'")

from flwr.supercore.protobuf.constants import PROTOBUF_MEDIA_TYPE
from flwr.supercore.runtime_version_compatibility import RuntimeVersionMetadata

from fedpu.algorithm import rounds
from fedpu.applications.experiment import resume, run
from fedpu.applications.prepared import prepare
from fedpu.applications.training import first_state, job_of, serving_of
from fedpu.config import Config
from fedpu.engine import Clients, FlowerEngine, Job
from fedpu.engine.flower.simulation import Simulation
from fedpu.flower.door import RUNTIME_ROUTES
from fedpu.flower.link_folder import LinkFolder
from fedpu.flower.processes import CONFIG, CONNECTION

pytestmark = pytest.mark.nodes

METHODS = ("fedpu", "positive-only", "supervised")
AGGREGATIONS = (
    ["aggregation.name=fedavg"],
    ["aggregation.name=fedprox", "aggregation.stragglers=0.5"],
    ["aggregation.name=fedsgd"],
)
STATEFUL = ("scaffold", "feddyn", "fedadam", "fedyogi", "ifca")


@pytest.fixture(scope="module")
def parity_config() -> Config:
    """Three rounds of three clients that label four or more of ten digits each."""
    return Config.from_dict(
        {
            "data": {"name": "digits"},
            "partition": {"clients": 3},
            "labelling": {"positive": 4, "overlap": True},
            "model": {"name": "mlp", "hidden": [16]},
            "aggregation": {"rounds": 3, "local_epochs": 2, "batch_size": 50, "lr": 0.1},
            "engine": {"name": "reference", "workers": 1},
        }
    )


@pytest.fixture(scope="module")
def simulation() -> Iterator[Simulation]:
    with Simulation(3, FlowerEngine()) as running:
        yield running


def test_every_combination_has_the_model_of_one_process(simulation: Simulation, parity_config: Config) -> None:
    combinations = [
        parity_config.with_(f"method.name={method}", *aggregation, "aggregation.rounds=2")
        for method in METHODS
        for aggregation in AGGREGATIONS
    ]
    combinations += [parity_config.with_(f"aggregation.name={name}") for name in STATEFUL]
    combinations += [parity_config.with_("method.name=fedmatch", "method.helper_rounds=1", "aggregation.lr=0.01")]
    combinations += [parity_config.with_("method.name=sage", "method.confidence=0.5")]
    for config in [*combinations, parity_config.with_("priors.source=estimated", "priors.every=2")]:
        job = job_of(config, prepare(config).federation)
        state = first_state(config, job.initial_model(), 3, 10)
        clients = simulation.clients(job)
        serving = serving_of(config, job.initial_model(), (1, 8, 8))
        for done in rounds(clients, config.aggregation, state, config.seed, serving=serving):
            state = done.state
            assert done.clients == 3
            assert done.left_out == {}
        expected = run(config).model.state_dict()
        for name, value in state.model.items():
            assert torch.allclose(value, expected[name], rtol=0, atol=1e-5), f"{config.method}, {name}"


class Running(FlowerEngine):
    """The engine on a simulation that runs already."""

    _simulation: Simulation

    @contextmanager
    def start(self, job: Job) -> Iterator[Clients]:
        yield self._simulation.clients(job)


@pytest.mark.parametrize("name", ["fedavg", "scaffold"])
def test_a_run_that_was_stopped_goes_on_from_flower_and_on_flower(
    simulation: Simulation, parity_config: Config, tmp_path: Path, name: str
) -> None:
    """Stopped on one engine and resumed on the other it has the model of a run on one engine, states and all."""
    config = parity_config.with_(f"aggregation.name={name}")
    flower = Running()
    flower._simulation = simulation
    expected = run(config).model.state_dict()

    def stop(line: dict[str, object]) -> None:
        if line["round"] == 2:
            raise KeyboardInterrupt

    for first, then in ((flower, config.engine), (config.engine, flower)):
        folder = tmp_path / first.name
        with pytest.raises(KeyboardInterrupt):
            run(config.model_copy(update={"engine": first}), out=folder, on_round=stop)
        done = resume(folder, engine=then)
        assert [line["round"] for line in done.curve] == [1, 2, 3]
        for key, value in done.model.state_dict().items():
            torch.testing.assert_close(value, expected[key], rtol=0, atol=1e-5)


def test_other_users_of_the_machine_are_asked_for_a_secret(simulation: Simulation, routes: dict[str, set[str]]) -> None:
    link = LinkFolder(simulation.folder)
    told = tomllib.loads((link.home / CONFIG).read_text())["superlink"][CONNECTION]
    headers = {"content-type": PROTOBUF_MEDIA_TYPE, "accept": PROTOBUF_MEDIA_TYPE}
    headers |= dict(RuntimeVersionMetadata.from_local_component("SuperExec").as_metadata())
    with httpx.Client(verify=False, trust_env=False, headers=headers) as attacker:
        for path in routes:
            reply = attacker.post(f"https://{told['address']}{path}")
            assert reply.status_code == (401 if path in RUNTIME_ROUTES else 403), path
    assert simulation.folder.stat().st_mode & 0o077 == 0


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
def test_it_listens_on_the_loopback_alone_and_shows_no_token(simulation: Simulation, parity_config: Config) -> None:
    """Of Flower and of Ray, whose ports are on every network as it comes."""
    _one_round(simulation, parity_config)  # Ray starts with the first work
    here = f"RAY_AUTH_TOKEN_PATH={simulation.folder}/ray.token".encode()
    # Each is read once: a worker may be gone at the second look.
    every = {path: _content(path / "environ").split(b"\0") for path in Path("/proc").glob("[0-9]*")}
    processes = {path: environment for path, environment in every.items() if here in environment}
    commands = {path: _content(path / "cmdline").split(b"\0") for path in processes}
    assert not any(b"--token" in command for command in commands.values())
    # The two that all others speak to. Ray's workers write their titles over what /proc shows of their environment.
    services = {name: _named(name, commands) for name in (b"gcs_server", b"raylet")}
    assert all(services.values()), "Ray is among them"
    for path in (path for paths in services.values() for path in paths):
        assert b"RAY_AUTH_MODE=token" in processes[path]
    sockets = {link for path in processes for link in _links(path / "fd") if link.startswith("socket:")}
    lines = [line.split() for name in ("tcp", "tcp6") for line in Path("/proc/net", name).read_text().splitlines()[1:]]
    listening = [line[1].partition(":")[0] for line in lines if line[3] == "0A" and f"socket:[{line[9]}]" in sockets]
    assert listening
    assert set(listening) <= {"0100007F", "0000000000000000FFFF00000100007F", "0" * 24 + "01000000"}


def _one_round(simulation: Simulation, config: Config) -> None:
    config = config.with_("aggregation.rounds=1")
    job = job_of(config, prepare(config).federation)
    state = first_state(config, job.initial_model(), 3, 10)
    for done in rounds(simulation.clients(job), config.aggregation, state, config.seed):
        assert done.clients == 3


def _named(name: bytes, commands: dict[Path, list[bytes]]) -> list[Path]:
    return [path for path, command in commands.items() if command[0].endswith(b"/" + name)]


def _content(path: Path) -> bytes:
    with suppress(OSError):
        return path.read_bytes()
    return b""


def _links(folder: Path) -> list[str]:
    found = []
    with suppress(OSError):
        for path in folder.iterdir():
            with suppress(OSError):
                found.append(str(path.readlink()))
    return found
