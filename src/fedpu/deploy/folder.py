"""The folder of a deployment: Flower's app with the configuration, certificates and keys for a trial, a file a node."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import tomli_w

from fedpu.config import Config
from fedpu.deploy.certificates import write_certificates, write_node_key
from fedpu.engine.flower.app_folder import PACKAGE, write_app
from fedpu.engine.flower.processes import CONNECTION, write_connection
from fedpu.errors import ConfigError

SERVER = """from pathlib import Path

from fedpu.deploy.server import server_app

app = server_app(Path(__file__).with_name("fedpu.toml"))"""
CLIENT = """from fedpu.deploy.client import deployed_app

app = deployed_app()"""


@dataclass(frozen=True)
class Deployment:
    """Where everything of a deployment is."""

    folder: Path
    address: str
    """host:port at which nodes reach the SuperLink"""

    @property
    def app(self) -> Path:
        """What ``flwr run`` sends."""
        return self.folder / "app"

    @property
    def home(self) -> Path:
        """Flower's own folder, with the connection to the SuperLink."""
        return self.folder / "flower"

    @property
    def authority(self) -> Path:
        """The certificate that everybody trusts."""
        return self.folder / "certificates" / "ca.crt"

    def node_file(self, name: str) -> Path:
        """The configuration of a node, to be taken to its machine with its key and the authority's certificate."""
        return self.folder / "nodes" / f"{name}.toml"

    def key(self, name: str) -> Path:
        """The private key of a node."""
        return self.folder / "keys" / name

    def superlink_command(self, host: str) -> list[str]:
        """Return the command that starts the SuperLink, listening at ``host``."""
        certificates = self.folder / "certificates"
        return [
            *("flower-superlink", "--host", host, "--port", self.address.rpartition(":")[2]),
            *("--ssl-ca-certfile", str(certificates / "ca.crt")),
            *("--ssl-certfile", str(certificates / "server.pem"), "--ssl-keyfile", str(certificates / "server.key")),
            *("--enable-supernode-auth", "--database", str(self.folder / "superlink.db")),
            "--disable-runtime-dependency-installation",
        ]

    def register_arguments(self, name: str) -> list[str]:
        """Return what ``flwr`` is told to let a node in."""
        return ["supernode", "register", str(self.key(name)) + ".pub", CONNECTION]

    def run_arguments(self, app: Path, out: Path, resume: bool = False) -> list[str]:
        """Return what ``flwr`` is told to start a run that is recorded in ``out``."""
        return ["run", str(app), CONNECTION, "--run-config", f'out="{out}" resume={str(resume).lower()}']


def create(folder: Path, config: Config, names: Sequence[str], address: str, trial: bool = True) -> Deployment:
    """Write the folder of a deployment: for a trial, every node is a client of the configured data set."""
    if folder.exists() and any(folder.iterdir()):
        raise ConfigError(f"'{folder}' is not empty: choose a new folder.")
    host = address.rpartition(":")[0]
    if not host or not address.rpartition(":")[2].isdigit():
        raise ConfigError(f"--address = '{address}' can't be used: give host:port, such as server.example.org:8443.")
    deployment = Deployment(folder.resolve(), address)
    write_certificates(deployment.authority.parent, list(dict.fromkeys([host, "localhost", "127.0.0.1"])))
    write_connection(deployment.home, address, deployment.authority)
    write_config(deployment.app, config)
    for number, name in enumerate(names):
        write_node_key(deployment.key(name))
        data = {"partition": number} if trial else {"data": f"{name}.npz"}
        write_node(deployment, name, data)
    return deployment


def write_config(app: Path, config: Config) -> None:
    """Write the app that runs a configuration."""
    write_app(app, SERVER, CLIENT, {"out": "run", "resume": False})
    (app / PACKAGE / "fedpu.toml").write_text(config.to_toml())


def write_node(deployment: Deployment, name: str, data: dict[str, int] | dict[str, str]) -> None:
    """Write the file of a node."""
    path = deployment.node_file(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    told = {
        "name": name,
        **data,
        "superlink": deployment.address,
        "root_certificates": "../certificates/ca.crt",
        "key": f"../keys/{name}",
    }
    path.write_text(tomli_w.dumps(told))
