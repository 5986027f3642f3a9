"""A method, a partition and an aggregation of one's own, in a file outside the package. From this folder:

    fedpu run --set data.name=digits --set labelling.positive=2 --set model.name=mlp \
        --set method.name=mine:Taught --set partition.kind=mine:Unequal --set partition.clients=5 \
        --set aggregation.name=mine:TrimmedMean --set aggregation.rounds=50 --set aggregation.lr=0.05 \
        --set 'augmentation.weak=["shift"]' --set 'augmentation.strong=["shift", "noise"]' --set augmentation.shift=1

    python -c "from fedpu.testing import check_method; from mine import Taught; check_method(Taught)"
"""

import numpy as np
import torch
import torch.nn.functional as F
from pydantic import Field

import fedpu
from fedpu.randomness import numpy_generator


class Taught(fedpu.Method):
    """The received model, as a teacher, names unlabelled examples; a strongly changed view of them learns the names.

    A client averages the teacher's opinions of each example over the rounds (its state) and aligns them with the class
    shares of its unlabelled data. How sure they are of each class is averaged over all clients (what is shared).
    """

    views = ("weak", "strong")
    memory: float = Field(0.5, ge=0, lt=1, description="how much of an opinion is that of earlier rounds")
    threshold: float = Field(0.8, ge=0, le=1, description="how sure an opinion must be, beside the usual in its class")

    def start(self, client):
        """Return a client's first state: no opinion of any of its examples."""
        classes = len(client.positive)
        return {"opinions": torch.full((len(client.labels), classes), 1 / classes)}

    def shares(self, classes):
        """Return what clients share before the first round."""
        return {"sureness": torch.ones(classes)}

    def prepare(self, now):
        """Form an opinion of every example before the first step."""
        outputs = now.outputs().softmax(dim=1).float()
        opinions = self.memory * now.state["opinions"] + (1 - self.memory) * outputs
        expected, unlabelled = now.constants.unlabelled_priors, now.client.labels < 0
        found = opinions[unlabelled].mean(dim=0) if unlabelled.any() else expected
        aligned = opinions * expected / found.clamp(min=1e-6)
        sure, target = (aligned / aligned.sum(dim=1, keepdim=True).clamp(min=1e-6)).max(dim=1)
        named = F.one_hot(target, outputs.shape[1]).float()
        mean = (named * sure[:, None]).sum(dim=0) / named.sum(dim=0).clamp(min=1)
        usual = now.shared["sureness"]
        return fedpu.Preparation(
            examples={"target": target, "learned": (sure >= self.threshold * usual[target]).float()},
            state={"opinions": opinions},
            shared={"sureness": torch.where(named.any(dim=0), mean, usual)},
        )

    def objective(self, forward, batch, constants):
        """Return the cross-entropy with given labels, and with the teacher's where it is sure."""
        weak, strong = forward(batch.views["weak"]), forward(batch.views["strong"])
        labelled = (batch.labels >= 0).float()
        given = F.cross_entropy(weak, batch.labels.clamp(min=0), reduction="none") * labelled
        taught = F.cross_entropy(strong, batch.examples["target"], reduction="none") * batch.examples["learned"]
        terms = {"given": given.sum() / labelled.sum().clamp(min=1), "taught": (taught * (1 - labelled)).mean()}
        return terms | {"total": terms["given"] + terms["taught"]}


class Unequal(fedpu.Partitioner):
    """Random parts, each client's ``ratio`` times as large as the one's before it."""

    clients: int = Field(5, ge=1, description="number of clients")
    ratio: float = Field(1.5, gt=0, description="a client's examples over those of the client before it")

    def split(self, data, seed):
        """Shuffle the examples and cut them; everybody gets one at least."""
        self.refuse_too_many(self.clients, data)
        weights = self.ratio ** np.arange(self.clients)
        spare = len(data.labels) - self.clients
        ends = np.arange(1, self.clients) + np.floor(spare * np.cumsum(weights)[:-1] / weights.sum()).astype(int)
        order = numpy_generator(seed, "unequal parts").permutation(len(data.labels))
        return fedpu.Partition.of(np.split(order, ends))


class TrimmedMean(fedpu.Aggregation):
    """Of every parameter the largest and the smallest values are left out of the mean (Yin et al. 2018)."""

    trim: float = Field(0.2, ge=0, lt=0.5, description="share of the clients left out at each end")

    def combine(self, state, updates):
        """Return the server's state after a round."""
        models = [update.model for update in updates]
        cut = int(self.trim * len(models))
        model = {}
        for name, before in state.model.items():
            ordered = torch.stack([one[name] for one in models]).sort(dim=0).values
            model[name] = ordered[cut : len(models) - cut].double().mean(dim=0).to(before.dtype)
        return state.after(model)
