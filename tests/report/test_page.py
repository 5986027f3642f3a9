"""The report is one page that holds everything, says what was measured, and can be read by everybody."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

import fedpu
from command import fedpu as command
from fedpu import Dataset
from fedpu.applications import comparison, experiment
from fedpu.config import Config
from fedpu.errors import FedpuError
from fedpu.method import METHODS
from fedpu.report import save_comparison
from fedpu.report.colours import STYLES, styles
from fedpu.report.page import Group, RecordedRun, read_groups, report_page
from fedpu.report.page.sentences import question, verdict
from patients import write_patients

METHODS_SHOWN = ["fedpu", "fedpu+lent=off", "positive-only", "supervised"]
LOADING = {"src", "href", "srcset", "data", "poster", "action"}


@pytest.fixture(scope="module")
def folder(tiny_config: Config, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A comparison on two seeds, with priors that clients estimate."""
    out = tmp_path_factory.mktemp("compared")
    config = tiny_config.with_("priors.source=estimated", "priors.features=inputs", "priors.estimator=pe")
    result = comparison.compare(config, METHODS_SHOWN, [0, 1], out=out)
    (out / "comparison.json").write_text(json.dumps(result.to_dict()))
    save_comparison(result, out)
    return out


@pytest.fixture(scope="module")
def page(folder: Path) -> str:
    return (folder / "report.html").read_text("utf-8")


class Parsed(HTMLParser):
    """What a page loads, its figures with what is in them, and the data of its charts."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.loads: list[str] = []
        self.figures: list[dict[str, object]] = []
        self.charts: list[dict[str, object]] = []
        self.open: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == [], "an element is never closed"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.loads += [str(given[name]) for name in LOADING & given.keys()]
        if tag not in ("meta", "link", "wbr", "br", "img"):
            self.open.append(tag)
        if tag == "figure":
            self.figures.append({"title": "", "figcaption": "", "table": False, "label": ""})
        if self.figures and "figure" in self.open:
            own = self.figures[-1]
            own["table"] = own["table"] or tag == "table"
            if given.get("role") in ("img", "group"):
                own["label"] = given.get("aria-label")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "figure" in self.open and self.open[-1] in ("h3", "figcaption"):
            key = "title" if self.open[-1] == "h3" else "figcaption"
            self.figures[-1][key] = str(self.figures[-1][key]) + data
        if self.open and self.open[-1] == "script" and data.strip().startswith("{"):
            self.charts.append(json.loads(data, parse_constant=pytest.fail))


def test_the_page_loads_nothing_from_anywhere(page: str) -> None:
    assert [load for load in Parsed(page).loads if not load.startswith(("data:", "#"))] == []
    assert not re.search(r"@import|url\(\s*['\"]?(https?:)?//|\bfetch\(|XMLHttpRequest|import\(", page)


def test_every_figure_has_a_title_and_a_text_alternative(page: str) -> None:
    figures = Parsed(page).figures
    # curves, classes, holdings, four losses, four confusions, priors of the two that use them
    assert len(figures) == 13
    for figure in figures:
        assert all(figure.values()), figure


def test_the_charts_hold_the_recorded_numbers(page: str, folder: Path) -> None:
    curves = Parsed(page).charts[0]
    assert [one["label"] for one in curves["series"]] == METHODS_SHOWN  # type: ignore[attr-defined]
    lines = [
        [json.loads(text)["accuracy"] for text in (folder / f"fedpu-seed{seed}/rounds.jsonl").read_text().splitlines()]
        for seed in (0, 1)
    ]
    fedpu = curves["series"][0]  # type: ignore[index]
    assert fedpu["values"] == pytest.approx([100 * (a + b) / 2 for a, b in zip(*lines, strict=True)])
    assert fedpu["low"] == pytest.approx([100 * min(pair) for pair in zip(*lines, strict=True)])
    assert fedpu["high"] == pytest.approx([100 * max(pair) for pair in zip(*lines, strict=True)])


def test_it_tells_who_labelled_what_and_all_it_was_made_with(page: str, folder: Path) -> None:
    result = json.loads((folder / "fedpu-seed0/result.json").read_text())
    held = result["holdings"]
    assert np.sum(held["labelled"]) == result["labelled"]
    assert np.sum(held["labelled"]) + np.sum(held["unlabelled"]) == result["examples"]
    cells = re.findall(r"<b>(\d+)</b><small>/(\d+)</small>", page)
    assert sum(int(labelled) for labelled, _ in cells) == result["labelled"]
    assert f"torch {result['versions']['torch']}" in page
    assert "fedpu compare my.toml --methods fedpu,fedpu+lent=off,positive-only,supervised --seeds 2" in page
    assert "MB held by all processes" in page
    assert "[aggregation]" in page


def test_estimated_priors_stand_beside_the_truth(page: str, folder: Path) -> None:
    result = json.loads((folder / "fedpu-seed0/result.json").read_text())
    lines = [json.loads(text) for text in (folder / "fedpu-seed0/rounds.jsonl").read_text().splitlines()]
    last = [line for line in lines if "priors" in line][-1]
    error = np.abs(np.array(result["true_priors"]) - np.array(last["priors"]["values"])).mean()
    assert f"Mean absolute error {error:.4f}" in page
    assert last["priors"]["mean_absolute_error"] == pytest.approx(error, abs=1e-4)


def test_the_verdict_names_the_best_that_sees_no_hidden_label(folder: Path) -> None:
    groups = read_groups([folder])
    assert [group.label for group in groups] == METHODS_SHOWN
    best = max(groups[:3], key=lambda group: group.mean or 0)
    assert verdict(groups).startswith(f"{best.label} is the best with {100 * (best.mean or 0):.2f} %")
    assert "of 2 seeds" in verdict(groups)
    assert "Which of 4 methods makes the most of 'digits' when 5 clients have labelled" in question(groups)
    alone = read_groups([folder / "fedpu-seed1"])
    assert "fedpu is right on" in verdict(alone)
    assert "How good is one classifier" in question(alone)
    differing = read_groups([folder / "fedpu-seed0", folder / "positive-only-seed1"])
    assert "say little about which method is better" in verdict(differing)


def test_runs_that_differ_in_a_setting_are_named_by_it(folder: Path) -> None:
    groups = read_groups([folder / "fedpu-seed0", folder / "fedpu+lent=off-seed0", folder / "fedpu-seed1"])
    assert [(group.label, len(group.runs)) for group in groups] == [("fedpu+lent=printed", 2), ("fedpu+lent=off", 1)]


def test_an_unfinished_run_has_a_page_that_says_so(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder / "fedpu-seed0", tmp_path / "r")
    for name in ("result.json", "model.safetensors"):
        (tmp_path / "r" / name).unlink()
    groups = read_groups([tmp_path / "r"])
    assert "Not finished: fedpu" in verdict(groups)
    Parsed(report_page(groups))


def test_a_run_that_nobody_measured_and_that_has_no_rounds_has_a_page(folder: Path) -> None:
    config = read_groups([folder])[0].config
    bare = [Group("fedpu", [RecordedRun(Path("r"), config, [], {"method": "fedpu", "accuracy": None})])]
    assert "Nobody has measured it" in verdict(bare)
    Parsed(report_page(bare))


def test_names_of_classes_and_data_are_text_and_not_markup(tiny_config: Config, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    names = ["<script>alert(1)</script>", "a&b", "</table>"]
    y = np.arange(60) % 3
    data = Dataset.from_arrays(rng.normal(size=(60, 4)).astype(np.float32), y, classes=names, name="<i>mine</i>")
    config = tiny_config.with_("partition.clients=3", "labelling.positive=1", "aggregation.rounds=1")
    experiment.run(config, data=data, out=tmp_path / "r")
    text = report_page(read_groups([tmp_path / "r"]))
    Parsed(text)
    assert "<script>alert" not in text
    assert "<i>" not in text


def test_a_confusion_matrix_is_shown_where_the_record_has_one(folder: Path) -> None:
    run = RecordedRun.read(folder / "fedpu-seed0")
    assert run.result is not None
    run.result["confusion"] = (np.eye(10) * 30 + 1).tolist()
    text = report_page([Group("fedpu", [run])])
    assert "What was taken for what: fedpu" in text
    assert text.count('class="shade right deep"') == 10
    Parsed(text)


def test_folders_without_runs_are_refused_in_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(FedpuError, match="neither a run directory nor a folder of some"):
        read_groups([tmp_path])


def test_a_method_has_one_colour_whatever_it_is_compared_with() -> None:
    every = styles(METHODS)
    for name in METHODS:
        assert styles(["mine:Own", f"{name}+a=1", name])[name] == every[name] == styles([name])[name]
    assert len({style.light for style in STYLES}) == len({style.dash for style in STYLES}) == len(STYLES)
    mixed = styles(["fedpu", "fedpu+lent=off", "mine:Own"])
    assert len(set(mixed.values())) == 3
    assert styles(["fedpu+lent=off"])["fedpu+lent=off"] == every["fedpu"]
    assert len(set(styles([f"mine:Own{number}" for number in range(20)]).values())) == 20


def contrast(first: str, second: str) -> float:
    """The contrast of two colours, by the rule of WCAG 2."""

    def luminance(colour: str) -> float:
        parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
        return sum(weight * p for weight, p in zip((0.2126, 0.7152, 0.0722), linear, strict=True))

    light, dark = sorted((luminance(first), luminance(second)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def test_lines_stand_out_from_light_and_dark_pages() -> None:
    for style in STYLES:
        assert contrast(style.light, "#f5f7f9") > 3
        assert contrast(style.dark, "#1e252d") > 3


@pytest.fixture(scope="module")
def partly(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A comparison on a table that nobody has labelled as a whole."""
    folder = tmp_path_factory.mktemp("partly")
    write_patients(folder)
    methods = ["--methods=fedpu,positive-only", "--set=aggregation.rounds=3", "--set=engine.workers=1"]
    told = command("compare", "--data=patients.csv", "--out=compared", "--quiet", *methods, cwd=folder)
    assert "right of" in told.stdout
    return folder / "compared"


def test_what_labelled_examples_say_is_not_called_an_accuracy(partly: Path) -> None:
    alone = report_page(read_groups([partly / "fedpu-seed0"]))
    for text in ((partly / "report.html").read_text("utf-8"), alone):
        shown = re.sub(r"(?s)<script.*?</script>|<details>.*?</details>", "", text)
        assert "Test accuracy" not in text
        assert "test set" not in shown.replace("fully labelled test set", "")
        assert "nobody knows the classes of the rest" in shown
        assert "What partly labelled data can say: fedpu" in shown
        assert "interval of 95 %" in shown
        assert "is_accuracy" not in shown
        assert "Class priors that clients estimated: fedpu" in shown
        assert "Accuracy on each class" not in shown
    assert "Its accuracy is not known; the estimate is" in alone
    assert "right of labelled examples set aside" in (partly / "comparison.md").read_text()


def test_measures_of_each_class_are_folded_into_the_page(folder: Path, page: str) -> None:
    result = json.loads((folder / "fedpu-seed0/result.json").read_text())
    part = page.partition("Precision, recall, F1 and calibration of each class: fedpu</summary>")[2]
    part = part.partition("</details>")[0]
    for one in result["measures"]["classes"]:
        for key in ("precision", "recall", "f1", "calibration_error"):
            assert (f"{one[key]:.3f}" if one[key] is not None else "–") in part
    assert f"Brier score {result['measures']['brier']:.3f}" in part


def test_numbers_on_a_coloured_cell_can_be_read_in_light_dark_and_print() -> None:
    css = (Path(fedpu.__file__).parent / "report/page/assets/page.css").read_text()
    looks = [dict(re.findall(r"(--[\w-]+): ([^;]+);", look)) for look in re.findall(r":root \{(.*?)\}", css, re.DOTALL)]
    assert len(looks) == 3
    for look in (looks[0], looks[0] | looks[1], looks[0] | looks[2]):
        fill, paper, ink = (_rgb(look[name]) for name in ("--fill", "--paper", "--ink"))
        most = float(look["--most"].removesuffix("%")) / 100
        for share in np.linspace(0, most, 20):
            lighter, darker = sorted((_luminance(share * fill + (1 - share) * paper), _luminance(ink)), reverse=True)
            assert (lighter + 0.05) / (darker + 0.05) > 4.5, "WCAG asks for 4.5 to 1"


def _rgb(text: str) -> NDArray[np.float64]:
    return np.array([int(text[place : place + 2], 16) / 255 for place in (1, 3, 5)])


def _luminance(colour: NDArray[np.float64]) -> float:
    linear = np.where(colour <= 0.03928, colour / 12.92, ((colour + 0.055) / 1.055) ** 2.4)
    return float(linear @ [0.2126, 0.7152, 0.0722])


CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")


@pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium")
def test_a_browser_draws_every_chart_without_an_error_or_a_horizontal_scroll(page: str, tmp_path: Path) -> None:
    assert CHROMIUM is not None
    watched = page.replace("<head>", "<head><script>onerror = (m) => parent.problems.push(m);</script>", 1)
    frames = "".join(
        f'<iframe width="{width}" height="800" srcdoc="{watched.replace("&", "&amp;").replace(chr(34), "&quot;")}">'
        "</iframe>"
        for width in (390, 820, 1400)
    )
    measure = """onload = () => setTimeout(() => { document.title = JSON.stringify({problems, frames: [...document
      .querySelectorAll("iframe")].map((f) => ({width: f.clientWidth, page: f.contentDocument.documentElement
      .scrollWidth, drawn: f.contentDocument.querySelectorAll(".chart canvas").length, ticks: f.contentWindow.eval(
      "charts.filter((c) => c.given.xLabel === 'round').flatMap((c) => c.plot.axes[0]._splits)"),
      scrolled: [...f.contentDocument.querySelectorAll(".confusion .wide")].filter((box) => box.scrollWidth >
      box.clientWidth + 1).length}))}); }, 1000);"""
    wrapper = tmp_path / "wrapper.html"
    wrapper.write_text(f"<title>x</title><script>var problems = []; {measure}</script>{frames}", "utf-8")
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=20000", "--dump-dom"]
    home = f"--user-data-dir={tmp_path / 'profile'}"
    done = subprocess.run([CHROMIUM, *flags, home, wrapper.as_uri()], capture_output=True, text=True, timeout=240)
    told = re.search(r"<title>(\{.*?\})</title>", done.stdout)
    assert told is not None, done.stderr
    found = json.loads(told[1])
    assert found["problems"] == []
    for frame in found["frames"]:
        assert frame["page"] <= frame["width"], frame
        assert frame["drawn"] == len(Parsed(page).charts)
        assert frame["ticks"]
        assert all(tick == int(tick) for tick in frame["ticks"]), "there is no half round"
        if frame["width"] >= 820:
            assert frame["scrolled"] == 0, "a confusion matrix has to be scrolled"
