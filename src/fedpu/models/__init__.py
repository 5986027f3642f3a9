"""models: the networks, by name or as the user's own ``module:Class`` or ``module:function``."""

from fedpu.models.base import Model, Precision
from fedpu.models.cnn import ColourCNN, PaperCNN
from fedpu.models.mlp import MLP
from fedpu.models.own import OwnModel
from fedpu.models.resnet9 import ResidualSum, ResNet9
from fedpu.models.small_resnet import SmallResNet
from fedpu.models.text import Text
from fedpu.registry import Registry

MODELS: Registry[type[Model]] = Registry(
    "model",
    {
        "paper-cnn": PaperCNN,
        "mlp": MLP,
        "colour-cnn": ColourCNN,
        "small-resnet": SmallResNet,
        "resnet9": ResNet9,
        "text": Text,
    },
    group="fedpu.models",
    base=Model,
    function=OwnModel,
)

__all__ = [
    "MLP",
    "MODELS",
    "ColourCNN",
    "Model",
    "OwnModel",
    "PaperCNN",
    "Precision",
    "ResNet9",
    "ResidualSum",
    "SmallResNet",
    "Text",
]
