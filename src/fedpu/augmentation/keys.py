"""The keys of the table ``[augmentation]``."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from fedpu.registry import Settings


class Keys(Settings):
    """Which transforms make up the weak and the strong view, and how far each transform goes.

    Inputs are normalised: a colour or a feature of zero is the mean of the data, and one is a standard deviation.
    """

    weak: list[str] = Field(
        [],
        description="transforms of the weak view, in the order in which they are applied: shift | mirror | affine | "
        "cutout | colour | feature-dropout | noise, or your own as module:Class; [] leaves the inputs as they are",
    )
    strong: list[str] = Field(
        [], description="transforms of the strong view; both views have the numbers below in common"
    )
    shift: int = Field(
        4, ge=0, le=1000, description="for shift and affine: pixels by which an image is moved at most, each way"
    )
    border: Literal["edge", "mean"] = Field(
        "edge",
        description="for shift and affine: what fills the places that an image has left: its outermost pixels "
        "repeated, or the mean colour",
    )
    degrees: float = Field(15.0, ge=0, le=180, description="for affine: largest rotation, either way")
    stretch: float = Field(
        0.1,
        ge=0,
        le=9,
        description="for affine: height and width are each multiplied or divided by up to 1 + this",
    )
    shear: float = Field(
        0.1, ge=0, le=9, description="for affine: pixels by which a row is moved, at most, beside the row above it"
    )
    cutout: float = Field(
        0.5, ge=0, le=1, description="for cutout: side of the square, as a share of the image's shorter side"
    )
    brightness: float = Field(
        0.5, ge=0, le=100, description="for colour: most that is added to an image, in standard deviations of the data"
    )
    contrast: float = Field(
        0.5, ge=0, le=100, description="for colour: contrast is multiplied or divided by up to 1 + this"
    )
    feature_dropout: float = Field(
        0.1, ge=0, le=1, description="for feature-dropout: share of an example's values that become their mean"
    )
    noise: float = Field(
        0.1, ge=0, le=100, description="for noise: deviation of the Gaussian noise, in standard deviations of the data"
    )
    random_magnitude: bool = Field(
        False,
        description="does each example have its own strength, drawn evenly between nothing and the full one, for "
        "every transform but mirror?",
    )
