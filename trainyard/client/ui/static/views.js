// The other views: each returns its element, and how often it asks again.

import { buttons, get, lines } from "./api.js";
import { duration, el, facts, fill, link, sentence, state, time, to } from "./dom.js";
import { Log } from "./log.js";
import { PagedTable } from "./paged.js";

export { overview } from "./overview.js";
export { run, runs } from "./runs.js";
export { sweeps } from "./sweeps.js";

const RETRY_MS = 3000;

export function jobs({ stack }) {
  const list = new PagedTable({
    name: "jobs", caption: `Jobs of ${stack}`, hint: "name, user, status=RUNNING, seconds>60", empty: "No job yet. Start one: `train submit alexnet`.",
    load: (query) => get(stack, "jobs", query),
    columns: [
      { key: "job", title: "job", cell: (row) => link(to(stack, "jobs", row.job), row.job) },
      { key: "status", title: "status", cell: (row) => state(row.status) },
      { key: "run", title: "run", cell: (row) => row.run && link(to(stack, "run", row.run), row.run, `run of ${row.job}`) },
      { key: "user", title: "user", cell: (row) => row.user },
      { key: "started", title: "started", cell: (row) => time(row.started) },
      { key: "seconds", title: "time", kind: "number", cell: (row) => duration(row.seconds) },
      { key: "waits", title: "why it waits", kind: "long", cell: (row) => row.waits && el("span", {}, sentence(row.waits)) },
    ],
  });
  return { title: `Jobs of ${stack}`, element: el("div", {}, el("h2", {}, "Jobs"), list.element), load: () => list.refresh(), every: 5 };
}

// The log of a job as it grows; `ended` gets the status at its end. Returns what shows it, and its end.
export function follow(stack, job, ended) {
  const log = new Log(job, `train logs ${job}`);
  const closing = new AbortController();
  let over = false;
  const take = (kind, value) => {
    over ||= kind === "end" || kind === "fault";
    if (kind === "log") log.put(value);
    else if (kind === "end") ended(value);
    else log.put(kind === "cut" ? `\n(${value})\n` : `\n${value}\n`);
  };
  const read = async () => {
    for (;;) { // it begins again after a lost connection
      try { await lines([stack, "jobs", job, "log"], closing.signal, take); } catch { /* asked again */ }
      if (over || closing.signal.aborted) return;
      await new Promise((resolve) => setTimeout(resolve, RETRY_MS));
      log.clear();
    }
  };
  read();
  return { element: log.element, close: () => closing.abort() };
}

export function job({ stack, item }) {
  const about = el("div");
  let end = ""; // as its log says, which may be before the list of jobs does
  const load = async () => {
    const row = await get(stack, "jobs", item);
    const over = end && end !== row.status;
    fill(about, facts([["status", state(end || row.status)], ["why it waits", over ? "" : row.waits], ["message", row.message],
      ["run", row.run && link(to(stack, "run", row.run), row.run)], ["user", row.user], ["started", time(row.started)],
      ["time", duration(row.seconds)], ["commit", row.commit], ["entrypoint", el("code", {}, row.entrypoint)]]),
    buttons(stack, over ? [] : row.actions, { job: item }, load));
  };
  const log = follow(stack, item, (status) => { end = status; load().catch(() => {}); });
  return { title: `Job ${item}`, element: el("div", {}, el("h2", {}, `Job ${item}`), about, el("h3", {}, "Log"), log.element),
    load, every: 5, close: log.close };
}

export function services({ stack }) {
  const list = el("div");
  const load = async () => fill(list, (await get(stack, "services")).rows.map((row) => el("section", { "aria-label": `Service ${row.service}` },
    el("h3", {}, row.service), facts([["status", state(row.status)], ["replicas", row.replicas], ["run", row.run && link(to(stack, "run", row.run), row.run)],
      ["checkpoint", row.checkpoint], ["address", row.url], ["message", row.message]]), buttons(stack, row.actions, { service: row.service }, load)))
    .concat(el("p", { class: "dim" }, sentence("`train serve RUN` serves a run. The page of a run has a button for it."))));
  return { title: `Services of ${stack}`, element: el("div", {}, el("h2", {}, "Services"), list), load, every: 5 };
}
