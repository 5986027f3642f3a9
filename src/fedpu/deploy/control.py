"""What the owner of a deployment does, on the server: let nodes in, start runs, and sign the invitations to them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from fedpu.config import Config
from fedpu.deploy.folder import INVITATIONS, Deployment, check_name, refuse_seeded_noise
from fedpu.deploy.invitation import RunKey, read_owner_key
from fedpu.errors import ConfigError
from fedpu.flower.access import private_folder, read_private
from fedpu.flower.app_folder import PACKAGE
from fedpu.flower.owner import register_node
from fedpu.flower.processes import CONNECTION, flwr, has_connection
from fedpu.flower.tls import write_secret
from fedpu.record import RunDirectory, locked, write_atomically

LINGERS = 30.0
"""seconds that the server's part of a run may take to notice that its SuperLink was killed"""
DAYS = 30.0
"""how long an invitation counts"""


def register(deployment: Deployment, public_key: Path, name: str | None = None) -> str:
    """Let the node with this key in, under a name that no other key has; return the name.

    Without a name it is that of the file: ``keys/north.pub`` is the key of 'north'. Flower keeps it beside the key, and
    the server of a run compares it with what the node calls itself.
    """
    name = public_key.name.removesuffix(".pub") if name is None else name
    check_name(name)
    key = _key_of(public_key)
    with _names(deployment) as names:
        if names.get(name, key) != key:
            raise ConfigError(
                f"'{name}' is registered with another key. Give '{public_key}' a name of its own with --name. If it "
                f"is to take the other's place, unregister that one ('flwr supernode unregister'), and remove its "
                f"line from {deployment.names}."
            )
        other = next((taken for taken, known in names.items() if known == key and taken != name), None)
        if other is not None:
            raise ConfigError(f"'{public_key}' is registered already, as the key of '{other}'.")
        _refuse_never_started(deployment)
        register_node(deployment, public_key, name)
        names[name] = key
    return name


def _key_of(public_key: Path) -> str:
    """Return the key of a file without what is written beside it, so that one key is always the same text."""
    try:
        parts = public_key.read_text("utf-8").split()
    except FileNotFoundError as error:
        raise ConfigError(f"There is no public key '{public_key}'.") from error
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"The public key '{public_key}' can't be read ({error}).") from error
    if len(parts) < 2 or not parts[0].startswith("ecdsa-sha2-nistp"):
        raise ConfigError(f"'{public_key}' is no public key of a node: 'fedpu deploy key' makes one.")
    return " ".join(parts[:2])


@contextmanager
def _names(deployment: Deployment) -> Iterator[dict[str, str]]:
    """Give the keys by the names that they were registered under, and keep what is added; one command at a time."""
    with locked(deployment.names.with_suffix(".lock"), f"'{deployment.names}' is being written by another command."):
        names = _registered(deployment)
        before = dict(names)
        yield names
        if names != before:
            write_atomically(deployment.names, (json.dumps(names, indent=1) + "\n").encode())


def _registered(deployment: Deployment) -> dict[str, str]:
    """Return the keys by the names that they were registered under."""
    try:
        names = json.loads(deployment.names.read_text("utf-8")) if deployment.names.exists() else {}
        return {str(name): str(key) for name, key in names.items()}
    except (ValueError, AttributeError) as error:
        raise ConfigError(f"'{deployment.names}' is damaged ({error}).") from error


def start_run(
    deployment: Deployment,
    app: Path,
    out: Path,
    resume: bool = False,
    configs: Sequence[Config] | None = None,
    owner_key: Path | None = None,
    days: float = DAYS,
) -> str:
    """Start a run that is recorded in ``out``, and invite the nodes to it; return its number.

    They are invited to the configuration of the app, to that of the run that is resumed, or to those that are given.
    """
    key = read_owner_key(read_private(owner_key or deployment.owner_key))
    if resume:
        with RunDirectory.open(out, check=False).locked(LINGERS):
            pass  # nobody is at work on it, and all of its files are whole
    if configs is None:
        configs = [RunDirectory.open(out).config() if resume else Config.load(app / PACKAGE / "fedpu.toml")]
    for config in configs:
        refuse_seeded_noise(config, deployment.trial)
    # Only for secure sums: who else takes part is nobody's business otherwise.
    clients = _registered(deployment) if any(config.privacy.secure_aggregation for config in configs) else {}
    settings = {"out": str(out.resolve()), "resume": resume, INVITATIONS: str(deployment.invitations)}
    assignments = " ".join(f"{name}={json.dumps(value)}" for name, value in settings.items())
    answer = _flwr(deployment, ["run", str(app), CONNECTION, "--run-config", assignments, "--format", "json"])
    run = str(json.loads(answer)["run-id"])
    signed = RunKey.create(key, int(run), [config.to_toml() for config in configs], days, clients)
    path = private_folder(deployment.invitations) / run
    write_secret(path.with_suffix(".new"), signed.dump())
    path.with_suffix(".new").rename(path)  # all of it at once: the run looks for it all the time
    return run


def _flwr(deployment: Deployment, arguments: Sequence[str]) -> str:
    _refuse_never_started(deployment)
    return flwr(arguments, deployment.home)


def _refuse_never_started(deployment: Deployment) -> None:
    if not has_connection(deployment.home):
        raise ConfigError(f"The server of '{deployment.folder}' was never started: run 'fedpu deploy serve' first.")
