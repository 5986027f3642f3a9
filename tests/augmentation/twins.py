"""Every transform again, one image and one pixel at a time, in NumPy and SciPy."""

from __future__ import annotations

import math

import numpy as np
from scipy import ndimage
from scipy.stats import norm

from fedpu.augmentation import Augmentation

Array = np.ndarray


def changed(name: str, image: Array, numbers: Array, settings: Augmentation) -> Array:
    """Return one input as the transform of that name should change it, by a row of numbers that was drawn."""
    magnitude = 1.0
    if settings.random_magnitude and name != "mirror":
        *numbers, magnitude = numbers
    return TWINS[name](image.astype(np.float64), np.asarray(numbers, np.float64), settings, float(magnitude))


def mirror(image: Array, numbers: Array, settings: Augmentation, magnitude: float) -> Array:
    return image[:, :, ::-1] if numbers[0] < 0.5 else image


def shift(image: Array, numbers: Array, settings: Augmentation, magnitude: float) -> Array:
    limit = min(settings.shift, math.floor(magnitude * (settings.shift + 1)))
    down, right = (math.floor(number * (2 * limit + 1)) - limit for number in numbers)
    return moved(image, down, right, settings.border)


def moved(image: Array, down: int, right: int, border: str) -> Array:
    _, height, width = image.shape
    result = np.zeros_like(image)
    for row in range(height):
        for column in range(width):
            source_row, source_column = row - down, column - right
            if 0 <= source_row < height and 0 <= source_column < width:
                result[:, row, column] = image[:, source_row, source_column]
            elif border == "edge":
                nearest = min(max(source_row, 0), height - 1), min(max(source_column, 0), width - 1)
                result[:, row, column] = image[(slice(None), *nearest)]
    return result


def affine(image: Array, numbers: Array, settings: Augmentation, magnitude: float) -> Array:
    parts = (2 * numbers - 1) * magnitude
    angle = math.radians(settings.degrees) * parts[0]
    taller, wider = (1 + settings.stretch) ** parts[1], (1 + settings.stretch) ** parts[2]
    # Rows and columns, as SciPy counts: y comes first.
    stretching = np.diag([taller, wider])
    shearing = np.array([[1, 0], [settings.shear * parts[3], 1]])
    rotation = np.array([[math.cos(angle), math.sin(angle)], [-math.sin(angle), math.cos(angle)]])
    backwards = np.linalg.inv(rotation @ shearing @ stretching)
    centre = (np.array(image.shape[1:]) - 1) / 2
    offset = centre - backwards @ (centre + settings.shift * parts[4:])
    mode = "nearest" if settings.border == "edge" else "grid-constant"
    return np.stack([ndimage.affine_transform(part, backwards, offset, order=1, mode=mode) for part in image])


def cutout(image: Array, numbers: Array, settings: Augmentation, magnitude: float) -> Array:
    _, height, width = image.shape
    half = settings.cutout * min(height, width) * magnitude / 2
    result = image.copy()
    for row in range(height):
        for column in range(width):
            inside = abs(row + 0.5 - numbers[0] * height) < half and abs(column + 0.5 - numbers[1] * width) < half
            if inside:
                result[:, row, column] = 0
    return result


def colour(image: Array, numbers: Array, settings: Augmentation, magnitude: float) -> Array:
    brighter, stronger = (2 * numbers - 1) * magnitude
    factor = (1 + settings.contrast) ** stronger
    return image.mean() + factor * (image - image.mean()) + settings.brightness * brighter


def feature_dropout(image: Array, numbers: Array, settings: Augmentation, magnitude: float) -> Array:
    return np.where(numbers.reshape(image.shape) < settings.feature_dropout * magnitude, 0, image)


def noise(image: Array, numbers: Array, settings: Augmentation, magnitude: float) -> Array:
    return image + settings.noise * magnitude * norm.ppf(numbers.reshape(image.shape))


TWINS = {
    "mirror": mirror,
    "shift": shift,
    "affine": affine,
    "cutout": cutout,
    "colour": colour,
    "feature-dropout": feature_dropout,
    "noise": noise,
}
