"""Who is refused on a deployment that follows its page: outsiders, registered nodes, other users of the machine."""

from __future__ import annotations

import itertools
import json
import ssl
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

pytest.importorskip("flwr", reason="Flower is not installed: pip install 'fedpu[flower]'")

from cryptography.hazmat.primitives.serialization import load_ssh_private_key
from flwr.proto.fleet_pb2 import ActivateNodeRequest, DeactivateNodeRequest, PullMessagesRequest
from flwr.proto.node_pb2 import Node
from flwr.supercore.primitives.asymmetric import public_key_to_bytes
from flwr.supercore.protobuf.client import ProtobufRequestContext
from flwr.supercore.protobuf.constants import PROTOBUF_MEDIA_TYPE
from flwr.supercore.runtime_version_compatibility import RuntimeVersionMetadata
from flwr.supernode.fleet_http_client import FleetHttpClient
from flwr.supernode.node_auth_http_interceptor import NodeAuthHttpInterceptor

from deploy.page import FEDPU, init
from fedpu.deploy.certificates import write_node_key
from fedpu.deploy.folder import Deployment
from fedpu.flower.access import CREDENTIALS
from fedpu.flower.app_folder import write_app
from fedpu.flower.door import FLEET_ROUTES, RUNTIME_ROUTES
from fedpu.flower.processes import (
    CONFIG,
    CONNECTION,
    Child,
    children,
    environment,
    flwr,
    found,
    free_port,
    listening,
    write_connection,
)

pytestmark = pytest.mark.nodes

SECONDS = 600.0
SETTINGS = ["data.name=digits", "labelling.positive=5", "model.name=mlp", "aggregation.rounds=1"]
METHODS = ("POST", "GET", "PUT")
EVIL = """import json
from pathlib import Path

from flwr.app import ConfigRecord, Message, RecordDict
from flwr.serverapp import ServerApp

app = ServerApp()


@app.main()
def main(grid, context):
    out = Path(context.run_config["out"])
    forged = RecordDict({"invitation": ConfigRecord(dict.fromkeys(("statement", "vouched", "signature"), b"x"))})
    asked = [
        Message(content, node, kind)
        for kind in ("train", "query.join", "query.negatives")
        for content in (RecordDict(), forged)
        for node in grid.get_node_ids()
    ]
    replies = [reply.error.reason if reply.has_error() else "an answer" for reply in grid.send_and_receive(asked)]
    command = Path("/proc/self/cmdline").read_text().split("\\0")
    out.with_suffix(".new").write_text(json.dumps({"replies": replies, "command": command}))
    out.with_suffix(".new").rename(out)
"""


@dataclass(frozen=True)
class Target:
    """A deployment that runs, and the folder of somebody who has its ``ca.crt``, a key of their own and an app."""

    deployment: Deployment
    outside: Path
    processes: tuple[int, int]
    """numbers of the server's and of node a's"""

    @property
    def nodes_door(self) -> str:
        return self.deployment.address

    @property
    def owners_door(self) -> str:
        told = tomllib.loads((self.deployment.home / CONFIG).read_text())
        return str(told["superlink"][CONNECTION]["address"])

    def home(self, address: str, authority: Path) -> Path:
        """Return a folder for Flower's commands that knows where to go, and no secret."""
        home = self.outside / address.replace(":", "-")
        write_connection(home, address, authority)
        return home


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    """Follow the page, with node 'a' connected and node 'b' registered."""
    base = tmp_path_factory.mktemp("door")
    folder, outside, port = base / "deployment", base / "outside", free_port()
    page = init(folder, port, "a,b", SETTINGS)
    with children() as started:
        [serve] = page["1. The server"]
        started.append(Child(serve, base, base / "serve.log", cwd=folder))
        started[0].wait_for(lambda: listening(port), SECONDS, "begun to listen")
        [register] = page["2. Let the nodes in"]
        subprocess.run(register, check=True, cwd=folder, capture_output=True, timeout=SECONDS)
        [node, _] = page["3. The nodes, each on its own machine"]
        started.append(Child(node, base, base / "node.log", cwd=folder))
        started[1].wait_for(lambda: "is connected" in started[1].output(), SECONDS, "connected")
        outside.mkdir()
        (outside / "ca.crt").write_bytes(Deployment.open(folder).authority.read_bytes())
        write_node_key(outside / "evil")
        write_app(outside / "app", EVIL, "from flwr.clientapp import ClientApp\n\napp = ClientApp()", {"out": ""})
        numbers = started[0].process.pid, started[1].process.pid
        yield Target(Deployment.open(folder), outside, numbers)


@pytest.fixture(scope="module")
def attacker() -> Iterator[httpx.Client]:
    headers = {"content-type": PROTOBUF_MEDIA_TYPE, "accept": PROTOBUF_MEDIA_TYPE}
    with httpx.Client(verify=False, headers=headers, timeout=SECONDS, trust_env=False) as client:
        yield client


def refusals(target: Target, home: Path) -> dict[str, str]:
    """Register, run, list, pull and stop with Flower's own command; return what it says to each."""
    app, out = target.outside / "app", target.outside / "stolen"
    tried = [
        ["supernode", "register", str(target.outside / "evil.pub"), CONNECTION],
        ["run", str(app), CONNECTION, "--run-config", f'out="{out}"'],
        *(["list", CONNECTION], ["pull", "1", CONNECTION], ["stop", "1", CONNECTION]),
    ]

    def attempt(arguments: list[str]) -> str:
        done = subprocess.run(
            [found("flwr"), *arguments],
            env=environment(home) | {"COLUMNS": "500", "TERM": "dumb"},
            capture_output=True,
            text=True,
            timeout=SECONDS,
        )
        return f"{done.returncode} {done.stdout}{done.stderr}"

    with ThreadPoolExecutor(2) as pool:
        return dict(zip(map(" ".join, tried), pool.map(attempt, tried), strict=True))


def test_an_outsider_with_the_certificate_gets_nothing_by_flowers_commands(target: Target) -> None:
    home = target.home(target.nodes_door, target.outside / "ca.crt")
    for command, told in refusals(target, home).items():
        assert told.startswith("1 "), command
        assert "This port is for nodes alone" in told, f"{command}: {told}"
    assert not (target.outside / "stolen").exists()


def test_another_user_of_the_machine_gets_nothing_by_flowers_commands(target: Target) -> None:
    home = target.home(target.owners_door, target.deployment.loopback.authority)
    for command, told in refusals(target, home).items():
        assert told.startswith("1 "), command
        assert "needs the secret" in told, f"{command}: {told}"
    assert not (target.outside / "stolen").exists()


def test_only_the_routes_of_nodes_answer_at_their_port(
    target: Target, attacker: httpx.Client, routes: dict[str, set[str]]
) -> None:
    for path, method in itertools.product(routes, METHODS):
        reply = attacker.request(method, f"https://{target.nodes_door}{path}")
        passes = path in FLEET_ROUTES and method == "POST"
        assert reply.status_code == (401 if passes else 404), f"{method} {path}: {reply.text}"


def test_every_route_asks_other_users_of_the_machine_for_a_secret(
    target: Target, attacker: httpx.Client, routes: dict[str, set[str]]
) -> None:
    version = dict(RuntimeVersionMetadata.from_local_component("SuperExec").as_metadata())
    for path, method in itertools.product(routes, METHODS):
        reply = attacker.request(method, f"https://{target.owners_door}{path}", headers=version)
        passes = path in RUNTIME_ROUTES and method == "POST"
        assert reply.status_code == (401 if passes else 403), f"{method} {path}: {reply.text}"


@pytest.mark.parametrize(
    "path",
    [
        *("//v1/control/list-runs", "/v1/fleet/../control/list-runs", "/v1/fleet/%2e%2e/control/list-runs"),
        *("/v1/fleet/..%2fcontrol/list-runs", "/v1%2fcontrol/list-runs", "/v1/control/list-runs/"),
        *("/V1/control/list-runs", "/v1/fleet/pull-messages/", "/v1/fleet/pull%2dmessages"),
        *("/v1/fleet//pull-messages", "/v1/fleet/pull-messages?a=1", "/v1/fleet/pull-messages%00"),
    ],
)
def test_no_spelling_of_a_path_gets_through(target: Target, attacker: httpx.Client, path: str) -> None:
    url = httpx.URL(f"https://{target.nodes_door}").copy_with(raw_path=path.encode())
    assert attacker.post(url).status_code in (400, 404)


def test_a_registered_node_reaches_its_own_messages_and_nothing_else(
    target: Target, attacker: httpx.Client, routes: dict[str, set[str]]
) -> None:
    private = load_ssh_private_key(target.deployment.key("b").read_bytes(), None)
    public = private.public_key()
    signing = NodeAuthHttpInterceptor(private, public)
    authority = (target.outside / "ca.crt").read_bytes()
    with FleetHttpClient.from_server_address(target.nodes_door, False, authority, [signing]) as client:
        wish = ActivateNodeRequest(public_key=public_key_to_bytes(public), heartbeat_interval=30)
        mine = client.ActivateNode(wish).node_id
        assert not client.PullMessages(PullMessagesRequest(node=Node(node_id=mine))).messages_list
        with pytest.raises(httpx.HTTPStatusError, match="401"):
            client.PullMessages(PullMessagesRequest(node=Node(node_id=mine + 1)))
        client.DeactivateNode(DeactivateNodeRequest(node_id=mine))
    for path in routes.keys() - FLEET_ROUTES:
        shown = {key: value for key, value in signed_headers(signing).items() if key not in ("host", "content-length")}
        reply = attacker.post(f"https://{target.nodes_door}{path}", headers=shown)
        assert reply.status_code == 404, path


def signed_headers(signing: NodeAuthHttpInterceptor) -> httpx.Headers:
    """Return what a node with that key sends to show who it is."""
    request = httpx.Request("POST", "https://server")
    signing.intercept(ProtobufRequestContext("", ActivateNodeRequest(), request), lambda _: httpx.Response(200))
    return request.headers


def test_a_node_refuses_a_run_that_it_was_not_invited_to_even_of_somebody_with_the_secret(target: Target) -> None:
    out, home = target.outside / "answers", target.deployment.home
    flwr(["run", str(target.outside / "app"), CONNECTION, "--run-config", f'out="{out}"'], home)
    link = Child(["sleep", str(SECONDS)], target.outside, target.outside / "sleep.log")
    try:
        link.wait_for(out.exists, SECONDS, "seen the answers")
    finally:
        link.stop()
    told = json.loads(out.read_text())
    assert set(told["replies"]) == {
        "This node was not invited to this run.",
        "The invitation to this run is not signed by the owner of the server.",
    }
    assert "--token" not in told["command"], "every user of the machine can read it there"


def test_what_the_server_writes_is_its_owners_alone(target: Target) -> None:
    here = target.deployment
    assert here.folder.stat().st_mode & 0o777 == 0o700
    secrets = (here.secret, here.owner_key, here.certificates.key, here.certificates.authority_key, here.loopback.key)
    for path in (*secrets, here.database, here.home / CREDENTIALS):
        assert path.stat().st_mode & 0o777 == 0o600, path


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
def test_the_owners_door_is_on_the_loopback_alone_and_nodes_listen_nowhere(target: Target) -> None:
    server, node = (listeners(number) for number in target.processes)
    public, owners = (int(address.rpartition(":")[2]) for address in (target.nodes_door, target.owners_door))
    assert server == {("00000000", public), ("0100007F", owners)}
    assert node == set()


def listeners(process: int) -> set[tuple[str, int]]:
    """Return the addresses and ports at which a process listens."""
    links = {str(link.readlink()) for link in Path(f"/proc/{process}/fd").iterdir() if link.is_symlink()}
    lines = [line.split() for name in ("tcp", "tcp6") for line in Path("/proc/net", name).read_text().splitlines()[1:]]
    mine = [line[1].split(":") for line in lines if line[3] == "0A" and f"socket:[{line[9]}]" in links]
    return {(address, int(port, 16)) for address, port in mine}


# The owner, on the same deployment.


def fedpu(*arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*FEDPU, "deploy", *arguments], capture_output=True, text=True, timeout=SECONDS, cwd=cwd, check=False
    )


def test_the_owner_sees_how_the_deployment_is(target: Target) -> None:
    folder = target.deployment.folder
    told = json.loads(fedpu("status", "--json", cwd=folder).stdout)
    assert told["server"]["answers"]
    assert 360 < told["server"]["certificate_days"] < 366
    assert {node["name"]: node["status"] for node in told["nodes"]}["a"] == "online"
    assert told["run"] is None
    shown = fedpu("status", cwd=folder).stdout
    assert "node a: online" in shown
    assert "server: answers" in shown
    assert fedpu("health", str(folder)).returncode == 0


def test_a_certificate_is_renewed_while_the_server_runs_and_nodes_stay(target: Target, attacker: httpx.Client) -> None:
    def shown() -> str:
        host, _, port = target.nodes_door.rpartition(":")
        return ssl.get_server_certificate((host, int(port)), ca_certs=str(target.deployment.authority))

    before, mine = shown(), target.deployment.certificates
    assert mine.certificate.read_text() == before
    done = fedpu("renew", str(target.deployment.folder))
    assert done.returncode == 0, done.stderr
    end = time.monotonic() + SECONDS
    while shown() == before:
        assert time.monotonic() < end, "the server still shows the old certificate"
        time.sleep(0.2)
    assert shown() == mine.certificate.read_text()
    told = json.loads(fedpu("status", "--json", cwd=target.deployment.folder).stdout)
    assert {node["name"]: node["status"] for node in told["nodes"]}["a"] == "online"
