// A table that the server filters, sorts and cuts into pages, with the columns that one chooses.

import { cells, el, fill, scroll, sentence } from "./dom.js";

export class PagedTable {
  // columns: {key, title, cell(row), kind, fixed, off}, or {many(page)} for some of these; load(query) returns a page.
  // `fixed`: always there, and not sorted by; `off`: there if chosen.
  constructor({ name, caption, columns, load, hint, empty }) {
    Object.assign(this, { name, caption, columns, load, empty });
    this.query = { filter: "", page: 0, sort: "", order: "" };
    this.chosen = new Map(Object.entries(kept(name)));
    this.search = el("input", { type: "search", "aria-label": `Filter ${caption}`, placeholder: hint, autocomplete: "off",
      oninput: () => { this.query.filter = this.search.value; this.query.page = 0; clearTimeout(this.later); this.later = setTimeout(() => this.refresh(), 200); } });
    this.count = el("span", { class: "dim", role: "status" });
    this.back = el("button", { type: "button", onclick: () => this.turn(-1) }, "Previous");
    this.next = el("button", { type: "button", onclick: () => this.turn(1) }, "Next");
    this.choice = el("div", { class: "choice" });
    this.head = el("tr", { role: "row" });
    this.body = el("tbody", { role: "rowgroup" });
    this.element = el("div", {},
      el("div", { class: "bar" }, this.search, this.count, this.back, this.next, el("details", {}, el("summary", {}, "Columns"), this.choice)),
      scroll(caption, el("table", { role: "table" }, el("caption", {}, caption), el("thead", { role: "rowgroup" }, this.head), this.body), "tall"));
  }

  turn(by) { this.query.page += by; return this.refresh(); }

  sort(key) {
    const descending = this.query.sort === key ? this.query.order !== "descending" : true;
    Object.assign(this.query, { sort: key, order: descending ? "descending" : "ascending", page: 0 });
    return this.refresh();
  }

  choose(key, on) {
    this.chosen.set(key, on);
    localStorage.setItem(place(this.name), JSON.stringify(Object.fromEntries(this.chosen)));
    this.draw(this.found);
  }

  async refresh() {
    const asked = JSON.stringify(this.query);
    const found = await this.load(this.query);
    if (asked !== JSON.stringify(this.query)) return; // a later question is on its way
    this.draw(found);
  }

  draw(found) {
    this.found = found;
    this.query.page = found.page;
    const from = found.matching ? found.page * 100 + 1 : 0;
    this.count.textContent = `${from} to ${from ? from + found.rows.length - 1 : 0} of ${found.matching}` +
      (found.matching === found.total ? "" : ` (of ${found.total})`) + (found.reading ? `, reading ${found.reading}` : "");
    for (const button of [this.back, this.next]) button.hidden = found.pages < 2;
    this.back.disabled = found.page === 0;
    this.next.disabled = found.page >= found.pages - 1;
    const all = this.columns.flatMap((column) => (column.many ? column.many(found) : column))
      .map((column) => ({ ...column, cells: found.rows.map(column.cell) }));
    fill(this.choice, all.filter((column) => !column.fixed).map((column) => el("label", {}, el("input", { type: "checkbox", checked: this.shows(column),
      "data-key": `column-${column.key}`, onchange: (event) => this.choose(column.key, event.target.checked) }), column.title)));
    const shown = all.filter((column) => this.shows(column));
    fill(this.head, shown.map((column) => this.title(column)));
    const titles = shown.map((column) => column.title);
    const rows = found.rows.map((_, index) => el("tr", { role: "row" }, cells(titles, shown.map((column) => [column.cells[index], column.kind]))));
    const none = el("tr", { role: "row" }, el("td", { colspan: shown.length || 1, class: "dim", role: "cell" },
      found.total ? "No row matches the filter." : found.reading ? "reading" : sentence(this.empty)));
    fill(this.body, rows.length ? rows : none);
  }

  // What is not chosen is there unless it is `off`, or has nothing on this page.
  shows(column) {
    const said = this.chosen.get(column.key);
    return column.fixed || (said ?? (!column.off && (!column.cells.length || column.cells.some((cell) => cell != null && cell !== ""))));
  }

  title(column) {
    const sorted = this.query.sort === column.key ? this.query.order : "none";
    const arrow = { ascending: " ▲", descending: " ▼", none: "" }[sorted];
    return el("th", { scope: "col", role: "columnheader", class: column.kind, "aria-sort": column.fixed ? null : sorted },
      column.fixed ? column.title : el("button", { type: "button", "data-key": `sort-${column.key}`, onclick: () => this.sort(column.key) }, column.title,
        el("span", { "aria-hidden": "true" }, arrow)));
  }
}

const place = (name) => `columns of ${name}`;

function kept(name) {
  try { return JSON.parse(localStorage.getItem(place(name))) ?? {}; } catch { return {}; }
}
