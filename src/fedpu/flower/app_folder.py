"""A Flower app: the folder that ``flwr run`` sends to the SuperLink."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import tomli_w

PACKAGE = "fedpu_app"


def write_app(folder: Path, server: str, client: str, config: Mapping[str, str | bool]) -> None:
    """Write an app whose ServerApp and ClientApp come from fedpu, which every machine has installed.

    ``server`` and ``client`` are the Python lines that define ``app``; ``config`` holds the defaults of the run
    configuration. It has no dependencies, so that nobody fetches any for it.
    """
    package = folder / PACKAGE
    package.mkdir(parents=True, exist_ok=True)
    (package / "__init__.py").write_text('"""A fedpu run as a Flower app."""\n')
    (package / "server_app.py").write_text(f'"""The server."""\n\n{server}\n')
    (package / "client_app.py").write_text(f'"""A client."""\n\n{client}\n')
    project = {
        "project": {
            "name": "fedpu-app",
            "version": "1.0.0",
            "description": "A fedpu run.",
            "license": "MIT",
            "dependencies": [],
        },
        "tool": {
            "flwr": {
                "app": {
                    "publisher": "fedpu",
                    "components": {
                        "serverapp": f"{PACKAGE}.server_app:app",
                        "clientapp": f"{PACKAGE}.client_app:app",
                    },
                    "config": dict(config),
                }
            }
        },
    }
    (folder / "pyproject.toml").write_text(tomli_w.dumps(project))
