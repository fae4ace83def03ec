// Which view is shown, and when it asks again.

import { follow, say, session, tellFault } from "./api.js";
import { clear } from "./charts.js";
import { byId, el, fill } from "./dom.js";
import * as views from "./views.js";

let stacks = [];
let readOnly = false;
let view = null;
let timer = 0;

function place() {
  const [stack, name, ...rest] = location.hash.replace(/^#\//, "").split("/").map(decodeURIComponent);
  return { stack: stacks.includes(stack) ? stack : stacks[0], name: name || "overview", item: rest.join("/") };
}

function show() {
  const { stack, name, item } = place();
  view?.close?.();
  clear();
  const make = name === "jobs" && item ? views.job : Object.hasOwn(views, name) ? views[name] : views.overview;
  view = make({ stack, stacks, item });
  document.title = `${view.title} - Trainyard`;
  byId("stack").value = stack;
  for (const link of document.querySelectorAll("nav a")) {
    link.href = `#/${encodeURIComponent(stack)}/${link.dataset.view}`;
    if (link.dataset.view === (name === "run" ? "runs" : name)) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  fill(byId("main"), view.element);
  tellFault("");
  say("");
  refresh(view);
}

async function refresh(asked) {
  clearTimeout(timer);
  if (asked !== view) return;
  if (!document.hidden) {
    try {
      await asked.load();
      if (asked === view) tellFault("");
    } catch (error) {
      const gone = error instanceof TypeError ? `the server of this page has ended: ${readOnly ? "load the page again" : "run train ui again"}` : error.message;
      if (asked === view) tellFault(gone);
    }
  }
  if (asked === view) timer = setTimeout(() => refresh(asked), asked.every * 1000);
}

async function begin() {
  try {
    ({ stacks, read_only: readOnly } = await session());
  } catch (error) { tellFault(error.message); return; }
  fill(byId("stack"), stacks.map((name) => el("option", { value: name }, name)));
  byId("stack").addEventListener("change", (event) => { location.hash = `#/${encodeURIComponent(event.target.value)}/${place().name}`; });
  window.addEventListener("hashchange", show);
  byId("skip").addEventListener("click", (event) => { event.preventDefault(); byId("main").focus(); });
  document.addEventListener("visibilitychange", () => { if (!document.hidden) refresh(view); });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", show); // charts have its colours
  show();
  byId("read-only").hidden = !readOnly;
  if (!readOnly) follow();
}

begin();
