// Questions to the server, and the commands that buttons start.

import { byId, copied, el, fill, sentence, time } from "./dom.js";

const TOKEN = "X-Trainyard-Token";
const KEY = /^#key=(.+)$/;
let token = localStorage.getItem(TOKEN); // other ports of this host cannot read it
let shown = "";

function ask(address, { headers, ...options } = {}) {
  return fetch(address, { ...options, headers: token ? { ...headers, [TOKEN]: token } : headers });
}

export async function get(...path) {
  const query = typeof path.at(-1) === "object" ? path.pop() : {};
  return answer(await ask(`${place(path)}?${new URLSearchParams(query)}`));
}

const place = (path) => `/api/${path.map(encodeURIComponent).join("/")}`;

async function answer(reply) {
  const said = await reply.text();
  let found;
  try { found = JSON.parse(said); } catch { found = { error: said || `the server answers ${reply.status}` }; }
  if (!reply.ok) throw new Error(found.error);
  return found;
}

// A file of a run, as a blob without a kind: a browser takes it for nothing.
export async function getFile(stack, run, name) {
  const reply = await ask(`${place([stack, "file"])}?${new URLSearchParams({ run, name })}`);
  return reply.ok ? reply.blob() : answer(reply);
}

// Takes each [kind, value] of an answer that goes on.
export async function lines(path, signal, take) {
  const reply = await ask(place(path), { signal });
  if (!reply.ok) await answer(reply);
  const reader = reply.body.pipeThrough(new TextDecoderStream()).getReader();
  for (let rest = ""; ;) {
    const { value, done } = await reader.read();
    if (done) return;
    const found = (rest + value).split("\n");
    rest = found.pop();
    for (const line of found) take(...JSON.parse(line));
  }
}

// The key in the page's address, which works once, becomes a token that all tabs of it share.
export async function session() {
  const key = location.hash.match(KEY)?.[1];
  if (key) {
    if (document.prerendering) await new Promise((shows) => document.addEventListener("prerenderingchange", shows, { once: true }));
    history.replaceState(null, "", "/");
    const reply = await fetch("/api/open", { method: "POST", headers: { [TOKEN]: key } });
    if (reply.ok) localStorage.setItem(TOKEN, token = (await reply.json()).token);
  }
  return get("session");
}

// An address with a key in a tab that shows the page, or showed that of an earlier server.
window.addEventListener("hashchange", () => { if (KEY.test(location.hash)) location.reload(); });

export function say(message) { byId("status").textContent = message; }

export function tellFault(message) {
  byId("fault").hidden = !message;
  fill(byId("fault"), sentence(message));
}

// Buttons, each with the command that it runs; `about` names the job, run or service.
export function buttons(stack, actions, about, done = () => {}) {
  return actions.map((action) => {
    const name = action.action[0].toUpperCase() + action.action.slice(1);
    const press = async () => {
      if (action.question && !(await agreed(action))) return;
      try {
        await answer(await ask("/api/commands", {
          method: "POST",
          headers: { "Content-Type": "application/json" },
          body: JSON.stringify({ stack, command: action.command, ...about }),
        }));
        say(`started: ${action.command}`);
        await follow(done);
      } catch (error) { tellFault(error.message); }
    };
    return el("div", { class: "action" },
      action.runs ? el("button", { type: "button", class: action.question && "danger", "data-key": `action-${action.action} ${action.command}`, onclick: press }, name) : el("span", {}, `${name}, in a terminal:`),
      copied(action.command));
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
