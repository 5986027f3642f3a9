"""Somebody who stands in the server's place, without its key, is told nothing by a node."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

pytest.importorskip("flwr", reason="Flower is not installed: pip install 'fedpu[flower]'")

from cryptography.hazmat.primitives.asymmetric import ec

from fedpu.errors import ConfigError
from fedpu.flower.connection import connected
from fedpu.flower.tls import Certificates, write_certificates


def authority(folder: Path) -> Certificates:
    """Make an authority of somebody's, and a certificate of it for this machine."""
    folder.mkdir()
    files = Certificates(folder, folder)
    write_certificates(files, ["127.0.0.1"])
    return files


@contextmanager
def listening(files: Certificates) -> Iterator[tuple[int, list[bytes]]]:
    """Listen where a node expects its server; give the port, and whatever a node says there."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(files.certificate, files.key)
    heard: list[bytes] = []

    def listen(listener: socket.socket) -> None:
        while True:
            try:
                plain, _ = listener.accept()
            except OSError:  # it was closed
                return
            with suppress(OSError), context.wrap_socket(plain, server_side=True) as found:
                heard.append(found.recv(1000))

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=listen, args=(listener,), daemon=True)
        thread.start()
        yield listener.getsockname()[1], heard
        listener.shutdown(socket.SHUT_RDWR)
    thread.join()


@pytest.mark.parametrize("trusted", [False, True])
def test_a_node_says_nothing_to_a_server_that_its_authority_has_not_signed(tmp_path: Path, trusted: bool) -> None:
    mine, others = authority(tmp_path / "mine"), authority(tmp_path / "others")
    private = ec.generate_private_key(ec.SECP384R1())
    with listening(mine if trusted else others) as (port, heard):
        connecting = connected(
            f"127.0.0.1:{port}", False, mine.authority.read_bytes(), (private, private.public_key()), print
        )
        # One that it trusts hangs up in the middle of the first request, which is told in the same words.
        with pytest.raises(ConfigError, match="There is no TLS connection"), connecting:
            pass
    assert bool(heard) == trusted
