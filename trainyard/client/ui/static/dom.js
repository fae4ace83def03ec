// Elements and texts. What a job wrote is only ever a text: nothing here reads HTML.

export function el(tag, attributes = {}, ...children) {
  return built(document.createElement(tag), attributes, children);
}

const SVG = "http://www.w3.org/2000/svg";
export const svg = (tag, attributes = {}, ...children) => built(document.createElementNS(SVG, tag), attributes, children);

function built(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value != null) element.setAttribute(name, String(value));
  }
  element.append(...children.flat(Infinity).filter((child) => child != null && child !== ""));
  return element;
}

// Replaces the content, and keeps the focus on the element of the same data-key.
export function fill(parent, ...children) {
  const active = parent.contains(document.activeElement) ? document.activeElement : null;
  const key = active?.dataset.key;
  parent.replaceChildren(...children.flat(Infinity).filter((child) => child != null));
  if (key) parent.querySelector(`[data-key="${CSS.escape(key)}"]`)?.focus();
}

export const byId = (id) => document.getElementById(id);
export const text = (value) => (value == null ? "" : typeof value === "object" ? JSON.stringify(value) : String(value));
export const to = (stack, ...path) => `#/${[stack, ...path].map(encodeURIComponent).join("/")}`;
export const link = (address, name, key) => el("a", { href: address, "data-key": key ?? address }, name);

// A sentence whose `commands` are drawn as code.
export const sentence = (said) => text(said).split("`").map((part, index) => (index % 2 ? el("code", {}, part) : part));

// A text to copy, as code or as an address.
export function copied(value, shown = el("code", {}, value)) {
  const copy = async (event) => {
    const button = event.currentTarget;
    await navigator.clipboard.writeText(value);
    button.textContent = "copied";
    setTimeout(() => { button.textContent = "copy"; }, 1500);
  };
  return el("span", { class: "copied" }, shown, " ", el("button", { type: "button", class: "small", "aria-label": `Copy ${value}`, onclick: copy }, "copy"));
}

export function number(value) {
  if (typeof value !== "number") return text(value);
  if (Number.isInteger(value)) return String(value);
  return String(Number(value.toPrecision(4)));
}

export function bytes(value) {
  if (value == null) return "?";
  const power = Math.min(4, Math.max(0, Math.floor(Math.log2(Math.max(1, value)) / 10)));
  return power ? `${(value / 2 ** (10 * power)).toFixed(1)} ${["", "KiB", "MiB", "GiB", "TiB"][power]}` : `${value} B`;
}

export function duration(seconds) {
  const hours = Math.floor(seconds / 3600), minutes = Math.floor((seconds % 3600) / 60);
  if (hours) return `${hours} h ${String(minutes).padStart(2, "0")} min`;
  return minutes ? `${minutes} min ${seconds % 60} s` : `${seconds} s`;
}

export function time(value) {
  if (!value) return "";
  const moment = new Date(value);
  if (Number.isNaN(moment.getTime())) return text(value);
  const two = (part) => String(part).padStart(2, "0");
  const day = `${moment.getFullYear()}-${two(moment.getMonth() + 1)}-${two(moment.getDate())}`;
  return `${day} ${two(moment.getHours())}:${two(moment.getMinutes())}`;
}

const KINDS = { RUNNING: "good", SUCCEEDED: "good", HEALTHY: "good", up: "good", PENDING: "waits",
  DEPLOYING: "waits", FAILED: "bad", "no answer": "bad", UNHEALTHY: "bad", DEPLOY_FAILED: "bad", firing: "bad", pending: "waits" };
export const state = (name) => el("span", { class: KINDS[name] ?? "dim" }, text(name));

export function facts(rows) {
  return el("dl", {}, rows.filter(([, value]) => value != null && value !== "")
    .map(([name, value]) => [el("dt", {}, name), el("dd", {}, value instanceof Node ? value : sentence(value))]));
}

// Cells of a row; their titles stand beside them on a phone. Their roles stay when CSS makes blocks of them.
export const cells = (titles, contents) => contents.map(([content, kind], index) =>
  el("td", { class: kind, role: "cell", "data-title": titles[index] }, content));

// A table of all its rows; `columns` are [title, cell(row), class]. A column without any content is left out.
export function table(caption, columns, rows, empty) {
  if (!rows.length) return el("p", { class: "dim" }, sentence(empty));
  const drawn = columns.map(([title, cell, kind]) => ({ title, kind, cells: rows.map(cell) }))
    .filter((column) => column.cells.some((cell) => cell != null && cell !== ""));
  const titles = drawn.map((column) => column.title);
  return scroll(caption, el("table", { role: "table" }, el("caption", {}, caption),
    el("thead", { role: "rowgroup" }, el("tr", { role: "row" }, drawn.map(({ title, kind }) => el("th", { scope: "col", role: "columnheader", class: kind }, title)))),
    el("tbody", { role: "rowgroup" }, rows.map((_, index) => el("tr", { role: "row" }, cells(titles, drawn.map((column) => [column.cells[index], column.kind])))))));
}

export const scroll = (caption, content, kind = "") => el("div", { class: `scroll ${kind}`, tabindex: 0, role: "region", "aria-label": caption }, content);
