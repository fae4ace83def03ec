// The table of runs with the curves of chosen ones, and the page of one run.

import { buttons, get, getFile, say } from "./api.js";
import { Curves, Use } from "./charts.js";
import { bytes, el, facts, fill, link, number, sentence, state, table, text, time, to } from "./dom.js";
import { Log, download } from "./log.js";
import { PagedTable } from "./paged.js";
import { follow } from "./views.js";

const MOST_COMPARED = 12;
const MOST_FIGURES = 6; // columns, before one chooses others
const PICTURES = { png: "image/png", jpg: "image/jpeg", jpeg: "image/jpeg", gif: "image/gif", webp: "image/webp" };
const TEXTS = /\.(txt|log|json|jsonl|csv|md|py|ya?ml|toml|diff|patch|sh|cfg|ini)$/i;
const MOST_VIEWED = 2 ** 20; // bytes of a text

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
    name: "runs", caption: `Runs of ${stack}`, hint: "name, valid_acc>0.9, lr=0.01, job=FAILED", empty: "No run yet. `train submit alexnet` makes one.",
    load: (query) => get(stack, "runs", query),
    columns: [
      { key: "chosen", title: "curves", fixed: true, cell: (row) => el("input", { type: "checkbox", checked: chosen.has(row.run), "data-key": `choose-${row.run}`,
        "aria-label": `Draw ${row.run}`, onchange: (event) => choose(row.run, event.target.checked) }) },
      { key: "run", title: "run", cell: (row) => link(to(stack, "run", row.run), row.run) },
      { key: "job", title: "job", cell: (row) => row.job && state(row.job) },
      { many: (found) => found.figures.map((name, index) => ({ key: name, title: name, kind: "number", off: index >= MOST_FIGURES, cell: (row) => number(row.figures[name]) })) },
      { many: (found) => {
        const figures = new Set(found.rows.filter((row) => row.best != null).map((row) => Object.keys(row.goals)[0]));
        const shared = figures.size === 1; // then the title says it, once
        return [{ key: "best", title: shared ? `best ${[...figures][0]}` : "best", kind: "number", cell: shared ? (row) => number(row.best) : best }];
      } },
      { key: "epochs", title: "epochs", kind: "number", cell: (row) => (row.epochs || row.of != null ? `${row.epochs}${row.of == null ? "" : `/${number(row.of)}`}` : "") },
      { key: "user", title: "user", cell: (row) => row.user },
      { key: "started", title: "started", cell: (row) => time(row.started) },
      { key: "cost", title: "$", kind: "number", cell: (row) => number(row.cost) },
      { key: "most", title: "at most $", kind: "number", cell: (row) => number(row.most) },
      { key: "checkpoint", title: "checkpoint", off: true, cell: (row) => row.checkpoint },
      { key: "fault", title: "fault", kind: "long", cell: (row) => row.fault },
    ],
  });
  const compare = async () => {
    const found = chosen.size ? await get(stack, "compared", { runs: [...chosen].join(",") }) : { runs: [], differ: [] };
    curves.update(found.runs);
    fill(details, found.runs.length ? settings(found) : "");
  };
  const load = () => Promise.all([list.refresh(), compare()]);
  return { title: `Runs of ${stack}`, element: el("div", {}, el("h2", {}, "Runs"), el("p", { class: "dim" }, "Choose runs to draw their curves and compare their settings. A run's name opens its page."),
    list.element, curves.element, details), load, every: 4 };
}

function settings({ runs, differ }) {
  const names = [...new Set(runs.flatMap((run) => Object.keys(run.config)))];
  const shown = runs.length > 1 ? differ : names;
  const title = runs.length > 1 ? "Settings that differ" : `Settings of ${runs[0].run}`;
  return [el("h2", {}, title), table(title, [["setting", (name) => name], ...runs.map((run) => [run.run, (name) => text(run.config[name]), "long"])],
    shown, runs.length > 1 ? "The settings are the same." : "This run has no settings.")];
}

export function run({ stack, item }) {
  const about = el("div"), curves = new Curves(), use = new Use(), logged = new Shown(stack, item), log = el("div"), files = el("div"), rest = el("div");
  const useTitle = el("h2", { hidden: true }, "Use");
  let drawn = "", following = null, asked = 0;
  const showLog = async (found) => {
    const newest = found.jobs.at(-1) ?? {};
    const key = JSON.stringify([newest.job, newest.log]);
    if (key === drawn) return;
    drawn = key;
    following?.close();
    following = null;
    if (newest.job) following = follow(stack, newest.job, () => load().catch(() => {}));
    else if (newest.log) {
      const stored = new Log(item, `train logs ${item}`);
      const answer = await getFile(stack, item, newest.log).catch((error) => error);
      stored.put(answer instanceof Error ? answer.message : await answer.text());
      following = { element: stored.element, close: () => {} };
    }
    fill(log, el("h2", {}, "Log"), following?.element ?? el("p", { class: "dim" }, "No job of this run has a log."));
  };
  const showFiles = async () => {
    const found = await get(stack, "files", { run: item });
    const shown = el("div");
    fill(files, el("h2", {}, "Files"), table("Files", [["file", (row) => row.name, "long"], ["size", (row) => bytes(row.size), "number"],
      ["look", (row) => el("span", {}, viewable(row) ? el("button", { type: "button", class: "small", "data-key": `view-${row.name}`, onclick: () => view(row, shown) }, "View") : "", " ",
        el("button", { type: "button", class: "small", "data-key": `download-${row.name}`, onclick: () => save(row) }, "Download"))],
    ], found.rows, "This run has no files."), found.total > found.rows.length ? el("p", { class: "dim" }, sentence(`${found.total} files; all of them: \`train pull ${item}\``)) : "", shown);
  };
  const save = (row) => getFile(stack, item, row.name).then((blob) => download(blob, row.name)).catch((error) => say(error.message));
  const view = async (row, shown) => {
    try {
      fill(shown, el("h3", {}, row.name), await content(row.name, await getFile(stack, item, row.name)));
      shown.scrollIntoView({ block: "nearest" });
    } catch (error) { say(error.message); }
  };
  const load = async () => {
    const { runs: [found] } = await get(stack, "compared", { runs: item });
    fill(about, facts([["job", found.job && state(found.job)], ["fault", found.fault && el("span", { class: "bad" }, found.fault)], ["user", found.user], ["started", time(found.started)],
      ["epochs", found.epochs ? `${found.epochs}${found.of == null ? "" : ` of ${number(found.of)}`}` : ""], ["best", best(found)],
      ["checkpoint", found.checkpoint], ["cost", found.cost == null ? "" : `${found.cost} $`],
      ["cost, at most", found.most == null ? "" : `${found.most} $ (the whole stack while its jobs ran)`]]), buttons(stack, found.actions, { run: item }, load));
    curves.update([found]);
    use.update(found.usage);
    logged.update(found.shown);
    useTitle.hidden = !use.element.hasChildNodes();
    fill(rest, ...(Object.keys(found.config).length ? settings({ runs: [found], differ: [] }) : []), el("h2", {}, "Starts and code"), starts(stack, found));
    await showLog(found);
    if (asked++ % 8 === 0) await showFiles();
  };
  return { title: `Run ${item}`, element: el("div", {}, el("h2", {}, `Run ${item}`), about, curves.element, logged.element, useTitle, use.element, log, files, rest), load, every: 4, close: () => following?.close() };
}

// Pictures and texts that a run has logged: of each name the newest, and a slider to the others.
class Shown {
  constructor(stack, run) { this.element = el("div", { class: "charts" }); this.drawn = ""; this.ask = (file) => getFile(stack, run, file); }

  update(found) {
    const now = JSON.stringify(found);
    if (now === this.drawn) return;
    this.drawn = now;
    const names = Map.groupBy(found, (each) => each.name);
    fill(this.element, [...names].map(([name, files]) => this.series(name, files)));
  }

  series(name, files) {
    const place = el("div"), said = el("span", { class: "dim" });
    const show = async () => {
      const { file, step } = files[slider.value];
      said.textContent = ` step ${step}`;
      try { fill(place, await content(file, await this.ask(file))); } catch (error) { fill(place, error.message); }
    };
    const slider = el("input", { type: "range", min: 0, max: files.length - 1, value: files.length - 1, "aria-label": `Step of ${name}`, onchange: show });
    slider.value = files.length - 1;
    show();
    return el("section", { "aria-label": name }, el("h3", {}, name, said), files.length > 1 ? slider : "", place);
  }
}

async function content(name, blob) {
  const kind = PICTURES[ending(name)];
  return kind ? el("img", { src: URL.createObjectURL(blob.slice(0, blob.size, kind)), alt: name, class: "shown" })
    : el("pre", { tabindex: 0, "aria-label": name }, await blob.slice(0, MOST_VIEWED).text());
}

const ending = (name) => name.split(".").at(-1).toLowerCase();
const viewable = (row) => PICTURES[ending(row.name)] || TEXTS.test(row.name);

function starts(stack, run) {
  const last = run.starts.at(-1);
  const packages = last && Object.entries(last.packages).filter(([, version]) => version).map(([name, version]) => `${name} ${text(version)}`).join(", ");
  return facts([...run.jobs.map((job) => ["job", el("span", {}, job.told, job.job && [" ", link(to(stack, "jobs", job.job), "its page")])]),
    ...run.jobs.slice(-1).map((job) => ["code", [job.commit && `commit ${job.commit}`, job.upload && `upload ${job.upload}`].filter(Boolean).join(", ")]),
    ["starts", run.starts.length ? `${run.starts.length}; last ${time(last.time)}, commit ${last.commit || "unknown"}` : ""], ["versions", last && `Python ${last.python}, ${packages}`]]);
}

// A run's best value by its first goal, such as `0.97 (max valid_acc)`.
const best = (run) => (run.best == null ? "" : `${number(run.best)} (${Object.entries(run.goals)[0].reverse().join(" ")})`);
