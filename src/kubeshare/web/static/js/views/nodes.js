// All nodes with their GPUs.

import { element, fill } from "../dom.js";
import { byName, count, share } from "../format.js";
import { badge, models, nodeLink, requested, strip } from "../rows.js";
import { state } from "../state.js";
import { VirtualTable } from "../virtual_table.js";

export function nodesView() {
  const summary = element("p", { class: "quiet", role: "status" });
  const filter = element("input", {
    type: "search", id: "filter", placeholder: "Name, model or state", autocomplete: "off", input: () => update(null),
  });
  const rows = new VirtualTable("Nodes", "nodes", ["Node", "State", "GPUs", "Each GPU", "Requested", "Shares"], cells);
  const main = [
    element("div", { class: "title" }, element("h1", {}, "GPUs"),
      element("label", { for: "filter" }, "Filter ", filter)),
    summary, legend(), rows.element,
  ];

  function update(changed) {
    if (changed && ![...changed].some((id) => id.startsWith("nodes/"))) return;
    const wanted = filter.value.trim().toLowerCase();
    const all = state.rows("nodes").sort((a, b) => byName(a.id, b.id));
    const shown = wanted ? all.filter((row) => words(row).includes(wanted)) : all;
    const gpus = all.flatMap((row) => row.gpus);
    fill(summary, all.length === 0 ? none() : [
      `${count(all.length, "node")}, ${count(gpus.length, "GPU")}, `,
      `${share(requested(gpus))} GPUs requested`, wanted && `; ${count(shown.length, "node")} shown`,
    ]);
    rows.show(shown);
  }
  return { title: "GPUs", main, update, close: () => rows.close() };
}

const none = () => (state.facts.refused.includes("vgpus")
  ? "None of your SharePods has a GPU now."
  : "No node has a GPU that can be shared: KubeShare's node agent runs on none.");

function words(row) {
  const bad = row.gpus.some((gpu) => gpu.state === "unhealthy") ? "unhealthy" : "";
  return [row.id, row.state, ...row.models, bad].join(" ").toLowerCase();
}

function cells(row) {
  const unhealthy = row.gpus.filter((gpu) => gpu.state === "unhealthy").length;
  const holders = row.gpus.reduce((sum, gpu) => sum + (gpu.holders || 0), 0);
  return [
    nodeLink(row.id),
    [badge(row.state), unhealthy > 0 && badge("unhealthy", `${unhealthy} unhealthy`)],
    models(row),
    strip(row.gpus),
    `${share(requested(row.gpus))} of ${row.gpus.length}`,
    count(holders, "share"),
  ];
}

function legend() {
  const entries = [["shared", "requested"], ["whole", "whole GPU in use"], ["free", "free"], ["unhealthy", "unhealthy"]];
  return element("p", { class: "legend" }, entries.map(([kind, text]) =>
    element("span", {}, element("span", { class: `gpu ${kind}`, "aria-hidden": "true" }, element("i")), text)));
}
