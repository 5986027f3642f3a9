"""record: what happened, in open formats."""

from fedpu.record.files import reading, telling_disk_errors, write_atomically
from fedpu.record.lock import InUse, locked
from fedpu.record.progress import Progress, progress_of
from fedpu.record.run_directory import Members, ModelCard, RunDirectory, fit

__all__ = [
    "InUse",
    "Members",
    "ModelCard",
    "Progress",
    "RunDirectory",
    "fit",
    "locked",
    "progress_of",
    "reading",
    "telling_disk_errors",
    "write_atomically",
]
