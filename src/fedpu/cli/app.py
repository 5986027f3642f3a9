"""The command and its subcommands; every mistake a user can make ends in one sentence and a non-zero exit."""

from __future__ import annotations

import sys

import typer
from rich.markup import escape

from fedpu.cli import compare, data, run, show, use
from fedpu.cli.console import errors
from fedpu.errors import FedpuError

EPILOG = (
    "Start with 'fedpu compare --preset quickstart', then 'fedpu config > my.toml' and 'fedpu run my.toml'. "
    "Any setting can be given on the command line: --set aggregation.rounds=50."
)

app = typer.Typer(
    name="fedpu",
    help="Federated learning for clients that have labelled only some of their data and only some of the classes.",
    epilog=EPILOG,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.command("run")(run.run)
app.command("compare")(compare.compare)
app.command("show")(show.show)
app.add_typer(data.app, name="data")
app.command("config")(show.config)
app.command("evaluate")(use.evaluate)
app.command("predict")(use.predict)


def main() -> None:
    """Run the command line."""
    try:
        app()
    except FedpuError as error:
        errors.print(f"[bold red]error:[/] {escape(str(error))}", highlight=False, soft_wrap=True)
        sys.exit(1)
    except KeyboardInterrupt:
        errors.print("stopped")
        sys.exit(130)
    except BrokenPipeError:  # the reader of a pipe, such as head, has gone
        sys.stderr.close()
        sys.exit(0)
