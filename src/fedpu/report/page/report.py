"""The report of runs: question, verdict, results, and how they came about."""

from __future__ import annotations

import shlex
import statistics
from collections.abc import Sequence
from html import escape
from pathlib import Path

import tomli_w

from fedpu.data import FROM_PYTHON
from fedpu.record import write_atomically
from fedpu.report.colours import Style, styles
from fedpu.report.page.charts import Chart, Series, on_common_axis, over_seeds, term_styles
from fedpu.report.page.measures import estimated_priors_figure, estimates_figure, measures_details
from fedpu.report.page.runs import Group, RecordedRun, gaps, is_accuracy, is_number
from fedpu.report.page.sentences import SET_ASIDE, per_cent, question, verdict
from fedpu.report.page.shell import details, page
from fedpu.report.page.tables import TEST, confusion_figure, confusion_width, holdings_figure, per_class_figure, soft

VALIDATION = "validation score (lower is better)"


def save_report(groups: Sequence[Group], path: Path) -> Path:
    """Write the page of some runs; return its path."""
    write_atomically(path, report_page(groups).encode())
    return path


def report_page(groups: Sequence[Group]) -> str:
    """Return the page of some runs, grouped by method."""
    title = _title(groups)
    parts = [
        f"<h1>{escape(title)}</h1>",
        f'<p class="question">{escape(question(groups))}</p>',
        f'<p class="verdict">{escape(verdict(groups))}</p>',
        *(f'<p class="note">{escape(text)}</p>' for text in _warnings(groups)),
        _results(groups),
        _section("While training", _curves(groups)),
        _section("What it recognises", _recognised(groups)),
        _section("The data", _holdings(groups)),
        _section("What clients minimise", _terms(groups)),
        _section("Class priors", _priors(groups)),
        _section("How it was made", _made(groups)),
    ]
    return page(f"fedpu: {title}", "\n".join(part for part in parts if part))


def _section(heading: str, content: str) -> str:
    return f"<section><h2>{escape(heading)}</h2>\n{content}</section>" if content else ""


def _title(groups: Sequence[Group]) -> str:
    config, facts = groups[0].config, groups[0].runs[0].facts
    data = facts.get("data") or config.get("data", {}).get("name", "")
    name = groups[0].label if len(groups) == 1 else f"{len(groups)} methods"
    seeds = len(groups[0].runs)
    split = config.get("partition", {}).get("kind", "")
    rounds = config.get("aggregation", {}).get("rounds")
    told = [
        Path(str(data)).name,
        f"{facts['clients']:,} clients" if facts.get("clients") else "",
        split,
        f"{rounds} rounds" if rounds else "",
        f"{seeds} seeds" if seeds > 1 else f"seed {groups[0].runs[0].seed}",
    ]
    return f"{name} on {', '.join(text for text in told if text)}"


def _warnings(groups: Sequence[Group]) -> list[str]:
    told = [text for group in groups for run in group.runs for text in run.facts.get("warnings") or []]
    if not is_accuracy(groups):
        notes = [run.measured_on.get("note") for group in groups for run in group.runs]
        told += [f"Measured on {note}" for note in notes if note]
    return list(dict.fromkeys(map(str, told)))


def _results(groups: Sequence[Group]) -> str:
    drawn, closed = styles(group.label for group in groups), gaps(groups)
    heads = ["method", "accuracy" if is_accuracy(groups) else f"right of {SET_ASIDE}"]
    columns = [[_accuracy(group) for group in groups]]
    optional = {
        "estimated accuracy": [_estimated(g) for g in groups],
        "gap closed": [f"{statistics.fmean(closed[g.label]):.0%}" if g.label in closed else "–" for g in groups],
        VALIDATION: [_mean(g, "validation", "{:.4f}") if not g.sees_all_labels else "–" for g in groups],
        "ε spent": [_mean(g, "epsilon", "{:.3g}") for g in groups],
        "seconds": [_mean(g, "seconds", "{:,.1f}") for g in groups],
        "memory (MB)": [_mean(g, "memory_mb", "{:,.0f}") for g in groups],
    }
    for head, cells in optional.items():
        if any(cell != "–" for cell in cells):
            heads.append(head)
            columns.append(cells)
    rows = []
    for index, group in enumerate(groups):
        trained_on = group.method.trained_on if group.method is not None else ""
        name = f"{_swatch(drawn[group.label])}{soft(group.label)}<small>{escape(trained_on)}</small>"
        told = "".join(f"<td>{escape(column[index])}</td>" for column in columns)
        rows.append(f'<tr><th scope="row">{name}</th>{told}</tr>')
    head = "".join(f'<th scope="col">{escape(text)}</th>' for text in heads)
    explained = ""
    if closed:
        lower = [group.label for group in groups if group.ends("lower")]
        several = f"; Baseline-1: the best of {', '.join(lower)} in each seed" if len(lower) > 1 else ""
        explained = (
            '<p class="soft">Gap closed = (method − Baseline-1) / (Baseline-2 − Baseline-1), seed by seed on the same '
            f"partition{escape(several)}.</p>"
        )
    return (
        f'<div class="wide" tabindex="0" role="group" aria-label="Results"><table class="results"><thead><tr>{head}'
        f"</tr></thead><tbody>{''.join(rows)}</tbody></table></div>{explained}"
    )


def _estimated(group: Group) -> str:
    """Return the mean over seeds of what partly labelled data say of the accuracy."""
    told = [(run.facts.get("estimates") or {}).get("accuracy") for run in group.runs]
    known = [value for value in told if value is not None]
    return per_cent(statistics.fmean(known), 0) if known and len(known) == len(told) else "–"


def _swatch(style: Style) -> str:
    return (
        f'<span class="swatch" style="border-top-style:{style.stroke};'
        f'border-color:light-dark({style.light},{style.dark})"></span>'
    )


def _accuracy(group: Group) -> str:
    values = list(group.accuracies.values())
    spread = f" ± {100 * statistics.stdev(values):.2f}" if len(values) > 1 else ""
    return f"{per_cent(group.mean)}{spread}"


def _mean(group: Group, key: str, form: str) -> str:
    """Return the mean over seeds of a number of the result."""
    found = [run.facts[key] for run in group.runs if run.result is not None and is_number(run.facts.get(key))]
    return form.format(statistics.fmean(found)) if found else "–"


def _curves(groups: Sequence[Group]) -> str:
    band = " The band is the range over seeds." if any(len(group.runs) > 1 for group in groups) else ""
    charts = []
    name = "Test accuracy" if is_accuracy(groups) else f"Right of {SET_ASIDE}"
    for key, title, label, unit, scale, digits in (
        ("accuracy", f"{name} by round", "test accuracy (%)" if is_accuracy(groups) else "right (%)", " %", 100.0, 2),
        ("validation", "Score on what clients hold out, by round", VALIDATION, "", 1.0, 4),
    ):
        drawn = styles(group.label for group in groups)
        pairs = []
        for group in groups:
            curves = [curve for run in group.runs if (curve := run.curve(key))]
            if curves and not (key == "validation" and group.sees_all_labels):
                pairs.append(over_seeds(curves, group.label, drawn[group.label], scale))
        if not pairs:
            continue
        rounds, series = on_common_axis(pairs)
        last = "; ".join(f"{one.label} ends at {_last(one):.{digits}f}{unit}" for one in series)
        description = f"{last}.{band} Point at the chart to read the values of a round."
        bounds = (0.0, 100.0) if key == "accuracy" else (None, None)
        charts.append(
            Chart(title, description, rounds, series, y_label=label, unit=unit, digits=digits, bounds=bounds).figure()
        )
    return "\n".join(charts)


def _last(series: Series) -> float:
    return next(value for value in reversed(series.values) if value is not None)


def _recognised(groups: Sequence[Group]) -> str:
    classes = groups[0].runs[0].classes
    each = [_per_class(group.runs, len(classes)) for group in groups]
    figures = ""
    if any(value is not None for values in each for value in values):
        names, of = [group.label for group in groups], TEST if is_accuracy(groups) else SET_ASIDE
        figures += per_class_figure(classes, names, each, len(groups[0].runs), of)
    matrices = [
        confusion_figure(group.label, group.runs[0].classes, summed)
        for group in groups
        if (summed := _confusion(group)) is not None
    ]
    least = f"--least:{confusion_width(classes):.1f}rem"
    if matrices:
        figures += f'<div class="grid small" style="{least}">{"".join(matrices)}</div>'
    first = [(group.label, group.runs[0].facts) for group in groups]
    figures += "".join(estimates_figure(label, facts.get("estimates") or {}) for label, facts in first)
    return figures + "".join(measures_details(label, facts.get("measures") or {}) for label, facts in first)


def _per_class(runs: Sequence[RecordedRun], classes: int) -> list[float | None]:
    """Return the mean over seeds for each class."""
    told = [run.facts["per_class_accuracy"] for run in runs if run.facts.get("per_class_accuracy")]
    found: list[float | None] = []
    for c in range(classes):
        values = [one[c] for one in told if c < len(one) and one[c] is not None]
        found.append(statistics.fmean(values) if values else None)
    return found


def _confusion(group: Group) -> list[list[int | float]] | None:
    """Return the sum over seeds."""
    found = [matrix for run in group.runs if (matrix := run.confusion) is not None]
    if not found or len(found[0]) != len(group.runs[0].classes):
        return None
    return [[sum(cells) for cells in zip(*rows, strict=True)] for rows in zip(*found, strict=True)]


def _holdings(groups: Sequence[Group]) -> str:
    """Return what clients hold, as a method sees it that is not given every label."""
    held = next((group.runs[0].holdings for group in groups if not group.sees_all_labels), None)
    held = held or groups[0].runs[0].holdings
    return "" if held is None else holdings_figure(held)


def _terms(groups: Sequence[Group]) -> str:
    charts = []
    for group in groups:
        names = list(dict.fromkeys(name for run in group.runs for line in run.rounds for name in line.get("risk", {})))
        drawn = term_styles(names)
        pairs = [
            over_seeds(curves, name, drawn[name])
            for name in names
            if (curves := [curve for run in group.runs if (curve := _term(run, name))])
        ]
        if pairs:
            rounds, series = on_common_axis(pairs)
            description = (
                f"Mean over clients; the last values: {', '.join(f'{s.label} {_last(s):.3g}' for s in series)}."
            )
            title = f"Terms of the loss by round: {group.label}"
            charts.append(
                Chart(title, description, rounds, series, y_label="value of the term", digits=3, height=280).figure()
            )
    return f'<div class="grid">{"".join(charts)}</div>' if charts else ""


def _term(run: RecordedRun, name: str) -> dict[int, float]:
    return {
        line["round"]: float(line["risk"][name]) for line in run.rounds if is_number(line.get("risk", {}).get(name))
    }


def _priors(groups: Sequence[Group]) -> str:
    figures = []
    for group in groups:
        run = group.runs[0]
        lines = [line["priors"] for line in run.rounds if "priors" in line]
        values = next((line["values"] for line in reversed(lines) if "values" in line), None)
        truth = run.facts.get("true_priors")
        if values and truth:
            figures.append(_priors_chart(group, values, truth))
        elif values:
            figures.append(estimated_priors_figure(group.label, run.classes, values))
    if not figures:
        source = groups[0].config.get("priors", {}).get("source")
        needed = any(group.method is not None and group.method.uses_priors for group in groups)
        return f"<p>Clients did not estimate them: priors.source = '{escape(str(source))}'.</p>" * bool(
            needed and source
        )
    return f'<div class="grid">{"".join(figures)}</div>'


def _priors_chart(group: Group, values: list[list[float]], truth: list[list[float]]) -> str:
    """Return estimates against the truth, those of classes that a client labels apart from the others."""
    positive = group.runs[0].facts.get("positive") or [[] for _ in values]
    points = sorted(
        (true, estimate, c in positive[k])
        for k, (own, shares) in enumerate(zip(values, truth, strict=True))
        for c, (estimate, true) in enumerate(zip(own, shares, strict=True))
    )
    x = [true for true, _, _ in points]
    labelled, other, exact = (s for s in term_styles(["labelled", "other", "total"]).values())
    series = [
        Series("equal to the truth", x, exact),
        Series(
            "classes that the client labels",
            [y if mine else None for _, y, mine in points],
            labelled._replace(dash=()),
            points=True,
        ),
        Series("classes that it does not label", [None if mine else y for _, y, mine in points], other, points=True),
    ]
    error = statistics.fmean(abs(true - estimate) for true, estimate, _ in points)
    return Chart(
        f"Estimated class priors beside the truth: {group.label}",
        f"One point per client and class, of seed {group.runs[0].seed}; on the line an estimate is right. Mean "
        f"absolute error {error:.4f}. Only evaluation knows the truth.",
        x,
        [one for one in series if any(value is not None for value in one.values)],
        x_label="true share of the class on the client",
        y_label="estimated prior",
        digits=4,
        height=320,
    ).figure()


def _made(groups: Sequence[Group]) -> str:
    run = groups[0].runs[0]
    facts = run.facts
    told = {
        "data": facts.get("data"),
        "measured on": _measured_on(run),
        "rounds": run.rounds[-1]["round"] if run.rounds else 0,
        "seeds": ", ".join(str(one.seed) for one in groups[0].runs),
        "seconds in rounds": f"{sum(_seconds(g) for g in groups):,.1f} in all runs together",
        "memory": _memory(groups),
        "versions": ", ".join(f"{name} {text}" for name, text in (facts.get("versions") or {}).items()),
        "recorded in": ", ".join(str(one.path) for group in groups for one in group.runs[:3]),
    }
    listed = "".join(f"<dt>{k}</dt><dd>{escape(str(v))}</dd>" for k, v in told.items() if v not in (None, ""))
    return (
        f"<dl>{listed}</dl>\n<p>To make it again, save the configuration below as <code>my.toml</code>, and:</p>"
        f"<pre>{escape(_command(groups))}</pre>"
        + details("Configuration (my.toml)", f"<pre>{escape(tomli_w.dumps(run.config))}</pre>")
    )


def _measured_on(run: RecordedRun) -> str:
    """Return on what a run is measured, in words."""
    on = run.measured_on
    told = [f"{on['examples']:,} examples" if on.get("examples") else "", on.get("note") or on.get("set") or ""]
    return ": ".join(text for text in told if text)


def _seconds(group: Group) -> float:
    return sum((float(line.get("seconds", 0.0)) for run in group.runs for line in run.rounds), 0.0)


def _memory(groups: Sequence[Group]) -> str:
    found = [run.facts["memory_mb"] for group in groups for run in group.runs if run.facts.get("memory_mb")]
    return f"{max(found):,.0f} MB held by all processes at the end of a run, at most" if found else ""


def _command(groups: Sequence[Group]) -> str:
    seeds = len(groups[0].runs)
    if str(groups[0].config.get("data", {}).get("name", "")).startswith(FROM_PYTHON):
        return "import fedpu\nfedpu.run(fedpu.Config.load('my.toml'), data=data)  # the data that were handed over"
    if len(groups) == 1 and seeds == 1:
        return "fedpu run my.toml"
    methods = shlex.quote(",".join(group.label for group in groups))
    return f"fedpu compare my.toml --methods {methods}" + f" --seeds {seeds}" * (seeds > 1)
