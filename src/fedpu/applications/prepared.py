"""What is prepared before a run: the data, handed out and labelled, and what the server of a run knows of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from fedpu.config import Config
from fedpu.data import Dataset, Encoding, dtype_name, load
from fedpu.errors import ConfigError
from fedpu.labelling import (
    Federation,
    HiddenTruth,
    TestSet,
    draw_held_out,
    holdings,
    label,
    label_everything,
    split,
    without_priors,
)
from fedpu.partition import Partition
from fedpu.priors import set_priors
from fedpu.record import ModelCard
from fedpu.validation import HeldOut

MOST_CLIENTS_TOLD = 100
"""clients up to which a record has a value for each of them"""


@dataclass(frozen=True, eq=False)
class Prepared:
    """Data, handed out and labelled: what training may see, and what only evaluation may see."""

    name: str
    partition: Partition
    federation: Federation
    test_set: TestSet | None
    """None: the data have none, and nothing is measured"""
    hidden: HiddenTruth
    true_priors: Float[Tensor, "K C"] | None = None
    """the class shares of every client, where all classes are known; what estimates are measured against"""
    held_out: HeldOut | None = None
    """what clients hold out of training, with evaluation.validation"""
    validation_set: TestSet | None = None
    """what the server has for validation, with data.pooled"""
    whole: tuple[Federation, HiddenTruth] | None = None
    """the federation before anything was held out of it, which the record describes"""
    encoding: Encoding | None = None
    """how the columns of a table became the inputs"""
    measured_on: dict[str, Any] | None = None
    """on what the model is measured, in words; None: on nothing"""

    @property
    def recorded(self) -> tuple[Federation, HiddenTruth]:
        """All data as they were labelled."""
        return self.whole or (self.federation, self.hidden)

    @property
    def card(self) -> ModelCard:
        """What a model trained on it needs to be used elsewhere."""
        fed = self.federation
        shape = tuple(fed.inputs.shape[1:])
        return ModelCard(shape, dtype_name(fed.inputs), fed.classes, fed.normalisation, self.encoding)

    @property
    def server_side(self) -> ServerSide:
        """What the server of a run on it knows."""
        fed = self.federation
        facts = {
            "data": self.name,
            "clients": len(fed),
            "examples": int(fed.sizes.sum()),
            "labelled": int((fed.labels >= 0).sum()),
            "positive": [torch.nonzero(row)[:, 0].tolist() for row in fed.positive]
            if len(fed) <= MOST_CLIENTS_TOLD
            else None,
        }
        if len(fed) <= MOST_CLIENTS_TOLD:
            facts["holdings"] = holdings(*self.recorded).to_dict()
        if self.held_out is not None:
            facts["held_out"] = len(self.held_out)
        if self.encoding is not None:
            facts["columns"] = self.encoding.to_dict()
        return ServerSide(
            self.card,
            len(fed),
            self.test_set,
            facts,
            self.true_priors,
            fed.priors,
            self.held_out,
            self.validation_set,
            self.measured_on,
            fed if self.measured_on is not None and not self.measured_on["is_accuracy"] else None,
        )


@dataclass(frozen=True, eq=False)
class ServerSide:
    """What the server of a run knows besides how to reach its clients.

    On real nodes that is no example and no label of theirs; what a simulation has besides is said to be of one.
    """

    card: ModelCard
    population: int
    test_set: TestSet | None
    """what the global model is measured on; None: nobody measures"""
    facts: dict[str, Any]
    """what is said of data and clients in ``result.json``"""
    true_priors: Float[Tensor, "K C"] | None = None
    """what estimated priors are measured against, in a simulation"""
    first_priors: Float[Tensor, "K C"] | None = None
    """what clients that estimate their priors begin with"""
    held_out: HeldOut | None = None
    """in a simulation: what clients hold out of training, and the model is scored on"""
    validation_set: TestSet | None = None
    """examples with classes that nobody trains on, which the schedule of the learning rate may follow"""
    measured_on: dict[str, Any] | None = None
    """what the test set is, in words"""
    estimated_on: Federation | None = None
    """in a simulation without a fully labelled test set: all data, from which estimates are made in its place"""


def prepare(config: Config, data: Dataset | None = None, partition: Partition | None = None) -> Prepared:
    """Load, partition and label the data as the configuration says; a data set or a partition at hand is used
    instead.
    """
    data = data or load(config.data)
    partition = partition or config.partition.split(data, config.seed)
    if config.method.fully_labelled:
        federation, hidden = label_everything(data, partition, config.seed)
    else:
        federation, hidden = label(data, partition, config.labelling, config.seed)
    true_priors = federation.priors
    whole, held_out = None, None
    if config.evaluation.validation:
        whole = (federation, hidden)
        federation, hidden, held_out = _hold_out(config, federation, hidden)
    # A method that needs no priors is not handed the true ones either: they tell of hidden labels.
    federation = set_priors(federation, config.priors) if config.method.needs_priors else without_priors(federation)
    return Prepared(
        data.name,
        partition,
        federation,
        TestSet.of(data),
        hidden,
        true_priors,
        held_out,
        whole=whole,
        validation_set=TestSet.of_validation(data),
        encoding=data.encoding,
        measured_on=describe_test(data),
    )


def describe_test(data: Dataset) -> dict[str, Any] | None:
    """Return what a model of these data is measured on, and whether that is an accuracy; None where on nothing."""
    if not len(data.test_labels):
        return None
    examples = len(data.test_labels)
    if data.test_origin == "given":
        return {"set": "test set", "examples": examples, "is_accuracy": True, "note": "the test set of the data"}
    if not bool((data.labels < 0).any()):
        note = "examples of every class that were set aside from the data, all of which are labelled"
        return {"set": "set aside", "examples": examples, "is_accuracy": True, "note": note}
    note = (
        "labelled examples that were set aside. The data are only partly labelled: nobody knows the classes of the "
        "rest, and labelled examples may have other class shares and be easier. Read the estimates, or give a fully "
        "labelled test set."
    )
    return {"set": "labelled examples set aside", "examples": examples, "is_accuracy": False, "note": note}


def _hold_out(config: Config, federation: Federation, hidden: HiddenTruth) -> tuple[Federation, HiddenTruth, HeldOut]:
    """Return what training may see, and what clients hold out, with what they know of all of their data."""
    if config.privacy.differential != "off":
        raise ConfigError(
            "evaluation.validation publishes a number made of clients' own data after every round, which the ε of "
            "[privacy] does not count. Choose settings without differential privacy, or set evaluation.validation = 0."
        )
    drawn = draw_held_out(federation, config.evaluation.validation, config.seed)
    if not bool(drawn.any()):
        raise ConfigError(
            f"evaluation.validation = {config.evaluation.validation} holds out not a single example: clients have too "
            "few. Raise it, or set it to 0."
        )
    known = federation if config.method.fully_labelled else set_priors(federation, config.priors)
    rest, truth, held_out = split(federation, hidden, drawn)
    return rest, truth, HeldOut(held_out, known.summary(torch.arange(len(known))), federation.sizes)
