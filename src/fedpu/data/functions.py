"""A user's own function that reads data, as ``module:function`` or from an installed package."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from fedpu.data.dataset import Dataset
from fedpu.data.settings import DataSettings
from fedpu.errors import ConfigError, DataError, FedpuError
from fedpu.registry import Registry

FUNCTIONS: Registry[Callable[..., Any]] = Registry("data function", {}, group="fedpu.data")


def read_with(settings: DataSettings) -> Dataset:
    """Return the data of the function that ``settings.name`` names.

    A function that needs an argument is given the settings. It returns a ``Dataset``, or ``(x, y)`` or ``(x, y,
    client)`` as :meth:`Dataset.from_arrays` takes them.
    """
    function = FUNCTIONS[settings.name]
    arguments = (settings,) if _needs_settings(function, settings.name) else ()
    if settings.image_size is not None and not arguments:
        raise ConfigError(
            f"data.image_size plays no part with data.name = '{settings.name}', a function without arguments. Remove "
            "it, or let the function take the settings."
        )
    try:
        found = function(*arguments)
    except FedpuError:
        raise
    except Exception as error:  # the user's own code
        raise DataError(f"data.name = '{settings.name}': it raised {type(error).__name__}: {error}.") from error
    if isinstance(found, Dataset):
        return found
    if not isinstance(found, tuple | list) or len(found) not in (2, 3):
        raise DataError(
            f"data.name = '{settings.name}' returned {type(found).__name__}; it must return a fedpu.Dataset, (x, y) or "
            "(x, y, client)."
        )
    x, y, *client = found
    return Dataset.from_arrays(
        x,
        y,
        client=client[0] if client else None,
        test_fraction=settings.test_fraction,
        tokens=settings.tokens,
        name=settings.name,
    )


def _needs_settings(function: Callable[..., Any], name: str) -> bool:
    try:
        signature = inspect.signature(function)
    except ValueError:  # some functions written in C do not say
        return False
    for arguments, needed in (((), False), ((None,), True)):
        try:
            signature.bind(*arguments)
        except TypeError:
            continue
        return needed
    raise ConfigError(
        f"data.name = '{name}' can't be called: it must take no argument, or one, the settings of [data]."
    )
