"""The command and its subcommands; every mistake a user can make ends in one sentence and a non-zero exit."""

from __future__ import annotations

import errno
import os
import sys
from contextlib import suppress
from typing import Annotated, NoReturn

import typer
import typer.core
from rich.text import Text

from fedpu import __version__
from fedpu.cli import bench, bound, check, compare, data, deploy, priors, report, reproduce, run, show, tune, use, watch
from fedpu.cli.console import errors, plain_warnings
from fedpu.cli.interrupt import INTERRUPTED, handled_interrupts
from fedpu.errors import FedpuError

HELP = "Federated learning for clients that have labelled only some of their data and only some of the classes."
EPILOG = (
    "Start with 'fedpu compare --preset quickstart', then 'fedpu config > my.toml' and 'fedpu run my.toml'. "
    "Any setting can be given on the command line: --set aggregation.rounds=50."
)

# Help is plain text here. Typer would escape brackets in it for a markup that nobody renders: "\\[default: 1]".
typer.core.HAS_RICH = False

app = typer.Typer(
    name="fedpu",
    help=HELP,
    epilog=EPILOG,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def _print_version(wanted: bool) -> bool:
    if wanted:
        print(f"fedpu {__version__}")
        raise typer.Exit
    return wanted


@app.callback(help=HELP)
def options(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", is_eager=True, callback=_print_version)
    ] = False,
) -> None:
    """Take the options of the command itself; its help is that of the app."""


app.command("run")(run.run)
app.command("compare")(compare.compare)
app.command("tune")(tune.tune)
app.command("reproduce")(reproduce.reproduce)
app.command("check")(check.check)
app.command("report")(report.report)
app.command("watch")(watch.watch)
app.command("show")(show.show)
app.add_typer(data.app, name="data")
app.add_typer(deploy.app, name="deploy")
app.command("config")(show.config)
app.command("priors")(priors.priors)
app.command("bound")(bound.bound)
app.command("bench")(bench.bench)
app.command("evaluate")(use.evaluate)
app.command("predict")(use.predict)
app.command("export")(use.export)


def main() -> None:
    """Run the command line."""
    with handled_interrupts():
        _run()


def _run() -> None:
    try:
        try:
            with plain_warnings():
                app()
        finally:
            sys.stdout.flush()
    except FedpuError as error:
        _fail(str(error))
    except KeyboardInterrupt:
        errors.print("stopped")
        sys.exit(INTERRUPTED)
    except BrokenPipeError:  # the reader of a pipe, such as head, has gone
        _drop_output()
        sys.exit(0)
    except OSError as error:
        _drop_output()
        full = "The disk is full" if error.errno == errno.ENOSPC else str(error.strerror or error)
        _fail(f"{full}: '{error.filename}'." if error.filename else f"{full}.")
    except (MemoryError, RuntimeError) as error:
        if isinstance(error, RuntimeError) and "alloc" not in str(error):
            raise
        _fail("There is not enough memory for this. Use a smaller model or batch, fewer clients, or less data.")


def _fail(message: str) -> NoReturn:
    errors.print(Text.assemble(("error:", "bold red"), " ", message), highlight=False, soft_wrap=True)
    sys.exit(1)


def _drop_output() -> None:
    """Forget what could not be written, or the interpreter would try again at its end."""
    with suppress(OSError, ValueError):  # standard output may be no file at all
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
