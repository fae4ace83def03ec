// Sweeps: the list, and the points of one.

import { get } from "./api.js";
import { parallel } from "./charts.js";
import { el, fill, link, number, table, text, to } from "./dom.js";

const TRIAL = /_[0-9a-z]{5}_(\d{5})(?:_|$)/; // in the names of Tune's folders, which repeat all settings

export function sweeps({ stack, item }) {
  if (item) return sweep(stack, item);
  const list = el("div");
  const load = async () => fill(list, table("Sweeps", [
    ["sweep", (row) => link(to(stack, "sweeps", `${row.kind}:${row.sweep}`), row.sweep)],
    ["by", (row) => ({ hydra: "Hydra, in this folder", tune: "Ray Tune, in the store" })[row.kind]],
    ["points", (row) => text(row.points), "number"],
  ], (await get(stack, "sweeps")).rows, "No sweep is in this folder or in the store. `train submit JOB --multirun lr=0.1,0.01` makes one."));
  return { title: `Sweeps of ${stack}`, element: el("div", {}, el("h2", {}, "Sweeps"), list), load, every: 10 };
}

function sweep(stack, item) {
  const at = item.indexOf(":");
  const kind = item.slice(0, at), name = item.slice(at + 1);
  const body = el("div"), choice = el("select", { onchange: () => draw() });
  let points = [], names = [], drawn = "", goals = {};
  const figure = () => choice.value;
  const draw = () => {
    const varying = names.filter((each) => new Set(points.map((point) => text(point.settings[each]))).size > 1);
    const by = figure();
    // Without a goal none is the best.
    const mode = goals[by], sign = mode === "max" ? -1 : 1;
    const rank = ({ values }) => (typeof values[by] === "number" ? sign * values[by] : Infinity);
    const ordered = mode ? [...points].sort((a, b) => rank(a) - rank(b)) : points;
    const values = [...new Set(points.flatMap((point) => Object.keys(point.values)))];
    fill(body, by && points.length > 1 ? parallel(points, [...varying, by], by) : "",
      el("h3", {}, mode ? `Points, the ${mode === "max" ? "most" : "least"} ${by} first` : "Points"), table(`Points of ${name}`, [["point", (row) => el("span", { title: row.point }, row.name)], ...varying.map((key) => [key, (row) => number(row.settings[key])]),
        ...values.map((key) => [key, (row) => number(row.values[key]), "number"]), ["error", (row) => row.error, "long"]], ordered, "No point has begun yet."));
  };
  const load = async () => {
    const { rows, goals: declared } = await get(stack, "sweep", { kind, sweep: name });
    const now = JSON.stringify([rows, declared]);
    if (now === drawn) return;
    drawn = now;
    goals = declared;
    points = rows.map((row) => ({ ...row, name: kind === "tune" ? `trial ${Number(row.point.match(TRIAL)?.[1] ?? NaN)}`.replace(" NaN", ` ${row.point}`) : row.point, all: { ...row.settings, ...row.values } }));
    names = [...new Set(rows.flatMap((row) => Object.keys(row.settings)))];
    const figures = [...new Set(rows.flatMap((row) => Object.keys(row.values)))].filter((key) => rows.some((row) => typeof row.values[key] === "number"));
    const before = choice.value;
    const usual = Object.keys(goals).find((key) => figures.includes(key)) ?? figures[0];
    fill(choice, figures.map((key) => el("option", { value: key, selected: key === (before || usual) }, key)));
    draw();
  };
  return { title: `Sweep ${name}`, element: el("div", {}, el("h2", {}, `Sweep ${name}`), el("label", { class: "bar" }, "Figure", choice), body), load, every: 10 };
}
