"""Bad configurations, settings, files, replies and commands: each works or ends in a sentence, never in a traceback."""

from __future__ import annotations

import io
import math
import os
import signal
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr, redirect_stdout
from copy import deepcopy
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import torch
from runs import DIGITS
from tally import Tally

from fedpu.cli.app import main
from fedpu.config import SECTIONS, Config, default_file
from fedpu.data import DataSettings, load, read_inputs
from fedpu.deploy.settings import NodeSettings
from fedpu.engine.screen import Screen
from fedpu.engine.validate import Expected, fault
from fedpu.errors import FedpuError
from fedpu.flower.messages import MODEL, pack_update, unpack_update
from fedpu.flower.replies import BadReply
from fedpu.round import Broadcast, Update

LONGEST = 60
"""seconds after which an input that should have been refused has made us hang"""
LONGEST_PROCESS = 600
"""the same for a process of its own, whose start takes seconds of CPU that a busy machine may not have for a minute"""
BATCH = 25
"""inputs between two looks at the clock"""


class Hang(BaseException):
    """It took too long."""


def guarded(work: Callable[[], Any], seconds: int | None = None) -> tuple[str, str | None]:
    """Do work; return how it ended, and what is wrong with that."""
    longest = LONGEST if seconds is None else seconds

    def late(signal_: int, frame: FrameType | None) -> None:
        raise Hang

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(longest)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            work()
    except (FedpuError, BadReply):
        return "a sentence", None
    except SystemExit:
        return "a sentence", None
    except Hang:
        return "hung", f"it did not end in {longest} seconds"
    except Exception as error:
        return "a traceback", f"{type(error).__name__}: {str(error)[:300]}"
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
    return "worked", None


def inputs(tally: Tally, rng: np.random.Generator, folder: Path) -> Iterator[None]:
    """Try one bad input after another, of every kind in turn."""
    kinds: dict[str, Callable[[], tuple[str, Callable[[], Any]]]] = {
        "configuration": lambda: configuration(rng),
        "file of settings": lambda: settings_file(rng, folder),
        "setting": lambda: setting(rng),
        "reply": lambda: reply(rng),
        "data": lambda: data_file(rng, folder),
        "node's file": lambda: node_file(rng, folder),
        "command": lambda: command(rng),
        "process": lambda: process(rng),
    }
    shares = [0.28, 0.15, 0.2, 0.2, 0.08, 0.06, 0.0275, 0.0025]
    os.chdir(folder)
    while True:
        for _ in range(BATCH):
            kind = str(rng.choice(list(kinds), p=shares))
            about, work = kinds[kind]()
            end, finding = guarded(work, LONGEST_PROCESS if kind == "process" else None)
            tally.add("worked" if end == "worked" else end, finding and f"{kind} {about[:300]}: {finding}")
            tally.ends[f"of them {kind}"] += 1
        yield


ODD: list[Any] = [
    -1, 0, 1, 2**31, 2**63, 10**30, -0.5, 0.5, 1e-300, 1e300, math.inf, -math.inf, math.nan, True, False, None,
    "", "x", "auto", "é", "../..", "a:b", "os:system", "\x00", "1", "fedpu", "none",
    [], [1], [[]], [[0], [1]], ["shift"], {}, {"a": 1},
]  # fmt: skip


def configuration(rng: np.random.Generator) -> tuple[str, Callable[[], Any]]:
    """Nested tables with odd keys and values in any place."""
    values: dict[str, Any] = {name: dict(table) for name, table in DIGITS.items()}
    for _ in range(int(rng.integers(1, 4))):
        table = str(rng.choice([*SECTIONS, "seed", "nothing"]))
        value = deepcopy(ODD[int(rng.integers(len(ODD)))])  # it may get odd keys of its own below
        if table in SECTIONS and rng.random() < 0.9:
            keys = [key for key, _ in SECTIONS[table].fields()]
            inside = values.setdefault(table, {})
            if isinstance(inside, dict):
                inside[str(rng.choice([*keys, "nothing", "nam"]))] = value
        else:
            values[table] = value
    return repr(values), lambda: Config.from_dict(values).to_toml()


def settings_file(rng: np.random.Generator, folder: Path) -> tuple[str, Callable[[], Any]]:
    """The default configuration file, damaged."""
    path = folder / "damaged.toml"
    content = damaged(default_file().encode(), rng)
    path.write_bytes(content)
    return repr(content[:100]), lambda: Config.load(path).to_toml()


def setting(rng: np.random.Generator) -> tuple[str, Callable[[], Any]]:
    """One ``--set`` that makes little sense."""
    table = str(rng.choice(list(SECTIONS)))
    key = str(rng.choice([key for key, _ in SECTIONS[table].fields()]))
    value = str(ODD[int(rng.integers(len(ODD)))])
    text = damaged(f"{table}.{key}={value}".encode(), rng).decode("utf-8", "replace")
    text = text if rng.random() < 0.5 else f"{table}.{key}={value}"
    base = Config.from_dict(DIGITS)
    return text, lambda: base.with_(text).to_toml()


SENT = {"w": torch.ones(2, 3), "b": torch.zeros(3), "steps": torch.tensor(4)}


def reply(rng: np.random.Generator) -> tuple[str, Callable[[], Any]]:
    """An answer of a client's whose bytes or numbers are not what they should be."""
    from flwr.app import ConfigRecord, MetricRecord

    model = {name: value.clone() for name, value in SENT.items()}
    name = str(rng.choice(list(model)))
    change = int(rng.integers(8))
    if change == 0:
        model[name] = model[name].double() * float(rng.choice([math.nan, math.inf, 3e38, 1e12, 7.0]))
    elif change == 1:
        model[name] = torch.full_like(model[name].float(), float(rng.choice([math.nan, math.inf, -1e30])))
    elif change == 2:
        model.pop(name)
    elif change == 3:
        model["\x1b[2J"] = torch.ones(int(rng.integers(4)))
    content = pack_update(Update(0, int(rng.choice([10, 0, 10**12, 11])), model, {"total": 1.0}), report_risk=True)
    if change == 4:
        content[MODEL] = ConfigRecord({MODEL: damaged(b"\x10" + b"\0" * 7 + b'{"a":[1,2,3]}', rng)})
    elif change == 5:
        content["counts"] = MetricRecord({"examples": float(rng.choice([math.nan, math.inf, -1, 10]))})
    elif change == 6:
        content["risk"] = MetricRecord({"x" * int(rng.integers(200)): float(rng.choice([math.nan, 1e300, 1.0]))})
    elif change == 7:
        packed: Any = pack_update(Update(0, 10, model, {}), report_risk=False)[MODEL]
        whole: Any = packed[MODEL] if isinstance(packed, ConfigRecord) else packed[MODEL].numpy().tobytes()
        content[MODEL] = ConfigRecord({MODEL: damaged(whole, rng)})

    def judged() -> None:
        update = unpack_update(content, 0)
        wrong = fault(update, Broadcast(SENT), Expected({}, {}), None, 10)
        if wrong is not None:
            raise BadReply(wrong)
        for taken in Screen(Broadcast(SENT), 5.0, str).read([update, Update(1, 10, SENT, {})]):
            assert all(bool(torch.isfinite(value).all()) for value in taken.model.values())

    return f"change {change} of {name}", judged


TABLE = b"age,colour,label\n" + b"".join(
    b"%d,%s,%s\n" % (k, (b"red", b"", b"blue")[k % 3], (b"yes", b"")[k % 2]) for k in range(30)
)
NODE = b"""name = "north"
data = "north.npz"
superlink = "server.example.org:8443"
root_certificates = "ca.crt"
key = "north"

[accepts]
differential = "local"
noise_multiplier = 1.0
epsilon = 8.0

[priors]
source = "given"
values = [0.4, 0.3, 0.2, 0.1]
"""


def node_file(rng: np.random.Generator, folder: Path) -> tuple[str, Callable[[], Any]]:
    """The file of a node, damaged, or with an odd value in it."""
    path = folder / "node.toml"
    value = repr(ODD[int(rng.integers(len(ODD)))])
    lines = NODE.splitlines()
    place = int(rng.integers(len(lines)))
    lines[place] = lines[place].partition(b"=")[0] + b"= " + value.encode()
    content = damaged(NODE, rng) if rng.random() < 0.5 else b"\n".join(lines)
    path.write_bytes(content)
    return repr(content[:200]), lambda: NodeSettings.load(path)


def data_file(rng: np.random.Generator, folder: Path) -> tuple[str, Callable[[], Any]]:
    """An array or an image that is damaged, or of a shape and type that nobody can train on."""
    kind = str(rng.choice([".npy", ".npz", ".png", ".csv"]))
    path = folder / f"damaged{kind}"
    shape = tuple(int(size) for size in rng.integers(0, 5, size=int(rng.integers(0, 5))))
    array = np.zeros(shape, dtype=str(rng.choice(["u1", "i8", "f4", "f8", "c8", "U3", "?", "M8[s]"])))
    file = io.BytesIO()
    if kind == ".csv":
        file.write(TABLE)
    elif kind == ".npy":
        np.save(file, array)
    elif kind == ".npz":
        np.savez(file, x=array, y=rng.integers(-1, 3, size=shape[:1] or (1,)))
    else:
        from PIL import Image

        Image.fromarray(np.zeros((4, 4), np.uint8)).save(file, "PNG")
    content = file.getvalue()
    path.write_bytes(damaged(content, rng) if rng.random() < 0.7 else content)
    if kind == ".csv" or (kind == ".npz" and rng.random() < 0.5):
        return f"{kind} {shape} {array.dtype}", lambda: load(DataSettings(name=str(path)))
    return f"{kind} {shape} {array.dtype}", lambda: read_inputs(path, (4, 4), 1)


COMMANDS = [
    ["run", "nowhere.toml"], ["run", "--preset", "quick"], ["run", "--resume", "nowhere"], ["run", "--set", "?"],
    ["compare", "--methods", "?"], ["compare", "--seeds", "?"], ["compare", "--preset", "?"], ["tune", "--over", "?"],
    ["tune", "--seeds", "?"], ["show", "?"], ["evaluate", "?"], ["predict", "?", "?"], ["config", "?"],
    ["priors", "x.toml"], ["bound", "--set", "?"], ["bench", "--clients", "?"], ["reproduce", "--table", "?"],
    ["data", "?"], ["?"], ["deploy", "init", "?", "--nodes", "?"], ["deploy", "node", "?"], ["deploy", "?"],
    ["run", "--engine", "?"],
]  # fmt: skip
WORDS = [
    "",
    "x",
    "-1",
    "0",
    "²",
    "é:1",
    "a,a",
    "..",
    "/",
    "\x1b[2J",
    "method.name=x",
    "seed=-1",
    "1e9",
    "--",
    "-h",
    "a=b=c",
]


def words(rng: np.random.Generator) -> list[str]:
    """Return a command line with words in the wrong places; none starts a long run."""
    line = [WORDS[int(rng.integers(len(WORDS)))] if w == "?" else w for w in COMMANDS[int(rng.integers(len(COMMANDS)))]]
    return [*line, WORDS[int(rng.integers(len(WORDS)))]] if rng.random() < 0.2 else line


def command(rng: np.random.Generator) -> tuple[str, Callable[[], Any]]:
    """A command line, in this process."""
    line = words(rng)

    def invoke() -> None:
        before = sys.argv
        sys.argv = ["fedpu", *line]
        try:
            with open(os.devnull, "w") as nowhere, redirect_stdout(nowhere), redirect_stderr(nowhere):
                main()
        finally:
            sys.argv = before

    return repr(line), invoke


def process(rng: np.random.Generator) -> tuple[str, Callable[[], Any]]:
    """A command line, in a process of its own, as a user starts it."""
    line = words(rng)

    def start() -> None:
        done = subprocess.run([sys.executable, "-m", "fedpu", *line], capture_output=True, text=True, errors="replace")
        if "Traceback" in done.stderr or done.returncode not in (0, 1, 2):
            raise RuntimeError(f"status {done.returncode}: {done.stderr[-200:]}")
        if done.returncode:
            raise SystemExit(done.returncode)

    return repr(line), start


def damaged(content: bytes, rng: np.random.Generator) -> bytes:
    """Return bytes of which some are changed, lost or doubled."""
    changed = bytearray(content)
    for _ in range(int(rng.integers(1, 4))):
        at = int(rng.integers(len(changed) + 1))
        what = int(rng.integers(4))
        if what == 0:
            changed[at : at + 1] = rng.bytes(1)
        elif what == 1:
            del changed[at : at + int(rng.integers(1, 20))]
        elif what == 2:
            changed[at:at] = changed[at : at + int(rng.integers(1, 40))]
        else:
            changed = changed[: max(at, 1)]
    return bytes(changed)
