"""The page of a deployment's folder: the commands, ready to be copied."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

from fedpu.deploy.folder import Deployment

PAGE = """# A deployment of fedpu

On every machine: `pip install 'fedpu[flower]'` and `export FLWR_TELEMETRY_ENABLED=0 FLWR_DISABLE_UPDATE_CHECK=1`.
The commands are run from this folder on the server; a node needs its file of `nodes/`, its key of `keys/` and
`certificates/ca.crt`, nothing else.

The certificates and keys were made here, for a trial. Beyond it, use a certificate of your own authority, and let
every node make its key itself (`fedpu deploy key`), so that the private part never travels.

## 1. The server

```sh
{superlink}
```

## 2. Let the nodes in

```sh
export FLWR_HOME=$PWD/flower
{register}
```

## 3. The nodes, each on its own machine

```sh
{nodes}
```

## 4. The run

```sh
export FLWR_HOME=$PWD/flower
{run}
```

It is recorded in `run/`. To go on with a run that was stopped, change `resume=false` to `resume=true`.
"""


def write_readme(deployment: Deployment, names: Sequence[str]) -> Path:
    """Write the page; return its path."""
    folder = deployment.folder

    def told(command: Sequence[str]) -> str:
        return shlex.join(command).replace(f"{folder}/", "")

    page = folder / "README.md"
    page.write_text(
        PAGE.format(
            superlink=told(deployment.superlink_command("0.0.0.0")),
            register="\n".join(told(["flwr", *deployment.register_arguments(name)]) for name in names),
            nodes="\n".join(f"fedpu deploy node nodes/{name}.toml" for name in names),
            run=told(["flwr", *deployment.run_arguments(deployment.app, folder / "run"), "--stream"]),
        )
    )
    return page
