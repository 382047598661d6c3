// Live charts of available resources, with eviction thresholds.
import { amount, brief, byId, el } from "./dom.js";

const MOST = 600;
const SHOWN_MS = 600000;
// Samples are ten seconds apart while no page is open.
const GAP_MS = 25000;
const points = [];
let plots = [];
let shape = "";

export function takeSamples(view, samples) {
  const last = points.at(-1)?.at ?? 0;
  points.push(...samples.filter((one) => one.at > last));
  points.splice(0, Math.max(0, points.length - MOST));
  if (!plots.length) drawCharts(view);
  update(view);
}

export function drawCharts(view) {
  byId("charts").hidden = !view.charts.length;
  // Capacities of disks vary slightly; the charts are rebuilt only if their lines change.
  const now = JSON.stringify(view.charts.map((one) => [one.id, one.lines.map((line) => line.id)]));
  if (now !== shape) build(view);
  shape = now;
  update(view);
}

const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const LINES = ["--line-1", "--line-2", "--line-3"];

function build(view) {
  plots.forEach((one) => { one.watch.disconnect(); one.plot.destroy(); });
  plots = view.charts.map((chart) => {
    const value = el("span", { class: "value" });
    const note = el("span", { class: "soft note" });
    const place = el("div", { class: "canvas" });
    const figure = el("figure", { class: "plot", role: "group", "aria-label": chart.title, "data-chart": chart.id }, el("figcaption", {}, el("span", { class: "name" }, chart.title), value), place, note);
    return { id: chart.id, figure, value, note, place };
  });
  byId("plots").replaceChildren(...plots.map((one) => one.figure));
  plots.forEach((one, at) => {
    one.plot = new uPlot(options(view, at, one.place), data(view.charts[at]), one.place);
    one.watch = new ResizeObserver(() => one.plot.setSize({ width: one.place.clientWidth, height: one.place.clientHeight }));
    one.watch.observe(one.place);
  });
}

function options(view, at, place) {
  const chart = () => view.charts[at];
  const { unit } = chart();
  const ink = css("--soft");
  const grid = { stroke: css("--hair"), width: 1 };
  const font = "10px ui-monospace, monospace";
  return {
    width: Math.max(place.clientWidth, 100),
    height: place.clientHeight || 110,
    legend: { show: false },
    cursor: { y: false, drag: { x: false, y: false }, points: { size: 5 } },
    scales: { x: { time: true }, y: { range: () => (base(chart()) ? [-1, height(chart(), ceiling(chart()))] : [0, ceiling(chart())]) } },
    axes: [
      { stroke: ink, grid: { show: false }, ticks: { show: false }, font, size: 18, space: 70, values: (_, splits) => splits.map((s) => new Date(s * 1000).toLocaleTimeString("en-GB")) },
      { stroke: ink, grid, ticks: { show: false }, font, size: 56, space: 30, values: (_, splits) => splits.map((at) => brief(base(chart()) ? base(chart()) * 2 ** at : at, unit)), splits: () => gridOf(chart()) },
    ],
    series: [
      {},
      ...chart().lines.map((line, number) => ({
        label: line.label,
        stroke: css(LINES[number % LINES.length]),
        width: 1.5,
        fill: chart().lines.length === 1 ? css("--wash") : undefined,
        dash: [[], [6, 3], [2, 3]][number % 3],
        points: { show: false },
        spanGaps: false,
      })),
    ],
    hooks: { draw: [(plot) => marks(plot, chart())], setCursor: [(plot) => read(plots[at], chart(), plot.cursor.idx)] },
  };
}

/** The top of the scale: the capacity, or the next step above the maximum. */
function ceiling(chart) {
  if (chart.capacity) return chart.capacity;
  const most = points.reduce((high, one) => Math.max(high, ...chart.lines.map((line) => one.values[line.id] ?? 0)), 0);
  return [5, 10, 25, 50, 100].find((step) => step >= most) ?? 100;
}

/** The threshold that a logarithmic scale begins at: the lowest; 0: the scale is linear, from zero. */
const base = (chart) => {
  const lowest = Math.min(...chart.marks.map((mark) => mark.at));
  return chart.capacity && lowest > 0 && lowest < chart.capacity ? lowest : 0;
};

/** The place of a value on the axis: doublings above the lowest threshold; half of it and less is the bottom. */
export const height = (chart, value) => (base(chart) ? Math.max(Math.log2(Math.max(value, 0) / base(chart)), -1) : value);

/** The factor between two lines of a logarithmic grid, as doublings: at most four lines above the threshold. */
const stepOf = (chart) => Math.max(1, Math.ceil(Math.floor(height(chart, chart.capacity)) / 4));

function gridOf(chart) {
  const top = ceiling(chart);
  if (!base(chart)) return [0, top / 2, top];
  const lines = [];
  for (let at = 0; at <= height(chart, top) + 0.01; at += stepOf(chart)) lines.push(at);
  return lines;
}

function marks(plot, chart) {
  const { ctx, bbox } = plot;
  ctx.save();
  for (const mark of chart.marks) {
    const y = Math.round(plot.valToPos(height(chart, mark.at), "y", true));
    ctx.strokeStyle = css("--bad");
    ctx.lineWidth = devicePixelRatio;
    ctx.setLineDash([4 * devicePixelRatio, 3 * devicePixelRatio]);
    ctx.beginPath();
    ctx.moveTo(bbox.left, y);
    ctx.lineTo(bbox.left + bbox.width, y);
    ctx.stroke();
  }
  ctx.restore();
}

function data(chart) {
  const times = [];
  const lines = chart.lines.map(() => []);
  points.forEach((one, at) => {
    // A gap: nothing was measured.
    if (at && one.at - points[at - 1].at > GAP_MS) {
      times.push((points[at - 1].at + 1) / 1000);
      lines.forEach((line) => line.push(null));
    }
    times.push(one.at / 1000);
    chart.lines.forEach((line, number) => {
      const value = one.values[line.id] ?? null;
      lines[number].push(value === null ? null : height(chart, value));
    });
  });
  return [times, ...lines];
}

function update(view) {
  plots.forEach((one, at) => {
    const chart = view.charts[at];
    if (!chart || chart.id !== one.id) return;
    const last = points.at(-1)?.at ?? Date.now();
    const first = Math.max(points[0]?.at ?? last, last - SHOWN_MS);
    one.plot.setData(data(chart), false);
    one.plot.setScale("x", { min: Math.min(first, last - 30000) / 1000, max: last / 1000 });
    if (one.plot.cursor.idx === null || one.plot.cursor.idx === undefined || one.plot.cursor.left < 0) read(one, chart, null);
  });
}

/** The values at the pointer, or the newest. */
function read(one, chart, idx) {
  if (!one?.plot) return;
  const times = one.plot.data[0];
  const at = times[idx ?? times.length - 1] * 1000;
  const point = points.find((sample) => Math.abs(sample.at - at) < 0.5);
  const values = chart.lines.map((line) => [line, point?.values[line.id] ?? null]);
  const only = values.length === 1;
  const texts = values.map(([line, value], number) => el("span", { class: only ? "" : `key line${number + 1}` }, `${only ? "" : `${line.label} `}${amount(value, chart.unit)}`));
  one.value.replaceChildren(...texts);
  const met = only && chart.marks.some((mark) => values[0][1] !== null && values[0][1] < mark.at);
  one.figure.classList.toggle("met", met);
  const marked = chart.marks.map((mark) => `evicts below ${amount(mark.at, chart.unit)} ${mark.after}`).join("; ");
  const scale = base(chart) ? `logarithmic: each line ${2 ** stepOf(chart)} times the one below` : "";
  const distance = only && base(chart) && values[0][1] !== null && !met ? `${amount(values[0][1] - base(chart), chart.unit)} above it` : "";
  const note = [chart.capacity && chart.unit !== "percent" ? `of ${amount(chart.capacity, chart.unit)}` : "", marked, met ? "met now" : distance, scale].filter(Boolean).join(" · ");
  if (one.note.textContent !== note) one.note.textContent = note;
}

document.addEventListener("themed", () => {
  if (plots.length) {
    build(window.nodewright);
    update(window.nodewright);
  }
});
