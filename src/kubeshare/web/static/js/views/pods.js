// The SharePods and pods that ask for shares: all, or those that wait.

import { element, fill } from "../dom.js";
import { age, byName, count } from "../format.js";
import { badge, nodeLink, podLink } from "../rows.js";
import { state } from "../state.js";
import { VirtualTable } from "../virtual_table.js";

const nameOrder = (a, b) => byName(a.namespace, b.namespace) || byName(a.name, b.name);
const ageOrder = (a, b) => a.created.localeCompare(b.created) || nameOrder(a, b);

const KINDS = {
  pods: {
    title: "Pods", empty: "No SharePod or pod asks for a share of a GPU.", order: nameOrder, wanted: () => true,
    columns: ["Pod", "State", "Where", "Request", "Memory", "Age"], cells: podCells,
  },
  waiting: {
    title: "Waiting", empty: "Nothing waits for a GPU.", order: ageOrder, wanted: (row) => row.state === "waiting",
    columns: ["Pod", "Asks for", "Reason", "Why", "Age"], cells: waitingCells,
  },
};

export function podsView(kind) {
  const { title, empty, order, wanted, columns, cells } = KINDS[kind];
  const summary = element("p", { class: "quiet", role: "status" });
  const filter = element("input", {
    type: "search", id: "filter", placeholder: "Namespace, name, node or state", autocomplete: "off",
    input: () => update(null),
  });
  const rows = new VirtualTable(title, kind, columns, cells);
  const main = [
    element("div", { class: "title" }, element("h1", {}, title),
      element("label", { for: "filter" }, "Filter ", filter)),
    summary, rows.element,
  ];

  function update(changed) {
    if (changed && ![...changed].some((id) => id.startsWith("pods/"))) return;
    const text = filter.value.trim().toLowerCase();
    const all = state.rows("pods").filter(wanted).sort(order);
    const shown = text ? all.filter((row) => words(row).includes(text)) : all;
    fill(summary, all.length === 0 ? empty : count(all.length, "pod"), text && `; ${shown.length} shown`);
    rows.show(shown);
  }
  return { title, main, update, close: () => rows.close() };
}

const words = (row) =>
  `${row.namespace}/${row.name} ${row.node} ${row.state} ${row.reason} ${row.gpuids.join(" ")}`.toLowerCase();

const times = (row) => (row.count > 1 ? ` ×${row.count}` : "");

function podCells(row) {
  return [
    podLink(row.kind, row.namespace, row.name),
    [badge(row.state), row.reason && element("small", {}, ` ${row.reason}`)],
    row.node ? [nodeLink(row.node), element("small", {}, ` ${row.gpuids.join(", ")}`)] : "–",
    `${row.request || "?"}${times(row)}`,
    row.memory || "–",
    age(row.created),
  ];
}

function waitingCells(row) {
  return [
    podLink(row.kind, row.namespace, row.name),
    `${row.request || "?"}${times(row)}, ${row.memory || "?"}`,
    row.reason ? badge("waiting", row.reason) : badge("waiting", "not decided yet"),
    element("span", { class: "why", title: row.message }, row.message),
    age(row.created),
  ];
}
