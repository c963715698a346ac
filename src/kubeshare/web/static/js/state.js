// Keeps the rows that the server has sent, and calls views when they change.

import { follow, readJson } from "./connection.js";

const RETRY_MS = 2000;
const MOST_PENDING = 256; // of more, everything is read once more instead

class State extends EventTarget {
  constructor() {
    super();
    this.tables = { nodes: new Map(), pods: new Map(), quotas: new Map() };
    this.facts = { cluster: "", namespaces: null, refused: [], stale: [] };
    this.loaded = false;
    this.problem = "";
    this.revision = -1;
    this.pending = null; // changes that came while everything is read
  }

  start() {
    follow((name, data) => this.onEvent(name, data), (error) => this.onLost(error));
  }

  rows(table) {
    return [...this.tables[table].values()];
  }

  onEvent(name, data) {
    if (name === "hello" || name === "refresh") this.refresh();
    else if (name === "beat") this.update({ stale: data.stale });
    else if (this.pending) this.keep(data);
    else this.apply(data);
  }

  /** Keeps a change until everything is read; however long that takes, only so many. */
  keep(data) {
    if (this.pending.length < MOST_PENDING) {
      this.pending.push(data);
      return;
    }
    this.pending = [];
    this.again = true;
  }

  onLost(error) {
    if (error.signIn) this.dispatchEvent(new CustomEvent("sign-in", { detail: error.message }));
    this.report(error.message);
  }

  async refresh() {
    if (this.pending) {
      this.again = true;
      return;
    }
    this.pending = [];
    try {
      const read = await readJson("/api/tables");
      for (const [name, rows] of Object.entries(read.tables)) {
        this.tables[name] = new Map(rows.map((row) => [row.id, row]));
      }
      this.revision = read.revision;
      this.loaded = true;
      this.problem = "";
      this.facts = read;
    } catch (error) {
      this.onLost(error);
      if (error.status !== 401) setTimeout(() => this.refresh(), RETRY_MS);
    }
    const waiting = this.pending;
    this.pending = null;
    this.notify(null);
    waiting.forEach((change) => this.apply(change));
    if (this.again) {
      this.again = false;
      this.refresh();
    }
  }

  apply({ revision, tables }) {
    if (revision <= this.revision) return;
    this.revision = revision;
    const changed = new Set();
    for (const [name, { rows, gone }] of Object.entries(tables)) {
      for (const row of rows) {
        this.tables[name].set(row.id, row);
        changed.add(`${name}/${row.id}`);
      }
      for (const id of gone) {
        this.tables[name].delete(id);
        changed.add(`${name}/${id}`);
      }
    }
    this.notify(changed);
  }

  report(problem) {
    this.problem = problem;
    this.dispatchEvent(new Event("status"));
  }

  update(facts) {
    Object.assign(this.facts, facts);
    this.dispatchEvent(new Event("status"));
  }

  /** @param {Set<string>|null} changed `table/id` of each; null for everything */
  notify(changed) {
    this.dispatchEvent(new Event("status"));
    this.dispatchEvent(new CustomEvent("change", { detail: changed }));
  }
}

export const state = new State();
