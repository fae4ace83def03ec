// Curves, small curves and parallel coordinates. Chart.js draws the large ones.

import { el, fill, number, svg } from "./dom.js";

// Okabe and Ito's colours, which people with any colour vision tell apart; then the same, dashed.
const COLOURS = ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00"];
const FIRST = ["loss", "valid_loss", "train_acc", "valid_acc", "test_acc"];
const MOST = 12;
const FEW = 40; // points that are marked
const SMALL = { width: 120, height: 28 };
const charts = new Set();

const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

function style(index) {
  const line = COLOURS[index % COLOURS.length];
  return { borderColor: line, backgroundColor: line, borderDash: index < COLOURS.length ? [] : [6, 4], borderWidth: 2 };
}

function draw(title, config, kind = "chart") {
  const canvas = el("canvas", { role: "img", "aria-label": title });
  const element = el("div", { class: kind }, canvas);
  config.options = { animation: false, responsive: true, maintainAspectRatio: false, color: colour("--ink"), ...config.options };
  const chart = new window.Chart(canvas, config);
  charts.add(chart);
  return { element, chart, canvas };
}

export function clear() {
  for (const chart of charts) chart.destroy();
  charts.clear();
}

const axis = (title, more = {}) => ({ title: { display: true, text: title, color: colour("--ink") },
  ticks: { color: colour("--dim"), ...more.ticks }, grid: { color: colour("--line") }, ...more.scale });

export function ranked(names) {
  const rank = (name) => (FIRST.includes(name) ? FIRST.indexOf(name) : FIRST.length);
  return [...names].sort((a, b) => rank(a) - rank(b) || a.localeCompare(b));
}

// A mean that forgets: the first values count as much as they should, whatever the weight.
function smoothed(points, weight) {
  let sum = 0, count = 0;
  return points.map(({ x, y }) => {
    sum = weight * sum + (1 - weight) * y;
    count = weight * count + (1 - weight);
    return { x, y: sum / count };
  });
}

// One chart for each figure of the runs; they grow with `update`. All have one axis, zoom and legend.
export class Curves {
  constructor() {
    this.runs = [];
    this.drawn = new Map();
    this.range = {};
    const changed = () => this.update(this.runs, true);
    this.over = el("select", { onchange: () => { this.range = {}; changed(); } }, el("option", { value: "own" }, "epoch or step"), el("option", { value: "minutes" }, "minutes"));
    this.smooth = el("input", { type: "range", min: 0, max: 0.98, step: 0.02, value: 0, oninput: changed });
    this.log = el("input", { type: "checkbox", onchange: changed });
    this.filter = el("input", { type: "search", placeholder: "name of a figure", "aria-label": "Filter figures", oninput: changed });
    this.whole = el("button", { type: "button", hidden: true, onclick: () => this.zoom({}) }, "Whole curves");
    this.legend = el("ul", { class: "legend" });
    this.controls = el("div", { class: "bar", hidden: true }, el("label", {}, "over ", this.over), el("label", {}, "smoothing ", this.smooth),
      el("label", {}, this.log, " log axis"), this.filter, this.whole, el("span", { class: "dim" }, "drag over a chart to zoom"), this.legend);
    this.charts = el("div", { class: "charts" });
    this.element = el("div", {}, this.controls, this.charts);
  }

  zoom(range) {
    this.range = range;
    this.whole.hidden = range.min == null;
    this.update(this.runs, true);
  }

  points(run, name) {
    const points = run.curves[name].points;
    return this.over.value === "own" ? points.map(([x, y]) => ({ x, y })) : points.filter(([, , minutes]) => minutes != null).map(([, y, x]) => ({ x, y }));
  }

  update(runs, again = false) {
    this.runs = runs;
    const all = ranked(new Set(runs.flatMap((run) => Object.keys(run.curves)))).filter((name) => name.includes(this.filter.value));
    const names = all.slice(0, MOST);
    this.controls.hidden = !runs.some((run) => Object.keys(run.curves).length);
    this.filter.hidden = all.length <= MOST && !this.filter.value;
    fill(this.legend, runs.length < 2 ? [] : runs.map((run, index) => el("li", {}, swatch(index), run.run)));
    for (const [name, { element, chart }] of this.drawn) {
      if (!names.includes(name) || again) { element.remove(); chart.destroy(); charts.delete(chart); this.drawn.delete(name); }
    }
    names.forEach((name) => this.draw(name));
  }

  draw(name) {
    const weight = Number(this.smooth.value);
    const found = this.runs.map((run, index) => ({ run, index })).filter(({ run }) => run.curves[name]);
    const datasets = found.flatMap(({ run, index }) => {
      const data = this.points(run, name);
      const own = { label: run.run, ...style(index), pointRadius: data.length > FEW || weight ? 0 : 2, data: weight ? smoothed(data, weight) : data };
      return weight ? [own, { ...own, label: "", borderColor: `${own.borderColor}40`, borderWidth: 1, data }] : [own];
    });
    const over = this.over.value === "own" ? found[0].run.curves[name].over : "minutes";
    const last = found.map(({ run }) => `${run.run} ${number(run.curves[name].points.at(-1)[1])}`);
    const label = `${name} by ${over}; last: ${last.join(", ")}`;
    if (this.drawn.has(name)) {
      const { chart, canvas } = this.drawn.get(name);
      chart.data.datasets = datasets;
      canvas.setAttribute("aria-label", label);
      chart.update("none");
      return;
    }
    const whole = over === "minutes" ? {} : { ticks: { precision: 0 } };
    const options = { parsing: false, interaction: { mode: "nearest", axis: "x", intersect: false },
      scales: { x: axis(over, { scale: { type: "linear", ...this.range }, ...whole }), y: axis(name, { scale: { type: this.log.checked ? "logarithmic" : "linear" } }) },
      plugins: { legend: { display: false }, tooltip: { filter: (item) => item.dataset.label !== "" } } };
    const made = draw(label, { type: "line", data: { datasets }, options, plugins: [dragged] });
    this.drawn.set(name, made);
    this.charts.append(made.element);
    let from = null;
    const at = (event) => made.chart.scales.x.getValueForPixel(event.offsetX);
    made.canvas.addEventListener("pointerdown", (event) => { from = event; });
    made.canvas.addEventListener("pointermove", (event) => { if (from) { made.chart.dragged = [from.offsetX, event.offsetX]; made.chart.draw(); } });
    made.canvas.addEventListener("pointerup", (event) => {
      const [low, high] = from ? [at(from), at(event)].sort((a, b) => a - b) : [];
      const far = from && Math.abs(event.offsetX - from.offsetX) > 8;
      from = made.chart.dragged = null;
      if (far) this.zoom({ min: low, max: high });
    });
    made.canvas.addEventListener("pointerleave", () => { from = made.chart.dragged = null; });
  }
}

// What is chosen by the pointer.
const dragged = { id: "dragged", afterDraw({ ctx, chartArea, dragged: ends }) {
  if (!ends) return;
  ctx.save();
  ctx.globalAlpha = 0.2;
  ctx.fillStyle = colour("--link");
  ctx.fillRect(Math.min(...ends), chartArea.top, Math.abs(ends[1] - ends[0]), chartArea.height);
  ctx.restore();
} };

function swatch(index) {
  const { borderColor, borderDash } = style(index);
  return svg("svg", { width: 22, height: 8, "aria-hidden": "true" },
    svg("line", { x1: 0, x2: 22, y1: 4, y2: 4, stroke: borderColor, "stroke-width": 3, "stroke-dasharray": borderDash.join(" ") }));
}

// A curve without axes, beside a name.
export function small(name, points) {
  const [x, y] = [0, 1].map((place) => points.map((point) => point[place]));
  const [left, right, low, high] = [Math.min(...x), Math.max(...x), Math.min(...y), Math.max(...y)];
  const line = points.map((point) => `${2 + (SMALL.width - 4) * ((point[0] - left) / (right - left || 1))},${SMALL.height - 2 - (SMALL.height - 4) * ((point[1] - low) / (high - low || 1))}`);
  return svg("svg", { ...SMALL, role: "img", "aria-label": `${name}, from ${number(y[0])} to ${number(y.at(-1))}`, class: "small-curve" },
    svg("polyline", { points: line.join(" "), fill: "none", stroke: "currentColor", "stroke-width": 1.5 }));
}

const USED = /^(?:(.*) )?(CPU|memory|GPU|GPU memory|disk read|disk written|sent|received)$/;
const GIB = 2 ** 30, MIB = 2 ** 20;
const UNITS = { CPU: ["CPU", 1, "processors"], memory: ["memory", GIB, "GiB"], GPU: ["GPU", 1, "%"], "GPU memory": ["GPU memory", GIB, "GiB"],
  "disk read": ["disk", MIB, "MiB/s"], "disk written": ["disk", MIB, "MiB/s"], sent: ["network", MIB, "MiB/s"], received: ["network", MIB, "MiB/s"] };

// What a run's jobs and their machines have used: charts over minutes, of the jobs first.
export class Use {
  constructor() { this.element = el("div", { class: "charts" }); this.drawn = []; this.shown = ""; }

  update(usage) {
    const now = JSON.stringify(usage);
    if (now === this.shown) return;
    this.shown = now;
    for (const chart of this.drawn) { chart.destroy(); charts.delete(chart); }
    const groups = new Map();
    for (const [name, { points }] of Object.entries(usage)) {
      const [, machine, what] = name.match(USED) ?? [];
      if (!what) continue;
      const [title, unit, of] = UNITS[what];
      const key = machine ? `${title} of machines (${what === "CPU" ? "%" : of})` : `${title} of this run (${of})`;
      const line = machine ? (title === what ? machine : `${machine} ${what}`) : title;
      groups.set(key, { ...groups.get(key), [line]: points.map(([, y, x]) => ({ x, y: y / unit })) });
    }
    const made = [...groups].sort(([a], [b]) => a.includes("machines") - b.includes("machines")).map(([title, lines]) => overTime(title, lines));
    this.drawn = made.map(({ chart }) => chart);
    fill(this.element, made.map(({ element }) => element));
  }
}

function overTime(title, lines) {
  const datasets = Object.entries(lines).map(([label, data], index) => ({ label, ...style(index), pointRadius: 0, data }));
  const options = { parsing: false, interaction: { mode: "nearest", axis: "x", intersect: false },
    scales: { x: axis("minutes", { scale: { type: "linear" } }), y: axis(title, { scale: { min: 0 } }) },
    plugins: { legend: { display: datasets.length > 1, labels: { color: colour("--ink"), boxHeight: 2 } } } };
  const most = datasets.map(({ label, data }) => `${label} ${number(Math.max(...data.map(({ y }) => y)))}`);
  return draw(`${title} by minutes; at most: ${most.join(", ")}`, { type: "line", data: { datasets }, options });
}

// What the machines have cost, a bar a day; nothing where no price is known.
export class Days {
  constructor() { this.element = el("div", { class: "charts" }); this.shown = ""; }

  update(days) {
    const now = JSON.stringify(days);
    if (now === this.shown) return;
    this.shown = now;
    if (this.chart) { this.chart.destroy(); charts.delete(this.chart); }
    const costs = days.map((each) => each.cost);
    if (!costs.some(Boolean)) { fill(this.element); return; }
    const options = { scales: { x: axis("day, in UTC"), y: axis("$", { scale: { min: 0 } }) }, plugins: { legend: { display: false } } };
    const made = draw(`$ by day; last: ${days.at(-1).day} ${costs.at(-1).toFixed(2)}`, { type: "bar", data: { labels: days.map((each) => each.day), datasets: [{ ...style(0), data: costs }] }, options });
    this.chart = made.chart;
    fill(this.element, made.element);
  }
}

// Each point is a line over the axes; numbers are scaled to their range, texts have places in it.
export function parallel(points, axes, by) {
  const scales = axes.map((name) => scale(points.map((point) => point.all[name])));
  const figures = scale(points.map((point) => point.all[by]));
  const datasets = points.map((point) => {
    const share = figures.place(point.all[by]);
    const line = share == null ? colour("--line") : hue(share);
    return { label: point.name, borderColor: line, backgroundColor: line, borderWidth: 1.5, pointRadius: 2, spanGaps: true,
      data: axes.map((name, index) => scales[index].place(point.all[name])) };
  });
  const labels = axes.map((name, index) => (scales[index].log ? `${name} (log)` : name));
  const options = {
    layout: { padding: { right: 48 } },
    scales: { x: { ticks: { color: colour("--ink") }, grid: { color: colour("--line") } }, y: { min: -0.05, max: 1.05, ticks: { display: false }, grid: { display: false } } },
    plugins: { legend: { display: false }, tooltip: { callbacks: {
      label: (item) => `${item.dataset.label}: ${axes[item.dataIndex]} ${number(points[item.datasetIndex].all[axes[item.dataIndex]])}` } } },
  };
  const ticks = { id: "ticks", afterDraw({ ctx, scales: { x, y } }) {
    ctx.save();
    ctx.font = "11px system-ui, sans-serif";
    ctx.textBaseline = "middle";
    axes.forEach((_, index) => scales[index].ticks.reduce((below, [place, said]) => {
      const left = x.getPixelForValue(index) + 6, top = y.getPixelForValue(place);
      if (below - top < 14) return below; // it would lie on the one below
      ctx.fillStyle = colour("--paper");
      ctx.fillRect(left - 2, top - 7, ctx.measureText(said).width + 4, 14);
      ctx.fillStyle = colour("--ink");
      ctx.fillText(said, left, top);
      return top;
    }, Infinity));
    ctx.restore();
  } };
  const title = `Parallel coordinates of ${points.length} points over ${axes.join(", ")}; the table below has the same`;
  const key = svg("svg", { width: 160, height: 12, role: "img", "aria-label": "colours from the least to the largest" },
    Array.from({ length: 40 }, (_, step) => svg("rect", { x: 4 * step, width: 4, height: 12, fill: hue(step / 39) })));
  const ends = figures.ticks.map(([, said]) => said);
  return [draw(title, { type: "line", data: { labels, datasets }, options, plugins: [ticks] }, "chart wide").element,
    el("p", { class: "bar dim" }, `${by}${figures.log ? " (log)" : ""}: ${ends[0] ?? ""} `, key, ` ${ends.at(-1) ?? ""}`)];
}

const hue = (share) => `hsl(${Math.round(240 - 200 * share)} 75% 50%)`;

const TICKS = [0, 0.25, 0.5, 0.75, 1];

function scale(values) {
  const known = values.filter((value) => value != null && value !== "");
  const numbers = known.map(Number);
  if (known.length && numbers.every(Number.isFinite)) {
    const low = Math.min(...numbers), high = Math.max(...numbers);
    // Learning rates and the like span powers of ten.
    const log = low > 0 && high / low >= (numbers.every(Number.isInteger) ? 100 : 10);
    const [to, from] = log ? [Math.log, Math.exp] : [(value) => value, (value) => value];
    const place = (value) => (value == null || value === "" ? null : high === low ? 0.5 : (to(Number(value)) - to(low)) / (to(high) - to(low)));
    const few = [...new Set(numbers)];
    const ticks = high === low ? [[0.5, number(low)]] : few.length <= TICKS.length ? few.map((value) => [place(value), number(value)]).sort((a, b) => a[0] - b[0])
      : TICKS.map((share) => [share, number(from(to(low) + share * (to(high) - to(low))))]);
    return { place, log, ticks };
  }
  const texts = [...new Set(known.map(String))].sort();
  const place = (value) => (value == null ? null : texts.length < 2 ? 0.5 : texts.indexOf(String(value)) / (texts.length - 1));
  return { place, log: false, ticks: texts.slice(0, 12).map((each) => [place(each), each.slice(0, 24)]) };
}
