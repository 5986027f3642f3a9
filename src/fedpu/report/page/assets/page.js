"use strict";
// Draws every chart of the page with uPlot from the JSON beside it, and anew when the colours of the page change.
const dark = matchMedia("(prefers-color-scheme: dark)");
const print = matchMedia("print");
const charts = [...document.querySelectorAll(".chart")].map((place) => ({
  place, given: JSON.parse(place.querySelector("script").textContent), plot: null,
}));
const colour = (one) => (dark.matches && !print.matches ? one.dark : one.light);
const ink = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
// Steps between ticks where only whole numbers mean something: there is no round 2.5.
const WHOLE = Array.from({ length: 9 }, (_, i) => [1, 2, 5].map((step) => step * 10 ** i)).flat();
const faded = (hex) => hex + "2a";

function columns(given) {
  const data = [given.x];
  for (const one of given.series) {
    data.push(one.values);
    if (one.low) data.push(one.low, one.high);
  }
  return data;
}

function series(given) {
  const round = { label: given.xLabel, value: (u, v) => (v == null ? "" : String(+v.toFixed(3))) };
  const all = [round], bands = [];
  for (const one of given.series) {
    const text = (v) => (v == null ? "–" : v.toFixed(given.digits) + given.unit);
    const own = colour(one);
    const range = (i) => (one.low && one.low[i] != null ? ` (${text(one.low[i])} … ${text(one.high[i])})` : "");
    all.push({
      label: one.label, class: one.points ? "dots" : null, stroke: own, width: one.points ? 0 : 2, dash: one.points ? [] : one.dash, spanGaps: true,
      points: one.points ? { show: true, size: one.dash.length ? 7 : 8, width: 2, fill: one.dash.length ? ink("--raised") : own,
        stroke: own } : { show: given.x.length < 3 },
      paths: one.points ? () => null : undefined,
      value: (u, v, s, i) => text(v) + (i == null ? "" : range(i)),
    });
    if (one.low) {
      const edge = { class: "edge", label: "", width: 0, stroke: own, points: { show: false }, spanGaps: true };
      all.push(edge, edge);
      bands.push({ series: [all.length - 1, all.length - 2], fill: faded(own) });
    }
  }
  return { all, bands };
}

// The names of the lines at their ends, moved apart where they would meet: the chart is read without its legend.
function endLabels(given, narrow) {
  return (u) => {
    if (narrow || given.series[0].points) return;
    const ratio = devicePixelRatio, { ctx, bbox } = u, gap = 15 * ratio;
    const ends = given.series.map((one) => {
      const last = one.values.findLastIndex((v) => v != null);
      return last < 0 ? null : { text: one.label, colour: colour(one), y: u.valToPos(one.values[last], "y", true) };
    }).filter(Boolean).sort((a, b) => a.y - b.y);
    ends.forEach((end, i) => { if (i) end.y = Math.max(end.y, ends[i - 1].y + gap); });
    const over = ends.length ? ends.at(-1).y - (bbox.top + bbox.height) : 0;
    if (over > 0) for (let i = ends.length - 1, low = bbox.top + bbox.height; i >= 0; i--, low -= gap) ends[i].y = Math.min(ends[i].y, low);
    ctx.save();
    ctx.font = `600 ${12 * ratio}px system-ui, sans-serif`;
    ctx.textBaseline = "middle";
    ctx.textAlign = "left";
    for (const end of ends) {
      ctx.fillStyle = end.colour;
      ctx.fillText(end.text, bbox.left + bbox.width + 8 * ratio, end.y);
    }
    ctx.restore();
  };
}

function levels(given) {
  return (u) => {
    const ratio = devicePixelRatio, { ctx, bbox } = u;
    ctx.save();
    ctx.lineWidth = 1.5 * ratio;
    ctx.setLineDash([2 * ratio, 4 * ratio]);
    for (const one of given.levels) {
      const y = u.valToPos(one.value, "y", true);
      ctx.strokeStyle = colour(one);
      ctx.beginPath(); ctx.moveTo(bbox.left, y); ctx.lineTo(bbox.left + bbox.width, y); ctx.stroke();
    }
    ctx.restore();
  };
}

function draw(chart) {
  const { place, given } = chart, width = Math.floor(place.clientWidth);
  if (chart.plot) chart.plot.destroy();
  const longest = Math.max(...given.series.map((one) => one.label.length));
  const narrow = width < 560 || given.series.length < 2;
  const room = narrow || given.series[0].points ? 12 : Math.min(7 * longest + 18, width / 3);
  const { all, bands } = series(given), last = given.x.length - 1;
  const axis = { stroke: ink("--soft"), grid: { stroke: ink("--rule"), width: 1 }, ticks: { stroke: ink("--rule") },
    font: "12px system-ui, sans-serif", labelFont: "12px system-ui, sans-serif", labelSize: 20 };
  const [low, high] = given.bounds;
  const marked = given.levels.map((one) => one.value);
  chart.plot = new uPlot({
    width, height: narrow ? Math.min(given.height, 280) : given.height, series: all, bands,
    padding: [8, room, 0, 0],
    scales: {
      x: { time: false },
      y: { range: (u, min, max) => {
        const all = [min, max, ...marked].filter((v) => v != null), least = Math.min(...all), most = Math.max(...all);
        const space = (most - least) * 0.06 || Math.abs(most) * 0.1 || 1;
        return [low ?? least - space, high ?? most + space];
      } },
    },
    axes: [{ ...axis, label: given.xLabel, size: 34, ...(given.x.every(Number.isInteger) ? { incrs: WHOLE } : {}) }, { ...axis, label: given.yLabel, size: 52 }],
    legend: { markers: { width: 3, stroke: (u, i) => all[i].stroke, fill: () => "transparent",
      dash: (u, i) => given.series.find((one) => one.label === all[i].label)?.stroke ?? "solid" } },
    cursor: { drag: { x: false, y: false }, y: false, points: { size: 7 } },
    hooks: { draw: [levels(given), endLabels(given, narrow)], ready: [(u) => u.setLegend({ idx: last })],
      setCursor: [(u) => { if (u.cursor.idx == null) u.setLegend({ idx: last }); }] },
  }, columns(given), place);
}

const drawAll = () => charts.forEach(draw);
drawAll();
dark.addEventListener("change", drawAll);
print.addEventListener("change", drawAll);
addEventListener("beforeprint", drawAll);
addEventListener("afterprint", drawAll);
const resized = new ResizeObserver((seen) => {
  for (const { target } of seen) {
    const chart = charts.find((one) => one.place === target), width = Math.floor(target.clientWidth);
    if (width && chart.plot.width !== width) draw(chart);
  }
});
charts.forEach(({ place }) => resized.observe(place));
