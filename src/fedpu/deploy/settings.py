"""A node's own configuration: who it is, where its data are, and how it reaches the server. It never travels."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pooch
from pydantic import Field, ValidationError

from fedpu.config.config import read_file
from fedpu.config.sections import explain
from fedpu.deploy.accepts import Accepts
from fedpu.errors import ConfigError, did_you_mean
from fedpu.flower.replies import NAME_RULE, is_name, shown
from fedpu.priors import Priors
from fedpu.registry import Settings, is_reference


class NodeSettings(Settings):
    """One client of a deployment, as its owner describes it."""

    name: str = Field(
        min_length=1, max_length=100, description="what the client is called in the record; no two have the same"
    )
    data: str | None = Field(
        None,
        description="its own data: a CSV, Parquet or .npz file, a folder of images, or 'module:function' that returns "
        "(x, y)",
    )
    label: str = Field("label", description="the column of a table that holds the classes")
    ignore: list[str] = Field([], description="columns of a table to leave out, such as identifiers")
    partition: int | None = Field(
        None, ge=0, description="for a trial: be this client of the data set that the server's configuration names"
    )
    image_size: tuple[int, int] | None = Field(
        None, description="height and width to which the images of a folder are resized"
    )
    classes: list[str] | None = Field(
        None, description="names of all classes of the federation, where the server has no data to know them from"
    )
    priors: Priors | None = Field(None, description="the client's class priors; else what the server's [priors] say")
    model: str | None = Field(
        None, description="a network of one's own, as 'module:function', that the server may ask this node to train"
    )
    allow: list[str] = Field(
        [],
        description="classes and functions, as 'module:Class', that the server may ask this node to import and use: "
        "its method, aggregation and so on",
    )
    superlink: str = Field("127.0.0.1:8000", description="host:port of the SuperLink")
    root_certificates: str | None = Field(None, description="file of the certificate that signs the SuperLink's")
    key: str | None = Field(None, description="file of this node's private key")
    server_key: str | None = Field(
        None,
        description="public key of the server's owner: the node answers runs alone that this key has invited it to",
    )
    accepts: Accepts | None = Field(
        None, description="the least privacy under which anything leaves; else as in the first run that it joins"
    )
    peers: dict[str, str] | None = Field(
        None,
        description="public keys of the other clients by name, for secure sums; else the owner of the server vouches "
        "for them",
    )
    insecure: bool = Field(
        False, description="connect without TLS and keys, and answer anybody's run: for trials on one machine"
    )

    state: str | None = Field(
        None, description="folder for what stays with the client between rounds; else beside its file, or in a cache"
    )

    def state_folder(self) -> Path:
        """Return where the client keeps what stays with it."""
        return Path(self.state) if self.state else Path(pooch.os_cache("fedpu")) / "nodes" / self.name

    @property
    def accepted(self) -> Accepts | None:
        """What is accepted of a run; None: anything, of a node that has no data of its own and says nothing else."""
        return self.accepts or (Accepts() if self.partition is None else None)

    @property
    def allowed(self) -> frozenset[str]:
        """Everything that the server may ask this node to import."""
        return frozenset(self.allow) | ({self.model} if self.model is not None else set())

    @classmethod
    def load(cls, path: Path) -> NodeSettings:
        """Read a node's file; paths in it are relative to its folder."""
        values = read_file(path)
        for key in values:
            if key == "secure_aggregation":
                raise ConfigError(f"'{path}': secure_aggregation belongs to the table [accepts].")
            if key not in cls.model_fields:
                raise ConfigError(f"'{path}' has no setting '{key}'.{did_you_mean(key, cls.model_fields)}")
        settings = cls.parse(values)
        if not is_name(settings.name):
            raise ConfigError(f"'{path}': name = '{shown(settings.name)}' can't be used: a name is {NAME_RULE}.")
        if (settings.data is None) == (settings.partition is None):
            raise ConfigError(f"'{path}' must say either 'data' (the node's own) or 'partition' (for a trial).")
        folder = path.resolve().parent
        files = {key: _beside(folder, getattr(settings, key)) for key in ("root_certificates", "key", "data", "state")}
        files["state"] = files["state"] or str(folder / f"{path.stem}.state")
        return settings.model_copy(update=files)

    @classmethod
    def parse(cls, values: dict[str, Any]) -> NodeSettings:
        """Check plain values."""
        accepts = values.get("accepts")
        if isinstance(accepts, dict):
            _check_accepts(accepts)
        try:
            return cls.model_validate_json(json.dumps(values, default=str), strict=True)
        except ValidationError as error:
            raise ConfigError(explain(error, cls, "node")) from error


def _check_accepts(values: dict[str, Any]) -> None:
    """Refuse a wrong value of the table, by its own name."""
    for key in values:
        if key not in Accepts.model_fields:
            raise ConfigError(f"[accepts] has no setting '{key}'.{did_you_mean(key, Accepts.model_fields)}")
    try:
        Accepts.model_validate_json(json.dumps(values, default=str), strict=True)
    except ValidationError as error:
        raise ConfigError(explain(error, Accepts, "accepts")) from error


def _beside(folder: Path, name: str | None) -> str | None:
    if name is None or is_reference(name):
        return name
    return str(folder / Path(name).expanduser())
