"""The page of a deployment's folder: the commands, ready to be copied."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

from fedpu.deploy.folder import Deployment

PAGE = """# A deployment of fedpu

On every machine: `pip install 'fedpu[flower]'` and `export FLWR_TELEMETRY_ENABLED=0 FLWR_DISABLE_UPDATE_CHECK=1`.
The commands are run from this folder on the server; a node needs its file of `nodes/`, its key of `keys/` and
`certificates/ca.crt`, nothing else. `server/` and `flower/` hold the secrets of the server's owner: whoever can read
them controls the deployment. They stay here, readable by you alone.

The certificates and keys were made here, for a trial. Beyond it, use a certificate of your own authority, and let
every node make its key itself (`fedpu deploy key`), so that the private part never travels.

## 1. The server

```sh
fedpu deploy serve
```

Nodes connect to port {port}, which takes no other requests. You control the server from this machine.

## 2. Let the nodes in

```sh
fedpu deploy register {keys}
```

## 3. The nodes, each on its own machine

```sh
{nodes}
```

## 4. The run

```sh
fedpu deploy start --stream
```

It invites the nodes, and is recorded in `run/`. To go on with a run that was stopped, add `--resume`. Flower's own
commands work from here too, with `export FLWR_HOME=$PWD/flower`: `flwr ls fedpu`, `flwr stop RUN fedpu`.

## 5. Leaving it alone

```sh
fedpu deploy status
```

It tells who is there, how far the run is, and until when the certificate is good; `fedpu deploy renew` makes it good
for another year while everything runs. `service/` has systemd units and a compose file. The owner of a node can state
in `[accepts]` of its file what it takes part in at least.
"""


def write_readme(deployment: Deployment, names: Sequence[str]) -> Path:
    """Write the page; return its path."""
    page = deployment.folder / "README.md"
    page.write_text(
        PAGE.format(
            port=deployment.port,
            keys=shlex.join(f"keys/{name}.pub" for name in names),
            nodes="\n".join(shlex.join(["fedpu", "deploy", "node", f"nodes/{name}.toml"]) for name in names),
        )
    )
    return page
