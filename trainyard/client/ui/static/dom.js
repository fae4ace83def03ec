// Elements and texts. What a job wrote is only ever a text: nothing here reads HTML.

export function el(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
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

export function number(value) {
  if (typeof value !== "number") return text(value);
  if (Number.isInteger(value)) return String(value);
  return String(Number(value.toPrecision(4)));
}

export function bytes(value) {
  return value == null ? "?" : `${(value / 2 ** 30).toFixed(1)} GiB`;
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
    .map(([name, value]) => [el("dt", {}, name), el("dd", {}, value instanceof Node ? value : text(value))]));
}

// A table of all its rows; `columns` are [title, cell(row), class].
export function table(caption, columns, rows, empty) {
  if (!rows.length) return el("p", { class: "dim" }, empty);
  return el("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": caption },
    el("table", {}, el("caption", {}, caption),
      el("thead", {}, el("tr", {}, columns.map(([title, , kind]) => el("th", { scope: "col", class: kind }, title)))),
      el("tbody", {}, rows.map((row) => el("tr", {}, columns.map(([, cell, kind]) => el("td", { class: kind }, cell(row))))))));
}
