// A table that the server filters, sorts and cuts into pages.

import { el, fill } from "./dom.js";

export class PagedTable {
  // columns: {key, title, cell(row), kind, fixed}; load(query) returns a page.
  constructor({ caption, columns, load, hint, empty, order = {} }) {
    Object.assign(this, { caption, columns, load, empty });
    this.query = { filter: "", page: 0, sort: "", order: "", ...order };
    this.search = el("input", { type: "search", "aria-label": `Filter ${caption}`, placeholder: hint, autocomplete: "off",
      oninput: () => { this.query.filter = this.search.value; this.query.page = 0; clearTimeout(this.later); this.later = setTimeout(() => this.refresh(), 200); } });
    this.count = el("span", { class: "dim", role: "status" });
    this.back = el("button", { type: "button", onclick: () => this.turn(-1) }, "Previous");
    this.next = el("button", { type: "button", onclick: () => this.turn(1) }, "Next");
    this.head = el("tr");
    this.body = el("tbody");
    this.element = el("div", {},
      el("div", { class: "bar" }, this.search, this.count, this.back, this.next),
      el("div", { class: "scroll tall", tabindex: 0, role: "region", "aria-label": caption },
        el("table", {}, el("caption", {}, caption), el("thead", {}, this.head), this.body)));
  }

  turn(by) { this.query.page += by; return this.refresh(); }

  sort(key) {
    const descending = this.query.sort === key ? this.query.order !== "descending" : true;
    Object.assign(this.query, { sort: key, order: descending ? "descending" : "ascending", page: 0 });
    return this.refresh();
  }

  async refresh() {
    const asked = JSON.stringify(this.query);
    const found = await this.load(this.query);
    if (asked !== JSON.stringify(this.query)) return; // a later question is on its way
    this.query.page = found.page;
    const from = found.matching ? found.page * 100 + 1 : 0;
    this.count.textContent = `${from} to ${from ? from + found.rows.length - 1 : 0} of ${found.matching}` +
      (found.matching === found.total ? "" : ` (of ${found.total})`) + (found.reading ? `, reading ${found.reading}` : "");
    this.back.disabled = found.page === 0;
    this.next.disabled = found.page >= found.pages - 1;
    fill(this.head, this.columns.map((column) => this.title(column)));
    const rows = found.rows.map((row) => el("tr", {}, this.columns.map((column) => el("td", { class: column.kind }, column.cell(row)))));
    const none = el("tr", {}, el("td", { colspan: this.columns.length, class: "dim" }, found.total ? "none matches the filter" : found.reading ? "reading" : this.empty));
    fill(this.body, rows.length ? rows : none);
  }

  title(column) {
    const sorted = this.query.sort === column.key ? this.query.order : "none";
    const arrow = { ascending: " ▲", descending: " ▼", none: "" }[sorted];
    return el("th", { scope: "col", class: column.kind, "aria-sort": column.fixed ? null : sorted },
      column.fixed ? column.title : el("button", { type: "button", "data-key": `sort-${column.key}`, onclick: () => this.sort(column.key) }, column.title,
        el("span", { "aria-hidden": "true" }, arrow)));
  }
}
