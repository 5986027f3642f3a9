"""The transforms by name."""

from __future__ import annotations

from fedpu.augmentation.affine import Affine
from fedpu.augmentation.colour import Colour
from fedpu.augmentation.cutout import Cutout
from fedpu.augmentation.feature_dropout import FeatureDropout
from fedpu.augmentation.mirror import Mirror
from fedpu.augmentation.noise import Noise
from fedpu.augmentation.shift import Shift
from fedpu.augmentation.transform import Transform
from fedpu.registry import Registry

TRANSFORMS: Registry[type[Transform]] = Registry(
    "transform",
    {
        "shift": Shift,
        "mirror": Mirror,
        "affine": Affine,
        "cutout": Cutout,
        "colour": Colour,
        "feature-dropout": FeatureDropout,
        "noise": Noise,
    },
    group="fedpu.transforms",
    base=Transform,
)
