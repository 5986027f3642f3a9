"""``fedpu deploy``, on the server: serve, let nodes in, and start runs."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Annotated, Any

import typer

from fedpu.cli.console import Json, errors, output, print_json
from fedpu.errors import ConfigError, FedpuError

Folder = Annotated[Path, typer.Option("--folder", "-f", help="The folder that 'fedpu deploy init' wrote.")]
HERE = Path()


def serve(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="The folder that 'fedpu deploy init' wrote.")] = HERE,
    host: Annotated[str, typer.Option("--host", help="The address of this machine at which nodes are let in.")] = (
        "0.0.0.0"
    ),
) -> None:
    """Serve a deployment until stopped: nodes at its port, and its owner, with the folder's secret, on this machine."""
    from fedpu.engine.flower import require_flower

    require_flower()
    from fedpu.deploy.folder import Deployment
    from fedpu.flower.processes import environment

    deployment = Deployment.open(folder)
    os.environ.update(environment(deployment.home))  # before Flower is imported, which reads it then
    from fedpu.flower.superlink import Public
    from fedpu.flower.superlink import serve as serve_link

    errors.print(
        f"Nodes are let in at {host}:{deployment.port}. Control this server from this machine: 'fedpu deploy register' "
        f"and 'fedpu deploy start' in {deployment.folder}.",
        highlight=False,
        soft_wrap=True,
    )
    serve_link(deployment, Public(host, deployment.port, deployment.certificates, deployment.database))


def register(
    keys: Annotated[list[Path], typer.Argument(metavar="KEY.pub…", help="Public keys of nodes.")],
    folder: Folder = HERE,
    name: Annotated[
        str | None, typer.Option("--name", help="What the node is called; else as its file: north.pub is 'north'.")
    ] = None,
    json: Json = False,
) -> None:
    """Let nodes in, by their public keys, each under one name. Only the owner of the deployment's folder can."""
    from fedpu.engine.flower import require_flower

    require_flower()
    from fedpu.deploy import control
    from fedpu.deploy.folder import Deployment

    if name is not None and len(keys) > 1:
        raise ConfigError("--name is for one key: register the keys one after another.")
    registered = []
    for key in keys:
        called = control.register(Deployment.open(folder), key, name)
        registered.append({"key": str(key), "name": called})
        if not json:
            output.print(f"The node with {key} can connect, as '{called}'.", highlight=False, soft_wrap=True)
    if json:
        print_json(registered)


def start(
    folder: Folder = HERE,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Run directory; else 'run' in the folder.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the run in --out.")] = False,
    stream: Annotated[bool, typer.Option("--stream", help="Show what the run says until it ends.")] = False,
    key: Annotated[
        Path | None, typer.Option("--key", metavar="FILE", help="The owner's key, if it is kept elsewhere.")
    ] = None,
    days: Annotated[float, typer.Option("--days", min=0.01, help="How long the nodes' invitation counts.")] = 30.0,
    json: Json = False,
) -> None:
    """Start a run, and invite the nodes to it; they answer no other. Only the owner of the folder can."""
    from fedpu.engine.flower import require_flower

    require_flower()
    from fedpu.deploy import control
    from fedpu.deploy.folder import Deployment
    from fedpu.flower.processes import CONNECTION, environment, found

    deployment = Deployment.open(folder)
    where = out or deployment.folder / "run"
    run = control.start_run(deployment, deployment.app, where, resume, owner_key=key, days=days)
    errors.print(f"Run {run} has started; it is recorded in {where}.", highlight=False, soft_wrap=True)
    if json:
        print_json({"run": run, "recorded_in": str(where)})
    if stream:
        command = [found("flwr"), "log", run, CONNECTION, "--stream"]
        subprocess.run(command, env=environment(deployment.home), check=False)
        _report(where)


def _report(run: Path) -> None:
    """Write the page of a run that is over, as 'fedpu run' does; one that failed has said so."""
    from fedpu.record import RunDirectory
    from fedpu.report import write_report

    if RunDirectory(run).result() is not None:
        errors.print(f"Report: {write_report(run)}", highlight=False, soft_wrap=True)


def status(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="The folder that 'fedpu deploy init' wrote.")] = HERE,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Run directory; else 'run' in the folder.")] = None,
    json: Json = False,
) -> None:
    """Show how a deployment is: its server, its certificate, which nodes are there, and how far the run is."""
    from fedpu.engine.flower import require_flower

    require_flower()
    from fedpu.deploy.folder import Deployment
    from fedpu.deploy.status import SOON
    from fedpu.deploy.status import status as look

    deployment = Deployment.open(folder)
    found = look(deployment, out or deployment.folder / "run")
    if json:
        print_json(found)
        return
    server = found["server"]
    days = server["certificate_days"]
    renew = ": run 'fedpu deploy renew'" if days < SOON else ""
    lines = [
        f"server: {'answers' if server['answers'] else server['problem']} (port {deployment.port})",
        f"certificate: {days:.0f} days left{renew}",
        *(f"node {node['name'] or 'without a name'}: {node['status']}" for node in found["nodes"]),
        *(f"run {one['run']}: {one['status']}" for one in found["runs"]),
    ]
    if found["run"]:
        run = found["run"]
        lines.append(f"{run['path']}: {run.get('problem') or _how_far(run)}")
    for line in lines:
        output.print(line, highlight=False, soft_wrap=True)


def _how_far(run: dict[str, Any]) -> str:
    missing = f"; without {', '.join(run['left_out'])} in the last" if run["left_out"] else ""
    return f"{run['rounds']} of {run['of']} rounds{', finished' if run['finished'] else ''}{missing}"


def health(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="The folder that 'fedpu deploy init' wrote.")] = HERE,
    json: Json = False,
) -> None:
    """Connect to the nodes' port as a node would, and end with code 1 if that does not work. For monitors."""
    from fedpu.engine.flower import require_flower

    require_flower()
    from fedpu.deploy.folder import Deployment
    from fedpu.deploy.status import health as look

    found = look(Deployment.open(folder))
    if not found.well:
        raise FedpuError(found.problem or "The server's certificate has ended: run 'fedpu deploy renew'.")
    if json:
        print_json({"well": True, "certificate_days": found.certificate_days})
        return
    output.print(f"well; the certificate is good for {found.certificate_days:.0f} days", highlight=False)


def renew(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="The folder that 'fedpu deploy init' wrote.")] = HERE,
    json: Json = False,
) -> None:
    """Renew the server's certificates. A server that runs takes them up; nodes and runs notice nothing."""
    from fedpu.engine.flower import require_flower

    require_flower()
    from fedpu.deploy.folder import Deployment
    from fedpu.flower.tls import days_left, renew_certificate

    deployment = Deployment.open(folder)
    for files in (deployment.certificates, deployment.loopback):
        renew_certificate(files)
    days = {
        str(files.certificate): days_left(files.certificate) for files in (deployment.certificates, deployment.loopback)
    }
    if json:
        print_json(days)
        return
    for name, left in days.items():
        output.print(f"{name}: good for {left:.0f} days", highlight=False, soft_wrap=True)
