// Questions to the server, and the commands that buttons start.

import { byId, el, fill, time } from "./dom.js";

let token = ""; // a page that only shows gets none
let shown = "";

export async function get(...path) {
  const query = typeof path.at(-1) === "object" ? path.pop() : {};
  const address = `/api/${path.map(encodeURIComponent).join("/")}?${new URLSearchParams(query)}`;
  return answer(await fetch(address));
}

async function answer(reply) {
  const found = await reply.json().catch(() => ({ error: `the server answers ${reply.status}` }));
  if (!reply.ok) throw new Error(found.error);
  return found;
}

export async function session() {
  const found = await get("session");
  token = found.token;
  return found;
}

export function say(message) { byId("status").textContent = message; }

export function tellFault(message) {
  byId("fault").hidden = !message;
  byId("fault").textContent = message;
}

// Buttons, each with the command that it runs; `about` names the job, run or service.
export function buttons(stack, actions, about, done = () => {}) {
  return actions.map((action) => {
    const name = action.action[0].toUpperCase() + action.action.slice(1);
    const press = async () => {
      if (action.question && !(await agreed(action))) return;
      try {
        await answer(await fetch("/api/commands", {
          method: "POST",
          headers: { "Content-Type": "application/json", "X-Trainyard-Token": token },
          body: JSON.stringify({ stack, action: action.action, ...about }),
        }));
        say(`started: ${action.command}`);
        await follow(done);
      } catch (error) { tellFault(error.message); }
    };
    return el("div", { class: "action" },
      action.runs ? el("button", { type: "button", class: action.question && "danger", "data-key": `action-${action.action}`, onclick: press }, name) : el("span", {}, `${name}, in a terminal:`),
      el("code", {}, action.command));
  });
}

function agreed(action) {
  byId("ask-title").textContent = action.question;
  byId("ask-command").textContent = action.command;
  const dialog = byId("ask");
  return new Promise((resolve) => {
    byId("ask-yes").onclick = () => { resolve(true); dialog.close(); };
    byId("ask-no").onclick = () => dialog.close();
    dialog.onclose = () => resolve(false);
    dialog.showModal();
  });
}

// Shows the commands until none runs.
export async function follow(done = () => {}) {
  for (;;) {
    const { rows } = await get("commands");
    const now = JSON.stringify(rows);
    if (now !== shown) fill(byId("commands-list"), rows.map(command));
    shown = now;
    byId("commands").hidden = !rows.length;
    if (rows.every((row) => row.code !== null)) break;
    await new Promise((resolve) => setTimeout(resolve, 1000));
  }
  done();
}

function command(row, index) {
  const result = row.code === null ? "runs" : row.code === 0 ? "done" : `ended with ${row.code}`;
  return el("details", { open: index === 0 },
    el("summary", { "data-key": `command-${row.number}` }, el("code", {}, row.command), ` ${result}, begun ${time(row.began * 1000)}`),
    el("pre", { tabindex: 0, "aria-label": `Output of ${row.command}` }, row.text || "no output yet"));
}
