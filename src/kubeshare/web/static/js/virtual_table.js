// A table of any number of rows, of which only those on the screen are elements.
// The page itself scrolls, so keys and touch work as everywhere.

import { element, refresh } from "./dom.js";

const BEYOND = 8; // rows above and below the screen, so that Tab finds the next one

export class VirtualTable {
  /**
   * @param {string} label for assistive technology
   * @param {string} kind class of the table
   * @param {string[]} columns
   * @param {(row: object) => Array} cells contents of the cells of a row
   */
  constructor(label, kind, columns, cells) {
    this.rows = [];
    this.cells = cells;
    this.shown = new Map(); // id -> { element, row, at }
    this.body = element("div", { role: "rowgroup", class: "body" });
    this.element = element("div", { role: "table", class: `table ${kind}`, "aria-label": label },
      element("div", { role: "rowgroup", class: "head" },
        element("div", { role: "row" }, columns.map((name) => element("span", { role: "columnheader" }, name)))),
      this.body);
    this.onScroll = () => this.schedule();
    addEventListener("scroll", this.onScroll, { passive: true });
    addEventListener("resize", this.onScroll);
  }

  close() {
    removeEventListener("scroll", this.onScroll);
    removeEventListener("resize", this.onScroll);
  }

  show(rows) {
    this.rows = rows;
    this.element.setAttribute("aria-rowcount", String(rows.length + 1));
    this.render();
  }

  schedule() {
    if (this.frame) return;
    this.frame = requestAnimationFrame(() => {
      this.frame = 0;
      this.render();
    });
  }

  render() {
    const height = parseFloat(getComputedStyle(this.element).getPropertyValue("--row")) || 48;
    this.body.style.height = `${this.rows.length * height}px`;
    const top = -this.body.getBoundingClientRect().top;
    const first = Math.max(0, Math.floor(top / height) - BEYOND);
    const last = Math.min(this.rows.length, Math.ceil((top + innerHeight) / height) + BEYOND);
    const wanted = new Map();
    for (let at = first; at < last; at += 1) wanted.set(this.rows[at].id, at);
    for (const [id, { element: shown }] of this.shown) {
      // The row that has the focus stays: without it, keys would begin at the top again.
      if (!wanted.has(id) && !shown.contains(document.activeElement)) {
        shown.remove();
        this.shown.delete(id);
      }
    }
    let before = null;
    for (const [id, at] of wanted) {
      before = this.place(id, at, height, before);
    }
  }

  place(id, at, height, before) {
    const row = this.rows[at];
    let known = this.shown.get(id);
    if (!known) {
      known = { element: element("div", { role: "row" }), row: null };
      this.shown.set(id, known);
    }
    if (known.row !== row) {
      const focused = known.element.contains(document.activeElement);
      refresh(known.element, this.cells(row).map((cell) => element("span", { role: "cell" }, cell)));
      if (focused && !known.element.contains(document.activeElement)) known.element.querySelector("a")?.focus();
      known.row = row;
    }
    known.element.setAttribute("aria-rowindex", String(at + 2));
    known.element.style.transform = `translateY(${at * height}px)`;
    const next = before ? before.nextSibling : this.body.firstChild;
    if (next !== known.element) this.body.insertBefore(known.element, next);
    return known.element;
  }
}
