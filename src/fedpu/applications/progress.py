"""A progress bar for whoever calls from Python: of the kind that a notebook or a terminal can show."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any

RoundLine = dict[str, Any]


def bar_class() -> Any:
    """Return tqdm's bar for here: a widget in a notebook that has widgets, text everywhere else."""
    shell = sys.modules.get("IPython")
    kernel = shell is not None and type(shell.get_ipython()).__name__ == "ZMQInteractiveShell"
    if kernel and find_spec("ipywidgets") is not None:
        from tqdm.notebook import tqdm as widget

        return widget
    from tqdm import tqdm

    return tqdm


@contextmanager
def round_bar(name: str, rounds: int, shown: bool = True) -> Iterator[Callable[[RoundLine], None]]:
    """Show the rounds of a run as they end; call what is yielded after each. A resumed run begins where it was."""
    if not shown:
        yield lambda line: None
        return
    with bar_class()(total=rounds, desc=name, unit="round") as bar:

        def on_round(line: RoundLine) -> None:
            if "accuracy" in line:
                bar.set_postfix(accuracy=f"{line['accuracy']:.2%}", refresh=False)
            bar.update(line["round"] - bar.n)

        yield on_round
