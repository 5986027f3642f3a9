"""How a deployment is: does its server answer, until when is its certificate good, who is there, and what runs."""

from __future__ import annotations

import json
import socket
import ssl
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from fedpu.deploy.folder import Deployment
from fedpu.errors import FedpuError
from fedpu.flower.owner import registered_nodes
from fedpu.flower.processes import CONNECTION, LOOPBACK, flwr
from fedpu.flower.tls import days_left
from fedpu.record import RunDirectory

SECONDS = 10.0
SOON = 30.0
"""days before its end at which a certificate is to be renewed"""


@dataclass(frozen=True)
class Health:
    """What a look from outside shows."""

    answers: bool
    """Does the nodes' port take a TLS connection that a node would trust?"""
    problem: str | None
    certificate_days: float

    @property
    def well(self) -> bool:
        """Is there nothing to do?"""
        return self.answers and self.certificate_days > 0


def health(deployment: Deployment) -> Health:
    """Connect as a node does: TLS, with the authority's certificate, to the nodes' port."""
    days = days_left(deployment.certificates.certificate)
    trusted = ssl.create_default_context(cafile=str(deployment.authority))
    problem = ""
    for host in (LOOPBACK, deployment.address.rpartition(":")[0]):  # it may listen at one address alone
        try:
            with (
                socket.create_connection((host, deployment.port), SECONDS) as plain,
                trusted.wrap_socket(plain, server_hostname=host),
            ):
                return Health(True, None, days)
        except ssl.SSLError as error:
            return Health(False, f"{host}:{deployment.port} has a certificate that nodes do not trust: {error}.", days)
        except OSError as error:
            problem = problem or f"{host}:{deployment.port} does not answer: {error}."
    return Health(False, problem, days)


def status(deployment: Deployment, run: Path) -> dict[str, Any]:
    """Return all that is known of a deployment, as plain values."""
    look = health(deployment)
    found: dict[str, Any] = {"server": asdict(look), "nodes": [], "runs": [], "run": run_status(run)}
    if look.answers:
        found["nodes"] = [{"name": name, "status": state} for name, state in registered_nodes(deployment)]
        runs = json.loads(flwr(["ls", CONNECTION, "--format", "json"], deployment.home))["runs"]
        found["runs"] = [{"run": str(one["run-id"]), "status": str(one["status"])} for one in runs]
    return found


def run_status(path: Path) -> dict[str, Any] | None:
    """Return how far the run in a directory is; None, if there is none."""
    directory = RunDirectory(path)
    if not directory.config_file.exists():
        return None
    try:
        lines, planned = directory.rounds(), directory.config().aggregation.rounds
    except FedpuError as error:  # a status must be had of a damaged run, too
        return {"path": str(path), "problem": str(error)}
    last = lines[-1] if lines else {}
    return {
        "path": str(path),
        "rounds": len(lines),
        "of": planned,
        "finished": directory.result() is not None,
        "left_out": last.get("left_out", {}),
    }
