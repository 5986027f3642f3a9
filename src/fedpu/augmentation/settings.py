"""The table ``[augmentation]``, and the views that it describes."""

from __future__ import annotations

from typing import Literal, get_args

from pydantic import field_validator

from fedpu.augmentation.keys import Keys
from fedpu.augmentation.transforms import TRANSFORMS
from fedpu.augmentation.view import View
from fedpu.errors import ConfigError, did_you_mean

ViewName = Literal["clean", "weak", "strong"]
VIEWS: tuple[ViewName, ...] = get_args(ViewName)


class Augmentation(Keys):
    """How a batch is shown to a network in training: as it is, changed a little, or changed a lot."""

    @field_validator("weak", "strong")
    @classmethod
    def _known(cls, names: list[str]) -> list[str]:
        for name in names:
            if name not in TRANSFORMS and ":" not in name:
                known = ", ".join(repr(known) for known in TRANSFORMS)
                raise ValueError(
                    f"there is no transform called '{name}'.{did_you_mean(name, TRANSFORMS)} The transforms are "
                    f"{known}, or your own as module:Class"
                )
        return names

    def view(self, name: str) -> View:
        """Return the view of a name: "clean", "weak" or "strong"."""
        if name not in VIEWS:
            raise ConfigError(f"There is no view '{name}'.{did_you_mean(name, VIEWS)} Views: {', '.join(VIEWS)}.")
        chosen = {"clean": [], "weak": self.weak, "strong": self.strong}[name]
        return View(tuple(TRANSFORMS[transform](self) for transform in chosen))

    def check(self, shape: tuple[int, ...]) -> None:
        """Refuse inputs of a shape that one of the views can't be made of."""
        for name in VIEWS:
            self.view(name).check(shape)

    def without_unused(self) -> Augmentation:
        """Return the settings with those at their defaults that no transform of the two views reads."""
        names = {*self.weak, *self.strong}
        if any(":" in name for name in names):  # a transform of the user's may read any key
            return self
        used = {key for name in names for key in TRANSFORMS[name].keys}
        return Augmentation(**self.model_dump(include={"weak", "strong", *used}))
