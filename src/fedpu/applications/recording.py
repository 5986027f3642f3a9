"""What is recorded of a run: its measures, the line of each round, and the summary."""

from __future__ import annotations

import platform
from dataclasses import asdict
from importlib.metadata import version
from typing import Any

import torch
from torch import nn

from fedpu.algorithm import Round
from fedpu.applications.memory import memory_of_all_processes
from fedpu.applications.prepared import ServerSide
from fedpu.config import Config
from fedpu.engine import ClientStates, predict
from fedpu.engine.client import PRIORS_STATE
from fedpu.evaluation import Metrics, estimates, evaluate, measure
from fedpu.native import kernels_are
from fedpu.priors.running import PRIORS, priors_report
from fedpu.privacy import Guard
from fedpu.round import Tensors, under
from fedpu.valid_json import finite
from fedpu.validation import Validation, tallies, validation_of

VALIDATION = ("validation", "validation_temperature", "validation_as_trained", "validation_accuracy")
"""names in the record, where clients hold data out: the score without hidden labels, at which temperature, and at
temperature 1; accuracy on labels alone
"""

VALIDATION_SET = "validation_set"
"""name in the record of accuracy and loss on the server's own validation data"""

RoundLine = dict[str, Any]


def line_of(
    done: Round, config: Config, known: ServerSide, network: nn.Module, states: ClientStates, guard: Guard | None
) -> RoundLine:
    """Measure the model of a round where that is due, and return what the record says of the round. ``network`` is
    left with the model of the round, or as it was.
    """
    metrics, measured, validation = None, None, None
    if done.number % config.evaluation.every == 0 or done.number == config.aggregation.rounds:
        network.load_state_dict(done.state.model)
        device, classes = config.engine.compute_device(), len(known.card.classes)
        if known.test_set is not None:
            metrics = evaluate(network, known.test_set, classes, device)
        if known.validation_set is not None:
            measured = evaluate(network, known.validation_set, classes, device)
        if known.held_out is not None:
            own = {k: found[PRIORS] for k, found in _estimated_priors(states).items()}
            validation = validation_of(tallies(network, known.held_out, device, own))
    return (
        _line(done, metrics, validation, guard, known.measured_on)
        | ({VALIDATION_SET: {"accuracy": measured.accuracy, "loss": measured.loss}} if measured else {})
        | config.aggregation.report(done.state)
        | config.method.report(done.state.memory)
        | _priors_line(states, done, known)
    )


def summary_of(
    config: Config,
    known: ServerSide,
    curve: list[RoundLine],
    guard: Guard | None,
    network: nn.Module,
    states: ClientStates,
) -> dict[str, Any]:
    """Return what ``result.json`` says of a run: its last round, its data, and measures of the final model."""
    found: dict[str, Any] = finite(_summary(config, known, curve, guard) | _measured(config, known, network, states))
    return found


def _line(
    done: Round,
    metrics: Metrics | None,
    validation: Validation | None,
    guard: Guard | None,
    measured_on: dict[str, Any] | None,
) -> RoundLine:
    line: RoundLine = {"round": done.number}
    if metrics:
        line |= asdict(metrics)
        if measured_on is not None and not measured_on["is_accuracy"]:
            line["measured_on"] = measured_on["set"]
    if validation:
        line |= validation.to_dict()
    spent = guard.spent(done.number) if guard else None
    if spent:
        line |= asdict(spent)
    line |= {
        "risk": done.terms,
        "clients": done.clients,
        "lr": done.lr,
        "bytes": asdict(done.traffic),
        "seconds": round(done.seconds, 4),
    }
    judged = {"left_out": done.left_out, "cut": done.cut}
    return line | {name: told for name, told in judged.items() if told}


def _priors_line(states: ClientStates, done: Round, known: ServerSide) -> RoundLine:
    """Return what the record says of priors that clients of this machine have estimated in a round."""
    own = _estimated_priors(states)
    if not own or known.first_priors is None:
        return {}
    return priors_report(own, known.first_priors, done.number, known.true_priors)


def _estimated_priors(states: ClientStates) -> dict[int, Tensors]:
    """Return what clients of this machine keep of the priors that they estimate."""
    return {k: found for k, state in states.items() if (found := under(PRIORS_STATE, state))}


def _measured(config: Config, known: ServerSide, network: nn.Module, states: ClientStates) -> dict[str, Any]:
    """Return all that is measured of the final model, and on what."""
    told: dict[str, Any] = {"measured_on": known.measured_on}
    if known.test_set is None:
        return told
    device = config.engine.compute_device()
    logits = predict(network, known.test_set.inputs, known.test_set.normalisation, device)
    if not bool(torch.isfinite(logits).all()):
        return told
    measures = measure(logits, known.test_set.labels, known.card.classes)
    told["measures"] = asdict(measures)
    everything = known.estimated_on
    if everything is None or config.privacy.differential != "off":  # more of clients' data, which no ε counts
        return told
    priors = None
    if known.first_priors is not None:
        own = known.first_priors.double().clone()
        for k, found in _estimated_priors(states).items():
            own[k] = found[PRIORS].double()
        priors = (everything.sizes.double() / everything.sizes.sum()) @ own
    outputs = predict(network, everything.inputs, everything.normalisation, device)
    shares = torch.bincount(outputs.argmax(dim=1), minlength=len(known.card.classes)).double() / len(outputs)
    return told | {"estimates": estimates(measures, priors, shares, config.priors.source)}


def _summary(config: Config, known: ServerSide, curve: list[RoundLine], guard: Guard | None) -> dict[str, Any]:
    last = curve[-1]
    spent = {name: last[name] for name in ("epsilon", "delta") if name in last}
    return {
        "method": config.method.model_dump()["name"],
        "accuracy": last.get("accuracy"),
        "rounds": last["round"],
        "seed": config.seed,
        "loss": last.get("loss"),
        "per_class_accuracy": last.get("per_class_accuracy"),
        **{name: last[name] for name in VALIDATION if name in last},
        **(spent | {"privacy": guard.meaning} if guard and spent else {}),
        **known.facts,
        **_true_priors(known, curve),
        "memory_mb": _memory(),
        "seconds": round(sum(line["seconds"] for line in curve), 2),
        "versions": {
            "fedpu": version("fedpu"),
            "torch": torch.__version__,
            "python": platform.python_version(),
            **({"kernels": kernels} if (kernels := kernels_are()) else {}),
        },
    }


def _true_priors(known: ServerSide, curve: list[RoundLine]) -> dict[str, Any]:
    """Return what priors that were estimated are measured against, where evaluation knows it and it is not too long."""
    told = any("values" in line.get("priors", {}) for line in curve)
    if not told or known.true_priors is None:
        return {}
    return {"true_priors": [[round(value, 5) for value in row] for row in known.true_priors.tolist()]}


def _memory() -> float | None:
    """Return the megabytes of all processes of the run at its end; nothing where the system does not tell."""
    try:
        return round(memory_of_all_processes(), 1)
    except (OSError, ImportError):  # a worker has just ended, or the system has no such numbers
        return None
