"""What a method does with the network, tried out before the first round on one batch."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from fedpu.engine.base import Job, trained_parameters
from fedpu.engine.client import begin, draw_batches, make_batch
from fedpu.priors import Priors
from fedpu.round import Broadcast, ClientRule, Work

BATCH = 32


def makes_inputs(job: Job) -> bool:
    """Does the method call the network on anything but the views of a batch, such as mixtures of examples?

    A stack of clients has run its networks before it asks the method, so it must know the inputs beforehand. Where the
    method can't be tried out, the answer is no, and a stack that meets such inputs later trains its clients one by one.
    """
    method = job.method
    if method.linear_form() is not None and len(method.views) == 1:
        return False  # the objective is never called
    try:
        with torch.random.fork_rng(devices=[]), torch.enable_grad():
            return _strange_inputs(replace(job, rule=ClientRule(), priors=Priors()))
    except Exception:  # whatever is wrong with the method is reported where it is trained
        return False


def _strange_inputs(job: Job) -> bool:
    """Call the objective once as the reference engine does, and watch the network's inputs."""
    network = job.initial_model()
    client = job.federation.client(_whom_to_ask(job))
    work = Work(client=0, round=0, lr=0.0, batch_size=BATCH)
    shared = job.method.first_shared(len(job.federation.classes), trained_parameters(network))
    sent = Broadcast(dict(network.state_dict()), shared=shared)
    begun = begin(job, network, client, sent, work, None, job.co_negatives())
    network.load_state_dict(begun.model)
    batch = make_batch(job, begun, draw_batches(job, client, work)[0], 0, torch.device("cpu"))
    strange = False

    def forward(inputs: Tensor) -> Tensor:
        nonlocal strange
        strange = strange or not any(inputs is view for view in batch.views.values())
        outputs: Tensor = network(inputs)
        return outputs

    job.method.objective(forward, batch, begun.constants)
    return strange


def _whom_to_ask(job: Job) -> int:
    """Return the smallest of the clients that have both labelled and unlabelled examples, if there are any."""
    federation = job.federation
    entries = federation.offsets.diff()
    labelled = federation.labelled_counts.sum(dim=1)
    both = (labelled > 0) & (labelled < entries)
    return int(torch.where(both | ~both.any(), entries, entries.max() + 1).argmin())
