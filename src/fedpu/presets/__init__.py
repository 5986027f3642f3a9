"""presets: configurations by name, which come with the package."""

from __future__ import annotations

from importlib import resources


def preset_names() -> list[str]:
    """Return the names of the presets that come with the package, besides the cells of the paper's tables."""
    files = resources.files("fedpu.presets").iterdir()
    return sorted(file.name.removesuffix(".toml") for file in files if file.name.endswith(".toml"))


def preset_text(name: str) -> str:
    """Return the TOML file of a preset."""
    return resources.files("fedpu.presets").joinpath(f"{name}.toml").read_text("utf-8")


__all__ = ["preset_names", "preset_text"]
