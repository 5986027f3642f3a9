"""The command line in this process: starting Python and PyTorch anew takes longer than most commands."""

from __future__ import annotations

import sys
from contextlib import chdir, redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import NamedTuple

import pytest

from fedpu.cli import main
from fedpu.cli.console import errors, output


class Printed(NamedTuple):
    """What a command has printed."""

    stdout: str
    stderr: str


def fedpu(*arguments: str, cwd: Path, code: int = 0) -> Printed:
    """Run a command in a folder."""
    out, err = StringIO(), StringIO()
    with pytest.MonkeyPatch.context() as patch, chdir(cwd), redirect_stdout(out), redirect_stderr(err):
        for console in (output, errors):
            patch.setattr(console, "_width", 200)
        patch.setattr(sys, "argv", ["fedpu", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
    assert (ended.value.code or 0) == code, err.getvalue()
    return Printed(out.getvalue(), err.getvalue())
