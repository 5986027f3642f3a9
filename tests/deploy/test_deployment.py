"""A SuperLink and three nodes as processes, with TLS and keys: the same model, through faults and kills."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip("flwr", reason="Flower is not installed: pip install 'fedpu[flower]'")

from fedpu.applications.experiment import run
from fedpu.config import Config
from fedpu.deploy.certificates import write_node_key
from fedpu.deploy.control import start_run
from fedpu.deploy.folder import write_config
from fedpu.deploy.local import LocalDeployment, deployed_config, local_deployment
from fedpu.errors import FedpuError
from fedpu.flower.app_folder import PACKAGE
from fedpu.flower.processes import Child, free_port
from fedpu.flower.tls import write_secret
from fedpu.record import RunDirectory
from fedpu.report import write_report

pytestmark = pytest.mark.nodes

HERE = Path(__file__).parent
NODES = ["0", "1", "2"]
METHODS = {
    "fedpu": ["aggregation.name=fedavg"],
    "positive-only": ["aggregation.name=fedprox", "aggregation.stragglers=0.5"],
    "supervised": ["aggregation.name=fedsgd"],
}
"""with an aggregation each; every combination is in ``test_combinations.py``, without processes"""
MANY = """from pathlib import Path

from flwr.serverapp import ServerApp

from fedpu.config import Config
from fedpu.deploy.invited import server_wire
from fedpu.deploy.server import serve

app = ServerApp()


@app.main()
def main(grid, context):
    wire = server_wire(grid, context)
    for file in sorted(Path(context.run_config["out"]).glob("*.toml")):
        serve(wire, Config.load(file), file.with_suffix(""), resume=False)
"""


@pytest.fixture(scope="module")
def config() -> Config:
    """Three clients that label four or more of ten digits each."""
    single = Config.from_dict(
        {
            "data": {"name": "digits"},
            "labelling": {"positive": 4, "overlap": True},
            "model": {"name": "mlp", "hidden": [16]},
            "aggregation": {"rounds": 5, "local_epochs": 2, "batch_size": 50, "lr": 0.1},
            "engine": {"name": "flower", "deadline": 600, "wait": 600},
        }
    )
    return deployed_config(single, 3)


@pytest.fixture(scope="module")
def deployed(config: Config, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalDeployment]:
    with local_deployment(tmp_path_factory.mktemp("deployment") / "trial", config, NODES) as running:
        yield running


def in_one_process(config: Config) -> Any:
    return run(config.with_("engine.name=reference", "engine.workers=1"))


@pytest.fixture(scope="module")
def several(config: Config) -> dict[str, Config]:
    """Methods, a client's state, three kinds of privacy, and priors that clients estimate."""
    config = config.with_("aggregation.rounds=3")
    methods = {method: config.with_(f"method.name={method}", *settings) for method, settings in METHODS.items()}
    short = config.with_("aggregation.rounds=2", "privacy.noise_multiplier=0.01", "privacy.lent_noise_multiplier=0.1")
    return methods | {
        "scaffold": config.with_("aggregation.name=scaffold"),
        "estimated": config.with_("priors.source=estimated", "priors.every=2"),
        "secure": short.with_("privacy.secure_aggregation=true"),
        "central": short.with_("privacy.differential=central"),
        "local-secure": short.with_("privacy.differential=local", "privacy.secure_aggregation=true"),
    }


@pytest.fixture(scope="module")
def runs(deployed: LocalDeployment, several: dict[str, Config], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give all configurations to one ServerApp, one after another; return the folder of the run directories.

    The owner's key is kept elsewhere, and away from this machine while the rounds run.
    """
    folder = tmp_path_factory.mktemp("runs")
    for name, one in several.items():
        (folder / f"{name}.toml").write_text(one.to_toml())
    app = folder / "app"
    write_config(app, next(iter(several.values())))
    (app / PACKAGE / "server_app.py").write_text(MANY)
    elsewhere = deployed.deployment.owner_key.rename(folder / "owner.key")
    start_run(deployed.deployment, app, folder, configs=list(several.values()), owner_key=elsewhere)
    key = elsewhere.read_bytes()
    elsewhere.unlink()
    last = RunDirectory(folder / sorted(several)[-1])
    deployed.superlink.wait_for(lambda: last.result() is not None, 1800.0, f"finished the runs in {folder}")
    write_secret(deployed.deployment.owner_key, key)
    return folder


@pytest.mark.parametrize("method", METHODS)
def test_the_model_is_that_of_one_process(runs: Path, several: dict[str, Config], method: str) -> None:
    assert_same_model(runs / method, several[method])


def test_the_rounds_do_not_need_the_owners_key(
    deployed: LocalDeployment, runs: Path, several: dict[str, Config]
) -> None:
    assert all(RunDirectory(runs / name).result() for name in several)
    assert list(deployed.deployment.invitations.iterdir()) == [], "nor is the key of the run left on the disk"


def test_what_an_aggregation_keeps_with_clients_is_that_of_one_process(runs: Path, several: dict[str, Config]) -> None:
    assert_same_model(runs / "scaffold", several["scaffold"])


def test_a_deployed_run_can_be_shown_on_a_page(runs: Path) -> None:
    text = write_report(runs / "fedpu").read_text("utf-8")
    assert "Test accuracy by round" in text
    assert "3 clients" in text


def test_priors_are_estimated_as_in_one_process(runs: Path, several: dict[str, Config]) -> None:
    assert_same_model(runs / "estimated", several["estimated"])
    assert all("priors" not in line for line in RunDirectory(runs / "estimated").rounds()), "and nobody is told"


@pytest.mark.parametrize("privacy", ["secure", "central", "local-secure"])
def test_a_private_model_is_that_of_one_process(runs: Path, several: dict[str, Config], privacy: str) -> None:
    assert_same_model(runs / privacy, several[privacy])
    assert RunDirectory(runs / privacy).members().examples is None, "nor is it told how many examples a client has"


def assert_same_model(folder: Path, config: Config) -> None:
    directory, expected = RunDirectory(folder), in_one_process(config)
    ours, _ = directory.model()
    for key, value in expected.model.state_dict().items():
        assert torch.allclose(ours[key], value, rtol=0, atol=1e-5), key
    assert [line["clients"] for line in directory.rounds()] == [3] * config.aggregation.rounds
    assert all("left_out" not in line for line in directory.rounds())


def test_a_stranger_is_refused_and_so_is_a_client_without_tls(deployed: LocalDeployment, tmp_path: Path) -> None:
    address = ["--superlink", deployed.deployment.address, "--max-retries", "1", "--max-wait-time", "10"]
    trusting = ["--root-certificates", str(deployed.deployment.authority)]
    write_node_key(tmp_path / "stranger")
    strangers = {
        "without a key": [*trusting],
        "with a key that nobody registered": [*trusting, "--auth-supernode-private-key", str(tmp_path / "stranger")],
        "without TLS": ["--insecure"],
    }
    running = {}
    try:
        for who, options in strangers.items():
            command = ["flower-supernode", *address, *options, "--port", str(free_port())]
            running[who] = Child(command, tmp_path / "home", tmp_path / f"{who}.log")
        for who, child in running.items():
            child.process.wait(600)
            assert child.process.returncode != 0, f"a node {who} was let in"
            assert "Failed to initialize the connection to the SuperLink" in child.output(), child.output()
        assert "2004" in running["with a key that nobody registered"].output()
    finally:
        for child in running.values():
            child.stop()


def test_a_run_outlives_a_bad_node_a_killed_node_and_a_killed_superlink(
    deployed: LocalDeployment, config: Config, tmp_path: Path
) -> None:
    config = config.with_("engine.max_norm=1000", "engine.min_clients=1", "engine.deadline=20", "aggregation.rounds=12")
    out, here = tmp_path / "run", deployed.deployment
    deployed.nodes["2"].stop()
    bad = deployed.start([sys.executable, str(HERE / "bad_node.py"), str(here.node_file("2"))], "bad")

    def on_round(line: dict[str, Any]) -> None:
        if line["round"] == 5:
            deployed.nodes["1"].process.kill()
        elif not deployed.nodes["1"].running() and "1" in line.get("left_out", {}):
            deployed.start_node("1")
        if line["round"] == 9:
            deployed.superlink.process.kill()

    with pytest.raises(FedpuError, match="The SuperLink ended before the run did"):
        deployed.start_run(config, out).wait(on_round, seconds=1800.0)
    lines = RunDirectory(out).rounds()
    left_out = {line["round"]: line["left_out"] for line in lines if "left_out" in line}
    assert "deadline" in left_out[1]["2"]
    assert "NaN" in left_out[2]["2"]
    assert "shape (2,)" in left_out[3]["2"]
    assert "max_norm" in left_out[4]["2"]
    missed = [number for number, who in left_out.items() if "1" in who and number > 5]
    assert missed[0] in (6, 7), "the node was killed after round 5"
    assert [line["clients"] for line in lines] == [3 - len(left_out.get(line["round"], {})) for line in lines]

    deployed.superlink.stop()
    deployed.start_superlink()
    bad.stop()
    deployed.start_node("2")
    before = RunDirectory(out).rounds()
    summary = deployed.start_run(config, out, resume=True).wait(seconds=1800.0)
    after = RunDirectory(out).rounds()
    assert [line["round"] for line in after] == list(range(1, 13))
    assert after[: len(before) - 1] == before[:-1], "nothing is lost but the round under way"
    assert summary["accuracy"] > in_one_process(config).accuracy - 0.08
    assert json.loads((out / "clients.json").read_text())["names"] == NODES


def test_too_few_clients_end_the_run_with_a_sentence_that_names_who_was_refused_and_why(
    deployed: LocalDeployment, config: Config, tmp_path: Path
) -> None:
    here = deployed.deployment
    write_node_key(here.key("mallory"))
    deployed.register(["mallory"])
    file = here.node_file("2").read_text().replace('"../keys/2"', '"../keys/mallory"')
    here.node_file("mallory").write_text('allow = ["torch.nn:Identity"]\n' + file)
    deployed.nodes["2"].stop()
    mallory = deployed.start_node("mallory")
    mallory.wait_for(lambda: "is connected" in mallory.output(), 600.0, "connected")
    waiting = config.with_('engine.clients=["0", "2", "nobody"]', "engine.wait=15", "model.name=torch.nn:Identity")
    with pytest.raises(FedpuError, match=r"the run waits for 0, 2, nobody\.") as refusal:
        deployed.start_run(waiting, tmp_path / "run").wait(seconds=600.0)
    assert re.search(r"\nNode \d+ can't take part: .*'torch\.nn:Identity'.*'allow'", str(refusal.value))
    assert "it calls itself '2', but its key was registered for 'mallory'." in str(refusal.value)
    mallory.stop()
