"""``fedpu deploy``: what it writes, and what it says to mistakes."""

from __future__ import annotations

import stat
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("flwr", reason="Flower is not installed: pip install 'fedpu[flower]'")

from typer.testing import CliRunner

from fedpu.cli.app import app
from fedpu.config import Config
from fedpu.deploy import NodeSettings
from fedpu.errors import ConfigError, LabellingError


def fedpu(*arguments: str) -> str:
    result = CliRunner().invoke(app, ["deploy", *arguments], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def test_init_writes_everything_that_the_page_names(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    fedpu("init", str(folder), "--preset", "quickstart", "--nodes", "north,south", "--address", "example.org:8443")
    config = Config.load(folder / "app" / "fedpu_app" / "fedpu.toml")
    assert config.engine.model_dump()["clients"] == 2
    assert config.partition.model_dump()["clients"] == 2
    for number, name in enumerate(["north", "south"]):
        node = NodeSettings.load(folder / "nodes" / f"{name}.toml")
        assert (node.name, node.partition, node.superlink) == (name, number, "example.org:8443")
        assert Path(str(node.root_certificates)).is_file()
        assert stat.S_IMODE(Path(str(node.key)).stat().st_mode) == 0o600
        assert (folder / "keys" / f"{name}.pub").read_text().startswith("ecdsa-sha2-nistp384 ")
    assert "dependencies = []" in (folder / "app" / "pyproject.toml").read_text()
    page = (folder / "README.md").read_text()
    assert "flwr supernode register keys/north.pub fedpu" in page
    assert str(tmp_path) not in page


def test_the_certificate_is_good_for_the_address_and_for_the_loopback(tmp_path: Path) -> None:
    from cryptography import x509

    fedpu("init", str(tmp_path / "run"), "--nodes", "2", "--address", "10.0.0.7:8443")
    pem = (tmp_path / "run" / "certificates" / "server.pem").read_bytes()
    names = x509.load_pem_x509_certificate(pem).extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert [str(one) for one in names.get_values_for_type(x509.IPAddress)] == ["10.0.0.7", "127.0.0.1"]
    assert names.get_values_for_type(x509.DNSName) == ["localhost"]


def test_a_key_is_made_once(tmp_path: Path) -> None:
    fedpu("key", str(tmp_path / "north"))
    assert (tmp_path / "north.pub").is_file()
    with pytest.raises(ConfigError, match="exists already"):
        fedpu("key", str(tmp_path / "north"))


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["init", "HERE/full"], "is not empty"),
        (["init", "HERE/new", "--address", "nowhere"], "give host:port"),
        (["node", "HERE/absent.toml"], "There is no configuration file"),
        (["local"], "--out RUN"),
        (["local", "--resume", "HERE/full"], "not a run directory"),
        (["local", "--out", "HERE/new", "--set", "partition.kind=column"], "hands out a data set"),
    ],
)
def test_mistakes_end_in_a_sentence(tmp_path: Path, arguments: list[str], told: str) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "something").touch()
    with pytest.raises(Exception, match=told):
        fedpu(*(part.replace("HERE", str(tmp_path)) for part in arguments))


def test_without_flower_it_says_how_to_install_it(tmp_path: Path) -> None:
    hidden = "import sys; sys.modules['flwr'] = None; sys.argv = ['fedpu', 'deploy', 'local']; "
    done = subprocess.run(
        [sys.executable, "-c", hidden + "from fedpu.cli import main; main()"], capture_output=True, text=True
    )
    assert done.returncode == 1
    assert "pip install 'fedpu[flower]'" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_trial_that_would_leave_a_class_to_nobody_is_refused_before_anything_starts(tmp_path: Path) -> None:
    with pytest.raises(LabellingError, match="some class would be labelled by nobody"):
        fedpu("local", "--nodes", "3", "--preset", "quickstart", "--out", str(tmp_path / "run"))
