"""faults: clients that fail or lie, as configuration, so that anybody can ask "what if two of ten do?"."""

from fedpu.faults.clients import FaultyClients
from fedpu.faults.labels import mislabelled
from fedpu.faults.settings import KINDS, Faults

__all__ = ["KINDS", "Faults", "FaultyClients", "mislabelled"]
