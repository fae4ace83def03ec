// The views: each returns its element, and how often it asks again.

import { buttons, get, lines, say } from "./api.js";
import { Curves, parallel } from "./charts.js";
import { bytes, duration, el, facts, fill, number, state, table, text, time } from "./dom.js";
import { PagedTable } from "./paged.js";

const MOST_COMPARED = 12;
const MOST_LOG = 400; // pieces
const RETRY_MS = 3000;
const to = (stack, ...path) => `#/${[stack, ...path].map(encodeURIComponent).join("/")}`;
const link = (address, name, key) => el("a", { href: address, "data-key": key ?? address }, name);

function gauge(name, used, size, shown) {
  if (used == null || !size) return el("span", { class: "dim" }, "not known");
  return el("span", {}, el("meter", { min: 0, max: size, value: used, low: size * 0.8, high: size * 0.9, optimum: 0, "aria-label": name }), ` ${shown}`);
}

function nodesTable(rows) {
  return table("Nodes that are alive", [
    ["node", (row) => `${row.node}${row.host ? ` (${row.host})` : ""}`],
    ["CPU", (row) => gauge(`CPU of ${row.node}`, row.cpu, 100, `${number(row.cpu)} %`)],
    ["memory", (row) => gauge(`Memory of ${row.node}`, row.memory?.[0], row.memory?.[1], `${bytes(row.memory?.[0])} of ${bytes(row.memory?.[1])}`)],
    ["disk", (row) => gauge(`Disk of ${row.node}`, row.disk?.[0], row.disk?.[1], `${bytes(row.disk?.[0])} of ${bytes(row.disk?.[1])}`)],
    ["GPU", (row) => (row.gpus.length ? row.gpus.map((gpu) => el("div", {}, gauge(`${gpu.name} of ${row.node}`, gpu.used, 100, `${number(gpu.used)} %, ${bytes(gpu.memory?.[0])} of ${bytes(gpu.memory?.[1])}, ${gpu.name}`))) : "none")],
  ], rows, "no node is alive");
}

function driftOf(look) {
  if (!look) return el("span", { class: "dim" }, "not looked yet");
  if (look.code === null) return "looking";
  const found = { 0: ["good", "none"], 2: ["bad", "drift"] }[look.code] ?? ["bad", "could not look"];
  return el("span", { class: found[0] }, `${found[1]} (${time(look.began * 1000)})`);
}

const ends = (row) => (row.ends ? el("span", { class: row.soon ? "bad" : "" }, time(row.ends)) : "");

export function overview({ stack, stacks }) {
  const rows = new Map(stacks.map((name) => [name, { stack: name, health: "asking" }]));
  const all = el("div"), own = el("div"), live = el("div");
  const show = () => fill(all, el("h2", {}, "Stacks"), table("Stacks of this project, and attached clusters", [
    ["stack", (row) => link(to(row.stack, "overview"), row.stack)],
    ["health", (row) => state(row.health)],
    ["drift", (row) => driftOf(row.drift)],
    ["$/h", (row) => (row.hourly_cost ? row.hourly_cost.toFixed(2) : ""), "number"],
    ["ends", ends],
    ["active jobs", (row) => text(row.active), "number"],
    ["", (row) => text(row.message || row.soon), "long"],
  ], [...rows.values()], "no stacks"));
  const others = async (name) => { rows.set(name, await get(name, "row")); show(); };
  const rest = async () => { for (const name of stacks) if (name !== stack) await others(name).catch(() => {}); };
  let asked = 0;
  const details = async () => {
    const found = await get(stack, "stack");
    fill(own, el("h2", {}, "Drift"), found.drift ? el("pre", { tabindex: 0, "aria-label": "The last look for drift" }, found.drift.text || "looking") : "",
      buttons(stack, found.actions, {}, () => Promise.all([others(stack), details()])), el("h2", {}, "Addresses"), facts(found.addresses),
      el("h2", {}, "Next"), facts(found.next.map(([command, effect]) => [effect, el("code", {}, command)])));
  };
  const load = async () => {
    // Asked once a minute, one after another: the questions read a state, or start kubectl.
    const rarely = asked++ % 12 === 0;
    await others(stack);
    if (rarely) rest();
    if (rows.get(stack).health !== "up") { fill(own); fill(live); return; }
    if (rarely || !own.hasChildNodes()) await details();
    const now = await get(stack, "nodes");
    fill(live, el("h2", {}, `Nodes of ${stack}`), nodesTable(now.rows),
      el("h2", {}, "Alerts"), now.fault ? el("p", { class: "bad" }, now.fault) : table("Alerts of Prometheus", [
        ["alert", (row) => row.alert], ["state", (row) => state(row.state)], ["since", (row) => time(row.since)],
        ["about", (row) => row.about, "long"], ["", (row) => row.summary, "long"]], now.alerts, "no alerts"));
  };
  show();
  return { title: `Overview of ${stack}`, element: el("div", {}, all, live, own), load, every: 5 };
}

export function jobs({ stack }) {
  const list = new PagedTable({
    caption: `Jobs of ${stack}`, hint: "name, user, status=RUNNING, seconds>60", empty: "no jobs yet: train submit alexnet",
    load: (query) => get(stack, "jobs", query),
    columns: [
      { key: "job", title: "job", cell: (row) => link(to(stack, "jobs", row.job), row.job) },
      { key: "status", title: "status", cell: (row) => state(row.status) },
      { key: "run", title: "run", cell: (row) => row.run && link(to(stack, "runs", row.run), row.run, `run of ${row.job}`) },
      { key: "user", title: "user", cell: (row) => row.user },
      { key: "started", title: "started", cell: (row) => time(row.started) },
      { key: "seconds", title: "time", kind: "number", cell: (row) => duration(row.seconds) },
      { key: "waits", title: "why it waits", kind: "long", fixed: true, cell: (row) => row.waits ?? "" },
    ],
  });
  return { title: `Jobs of ${stack}`, element: el("div", {}, el("h2", {}, "Jobs"), list.element), load: () => list.refresh(), every: 5 };
}

export function job({ stack, item }) {
  const about = el("div");
  const log = el("pre", { role: "log", tabindex: 0, "aria-live": "off", "aria-label": `Log of ${item}` });
  const load = async () => {
    const row = await get(stack, "jobs", item);
    fill(about, facts([["status", state(row.status)], ["why it waits", row.waits], ["message", row.message],
      ["run", row.run && link(to(stack, "runs", row.run), row.run)], ["user", row.user], ["started", time(row.started)],
      ["time", duration(row.seconds)], ["commit", row.commit], ["entrypoint", el("code", {}, row.entrypoint)]]),
    buttons(stack, row.actions, { job: item }, load));
  };
  const put = (piece) => {
    const atEnd = log.scrollTop + log.clientHeight > log.scrollHeight - 20;
    log.append(piece);
    while (log.childNodes.length > MOST_LOG) log.firstChild.remove();
    if (atEnd) log.scrollTop = log.scrollHeight;
  };
  const closing = new AbortController();
  let over = false;
  const take = (kind, value) => {
    over ||= kind === "end" || kind === "fault";
    if (kind === "log") put(value);
    else if (kind === "cut") put(`\n(${value})\n`);
    else if (kind === "fault") put(`\n${value}\n`);
    else { say(`the job has ended: ${value}`); load().catch(() => {}); }
  };
  const follow = async () => {
    for (;;) { // it begins again after a lost connection
      try { await lines([stack, "jobs", item, "log"], closing.signal, take); } catch { /* asked again */ }
      if (over || closing.signal.aborted) return;
      await new Promise((resolve) => setTimeout(resolve, RETRY_MS));
      log.replaceChildren();
    }
  };
  follow();
  return { title: `Job ${item}`, element: el("div", {}, el("h2", {}, `Job ${item}`), about, el("h3", {}, "Log"), log),
    load, every: 5, close: () => closing.abort() };
}

export function runs({ stack, item }) {
  const chosen = new Set((item ?? "").split(",").filter(Boolean));
  const curves = new Curves();
  const details = el("div");
  const choose = (name, on) => {
    if (on && chosen.size >= MOST_COMPARED) { say(`at most ${MOST_COMPARED} runs are drawn at once`); list.refresh(); return; }
    if (on) chosen.add(name); else chosen.delete(name);
    history.replaceState(null, "", to(stack, "runs", ...(chosen.size ? [[...chosen].join(",")] : [])));
    compare().catch((error) => say(error.message));
  };
  const list = new PagedTable({
    caption: `Runs of ${stack}`, hint: "name, valid_acc>0.9, lr=0.01, job=FAILED", empty: "no runs yet: train submit alexnet",
    load: (query) => get(stack, "runs", query),
    columns: [
      { key: "chosen", title: "curves", fixed: true, cell: (row) => el("input", { type: "checkbox", checked: chosen.has(row.run), "data-key": `choose-${row.run}`,
        "aria-label": `Draw ${row.run}`, onchange: (event) => choose(row.run, event.target.checked) }) },
      { key: "run", title: "run", cell: (row) => link(to(stack, "runs", row.run), row.run) },
      { key: "job", title: "job", cell: (row) => state(row.job) },
      { key: "user", title: "user", cell: (row) => row.user },
      { key: "epochs", title: "epochs", kind: "number", cell: (row) => `${row.epochs}${row.of == null ? "" : `/${number(row.of)}`}` },
      { key: "loss", title: "loss", kind: "number", cell: (row) => number(row.loss) },
      { key: "valid_acc", title: "valid acc", kind: "number", cell: (row) => number(row.valid_acc) },
      { key: "best", title: "best", kind: "number", cell: (row) => number(row.best) },
      { key: "test_acc", title: "test acc", kind: "number", cell: (row) => number(row.test_acc) },
      { key: "started", title: "started", cell: (row) => time(row.started) },
      { key: "cost", title: "at most $", kind: "number", cell: (row) => number(row.cost) },
      { key: "checkpoint", title: "checkpoint", cell: (row) => row.checkpoint },
      { key: "fault", title: "fault", kind: "long", cell: (row) => row.fault },
    ],
  });
  const compare = async () => {
    const found = chosen.size ? await get(stack, "compared", { runs: [...chosen].join(",") }) : { runs: [], differ: [] };
    curves.update(found.runs);
    fill(details, found.runs.length ? [settings(found), ...found.runs.map((run) => one(stack, run, compare))] : "");
  };
  const load = () => Promise.all([list.refresh(), compare()]);
  return { title: `Runs of ${stack}`, element: el("div", {}, el("h2", {}, "Runs"), el("p", { class: "dim" }, "Choose runs to draw their curves and compare their settings."),
    list.element, curves.element, details), load, every: 4 };
}

function settings({ runs, differ }) {
  const names = [...new Set(runs.flatMap((run) => Object.keys(run.config)))];
  const shown = runs.length > 1 ? differ : names;
  const title = runs.length > 1 ? "Settings that differ" : `Settings of ${runs[0].run}`;
  return [el("h2", {}, title), table(title, [["setting", (name) => name], ...runs.map((run) => [run.run, (name) => text(run.config[name]), "long"])],
    shown, runs.length > 1 ? "the settings are the same" : "no settings")];
}

function one(stack, run, done) {
  const last = run.starts.at(-1);
  const packages = last && Object.entries(last.packages).filter(([, version]) => version).map(([name, version]) => `${name} ${text(version)}`).join(", ");
  return el("section", { "aria-label": `Run ${run.run}` }, el("h3", {}, run.run), facts([["fault", run.fault],
    ["checkpoint", run.checkpoint || "none yet"], ["best validation accuracy", number(run.best)], ["cost, at most", run.cost == null ? "" : `${run.cost} $ (the whole stack while its jobs ran)`],
    ["starts", run.starts.length ? `${run.starts.length}; last ${time(last.time)}, commit ${last.commit || "unknown"}` : ""],
    ["versions", last && `Python ${last.python}, ${packages}`]]), buttons(stack, run.actions, { run: run.run }, done));
}

export function sweeps({ stack, item }) {
  if (item) return sweep(stack, item);
  const list = el("div");
  const load = async () => fill(list, table("Sweeps", [
    ["sweep", (row) => link(to(stack, "sweeps", `${row.kind}:${row.sweep}`), row.sweep)],
    ["by", (row) => ({ hydra: "Hydra, in this folder", tune: "Ray Tune, in the store" })[row.kind]],
    ["points", (row) => text(row.points), "number"],
  ], (await get(stack, "sweeps")).rows, "no sweeps in this folder, nor in the store (docs/sweeps.md)"));
  return { title: `Sweeps of ${stack}`, element: el("div", {}, el("h2", {}, "Sweeps"), list), load, every: 10 };
}

function sweep(stack, item) {
  const at = item.indexOf(":");
  const kind = item.slice(0, at), name = item.slice(at + 1);
  const body = el("div"), choice = el("select", { onchange: () => draw() });
  let points = [], names = [], drawn = "";
  const figure = () => choice.value;
  const draw = () => {
    const varying = names.filter((each) => new Set(points.map((point) => text(point.settings[each]))).size > 1);
    const by = figure();
    const ranked = [...points].sort((a, b) => rank(a.all[by]) - rank(b.all[by]));
    const values = [...new Set(points.flatMap((point) => Object.keys(point.values)))];
    fill(body, by && points.length > 1 ? parallel(points, [...varying, by], by) : "",
      table(`Points of ${name}, the largest ${by || "value"} first`, [["point", (row) => row.point], ...varying.map((key) => [key, (row) => number(row.settings[key])]),
        ...values.map((key) => [key, (row) => number(row.values[key]), "number"]), ...(points.some((point) => point.error) ? [["error", (row) => row.error, "long"]] : [])], ranked, "no points yet"));
  };
  const load = async () => {
    const { rows } = await get(stack, "sweep", { kind, sweep: name });
    const now = JSON.stringify(rows);
    if (now === drawn) return;
    drawn = now;
    points = rows.map((row) => ({ ...row, all: { ...row.settings, ...row.values } }));
    names = [...new Set(rows.flatMap((row) => Object.keys(row.settings)))];
    const figures = [...new Set(rows.flatMap((row) => Object.keys(row.values)))].filter((key) => rows.some((row) => typeof row.values[key] === "number"));
    const before = choice.value;
    const usual = figures.find((key) => /acc/.test(key)) ?? figures[0];
    fill(choice, figures.map((key) => el("option", { value: key, selected: key === (before || usual) }, key)));
    draw();
  };
  return { title: `Sweep ${name}`, element: el("div", {}, el("h2", {}, `Sweep ${name}`), el("label", { class: "bar" }, "Figure", choice), body), load, every: 10 };
}

const rank = (value) => (typeof value === "number" ? -value : Infinity);

export function services({ stack }) {
  const list = el("div");
  const load = async () => fill(list, (await get(stack, "services")).rows.map((row) => el("section", { "aria-label": `Service ${row.service}` },
    el("h3", {}, row.service), facts([["status", state(row.status)], ["replicas", row.replicas], ["run", row.run && link(to(stack, "runs", row.run), row.run)],
      ["checkpoint", row.checkpoint], ["address", row.url], ["message", row.message]]), buttons(stack, row.actions, { service: row.service }, load)))
    .concat(el("p", { class: "dim" }, "`train serve RUN` serves a run; so does the button of a run with a checkpoint.")));
  return { title: `Services of ${stack}`, element: el("div", {}, el("h2", {}, "Services"), list), load, every: 5 };
}
