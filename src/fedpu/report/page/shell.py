"""The page around the figures: one file with its styles, its script and the charting library inside.

The library is uPlot (MIT, 51 kB): lines, bands and a cursor that reads values, on a canvas. Vega-Lite and Plotly draw
more kinds of pictures, of which this page has none that a table does not show as well, for 0.9 and 4.7 MB per page.
"""

from __future__ import annotations

from functools import cache
from html import escape
from importlib import resources


def page(title: str, body: str) -> str:
    """Return a whole page."""
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1"><meta name="color-scheme" content="light dark">
<link rel="icon" href="data:,">
<title>{escape(title)}</title>
<style>{_asset("uPlot.min.css")}
{_asset("page.css")}</style></head>
<body><main>
{body}
</main>
<noscript><p class="note">Charts need JavaScript; their numbers are in the tables below each of them.</p></noscript>
<script>/* uPlot, MIT License
{_asset("uPlot.LICENSE.txt").replace("*/", "")}*/
{_asset("uPlot.iife.min.js")}</script>
<script>{_asset("page.js")}</script>
</body></html>
"""


def details(summary: str, content: str) -> str:
    """Return something folded away."""
    return f"<details><summary>{escape(summary)}</summary>\n{content}\n</details>\n"


@cache
def _asset(name: str) -> str:
    return resources.files("fedpu.report.page").joinpath(f"assets/{name}").read_text("utf-8").strip()
