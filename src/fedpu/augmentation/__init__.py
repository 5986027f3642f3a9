"""augmentation: how a batch is shown to a network in training, its clean, weak and strong views."""

from fedpu.augmentation.keys import Keys
from fedpu.augmentation.settings import VIEWS, Augmentation, ViewName
from fedpu.augmentation.transform import Drawn, ImageTransform, Transform, UniformTransform
from fedpu.augmentation.transforms import TRANSFORMS
from fedpu.augmentation.view import View, join

__all__ = [
    "TRANSFORMS",
    "VIEWS",
    "Augmentation",
    "Drawn",
    "ImageTransform",
    "Keys",
    "Transform",
    "UniformTransform",
    "View",
    "ViewName",
    "join",
]
