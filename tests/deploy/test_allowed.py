"""A node imports nothing that the server names and its owner has not allowed."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

pytest.importorskip("flwr", reason="Flower is not installed: pip install 'fedpu[flower]'")

from fedpu.config import Config
from fedpu.deploy import NodeSettings
from fedpu.deploy.protocol import Briefing
from fedpu.errors import ConfigError

ASKED = {
    "method.name": "served:Mine",
    "model.name": "served:network",
    "method.surrogate": "served:loss",
    "priors.estimator": "served:Estimate",
    "priors.options.what": "served:thing",
}


@pytest.mark.parametrize(("key", "reference"), ASKED.items(), ids=ASKED)
def test_what_a_node_has_not_allowed_is_refused_before_it_is_imported(
    key: str, reference: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "served.py").write_text("raise SystemExit('imported')")
    monkeypatch.syspath_prepend(str(tmp_path))
    table, _, rest = key.partition(".")
    briefing = Briefing(f'[{table}]\n{rest} = "{reference}"\n')
    with pytest.raises(ConfigError, match=f"The server asks for '{reference}': .*'allow'"):
        briefing.read_config(NodeSettings(name="vet", data="vet.npz").allowed)
    assert "served" not in sys.modules


def test_what_is_allowed_is_used_and_data_of_the_server_are_not_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "vets.py").write_text(
        "from fedpu.method import FedPU\nclass Mine(FedPU):\n    pass\ndef network(shape, classes):\n    pass\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "vets", raising=False)
    node = NodeSettings(name="vet", data="vet.npz", model="vets:network", allow=["vets:Mine"])
    config = Config.load(overrides=["method.name=vets:Mine", "model.name=vets:network", "data.name=vets:read"])
    assert Briefing(config.to_toml()).read_config(node.allowed) == config
