"""record: what happened, in open formats."""

from fedpu.record.files import telling_disk_errors, write_atomically
from fedpu.record.run_directory import ModelCard, RunDirectory

__all__ = ["ModelCard", "RunDirectory", "telling_disk_errors", "write_atomically"]
