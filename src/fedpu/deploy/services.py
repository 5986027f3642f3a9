"""Files with which a deployment is left alone: systemd units, and a compose file for containers."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence

from fedpu.deploy.folder import Deployment

FOLDER = "service"
HARDENED = """\
UMask=0077
NoNewPrivileges=yes
PrivateTmp=yes
ProtectSystem=strict
ProtectHome=read-only
ProtectKernelTunables=yes
ProtectControlGroups=yes
RestrictAddressFamilies=AF_INET AF_INET6 AF_UNIX
"""
SERVER = """\
# The server of this deployment. As root: cp fedpu-server.service /etc/systemd/system/, then
# systemctl daemon-reload && systemctl enable --now fedpu-server
[Unit]
Description=fedpu: the server of a deployment
Wants=network-online.target
After=network-online.target

[Service]
User={user}
WorkingDirectory={folder}
ExecStart={python} -m fedpu deploy serve {folder}
Environment=FLWR_TELEMETRY_ENABLED=0 FLWR_DISABLE_UPDATE_CHECK=1
Restart=on-failure
RestartSec=5
KillMode=mixed
ReadWritePaths={folder}
{hardened}
[Install]
WantedBy=multi-user.target
"""
NODE = """\
# A node, on its own machine: nodes/NAME.toml, keys/NAME and certificates/ca.crt are in /etc/fedpu, for user 'fedpu'.
# As root: cp fedpu-node@.service /etc/systemd/system/, then systemctl enable --now fedpu-node@NAME
[Unit]
Description=fedpu: node %i
Wants=network-online.target
After=network-online.target

[Service]
User=fedpu
WorkingDirectory=/etc/fedpu
ExecStart=/usr/bin/env fedpu deploy node nodes/%i.toml
Environment=FLWR_TELEMETRY_ENABLED=0 FLWR_DISABLE_UPDATE_CHECK=1
Restart=always
RestartSec=5
ReadWritePaths=/etc/fedpu
{hardened}
[Install]
WantedBy=multi-user.target
"""
IMAGE = """\
FROM python:3.11-slim
RUN pip install --no-cache-dir 'fedpu[flower,privacy]'
WORKDIR /deployment
"""


def write_services(deployment: Deployment, names: Sequence[str]) -> None:
    """Write the units and the compose file."""
    folder = deployment.folder / FOLDER
    folder.mkdir()
    values = {
        "user": deployment.folder.owner(),
        "folder": _escaped(str(deployment.folder)),
        "python": _escaped(sys.executable),
        "hardened": HARDENED,
    }
    (folder / "fedpu-server.service").write_text(SERVER.format(**values))
    (folder / "fedpu-node@.service").write_text(NODE.format(hardened=HARDENED))
    # JSON is YAML too, and needs no library to be written without mistakes.
    (folder / "compose.yaml").write_text(json.dumps(_compose(deployment, names), indent=2) + "\n")


def _escaped(path: str) -> str:
    """Return a path as systemd reads it: it takes % for one of its own words, and cuts at spaces."""
    return path.replace("%", "%%").replace(" ", "\\x20")


def _compose(deployment: Deployment, names: Sequence[str]) -> dict[str, object]:
    base = {
        "image": "fedpu",
        "build": {"dockerfile_inline": IMAGE},
        "environment": {"FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1"},
        "restart": "unless-stopped",
        "security_opt": ["no-new-privileges:true"],
    }
    check = ["CMD", "fedpu", "deploy", "health", "/deployment"]
    server = base | {
        "command": ["fedpu", "deploy", "serve", "/deployment"],
        "ports": [f"{deployment.port}:{deployment.port}"],
        "volumes": ["..:/deployment"],
        "healthcheck": {"test": check, "interval": "60s", "timeout": "30s", "start_period": "60s", "retries": 3},
    }
    nodes = {
        f"node-{number}": base
        | {
            "profiles": [f"node-{number}"],  # each on its own machine: docker compose up node-0
            "command": ["fedpu", "deploy", "node", f"/deployment/nodes/{name}.toml"],
            "volumes": [
                "../nodes:/deployment/nodes",
                f"../keys/{name}:/deployment/keys/{name}:ro",
                "../certificates/ca.crt:/deployment/certificates/ca.crt:ro",
            ],
        }
        for number, name in enumerate(names)
    }
    return {"services": {"server": server, **nodes}}


__all__ = ["FOLDER", "write_services"]
