"""config: one typed, frozen configuration."""

from fedpu.config.config import Config
from fedpu.config.default_file import default_file
from fedpu.config.sections import SECTIONS, EvaluationSettings

__all__ = ["SECTIONS", "Config", "EvaluationSettings", "default_file"]
