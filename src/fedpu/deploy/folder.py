"""The folder of a deployment: Flower's app with the configuration, certificates, keys, and a file for each node."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import tomli_w

from fedpu.config import Config
from fedpu.config.config import read_file
from fedpu.deploy.certificates import write_node_key
from fedpu.deploy.invitation import new_owner_key
from fedpu.errors import ConfigError
from fedpu.flower.app_folder import PACKAGE, write_app
from fedpu.flower.link_folder import LinkFolder
from fedpu.flower.replies import NAME_RULE, is_name, shown
from fedpu.flower.tls import Certificates, write_certificates, write_secret

INVITATIONS = "invitations"
"""key of the run configuration: where a ServerApp finds its key and the invitation, or nothing"""
SERVER = """from pathlib import Path

from fedpu.deploy.server import server_app

app = server_app(Path(__file__).with_name("fedpu.toml"))"""
CLIENT = """from fedpu.deploy.client import deployed_app

app = deployed_app()"""


SETTINGS = "server.toml"
LONGEST_HOST = 253


@dataclass(frozen=True)
class Deployment(LinkFolder):
    """Where everything of a deployment is."""

    address: str
    """host:port at which nodes reach the SuperLink"""
    trial: bool = False
    """Do its nodes share the configured data set, so that there is nothing to protect?"""

    @classmethod
    def open(cls, folder: Path) -> Deployment:
        """Read what ``fedpu deploy init`` wrote."""
        if not (folder / SETTINGS).exists():
            raise ConfigError(f"'{folder}' is no deployment: 'fedpu deploy init' makes one.")
        settings = read_file(folder / SETTINGS)
        return cls(folder.resolve(), str(settings["address"]), settings.get("trial") is True)

    @property
    def port(self) -> int:
        """The port for nodes."""
        return int(self.address.rpartition(":")[2])

    @property
    def app(self) -> Path:
        """What is sent to the SuperLink to run."""
        return self.folder / "app"

    @property
    def certificates(self) -> Certificates:
        """TLS of the nodes' port."""
        return Certificates(self.folder / "certificates", self.server)

    @property
    def authority(self) -> Path:
        """The certificate that nodes trust."""
        return self.certificates.authority

    @property
    def database(self) -> Path:
        """Where the SuperLink keeps who is registered, and what runs."""
        return self.folder / "superlink.db"

    @property
    def owner_key(self) -> Path:
        """The key that signs invitations."""
        return self.server / "owner.key"

    @property
    def names(self) -> Path:
        """Which key was registered under which name."""
        return self.server / "names.json"

    @property
    def invitations(self) -> Path:
        """Where a run that has just started finds its key and its invitation."""
        return self.server / "invitations"

    def node_file(self, name: str) -> Path:
        """The configuration of a node, to be taken to its machine with its key and the authority's certificate."""
        return self.folder / "nodes" / f"{name}.toml"

    def key(self, name: str) -> Path:
        """The private key of a node."""
        return self.folder / "keys" / name

    def public_key(self, name: str) -> Path:
        """The public key of a node."""
        return self.folder / "keys" / f"{name}.pub"


def create(folder: Path, config: Config, names: Sequence[str], address: str, trial: bool = True) -> Deployment:
    """Write the folder of a deployment: for a trial, every node is a client of the configured data set."""
    if folder.exists() and any(folder.iterdir()):
        raise ConfigError(f"'{folder}' is not empty: choose a new folder.")
    host = _host(address)
    _check_names(names)
    refuse_seeded_noise(config, trial)
    deployment = Deployment(folder.resolve(), address, trial)
    deployment.create()
    (deployment.folder / SETTINGS).write_text(tomli_w.dumps({"address": address, "trial": trial}))
    write_certificates(deployment.certificates, list(dict.fromkeys([host, "localhost", "127.0.0.1"])))
    private, server_key = new_owner_key()
    write_secret(deployment.owner_key, private)
    write_config(deployment.app, config)
    for number, name in enumerate(names):
        write_node_key(deployment.key(name))
        data = {"partition": number} if trial else {"data": f"{name}.npz"}
        write_node(deployment, name, data, server_key)
    return deployment


def check_name(name: str) -> None:
    """Refuse a name that no client can have."""
    if not is_name(name):
        raise ConfigError(f"'{shown(name)}' can't be the name of a node: a name is {NAME_RULE}.")


def _check_names(names: Sequence[str]) -> None:
    if not names:
        raise ConfigError("A deployment needs at least one node.")
    for name in names:
        check_name(name)
    # Files are called by names, and some systems do not tell capitals from small letters.
    folded = [name.casefold() for name in names]
    double = next((name for name in names if folded.count(name.casefold()) > 1), None)
    if double is not None:
        raise ConfigError(f"Two nodes are called '{double}': every node needs a name of its own.")


def _host(address: str) -> str:
    """Return the host of host:port, or say what is wrong with it."""
    host, _, port = address.rpartition(":")
    if not host or not (port.isascii() and port.isdecimal() and len(port) < 6 and 0 < int(port) < 2**16):
        raise ConfigError(f"--address = '{address}' can't be used: give host:port, such as server.example.org:8443.")
    if len(host) > LONGEST_HOST:
        raise ConfigError(f"--address has a host of {len(host)} letters; a host name has at most {LONGEST_HOST}.")
    if not host.isascii() or any(letter.isspace() or not letter.isprintable() for letter in host):
        raise ConfigError(
            f"--address = '{address}' can't be used: certificates are for host names in ASCII. Give the name as it is "
            "registered (xn--…), or an IP address."
        )
    return host


def write_config(app: Path, config: Config) -> None:
    """Write the app that runs a configuration."""
    refuse_validation(config)
    write_app(app, SERVER, CLIENT, {"out": "run", "resume": False, INVITATIONS: ""})
    (app / PACKAGE / "fedpu.toml").write_text(config.to_toml())


def refuse_seeded_noise(config: Config, trial: bool) -> None:
    """Refuse noise that can be taken off again, where clients have data of their own."""
    privacy = config.privacy
    if not trial and privacy.differential != "off" and privacy.noise_source == "seed":
        raise ConfigError(
            'privacy.noise_source = "seed" protects nobody in a deployment: everybody knows the seed, and the noise is '
            'taken off with it. Set privacy.noise_source = "system".'
        )


def refuse_validation(config: Config) -> None:
    """Refuse a score that the clients of a deployment are not asked for yet, and faults that nobody plays."""
    if config.evaluation.validation:
        raise ConfigError(
            f"evaluation.validation = {config.evaluation.validation} can't be used in a deployment yet: nodes are not "
            "asked for their scores. Choose settings on one machine, where 'fedpu tune' does, and set it to 0 here."
        )
    if config.faults.count:
        raise ConfigError("[faults] is for simulations: in a deployment clients have faults of their own. Remove it.")


def write_node(deployment: Deployment, name: str, data: dict[str, int] | dict[str, str], server_key: str) -> None:
    """Write the file of a node."""
    path = deployment.node_file(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    values = {
        "name": name,
        **data,
        "superlink": deployment.address,
        "root_certificates": "../certificates/ca.crt",
        "key": f"../keys/{name}",
        "server_key": server_key,
    }
    path.write_text(tomli_w.dumps(values))
