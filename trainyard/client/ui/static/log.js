// A log that grows, with a search, a switch for wrapping and a download.

import { el } from "./dom.js";

const MOST = 400; // pieces

export class Log {
  constructor(name, command) {
    this.name = name;
    this.pieces = [];
    this.pre = el("pre", { role: "log", tabindex: 0, "aria-live": "off", "aria-label": `Log of ${name}` });
    this.search = el("input", { type: "search", placeholder: "show lines with", "aria-label": "Filter lines of the log", autocomplete: "off", oninput: () => this.draw() });
    const wrap = el("input", { type: "checkbox", checked: true, onchange: () => this.pre.classList.toggle("unwrapped", !wrap.checked) });
    this.element = el("div", {}, el("div", { class: "bar" }, this.search, el("label", {}, wrap, " wrap lines"),
      el("button", { type: "button", onclick: () => download(new Blob(this.pieces), `${name}.log`) }, "Download"), el("span", { class: "dim" }, "all of it: "), el("code", {}, command)), this.pre);
  }

  clear() { this.pieces = []; this.draw(); }

  put(piece) {
    this.pieces.push(piece);
    const cut = this.pieces.length > MOST;
    if (cut) this.pieces.shift();
    if (cut || this.search.value) { this.draw(); return; }
    this.atEnd(() => this.pre.append(piece));
  }

  draw() {
    const said = this.pieces.join(""), asked = this.search.value.toLowerCase();
    this.atEnd(() => { this.pre.textContent = asked ? said.split("\n").filter((line) => line.toLowerCase().includes(asked)).join("\n") : said; });
  }

  atEnd(change) {
    const stays = this.pre.scrollTop + this.pre.clientHeight > this.pre.scrollHeight - 20;
    change();
    if (stays) this.pre.scrollTop = this.pre.scrollHeight;
  }
}

export function download(blob, name) {
  const address = URL.createObjectURL(blob);
  el("a", { href: address, download: name.replaceAll("/", "_") }).click();
  setTimeout(() => URL.revokeObjectURL(address), 60_000);
}
