"""The user's own network."""

from __future__ import annotations

from torch import nn

from fedpu.errors import ConfigError
from fedpu.models.base import Model
from fedpu.registry import import_object


class OwnModel(Model):
    """A function ``module:function`` that takes (input shape, number of classes) and returns a ``torch.nn.Module``."""

    name: str

    def build(self, shape: tuple[int, ...], classes: int) -> nn.Module:
        """Call the user's function."""
        function = import_object(self.name)
        try:
            built = function(shape, classes)
        except Exception as error:  # the user's own code
            raise ConfigError(
                f"model.name = '{self.name}': the function raised {type(error).__name__}: {error}. It is called with "
                f"the input's shape {shape} and the number of classes {classes}."
            ) from error
        if not isinstance(built, nn.Module):
            raise ConfigError(
                f"model.name = '{self.name}' returned {type(built).__name__}; it must return a torch.nn.Module."
            )
        return built
