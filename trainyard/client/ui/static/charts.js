// Curves and parallel coordinates, drawn by Chart.js.

import { el, number } from "./dom.js";

// Okabe and Ito's colours, which people with any colour vision tell apart; then the same, dashed.
const COLOURS = ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00"];
const FIRST = ["loss", "valid_loss", "train_acc", "valid_acc", "test_acc"];
const MOST = 12;
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

// One chart for each number of the runs' epochs; they grow with `update`.
export class Curves {
  constructor() { this.element = el("div", { class: "charts" }); this.drawn = new Map(); }

  update(runs) {
    const names = [...new Set(runs.flatMap((run) => Object.keys(run.curves)))];
    const rank = (name) => (FIRST.includes(name) ? FIRST.indexOf(name) : FIRST.length);
    names.sort((a, b) => rank(a) - rank(b) || a.localeCompare(b));
    const shown = names.slice(0, MOST);
    for (const [name, { element, chart }] of this.drawn) {
      if (!shown.includes(name)) { element.remove(); chart.destroy(); charts.delete(chart); this.drawn.delete(name); }
    }
    for (const name of shown) {
      const datasets = runs.filter((run) => run.curves[name]).map((run) => ({ label: run.run, ...style(runs.indexOf(run)),
        pointRadius: run.numbers.length > 40 ? 0 : 2, spanGaps: true,
        data: run.curves[name].map((y, index) => ({ x: run.numbers[index], y })) }));
      const last = runs.filter((run) => run.curves[name]).map((run) => `${run.run} ${number(run.curves[name].at(-1))}`);
      const label = `${name} by epoch; last: ${last.join(", ")}`;
      if (!this.drawn.has(name)) {
        const options = { parsing: false, scales: { x: axis("epoch", { scale: { type: "linear" }, ticks: { precision: 0 } }), y: axis(name) },
          plugins: { legend: { labels: { color: colour("--ink"), boxHeight: 2 } } } };
        this.drawn.set(name, draw(label, { type: "line", data: { datasets }, options }));
        this.element.append(this.drawn.get(name).element);
      } else {
        const { chart, canvas } = this.drawn.get(name);
        chart.data.datasets = datasets;
        canvas.setAttribute("aria-label", label);
        chart.update("none");
      }
    }
  }
}

// Each point is a line over the axes; numbers are scaled to their range, texts have places in it.
export function parallel(points, axes, by) {
  const scales = axes.map((name) => scale(points.map((point) => point.all[name])));
  const figures = scale(points.map((point) => point.all[by]));
  const datasets = points.map((point) => {
    const share = figures.place(point.all[by]);
    const line = share == null ? colour("--line") : `hsl(${Math.round(240 - 200 * share)} 75% 50%)`;
    return { label: point.point, borderColor: line, backgroundColor: line, borderWidth: 1.5, pointRadius: 2, spanGaps: true,
      data: axes.map((name, index) => scales[index].place(point.all[name])) };
  });
  const labels = axes.map((name, index) => [name, scales[index].range]);
  const options = {
    scales: { x: { ticks: { color: colour("--ink") }, grid: { color: colour("--line") } }, y: { min: -0.05, max: 1.05, ticks: { display: false }, grid: { display: false } } },
    plugins: { legend: { display: false }, tooltip: { callbacks: {
      label: (item) => `${item.dataset.label}: ${axes[item.dataIndex]} ${number(points[item.datasetIndex].all[axes[item.dataIndex]])}` } } },
  };
  const title = `Parallel coordinates of ${points.length} points over ${axes.join(", ")}; the table below has the same`;
  return draw(title, { type: "line", data: { labels, datasets }, options }, "chart wide").element;
}

function scale(values) {
  const known = values.filter((value) => value != null && value !== "");
  const numbers = known.map(Number);
  if (known.length && numbers.every(Number.isFinite)) {
    const low = Math.min(...numbers), high = Math.max(...numbers);
    // Learning rates and the like span powers of ten.
    const by = low > 0 && high / low >= 100 ? Math.log : (value) => value;
    const place = (value) => (value == null || value === "" ? null : high === low ? 0.5 : (by(Number(value)) - by(low)) / (by(high) - by(low)));
    return { place, range: `${number(low)} to ${number(high)}` };
  }
  const texts = [...new Set(known.map(String))].sort();
  const place = (value) => (value == null ? null : texts.length < 2 ? 0.5 : texts.indexOf(String(value)) / (texts.length - 1));
  return { place, range: texts.slice(0, 4).join(", ") };
}
