"""cli: the command ``fedpu``."""

from fedpu.cli.app import main

__all__ = ["main"]
