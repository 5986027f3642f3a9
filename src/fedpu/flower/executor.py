"""Flower's executor of ServerApps and simulations, with the token of a task kept off the command line.

Flower's own starts ``flwr-serverapp --token …``. Every user of a machine can list the command lines of all, and the
token is all that it takes to send messages to the nodes of a run and to read their answers.

Usage: python -m fedpu.flower.executor --parent-pid NUMBER OTHER OPTIONS OF flower-superexec
"""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from fedpu.flower.access import private_folder
from fedpu.flower.private import (
    TASK_TYPE_TO_APPIO_API_ADDRESS_ARG,
    TASK_TYPE_TO_COMMAND,
    ExecutionSpec,
    LaunchResult,
    SubprocessExecutor,
    flower_superexec,
    get_client_tls_args,
    get_flwr_home,
    run_superexec,
)
from fedpu.flower.processes import dies_with_parent, end_with_parent
from fedpu.flower.tls import write_secret


class DiscreetExecutor(SubprocessExecutor):
    """Starts a process for a task, and gives it the token in a file that only this user can read."""

    def __init__(self, folder: Path) -> None:
        self._folder = private_folder(folder)
        self.close()  # an executor that was killed has left its tokens
        self._tasks: dict[Path, subprocess.Popen[bytes]] = {}

    def launch(self, spec: ExecutionSpec) -> LaunchResult:
        """Start the process. Nothing is installed for it, whatever the app asks for."""
        token = self._folder / str(spec.task_id)
        write_secret(token, spec.token.encode())
        command = [
            *(TASK_TYPE_TO_COMMAND[spec.task_type], TASK_TYPE_TO_APPIO_API_ADDRESS_ARG[spec.task_type]),
            *(spec.runtime_api_address, "--token-file", str(token)),
            *get_client_tls_args(spec.insecure, spec.root_certificates_path),
        ]
        if spec.parent_pid is not None:
            command += ["--parent-pid", str(spec.parent_pid)]
        self._tasks[token] = subprocess.Popen(command, preexec_fn=dies_with_parent(signal.SIGKILL))
        return LaunchResult.accepted()

    def reconcile(self) -> None:
        """Forget the tokens of tasks that have ended."""
        for token in [token for token, process in self._tasks.items() if process.poll() is not None]:
            token.unlink(missing_ok=True)
            del self._tasks[token]

    def close(self) -> None:
        """Forget all tokens."""
        for token in self._folder.iterdir():
            token.unlink(missing_ok=True)


def main() -> None:
    """Run Flower's command with this executor, and end with the SuperLink, however that ends.

    Flower's own watch raises an interrupt, which waits while a request to the SuperLink is tried again and again.
    """
    end_with_parent(int(sys.argv[sys.argv.index("--parent-pid") + 1]))
    changed: Any = run_superexec
    changed.get_executor = lambda *_, **__: DiscreetExecutor(get_flwr_home() / "tasks")
    flower_superexec()


if __name__ == "__main__":
    main()
