"""The files of a SuperLink: the secret and the TLS of its owner's door, and Flower's own folder."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from fedpu.flower.access import private_folder, write_control_secret
from fedpu.flower.processes import LOOPBACK
from fedpu.flower.tls import Certificates, write_certificates


@dataclass(frozen=True)
class LinkFolder:
    """Where a SuperLink finds its files."""

    folder: Path

    @property
    def home(self) -> Path:
        """Flower's own folder, with the connection for the owner's commands."""
        return self.folder / "flower"

    @property
    def server(self) -> Path:
        """What never leaves the server."""
        return self.folder / "server"

    @property
    def secret(self) -> Path:
        """What whoever controls the SuperLink must know."""
        return self.server / "control.secret"

    @property
    def loopback(self) -> Certificates:
        """TLS of the owner's door, so that nobody else's process can pass for the SuperLink and be told the secret."""
        return Certificates(self.server / "loopback")

    def create(self) -> None:
        """Write the secret and the certificates of the owner's door, into a folder of the owner's."""
        private_folder(self.folder)
        write_control_secret(self.secret)
        write_certificates(self.loopback, ["localhost", LOOPBACK])
