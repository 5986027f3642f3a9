"""From a configuration to a result: the whole line, end to end, anew or where it had stopped."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from fedpu.aggregation import ServerState
from fedpu.applications.prepared import Prepared, prepare
from fedpu.applications.progress import round_bar
from fedpu.applications.recording import RoundLine
from fedpu.applications.training import OnRound, Ready, Result, make_ready, train
from fedpu.config import Config
from fedpu.data import FROM_PYTHON, Dataset
from fedpu.engine import Engine
from fedpu.errors import ConfigError, DataError, EstimationError, FedpuError, TrainingError
from fedpu.faults import FaultyClients
from fedpu.priors import guessing_warning
from fedpu.privacy import ProtectedClients
from fedpu.record import RunDirectory

NEGATIVES = "co_negatives"
"""name of the sum of negative classes in the server's state"""

OnNote = Callable[[str], None]
"""is told in a sentence what is worth knowing of a run before its first round"""


def run(
    config: Config,
    *,
    data: Dataset | None = None,
    out: str | Path | None = None,
    on_round: OnRound | None = None,
    on_note: OnNote | None = None,
    progress: bool = False,
) -> Result:
    """Train as configured; with ``out``, record the run in that directory. ``data`` replaces the configured data
    set. ``progress`` shows a bar, in a notebook as in a terminal.
    """
    if out is not None:
        RunDirectory.refuse_taken(Path(out))
    if data is not None:
        described = config.data.model_copy(update={"name": f"{FROM_PYTHON}{data.name}"})
        config = config.model_copy(update={"data": described})
    prepared = prepare(config, data)
    with round_bar(config.method.name, config.aggregation.rounds, progress) as bar:
        return run_prepared(config, prepared, out, _both(bar, on_round), on_note)


def _both(first: OnRound, second: OnRound | None) -> OnRound:
    def on_round(line: RoundLine) -> None:
        first(line)
        if second is not None:
            second(line)

    return on_round


def run_prepared(
    config: Config,
    prepared: Prepared,
    out: str | Path | None = None,
    on_round: OnRound | None = None,
    on_note: OnNote | None = None,
) -> Result:
    """Train on data that are prepared already. A run that fails before its first round is over leaves nothing."""
    ready = make_ready(config, prepared)
    if out is None:
        if config.record.trackers:
            raise ConfigError("record.trackers needs a run directory to write beside: give out=…, or set it to [].")
        return _train(config, prepared, ready, None, on_round, on_note)
    config.record.check()
    directory = RunDirectory.create(Path(out), config, prepared.partition, *prepared.recorded)
    try:
        with directory.locked():
            return _train(config, prepared, ready, directory, on_round, on_note)
    except (ConfigError, DataError, EstimationError, TrainingError):  # not a full disk, after which one resumes
        directory.discard()
        raise


def resume(
    path: str | Path,
    *,
    data: Dataset | None = None,
    engine: Engine | None = None,
    on_round: OnRound | None = None,
    on_note: OnNote | None = None,
) -> Result:
    """Go on with a recorded run after its last finished round, to the same result as if it had never stopped.

    ``engine`` replaces the recorded one, for example with another number of workers; the result is the same.
    """
    with RunDirectory.open(Path(path), check=False).locked() as directory:
        config = directory.config()
        if engine is not None:
            config = config.model_copy(update={"engine": engine})
        prepared = prepare(config, data, directory.partition())
        directory.check_data(*prepared.recorded)
        return _train(config, prepared, make_ready(config, prepared), directory, on_round, on_note)


class Outcome(NamedTuple):
    """What a finished run leaves: ``result.json``, and its rounds."""

    summary: dict[str, Any]
    curve: list[RoundLine]

    @property
    def accuracies(self) -> list[tuple[int, float]]:
        """The rounds that were measured, with their test accuracy."""
        return [(line["round"], line["accuracy"]) for line in self.curve if "accuracy" in line]

    @property
    def validations(self) -> list[tuple[int, float]]:
        """The rounds that were measured, with the score on what clients hold out; none where they hold nothing out."""
        return [(line["round"], line["validation"]) for line in self.curve if "validation" in line]


def run_or_resume(
    config: Config,
    out: Path | None,
    *,
    data: Dataset | None = None,
    engine: Engine | None = None,
    on_round: OnRound | None = None,
    on_note: OnNote | None = None,
) -> Outcome:
    """Return the outcome of a run in ``out``: of a finished one as it is there, else after going on with it, or after
    starting it. ``engine`` replaces the configured one, which changes nothing of the result.
    """
    if out is None or not RunDirectory(out).config_file.exists():
        started = config if engine is None else config.model_copy(update={"engine": engine})
        result = run_prepared(started, prepare(config, data), out, on_round, on_note)
        return Outcome(result.summary, result.curve)
    directory = RunDirectory.open(out)
    if not directory.config().gives_same_as(config):
        raise FedpuError(f"'{out}' holds a run with other settings. Delete it, or choose another --out.")
    summary = directory.result()
    if summary is not None:
        return Outcome(summary, directory.rounds())
    result = resume(out, data=data, engine=engine, on_round=on_round, on_note=on_note)
    return Outcome(result.summary, result.curve)


def _train(
    config: Config,
    prepared: Prepared,
    ready: Ready,
    directory: RunDirectory | None,
    on_round: OnRound | None,
    on_note: OnNote | None,
) -> Result:
    faulty = config.faults.drawn(config.seed, len(prepared.federation))
    job, network, guard, state = ready
    federation = job.federation
    if directory:
        state = directory.resume_state(state, network)
    if guard and guard.lends and not state.once:
        sizes = federation.sizes if config.method.lends_by_size else None
        state = replace(state, once={NEGATIVES: guard.co_negatives(federation.positive, sizes)})
    job = replace(job, negatives=state.once.get(NEGATIVES))
    slow = config.engine.slow_because(job) if on_note else None
    if on_note and slow:
        on_note(f"Clients are trained one after another, which is slower and gives the same model: {slow}.")
    known = prepared.server_side
    guessing = guessing_warning(federation, config.priors) if config.method.needs_priors else None
    if guessing:
        known = replace(known, facts=known.facts | {"warnings": [guessing]})
        if on_note:
            on_note(guessing)
    if faulty:
        named = config.faults.named(config.seed, len(federation))
        known = replace(known, facts=known.facts | {"faults": named})
    with config.engine.start(job) as clients:
        if faulty:
            first = ServerState.initial(job.initial_model(), len(federation), config.aggregation, {}).model
            clients = FaultyClients(clients, config.faults, faulty, first, config.seed)
        if guard:
            clients = ProtectedClients(clients, guard)
        return train(config, known, network, state, clients, guard, directory, on_round)
