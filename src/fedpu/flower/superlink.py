"""A SuperLink with two doors: one for nodes, at any address, and one for its owner, on the loopback.

It is Flower's own application in a process of ours. Flower reads its environment when it is imported, so that
``processes.environment`` must be in place before this module is. Usage, for a simulation, which has no nodes outside:
python -m fedpu.flower.superlink FOLDER
"""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from uvicorn import Config, Server

from fedpu.errors import ConfigError
from fedpu.flower.access import read_private, write_access
from fedpu.flower.door import Door, NodesDoor, OwnersDoor
from fedpu.flower.link_folder import LinkFolder
from fedpu.flower.patience import News, telling, waiting
from fedpu.flower.private import (
    FLWR_IN_MEMORY_DB_NAME,
    ISOLATION_MODE_SUBPROCESS,
    TRANSPORT_TYPE_GRPC_RERE,
    NoOpControlAuthnPlugin,
    SuperLinkLifespan,
    SuperLinkLifespanConfig,
    console_handler,
    create_app,
    get_popen_detach_kwargs,
    get_uvicorn_log_config,
)
from fedpu.flower.processes import LOOPBACK
from fedpu.flower.ray_access import ray_environment
from fedpu.flower.tls import Certificates

RENEWAL_POLL = 2.0
"""seconds between two looks whether a certificate was renewed"""
LAST_REQUESTS = 5
"""seconds that requests under way have when the SuperLink is stopped"""
OTHER_PORTS = ("FLWR_INTERNAL_GRPC_CONTROL_API", "FLWR_INTERNAL_GRPC_FLEET_API")
"""variables with which Flower would open further ports that have no door"""


@dataclass(frozen=True)
class Public:
    """The nodes' door: where it is, its TLS, and the file in which the SuperLink keeps who is registered."""

    host: str
    port: int
    certificates: Certificates
    database: Path


def serve(link: LinkFolder, public: Public | None = None) -> None:
    """Serve until stopped: the owner on the loopback, and nodes at a public address (None: it is a simulation)."""
    os.umask(0o077)  # the database and whatever a ServerApp writes are the owner's
    for name in OTHER_PORTS:
        os.environ.pop(name, None)
    secret, private = read_private(link.secret), _bound(LOOPBACK, 0)
    address = f"{LOOPBACK}:{private.getsockname()[1]}"
    app = create_app(_config(link, private, secret, public), _lifespan(link))
    news = News(lambda: any(server.should_exit for server, _ in servers))
    servers = [(_server(OwnersDoor(telling(app, news), secret), link.loopback, "on"), private)]
    if public is not None:
        door = NodesDoor(waiting(app, news))
        servers.append((_server(door, public.certificates, "off"), _bound(public.host, public.port)))
    with asyncio.Runner(loop_factory=servers[0][0].config.get_loop_factory()) as runner:
        runner.run(_run(servers, lambda: write_access(link.home, address, link.loopback.authority, secret)))


async def _run(servers: list[tuple[Server, socket.socket]], tell_owner: Callable[[], None]) -> None:
    """Open one door after another, the owner's first, and close all when one of them is closed."""
    tasks = []
    for server, listener in servers:
        tasks.append(asyncio.create_task(server.serve(sockets=[listener])))
        while not server.started and not tasks[-1].done():
            await asyncio.sleep(0.05)
        if tasks[-1].done():
            break
        if len(tasks) == 1:
            tell_owner()
    watching = [asyncio.create_task(_take_up_certificates([server for server, _ in servers]))]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        watching[0].cancel()
    for server, _ in servers:
        server.should_exit = True
    await asyncio.gather(*tasks)


async def _take_up_certificates(servers: list[Server]) -> None:
    """Show connections from now on a certificate that was renewed; those that are open go on as they are."""
    known = {server: _stamp(server) for server in servers}
    while True:
        await asyncio.sleep(RENEWAL_POLL)
        for server in servers:
            stamp = _stamp(server)
            if stamp != known[server] and stamp is not None and take_up(server.config):
                known[server] = stamp


def _stamp(server: Server) -> tuple[int, int] | None:
    try:
        found = Path(str(server.config.ssl_certfile)).stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_ino


def take_up(config: Config) -> bool:
    """Load a server's certificate and key anew; say False, and leave it as it is, where they do not fit together."""
    assert config.ssl is not None
    assert config.ssl_certfile is not None
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(config.ssl_certfile, config.ssl_keyfile)
        config.ssl.load_cert_chain(config.ssl_certfile, config.ssl_keyfile)
    except (OSError, ssl.SSLError):
        return False
    return True


def _bound(host: str, port: int) -> socket.socket:
    found = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        found.bind((host, port))
    except OSError as error:
        raise ConfigError(f"The SuperLink can't listen at {host}:{port}: {error.strerror}.") from error
    return found


def _server(door: Door, tls: Certificates, lifespan: Literal["on", "off"]) -> Server:
    read_private(tls.key)
    return Server(
        Config(
            door,
            lifespan=lifespan,
            ws="none",
            proxy_headers=False,
            server_header=False,
            log_config=get_uvicorn_log_config(console_handler.level),
            ssl_keyfile=tls.key,
            ssl_certfile=tls.certificate,
            timeout_graceful_shutdown=LAST_REQUESTS,
        )
    )


def _config(link: LinkFolder, private: socket.socket, secret: bytes, public: Public | None) -> SuperLinkLifespanConfig:
    tls = link.loopback
    return SuperLinkLifespanConfig(
        control_address="",
        health_server_address=None,
        host=LOOPBACK,
        port=int(private.getsockname()[1]),
        insecure=False,
        certificates=None,  # of gRPC servers, which are not started
        superexec_auth_secret=secret,
        authn_plugin=NoOpControlAuthnPlugin(),  # the door asks for the secret
        event_log_plugin=None,
        fleet_event_log_plugin=None,
        enable_event_log=False,
        artifact_provider=None,
        enable_supernode_auth=public is not None,
        fleet_api_type=TRANSPORT_TYPE_GRPC_RERE,
        fleet_api_address=None,
        simulation=public is None,
        ssl_ca_certfile=str(tls.authority),
        ssl_certfile=str(tls.certificate),
        ssl_keyfile=str(tls.key),
        database=FLWR_IN_MEMORY_DB_NAME if public is None else str(public.database),
        isolation=ISOLATION_MODE_SUBPROCESS,
        runtime_dependency_install=False,
    )


def _lifespan(link: LinkFolder) -> type[SuperLinkLifespan]:
    """Return what Flower starts beside its application: our executor in place of its own."""

    class Lifespan(SuperLinkLifespan):
        def _start_superexec_if_needed(self) -> None:
            command = [
                *(sys.executable, "-m", "fedpu.flower.executor", "--parent-pid", str(os.getpid())),
                *("--runtime-api-address", f"{LOOPBACK}:{self.config.port}"),
                *(
                    "--root-certificates",
                    str(link.loopback.authority),
                    "--superexec-auth-secret-file",
                    str(link.secret),
                ),
            ]
            self.superexec_process = subprocess.Popen(command, **get_popen_detach_kwargs())

    return Lifespan


if __name__ == "__main__":
    os.environ.update(ray_environment(Path(sys.argv[1])))
    serve(LinkFolder(Path(sys.argv[1])))
