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
from fedpu.errors import ConfigError, FedpuError, LabellingError


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
    assert "fedpu deploy register keys/north.pub keys/south.pub\n" in page
    assert str(tmp_path) not in page


def test_the_secrets_of_a_deployment_are_its_owners_and_no_node_gets_them(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    fedpu("init", str(folder), "--nodes", "2")
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert stat.S_IMODE((folder / "server").stat().st_mode) == 0o700
    secret, owner = folder / "server" / "control.secret", folder / "server" / "owner.key"
    for path in (secret, owner, folder / "certificates" / "server.key", folder / "server" / "loopback" / "server.key"):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600, path
    nodes = [NodeSettings.load(folder / "nodes" / f"{name}.toml") for name in "01"]
    assert all(str(node.server_key).startswith("ssh-ed25519 ") for node in nodes)
    assert secret.read_text() not in "".join(path.read_text() for path in (folder / "nodes").iterdir())


def test_a_server_that_was_never_started_is_not_asked(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    fedpu("init", str(folder), "--nodes", "2")
    with pytest.raises(ConfigError, match="was never started: run 'fedpu deploy serve' first"):
        fedpu("register", str(folder / "keys" / "0.pub"), "--folder", str(folder))
    with pytest.raises(ConfigError, match="was never started"):
        fedpu("start", "--folder", str(folder))
    (folder / "server" / "owner.key").chmod(0o644)
    with pytest.raises(ConfigError, match="Other users of this machine can open"):
        fedpu("start", "--folder", str(folder))


def test_the_certificate_is_good_for_the_address_and_for_the_loopback(tmp_path: Path) -> None:
    from cryptography import x509

    fedpu("init", str(tmp_path / "run"), "--nodes", "2", "--address", "10.0.0.7:8443")
    pem = (tmp_path / "run" / "certificates" / "server.pem").read_bytes()
    names = x509.load_pem_x509_certificate(pem).extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert [str(one) for one in names.get_values_for_type(x509.IPAddress)] == ["10.0.0.7", "127.0.0.1"]
    assert names.get_values_for_type(x509.DNSName) == ["localhost"]


def test_a_certificate_is_renewed_for_the_same_names_by_the_same_authority(tmp_path: Path) -> None:
    from cryptography import x509

    folder = tmp_path / "run"
    fedpu("init", str(folder), "--nodes", "2", "--address", "10.0.0.7:8443")
    authority, path = (folder / "certificates" / name for name in ("ca.crt", "server.pem"))
    before, trusted = x509.load_pem_x509_certificate(path.read_bytes()), authority.read_bytes()
    assert "good for 365 days" in fedpu("renew", str(folder))
    after = x509.load_pem_x509_certificate(path.read_bytes())
    assert after.serial_number != before.serial_number
    assert after.public_key() == before.public_key()
    names = [one.extensions.get_extension_for_class(x509.SubjectAlternativeName) for one in (before, after)]
    assert names[0] == names[1]
    assert authority.read_bytes() == trusted
    after.verify_directly_issued_by(x509.load_pem_x509_certificate(trusted))
    other = tmp_path / "other"
    fedpu("init", str(other), "--nodes", "2")
    path.write_bytes((other / "certificates" / "server.pem").read_bytes())
    with pytest.raises(ConfigError, match="is not the key of"):
        fedpu("renew", str(folder))
    authority.write_bytes((other / "certificates" / "ca.crt").read_bytes())
    with pytest.raises(ConfigError, match="is not of the authority that"):
        fedpu("renew", str(folder))
    (folder / "server" / "authority.key").unlink()
    with pytest.raises(ConfigError, match="If it is kept elsewhere, put it there"):
        fedpu("renew", str(folder))


def test_a_server_that_is_not_there_is_not_well(tmp_path: Path) -> None:
    from fedpu.flower.processes import free_port

    folder = tmp_path / "run"
    fedpu("init", str(folder), "--nodes", "2", "--address", f"127.0.0.1:{free_port()}")
    with pytest.raises(FedpuError, match="does not answer"):
        fedpu("health", str(folder))
    told = fedpu("status", str(folder))
    assert "does not answer" in told
    assert "certificate: 365 days left" in told


def test_units_and_compose_file_can_be_read_and_run_the_commands_of_the_page(tmp_path: Path) -> None:
    import configparser

    import yaml

    folder = tmp_path / "run"
    fedpu("init", str(folder), "--nodes", "north,south", "--address", "example.org:8443")
    units = {}
    for name in ("fedpu-server", "fedpu-node@"):
        units[name] = configparser.ConfigParser(interpolation=None, strict=False)
        units[name].optionxform = str  # type: ignore[assignment, method-assign]
        units[name].read(folder / "service" / f"{name}.service")
        assert units[name].sections() == ["Unit", "Service", "Install"]
        assert units[name]["Service"]["UMask"] == "0077"
    server = units["fedpu-server"]["Service"]
    assert server["ExecStart"] == f"{sys.executable} -m fedpu deploy serve {folder}"
    assert server["WorkingDirectory"] == server["ReadWritePaths"] == str(folder)
    assert units["fedpu-node@"]["Service"]["ExecStart"].endswith("fedpu deploy node nodes/%i.toml")
    services = yaml.safe_load((folder / "service" / "compose.yaml").read_text())["services"]
    assert services["server"]["command"] == ["fedpu", "deploy", "serve", "/deployment"]
    assert services["server"]["ports"] == ["8443:8443"]
    assert services["server"]["healthcheck"]["test"][1:] == ["fedpu", "deploy", "health", "/deployment"]
    for number, name in enumerate(["north", "south"]):
        node = services[f"node-{number}"]
        assert node["command"][-1] == f"/deployment/nodes/{name}.toml"
        assert not any("server" in volume or volume == "..:/deployment" for volume in node["volumes"]), "no secrets"


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
        (["init", "HERE/new", "--address", "é:1"], "host names in ASCII"),
        (["init", "HERE/new", "--address", "host:²"], "give host:port"),
        (["init", "HERE/new", "--address", "host:70000"], "give host:port"),
        (["init", "HERE/new", "--address", f"{'a' * 300}:1"], "at most 253"),
        (["init", "HERE/new", "--nodes", "²"], None),
        (["init", "HERE/new", "--nodes", "0"], "give a number from 1"),
        (["init", "HERE/new", "--nodes", "9" * 5000], "give a number from 1"),
        (["init", "HERE/new", "--nodes", "a,a"], "Two nodes are called 'a'"),
        (["init", "HERE/new", "--nodes", "North,north"], "Two nodes are called"),
        (["init", "HERE/new", "--nodes", ""], "can't be the name of a node"),
        (["init", "HERE/new", "--nodes", "a,,b"], "can't be the name of a node"),
        (["init", "HERE/new", "--nodes", "../../x"], "can't be the name of a node"),
        (["init", "HERE/new", "--nodes", "a/b"], "can't be the name of a node"),
        (["init", "HERE/new", "--nodes", ".."], "can't be the name of a node"),
        (["init", "HERE/new", "--nodes", "\x1b[2J"], "can't be the name of a node"),
        (["init", "HERE/new", "--set", "faults.sign_flip=1"], "is for simulations"),
        (["node", "HERE/absent.toml"], "There is no configuration file"),
        (["serve", "HERE/full"], "is no deployment"),
        (["register", "north.pub", "--folder", "HERE/full"], "is no deployment"),
        (["start", "--folder", "HERE/full"], "is no deployment"),
        (["local"], "--out RUN"),
        (["local", "--resume", "HERE/full"], "not a run directory"),
        (["local", "--out", "HERE/new", "--set", "partition.kind=column"], "hands out a data set"),
    ],
)
def test_mistakes_end_in_a_sentence(tmp_path: Path, arguments: list[str], told: str | None) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "something").touch()
    words = [part.replace("HERE", str(tmp_path)) for part in arguments]
    if told is None:  # odd, but a name like any other
        fedpu(*words)
        return
    with pytest.raises(ConfigError, match=told) if told != "not a run directory" else pytest.raises(FedpuError):
        fedpu(*words)
    assert not list(tmp_path.glob("**/keys")), "nothing is written"


def test_a_name_belongs_to_one_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from fedpu.deploy import control

    asked: list[str] = []
    monkeypatch.setattr(control, "_refuse_never_started", lambda deployment: None)
    monkeypatch.setattr(control, "register_node", lambda deployment, key, name: asked.append(name))
    folder, keys = tmp_path / "run", tmp_path / "run" / "keys"
    fedpu("init", str(folder), "--nodes", "north,south")
    assert "as 'north'" in fedpu("register", str(keys / "north.pub"), "--folder", str(folder))
    assert asked == ["north"]
    with pytest.raises(ConfigError, match="'north' is registered with another key"):
        fedpu("register", str(keys / "south.pub"), "--name", "north", "--folder", str(folder))
    with pytest.raises(ConfigError, match="registered already, as the key of 'north'"):
        fedpu("register", str(keys / "north.pub"), "--name", "west", "--folder", str(folder))
    with pytest.raises(ConfigError, match="can't be the name of a node"):
        fedpu("register", str(keys / "south.pub"), "--name", "../x", "--folder", str(folder))
    with pytest.raises(ConfigError, match="no public key of a node"):
        fedpu("register", str(keys / "south"), "--folder", str(folder))
    assert len(asked) == 1
    fedpu("register", str(keys / "south.pub"), "--folder", str(folder))
    assert asked == ["north", "south"]


def test_a_node_file_with_a_name_that_leads_elsewhere_is_refused(tmp_path: Path) -> None:
    for name in ("../../x", "", "a,b"):
        (tmp_path / "n.toml").write_text(f'name = "{name}"\ndata = "n.npz"\n')
        with pytest.raises(ConfigError, match="name"):
            NodeSettings.load(tmp_path / "n.toml")


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
