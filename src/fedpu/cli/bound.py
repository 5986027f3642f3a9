"""``fedpu bound``: how far the risk on these data can be from the truth."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedpu.cli.console import ConfigFile, Json, Overrides, Preset, load_config, output, print_json
from fedpu.errors import ConfigError

if TYPE_CHECKING:
    from fedpu.risk import Lent

RISK = "equ:fedpurisk"


def bound(
    config: ConfigFile = None,
    preset: Preset = None,
    overrides: Overrides = None,
    delta: Annotated[float, typer.Option("--delta", help="Each bound fails with at most this probability.")] = 0.05,
    vc: Annotated[
        int,
        typer.Option(
            "--vc", help="VC dimension of the sets {x : f(x) = m}; 0: one classifier, fixed before the data are drawn."
        ),
    ] = 0,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="Also draw it against the labelled and unlabelled counts (PNG, SVG, PDF)."),
    ] = None,
    json: Json = False,
) -> None:
    """Bound how far FedPU's risk on these data is from its expectation, beside full supervision (docs/theory.md).

    Example: 'fedpu bound --preset quickstart --delta 0.01 --out bound.png'.
    """
    from fedpu import theory
    from fedpu.applications.prepared import prepare
    from fedpu.method import METHODS
    from fedpu.report import check_picture
    from fedpu.report.bound import bound_dict, bound_table, ratio_table, save_bound

    if out is not None:
        check_picture(out)
    chosen = load_config(config, preset, overrides)
    if chosen.method.risk != RISK:
        fitting = " or ".join(name for name, method in METHODS.items() if method.risk == RISK)
        raise ConfigError(
            f"The bound is that of FedPU's risk, and method.name = '{chosen.method.name}'. Set method.name={fitting}."
        )
    lent: Lent = getattr(chosen.method, "lent", "off")
    known = theory.counts(prepare(chosen).federation)
    result = theory.theorem5(known, lent, delta, vc)
    if out is not None:
        save_bound(known, lent, delta, vc, out)
    values = bound_dict(known, result, delta)
    if json:
        print_json(values | {"vc": vc, "lent": lent})
        return
    output.print(bound_table(values))
    output.print()
    output.print(ratio_table(values))
    which = (
        f"all classifiers whose sets {{x : f(x) = m}} have VC dimension {vc}, losses 1[f ≠ m]"
        if vc
        else "one classifier that is fixed before the data are drawn, losses 1[f ≠ m] or 1 − p_m"
    )
    explanation = (
        f"P, U and V part: from labelled and unlabelled data, and from V. For {which}, no clamp, lent term '{lent}'."
    )
    if values["mean"]["bound"] >= 1:
        explanation += " A bound of 1 or more on a rate says nothing."
    output.print(f"\n{explanation}", style="dim", highlight=False)
    if out is not None:
        output.print(f"Picture: {out}", highlight=False, soft_wrap=True)
