"""``fedpu deploy``: the same run on real nodes."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedpu.cli import deploy_server
from fedpu.cli.console import Json, Overrides, Preset, Quiet, errors, load_config, output, print_json, round_progress
from fedpu.cli.interrupt import leaving_on_terminate
from fedpu.errors import ConfigError

app = typer.Typer(
    help="Train on clients that keep their data on their own machines, over Flower.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

app.command("serve")(deploy_server.serve)
app.command("register")(deploy_server.register)
app.command("start")(deploy_server.start)
app.command("status")(deploy_server.status)
app.command("health")(deploy_server.health)
app.command("renew")(deploy_server.renew)

MOST_NODES = 10_000
LOGS = "logs"
"""folder in the run directory for what the processes of a trial say"""
Config_ = Annotated[
    str | None, typer.Option("--config", "-c", metavar="FILE", help="A TOML file; without it, the paper's defaults.")
]


@app.command("local")
def local(
    config: Config_ = None,
    preset: Preset = None,
    overrides: Overrides = None,
    nodes: Annotated[int, typer.Option("--nodes", "-n", min=1, max=64, help="How many nodes to start.")] = 3,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Run directory.")] = None,
    resume: Annotated[
        Path | None, typer.Option("--resume", metavar="RUN", help="Go on with a deployed run that was stopped.")
    ] = None,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Start a SuperLink and nodes on this machine with TLS and keys, run, and stop them all.

    Every node is a client of the configured data set. Example: 'fedpu deploy local --nodes 3 --preset quickstart
    --set labelling.positive=[4,3,3] --out runs/trial'.
    """
    from fedpu.engine.flower import require_flower
    from fedpu.record import RunDirectory

    require_flower()
    from fedpu.deploy.local import deployed_config, local_deployment
    from fedpu.flower.temporary import temporary_folder
    from fedpu.report import write_report

    if resume is not None:
        if config or preset or overrides or out:
            raise ConfigError("--resume takes everything from the run directory; give no other settings with it.")
        chosen, folder = RunDirectory.open(resume).config(), resume
        names = RunDirectory.open(resume).members().names
    else:
        if out is None:
            raise ConfigError("Say where the run is to be recorded: --out RUN.")
        chosen, folder = deployed_config(load_config(config, preset, overrides), nodes), out
        names = [str(number) for number in range(nodes)]
        if RunDirectory(folder).config_file.exists():
            raise ConfigError(f"'{folder}' already holds a run. Go on with --resume {folder}, or choose another --out.")
    if not quiet:
        errors.print(f"starting a SuperLink and {len(names)} nodes …")
    with (
        leaving_on_terminate(),
        temporary_folder("fedpu-deploy-") as work,
        round_progress(quiet) as progress,
        local_deployment(work / "deployment", chosen, names, folder / LOGS) as deployed,
    ):
        on_round = progress.start(chosen.method.model_dump()["name"], chosen.aggregation.rounds)
        summary = deployed.start_run(chosen, folder, resume is not None).wait(on_round)
    page = write_report(folder)
    if json:
        print_json(summary | {"run": str(folder), "report": str(page)})
    else:
        accuracy = "not measured" if summary["accuracy"] is None else f"{summary['accuracy']:.2%}"
        output.print(
            f"{summary['method']}: accuracy {accuracy} after {summary['rounds']} rounds on {summary['clients']} nodes. "
            f"Run: {folder}, report: {page}",
            highlight=False,
            soft_wrap=True,
        )


@app.command("node")
def node(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The node's own configuration.")],
) -> None:
    """Join a deployment as a client, and take part until stopped. Data and labels stay on this machine."""
    from fedpu.engine.flower import require_flower

    require_flower()
    from fedpu.deploy.node import run_node

    run_node(file, lambda text: errors.print(text, highlight=False, soft_wrap=True))


@app.command("key")
def key(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Where to write it; FILE.pub is for the server.")],
    json: Json = False,
) -> None:
    """Make a key pair for a node, on the node: the private key never leaves it."""
    from fedpu.engine.flower import require_flower

    require_flower()
    from fedpu.deploy.certificates import write_node_key

    if file.exists():
        raise ConfigError(f"'{file}' exists already.")
    write_node_key(file)
    if json:
        print_json({"private": str(file), "public": f"{file}.pub"})
        return
    errors.print(f"Private key: {file}. Give the server {file}.pub.", highlight=False, soft_wrap=True)


def _node_names(nodes: str) -> list[str]:
    """Return the names in a list, or as many numbers as are asked for."""
    if not (nodes.isascii() and nodes.isdecimal()):
        return [name.strip() for name in nodes.split(",")]
    if len(nodes) > 5 or not 1 <= int(nodes) <= MOST_NODES:
        raise ConfigError(f"--nodes = {nodes} can't be used: give a number from 1 to {MOST_NODES}, or names.")
    return [str(k) for k in range(int(nodes))]


@app.command("init")
def init(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="A new folder.")],
    config: Config_ = None,
    preset: Preset = None,
    overrides: Overrides = None,
    nodes: Annotated[str, typer.Option("--nodes", "-n", help="How many nodes, or their names, comma-separated.")] = "3",
    address: Annotated[
        str, typer.Option("--address", metavar="HOST:PORT", help="Where nodes reach the server.")
    ] = "127.0.0.1:8443",
    trial: Annotated[
        bool, typer.Option("--trial/--own-data", help="Nodes share the configured data set, or have their own.")
    ] = True,
    json: Json = False,
) -> None:
    """Write a Flower app with the configuration, certificates and keys for a trial, and the commands to run it."""
    from fedpu.engine import FlowerEngine
    from fedpu.engine.flower import require_flower

    require_flower()
    from fedpu.deploy.folder import create
    from fedpu.deploy.readme import write_readme
    from fedpu.deploy.services import write_services

    names = _node_names(nodes)
    chosen = load_config(config, preset, overrides)
    settings = ["engine.name=flower", f"engine.clients={len(names)}"]
    if trial and "clients" in type(chosen.partition).model_fields:
        settings.append(f"partition.clients={len(names)}")
    chosen = chosen.with_(*settings)
    assert isinstance(chosen.engine, FlowerEngine)
    deployment = create(folder, chosen, names, address, trial)
    write_services(deployment, names)
    page = write_readme(deployment, names)
    if json:
        print_json({"folder": str(folder), "page": str(page), "nodes": names})
        return
    output.print(f"Written: {folder}. The commands are in {page}.", highlight=False, soft_wrap=True)
