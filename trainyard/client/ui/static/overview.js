// What runs now, what waits and why, the last runs; then the stack's nodes, alerts and addresses.

import { buttons, get } from "./api.js";
import { Days, ranked, small } from "./charts.js";
import { bytes, copied, duration, el, facts, fill, link, number, sentence, state, table, text, time, to } from "./dom.js";

const ACTIVE = ["RUNNING", "PENDING"];
const MOST_RUNS = 6;
const NAME = /^[a-z0-9][a-z0-9._-]*$/; // of a run; a stranger's folder may have another

function gauge(name, used, size, shown) {
  if (used == null || !size) return el("span", { class: "dim" }, "not known");
  return el("span", { class: "gauge" }, el("meter", { min: 0, max: size, value: used, low: size * 0.8, high: size * 0.9, optimum: 0, "aria-label": name }), ` ${shown}`);
}

// Used and whole, with one unit where they have one.
function share(pair) {
  const [used, size] = [bytes(pair?.[0]), bytes(pair?.[1])], [amount, unit] = used.split(" ");
  return `${size.endsWith(` ${unit}`) ? amount : used} of ${size}`;
}

function nodesTable(rows) {
  return table("Nodes that are alive", [
    ["node", (row) => `${row.node}${row.host ? ` (${row.host})` : ""}`],
    ["CPU", (row) => gauge(`CPU of ${row.node}`, row.cpu, 100, `${number(row.cpu)} %`)],
    ["memory", (row) => gauge(`Memory of ${row.node}`, row.memory?.[0], row.memory?.[1], share(row.memory))],
    ["disk", (row) => gauge(`Disk of ${row.node}`, row.disk?.[0], row.disk?.[1], share(row.disk))],
    ["GPU", (row) => (row.gpus.length ? row.gpus.map((gpu) => el("div", {}, gauge(`${gpu.name} of ${row.node}`, gpu.used, 100, `${number(gpu.used)} %, ${share(gpu.memory)}`), el("div", { class: "dim" }, gpu.name))) : "")],
  ], rows, "No node is alive.");
}

function driftOf(look) {
  if (!look) return el("span", { class: "dim" }, "not checked yet");
  if (look.code === null) return "checking";
  const found = { 0: ["good", "none"], 2: ["bad", "drift"] }[look.code] ?? ["bad", "could not check"];
  return el("span", { class: found[0] }, `${found[1]} (${time(look.began * 1000)})`);
}

const ends = (row) => (row.ends ? el("span", { class: row.soon ? "bad" : "" }, time(row.ends)) : "");

function stacksTable(rows) {
  const down = rows.filter((row) => row.health === "down"), there = rows.filter((row) => row.health !== "down");
  return [there.length ? table("Stacks of this project, and attached clusters", [
    ["stack", (row) => link(to(row.stack, "overview"), row.stack)], ["health", (row) => state(row.health)], ["active jobs", (row) => text(row.active), "number"],
    ["$/h", (row) => (row.hourly_cost ? row.hourly_cost.toFixed(2) : ""), "number"], ["ends", ends], ["drift", (row) => driftOf(row.drift)],
    ["", (row) => sentence(row.message || row.soon || "").filter(Boolean).length ? el("span", {}, sentence(row.message || row.soon)) : "", "long"],
  ], there, "") : "", down.length ? el("details", {}, el("summary", {}, `${down.length} not up: ${down.map((row) => row.stack).join(", ")}`),
    facts(down.map((row) => [row.stack, row.message]))) : ""];
}

function alertsOf(now) {
  if (now.fault) return el("p", { class: "bad" }, sentence(now.fault));
  if (!now.alerts) return el("p", { class: "dim" }, sentence("Nothing watches this stack: run `make monitoring`, then `train up`."));
  return table("Alerts of Prometheus", [["alert", (row) => row.alert], ["state", (row) => state(row.state)], ["since", (row) => time(row.since)],
    ["about", (row) => row.about, "long"], ["", (row) => row.summary, "long"]], now.alerts, "Prometheus raises no alert.");
}

function activeJobs(stack, rows) {
  const users = new Map();
  for (const row of rows) {
    const sums = users.get(row.user) ?? { user: row.user || "unknown", running: 0, waiting: 0, seconds: 0 };
    if (row.status === "RUNNING") { sums.running += 1; sums.seconds += row.seconds; } else sums.waiting += 1;
    users.set(row.user, sums);
  }
  return [table("Jobs that run or wait", [
    ["job", (row) => link(to(stack, "jobs", row.job), row.job)], ["run", (row) => row.run && link(to(stack, "run", row.run), row.run, `run of ${row.job}`)],
    ["status", (row) => state(row.status)], ["user", (row) => row.user], ["time", (row) => duration(row.seconds), "number"],
    ["why it waits", (row) => row.waits && el("span", {}, sentence(row.waits)), "long"],
  ], rows, "No job runs or waits. Start one: `train submit alexnet`."),
  users.size > 1 ? el("h3", {}, "By user") : "", users.size > 1 ? table("Who uses the cluster", [["user", (row) => row.user], ["running", (row) => row.running, "number"], ["waiting", (row) => row.waiting, "number"],
    ["time of running jobs", (row) => duration(row.seconds), "number"]], [...users.values()], "") : ""];
}

function lastRuns(stack, rows, curves) {
  const curve = (row) => {
    const found = curves.get(row.run);
    const name = found && ranked(Object.keys(found)).find((each) => found[each].points.length > 1);
    return name ? el("span", {}, small(name, found[name].points), ` ${name} ${number(found[name].points.at(-1)[1])}`) : "";
  };
  return table("The newest runs", [["run", (row) => link(to(stack, "run", row.run), row.run)], ["job", (row) => state(row.job)], ["curve", curve],
    ["user", (row) => row.user], ["started", (row) => time(row.started)]], rows, "No run yet. `train submit alexnet` makes one.");
}

// Users without a token of their own have no such time.
const seen = (row) => (row.seen === "" ? "never" : row.seen && time(Date.parse(row.seen.replace(" ", "T"))));

function costTable({ month, budget, users }) {
  const spent = month || budget != null ? `${month.toFixed(2)} $ this month${budget == null ? "" : ` of ${number(budget)} $`}` : "";
  return users.length ? [el("h2", {}, "Cost"), spent && el("p", {}, spent), table("Who used how much in 30 days", [["user", (row) => row.user], ["GPU hours", (row) => number(row.gpu_hours), "number"],
    ["CPU hours", (row) => number(row.cpu_hours), "number"], ["$", (row) => (row.cost ? row.cost.toFixed(2) : ""), "number"],
    ...(users.some((row) => row.seen != null) ? [["last seen", seen]] : [])], users, "")] : [];
}

const ADDRESS = /^(https?:\/\/\S+)(.*)$/s;

// An address is a link to copy; what begins like a command of ours is one to copy.
function address([name, value]) {
  const [, url, rest] = value.match(ADDRESS) ?? [];
  if (url) return [name, el("span", {}, copied(url, el("a", { href: url, target: "_blank", rel: "noreferrer" }, url)), rest)];
  return [name, /^\S*\btrain /.test(value) ? copied(value) : value];
}

export function overview({ stack, stacks }) {
  const rows = new Map(stacks.map((name) => [name, { stack: name, health: "asking" }]));
  const all = el("div"), own = el("div"), active = el("div"), newest = el("div"), live = el("div"), spent = el("div"), days = new Days();
  const show = () => fill(all, el("h2", {}, "Stacks"), ...stacksTable([...rows.values()]));
  const others = async (name) => { rows.set(name, await get(name, "row")); show(); };
  const rest = async () => { for (const name of stacks) if (name !== stack) await others(name).catch(() => {}); };
  const details = async () => {
    const found = await get(stack, "stack");
    fill(own, el("h2", {}, "Addresses"), facts(found.addresses.map(address)), el("h2", {}, "Drift"),
      found.drift ? el("pre", { tabindex: 0, "aria-label": "The last check for drift" }, found.drift.text || "checking") : "",
      buttons(stack, found.actions, {}, () => Promise.all([others(stack), details()])),
      el("h2", {}, "Next"), facts(found.next.map(([command, effect]) => [effect, copied(command)])));
  };
  const cost = async () => {
    const found = await get(stack, "cost");
    fill(spent, ...costTable(found));
    days.update(found.days);
  };
  let shown = "", asked = 0, curves = new Map();
  const runs = async (rarely) => {
    const found = (await get(stack, "runs")).rows.slice(0, MOST_RUNS);
    const names = found.map((row) => row.run).filter((name) => NAME.test(name)).join(",");
    if (names && (rarely || names !== shown)) curves = new Map((await get(stack, "compared", { runs: names })).runs.map((run) => [run.run, run.curves]));
    shown = names;
    fill(newest, el("h2", {}, "Runs"), lastRuns(stack, found, curves));
  };
  const load = async () => {
    // Asked once a minute, one after another: the questions read a state, or start kubectl.
    const rarely = asked++ % 12 === 0;
    await others(stack);
    if (rarely) rest();
    const { health, message } = rows.get(stack);
    if (health !== "up") {
      fill(own, health === "down" ? el("p", {}, `Stack ${stack} is not up. Bring it up in a terminal: `, copied(`train up -s ${stack}`)) : el("p", { class: "bad" }, sentence(message)));
      for (const part of [active, live, spent]) fill(part);
      days.update([]);
      await runs(rarely).catch(() => fill(newest));
      return;
    }
    const jobs = await get(stack, "jobs");
    fill(active, el("h2", {}, `Now on ${stack}`), ...activeJobs(stack, jobs.rows.filter((row) => ACTIVE.includes(row.status))));
    await runs(rarely).catch((error) => fill(newest, el("p", { class: "bad" }, sentence(error.message))));
    const now = await get(stack, "nodes");
    fill(live, el("h2", {}, `Nodes of ${stack}`), nodesTable(now.rows), el("h2", {}, "Alerts"), alertsOf(now));
    if (rarely || !own.hasChildNodes()) await Promise.all([details(), cost()]);
  };
  show();
  return { title: `Overview of ${stack}`, element: el("div", {}, active, newest, live, spent, days.element, all, own), load, every: 5 };
}
